//! Helpers shared by the transitions: lease checks, effects on the family, errors and outcomes.

use super::{ChildrenEffect, Effects, ParentEffect, Transition};
use crate::Timestamp;
use crate::event::Patch;
use crate::failure;
use crate::family::FamilyRule;
use crate::history::LogLine;
use crate::job::{AttemptError, Body, Extras, Job, JobId, KeepFor, MinuteRuns, Outcome, Payload, Policy};
use crate::lease::{Afterwards, Holder, Lease, RunKind};
use crate::refused::Refused;
use crate::repeat::Moments;
use crate::retry::TIMED_OUT;
use crate::state::JobState;
use crate::steps::{Steps, Woken};
use crate::turn::{Turn, TurnOutcome};
use std::sync::Arc;

/// The run that is ending, and the requests that arrived during it.
pub(super) struct Run {
    pub(super) kind: RunKind,
    pub(super) afterwards: Afterwards,
    pub(super) cancel_asked: bool,
}

impl Run {
    pub(super) fn of(lease: &Lease) -> Run {
        Run { kind: lease.kind, afterwards: lease.afterwards, cancel_asked: lease.cancel_asked }
    }

    /// Time of the run that was requested during this one.
    pub(super) fn again_at(&self) -> Option<Timestamp> {
        match self.afterwards {
            Afterwards::RunAgain { at } => Some(at),
            Afterwards::Settle | Afterwards::Terminate | Afterwards::Rest(_) => None,
        }
    }

    /// Next state if a termination or a direct move to a state was requested: both override the report of the
    /// run.
    pub(super) fn overruled(&self, next: &mut Job, now: Timestamp) -> Option<JobState> {
        match (self.kind, self.afterwards) {
            // A forced run revokes the termination that this shutdown run was for.
            (RunKind::Shutdown, Afterwards::RunAgain { at }) => {
                next.progress.attempts = 0;
                Some(JobState::ready(at.max(now)))
            }
            (RunKind::Shutdown, Afterwards::Settle | Afterwards::Terminate | Afterwards::Rest(_)) => {
                Some(JobState::Terminated { at: now })
            }
            (RunKind::Perform, Afterwards::Terminate) => Some(JobState::Terminating { run_at: now }),
            (RunKind::Perform, Afterwards::Rest(rest)) => {
                next.progress.finished_at = Some(now);
                Some(rest.state(now))
            }
            (RunKind::Perform, Afterwards::Settle | Afterwards::RunAgain { .. }) => None,
        }
    }

    /// Same for a run that did not finish: an interrupted shutdown run is handed out again.
    pub(super) fn overruled_when_unfinished(&self, next: &mut Job, now: Timestamp) -> Option<JobState> {
        match self.overruled(next, now) {
            Some(JobState::Terminated { .. }) if self.kind == RunKind::Shutdown => {
                Some(JobState::Terminating { run_at: now })
            }
            other => other,
        }
    }
}

pub(super) fn held(job: &Job, by: Holder) -> Result<&Lease, Refused> {
    match (&job.state, by) {
        (JobState::Running(lease), by) if by.holds(lease.token) => Ok(lease),
        (_, Holder::Token(_)) => Err(Refused::LeaseLost),
        (_, Holder::Anyone | Holder::Overseer) => Err(Refused::NotRunning),
    }
}

/// Returns the lease of a holder that may continue. An expired lease is lost even before the expiry is
/// processed.
pub(super) fn live_lease(job: &Job, by: Holder, now: Timestamp) -> Result<&Lease, Refused> {
    let lease = held(job, by)?;
    if lease.has_ended(now) { Err(Refused::LeaseLost) } else { Ok(lease) }
}

