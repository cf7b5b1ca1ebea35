use super::*;
use crate::event::{CancelRunning, Event, Patch};
use crate::job::{JobId, JobSpec, Payload, Policy, Progress};
use crate::lease::{Afterwards, Lease, Token};
use crate::state::JobState;
use crate::{Name, Queue, Tenant, apply};
use std::sync::Arc;

const NOW: i64 = 100;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn job(state: JobState, attempts: u32, pending_children: u32) -> Job {
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
    let progress = Progress { attempts, pending_children, started_at: Some(at(1)), ..Progress::default() };
    Job::from_parts(JobId::new(1).unwrap(), 5, Arc::new(spec), progress, None, state)
}

fn running(kind: RunKind, cancel_asked: bool) -> JobState {
    JobState::Running(Lease {
        token: Token::from_number(1),
        worker: None,
        granted_at: at(90),
        until: None,
        kind,
        afterwards: Afterwards::Settle,
        cancel_asked,
        ahead: false,
    })
}

/// Job in each state, and the actions that are offered for it.
fn table() -> Vec<(Job, &'static str)> {
    vec![
        (job(JobState::ready(at(NOW)), 0, 0), "cancel delete edit clone"),
        (job(JobState::ready(at(NOW)), 2, 0), "cancel delete edit clone"),
        (job(JobState::ready(at(NOW + 1)), 0, 0), "run cancel delete edit clone"),
        (job(JobState::ready(at(NOW + 1)), 2, 0), "retry run cancel delete edit clone"),
        (job(running(RunKind::Perform, false), 1, 0), "cancel clone"),
        (job(running(RunKind::Perform, true), 1, 0), "clone"),
        (job(running(RunKind::Shutdown, false), 1, 0), "clone"),
        (job(JobState::Waiting, 1, 2), "edit clone"),
        (job(JobState::Waiting, 0, 0), "cancel delete edit clone"),
        (job(JobState::SUSPENDED, 1, 0), "run cancel delete edit clone"),
        (job(JobState::Completed { at: at(1) }, 1, 0), "retry delete clone"),
        (job(JobState::Failed { at: at(1) }, 1, 0), "retry delete clone"),
        (job(JobState::Cancelled { at: at(1) }, 1, 0), "retry delete clone"),
        (job(JobState::Terminating { run_at: at(1) }, 1, 0), "delete clone"),
        (job(JobState::Terminated { at: at(1) }, 1, 0), "retry delete clone"),
    ]
}

#[test]
fn the_actions_offered_fit_the_state() {
    for (job, words) in table() {
        let offered: Vec<&str> = Action::offered(&job, at(NOW)).into_iter().map(Action::as_str).collect();
        assert_eq!(offered.join(" "), words, "{:?}", job.state());
    }
}

#[test]
fn what_is_offered_is_not_refused() {
    let all = [Action::Priority, Action::Move, Action::Reschedule].into_iter().chain(Action::OFFERED);
    for action in all {
        for (job, _) in table().into_iter().filter(|(job, _)| action.fits(job, at(NOW))) {
            let event = match action {
                Action::Retry => Event::Requeue { at: at(NOW), even_running: false },
                Action::Run => Event::Run { at: at(NOW), force: false },
                Action::Cancel => Event::Cancel { running: CancelRunning::Ask, failed_too: false },
                Action::Delete => Event::Delete,
                Action::Clone => continue,
                Action::Edit | Action::Priority | Action::Move | Action::Reschedule => {
                    Event::Update(Box::new(Patch { priority: Some(3), ..Patch::default() }))
                }
            };
            assert!(apply(&job, event, at(NOW)).is_ok(), "{} of {:?}", action.as_str(), job.state());
        }
    }
}
