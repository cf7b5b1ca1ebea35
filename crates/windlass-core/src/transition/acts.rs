//! Transitions requested from outside a run.

use super::Transition;
use super::pieces::*;
use crate::Timestamp;
use crate::event::{CancelRunning, Patch};
use crate::job::Job;
use crate::lease::{Afterwards, Lease, Rest, RunKind};
use crate::refused::Refused;
use crate::state::JobState;
use crate::steps::{Signal, Steps, Woken};
use crate::turn::TurnOutcome;
use std::sync::Arc;

pub(super) fn cancelled(
    job: &Job,
    running: CancelRunning,
    failed_too: bool,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    match (&job.state, running) {
        (JobState::Ready { .. } | JobState::Suspended { .. }, _) => {
            settle(job, next, JobState::Cancelled { at: now })
        }
        (JobState::Waiting, _) if job.progress.pending_children > 0 => Err(Refused::HasChildren),
        (JobState::Waiting, _) => settle(job, next, JobState::Cancelled { at: now }),
        (JobState::Running(_), CancelRunning::Refuse) => Err(Refused::Running),
        (JobState::Running(lease), _) if lease.kind == RunKind::Shutdown => Err(Refused::Terminating),
        (JobState::Running(lease), CancelRunning::Now) => {
            inputs_returned(&mut next);
            end_turn(job, &mut next, TurnOutcome::Cancelled, now);
            match Run::of(lease).overruled_when_unfinished(&mut next, now) {
                Some(state) => to(job, next, state),
                None => settle(job, next, JobState::Cancelled { at: now }),
            }
        }
        (JobState::Running(lease), CancelRunning::Ask) => {
            let lease = Lease { cancel_asked: true, ..lease.clone() };
            to(job, next, JobState::Running(lease))
        }
        (JobState::Failed { .. }, _) if failed_too => settle(job, next, JobState::Cancelled { at: now }),
        (
            JobState::Completed { .. }
            | JobState::Failed { .. }
            | JobState::Cancelled { .. }
            | JobState::Terminated { .. },
            _,
        ) => Err(Refused::Settled(job.state.name())),
        (JobState::Terminating { .. }, _) => Err(Refused::Terminating),
    }
}

pub(super) fn run(job: &Job, at: Timestamp, force: bool, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    next.progress.due_at = at;
    match &job.state {
        JobState::Ready { run_at, lapsed } => {
            // A run request never delays an earlier run; an update does that. A repeating job keeps its
            // scheduled time: the requested run comes in addition.
            let run_at = at.min(*run_at);
            let repeats = job.spec.policy.repeat.is_some();
            next.progress.due_at = if repeats { job.progress.due_at } else { run_at };
            to(job, next, JobState::Ready { run_at, lapsed: *lapsed })
        }
        // The job continues, so its progress stays visible.
        JobState::Suspended { .. } => {
            if let Some(steps) = waiting_steps(&mut next) {
                steps.end_wait(Woken::ByRequest, now);
                // The slot of the turn stays as it is.
                if job.spec.policy.repeat.is_some() {
                    next.progress.due_at = job.progress.due_at;
                }
            }
            next.progress.attempts = 0;
            to(job, next, JobState::ready(at))
        }
        JobState::Completed { .. } => {
            start_over(&mut next, at);
            to(job, next, JobState::ready(at))
        }
        JobState::Running(lease) => {
            let afterwards = match (lease.afterwards, force) {
                (Afterwards::Terminate, false) => return Err(Refused::Terminating),
                (Afterwards::Rest(rest @ (Rest::Failed | Rest::Terminated)), false) => {
                    return Err(Refused::Settled(rest.name()));
                }
                _ if lease.kind == RunKind::Shutdown && !force => return Err(Refused::Terminating),
                // The earliest of several requested runs wins.
                (Afterwards::RunAgain { at: sooner }, _) => Afterwards::RunAgain { at: at.min(sooner) },
                _ => Afterwards::RunAgain { at },
            };
            next.progress.due_at = job.progress.due_at;
            to(job, next, JobState::Running(Lease { afterwards, ..lease.clone() }))
        }
        JobState::Waiting => Err(Refused::Waiting),
        JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. }
            if force =>
        {
            start_over_with_steps(&mut next, at);
            to(job, next, JobState::ready(at))
        }
        JobState::Terminating { .. } => Err(Refused::Terminating),
        JobState::Failed { .. } | JobState::Cancelled { .. } | JobState::Terminated { .. } => {
            Err(Refused::Settled(job.state.name()))
        }
    }
}