/// Checks whether `by` may end a run now. An expired lease is lost, processed or not, unless the policy
/// accepts late reports while no other worker has claimed the job.
pub(super) fn ended_run(job: &Job, by: Holder, now: Timestamp) -> Result<Run, Refused> {
    let accept_late = job.spec.policy.lease.accept_late;
    match &job.state {
        JobState::Ready { lapsed: Some(token), .. } if accept_late && by.holds(*token) => {
            Ok(Run { kind: RunKind::Perform, afterwards: Afterwards::Settle, cancel_asked: false })
        }
        JobState::Running(_) => {
            let lease = held(job, by)?;
            if lease.has_ended(now) && !accept_late && by != Holder::Overseer {
                return Err(Refused::LeaseLost);
            }
            Ok(Run::of(lease))
        }
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
            if by == Holder::Overseer =>
        {
            Ok(Run { kind: RunKind::Perform, afterwards: Afterwards::Settle, cancel_asked: false })
        }
        _ => Err(held(job, by).err().unwrap_or(Refused::NotRunning)),
    }
}

/// Next version of the job, still in its old state.
pub(super) fn touched(job: &Job, now: Timestamp) -> Job {
    let mut next = job.clone();
    next.version += 1;
    next.progress.updated_at = now;
    next
}

pub(super) fn stay(next: Job) -> Result<Transition, Refused> {
    Ok(Transition { job: Some(next), effects: Effects::default() })
}

/// Moves to another state. Notifies the parent if the job becomes settled or is no longer settled, and the
/// children if no run is left for them to wait for.
pub(super) fn to(before: &Job, mut next: Job, state: JobState) -> Result<Transition, Refused> {
    // A retry does not move the slot of a repeating job: its next run is computed from that slot.
    if let JobState::Ready { run_at, .. } = &state
        && next.spec.policy.repeat.is_none()
    {
        next.progress.due_at = *run_at;
    }
    next.state = state;
    let parent = parent_effect(before, Some(&next));
    let stops = runs_or_will(&before.state) && !runs_or_will(&next.state);
    let children = (stops && next.progress.pending_children > 0).then_some(ChildrenEffect::Release);
    Ok(Transition { job: Some(next), effects: Effects { parent, children } })
}

pub(super) fn runs_or_will(state: &JobState) -> bool {
    matches!(state, JobState::Ready { .. } | JobState::Running(_))
}

/// Schedules the run that was requested during the ended one, with attempts reset.
pub(super) fn run_again(before: &Job, mut next: Job, at: Timestamp) -> Result<Transition, Refused> {
    next.progress.attempts = 0;
    after_run(before, next, JobState::ready(at))
}

/// Counts a new run, if the policy bounds them. `false`: too many in this minute.
pub(super) fn count_run(next: &mut Job, kind: RunKind, now: Timestamp) -> bool {
    let Some(max) = next.spec.policy.runs_per_minute else { return true };
    let runs = &mut next.progress.minute_runs;
    if kind == RunKind::Shutdown {
        *runs = MinuteRuns::default();
        return true;
    }
    let minute = u32::try_from(now.as_millis().div_euclid(60_000)).unwrap_or(0);
    let before = if runs.minute == minute { runs.count } else { 0 };
    *runs = MinuteRuns { minute, count: before.saturating_add(1) };
    runs.count <= max
}

/// The run has finished: its inputs are consumed.
pub(super) fn inputs_used(next: &mut Job) {
    if holds_inputs(next)
        && let Some(ports) = &mut body_mut(next).ports
    {
        Arc::make_mut(ports).inputs_used();
    }
}

/// The run failed or was lost: its inputs go back to the front of their queues.
pub(super) fn inputs_returned(next: &mut Job) {
    if holds_inputs(next)
        && let Some(ports) = &mut body_mut(next).ports
    {
        Arc::make_mut(ports).inputs_returned();
    }
}

fn holds_inputs(job: &Job) -> bool {
    job.ports().is_some_and(|ports| ports.in_hand().is_some())
}

/// Ends a run and notifies a parent that runs after each run of its child.
pub(super) fn after_run(before: &Job, next: Job, state: JobState) -> Result<Transition, Refused> {
    let mut transition = to(before, next, state)?;
    run_parent(before, &mut transition.effects);
    Ok(transition)
}

