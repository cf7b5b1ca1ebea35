//! Job states. Each variant carries only the data that belongs to that state.
//!
//! ```text
//!            push            claim              finish
//!   ────────────────► Ready ────────► Running ─────────► Completed ──► (deleted when its keep time ends)
//!            │         ▲ ▲  ◄──────────  │ │ │    fail
//!            │ family  │ │ release,retry,│ │ └──────────► Failed
//!            ▼         │ │ lapse, repeat │ │
//!         Waiting ─────┘ └── Suspended ◄─┘ └──────────► Cancelled
//!                 children done     run
//!
//!   any but Terminated ──terminate──► Terminating ──claim, finish──► Terminated
//! ```

use crate::Timestamp;
use crate::lease::{Lease, Token};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Waits for `run_at` and a worker. `lapsed` is the token of the last lease if it expired and no worker
    /// has claimed the job since.
    Ready {
        run_at: Timestamp,
        lapsed: Option<Token>,
    },
    Running(Lease),
    /// Waits for its family: a parent for its children, a child for the end of its parent's run.
    Waiting,
    /// The run ended but the job did not. It runs again at `until`, on a `Run` event, or when its wait ends
    /// ([`crate::steps::Wait`]).
    Suspended {
        until: Option<Timestamp>,
    },
    Completed {
        at: Timestamp,
    },
    Failed {
        at: Timestamp,
    },
    Cancelled {
        at: Timestamp,
    },
    /// Waits for a worker to do the shutdown run.
    Terminating {
        run_at: Timestamp,
    },
    Terminated {
        at: Timestamp,
    },
}

/// Names of the states, for counts, lists and columns. The numbers are part of the store's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StateName {
    Ready = 0,
    Running = 1,
    Waiting = 2,
    Suspended = 3,
    Completed = 4,
    Failed = 5,
    Cancelled = 6,
    Terminating = 7,
    Terminated = 8,
}

impl StateName {
    pub const ALL: [StateName; 9] = [
        StateName::Ready,
        StateName::Running,
        StateName::Waiting,
        StateName::Suspended,
        StateName::Completed,
        StateName::Failed,
        StateName::Cancelled,
        StateName::Terminating,
        StateName::Terminated,
    ];

    pub fn from_number(number: u8) -> Option<StateName> {
        Self::ALL.get(usize::from(number)).copied()
    }

    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Ready => "ready",
            StateName::Running => "running",
            StateName::Waiting => "waiting",
            StateName::Suspended => "suspended",
            StateName::Completed => "completed",
            StateName::Failed => "failed",
            StateName::Cancelled => "cancelled",
            StateName::Terminating => "terminating",
            StateName::Terminated => "terminated",
        }
    }

    pub fn parse(text: &str) -> Option<StateName> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// True for final states: nothing but expiry of the keep time happens without a request.
    pub fn is_settled(self) -> bool {
        matches!(
            self,
            StateName::Completed | StateName::Failed | StateName::Cancelled | StateName::Terminated
        )
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JobState {
    pub fn ready(run_at: Timestamp) -> JobState {
        JobState::Ready { run_at, lapsed: None }
    }

    /// Suspended until a request.
    pub const SUSPENDED: JobState = JobState::Suspended { until: None };

    pub fn name(&self) -> StateName {
        match self {
            JobState::Ready { .. } => StateName::Ready,
            JobState::Running(_) => StateName::Running,
            JobState::Waiting => StateName::Waiting,
            JobState::Suspended { .. } => StateName::Suspended,
            JobState::Completed { .. } => StateName::Completed,
            JobState::Failed { .. } => StateName::Failed,
            JobState::Cancelled { .. } => StateName::Cancelled,
            JobState::Terminating { .. } => StateName::Terminating,
            JobState::Terminated { .. } => StateName::Terminated,
        }
    }

    pub fn is_settled(&self) -> bool {
        self.name().is_settled()
    }

    /// Earliest time of a claim, if the job waits for a worker.
    pub fn claimable_at(&self) -> Option<Timestamp> {
        match self {
            JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => Some(*run_at),
            _ => None,
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        match self {
            JobState::Running(lease) => Some(lease),
            _ => None,
        }
    }
}
