//! The only place where a job's state changes.
//!
//! `apply(job, event, now)` answers with the job as it is afterwards, or with the reason why the event may not
//! happen. Every (state, event) pair is written down: where several states share an answer they are named together,
//! and nothing falls through.

use crate::Timestamp;
use crate::event::{CancelRunning, Event, Failure, Finish, Grant, Patch, RetryWish};
use crate::job::{
    AttemptError, Body, Extras, Job, JobId, JobSpec, KeepFor, Outcome, Payload, Policy, Progress,
};
use crate::lease::{Afterwards, Holder, Lease, OnLapse, RunKind, Token};
use crate::refused::Refused;
use crate::repeat::Moments;
use crate::state::JobState;
use std::sync::Arc;

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

pub fn apply(job: &Job, event: Event, now: Timestamp) -> Result<Transition, Refused> {
    match event {
        Event::Claim(grant) => claim(job, grant, now),
        Event::Extend { by, lease_ms } => extend(job, by, lease_ms, now),
        Event::Report { by, percent, note, payload } => {
            held(job, by)?;
            let mut next = touched(job, now);
            if percent.is_some() || note.is_some() {
                let body = body_mut(&mut next);
                body.percent = percent.or(body.percent);
                body.note = note.or(body.note.take());
            }
            replace_payload(&mut next, payload);
            stay(next)
        }
        Event::Finish(finish) => finished(job, finish, now),
        Event::Fail(failure) => failed(job, failure, now),
        Event::Release { by, run_at, counts } => released(job, by, run_at, counts, now),
        Event::Suspend { by } => suspended(job, by, now),
        Event::Lapse { token, chance } => lapsed(job, token, chance, now),
        Event::Cancel { running, failed_too } => cancelled(job, running, failed_too, now),
        Event::Run { at, force } => run(job, at, force, now),
        Event::Requeue { at, even_running } => requeued(job, at, even_running, now),
        Event::Terminate => terminated(job, now),
        Event::Update(patch) => updated(job, *patch, now),
        Event::ChildAdded => {
            let mut next = touched(job, now);
            next.progress.pending_children = next.progress.pending_children.saturating_add(1);
            stay(next)
        }
        Event::ChildSettled => child_settled(job, now),
        Event::ParentPaused => match &job.state {
            JobState::Waiting => to(job, touched(job, now), JobState::ready(job.progress.due_at)),
            other => Err(Refused::NotClaimable(other.name())),
        },
        Event::Delete => deleted(job),
        Event::Expire => match job.expires_at() {
            Some(at) if at <= now => gone(job, None),
            _ => Err(Refused::StillKept),
        },
    }
}