/// Ends the job; it is kept or deleted by its policy.
pub(super) fn settle(before: &Job, mut next: Job, state: JobState) -> Result<Transition, Refused> {
    let keep = &before.spec.policy.keep;
    let kept_for = match &state {
        JobState::Completed { .. } => keep.completed,
        JobState::Failed { .. } => keep.failed,
        _ => keep.cancelled,
    };
    next.progress.finished_at = Some(next.progress.updated_at);
    let mut transition = match kept_for {
        KeepFor::Drop => gone(before)?,
        KeepFor::Ms(_) | KeepFor::Ever => to(before, next, state)?,
    };
    run_parent(before, &mut transition.effects);
    Ok(transition)
}

pub(super) fn gone(before: &Job) -> Result<Transition, Refused> {
    let effects = Effects { parent: parent_effect(before, None), children: Some(ChildrenEffect::Orphan) };
    Ok(Transition { job: None, effects })
}

/// Notifies the parent of a child that it no longer waits for, or now has to wait for.
pub(super) fn parent_effect(before: &Job, after: Option<&Job>) -> Option<ParentEffect> {
    match (Tie::of(before), after.map_or(Tie::None, Tie::of)) {
        (Tie::None, Tie::None | Tie::Failed(_)) => None,
        (Tie::Pending(old), Tie::Pending(new)) | (Tie::Failed(old), Tie::Failed(new)) if old == new => None,
        (Tie::Pending(old), Tie::Failed(new)) if old == new => Some(ParentEffect::Failed(old)),
        (Tie::Pending(old), _) => Some(ParentEffect::Settled(old)),
        (Tie::None | Tie::Failed(_), Tie::Pending(new)) => Some(ParentEffect::Reopened(new)),
        (Tie::Failed(old), Tie::None | Tie::Failed(_)) => Some(ParentEffect::WrittenOff(old)),
    }
}

/// Relation of a child to a parent that waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tie {
    /// No such parent, or the child is settled.
    None,
    Pending(JobId),
    /// The child failed, and a failure does not settle it.
    Failed(JobId),
}

impl Tie {
    fn of(child: &Job) -> Tie {
        let Some(family) = child.spec.family() else { return Tie::None };
        match (family.rule, &child.state) {
            (FamilyRule::ParentRunsAfter, _) => Tie::None,
            (FamilyRule::ParentWaits { failure_settles: false }, JobState::Failed { .. }) => {
                Tie::Failed(family.parent)
            }
            (FamilyRule::ParentWaits { .. }, state) if state.is_settled() => Tie::None,
            (FamilyRule::ParentWaits { .. }, _) => Tie::Pending(family.parent),
        }
    }
}

/// Parent that waits for this child, if the child is pending.
pub(super) fn waiting_parent(child: &Job) -> Option<JobId> {
    match Tie::of(child) {
        Tie::Pending(parent) => Some(parent),
        Tie::None | Tie::Failed(_) => None,
    }
}

/// True if the job waits for the end of its parent's run, not for its own children after a run.
pub(super) fn is_held_by_parent(job: &Job) -> bool {
    job.state == JobState::Waiting && job.progress.started_at.is_none()
}

pub(super) fn run_parent(before: &Job, effects: &mut Effects) {
    if let Some(family) = before.spec.family()
        && family.rule == FamilyRule::ParentRunsAfter
    {
        effects.parent = Some(ParentEffect::Run(family.parent));
    }
}

/// Deletes the children that the ended run has seen, if the policy of their parent says so. Otherwise they
/// stay as long as their own keep times say.
pub(super) fn forgetting_children(before: &Job, mut transition: Transition) -> Result<Transition, Refused> {
    if !before.spec.policy.forgets_children() {
        return Ok(transition);
    }
    let gone = transition.job.is_none();
    transition.effects.children =
        Some(if gone { ChildrenEffect::Disband } else { ChildrenEffect::ForgetSettled });
    Ok(transition)
}

pub(super) fn next_turn(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let repeat = job.spec.policy.repeat.as_ref()?;
    let is_ahead = job.state.lease().is_some_and(|lease| lease.ahead);
    if is_ahead && job.progress.due_at > now {
        return Some(job.progress.due_at);
    }
    repeat.next(&Moments { scheduled: job.progress.due_at, started: job.progress.started_at, finished: now })
}

