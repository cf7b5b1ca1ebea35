//! Turns: the scheduled runs of a repeating job, each with all its attempts, and the rule for turns that come
//! too late.

use crate::Timestamp;
use crate::job::{Job, Outcome};
use crate::lease::RunKind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Turns kept per job: enough to see when a schedule began to fail, few enough to keep the job small.
pub const TURNS_KEPT: usize = 20;
/// Bytes kept of a turn's message; the attempt errors of the job have the whole one.
const MESSAGE_BYTES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Completed,
    /// No attempt was left.
    Failed,
    Cancelled,
    /// The turn came too late and was not run, see [`CatchUp::None`].
    Missed,
}

impl TurnOutcome {
    pub const ALL: [TurnOutcome; 4] =
        [TurnOutcome::Completed, TurnOutcome::Failed, TurnOutcome::Cancelled, TurnOutcome::Missed];

    pub fn as_str(self) -> &'static str {
        match self {
            TurnOutcome::Completed => "completed",
            TurnOutcome::Failed => "failed",
            TurnOutcome::Cancelled => "cancelled",
            TurnOutcome::Missed => "missed",
        }
    }
}

/// Handling of a turn that was not claimed before the next scheduled time: no server was running, or no worker
/// took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Of the missed turns one is run, late; the others are skipped.
    #[default]
    One,
    /// No missed turn is run.
    None,
}

impl CatchUp {
    pub fn as_str(self) -> &'static str {
        match self {
            CatchUp::One => "one",
            CatchUp::None => "none",
        }
    }
}

/// Ended turn of a repeating job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Scheduled time; of a requested turn its start.
    pub due_at: Timestamp,
    /// Start of its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub outcome: TurnOutcome,
    pub attempts: u32,
    /// Scheduled times after `due_at` that passed before the end of the turn; they were skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u32,
    /// The turn was requested ahead of the scheduled time, which stays as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Arc<str>>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Turn {
    /// Turn that ends with the current run of `job`; `failure` is the error of its last attempt. `None` for a
    /// job that does not repeat, and for a shutdown run.
    pub(crate) fn ended(
        job: &Job,
        outcome: TurnOutcome,
        failure: Option<&Outcome>,
        now: Timestamp,
    ) -> Option<Turn> {
        let repeat = job.spec.policy.repeat.as_ref()?;
        let lease = job.state().lease();
        if lease.is_some_and(|lease| lease.kind == RunKind::Shutdown) {
            return None;
        }
        let requested = lease.is_some_and(|lease| lease.ahead);
        let (due_at, started_at) = (job.progress.due_at, job.progress.started_at);
        let worker = lease.and_then(|lease| lease.worker.clone());
        Some(Turn {
            due_at: started_at.filter(|_| requested).unwrap_or(due_at),
            started_at,
            ended_at: now,
            outcome,
            attempts: job.progress.attempts,
            missed: if requested { 0 } else { repeat.missed(due_at, now) },
            requested,
            class: failure.and_then(|failure| failure.class.clone()),
            code: failure.and_then(|failure| failure.code.clone()),
            message: failure.and_then(|failure| failure.message.as_deref()).map(cut),
            worker: worker.or_else(|| failure?.worker.clone()),
        })
    }

    /// Turn that is not run.
    pub(crate) fn missed(job: &Job, now: Timestamp) -> Option<Turn> {
        Some(Turn {
            started_at: None,
            attempts: 0,
            worker: None,
            ..Turn::ended(job, TurnOutcome::Missed, None, now)?
        })
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut kept = text[..end].to_owned();
    if end < text.len() {
        kept.push('…');
    }
    kept
}

/// True if the first attempt of a turn starts only after the next scheduled time, and the catch-up rule of the
/// job does not allow that.
pub fn comes_too_late(job: &Job) -> bool {
    let policy = &job.spec.policy;
    let (Some(repeat), Some(lease)) = (&policy.repeat, job.state().lease()) else { return false };
    policy.catch_up == CatchUp::None
        && lease.kind == RunKind::Perform
        && !lease.ahead
        && job.progress.attempts <= 1
        // A turn that has begun and waited is not late.
        && job.steps().is_none_or(|steps| steps.kept().is_empty())
        && repeat.missed(job.progress.due_at, lease.granted_at) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let kept = cut(&"ä".repeat(MESSAGE_BYTES_MAX));
        assert!(kept.ends_with("ä…") && kept.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8());
    }
}
