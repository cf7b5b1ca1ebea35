//! Requests as engine commands: policy, job of a journal line, end of a run, job in a response.

use super::Settings;
use super::times;
use super::wire::{self, BadLine, LineKind};
use crate::ingest::Reader;
use crate::runners::{Report, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use windlass_core::event::RetryWish;
use windlass_core::history::LOG_LINES_MAX;
use windlass_core::job::{Format, Keep, KeepFor};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::retry::{Backoff, RetryPolicy, TIMED_OUT};
use windlass_core::state::JobState;
use windlass_core::{
    Event, Extras, Holder, Job, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant, Timestamp,
};
use windlass_engine::journal::{Line, ids};
use windlass_engine::{Claim, Push, RunAt};

/// Queue of all clients' jobs.
pub const QUEUE: &str = "miniq";
const ORIGIN: &str = "miniq";
/// Lock of an archived job.
const DONE: &str = "__done";
/// Largest result shown with the job; larger ones have a path of their own.
const RESULT_SHOWN_BYTES_MAX: usize = 64 << 10;

#[expect(clippy::expect_used, reason = "a constant that is a queue")]
pub fn queue() -> Queue {
    Queue::new(QUEUE).expect("a queue")
}

/// At-least-once execution with fixed backoff until `give_up_after_ms`, then archived.
pub fn policy(settings: &Settings) -> Policy {
    let kept = KeepFor::Ms(settings.archive_keep_ms);
    Policy {
        lease: LeasePolicy {
            length_ms: Some(settings.lock_ms),
            on_lapse: OnLapse::RunAgain,
            lapse_attempts: 0,
            accept_late: false,
        },
        retry: RetryPolicy {
            max_attempts: None,
            backoff: Backoff::Fixed { delay_ms: settings.retry_delay_ms },
            give_up_after_ms: Some(settings.give_up_after_ms),
        },
        keep: Keep { completed: kept, failed: kept, cancelled: kept },
        ..Policy::default()
    }
}

/// Parses the journal lines of clients' jobs.
pub struct Lines {
    pub policy: Arc<Policy>,
}

impl Reader for Lines {
    fn read(&self, line: &Line) -> Option<Result<(Tenant, Push), String>> {
        // Lines of other kinds have no client, and so no dash.
        line.kind.contains('-').then(|| self.push(line).map_err(|error| error.to_string()))
    }
}

impl Lines {
    fn push(&self, line: &Line) -> Result<(Tenant, Push), BadLine> {
        let kind = LineKind::parse(&line.kind)?;
        let bytes: Arc<[u8]> = if kind.is_base64 {
            wire::unjournaled(&line.payload)?.into()
        } else {
            line.payload.as_ref().into()
        };
        let format = if std::str::from_utf8(&bytes).is_ok() { Format::Text } else { Format::Binary };
        // The id contains the time of the add; a line written by hand counts from now.
        let added = ids::made_at_ms(&line.id).map(Timestamp::from_millis);
        let extras =
            Extras { origin: Some(ORIGIN.into()), alias: Some(line.id.as_str().into()), ..Extras::default() };
        let push = Push {
            queue: queue(),
            name: kind.jobtype,
            payload: Payload::new(format, bytes),
            priority: 0,
            run_at: kind.run_at.or(added).map_or(RunAt::Now, RunAt::At),
            policy: Arc::clone(&self.policy),
            extras: Some(Box::new(extras)),
            body: None,
        };
        Ok((kind.client, push))
    }
}

pub fn claim(client: &Tenant, jobtype: &Name, limit: usize, sysid: &Arc<str>, lock_ms: i64) -> Claim {
    Claim {
        tenant: client.clone(),
        queues: vec![queue()],
        names: NameMatch::Exact(jobtype.as_str().into()),
        priority: None,
        limit,
        wait_ms: 0,
        lease_ms: Some(lock_ms),
        worker: Some(Arc::clone(sysid)),
    }
}

/// Event for the end of a run.
pub fn end(report: &Report, by: Holder) -> Event {
    let status = report.status();
    let word = report.code.as_str();
    let is_plain = word.is_empty() || ["OK", "RETRY", "FAILED", "ERROR"].contains(&word);
    let outcome = Outcome {
        result: (!report.result.is_empty()).then(|| result(&report.result)),
        message: report.message.clone(),
        code: Some(if is_plain { status.as_str().to_owned() } else { word.to_owned() }),
        exit_code: Some(i32::from(report.exitcode)),
        ..Outcome::default()
    };
    match status {
        Status::Ok => Event::finish(by, outcome),
        Status::Failed => Event::fail(by, outcome, RetryWish::Never),
        Status::Retry | Status::Error => Event::fail(by, outcome, RetryWish::Policy),
    }
}

fn result(bytes: &[u8]) -> Payload {
    let format = if std::str::from_utf8(bytes).is_ok() { Format::Text } else { Format::Binary };
    Payload::new(format, bytes)
}

/// Id shown to clients: the job's alias, or its number if another dialect created it.
pub fn job_id(job: &Job) -> String {
    job.spec.alias().map_or_else(|| job.id.to_string(), str::to_owned)
}

/// Date and lock, which together show the state.
pub fn date_and_lock(job: &Job) -> (String, &str) {
    match job.state() {
        JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => (times::iso(*run_at), ""),
        JobState::Running(lease) => {
            let lock = lease.worker.as_deref().unwrap_or("?");
            (times::iso(lease.until.unwrap_or(lease.granted_at)), lock)
        }
        JobState::Completed { at }
        | JobState::Failed { at }
        | JobState::Cancelled { at }
        | JobState::Terminated { at } => (times::archived(*at), DONE),
        JobState::Waiting | JobState::Suspended { .. } => (times::iso(job.progress.due_at), ""),
    }
}

/// Status, code and exit code of the last run. A job that ran out of time shows `timeout`.
pub fn last_status(job: &Job) -> Option<(&'static str, String, Option<i32>)> {
    let outcome = job.body.as_ref().and_then(|body| body.outcome.as_ref());
    let exitcode = outcome.and_then(|outcome| outcome.exit_code);
    let code = outcome.and_then(|outcome| outcome.code.clone());
    let status = exitcode.map_or(Status::Error, Status::of);
    Some(match job.state() {
        JobState::Cancelled { .. } => ("failed", "cancelled".to_owned(), exitcode),
        JobState::Failed { .. } if !status.is_final() => {
            ("failed", TIMED_OUT.to_owned(), exitcode.or(Some(500)))
        }
        JobState::Completed { .. } => ("ok", code.unwrap_or_else(|| "ok".to_owned()), exitcode.or(Some(200))),
        _ => (status.as_str(), code?, exitcode),
    })
}

/// Job as a row. `hides`: the caller may not see payloads.
pub fn job_row(job: &Job, hides: bool) -> Map<String, Value> {
    let (dt, lock) = date_and_lock(job);
    let mut row = Map::new();
    row.insert("id".to_owned(), job_id(job).into());
    row.insert("type".to_owned(), wire::full_type(&job.spec.tenant, &job.spec.name).into());
    row.insert("dt".to_owned(), dt.into());
    row.insert("lock".to_owned(), lock.into());
    row.insert("attempts".to_owned(), job.progress.attempts.into());
    row.insert("added".to_owned(), times::iso(job.spec.created_at).into());
    if !hides {
        insert_bytes(&mut row, "data", &job.spec.payload.bytes);
    }
    if let Some((status, code, exitcode)) = last_status(job) {
        row.insert("status".to_owned(), status.into());
        row.insert("code".to_owned(), code.into());
        row.insert("exitcode".to_owned(), json!(exitcode));
    }
    let Some(outcome) = job.body.as_ref().and_then(|body| body.outcome.as_ref()) else { return row };
    row.insert(
        "resultBytes".to_owned(),
        outcome.result.as_ref().map_or(0, |result| result.bytes.len()).into(),
    );
    if !hides {
        let small = outcome.result.as_ref().filter(|result| result.bytes.len() <= RESULT_SHOWN_BYTES_MAX);
        if let Some(result) = small {
            insert_bytes(&mut row, "result", &result.bytes);
        }
        if let Some(log) = last_log(job) {
            row.insert("log".to_owned(), log.into());
        }
        if let Some(message) = &outcome.message {
            row.insert("message".to_owned(), message.as_str().into());
        }
    }
    row
}

/// Log of the last run.
fn last_log(job: &Job) -> Option<String> {
    let lines = &job.body.as_ref()?.log.as_ref()?.lines;
    let last = lines.back()?.attempt;
    let of_last = lines.iter().filter(|line| line.attempt == last).map(|line| line.text.as_str());
    Some(of_last.collect::<Vec<_>>().join("\n"))
}

/// Last lines of a run's log; the store keeps no more than these.
pub fn log_lines(log: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
    lines[skipped..].iter().map(|line| (*line).to_owned()).collect()
}

fn insert_bytes(row: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => row.insert(key.to_owned(), text.into()),
        Err(_) => row.insert(format!("{key}Base64"), STANDARD.encode(bytes).into()),
    };
}
