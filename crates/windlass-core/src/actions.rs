//! Actions that a person may take on a job, and the states that they fit.
//!
//! The transitions accept more than what is offered here: a retry of a job that is ready changes nothing that
//! anybody would ask for.

use crate::Timestamp;
use crate::job::Job;
use crate::lease::RunKind;
use crate::state_word::StateWord;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start again, with attempts counted from zero.
    Retry,
    /// Run now instead of later.
    Run,
    Cancel,
    Delete,
    /// Change payload, name, queue, priority, time or tags.
    Edit,
    /// Push a new job with the same specification.
    Clone,
    Priority,
    /// Move to another queue.
    Move,
    /// Change the time of the next run.
    Reschedule,
}

impl Action {
    /// Actions that are offered for a job; the others are forms of [`Action::Edit`] for many jobs.
    pub const OFFERED: [Action; 6] =
        [Action::Retry, Action::Run, Action::Cancel, Action::Delete, Action::Edit, Action::Clone];

    pub fn as_str(self) -> &'static str {
        match self {
            Action::Retry => "retry",
            Action::Run => "run",
            Action::Cancel => "cancel",
            Action::Delete => "delete",
            Action::Edit => "edit",
            Action::Clone => "clone",
            Action::Priority => "priority",
            Action::Move => "move",
            Action::Reschedule => "reschedule",
        }
    }

    /// True if the action makes sense for the job in its state.
    pub fn fits(self, job: &Job, now: Timestamp) -> bool {
        use StateWord::{Cancelled, Completed, Delayed, Failed, Ready, Retrying, Running};
        use StateWord::{Suspended, Terminated, Terminating, Waiting};
        let has_children = job.progress.pending_children > 0;
        match (self, job.state_word(now)) {
            (Action::Clone, _) => true,
            (Action::Retry, Retrying | Completed | Failed | Cancelled | Terminated) => true,
            (Action::Run, Delayed | Retrying | Suspended) => true,
            (Action::Cancel, Ready | Delayed | Retrying | Suspended) => true,
            (Action::Cancel, Running) => {
                job.state().lease().is_some_and(|lease| lease.kind == RunKind::Perform && !lease.cancel_asked)
            }
            (Action::Cancel | Action::Delete, Waiting) => !has_children,
            (
                Action::Delete,
                Ready | Delayed | Retrying | Suspended | Completed | Failed | Cancelled | Terminating
                | Terminated,
            ) => true,
            (
                Action::Edit | Action::Priority | Action::Move,
                Ready | Delayed | Retrying | Waiting | Suspended,
            ) => true,
            (Action::Reschedule, Ready | Delayed | Retrying) => true,
            (
                Action::Retry
                | Action::Run
                | Action::Cancel
                | Action::Delete
                | Action::Edit
                | Action::Priority
                | Action::Move
                | Action::Reschedule,
                _,
            ) => false,
        }
    }

    /// Actions to offer for the job, in a fixed order.
    pub fn offered(job: &Job, now: Timestamp) -> Vec<Action> {
        Action::OFFERED.into_iter().filter(|action| action.fits(job, now)).collect()
    }
}

#[cfg(test)]
mod tests;