fn claim(job: &Job, grant: Grant, now: Timestamp) -> Result<Transition, Refused> {
    let (run_at, kind) = match &job.state {
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
    next.progress.started_at = Some(now);
    next.progress.finished_at = None;
    if kind == RunKind::Perform {
        next.progress.attempts = next.progress.attempts.saturating_add(1);
    }
    let lease = Lease {
        token: Token::new(next.version, grant.dice),
        worker: grant.worker,
        granted_at: now,
        until: grant.lease_ms.or(job.spec.policy.lease.length_ms).map(|ms| now.plus_ms(ms.max(0))),
        kind,
        afterwards: Afterwards::Settle,
        cancel_asked: false,
    };
    to(job, next, JobState::Running(lease))
}

fn extend(job: &Job, by: Holder, lease_ms: Option<i64>, now: Timestamp) -> Result<Transition, Refused> {
    let lease = held(job, by)?;
    // A lease whose end has passed is lost even if nobody noticed yet: the holder must not go on.
    if lease.has_ended(now) {
        return Err(Refused::LeaseLost);
    }
    let length = lease_ms.or(job.spec.policy.lease.length_ms);
    let until = match (lease.until, length) {
        (Some(old), Some(ms)) => Some(old.max(now.plus_ms(ms))),
        (until, _) => until,
    };
    let next_lease = Lease { until, ..lease.clone() };
    to(job, touched(job, now), JobState::Running(next_lease))
}

fn finished(job: &Job, finish: Finish, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, finish.by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    replace_payload(&mut next, finish.payload);
    remember_outcome(&mut next, finish.outcome, job.body.is_some());
    if let Some(state) = run.overruled(now) {
        return after_run(job, next, state);
    }
    if next.progress.pending_children > 0 {
        let mut transition = to(job, next, JobState::Waiting)?;
        transition.effects.children = Some(ChildrenEffect::Release);
        return Ok(transition);
    }
    if run.afterwards == Afterwards::RunAgain {
        return after_run(job, next, JobState::ready(now));
    }
    if !finish.ignore_repeat
        && let Some(run_at) = next_turn(job, now)
    {
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
    if let Some(state) = run.overruled(now) {
        return after_run(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if run.afterwards == Afterwards::RunAgain {
        return after_run(job, next, JobState::ready(now));
    }
    let retry = &job.spec.policy.retry;
    let again = match failure.retry {
        RetryWish::Never => None,
        RetryWish::At(at) => retry.allows_another(next.progress.attempts).then_some(at),
        RetryWish::Policy => retry.next_run(next.progress.attempts, job.spec.created_at, now, failure.chance),
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
    let lease = held(job, by)?.clone();
    let mut next = touched(job, now);
    if !counts && lease.kind == RunKind::Perform {
        next.progress.attempts = next.progress.attempts.saturating_sub(1);
    }
    if let Some(state) = Run::of(&lease).overruled_when_unfinished(now) {
        return to(job, next, state);
    }
    if lease.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if counts && !job.spec.policy.retry.allows_another(next.progress.attempts) {
        return give_up(job, next, now);
    }
    to(job, next, JobState::ready(run_at))
}

fn suspended(job: &Job, by: Holder, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    let state = match run.overruled(now) {
        Some(state) => state,
        None if run.afterwards == Afterwards::RunAgain => JobState::ready(now),
        None => JobState::Suspended,
    };
    after_run(job, next, state)
}

fn lapsed(job: &Job, token: Token, chance: f64, now: Timestamp) -> Result<Transition, Refused> {
    let lease = held(job, Holder::Token(token))?.clone();
    if !lease.has_ended(now) {
        return Err(Refused::LeaseLive);
    }
    let policy = &job.spec.policy;
    let mut next = touched(job, now);
    next.progress.attempts =
        next.progress.attempts.saturating_add_signed(i32::from(policy.lease.lapse_attempts));
    let worker = lease.worker.as_deref().unwrap_or("the worker");
    let outcome = Outcome {
        message: Some(format!("lease ended: {worker} gave no sign of life in time")),
        code: Some("lease_ended".to_owned()),
        ..Outcome::default()
    };
    remember_failure(&mut next, outcome, now);
    if let Some(state) = Run::of(&lease).overruled_when_unfinished(now) {
        return to(job, next, state);
    }
    if lease.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    let attempts = next.progress.attempts;
    let again = match policy.lease.on_lapse {
        OnLapse::GiveUp => None,
        OnLapse::Fail => policy.retry.next_run(attempts, job.spec.created_at, now, chance),
        OnLapse::RunAgain => policy.retry.allows_another(attempts).then_some(now),
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
    let next = touched(job, now);
    match (&job.state, running) {
        (JobState::Ready { .. } | JobState::Suspended, _) => {
            settle(job, next, JobState::Cancelled { at: now })
        }
        (JobState::Waiting, _) if job.progress.pending_children > 0 => Err(Refused::HasChildren),
        (JobState::Waiting, _) => settle(job, next, JobState::Cancelled { at: now }),
        (JobState::Running(_), CancelRunning::Refuse) => Err(Refused::Running),
        (JobState::Running(lease), _) if lease.kind == RunKind::Shutdown => Err(Refused::Terminating),
        (JobState::Running(_), CancelRunning::Now) => settle(job, next, JobState::Cancelled { at: now }),
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
        JobState::Ready { lapsed, .. } => to(job, next, JobState::Ready { run_at: at, lapsed: *lapsed }),
        JobState::Suspended | JobState::Completed { .. } => to(job, next, JobState::ready(at)),
        JobState::Running(lease) => {
            let afterwards = match (lease.afterwards, force) {
                (Afterwards::Terminate, false) => return Err(Refused::Terminating),
                _ if lease.kind == RunKind::Shutdown && !force => return Err(Refused::Terminating),
                _ => Afterwards::RunAgain,
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
            next.progress.attempts = 0;
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
    start_over(&mut next, at);
    next.progress.finished_at = None;
    to(job, next, JobState::ready(at))
}

fn terminated(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let next = touched(job, now);
    match &job.state {
        JobState::Terminated { .. } => Err(Refused::Settled(job.state.name())),
        JobState::Running(lease) if lease.kind == RunKind::Shutdown => stay(next),
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

fn updated(job: &Job, patch: Patch, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    let spec = Arc::make_mut(&mut next.spec);
    if let Some(payload) = patch.payload {
        spec.payload = payload;
    }
    spec.priority = patch.priority.unwrap_or(spec.priority);
    if let Some(name) = patch.name {
        spec.name = name;
    }
    if let Some(queue) = patch.queue {
        spec.queue = queue;
    }
    if let Some(repeat) = patch.repeat {
        spec.policy = Arc::new(Policy { repeat, ..Policy::clone(&spec.policy) });
    }
    if let Some(extras) = patch.extras {
        spec.extras = (*extras != Extras::default()).then_some(extras);
    }
    let Some(run_at) = patch.run_at else { return stay(next) };
    next.progress.due_at = run_at;
    match &job.state {
        JobState::Ready { lapsed, .. } => to(job, next, JobState::Ready { run_at, lapsed: *lapsed }),
        JobState::Terminating { .. } => to(job, next, JobState::Terminating { run_at }),
        JobState::Running(_)
        | JobState::Waiting
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => stay(next),
    }
}

fn child_settled(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    next.progress.pending_children = next.progress.pending_children.saturating_sub(1);
    match &job.state {
        JobState::Waiting if next.progress.pending_children == 0 => {
            next.progress.due_at = now;
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
        | JobState::Terminated { .. } => gone(job, Some(ChildrenEffect::Orphan)),
    }
}

// --- the pieces they share ---------------------------------------------------------------------------------------

/// The run that is ending: what was decided about the time after it.
struct Run {
    kind: RunKind,
    afterwards: Afterwards,
    cancel_asked: bool,
}

impl Run {
    fn of(lease: &Lease) -> Run {
        Run { kind: lease.kind, afterwards: lease.afterwards, cancel_asked: lease.cancel_asked }
    }

    /// Termination goes before everything a run can report.
    fn overruled(&self, now: Timestamp) -> Option<JobState> {
        match (self.kind, self.afterwards) {
            // A forced run takes back the termination that this last run was for.
            (RunKind::Shutdown, Afterwards::RunAgain) => Some(JobState::ready(now)),
            (RunKind::Shutdown, Afterwards::Settle | Afterwards::Terminate) => {
                Some(JobState::Terminated { at: now })
            }
            (RunKind::Perform, Afterwards::Terminate) => Some(JobState::Terminating { run_at: now }),
            (RunKind::Perform, Afterwards::Settle | Afterwards::RunAgain) => None,
        }
    }

    /// The same when the run came to no end: a last run that was cut short is given again.
    fn overruled_when_unfinished(&self, now: Timestamp) -> Option<JobState> {
        match self.overruled(now) {
            Some(JobState::Terminated { .. }) => Some(JobState::Terminating { run_at: now }),
            other => other,
        }
    }
}

fn held(job: &Job, by: Holder) -> Result<&Lease, Refused> {
    match (&job.state, by) {
        (JobState::Running(lease), by) if by.holds(lease.token) => Ok(lease),
        (_, Holder::Token(_)) => Err(Refused::LeaseLost),
        (_, Holder::Anyone) => Err(Refused::NotRunning),
    }
}

/// Whether `by` may end a run now. A lease whose end has passed is lost, noticed or not, unless the policy accepts
/// late reports while nobody else was given the job.
fn ended_run(job: &Job, by: Holder, now: Timestamp) -> Result<Run, Refused> {
    let accept_late = job.spec.policy.lease.accept_late;
    match &job.state {
        JobState::Ready { lapsed: Some(token), .. } if accept_late && by.holds(*token) => {
            Ok(Run { kind: RunKind::Perform, afterwards: Afterwards::Settle, cancel_asked: false })
        }
        _ => {
            let lease = held(job, by)?;
            if lease.has_ended(now) && !accept_late {
                return Err(Refused::LeaseLost);
            }
            Ok(Run::of(lease))
        }
    }
}

/// The next version of the job, still in its old state.
fn touched(job: &Job, now: Timestamp) -> Job {
    let mut next = job.clone();
    next.version += 1;
    next.progress.updated_at = now;
    next
}

fn stay(next: Job) -> Result<Transition, Refused> {
    Ok(Transition { job: Some(next), effects: Effects::default() })
}

/// To another state; tells the parent when that makes the job settled, or no longer settled.
fn to(before: &Job, mut next: Job, state: JobState) -> Result<Transition, Refused> {
    if let JobState::Ready { run_at, .. } = &state {
        next.progress.due_at = *run_at;
    }
    next.state = state;
    let parent = parent_effect(before, Some(&next));
    Ok(Transition { job: Some(next), effects: Effects { parent, children: None } })
}

/// The end of a run: a parent that runs after each run of its child hears of it.
fn after_run(before: &Job, next: Job, state: JobState) -> Result<Transition, Refused> {
    let mut transition = to(before, next, state)?;
    run_parent(before, &mut transition.effects);
    Ok(transition)
}

/// The end of the job; kept or not, as its policy says.
fn settle(before: &Job, mut next: Job, state: JobState) -> Result<Transition, Refused> {
    let keep = &before.spec.policy.keep;
    let kept_for = match &state {
        JobState::Completed { .. } => keep.completed,
        JobState::Failed { .. } => keep.failed,
        _ => keep.cancelled,
    };
    next.progress.finished_at = Some(next.progress.updated_at);
    let mut transition = match kept_for {
        KeepFor::Drop => gone(before, Some(ChildrenEffect::Orphan))?,
        KeepFor::Ms(_) | KeepFor::Ever => to(before, next, state)?,
    };
    run_parent(before, &mut transition.effects);
    Ok(transition)
}

fn gone(before: &Job, children: Option<ChildrenEffect>) -> Result<Transition, Refused> {
    let parent = parent_effect(before, None);
    Ok(Transition { job: None, effects: Effects { parent, children } })
}

fn parent_effect(before: &Job, after: Option<&Job>) -> Option<ParentEffect> {
    let family = before.spec.family()?;
    if !family.parent_waits() {
        return None;
    }
    match (counts_for_parent(before), after.is_some_and(counts_for_parent)) {
        (true, false) => Some(ParentEffect::Settled(family.parent)),
        (false, true) => Some(ParentEffect::Reopened(family.parent)),
        _ => None,
    }
}

/// Whether the parent has to wait for it.
fn counts_for_parent(child: &Job) -> bool {
    use crate::family::FamilyRule;
    match (&child.state, child.spec.family().map(|family| family.rule)) {
        (JobState::Failed { .. }, Some(FamilyRule::ParentWaits { failure_settles: false })) => true,
        (state, _) => !state.is_settled(),
    }
}

fn run_parent(before: &Job, effects: &mut Effects) {
    use crate::family::FamilyRule;
    if let Some(family) = before.spec.family()
        && family.rule == FamilyRule::ParentRunsAfter
    {
        effects.parent = Some(ParentEffect::Run(family.parent));
    }
}

fn forgetting_children(mut transition: Transition) -> Result<Transition, Refused> {
    transition.effects.children = Some(ChildrenEffect::ForgetSettled);
    Ok(transition)
}

fn next_turn(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let repeat = job.spec.policy.repeat.as_ref()?;
    repeat.next(&Moments { scheduled: job.progress.due_at, started: job.progress.started_at, finished: now })
}

fn start_over(next: &mut Job, run_at: Timestamp) {
    next.progress.attempts = 0;
    next.progress.due_at = run_at;
}

fn replace_payload(next: &mut Job, payload: Option<Payload>) {
    if let Some(payload) = payload {
        Arc::make_mut(&mut next.spec).payload = payload;
    }
}

fn body_mut(next: &mut Job) -> &mut Body {
    Arc::make_mut(next.body.get_or_insert_default())
}

/// Nothing to remember makes no body: most jobs end without a word.
fn remember_outcome(next: &mut Job, outcome: Outcome, had_body: bool) {
    if had_body || outcome != Outcome::default() {
        body_mut(next).outcome = Some(outcome);
    }
}

fn remember_failure(next: &mut Job, outcome: Outcome, now: Timestamp) {
    let error = AttemptError {
        attempt: next.progress.attempts,
        at: now,
        message: outcome.message.clone().unwrap_or_else(|| "failed without a message".to_owned()),
    };
    let body = body_mut(next);
    body.remember_error(error);
    body.outcome = Some(outcome);
}
