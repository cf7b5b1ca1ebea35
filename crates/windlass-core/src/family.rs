//! Parent and child jobs.

use crate::JobId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FamilyRule {
    /// The children start when the parent's run ends; the parent runs again when all of them are settled.
    ParentWaits {
        /// True: the failure of the last pending child makes the parent run. False: the parent runs when
        /// another child is settled and none is pending, or when the failed child is cancelled, deleted, or
        /// run again and settled.
        failure_settles: bool,
    },
    /// The parent runs after each run of the child; neither waits for the other.
    ParentRunsAfter,
}

/// Link from a child to its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    pub parent: JobId,
    pub child_name: Option<Arc<str>>,
    pub rule: FamilyRule,
}

impl Family {
    pub fn parent_waits(&self) -> bool {
        matches!(self.rule, FamilyRule::ParentWaits { .. })
    }
}
