//! A lease: the right of one worker to one run of a job, and what its end means.

use crate::Timestamp;
use crate::state::{JobState, StateName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Proof of holding a lease. Strictly increasing per job, with a random part, so that neither an older holder
/// nor a lucky guess passes for the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    /// `version` is the job's version once claimed: it never comes again for that job.
    pub fn new(version: u64, dice: u16) -> Token {
        Token((version << 16) | u64::from(dice))
    }

    pub const fn from_number(number: u64) -> Token {
        Token(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Who says so: the holder of a token, or a dialect whose protocol knows no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Token(Token),
    Anyone,
    /// Whoever may end a run also where there is none: the job then counts as run.
    Overseer,
}

impl Holder {
    pub fn holds(self, token: Token) -> bool {
        match self {
            Holder::Token(mine) => mine == token,
            Holder::Anyone | Holder::Overseer => true,
        }
    }
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    #[default]
    Perform,
    /// The job is being terminated; this run lets the worker tidy up.
    Shutdown,
}

/// What happens once the present run has ended, asked for while it was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    #[default]
    Settle,
    /// At this time, or at once if it has passed by then.
    RunAgain {
        at: Timestamp,
    },
    Terminate,
    /// Whatever the run reports.
    Rest(Rest),
}

/// A state without a run in which a job may be put from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    Suspended,
    Completed,
    Failed,
    Terminated,
}

impl Rest {
    pub const ALL: [Rest; 4] = [Rest::Suspended, Rest::Completed, Rest::Failed, Rest::Terminated];

    pub fn state(self, now: Timestamp) -> JobState {
        match self {
            Rest::Suspended => JobState::Suspended,
            Rest::Completed => JobState::Completed { at: now },
            Rest::Failed => JobState::Failed { at: now },
            Rest::Terminated => JobState::Terminated { at: now },
        }
    }

    pub fn name(self) -> StateName {
        self.state(Timestamp::EPOCH).name()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub token: Token,
    pub worker: Option<Arc<str>>,
    pub granted_at: Timestamp,
    /// `None`: held until settled.
    pub until: Option<Timestamp>,
    pub kind: RunKind,
    pub afterwards: Afterwards,
    /// The worker is told with its next heartbeat.
    pub cancel_asked: bool,
}

impl Lease {
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// What the end of a lease means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnLapse {
    /// Run again at once, within the bound on attempts.
    #[default]
    RunAgain,
    /// The same, in the place in the line of a job that was due when the lease ended.
    AtLeaseEnd,
    /// The same, in the place it had in the line: before those that came after it.
    BackInLine,
    /// The same as a failure reported by the worker: backoff and all.
    Fail,
    /// No further attempt.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeasePolicy {
    /// Length when the claim does not ask for one; `None`: held until settled.
    pub length_ms: Option<i64>,
    pub on_lapse: OnLapse,
    /// Added to the attempts when the lease ends: -1 forgives the attempt, +1 punishes it.
    pub lapse_attempts: i8,
    /// A finish that comes after the lease's end still counts while nobody else was given the job.
    pub accept_late: bool,
}

impl Default for LeasePolicy {
    /// Thirty seconds: dead workers are noticed soon, and a live one renews three times in that span.
    fn default() -> Self {
        LeasePolicy {
            length_ms: Some(30_000),
            on_lapse: OnLapse::RunAgain,
            lapse_attempts: 0,
            accept_late: false,
        }
    }
}
