//! A job as a row of Bedrock's `jobs` table.
//!
//! Most columns follow from the engine's fields. A `nextRun` that is not a date, or is written in another
//! format than ours, is kept as an extra field of the job.
//!
//! Jobs of every dialect appear as rows; columns that another dialect does not have are empty.

use super::{json, params, times};
use crate::codec::{Encoding, Out};
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::{Format, Job, JobState, Payload, Queue, StateName, Timestamp};

/// `nextRun` as the client wrote it, valid while it still denotes the due time.
pub const NEXT_RUN: &str = "bedrock.nextRun";

/// Member of the data that counts the claims of a job with `retryAfter`.
pub const COUNT: &str = "retryAfterCount";
/// Member of the data with the original `nextRun` of a SCHEDULED job, for profiles in which a retry moves the
/// schedule.
pub const SLOT: &str = "originalNextRun";
/// Member of the data that marks a mocked job.
pub const MOCK: &str = "mockRequest";

/// Default priority of this dialect, which corresponds to 0 in the engine.
const PRIORITY_MIDDLE: i64 = 500;

/// Queue of new jobs. It is the default queue, so that jobs pushed by other dialects are visible here, and
/// the other way round.
pub const QUEUE: &str = "default";
/// Queue of mocked jobs. In a queue of their own, they are never scanned by workers that do not ask for them.
pub const MOCK_QUEUE: &str = "bedrock.mock";

/// Queue of all jobs that are not mocked.
pub fn queue() -> Queue {
    Queue::new(QUEUE).unwrap_or_default()
}

/// Converts to the engine's priority, where a smaller number runs first.
pub fn engine_priority(priority: i64) -> i32 {
    let priority = PRIORITY_MIDDLE.saturating_sub(priority);
    i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX })
}

pub fn bedrock_priority(priority: i32) -> i64 {
    PRIORITY_MIDDLE - i64::from(priority)
}

/// Replaces `data` for callers that may not see payloads.
pub const HIDDEN_DATA: &str = "{}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Queued,
    Running,
    /// Claimed with `retryAfter`. At `nextRun` the job becomes claimable again; until another worker claims
    /// it, its worker may still finish it.
    Runqueued,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

impl RowState {
    pub fn of(job: &Job) -> RowState {
        match job.state() {
            JobState::Ready { lapsed: Some(_), .. } if job.spec.policy.lease.accept_late => {
                RowState::Runqueued
            }
            JobState::Ready { .. } | JobState::Terminating { .. } => RowState::Queued,
            JobState::Running(lease) if lease.until.is_some() => RowState::Runqueued,
            JobState::Running(_) => RowState::Running,
            JobState::Waiting | JobState::Suspended { .. } => RowState::Paused,
            JobState::Completed { .. } => RowState::Finished,
            JobState::Failed { .. } => RowState::Failed,
            JobState::Cancelled { .. } | JobState::Terminated { .. } => RowState::Cancelled,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            RowState::Queued => "QUEUED",
            RowState::Running => "RUNNING",
            RowState::Runqueued => "RUNQUEUED",
            RowState::Paused => "PAUSED",
            RowState::Finished => "FINISHED",
            RowState::Failed => "FAILED",
            RowState::Cancelled => "CANCELLED",
        }
    }

    /// True for a claimed job that is not finished.
    pub fn is_out(self) -> bool {
        matches!(self, RowState::Running | RowState::Runqueued)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    pub created: String,
    pub job_id: u64,
    pub state: RowState,
    pub name: &'a str,
    pub next_run: Cow<'a, str>,
    /// `None`: never claimed.
    pub last_run: Option<String>,
    pub repeat: &'a str,
    /// JSON object.
    pub data: Cow<'a, str>,
    pub priority: i64,
    /// 0: no parent.
    pub parent_job_id: u64,
    pub retry_after: &'a str,
}

impl<'a> Row<'a> {
    pub fn of(job: &'a Job) -> Row<'a> {
        Row {
            created: times::seconds(job.spec.created_at),
            job_id: job.id.get(),
            state: RowState::of(job),
            name: &job.spec.name,
            next_run: next_run(job),
            last_run: job.progress.started_at.map(times::seconds),
            repeat: job.spec.policy.repeat.as_ref().map_or("", |repeat| repeat.text()),
            data: data(job, counted_hand_outs(job)),
            priority: bedrock_priority(job.spec.priority),
            parent_job_id: job.spec.family().map_or(0, |family| family.parent.get()),
            retry_after: retry_after(job),
        }
    }

    /// Row as it was before the current claim.
    pub fn before_run(job: &'a Job) -> Row<'a> {
        Row {
            state: RowState::Queued,
            next_run: due_text(job),
            last_run: job.progress.prior_start.map(times::seconds),
            data: data(job, counted_hand_outs(job).saturating_sub(1)),
            ..Row::of(job)
        }
    }
}

pub fn retry_after(job: &Job) -> &str {
    job.spec.policy.lease_span.as_ref().map_or("", |span| span.text())
}

/// True for a job that is claimed only by requests that ask for mocked jobs.
pub fn is_mocked(job: &Job) -> bool {
    job.spec.queue.as_str() == MOCK_QUEUE
}

/// Returns new data for a job, with the mock marker exactly if the job is mocked.
pub fn data_for<'d>(data: &'d str, job: &Job) -> Cow<'d, str> {
    match (is_mocked(job), data.contains(MOCK)) {
        (true, _) if says_mocked(data) => Cow::Borrowed(data),
        (true, _) => Cow::Owned(json::with(data, MOCK, "true")),
        (false, true) => Cow::Owned(json::without(data, MOCK)),
        (false, false) => Cow::Borrowed(data),
    }
}

/// True if the data carries the mock marker.
pub fn says_mocked(data: &str) -> bool {
    data.contains(MOCK) && matches!(json::get(&json::minified(data), MOCK), Some("true" | "1"))
}

fn next_run(job: &Job) -> Cow<'_, str> {
    match job.state() {
        // A parent whose children have ended keeps the `nextRun` it had while it waited: its `lastRun`.
        JobState::Ready { run_at, lapsed: None }
            if job.progress.started_at == Some(*run_at) && job.progress.finished_at.is_some() =>
        {
            Cow::Owned(times::seconds(*run_at))
        }
        JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => moment_text(job, *run_at),
        JobState::Running(lease) => match lease.until {
            Some(until) => Cow::Owned(times::shortest(until)),
            None => due_text(job),
        },
        // A parent that waits for its children shows its `lastRun`.
        JobState::Waiting if job.progress.started_at.is_some() => {
            Cow::Owned(job.progress.started_at.map_or_else(String::new, times::seconds))
        }
        JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => moment_text(job, job.progress.due_at),
    }
}

