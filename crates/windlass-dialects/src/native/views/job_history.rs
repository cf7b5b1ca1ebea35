//! Log lines of a job's runs, and the events in its life.

use crate::native::wire::Time;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::history::Log;
use windlass_core::{Job, JobState, StateName, Timestamp};

/// Last log lines of its runs; only in the response for a single job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Log")]
pub(super) struct LogView<'a> {
    /// Lines, oldest first.
    lines: Vec<LogLine<'a>>,
    /// Number of older lines that were dropped.
    dropped: u64,
}

/// Log line.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct LogLine<'a> {
    /// Time of receipt.
    at: Time,
    /// Number of the attempt.
    attempt: u32,
    /// Source, such as stderr.
    source: Option<&'a str>,
    /// Text of the line.
    text: &'a str,
}

impl<'a> LogView<'a> {
    pub(super) fn new(log: &'a Log) -> LogView<'a> {
        let lines = log.lines.iter().map(|line| LogLine {
            at: line.at.into(),
            attempt: line.attempt,
            source: line.source.as_deref(),
            text: &line.text,
        });
        LogView { lines: lines.collect(), dropped: log.dropped }
    }
}

/// Event in the life of a job.
#[derive(Serialize, JsonSchema)]
pub(super) struct HistoryEntry<'a> {
    /// Time of the event.
    at: Time,
    /// Kind: pushed, claimed, attempt_failed, a state it ended in, or an action of a user.
    what: &'a str,
    /// Worker or user.
    who: Option<&'a str>,
    /// Number of the attempt.
    attempt: Option<u32>,
    /// Error message.
    message: Option<&'a str>,
}

impl<'a> HistoryEntry<'a> {
    fn new(at: Timestamp, what: &'a str) -> HistoryEntry<'a> {
        HistoryEntry { at: at.into(), what, who: None, attempt: None, message: None }
    }
}

/// Reconstructs the history from stored data: times, failed attempts, and recorded actions of users. Messages
/// of workers are omitted where payloads are hidden.
pub(super) fn history(job: &Job, hidden: bool) -> Vec<HistoryEntry<'_>> {
    let body = job.body.as_deref();
    let mut history = vec![HistoryEntry::new(job.spec.created_at, "pushed")];
    let (errors, marks) = body.map_or((&[][..], &[][..]), |body| (&body.errors, &body.marks));
    for error in errors {
        let of_attempt = |at, what| HistoryEntry {
            who: error.worker.as_deref(),
            attempt: Some(error.attempt),
            ..HistoryEntry::new(at, what)
        };
        history.extend(error.started_at.map(|at| of_attempt(at, "claimed")));
        let message = Some(error.message.as_str()).filter(|_| !hidden);
        history.push(HistoryEntry { message, ..of_attempt(error.at, "attempt_failed") });
    }
    for mark in marks {
        history.push(HistoryEntry { who: Some(&mark.who), ..HistoryEntry::new(mark.at, mark.what.as_str()) });
    }
    let last_run = job.progress.started_at;
    if let Some(at) = last_run.filter(|at| !errors.iter().any(|error| error.started_at == Some(*at))) {
        let who = job.state().lease().and_then(|lease| lease.worker.as_deref());
        let who = who.or_else(|| body?.outcome.as_ref()?.worker.as_deref());
        let attempt = Some(job.progress.attempts).filter(|attempt| *attempt > 0);
        history.push(HistoryEntry { who, attempt, ..HistoryEntry::new(at, "claimed") });
    }
    history.extend(ending(job).map(|(at, state)| HistoryEntry::new(at, state.as_str())));
    history.sort_by_key(|happening| happening.at);
    history
}

fn ending(job: &Job) -> Option<(Timestamp, StateName)> {
    let at = match job.state() {
        JobState::Completed { at }
        | JobState::Failed { at }
        | JobState::Cancelled { at }
        | JobState::Terminated { at } => *at,
        JobState::Waiting | JobState::Suspended { .. } => job.progress.finished_at?,
        JobState::Ready { .. } | JobState::Running(_) | JobState::Terminating { .. } => return None,
    };
    Some((at, job.state().name()))
}
