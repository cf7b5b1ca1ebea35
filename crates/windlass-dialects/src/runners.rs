//! Traits of the runners of handlers. The binary provides the implementation.

use crate::dialect::Soon;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handler::HandlerText;

/// Runs handlers in warm contexts.
pub trait Runners: Send + Sync {
    /// `Err`: reason why the handler cannot run here at present, for its author.
    fn check(&self, handler: &HandlerText) -> Result<(), String>;
    /// Resource whose slots a batch of this handler needs.
    fn resource(&self, handler: &HandlerText) -> Resource;
    /// Books a slot in which a batch can start at once.
    fn book(&self, client: &str, jobtype: &str, handler: &HandlerText) -> Result<Box<dyn Booking>, NoRoom>;
    /// Resolves when a slot may have become free since the future was created. Dropped bookings need not
    /// count.
    fn room(&self) -> Soon<'static, ()>;
    /// Client and type of every idle warm context.
    fn warm(&self) -> Vec<(String, String)>;
    /// Isolation of handlers on this machine, in one line for operators.
    fn isolation(&self) -> String {
        String::new()
    }
    /// Runs may end within `grace`; then they end unrun.
    fn stop(&self, grace: Duration) -> Soon<'_, ()>;
}

/// Name of a resource. Batches of one resource compete for the same slots.
pub type Resource = &'static str;

/// Reason why there is no slot for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The client, type or URL has reached its own limit.
    OwnShare,
    /// All slots are in use.
    Full(Resource),
}

/// Slot for one batch. Free again when dropped.
pub trait Booking: Send {
    /// Batch size: jobs that can start without waiting for each other's connections.
    fn jobs_max(&self) -> usize;
    /// Starts a batch of the client, type and handler that the slot was booked for.
    fn start(self: Box<Self>, batch: Batch) -> Box<dyn Run>;
}

/// Jobs of one client and one type, for one context.
#[derive(Clone, Debug)]
pub struct Batch {
    pub client: String,
    pub jobtype: String,
    /// Changes with the handler.
    pub version: String,
    pub handler: Arc<HandlerText>,
    pub jobs: Vec<BatchJob>,
}

#[derive(Clone, Debug)]
pub struct BatchJob {
    pub id: String,
    pub attempt: u32,
    /// Without the newline that the handler gets.
    pub payload: Bytes,
}

/// Running batch. Dropping it ends its processes.
pub trait Run: Send {
    /// Each job once, when it ends, by its index in the batch; `None` after the last. Cancel-safe.
    fn next(&mut self) -> Soon<'_, Option<(usize, Ended)>>;
    /// The lease of the job is lost: it ends unrun.
    fn stop(&self, place: usize);
    /// Other clients wait for the slot: jobs that have not started end unrun. At least one job is run.
    fn cut(&self);
}

#[derive(Clone, Debug)]
pub enum Ended {
    Done(Report),
    /// Not run to its end, for reasons outside the job.
    Unrun(String),
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    /// 100 to 599.
    pub exitcode: u16,
    /// `OK`, `RETRY`, `FAILED`, `ERROR`, or a more specific code like `ECONNREFUSED`.
    pub code: String,
    pub message: Option<String>,
    pub result: Bytes,
    pub log: Bytes,
    /// Types and payloads of the jobs it requested.
    pub new_jobs: Vec<(String, Bytes)>,
    pub run_ms: u64,
}

/// Meaning of an exit code.
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

    /// True if the job has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Ok | Status::Failed)
    }
}
