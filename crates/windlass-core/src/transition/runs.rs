//! Transitions of a run, from claim to end: reports of a worker, and the expiry of its lease.

use super::Transition;
use super::pieces::*;
use crate::Timestamp;
use crate::event::{Failure, Finish, Grant, Patch, Restart, RetryWish, Suspend};
use crate::failure::LEASE_EXPIRED;
use crate::job::{Job, KeepFor, Outcome};
use crate::lease::{Afterwards, Holder, Lease, OnLapse, RunKind, Token};
use crate::refused::Refused;
use crate::state::JobState;
use crate::steps::{NewStep, Wait, Woken};
use crate::turn::{Turn, TurnOutcome, comes_too_late};
use std::sync::Arc;

pub(super) fn claim(job: &Job, grant: Grant, now: Timestamp) -> Result<Transition, Refused> {
    let (run_at, mut kind) = match &job.state {
        JobState::Ready { run_at, .. } => (*run_at, RunKind::Perform),
        JobState::Terminating { run_at } => (*run_at, RunKind::Shutdown),
        JobState::Running(_) => return Err(Refused::Running),
        JobState::Waiting => return Err(Refused::Waiting),
        JobState::Suspended { .. }
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
    if next.spec.policy.retry_moves_slot {
        next.progress.due_at = run_at;
    }
    if !count_run(&mut next, kind, now) {
        kind = RunKind::Shutdown;
    }
    if kind == RunKind::Perform {
        next.progress.attempts = next.progress.attempts.saturating_add(1);
    }
    let lease = Lease {
        token: Token::new(next.version, grant.random),
        worker: grant.worker,
        granted_at: now,
        until: lease_end(&next, grant.lease_ms, now),
        kind,
        afterwards: Afterwards::Settle,
        cancel_asked: false,
        // Only a requested run starts before the scheduled time.
        ahead: next.spec.policy.repeat.is_some() && next.progress.due_at > now,
    };
    to(job, next, JobState::Running(lease))
}

pub(super) fn extend(
    job: &Job,
    by: Holder,
    lease_ms: Option<i64>,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let lease = live_lease(job, by, now)?;
    let until = match (lease.until, lease_end(job, lease_ms, now)) {
        (Some(old), Some(new)) => Some(old.max(new)),
        (until, _) => until,
    };
    let next_lease = Lease { until, ..lease.clone() };
    to(job, touched(job, now), JobState::Running(next_lease))
}

pub(super) fn renew(
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

pub(super) fn finished(job: &Job, finish: Finish, now: Timestamp) -> Result<Transition, Refused> {
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
    let waits = next.progress.pending_children > 0;
    if !waits {
        end_turn(job, &mut next, TurnOutcome::Completed, now);
    }
    if let Some(state) = run.overruled(&mut next, now) {
        if !waits && !state.is_settled() {
            without_steps(&mut next);
        }
        return after_run(job, next, state);
    }
    let again = run.again_at();
    let next_turn = if finish.ignore_repeat { None } else { next_turn(job, now) };
    // The finish counts, but a job with a pending cancellation does not continue.
    if run.cancel_asked && (waits || again.is_some() || next_turn.is_some()) {
        if waits {
            end_turn(job, &mut next, TurnOutcome::Cancelled, now);
        }
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if waits {
        return after_run(job, next, JobState::Waiting);
    }
    if let Some(at) = again {
        without_steps(&mut next);
        return run_again(job, next, at.max(now));
    }
    if let Some(run_at) = next_turn {
        start_over(&mut next, run_at);
        return forgetting_children(job, after_run(job, next, JobState::ready(run_at))?);
    }
    forgetting_children(job, settle(job, next, JobState::Completed { at: now })?)
}

pub(super) fn failed(job: &Job, failure: Failure, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, failure.by, now)?;
    let mut next = touched(job, now);
    next.progress.finished_at = Some(now);
    replace_payload(&mut next, failure.payload);
    remember_failure(&mut next, failure.outcome, now);
    inputs_returned(&mut next);
    let repeats = job.spec.policy.repeat.is_some();
    if let Some(state) = run.overruled(&mut next, now) {
        end_turn(job, &mut next, TurnOutcome::Failed, now);
        if repeats {
            without_steps(&mut next);
        }
        return after_run(job, next, state);
    }
    if run.cancel_asked {
        end_turn(job, &mut next, TurnOutcome::Cancelled, now);
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        end_turn(job, &mut next, TurnOutcome::Failed, now);
        if repeats {
            without_steps(&mut next);
        }
        return run_again(job, next, at.max(now));
    }
    let again = match failure.retry {
        RetryWish::Never => None,
        RetryWish::At(at) => within_bounds(&next, at),
        RetryWish::Policy => after_backoff(&next, now, failure.chance),
    };
    match again {
        Some(run_at) => after_run(job, next, JobState::ready(run_at)),
        None if failure.retry == RetryWish::Never => give_up(job, next, now),
        None => {
            say_if_timed_out(&mut next);
            give_up(job, next, now)
        }
    }
}

/// No attempt is left: the job fails, unless a repeat rule continues it.
pub(super) fn give_up(job: &Job, mut next: Job, now: Timestamp) -> Result<Transition, Refused> {
    end_turn(job, &mut next, TurnOutcome::Failed, now);
    if job.spec.policy.repeat_after_failure
        && let Some(run_at) = next_turn(job, now)
    {
        start_over(&mut next, run_at);
        return after_run(job, next, JobState::ready(run_at));
    }
    settle(job, next, JobState::Failed { at: now })
}

pub(super) fn released(
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
        end_turn(job, &mut next, TurnOutcome::Cancelled, now);
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

pub(super) fn skipped(job: &Job, by: Holder, now: Timestamp) -> Result<Transition, Refused> {
    if !comes_too_late(job) {
        return Err(Refused::NotDue);
    }
    let run = ended_run(job, by, now)?;
    let mut next = touched(job, now);
    next.progress.attempts = next.progress.attempts.saturating_sub(1);
    next.progress.started_at = next.progress.prior_start;
    if let Some(turn) = Turn::missed(job, now) {
        body_mut(&mut next).remember_turn(turn);
    }
    if let Some(state) = run.overruled_when_unfinished(&mut next, now) {
        return to(job, next, state);
    }
    if run.cancel_asked {
        return settle(job, next, JobState::Cancelled { at: now });
    }
    match next_turn(job, now) {
        Some(run_at) => {
            start_over(&mut next, run_at);
            to(job, next, JobState::ready(run_at))
        }
        None => settle(job, next, JobState::Completed { at: now }),
    }
}

pub(super) fn restarted(job: &Job, restart: Restart, now: Timestamp) -> Result<Transition, Refused> {
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
    forgetting_children(job, after_run(job, next, JobState::ready(run_at))?)
}

pub(super) fn suspended(job: &Job, suspend: Suspend, now: Timestamp) -> Result<Transition, Refused> {
    let run = ended_run(job, suspend.by, now)?;
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
    let Suspend { until, wait, .. } = suspend;
    if let Some(wait) = wait {
        let children_pending = next.progress.pending_children > 0;
        let steps = steps_mut(&mut next);
        if wait.step.is_some() && !steps.has_room_for_a_wait() {
            return Err(Refused::StepsFull);
        }
        let early = steps.begin_wait(Wait { since: now, ..*wait }, children_pending);
        let is_over = until.is_some_and(|until| until <= now).then_some(Woken::ByTime);
        if let Some(woken) = early.or(is_over) {
            steps.end_wait(woken, now);
            return run_again(job, next, now);
        }
    }
    after_run(job, next, JobState::Suspended { until })
}

pub(super) fn steps_kept(
    job: &Job,
    by: Holder,
    steps: Vec<NewStep>,
    now: Timestamp,
) -> Result<Transition, Refused> {
    live_lease(job, by, now)?;
    let mut next = touched(job, now);
    steps_mut(&mut next).keep(steps, now)?;
    stay(next)
}

pub(super) fn lapsed(
    job: &Job,
    token: Token,
    chance: f64,
    in_outage: bool,
    now: Timestamp,
) -> Result<Transition, Refused> {
    let lease = held(job, Holder::Token(token))?.clone();
    if !lease.has_ended(now) {
        return Err(Refused::LeaseLive);
    }
    let run = Run::of(&lease);
    let policy = &job.spec.policy.lease;
    let mut next = touched(job, now);
    let worker = lease.worker.as_deref().unwrap_or("the worker");
    let outcome = Outcome {
        message: Some(format!("lease expired: no heartbeat from {worker}")),
        class: Some(LEASE_EXPIRED.to_owned()),
        code: Some("lease_ended".to_owned()),
        worker: lease.worker.clone(),
        ended_at: lease.until,
        ..Outcome::default()
    };
    remember_failure(&mut next, outcome, now);
    inputs_returned(&mut next);
    if run.kind == RunKind::Perform {
        let counted = next.progress.attempts.saturating_add_signed(i32::from(policy.lapse_attempts));
        let is_last = !job.spec.policy.retry.allows_another(counted);
        let is_spared = in_outage && is_last && policy.on_lapse == OnLapse::RunAgain;
        next.progress.attempts = if is_spared { counted.saturating_sub(1) } else { counted };
    }
    if let Some(state) = run.overruled_when_unfinished(&mut next, now) {
        return to(job, next, state);
    }
    if run.cancel_asked {
        end_turn(job, &mut next, TurnOutcome::Cancelled, now);
        return settle(job, next, JobState::Cancelled { at: now });
    }
    if let Some(at) = run.again_at() {
        end_turn(job, &mut next, TurnOutcome::Failed, now);
        // No `lapsed` token: a late finish of the old holder would cancel the run that was asked for.
        next.progress.attempts = 0;
        return to(job, next, JobState::ready(at.max(now)));
    }
    let again = match policy.on_lapse {
        OnLapse::GiveUp => None,
        OnLapse::Fail => after_backoff(&next, now, chance),
        OnLapse::RunAgain => within_bounds(&next, now),
        OnLapse::AtLeaseEnd => within_bounds(&next, lease.until.unwrap_or(now).min(now)),
        OnLapse::BackInLine => within_bounds(&next, job.progress.due_at.min(now)),
    };
    match again {
        Some(run_at) => to(job, next, JobState::Ready { run_at, lapsed: Some(token) }),
        None => {
            if policy.on_lapse != OnLapse::GiveUp {
                say_if_timed_out(&mut next);
            }
            give_up(job, next, now)
        }
    }
}
