//! The only place where a job's state changes.
//!
//! `apply(job, event, now)` answers with the job as it is afterwards, or with the reason why the event may not
//! happen. Every (state, event) pair is written down: where several states share an answer they are named together,
//! and nothing falls through.

use crate::Timestamp;
use crate::event::{
    CancelRunning, Event, Failure, Finish, Grant, Patch, Restart, RetryWish, Standing, Stands,
};
use crate::job::{Body, Job, JobId, JobSpec, KeepFor, Outcome, Progress};
use crate::lease::{Afterwards, Holder, Lease, OnLapse, Rest, RunKind, Token};
use crate::refused::Refused;
use crate::state::JobState;
use crate::trail::{Mark, MarkKind};
use std::sync::Arc;

mod pieces;
#[cfg(test)]
mod tests;

use pieces::*;

/// What the rest of the family has to hear of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub parent: Option<ParentEffect>,
    pub children: Option<ChildrenEffect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentEffect {
    /// The parent waits for one child less.
    Settled(JobId),
    /// The parent waits for one child more: a settled child was started over.
    Reopened(JobId),
    /// The parent is run after each run of this child.
    Run(JobId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildrenEffect {
    /// Children that waited for this job's run to end may start.
    Release,
    /// Settled children have been seen by this run and are forgotten.
    ForgetSettled,
    /// The job is gone: waiting children start, none of them has a parent any more.
    Orphan,
    /// The job has come to its end and is gone: settled children go with it, the others have no parent any more.
    Disband,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// `None`: the job is gone.
    pub job: Option<Job>,
    pub effects: Effects,
}

/// A new job. `held_by_parent`: it waits for its parent's run to end before it may start.
pub fn created(
    id: JobId,
    spec: Arc<JobSpec>,
    run_at: Timestamp,
    held_by_parent: bool,
    body: Option<Arc<Body>>,
) -> Job {
    let state = if held_by_parent { JobState::Waiting } else { JobState::ready(run_at) };
    let progress = Progress { due_at: run_at, updated_at: spec.created_at, ..Progress::default() };
    Job { id, version: 1, spec, progress, body, state }
}

/// [`apply`], and the job remembers who wanted it. `None`: it is nobody's to be remembered.
pub fn apply_for(
    who: Option<&Arc<str>>,
    job: &Job,
    event: Event,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let asked = who.and_then(|who| Some((who, mark_kind(&event)?)));
    let mut transition = apply(job, event, now)?;
    if let (Some((who, what)), Some(next)) = (asked, &mut transition.job) {
        let what = match (what, next.state.lease()) {
            (MarkKind::Cancelled, Some(_)) => MarkKind::CancelAsked,
            (what, _) => what,
        };
        body_mut(next).remember_mark(Mark { at: now, what, who: who.clone() });
    }
    Ok(transition)
}

/// Which events leave a mark: those of someone outside. The others are the job's own way, told by its times and attempts.
fn mark_kind(event: &Event) -> Option<MarkKind> {
    match event {
        Event::Cancel { .. } => Some(MarkKind::Cancelled),
        Event::Run { .. } => Some(MarkKind::Run),
        Event::Requeue { .. } => Some(MarkKind::Retried),
        Event::Terminate => Some(MarkKind::Terminated),
        Event::Update(_) | Event::PutToRest(_) => Some(MarkKind::Changed),
        Event::Claim(_)
        | Event::Extend { .. }
        | Event::Renew { .. }
        | Event::Report { .. }
        | Event::Log { .. }
        | Event::Finish(_)
        | Event::Fail(_)
        | Event::Release { .. }
        | Event::Return { .. }
        | Event::Restart(_)
        | Event::Suspend { .. }
        | Event::Lapse { .. }
        | Event::SetPorts(_)
        | Event::TakeOver(_)
        | Event::ChildAdded
        | Event::ChildSettled
        | Event::ParentPaused
        | Event::Delete
        | Event::TakeResult
        | Event::Expire => None,
    }
}

pub fn apply(job: &Job, event: Event, now: Timestamp) -> Result<Transition, Refused> {
    match event {
        Event::Claim(grant) => claim(job, grant, now),
        Event::Extend { by, lease_ms } => extend(job, by, lease_ms, now),
        Event::Renew { by, lease_ms, worker } => renew(job, by, lease_ms, worker, now),
        Event::Report { by, percent, note, payload } => {
            live_lease(job, by, now)?;
            let mut next = touched(job, now);
            if percent.is_some() || note.is_some() {
                let body = body_mut(&mut next);
                body.percent = percent.or(body.percent);
                body.note = note.or(body.note.take());
            }
            replace_payload(&mut next, payload);
            stay(next)
        }
        Event::Log { by, source, lines } => {
            if let Some(by) = by {
                live_lease(job, by, now)?;
            }
            let mut next = touched(job, now);
            remember_lines(&mut next, source, lines, now);
            stay(next)
        }
        Event::Finish(finish) => finished(job, finish, now),
        Event::Fail(failure) => failed(job, failure, now),
        Event::Release { by, run_at, counts } => released(job, by, run_at, counts, now),
        Event::Return { by } => released(job, by, job.progress.due_at.min(now), false, now),
        Event::Restart(restart) => restarted(job, *restart, now),
        Event::Suspend { by } => suspended(job, by, now),
        Event::Lapse { token, chance } => lapsed(job, token, chance, now),
        Event::Cancel { running, failed_too } => cancelled(job, running, failed_too, now),
        Event::Run { at, force } => run(job, at, force, now),
        Event::Requeue { at, even_running } => requeued(job, at, even_running, now),
        Event::Terminate => terminated(job, now),
        Event::PutToRest(rest) => put_to_rest(job, rest, now),
        Event::SetPorts(ports) => {
            let mut next = touched(job, now);
            body_mut(&mut next).ports = Some(ports);
            stay(next)
        }
        Event::Update(patch) => updated(job, *patch, now),
        Event::TakeOver(standing) => taken_over(job, standing, now),
        Event::ChildAdded => {
            let mut next = touched(job, now);
            next.progress.pending_children = next.progress.pending_children.saturating_add(1);
            stay(next)
        }
        Event::ChildSettled => child_settled(job, now),
        Event::ParentPaused => match &job.state {
            JobState::Waiting if !is_held_by_parent(job) && job.progress.pending_children > 0 => {
                Err(Refused::HasChildren)
            }
            JobState::Waiting => to(job, touched(job, now), JobState::ready(job.progress.due_at)),
            other => Err(Refused::NotClaimable(other.name())),
        },
        Event::Delete => deleted(job),
        Event::TakeResult if !job.state.is_settled() => Err(Refused::NotDue),
        Event::TakeResult if job.result().is_none() => Err(Refused::Settled(job.state.name())),
        Event::TakeResult => without_result(job, now),
        Event::Expire => match (job.expires_at(), job.result_expires_at()) {
            (Some(at), _) if at <= now => gone(job),
            (_, Some(at)) if at <= now => without_result(job, now),
            _ => Err(Refused::StillKept),
        },
    }
}

fn claim(job: &Job, grant: Grant, now: Timestamp) -> Result<Transition, Refused> {
    let (run_at, mut kind) = match &job.state {
        JobState::Ready { run_at, .. } => (*run_at, RunKind::Perform),
        JobState::Terminating { run_at } => (*run_at, RunKind::Shutdown),
        JobState::Running(_) => return Err(Refused::Running),
        JobState::Waiting => return Err(Refused::Waiting),
        JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => return Err(Refused::NotClaimable(job.state.name())),
    };
    if run_at > now {
        return Err(Refused::NotDue);
    }
    let mut next = touched(job, now);
    next.progress.prior_start = next.progress.started_at;
    next.progress.started_at = Some(now);
    next.progress.finished_at = None;
    if !count_run(&mut next, kind, now) {
        kind = RunKind::Shutdown;
    }
    if kind == RunKind::Perform {
        next.progress.attempts = next.progress.attempts.saturating_add(1);
    }
    let lease = Lease {
        token: Token::new(next.version, grant.dice),
        worker: grant.worker,
        granted_at: now,
        until: lease_end(&next, grant.lease_ms, now),
        kind,
        afterwards: Afterwards::Settle,
        cancel_asked: false,
    };
    to(job, next, JobState::Running(lease))
}

fn extend(job: &Job, by: Holder, lease_ms: Option<i64>, now: Timestamp) -> Result<Transition, Refused> {
    let lease = live_lease(job, by, now)?;
    let until = match (lease.until, lease_end(job, lease_ms, now)) {
        (Some(old), Some(new)) => Some(old.max(new)),
        (until, _) => until,
    };
    let next_lease = Lease { until, ..lease.clone() };
    to(job, touched(job, now), JobState::Running(next_lease))
}

fn renew(
    job: &Job,
    by: Holder,
    lease_ms: Option<i64>,
    worker: Option<Arc<str>>,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let lease = live_lease(job, by, now)?;
    let renewed = Lease {
        until: lease_end(job, lease_ms, now),
        worker: worker.or_else(|| lease.worker.clone()),
        ..lease.clone()
    };
    to(job, touched(job, now), JobState::Running(renewed))
}

fn finished(job: &Job, finish: Finish, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, finish.by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    replace_payload(&mut next, finish.payload);
    let mut outcome = finish.outcome;
    if job.spec.policy.result.keep == KeepFor::Drop {
        outcome.result = None;
    }
    remember_outcome(&mut next, outcome, job.body.is_some());
    inputs_used(&mut next);
    if let Some(state) = run.overruled(&mut next, now) {
        return after_run(job, next, state);
    }
    let waits = next.progress.pending_children > 0;
    let again = run.again_at();
    let next_turn = if finish.ignore_repeat { None } else { next_turn(job, now) };
    // The finish counts, but what is to be cancelled does not go on.
    if run.cancel_asked && (waits || again.is_some() || next_turn.is_some()) {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if waits {
        return after_run(job, next, JobState::Waiting);
    }
    if let Some(at) = again {
        return run_again(job, next, at.max(now));
    }
    if let Some(run_at) = next_turn {
        start_over(&mut next, run_at);
        return forgetting_children(after_run(job, next, JobState::ready(run_at))?);
    }
    forgetting_children(settle(job, next, JobState::Completed { at: now })?)
}

fn failed(job: &Job, failure: Failure, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, failure.by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    replace_payload(&mut next, failure.payload);
    remember_failure(&mut next, failure.outcome, now);
    inputs_returned(&mut next);
    if let Some(state) = run.overruled(&mut next, now) {
        return after_run(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        return run_again(job, next, at.max(now));
    }
    let again = match failure.retry {
        RetryWish::Never => None,
        RetryWish::At(at) => within_bounds(&next, at),
        RetryWish::Policy => after_backoff(&next, now, failure.chance),
    };
    match again {
        Some(run_at) => after_run(job, next, JobState::ready(run_at)),
        None => give_up(job, next, now),
    }
}

/// No attempt is left: the end, unless a repeat rule keeps the job going.
fn give_up(job: &Job, mut next: Job, now: Timestamp) -> Result<Transition, Refused> {
    if job.spec.policy.repeat_after_failure
        && let Some(run_at) = next_turn(job, now)
    {
        start_over(&mut next, run_at);
        return after_run(job, next, JobState::ready(run_at));
    }
    settle(job, next, JobState::Failed { at: now })
}

fn released(
    job: &Job,
    by: Holder,
    run_at: Timestamp,
    counts: bool,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let run = ended_run(job, by, now)?;
    let mut next = touched(job, now);
    if !counts && run.kind == RunKind::Perform {
        next.progress.attempts = next.progress.attempts.saturating_sub(1);
        next.progress.minute_runs.count = next.progress.minute_runs.count.saturating_sub(1);
    }
    inputs_returned(&mut next);
    if let Some(state) = run.overruled_when_unfinished(&mut next, now) {
        return to(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        next.progress.attempts = 0;
        return to(job, next, JobState::ready(at.max(now)));
    }
    if counts && within_bounds(&next, run_at).is_none() {
        return give_up(job, next, now);
    }
    to(job, next, JobState::ready(run_at))
}

fn restarted(job: &Job, restart: Restart, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, restart.by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    inputs_used(&mut next);
    if let Some(state) = run.overruled(&mut next, now) {
        return after_run(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    let next_turn = if restart.heed_repeat { next_turn(job, now) } else { None };
    let run_at = next_turn.unwrap_or(restart.run_at);
    start_over(&mut next, run_at);
    patch_spec(&mut next, Patch { run_at: None, ..restart.patch });
    forgetting_children(after_run(job, next, JobState::ready(run_at))?)
}

fn suspended(job: &Job, by: Holder, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    inputs_used(&mut next);
    if let Some(state) = run.overruled(&mut next, now) {
        return after_run(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        return run_again(job, next, at.max(now));
    }
    after_run(job, next, JobState::Suspended)
}

fn lapsed(job: &Job, token: Token, chance: f64, now: Timestamp) -> Result<Transition, Refused> {
    let lease = held(job, Holder::Token(token))?.clone();
    if !lease.has_ended(now) {
        return Err(Refused::LeaseLive);
    }
    let run = Run::of(&lease);
    let policy = &job.spec.policy.lease;
    let mut next = touched(job, now);
    let worker = lease.worker.as_deref().unwrap_or("the worker");
    let outcome = Outcome {
        message: Some(format!("lease ended: {worker} gave no sign of life in time")),
        code: Some("lease_ended".to_owned()),
        worker: lease.worker.clone(),
        ended_at: lease.until,
        ..Outcome::default()
    };
    remember_failure(&mut next, outcome, now);
    inputs_returned(&mut next);
    if run.kind == RunKind::Perform {
        let counted = next.progress.attempts.saturating_add_signed(i32::from(policy.lapse_attempts));
        next.progress.attempts = counted;
    }
    if let Some(state) = run.overruled_when_unfinished(&mut next, now) {
        return to(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        // Nothing is left for the old holder to report: its late finish would undo the run that was asked for.
        next.progress.attempts = 0;
        return to(job, next, JobState::ready(at.max(now)));
    }
    let again = match policy.on_lapse {
        OnLapse::GiveUp => None,
        OnLapse::Fail => after_backoff(&next, now, chance),
        OnLapse::RunAgain => within_bounds(&next, now),
        OnLapse::BackInLine => within_bounds(&next, job.progress.due_at.min(now)),
    };
    match again {
        Some(run_at) => to(job, next, JobState::Ready { run_at, lapsed: Some(token) }),
        None => give_up(job, next, now),
    }
}

fn cancelled(
    job: &Job,
    running: CancelRunning,
    failed_too: bool,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    match (&job.state, running) {
        (JobState::Ready { .. } | JobState::Suspended, _) => {
            settle(job, next, JobState::Cancelled { at: now })
        }
        (JobState::Waiting, _) if job.progress.pending_children > 0 => Err(Refused::HasChildren),
        (JobState::Waiting, _) => settle(job, next, JobState::Cancelled { at: now }),
        (JobState::Running(_), CancelRunning::Refuse) => Err(Refused::Running),
        (JobState::Running(lease), _) if lease.kind == RunKind::Shutdown => Err(Refused::Terminating),
        (JobState::Running(lease), CancelRunning::Now) => {
            inputs_returned(&mut next);
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

fn run(job: &Job, at: Timestamp, force: bool, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    next.progress.due_at = at;
    match &job.state {
        JobState::Ready { run_at, lapsed } => {
            // Asking for a run never puts off one that comes sooner; that is what an update is for.
            let run_at = at.min(*run_at);
            next.progress.due_at = run_at;
            to(job, next, JobState::Ready { run_at, lapsed: *lapsed })
        }
        // It goes on, so how far it came stays to be seen.
        JobState::Suspended => {
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
                // Of several that were asked for, the one that comes first.
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
            start_over(&mut next, at);
            to(job, next, JobState::ready(at))
        }
        JobState::Terminating { .. } => Err(Refused::Terminating),
        JobState::Failed { .. } | JobState::Cancelled { .. } | JobState::Terminated { .. } => {
            Err(Refused::Settled(job.state.name()))
        }
    }
}

fn requeued(job: &Job, at: Timestamp, even_running: bool, now: Timestamp) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Running(_) if !even_running => return Err(Refused::Running),
        JobState::Waiting if job.progress.pending_children > 0 && !even_running => {
            return Err(Refused::HasChildren);
        }
        JobState::Running(_)
        | JobState::Waiting
        | JobState::Ready { .. }
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => {}
    }
    let mut next = touched(job, now);
    inputs_returned(&mut next);
    start_over(&mut next, at);
    next.progress.finished_at = None;
    to(job, next, JobState::ready(at))
}

fn terminated(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let next = touched(job, now);
    match &job.state {
        JobState::Terminated { .. } => Err(Refused::Settled(job.state.name())),
        // During a shutdown this takes back a forced run, and otherwise changes nothing.
        JobState::Running(lease) => {
            let lease = Lease { afterwards: Afterwards::Terminate, ..lease.clone() };
            to(job, next, JobState::Running(lease))
        }
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. } => to(job, next, JobState::Terminating { run_at: now }),
    }
}

fn put_to_rest(job: &Job, rest: Rest, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    match &job.state {
        JobState::Waiting => Err(Refused::Waiting),
        // Its last run is for that already, and for nothing else.
        JobState::Running(lease) if lease.kind == RunKind::Shutdown && rest != Rest::Terminated => {
            Err(Refused::Terminating)
        }
        JobState::Running(lease) => {
            let lease = Lease { afterwards: Afterwards::Rest(rest), ..lease.clone() };
            to(job, next, JobState::Running(lease))
        }
        state if state.name() == rest.name() => Err(Refused::Settled(rest.name())),
        JobState::Ready { .. }
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => {
            next.progress.finished_at = Some(now);
            to(job, next, rest.state(now))
        }
    }
}

fn updated(job: &Job, patch: Patch, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    let asked = patch.run_at;
    patch_spec(&mut next, patch);
    let state = match &job.state {
        JobState::Ready { run_at, lapsed } => {
            JobState::Ready { run_at: asked.unwrap_or(*run_at), lapsed: *lapsed }
        }
        JobState::Terminating { run_at } => JobState::Terminating { run_at: asked.unwrap_or(*run_at) },
        // Held by a parent it no longer has: nobody else would ever start it.
        JobState::Waiting if is_held_by_parent(job) && waiting_parent(&next) != waiting_parent(job) => {
            JobState::ready(next.progress.due_at)
        }
        JobState::Running(_)
        | JobState::Waiting
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => job.state.clone(),
    };
    to(job, next, state)
}

fn taken_over(job: &Job, standing: Standing, now: Timestamp) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Ready { .. } if job.progress.started_at.is_none() => {}
        JobState::Running(_) => return Err(Refused::Running),
        JobState::Waiting => return Err(Refused::Waiting),
        JobState::Ready { .. }
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => return Err(Refused::NotClaimable(job.state.name())),
    }
    let mut next = touched(job, now);
    next.progress.due_at = standing.due_at;
    next.progress.started_at = standing.started_at;
    let state = match standing.stands {
        Stands::Ready => JobState::ready(standing.due_at),
        Stands::Waiting => {
            // One that waits and never ran would be held by its parent.
            next.progress.started_at.get_or_insert(now);
            JobState::Waiting
        }
        Stands::Completed => JobState::Completed { at: now },
        Stands::Failed => JobState::Failed { at: now },
        Stands::Cancelled => JobState::Cancelled { at: now },
    };
    if state.is_settled() {
        next.progress.finished_at = Some(now);
    }
    to(job, next, state)
}

fn child_settled(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    next.progress.pending_children = next.progress.pending_children.saturating_sub(1);
    match &job.state {
        JobState::Waiting if job.progress.pending_children == 1 => {
            next.progress.attempts = 0;
            to(job, next, JobState::ready(now))
        }
        _ => stay(next),
    }
}

fn deleted(job: &Job) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Running(_) => Err(Refused::Running),
        JobState::Waiting if job.progress.pending_children > 0 => Err(Refused::HasChildren),
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => gone(job),
    }
}
