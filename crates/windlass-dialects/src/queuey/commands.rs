//! Requests as engine commands, and jobs in responses. The only place with names, units and defaults of this
//! protocol.

use super::ids::Uuid;
use super::wire::{Complete, Create, End, Shown};
use super::{Counting, Settings};
use serde::Deserialize;
use std::sync::Arc;
use windlass_core::event::{Patch, RetryWish};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::state::JobState;
use windlass_core::{
    BadName, Event, Extras, Holder, Job, JobId, Keep, KeepFor, Name, NameMatch, Outcome, Payload, Policy,
    Queue, StateName, Tenant, Timestamp,
};
use windlass_engine::{Claim, Push, RunAt};

/// Queue of this dialect. Jobs that other dialects push here go to its runners, too.
pub(super) const QUEUE: &str = "queuey";
/// Name of its jobs, for people and for workers of other dialects.
const NAME: &str = "wasi";
/// Fact set by a completion: data of the completed run that this protocol shows and the engine does not keep.
const RUN_FACT: &str = "queuey.run";
/// Outcome code of a run whose lease expired.
const LEASE_ENDED: &str = "lease_ended";

pub(super) fn policy(settings: &Settings) -> Policy {
    // Literal: claims and abandonments count, and an abandoned job with more than the limit fails. Claims only: an
    // abandoned job with as many claims as the limit fails.
    let (lapse_attempts, max_attempts) = match settings.counting {
        Counting::Literal => (1, settings.max_attempts.saturating_add(1)),
        Counting::ClaimsOnly => (0, settings.max_attempts),
    };
    let kept = settings.keep_ms.map_or(KeepFor::Ever, KeepFor::Ms);
    Policy {
        lease: LeasePolicy {
            length_ms: Some(lease_ms(settings)),
            on_lapse: OnLapse::BackInLine,
            lapse_attempts,
            accept_late: true,
        },
        retry: RetryPolicy {
            max_attempts: Some(max_attempts),
            backoff: Backoff::None,
            give_up_after_ms: None,
        },
        keep: Keep { completed: kept, failed: kept, cancelled: kept },
        ..Policy::default()
    }
}

/// Age of an abandoned job plus one millisecond: abandoned means *more than* the age without a heartbeat.
pub(super) fn lease_ms(settings: &Settings) -> i64 {
    settings.abandoned_age_ms.saturating_add(1)
}

pub(super) fn push(ask: &Create, id: Uuid, policy: &Arc<Policy>) -> Result<Push, BadName> {
    let payload = serde_json::to_vec(ask).unwrap_or_default();
    let extras =
        Extras { origin: Some("queuey".into()), alias: Some(id.to_string().into()), ..Extras::default() };
    Ok(Push {
        queue: Queue::new(QUEUE)?,
        name: Name::new(NAME)?,
        payload: Payload::new(windlass_core::Format::Json, payload),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::clone(policy),
        extras: Some(Box::new(extras)),
        body: None,
    })
}

pub(super) fn claim(tenant: Tenant, runner: Uuid, settings: &Settings) -> Result<Claim, BadName> {
    Ok(Claim {
        tenant,
        queues: vec![Queue::new(QUEUE)?],
        names: NameMatch::Any,
        priority: None,
        limit: 1,
        wait_ms: 0,
        lease_ms: Some(lease_ms(settings)),
        worker: Some(runner.to_string().into()),
    })
}

/// Event for the end of a run as reported by the runner. A reported failure is final.
pub(super) fn end_event(ask: &Complete, by: Holder, runner: Option<Arc<str>>) -> Event {
    let output = ask.output_addr.as_ref().map(|addr| {
        let text = serde_json::json!({ "output_addr": addr }).to_string();
        Payload::json(&text)
    });
    match ask.end {
        End::Completed => Event::finish(by, Outcome { result: output, worker: runner, ..Outcome::default() }),
        End::Failed => {
            let message = match &ask.output_addr {
                Some(addr) => format!("the runner reported a failure; its output is blob {addr}"),
                None => "the runner reported a failure".to_owned(),
            };
            let outcome =
                Outcome { error: output, message: Some(message), worker: runner, ..Outcome::default() };
            Event::fail(by, outcome, RetryWish::Never)
        }
    }
}