pub(super) fn requeued(
    job: &Job,
    at: Timestamp,
    even_running: bool,
    now: Timestamp,
) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Running(_) if !even_running => return Err(Refused::Running),
        JobState::Waiting if job.progress.pending_children > 0 && !even_running => {
            return Err(Refused::HasChildren);
        }
        JobState::Running(_)
        | JobState::Waiting
        | JobState::Ready { .. }
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => {}
    }
    let mut next = touched(job, now);
    inputs_returned(&mut next);
    // A job that ended well starts anew; any other continues after its kept steps.
    match &job.state {
        JobState::Completed { .. } => start_over(&mut next, at),
        _ => start_over_with_steps(&mut next, at),
    }
    next.progress.finished_at = None;
    to(job, next, JobState::ready(at))
}

/// Runs the job again from a step; also a completed one keeps the steps before it.
pub(super) fn requeued_from(
    job: &Job,
    at: Timestamp,
    step: &str,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let kept = job.steps().filter(|steps| steps.find(step).is_some()).ok_or(Refused::NoStep)?;
    let mut kept = Steps::clone(kept);
    kept.drop_from(step);
    let mut transition = requeued(job, at, false, now)?;
    if let Some(next) = &mut transition.job {
        body_mut(next).steps = Some(Arc::new(kept));
    }
    Ok(transition)
}

/// Takes in a signal; wakes the job if it waits for it.
pub(super) fn signalled(job: &Job, signal: Signal, now: Timestamp) -> Result<Transition, Refused> {
    if job.state.is_settled() {
        return Err(Refused::Settled(job.state.name()));
    }
    let mut next = touched(job, now);
    let steps = steps_mut(&mut next);
    if !matches!(job.state, JobState::Suspended { .. }) {
        steps.drop_wait();
    }
    match steps.take_in(signal)? {
        Some(woken) => wake(job, next, woken, now),
        None => stay(next),
    }
}

/// The time of a suspended job has come.
pub(super) fn woken(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Suspended { until: Some(until) } if *until <= now => {
            wake(job, touched(job, now), Woken::ByTime, now)
        }
        JobState::Suspended { .. } => Err(Refused::NotDue),
        JobState::Running(_) => Err(Refused::Running),
        JobState::Waiting => Err(Refused::Waiting),
        JobState::Ready { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => Err(Refused::NotClaimable(job.state.name())),
    }
}

pub(super) fn terminated(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let next = touched(job, now);
    match &job.state {
        JobState::Terminated { .. } => Err(Refused::Settled(job.state.name())),
        // During a shutdown run this revokes a forced run, and otherwise changes nothing.
        JobState::Running(lease) => {
            let lease = Lease { afterwards: Afterwards::Terminate, ..lease.clone() };
            to(job, next, JobState::Running(lease))
        }
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. } => to(job, next, JobState::Terminating { run_at: now }),
    }
}

pub(super) fn put_to_rest(job: &Job, rest: Rest, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    match &job.state {
        JobState::Waiting => Err(Refused::Waiting),
        // A shutdown run can only end in `Terminated`.
        JobState::Running(lease) if lease.kind == RunKind::Shutdown && rest != Rest::Terminated => {
            Err(Refused::Terminating)
        }
        JobState::Running(lease) => {
            let lease = Lease { afterwards: Afterwards::Rest(rest), ..lease.clone() };
            to(job, next, JobState::Running(lease))
        }
        // Pauses a turn that waits; when it is resumed it waits again.
        JobState::Suspended { .. } if rest == Rest::Suspended && waiting_steps(&mut next).is_some() => {
            steps_mut(&mut next).drop_wait();
            to(job, next, JobState::SUSPENDED)
        }
        state if state.name() == rest.name() => Err(Refused::Settled(rest.name())),
        JobState::Ready { .. }
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => {
            if let Some(steps) = waiting_steps(&mut next) {
                steps.drop_wait();
            }
            next.progress.finished_at = Some(now);
            to(job, next, rest.state(now))
        }
    }
}

pub(super) fn updated(job: &Job, patch: Patch, now: Timestamp) -> Result<Transition, Refused> {
    if patch.if_version.is_some_and(|version| version != job.version) {
        return Err(Refused::NotDue);
    }
    let mut next = touched(job, now);
    let asked = patch.run_at;
    patch_spec(&mut next, patch);
    let state = match &job.state {
        JobState::Ready { run_at, lapsed } => {
            JobState::Ready { run_at: asked.unwrap_or(*run_at), lapsed: *lapsed }
        }
        JobState::Terminating { run_at } => JobState::Terminating { run_at: asked.unwrap_or(*run_at) },
        // The parent that held it is no longer its parent: no other event would ever start it.
        JobState::Waiting if is_held_by_parent(job) && waiting_parent(&next) != waiting_parent(job) => {
            JobState::ready(next.progress.due_at)
        }
        JobState::Running(_)
        | JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => job.state.clone(),
    };
    to(job, next, state)
}

pub(super) fn deleted(job: &Job) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Running(_) => Err(Refused::Running),
        JobState::Waiting if job.progress.pending_children > 0 => Err(Refused::HasChildren),
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => gone(job),
    }
}