/// Due time of the current run.
fn due_text(job: &Job) -> Cow<'_, str> {
    let due_at = job.progress.due_at;
    // A parent that runs again after its children: its `nextRun` was its `lastRun`.
    if job.progress.prior_start == Some(due_at) {
        return Cow::Owned(times::seconds(due_at));
    }
    moment_text(job, due_at)
}

/// Text of a time, as the client wrote it or in our format. The default, the time of creation, has
/// milliseconds.
fn moment_text(job: &Job, at: Timestamp) -> Cow<'_, str> {
    if let Some(text) = job.spec.fact(NEXT_RUN)
        && times::moment_of(text) == at
    {
        return Cow::Borrowed(text);
    }
    let is_default = at == job.spec.created_at;
    Cow::Owned(if is_default { times::milliseconds(at) } else { times::shortest(at) })
}

/// Text of a client's `nextRun` to store with the job; `None`: the due time alone gives the same text.
pub fn next_run_fact(text: &str, at: Timestamp, now: Timestamp) -> Option<Arc<str>> {
    // Near the current time the due time may equal the time of creation, which is shown with milliseconds.
    const NEAR_MS: i64 = 60_000;
    let near = (at.as_millis() - now.as_millis()).abs() < NEAR_MS;
    (near || times::shortest(at) != text).then(|| text.into())
}

/// Claims since the job was last finished or retried; counted only for jobs with `retryAfter`.
pub fn counted_hand_outs(job: &Job) -> u32 {
    let counts = job.spec.policy.lease_span.is_some() && !is_manual(job);
    match job.state().name() {
        StateName::Completed | StateName::Waiting => 0,
        _ if counts => job.progress.attempts,
        _ => 0,
    }
}

/// Counter in the data, as the client wrote it. Claims are added to it.
fn written_count(data: &str) -> i64 {
    if !data.contains(COUNT) {
        return 0;
    }
    json::get(&json::minified(data), COUNT).map_or(0, |count| params::leading_number(&json::plain(count)))
}

/// True if a job with `retryAfter` had used up its claims before the current one.
pub fn has_used_up_claims(job: &Job, hand_outs_max: u32) -> bool {
    let before = i64::from(counted_hand_outs(job).saturating_sub(1));
    job.spec.policy.lease_span.is_some()
        && written_count(&payload_text(&job.spec.payload)).saturating_add(before) >= i64::from(hand_outs_max)
}

/// Returns the data with the count of all claims, decremented by one; `None`: the job has no such counter.
pub fn data_with_one_less(job: &Job) -> Option<String> {
    job.spec.policy.lease_span.as_ref()?;
    let data = data(job, counted_hand_outs(job));
    let count = if data.contains(COUNT) { written_count(&data) } else { 1 };
    json::is_object(&data).then(|| json::with(&data, COUNT, &(count - 1).to_string()))
}

/// True if the data carries the original `nextRun` of the current run.
pub fn stores_original_next_run(job: &Job) -> bool {
    let policy = &job.spec.policy;
    let is_scheduled = |text: &str| text.to_ascii_uppercase().contains("SCHEDULED");
    policy.retry_moves_slot
        && policy.lease_span.is_some()
        && policy.repeat.as_ref().is_some_and(|repeat| is_scheduled(repeat.text()))
        && !is_manual(job)
}

fn data(job: &Job, hand_outs: u32) -> Cow<'_, str> {
    let data = payload_text(&job.spec.payload);
    if hand_outs > 0 && json::is_object(&data) {
        let count = written_count(&data).saturating_add(hand_outs.into());
        return Cow::Owned(json::with(&data, COUNT, &count.to_string()));
    }
    data
}

/// True for jobs meant for people, which are claimed without bound.
fn is_manual(job: &Job) -> bool {
    job.spec.name.starts_with("manual")
}

/// Payload as JSON: byte for byte if it is JSON, `{}` if it is null.
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