/// Stores last heartbeat and attempts of the run that is about to be completed. In this protocol a completion
/// changes neither.
pub(super) fn save_run(job: &Job) -> Patch {
    let (attempts, updated_at) = match job.state() {
        // The lease expired unnoticed, so the run does not count as abandoned; its last heartbeat was one
        // lease length before the expiry.
        JobState::Ready { lapsed: Some(_), .. } => {
            let lease = &job.spec.policy.lease;
            let lapse = i32::from(lease.lapse_attempts);
            let ended_at =
                outcome(job).and_then(|outcome| outcome.ended_at).unwrap_or(job.progress.updated_at);
            let last_sign = ended_at.plus_ms(-lease.length_ms.unwrap_or(0));
            (job.progress.attempts.saturating_add_signed(-lapse), last_sign)
        }
        _ => (job.progress.attempts, job.progress.updated_at),
    };
    let started = job.progress.started_at.unwrap_or_default().as_millis();
    let text = format!("{started} {} {attempts}", updated_at.as_millis());
    Patch { facts: vec![(RUN_FACT.into(), Some(text.into()))], ..Patch::default() }
}

pub(super) fn outcome(job: &Job) -> Option<&Outcome> {
    job.body.as_ref()?.outcome.as_ref()
}

/// Attempts and last heartbeat of the completed run, if this protocol completed it.
fn saved_run(job: &Job) -> Option<(u32, i64)> {
    let mut parts = job.spec.fact(RUN_FACT)?.split(' ');
    let mut next = || parts.next()?.parse::<i64>().ok();
    let (started, updated_at, attempts) = (next()?, next()?, next()?);
    // The job may have been restarted since by another dialect.
    let is_this_run = job.progress.started_at.is_some_and(|at| at.as_millis() == started);
    is_this_run.then_some((u32::try_from(attempts).ok()?, updated_at))
}

/// Job number in a UUID, for jobs without an alias.
pub(super) fn job_number(id: Uuid) -> Option<JobId> {
    id.number().and_then(JobId::new)
}

pub(super) fn job_id(job: &Job) -> Uuid {
    job.spec.alias().and_then(Uuid::parse).unwrap_or_else(|| Uuid::of_number(job.id.get()))
}

/// Fields of this protocol's payload; payloads of other dialects may hold anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    binary_addr: Option<String>,
    input_addr: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Put {
    output_addr: Option<String>,
}

/// Job as created, before any claim.
pub(super) fn new_job_view(ask: &Create, id: Uuid, made_at: Timestamp) -> Shown {
    let id = id.to_string();
    Shown {
        job_id: id.clone(),
        id,
        binary_addr: Some(ask.binary_addr.clone()),
        input_addr: ask.input_addr.clone(),
        output_addr: None,
        status: status(StateName::Ready),
        run_attempts: 0,
        runner_id: None,
        created_at: made_at.calendar_ms(),
        updated_at: made_at.calendar_ms(),
        completed_at: None,
    }
}

pub(super) fn job_view(job: &Job) -> Shown {
    let asked: Asked = serde_json::from_slice(&job.spec.payload.bytes).unwrap_or_default();
    let outcome = outcome(job);
    let status = status(job.state().name());
    let has_ended = job.state().is_settled();
    let is_abandoned = outcome.is_some_and(|outcome| outcome.code.as_deref() == Some(LEASE_ENDED));
    // Set by its runner or by an operator; an abandonment completes nothing.
    let outcome = outcome.filter(|_| has_ended && !is_abandoned);
    let output = outcome.and_then(|outcome| outcome.result.as_ref().or(outcome.error.as_ref()));
    let output: Put =
        output.and_then(|output| serde_json::from_slice(&output.bytes).ok()).unwrap_or_default();
    let worker = match job.state() {
        JobState::Running(lease) => lease.worker.clone(),
        _ => outcome.and_then(|outcome| outcome.worker.clone()),
    };
    let (run_attempts, updated_at) = saved_run(job)
        .filter(|_| outcome.is_some())
        .unwrap_or((job.progress.attempts, job.progress.updated_at.as_millis()));
    let id = job_id(job).to_string();
    Shown {
        job_id: id.clone(),
        id,
        binary_addr: asked.binary_addr,
        input_addr: asked.input_addr,
        output_addr: output.output_addr,
        status,
        run_attempts,
        runner_id: worker.map(|worker| worker.to_string()),
        created_at: job.spec.created_at.calendar_ms(),
        updated_at: windlass_core::Timestamp::from_millis(updated_at).calendar_ms(),
        completed_at: job
            .progress
            .finished_at
            .filter(|_| has_ended && !is_abandoned)
            .map(|at| at.calendar_ms()),
    }
}

/// Four names for nine states: jobs that may still run are pending, jobs that ended without success have
/// failed.
fn status(state: StateName) -> &'static str {
    match state {
        StateName::Ready | StateName::Waiting | StateName::Suspended | StateName::Terminating => "pending",
        StateName::Running => "active",
        StateName::Completed => "completed",
        StateName::Failed | StateName::Cancelled | StateName::Terminated => "failed",
    }
}
