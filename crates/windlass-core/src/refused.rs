//! Reasons why an event is refused. A closed enum: each dialect maps every reason to its own error.

use crate::job::JobId;
use crate::state::StateName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the lease is lost: it expired, or the job was given to another worker")]
    LeaseLost,
    #[error("the lease has not expired yet")]
    LeaseLive,
    #[error("the job is not running")]
    NotRunning,
    #[error("the job is running; wait until it ends, or cancel it first")]
    Running,
    #[error("the job is not due yet")]
    NotDue,
    #[error("the job cannot be claimed: it is {0}")]
    NotClaimable(StateName),
    #[error("the job is already {0}")]
    Settled(StateName),
    #[error("the job waits for its parent or children")]
    Waiting,
    #[error("the job has unfinished children")]
    HasChildren,
    #[error("the job is being terminated")]
    Terminating,
    #[error("the retention time of the job is not over")]
    StillKept,
    #[error("the job keeps no step of this name")]
    NoStep,
    #[error(
        "the job has too many steps, or their results are too large together; keep large results in blobs"
    )]
    StepsFull,
    #[error("too many signals wait for the job; it has to take them first")]
    SignalsFull,
    /// Found by the store's unique index; the rules in this crate never return it.
    #[error("job {0} has the same unique key or alias; wait until it is finished, or cancel it first")]
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
            Refused::NoStep => "no_step",
            Refused::StepsFull => "steps_full",
            Refused::SignalsFull => "signals_full",
            Refused::KeyTaken(_) => "key_taken",
        }
    }
}
