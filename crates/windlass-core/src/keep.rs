//! Retention: times for which a settled job and its result are kept.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// Time for which a settled job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepFor {
    Drop,
    Ms(i64),
    Ever,
}

impl KeepFor {
    pub fn expires_at(self, settled_at: Timestamp) -> Option<Timestamp> {
        match self {
            KeepFor::Drop => Some(settled_at),
            KeepFor::Ms(ms) => Some(settled_at.plus_ms(ms)),
            KeepFor::Ever => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    pub completed: KeepFor,
    pub failed: KeepFor,
    pub cancelled: KeepFor,
}

impl Default for Keep {
    /// Completed jobs for an hour, for inspection; failed jobs until an operator has dealt with them.
    fn default() -> Self {
        Keep {
            completed: KeepFor::Ms(3_600_000),
            failed: KeepFor::Ever,
            cancelled: KeepFor::Ms(7 * 86_400_000),
        }
    }
}

/// Retention of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultPolicy {
    /// Counted from the end of the job; a result never outlives its job.
    pub keep: KeepFor,
    /// The first read removes the result.
    pub once: bool,
}

impl Default for ResultPolicy {
    fn default() -> Self {
        ResultPolicy { keep: KeepFor::Ever, once: false }
    }
}
