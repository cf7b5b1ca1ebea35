//! A job as a row of Bedrock's `jobs` table.
//!
//! Most columns are what the engine knows anyway, said in Bedrock's words. A text that means more here than below is
//! kept as a fact: a `nextRun` that is no date, or one that was written in another way than we would.
//!
//! Jobs of every dialect show as rows: one that other clients made has the columns it can have.

use super::{json, times};
use crate::codec::{Encoding, Out};
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::{Format, Job, JobState, Payload, StateName, Timestamp};

/// The `nextRun` as it was written, as long as it is still about the same moment.
pub const NEXT_RUN: &str = "bedrock.nextRun";

/// The priority that a job has if nobody says otherwise: 500 here, 0 below.
const PRIORITY_MIDDLE: i64 = 500;

/// Where new jobs go. The default queue, so that a job pushed by any client and one made here are one and the same.
pub const QUEUE: &str = "default";
/// Where jobs of `mockRequest` wait, so that a worker that does not ask for them never passes over them.
pub const MOCK_QUEUE: &str = "bedrock.mock";

/// Larger runs first here, smaller below.
pub fn priority_below(priority: i64) -> i32 {
    let priority = PRIORITY_MIDDLE.saturating_sub(priority);
    i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX })
}

pub fn priority_here(priority: i32) -> i64 {
    PRIORITY_MIDDLE - i64::from(priority)
}

/// In place of `data` for callers who may not see payloads.
pub const HIDDEN_DATA: &str = "{}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Queued,
    Running,
    /// Running, and run again at `nextRun` if it is not finished by then; or its time has come, and whoever is given it
    /// next has it, but until then its worker may still finish it.
    Runqueued,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

impl State {
    pub fn of(job: &Job) -> State {
        match job.state() {
            JobState::Ready { lapsed: Some(_), .. } if job.spec.policy.lease.accept_late => State::Runqueued,
            JobState::Ready { .. } | JobState::Terminating { .. } => State::Queued,
            JobState::Running(lease) if lease.until.is_some() => State::Runqueued,
            JobState::Running(_) => State::Running,
            JobState::Waiting | JobState::Suspended => State::Paused,
            JobState::Completed { .. } => State::Finished,
            JobState::Failed { .. } => State::Failed,
            JobState::Cancelled { .. } | JobState::Terminated { .. } => State::Cancelled,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "QUEUED",
            State::Running => "RUNNING",
            State::Runqueued => "RUNQUEUED",
            State::Paused => "PAUSED",
            State::Finished => "FINISHED",
            State::Failed => "FAILED",
            State::Cancelled => "CANCELLED",
        }
    }

    /// Handed out and not reported on.
    pub fn is_out(self) -> bool {
        matches!(self, State::Running | State::Runqueued)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub created: String,
    pub job_id: u64,
    pub state: State,
    pub name: &'a str,
    pub next_run: Cow<'a, str>,
    /// `None`: never handed out.
    pub last_run: Option<String>,
    pub repeat: &'a str,
    /// JSON.
    pub data: Cow<'a, str>,
    pub priority: i64,
    /// 0: it has none.
    pub parent_job_id: u64,
    pub retry_after: &'a str,
}

impl<'a> Row<'a> {
    pub fn of(job: &'a Job) -> Row<'a> {
        Row {
            created: times::seconds(job.spec.created_at),
            job_id: job.id.get(),
            state: State::of(job),
            name: &job.spec.name,
            next_run: next_run(job),
            last_run: job.progress.started_at.map(times::seconds),
            repeat: job.spec.policy.repeat.as_ref().map_or("", |repeat| repeat.text()),
            data: data(job, counted_hand_outs(job)),
            priority: priority_here(job.spec.priority),
            parent_job_id: job.spec.family().map_or(0, |family| family.parent.get()),
            retry_after: retry_after(job),
        }
    }

    /// As it was before it was handed out just now.
    pub fn before_run(job: &'a Job) -> Row<'a> {
        Row {
            state: State::Queued,
            next_run: moment_text(job, job.progress.due_at),
            last_run: job.progress.prior_start.map(times::seconds),
            data: data(job, counted_hand_outs(job).saturating_sub(1)),
            ..Row::of(job)
        }
    }
}

pub fn retry_after(job: &Job) -> &str {
    job.spec.policy.lease_span.as_ref().map_or("", |span| span.text())
}

/// Jobs for `mockRequest` are only seen by those who ask for them.
pub fn is_mocked(job: &Job) -> bool {
    job.spec.queue.as_str() == MOCK_QUEUE
}

fn next_run(job: &Job) -> Cow<'_, str> {
    match job.state() {
        JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => moment_text(job, *run_at),
        JobState::Running(lease) => match lease.until {
            Some(until) => Cow::Owned(times::shortest(until)),
            None => moment_text(job, job.progress.due_at),
        },
        // A parent that waits for its children shows when it last ran.
        JobState::Waiting if job.progress.started_at.is_some() => {
            Cow::Owned(job.progress.started_at.map_or_else(String::new, times::seconds))
        }
        JobState::Waiting
        | JobState::Suspended
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => moment_text(job, job.progress.due_at),
    }
}

/// As somebody wrote it, or in our way. A job that nobody gave a time has that of its making, with milliseconds.
fn moment_text(job: &Job, at: Timestamp) -> Cow<'_, str> {
    if let Some(text) = job.spec.fact(NEXT_RUN)
        && times::moment_of(text) == at
    {
        return Cow::Borrowed(text);
    }
    let is_default = at == job.spec.created_at;
    Cow::Owned(if is_default { times::milliseconds(at) } else { times::shortest(at) })
}

/// What to remember of a `nextRun` that someone wrote; `None`: the moment says it all.
pub fn next_run_fact(text: &str, at: Timestamp, now: Timestamp) -> Option<Arc<str>> {
    // Around now we could not tell it from the time of making, which is shown with milliseconds.
    const NEAR_MS: i64 = 60_000;
    let near = (at.as_millis() - now.as_millis()).abs() < NEAR_MS;
    (near || times::shortest(at) != text).then(|| text.into())
}

/// Hand-outs since the job was last finished or retried; they count for jobs with `retryAfter` only.
pub fn counted_hand_outs(job: &Job) -> u32 {
    let counts = job.spec.policy.lease_span.is_some() && !job.spec.name.starts_with("manual");
    match job.state().name() {
        StateName::Completed | StateName::Waiting => 0,
        _ if counts => job.progress.attempts,
        _ => 0,
    }
}

fn data(job: &Job, hand_outs: u32) -> Cow<'_, str> {
    let data = payload_text(&job.spec.payload);
    if hand_outs > 0 && json::is_object(&data) {
        return Cow::Owned(json::with(&data, "retryAfterCount", &hand_outs.to_string()));
    }
    data
}

/// The payload as JSON: byte for byte where it is, and `{}` where there is none.
pub fn payload_text(payload: &Payload) -> Cow<'_, str> {
    match payload.format {
        Format::Json if &*payload.bytes == b"null" => Cow::Borrowed("{}"),
        Format::Json => String::from_utf8_lossy(&payload.bytes),
        Format::Msgpack | Format::Text | Format::Binary => {
            let mut out = Out::new(Encoding::Json, payload.bytes.len() + 64);
            out.begin_map();
            out.payload("payload", payload);
            out.end_map();
            Cow::Owned(String::from_utf8_lossy(&out.into_bytes()).into_owned())
        }
    }
}

#[cfg(test)]
mod tests;