/// Records the turn that ends with the run of `before`, if the job repeats.
pub(super) fn end_turn(before: &Job, next: &mut Job, outcome: TurnOutcome, now: Timestamp) {
    let failure = next.body.as_ref().and_then(|body| body.outcome.as_ref());
    let failure = failure.filter(|_| outcome == TurnOutcome::Failed);
    if let Some(turn) = Turn::ended(before, outcome, failure, now) {
        body_mut(next).remember_turn(turn);
    }
}

/// Start of the current scheduled run, from which the give-up time counts.
pub(super) fn turn_began(job: &Job) -> Timestamp {
    let created_at = job.spec.created_at;
    if job.spec.policy.repeat.is_some() { created_at.max(job.progress.due_at) } else { created_at }
}

/// Returns `run_at` if another attempt may start then.
pub(super) fn within_bounds(job: &Job, run_at: Timestamp) -> Option<Timestamp> {
    let retry = &job.spec.policy.retry;
    let too_late = retry.give_up_after_ms.is_some_and(|limit| run_at > turn_began(job).plus_ms(limit));
    (retry.allows_another(job.progress.attempts) && !too_late).then_some(run_at)
}

/// Sets the timeout error code on a job that has attempts left but no time.
pub(super) fn say_if_timed_out(next: &mut Job) {
    if next.spec.policy.retry.allows_another(next.progress.attempts)
        && let Some(outcome) = &mut body_mut(next).outcome
    {
        outcome.code = Some(TIMED_OUT.to_owned());
    }
}

pub(super) fn after_backoff(job: &Job, now: Timestamp, chance: f64) -> Option<Timestamp> {
    job.spec.policy.retry.next_run(job.progress.attempts, turn_began(job), now, chance)
}

/// Wakes a suspended job: attempts count from zero.
pub(super) fn wake(before: &Job, mut next: Job, woken: Woken, now: Timestamp) -> Result<Transition, Refused> {
    if let Some(steps) = waiting_steps(&mut next) {
        steps.end_wait(woken, now);
    }
    next.progress.attempts = 0;
    to(before, next, JobState::ready(now))
}

pub(super) fn steps_mut(next: &mut Job) -> &mut Steps {
    Arc::make_mut(body_mut(next).steps.get_or_insert_default())
}

/// Steps of a job that waits.
pub(super) fn waiting_steps(next: &mut Job) -> Option<&mut Steps> {
    next.steps()?.wait()?;
    Some(steps_mut(next))
}

pub(super) fn waits_for_children(job: &Job) -> bool {
    job.steps().and_then(|steps| steps.wait()).is_some_and(|wait| wait.children)
}

/// Starts a new scheduled run without the steps of the previous one.
pub(super) fn start_over(next: &mut Job, run_at: Timestamp) {
    start_over_with_steps(next, run_at);
    without_steps(next);
}

/// Begins a new generation of steps.
pub(super) fn without_steps(next: &mut Job) {
    if let Some(steps) = next.steps() {
        let anew = steps.anew();
        body_mut(next).steps = Some(Arc::new(anew));
    }
}

/// Attempts count from zero, and the progress of the previous run is cleared; kept steps stay.
pub(super) fn start_over_with_steps(next: &mut Job, run_at: Timestamp) {
    if let Some(steps) = waiting_steps(next) {
        steps.drop_wait();
    }
    next.progress.attempts = 0;
    next.progress.due_at = run_at;
    if next.body.as_ref().is_some_and(|body| body.percent.is_some() || body.note.is_some()) {
        let body = body_mut(next);
        body.percent = None;
        body.note = None;
    }
}

pub(super) fn replace_payload(next: &mut Job, payload: Option<Payload>) {
    if let Some(payload) = payload {
        Arc::make_mut(&mut next.spec).payload = payload;
    }
}

pub(super) fn body_mut(next: &mut Job) -> &mut Body {
    Arc::make_mut(next.body.get_or_insert_default())
}

