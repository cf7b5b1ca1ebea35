//! Jobs and constraints in responses, and the request to a worker.

use super::tenant_dispatcher::DISPATCHER_NAME;
use crate::codec::{self, Encoding, Out};
use bytes::Bytes;
use serde_json::Value;
use windlass_core::limits::Limit;
use windlass_core::{Job, JobState, KeepFor, Outcome, Timestamp};
use windlass_engine::HeldBy;

/// Status name of a job; `None`: JQ has no name for its state.
pub fn status(job: &Job) -> Option<&'static str> {
    Some(match job.state() {
        JobState::Ready { .. } if job.progress.attempts > 0 => "retrying",
        JobState::Ready { .. } | JobState::Waiting | JobState::Suspended { .. } => "queued",
        JobState::Running(_) | JobState::Terminating { .. } => "running",
        JobState::Completed { .. } => "done",
        JobState::Failed { .. } | JobState::Terminated { .. } => "error",
        JobState::Cancelled { .. } => return None,
    })
}

/// Number of retries so far, including the retry that a failed job waits for.
pub fn retry_count(job: &Job) -> u32 {
    match job.state() {
        JobState::Ready { .. } => job.progress.attempts,
        _ => job.progress.attempts.saturating_sub(1),
    }
}

/// Context of a job in a response.
#[derive(Default)]
pub struct Around<'a> {
    pub held_by: Option<&'a HeldBy>,
    /// The caller may not see results and errors.
    pub hides_payloads: bool,
}

pub fn job(out: &mut Out, job: &Job, status: &str, around: &Around<'_>) {
    let nothing = Outcome::default();
    let outcome = job.body.as_ref().and_then(|body| body.outcome.as_ref()).unwrap_or(&nothing);
    let last = match job.state() {
        JobState::Running(lease) => lease.worker.as_deref(),
        _ => outcome.worker.as_deref(),
    };
    let worker = last.filter(|worker| *worker != DISPATCHER_NAME && status != "queued");
    out.begin_map();
    out.key("job_id");
    out.str(&job.id.to_string());
    out.key("status");
    out.str(status);
    out.key("name");
    out.str(&job.spec.name);
    out.key("priority");
    out.int(job.spec.priority.into());
    out.key("worker_id");
    text_or_null(out, worker);
    out.key("retry_count");
    out.uint(retry_count(job).into());
    what_was_asked(out, job);
    out.key("result");
    match outcome.result.as_ref().filter(|_| status == "done" && !around.hides_payloads) {
        Some(result) => out.content(result),
        None => out.null(),
    }
    // A completed job does not show the errors of earlier attempts.
    let failure = Some(outcome).filter(|_| status != "done");
    let told = failure.filter(|_| !around.hides_payloads);
    out.key("error");
    match told.and_then(|outcome| outcome.error.as_ref()) {
        Some(error) => out.content(error),
        None => out.null(),
    }
    out.key("message");
    text_or_null(out, told.and_then(|outcome| outcome.message.as_deref()));
    out.key("reason");
    text_or_null(out, failure.and_then(|outcome| outcome.code.as_deref()).map(reason));
    times(out, job, outcome);
    out.key("held_by");
    text_or_null(out, around.held_by.map(|held| &*held.limit));
    out.end_map();
}

fn what_was_asked(out: &mut Out, job: &Job) {
    let policy = &job.spec.policy;
    out.key("max_retry");
    match policy.retry.max_attempts {
        Some(attempts) => out.uint(attempts.saturating_sub(1).into()),
        None => out.null(),
    }
    out.key("timeout");
    match policy.lease.length_ms {
        Some(ms) => out.int(ms / 1_000),
        None => out.null(),
    }
    out.key("keep_result");
    out.bool(policy.result.keep != KeepFor::Drop);
}

/// An expired lease is a timeout in JQ.
fn reason(code: &str) -> &str {
    match code {
        "timeout" | "lease_ended" => "timeout",
        _ => "other",
    }
}

fn times(out: &mut Out, job: &Job, outcome: &Outcome) {
    out.key("created_at");
    moment(out, Some(job.spec.created_at));
    out.key("run_at");
    moment(out, job.state().claimable_at());
    out.key("finished_at");
    moment(out, job.state().is_settled().then(|| outcome.ended_at.or(job.progress.finished_at)).flatten());
}

fn moment(out: &mut Out, at: Option<Timestamp>) {
    match at.and_then(|at| jiff::Timestamp::from_millisecond(at.calendar_ms()).ok()) {
        Some(at) => out.str(&at.to_string()),
        None => out.null(),
    }
}

fn text_or_null(out: &mut Out, text: Option<&str>) {
    match text {
        Some(text) => out.str(text),
        None => out.null(),
    }
}

/// Body of the request to a worker. `id` and `job_id` are equal: JQ's API names both.
pub fn worker_job(job: &Job) -> Bytes {
    let mut out = Out::new(Encoding::Msgpack, 128 + job.spec.payload.bytes.len());
    let id = job.id.to_string();
    out.begin_map();
    out.key("id");
    out.str(&id);
    out.key("job_id");
    out.str(&id);
    out.key("name");
    out.str(&job.spec.name);
    out.key("argument");
    out.content(&job.spec.payload);
    out.key("timeout");
    match job.spec.policy.lease.length_ms {
        Some(ms) => out.int(ms / 1_000),
        None => out.null(),
    }
    out.key("attempt");
    out.uint(job.progress.attempts.into());
    out.end_map();
    out.into_bytes().into()
}

/// Message of a worker that refused a job.
pub fn refusal(worker: &str, body: &[u8]) -> String {
    let said = [Encoding::Msgpack, Encoding::Json].into_iter().find_map(|encoding| {
        let value: Value = codec::read(encoding, body).ok()?;
        Some(value.get("message")?.as_str()?.chars().take(1_000).collect::<String>())
    });
    match said {
        Some(said) => format!("worker {worker} refused the job: {said}"),
        None => format!("worker {worker} refused the job (400)"),
    }
}

pub fn constraint(out: &mut Out, limit: &Limit, running: u64) {
    let mut value = Value::from(limit.clone());
    if let Some(fields) = value.as_object_mut() {
        fields.insert("running".into(), running.into());
    }
    out.value(&value);
}
