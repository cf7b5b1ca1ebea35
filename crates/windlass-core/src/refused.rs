//! Reasons why an event is refused. A closed enum: each dialect maps every reason to its own error.

use crate::job::JobId;
use crate::state::StateName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the lease is no longer yours: it ended, or the job was given to someone else")]
    LeaseLost,
    #[error("the lease has not ended yet")]
    LeaseLive,
    #[error("the job is not running")]
    NotRunning,
    #[error("the job is running; wait for it to end, or cancel it first")]
    Running,
    #[error("the job is not due yet")]
    NotDue,
    #[error("no worker can be given this job now: it is {0}")]
    NotClaimable(StateName),
    #[error("the job is already {0}")]
    Settled(StateName),
    #[error("the job waits for its family")]
    Waiting,
    #[error("the job has children that are not settled")]
    HasChildren,
    #[error("the job is being terminated")]
    Terminating,
    #[error("the job is not kept any longer than its keep policy says, and that time is not over")]
    StillKept,
    /// Found by the store's unique index; the rules in this crate never return it.
    #[error(
        "job {0} has the unique key or the alias of this one; wait until it lets go of it, or cancel it first"
    )]
    KeyTaken(JobId),
}

impl Refused {
    /// Stable error code; part of the native API.
    pub fn code(self) -> &'static str {
        match self {
            Refused::LeaseLost => "lease_lost",
            Refused::LeaseLive => "lease_live",
            Refused::NotRunning => "not_running",
            Refused::Running => "running",
            Refused::NotDue => "not_due",
            Refused::NotClaimable(_) => "not_claimable",
            Refused::Settled(_) => "settled",
            Refused::Waiting => "waiting",
            Refused::HasChildren => "has_children",
            Refused::Terminating => "terminating",
            Refused::StillKept => "still_kept",
            Refused::KeyTaken(_) => "key_taken",
        }
    }
}