/// Stores the outcome. An empty outcome creates no body: most jobs end without one.
pub(super) fn remember_outcome(next: &mut Job, outcome: Outcome, had_body: bool) {
    if had_body || outcome != Outcome::default() {
        body_mut(next).outcome = Some(outcome);
    }
}

pub(super) fn remember_lines(next: &mut Job, source: Option<Arc<str>>, lines: Vec<String>, now: Timestamp) {
    let attempt = next.progress.attempts;
    let log = body_mut(next).log.get_or_insert_default();
    for text in lines {
        log.add(LogLine { at: now, attempt, source: source.clone(), text });
    }
}

/// Same job without its result.
pub(super) fn without_result(job: &Job, now: Timestamp) -> Result<Transition, Refused> {
    let mut next = touched(job, now);
    if let Some(outcome) = &mut body_mut(&mut next).outcome {
        outcome.result = None;
    }
    stay(next)
}

pub(super) fn remember_failure(next: &mut Job, mut outcome: Outcome, now: Timestamp) {
    let cut = |text: String| failure::cut_middle(&text, failure::BACKTRACE_BYTES_MAX);
    outcome.backtrace = outcome.backtrace.map(cut);
    outcome.class = outcome.class.map(|class| failure::cut_end(&class, failure::CLASS_BYTES_MAX).to_owned());
    let error = AttemptError {
        attempt: next.progress.attempts,
        at: now,
        message: outcome.message.clone().unwrap_or_else(|| "failed without a message".to_owned()),
        class: outcome.class.clone(),
        error: outcome.error.as_ref().and_then(failure::kept_error),
        backtrace: outcome.backtrace.clone(),
        started_at: next.progress.started_at,
        worker: next.state.lease().and_then(|lease| lease.worker.clone()).or_else(|| outcome.worker.clone()),
    };
    let body = body_mut(next);
    body.remember_error(error);
    body.outcome = Some(outcome);
}

/// Expiry of a lease that is granted or renewed now. `job` has already started its run.
pub(super) fn lease_end(job: &Job, asked_ms: Option<i64>, now: Timestamp) -> Option<Timestamp> {
    let policy = &job.spec.policy;
    match (asked_ms, &policy.lease_span) {
        (None, Some(span)) => {
            let end = span.after(now);
            // A scheduled run that is already overdue must not end the lease.
            let turn = next_turn(job, now).filter(|turn| *turn > now);
            Some(turn.map_or(end, |turn| turn.min(end)))
        }
        _ => asked_ms.or(policy.lease.length_ms).map(|ms| now.plus_ms(ms.max(0))),
    }
}

/// Applies a patch, except for its effect on the state.
pub(super) fn patch_spec(next: &mut Job, patch: Patch) {
    let spec = Arc::make_mut(&mut next.spec);
    let was_dated = spec.is_dated();
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
    if let Some(catch_up) = patch.catch_up {
        spec.policy = Arc::new(Policy { catch_up, ..Policy::clone(&spec.policy) });
    }
    if let Some((lease, lease_span)) = patch.lease {
        spec.policy = Arc::new(Policy { lease, lease_span, ..Policy::clone(&spec.policy) });
    }
    if let Some(extras) = patch.extras {
        spec.extras = Some(extras);
    }
    if let Some(family) = patch.family {
        spec.extras.get_or_insert_default().family = family;
    }
    for (key, text) in patch.facts {
        let facts = &mut spec.extras.get_or_insert_default().facts;
        match text {
            Some(text) => facts.insert(key, text),
            None => facts.remove(&key),
        };
    }
    let is_dated = patch.run_at.map_or(was_dated, |at| at > next.progress.updated_at);
    if is_dated != spec.is_dated() {
        spec.extras.get_or_insert_default().dated = is_dated;
    }
    spec.extras.take_if(|extras| **extras == Extras::default());
    next.progress.due_at = patch.run_at.unwrap_or(next.progress.due_at);
    next.progress.attempts = patch.attempts.unwrap_or(next.progress.attempts);
}
