//! Word for the state of a job at a time: the same in the API, on the command line, in the web UI, in metrics
//! and in searches.
//!
//! [`StateName`] is what a store keeps. A ready job whose time has not come is shown as `delayed`, or as
//! `retrying` if an attempt is behind it; when its time comes it is `ready`, without a write.

use crate::Timestamp;
use crate::job::Job;
use crate::state::{JobState, StateName};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateWord {
    /// A worker may claim it.
    Ready,
    /// Its time has not come, and no attempt was made.
    Delayed,
    /// The time of its next attempt has not come.
    Retrying,
    Running,
    Waiting,
    Suspended,
    Completed,
    Failed,
    Cancelled,
    Terminating,
    Terminated,
}

impl StateWord {
    pub const ALL: [StateWord; 11] = [
        StateWord::Ready,
        StateWord::Delayed,
        StateWord::Retrying,
        StateWord::Running,
        StateWord::Waiting,
        StateWord::Suspended,
        StateWord::Completed,
        StateWord::Failed,
        StateWord::Cancelled,
        StateWord::Terminating,
        StateWord::Terminated,
    ];

    /// Words for ready jobs.
    pub const OF_READY: [StateWord; 3] = [StateWord::Ready, StateWord::Delayed, StateWord::Retrying];

    pub fn as_str(self) -> &'static str {
        match self {
            StateWord::Delayed => "delayed",
            StateWord::Retrying => "retrying",
            other => other.stored().as_str(),
        }
    }

    pub fn parse(text: &str) -> Option<StateWord> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }

    /// State as a store keeps it.
    pub fn stored(self) -> StateName {
        match self {
            StateWord::Ready | StateWord::Delayed | StateWord::Retrying => StateName::Ready,
            StateWord::Running => StateName::Running,
            StateWord::Waiting => StateName::Waiting,
            StateWord::Suspended => StateName::Suspended,
            StateWord::Completed => StateName::Completed,
            StateWord::Failed => StateName::Failed,
            StateWord::Cancelled => StateName::Cancelled,
            StateWord::Terminating => StateName::Terminating,
            StateWord::Terminated => StateName::Terminated,
        }
    }

    /// Word for a new job that waits for `run_at`.
    pub fn of_new(run_at: Timestamp, now: Timestamp) -> StateWord {
        if run_at > now { StateWord::Delayed } else { StateWord::Ready }
    }
}

impl From<StateName> for StateWord {
    /// Word for a job whose time has come.
    fn from(state: StateName) -> StateWord {
        match state {
            StateName::Ready => StateWord::Ready,
            StateName::Running => StateWord::Running,
            StateName::Waiting => StateWord::Waiting,
            StateName::Suspended => StateWord::Suspended,
            StateName::Completed => StateWord::Completed,
            StateName::Failed => StateWord::Failed,
            StateName::Cancelled => StateWord::Cancelled,
            StateName::Terminating => StateWord::Terminating,
            StateName::Terminated => StateWord::Terminated,
        }
    }
}

impl std::fmt::Display for StateWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Job {
    pub fn state_word(&self, now: Timestamp) -> StateWord {
        match self.state() {
            JobState::Ready { run_at, .. } if *run_at > now && self.is_retried() => StateWord::Retrying,
            JobState::Ready { run_at, .. } if *run_at > now => StateWord::Delayed,
            other => other.name().into(),
        }
    }

    /// True for a ready job with an attempt behind it, whether its time has come or not.
    pub fn is_retried(&self) -> bool {
        self.state().name() == StateName::Ready && self.progress.attempts > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobId, JobSpec, Payload, Policy, Progress};
    use crate::{Name, Queue, Tenant};
    use std::sync::Arc;

    fn job(state: JobState, attempts: u32) -> Job {
        let spec = JobSpec {
            tenant: Tenant::default(),
            queue: Queue::default(),
            name: Name::new("a").unwrap(),
            payload: Payload::default(),
            priority: 0,
            created_at: Timestamp::EPOCH,
            policy: Arc::new(Policy::default()),
            extras: None,
        };
        let progress = Progress { attempts, ..Progress::default() };
        Job::from_parts(JobId::new(1).unwrap(), 1, Arc::new(spec), progress, None, state)
    }

    #[test]
    fn a_ready_job_is_shown_by_its_time_and_its_attempts() {
        let at = Timestamp::from_millis;
        for (run_at, attempts, word) in
            [(10, 0, "ready"), (10, 2, "ready"), (11, 0, "delayed"), (11, 1, "retrying")]
        {
            let job = job(JobState::ready(at(run_at)), attempts);
            assert_eq!(job.state_word(at(10)).as_str(), word, "{run_at} {attempts}");
            assert_eq!(job.state_word(at(run_at)).as_str(), "ready");
        }
        let terminating = job(JobState::Terminating { run_at: at(20) }, 3);
        assert_eq!(terminating.state_word(at(10)), StateWord::Terminating);
        assert!(!terminating.is_retried());
    }

    #[test]
    fn every_word_is_read_back_and_every_state_has_one() {
        for word in StateWord::ALL {
            assert_eq!(StateWord::parse(word.as_str()), Some(word));
        }
        for state in StateName::ALL {
            assert_eq!(
                (StateWord::from(state).stored(), StateWord::from(state).as_str()),
                (state, state.as_str())
            );
        }
        assert_eq!(StateWord::parse("gone"), None);
    }
}
