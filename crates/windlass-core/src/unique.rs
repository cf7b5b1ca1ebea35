//! Unique keys: at most one live job per key.

use crate::state::JobState;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// First character of a unique key or alias that stands for an idempotency key.
pub const IDEMPOTENCY_MARK: char = '\u{1f}';

/// Effect of a second push with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// No effect; the push returns the id of the existing job.
    #[default]
    Return,
    /// Replaces payload, priority and repeat rule of the existing job by those of the push.
    Update,
    Refuse,
}

/// End of the time in which the key blocks other pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum HeldUntil {
    /// Until the job is settled.
    #[default]
    Settled,
    /// Until a run starts: a push that arrives during the run creates a second job.
    Started,
    /// Until the job is deleted, in any state.
    Forgotten,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    pub key: Arc<str>,
    #[serde(default)]
    pub on_conflict: OnConflict,
    #[serde(default)]
    pub held_until: HeldUntil,
}

impl Unique {
    pub fn held_in(&self, state: &JobState) -> bool {
        match self.held_until {
            HeldUntil::Forgotten => true,
            HeldUntil::Settled => !state.is_settled(),
            HeldUntil::Started => !state.is_settled() && state.lease().is_none(),
        }
    }
}
