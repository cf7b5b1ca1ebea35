//! What a job leaves behind: the words of its runs, and what became of it.

use super::calls::{Answer, answer, body, find, param, params, reply_encoding};
use super::errors::ApiError;
use super::views;
use super::wire::{self, LogAsk};
use crate::codec::{self, Out};
use crate::route::Call;
use ::http::StatusCode;
use windlass_core::trail::{LOG_LINES_MAX, Log};
use windlass_core::{Body, Holder, Job, JobState, StateName, Timestamp};
use windlass_engine::{LogEntry, VerbError};

/// Lines of one call. More than are kept would be thrown away at once.
const LINES_MAX: usize = LOG_LINES_MAX;

pub async fn log(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    // First, so that whoever may not see the job learns nothing from what is said about the body.
    let asked = params(&call, &["tenant"])?;
    let (tenant, job) = find(&call, param(&asked, "tenant")).await?;
    drop(asked);
    let (encoding, body) = body(&mut call).await?;
    let ask: LogAsk<'_> = codec::read_map(encoding, &body)?;
    if ask.lines.len() > LINES_MAX {
        return Err(ApiError::bad_request(format!(
            "at most {LINES_MAX} lines in one call; send several calls"
        )));
    }
    if let Some(source) = &ask.source {
        super::commands::within("source", source, wire::LABEL_BYTES_MAX).map_err(ApiError::bad_request)?;
    }
    let entry = LogEntry {
        id: job.id,
        by: Some(Holder::Token(ask.token)),
        source: ask.source.as_deref().map(Into::into),
        lines: ask.lines.iter().map(|line| line.to_string()).collect(),
    };
    let mut answers = call.engine.log(&tenant, vec![entry]).await?;
    let extended = answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    let mut out = Out::new(reply, 64);
    views::extended(&mut out, job.id, &Ok(extended));
    Ok(answer(StatusCode::OK, out))
}

/// The log and the history of a job that is shown by itself. Words of workers are not for eyes that payloads are
/// hidden from.
pub(super) fn write(out: &mut Out, job: &Job, hidden: bool) {
    let body = job.body.as_deref();
    if let Some(log) = body.and_then(|body| body.log.as_deref()).filter(|_| !hidden) {
        write_log(out, log);
    }
    let mut history = history(job, body);
    history.sort_by_key(|happening| happening.at);
    out.key("history");
    out.begin_array();
    history.iter().for_each(|happening| happening.write(out, hidden));
    out.end_array();
}

fn write_log(out: &mut Out, log: &Log) {
    out.key("log");
    out.begin_map();
    out.key("lines");
    out.begin_array();
    for line in &log.lines {
        out.begin_map();
        out.key("at");
        out.int(line.at.calendar_ms());
        out.key("attempt");
        out.uint(line.attempt.into());
        out.opt_str("source", line.source.as_deref());
        out.key("text");
        out.str(&line.text);
        out.end_map();
    }
    out.end_array();
    out.key("dropped");
    out.uint(log.dropped);
    out.end_map();
}

struct Happening<'a> {
    at: Timestamp,
    what: &'a str,
    who: Option<&'a str>,
    attempt: Option<u32>,
    message: Option<&'a str>,
}

impl<'a> Happening<'a> {
    fn new(at: Timestamp, what: &'a str) -> Happening<'a> {
        Happening { at, what, who: None, attempt: None, message: None }
    }

    fn write(&self, out: &mut Out, hidden: bool) {
        out.begin_map();
        out.key("at");
        out.int(self.at.calendar_ms());
        out.key("what");
        out.str(self.what);
        out.opt_str("who", self.who);
        out.opt_int("attempt", self.attempt.map(i64::from));
        out.opt_str("message", self.message.filter(|_| !hidden));
        out.end_map();
    }
}

/// From what is kept anyway: its times, its failed attempts, and the marks others left.
fn history<'a>(job: &'a Job, body: Option<&'a Body>) -> Vec<Happening<'a>> {
    let mut history = vec![Happening::new(job.spec.created_at, "pushed")];
    let (errors, marks) = body.map_or((&[][..], &[][..]), |body| (&body.errors, &body.marks));
    for error in errors {
        let of_attempt = |at, what| Happening {
            who: error.worker.as_deref(),
            attempt: Some(error.attempt),
            ..Happening::new(at, what)
        };
        history.extend(error.started_at.map(|at| of_attempt(at, "claimed")));
        history.push(Happening { message: Some(&error.message), ..of_attempt(error.at, "attempt_failed") });
    }
    for mark in marks {
        history.push(Happening { who: Some(&mark.who), ..Happening::new(mark.at, mark.what.as_str()) });
    }
    let last_run = job.progress.started_at;
    if let Some(at) = last_run.filter(|at| !errors.iter().any(|error| error.started_at == Some(*at))) {
        let who = job.state().lease().and_then(|lease| lease.worker.as_deref());
        let who = who.or_else(|| body?.outcome.as_ref()?.worker.as_deref());
        let attempt = Some(job.progress.attempts).filter(|attempt| *attempt > 0);
        history.push(Happening { who, attempt, ..Happening::new(at, "claimed") });
    }
    history.extend(ending(job).map(|(at, state)| Happening::new(at, state.as_str())));
    history
}

fn ending(job: &Job) -> Option<(Timestamp, StateName)> {
    let at = match job.state() {
        JobState::Completed { at }
        | JobState::Failed { at }
        | JobState::Cancelled { at }
        | JobState::Terminated { at } => *at,
        JobState::Waiting | JobState::Suspended => job.progress.finished_at?,
        JobState::Ready { .. } | JobState::Running(_) | JobState::Terminating { .. } => return None,
    };
    Some((at, job.state().name()))
}
