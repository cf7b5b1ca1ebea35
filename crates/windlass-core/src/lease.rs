//! Leases: a worker's exclusive right to one run of a job, and the rules for its expiry.

use crate::Timestamp;
use crate::state::{JobState, StateName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Proof of holding a lease. Strictly increasing per job (a fencing token) with a random part, so neither an
/// earlier holder nor a guessed number is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    /// `version` is the job's version after the claim; it never repeats for that job.
    pub fn new(version: u64, random: u16) -> Token {
        Token((version << 16) | u64::from(random))
    }

    pub const fn from_number(number: u64) -> Token {
        Token(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Authority of a report: the token of a lease, or a dialect whose protocol has no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Token(Token),
    Anyone,
    /// May end a run even where the job is not running; the job then counts as run.
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

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    #[default]
    Perform,
    /// Last run of a job that is being terminated, in which the worker cleans up.
    Shutdown,
}

/// Follow-up to the current run, requested while the run was going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    #[default]
    Settle,
    /// Run at this time, or at once if the time has passed when the run ends.
    RunAgain {
        at: Timestamp,
    },
    Terminate,
    /// Enter this state, whatever the run reports.
    Rest(Rest),
}

/// State without a run that a client may set directly.
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
            Rest::Suspended => JobState::SUSPENDED,
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
    /// `None`: held until settled, never expires.
    pub until: Option<Timestamp>,
    pub kind: RunKind,
    pub afterwards: Afterwards,
    /// The worker learns of the request with its next heartbeat.
    pub cancel_asked: bool,
    /// The run was requested ahead of the scheduled time of a repeating job, which stays as it is.
    #[serde(default)]
    pub ahead: bool,
}

impl Lease {
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// Effect of an expired lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnLapse {
    /// Run again at once, within `max_attempts`.
    #[default]
    RunAgain,
    /// Run again, queued as a job that became due when the lease expired.
    AtLeaseEnd,
    /// Run again, in its old place in the queue: ahead of jobs that became due after it.
    BackInLine,
    /// Same as a failure reported by the worker, including backoff.
    Fail,
    /// No further attempt.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeasePolicy {
    /// Lease length if the claim names none; `None`: held until settled, never expires.
    pub length_ms: Option<i64>,
    pub on_lapse: OnLapse,
    /// Added to the attempts when the lease expires: -1 does not count the attempt, +1 counts it twice.
    pub lapse_attempts: i8,
    /// Accepts the end of a run after the lease expired, as long as no other worker has claimed the job.
    pub accept_late: bool,
}

impl Default for LeasePolicy {
    /// Thirty seconds: a dead worker is noticed soon, and a live one renews three times in that span.
    fn default() -> Self {
        LeasePolicy {
            length_ms: Some(30_000),
            on_lapse: OnLapse::RunAgain,
            lapse_attempts: 0,
            accept_late: false,
        }
    }
}
