//! What runs handlers, as dialects see it. The server is given something that does; the dialects do not know how.

use crate::dialect::Soon;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handler::HandlerText;

/// Runs handlers in contexts that it keeps.
pub trait Runners: Send + Sync {
    /// `Err`: in words for the handler's author, why it cannot be run here at present.
    fn check(&self, handler: &HandlerText) -> Result<(), String>;
    /// Of what a batch of this handler needs a place.
    fn resource(&self, handler: &HandlerText) -> Resource;
    /// A place where a batch begins at once.
    fn book(&self, client: &str, jobtype: &str, handler: &HandlerText) -> Result<Box<dyn Booking>, NoRoom>;
    /// Ready when room may have appeared since the future was made; bookings that were only given up need not count.
    fn room(&self) -> Soon<'static, ()>;
    /// Client and type of what has an idle context that is warm.
    fn warm(&self) -> Vec<(String, String)>;
    /// What runs may end within `grace`; then it ends unrun.
    fn stop(&self, grace: Duration) -> Soon<'_, ()>;
}

/// What batches compete for, by its name: those of one resource can have each other's places.
pub type Resource = &'static str;

/// Why there is no place for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Its client, type or URL has all it may have at once.
    OwnShare,
    /// All places are taken.
    Full(Resource),
}

/// A place for one batch. Dropped, it is free again.
pub trait Booking: Send {
    /// How many jobs to put into the batch: those that are begun without waiting for each other's connections.
    fn jobs_max(&self) -> usize;
    /// The batch is of the client and type, and has the handler, that the place was booked for.
    fn start(self: Box<Self>, batch: Batch) -> Box<dyn Run>;
}

/// Jobs of one client and one type, for one context.
#[derive(Clone, Debug)]
pub struct Batch {
    pub client: String,
    pub jobtype: String,
    /// Another one than before when the handler has changed.
    pub version: String,
    pub handler: Arc<HandlerText>,
    pub jobs: Vec<BatchJob>,
}

#[derive(Clone, Debug)]
pub struct BatchJob {
    pub id: String,
    pub attempt: u32,
    /// Without the newline that the handler gets it with.
    pub payload: Bytes,
}

/// A batch under way. Dropping it ends what it runs.
pub trait Run: Send {
    /// Each job once, as it ends, by its place in the batch; `None` after the last. May be dropped and asked again.
    fn next(&mut self) -> Soon<'_, Option<(usize, Ended)>>;
    /// The job is nobody's any more: it ends unrun.
    fn stop(&self, place: usize);
    /// Others wait for its place: jobs that have not begun end unrun. One is run in any case.
    fn cut(&self);
}

#[derive(Clone, Debug)]
pub enum Ended {
    Done(Report),
    /// It was not run to its end, for reasons that are not its own.
    Unrun(String),
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    /// 100 to 599.
    pub exitcode: u16,
    /// `OK`, `RETRY`, `FAILED`, `ERROR`, or something closer like `ECONNREFUSED`.
    pub code: String,
    pub message: Option<String>,
    pub result: Bytes,
    pub log: Bytes,
    /// Types and payloads of jobs that it asked for.
    pub new_jobs: Vec<(String, Bytes)>,
    pub run_ms: u64,
}

/// What an exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Retry,
    Ok,
    Failed,
    Error,
}

impl Status {
    pub fn of(exitcode: i32) -> Status {
        match exitcode {
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

    /// Whether the job is at its end.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Ok | Status::Failed)
    }
}
