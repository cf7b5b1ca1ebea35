//! Handlers: code that the server runs for one kind of jobs. The text of a handler, the batches in which its jobs are run,
//! and the end of each job. Dialects make batches, runners run them.

use crate::trace::TraceContext;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;

/// A handler as it is set, kept and shown. Keys that are not here are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandlerText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eid: Option<String>,
    pub lang: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_each: Option<String>,
    pub body: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_each: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

impl HandlerText {
    /// The type of the job that follows when one of this type has ended well.
    pub fn next(&self) -> Option<&str> {
        self.options.as_ref()?.get("next")?.as_str()
    }
}

/// Jobs of one client and one job type, for one handler: `H` is its text where it is kept, and its validated form where it
/// is run.
#[derive(Clone, Debug)]
pub struct Batch<H = HandlerText> {
    pub client: String,
    pub jobtype: String,
    /// Version of the handler; changes with its code.
    pub version: String,
    pub handler: Arc<H>,
    pub jobs: Vec<BatchJob>,
}

impl<H> Batch<H> {
    /// Same batch with another form of the handler.
    pub fn with_handler<T>(self, handler: Arc<T>) -> Batch<T> {
        let Batch { client, jobtype, version, jobs, .. } = self;
        Batch { client, jobtype, version, handler, jobs }
    }
}

#[derive(Clone, Debug)]
pub struct BatchJob {
    pub id: String,
    pub attempt: u32,
    /// Payload without the terminating newline.
    pub payload: Bytes,
    /// Context of its run, for a program that is called.
    pub trace: Option<TraceContext>,
}

/// End of the next job of a batch with its index; `None` after the last.
pub type NextEnd<'a> = Pin<Box<dyn Future<Output = Option<(usize, Ended)>> + Send + 'a>>;

/// Handle of a running batch. Dropping it stops the batch.
pub trait Run: Send {
    /// Next job that has ended, by its index in the batch; `None` after the last. Every job is reported once. Cancel-safe.
    fn next(&mut self) -> NextEnd<'_>;

    /// Stops a job, which is reported as [`Ended::Unrun`]: at once if it runs, before its start if not. A job
    /// that has ended keeps its report, and a batch that runs as a whole is not interrupted.
    fn stop(&self, index: usize);

    /// Starts no further job after the first, because other batches wait for the slot: the rest are reported as
    /// [`Ended::Unrun`]. A running job completes, and so does a batch that runs as a whole.
    fn cut(&self);
}

/// End of one job of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The job ran, or its handler cannot run; the status of the report decides what follows.
    Done(Report),
    /// The job did not complete, without fault of its own: it was stopped, or the server is shutting down.
    Unrun(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// 100 to 599.
    pub exitcode: u16,
    /// [`Status::code`] of the exit code, or a more specific word like `ECONNREFUSED`.
    pub code: String,
    /// Message for people, in one line, if any.
    pub message: Option<String>,
    /// Return value of the handler.
    pub result: Bytes,
    /// Other output, limited in size.
    pub log: Bytes,
    pub new_jobs: Vec<PrintedJob>,
    /// Time spent in the handler.
    pub run_ms: u64,
}

impl Report {
    pub fn status(&self) -> Status {
        Status::of(self.exitcode)
    }
}

/// Job pushed by an output line `J: type|payload`. It belongs to the same client, as the line cannot name
/// another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedJob {
    /// Job type as printed.
    pub jobtype: String,
    pub payload: Bytes,
}

/// Meaning of the first digit of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 1xx and 3xx: retry without an error.
    Retry,
    /// 2xx
    Ok,
    /// 4xx: permanent failure, no retry.
    Failed,
    /// 5xx and all others: retry after an error.
    Error,
}

impl Status {
    pub fn of(exitcode: impl Into<i32>) -> Status {
        match exitcode.into() {
            100..=199 | 300..=399 => Status::Retry,
            200..=299 => Status::Ok,
            400..=499 => Status::Failed,
            _ => Status::Error,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Retry => "retry",
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::Error => "error",
        }
    }

    /// Code of a report that has no more specific one.
    pub fn code(self) -> &'static str {
        match self {
            Status::Retry => "RETRY",
            Status::Ok => "OK",
            Status::Failed => "FAILED",
            Status::Error => "ERROR",
        }
    }

    /// True if the job is not run again.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Ok | Status::Failed)
    }
}

/// Name of a resource for which batches compete: those of one resource can have each other's slots.
pub type Resource = &'static str;

/// Reason why a batch cannot start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The client, the job type or the URL has reached its own limit.
    OwnShare,
    /// Other clients use all of the resource.
    Full(Resource),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digit_decides() {
        let check = |exitcode: i32, status| assert_eq!(Status::of(exitcode), status, "{exitcode}");
        check(100, Status::Retry);
        check(200, Status::Ok);
        check(302, Status::Retry);
        check(404, Status::Failed);
        check(503, Status::Error);
        check(7, Status::Error);
        check(-1, Status::Error);
        check(999, Status::Error);
    }
}
