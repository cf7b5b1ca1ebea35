//! The only code that changes a job's state.
//!
//! `apply(job, event, now)` returns the job after the event, or the reason why the event is refused. Every
//! (state, event) pair is written out: states with the same result are listed together, and there is no
//! catch-all arm.

use crate::Timestamp;
use crate::event::{Event, Standing, Stands};
use crate::history::{Mark, MarkKind};
use crate::job::{Body, Job, JobId, JobSpec, Progress};
use crate::refused::Refused;
use crate::state::JobState;
use crate::steps::{Signal, Woken};
use std::sync::Arc;

mod acts;
mod pieces;
mod runs;
#[cfg(test)]
mod tests;

use acts::*;
use pieces::*;
use runs::*;

/// Changes that the transition requires in the job's parent and children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub parent: Option<ParentEffect>,
    pub children: Option<ChildrenEffect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentEffect {
    /// The parent waits for one child less, and runs again if that was the last.
    Settled(JobId),
    /// The parent waits for one child less, but a failure alone does not make it run.
    Failed(JobId),
    /// A failed child was cancelled or deleted: the parent runs again if it waits for no other child.
    WrittenOff(JobId),
    /// The parent waits for one child more: a settled child was restarted.
    Reopened(JobId),
    /// The parent runs after each run of this child.
    Run(JobId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildrenEffect {
    /// Children that waited for the end of this job's run may start.
    Release,
    /// This run has seen its settled children; they are deleted, as the policy of the job says.
    ForgetSettled,
    /// The job was deleted: waiting children start, and no child has a parent any more.
    Orphan,
    /// The job ended and was deleted: settled children are deleted with it, the others have no parent any
    /// more.
    Disband,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// `None`: the job was deleted.
    pub job: Option<Job>,
    pub effects: Effects,
}

/// Creates a job. `held_by_parent`: it waits for the end of its parent's run.
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

/// Runs [`apply`] and records `who` in the job's history. `None`: records nothing.
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

/// Kind of history entry for an event from outside a run. The job's own events return `None`: its timestamps
/// and attempt errors show them.
fn mark_kind(event: &Event) -> Option<MarkKind> {
    match event {
        Event::Cancel { .. } => Some(MarkKind::Cancelled),
        Event::Run { .. } => Some(MarkKind::Run),
        Event::Requeue { .. } | Event::RequeueFrom { .. } => Some(MarkKind::Retried),
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
        | Event::Skip { .. }
        | Event::Restart(_)
        | Event::Suspend(_)
        | Event::KeepSteps { .. }
        | Event::Signal { .. }
        | Event::Wake
        | Event::Lapse { .. }
        | Event::LapseInOutage { .. }
        | Event::SetPorts(_)
        | Event::TakeOver(_)
        | Event::ChildAdded
        | Event::ChildSettled
        | Event::ChildFailed
        | Event::ChildWrittenOff
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
        Event::Skip { by } => skipped(job, by, now),
        Event::Restart(restart) => restarted(job, *restart, now),
        Event::Suspend(suspend) => suspended(job, suspend, now),
        Event::KeepSteps { by, steps } => steps_kept(job, by, steps, now),
        Event::Signal { name, payload } => signalled(job, Signal { name, payload, at: now }, now),
        Event::Wake => woken(job, now),
        Event::Lapse { token, chance } => lapsed(job, token, chance, false, now),
        Event::LapseInOutage { token, chance } => lapsed(job, token, chance, true, now),
        Event::Cancel { running, failed_too } => cancelled(job, running, failed_too, now),
        Event::Run { at, force } => run(job, at, force, now),
        Event::Requeue { at, even_running } => requeued(job, at, even_running, now),
        Event::RequeueFrom { at, step } => requeued_from(job, at, &step, now),
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
            // A turn with children leaves a generation behind, so that the next turn has children of its own.
            if next.spec.policy.repeat.is_some() && next.steps().is_none() {
                steps_mut(&mut next);
            }
            stay(next)
        }
        Event::ChildSettled => resumed_after(job, one_child_less(job, now), now),
        Event::ChildFailed => stay(one_child_less(job, now)),
        // Commits a new version even where nothing changes, so a concurrent failure of the last pending child
        // is detected.
        Event::ChildWrittenOff => resumed_after(job, touched(job, now), now),
        Event::ParentPaused => match &job.state {
            JobState::Waiting if is_held_by_parent(job) => {
                to(job, touched(job, now), JobState::ready(job.progress.due_at))
            }
            // Its own run is over; it waits for its children, or for a failed child to be cancelled or
            // deleted.
            JobState::Waiting => Err(Refused::HasChildren),
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

fn taken_over(job: &Job, standing: Standing, now: Timestamp) -> Result<Transition, Refused> {
    match &job.state {
        JobState::Ready { .. } if job.progress.started_at.is_none() => {}
        JobState::Running(_) => return Err(Refused::Running),
        JobState::Waiting => return Err(Refused::Waiting),
        JobState::Ready { .. }
        | JobState::Suspended { .. }
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
            // A waiting job that never ran would count as held by its parent.
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

fn one_child_less(job: &Job, now: Timestamp) -> Job {
    let mut next = touched(job, now);
    next.progress.pending_children = next.progress.pending_children.saturating_sub(1);
    next
}

/// Runs a parent again that has no pending child left. The parent is queued by the start of its last run,
/// ahead of newer jobs.
fn resumed_after(job: &Job, mut next: Job, now: Timestamp) -> Result<Transition, Refused> {
    match (&job.state, next.progress.started_at) {
        (JobState::Suspended { .. }, _) if next.progress.pending_children == 0 && waits_for_children(job) => {
            wake(job, next, Woken::ByChildren, now)
        }
        (JobState::Waiting, Some(started_at)) if next.progress.pending_children == 0 => {
            next.progress.attempts = 0;
            to(job, next, JobState::ready(started_at.min(now)))
        }
        _ => stay(next),
    }
}
