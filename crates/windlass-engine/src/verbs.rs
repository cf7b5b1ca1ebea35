//! Parameters and results of the engine's calls.

mod actions;
mod audit;
pub(crate) mod blobs;
mod children;
pub(crate) mod claim;
mod deletion;
mod import;
mod push;
mod reads;
mod runs;
mod steps;

pub use steps::KeptBefore;

use crate::error::{EngineError, PushRefused};
use std::sync::Arc;
use windlass_core::event::Standing;
use windlass_core::limits::Limit;
use windlass_core::{
    Body, Event, Extras, Holder, Job, JobId, Name, NameMatch, Payload, Policy, Queue, StateWord, Tenant,
    Timestamp,
};

/// Size limits of calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// Claims that wait at once. Each costs a few hundred bytes and an open connection.
    pub waiters_max: usize,
    /// Connections of one port. The default quota of a tenant is four fifths of them.
    pub connections_max: usize,
    /// Bytes of one payload, result or error. Larger data belongs in a file or a blob that the payload refers
    /// to.
    pub payload_bytes_max: usize,
    /// Entries of one call. A batch is built in memory and committed at once.
    pub batch_max: usize,
    /// Bytes of one blob. Blobs are streamed; this bounds the disk space that one call can fill.
    pub blob_bytes_max: u64,
    /// Names of jobs, each in its queue, with metrics of their own; a collector stores some forty series of each.
    pub metric_names_max: usize,
    /// Entries of the audit log; 0 turns it off.
    pub audit_entries_max: u64,
    /// Age of its oldest entry.
    pub audit_keep_ms: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            waiters_max: 10_000,
            connections_max: 10_000,
            payload_bytes_max: 16 << 20,
            batch_max: 10_000,
            blob_bytes_max: 100 << 20,
            metric_names_max: 200,
            audit_entries_max: 10_000,
            audit_keep_ms: 90 * 86_400_000,
        }
    }
}

/// New job.
#[derive(Clone, Debug)]
pub struct Push {
    pub queue: Queue,
    pub name: Name,
    pub payload: Payload,
    pub priority: i32,
    pub run_at: RunAt,
    pub policy: Arc<Policy>,
    pub extras: Option<Box<Extras>>,
    pub body: Option<Arc<Body>>,
}

impl Push {
    pub(crate) fn first_run(&self, now: Timestamp) -> Timestamp {
        match (self.run_at, &self.policy.repeat) {
            (RunAt::FirstTurn, Some(repeat)) => repeat.first(now),
            (at, _) => at.from(now),
        }
    }
}

/// Job imported from another system. Its `run_at` and other times are those of that system.
#[derive(Clone, Debug)]
pub struct Import {
    pub push: Push,
    pub created_at: Timestamp,
    pub standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAt {
    Now,
    /// Date chosen by the client.
    At(Timestamp),
    /// Delay in milliseconds.
    After(i64),
    /// End of a delay that began earlier.
    Delayed(Timestamp),
    /// First time of the job's repeat rule; now if it has none.
    FirstTurn,
}

impl RunAt {
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            RunAt::Now | RunAt::FirstTurn => now,
            RunAt::At(at) | RunAt::Delayed(at) => at,
            RunAt::After(ms) => now.plus_ms(ms.max(0)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    New(JobId),
    /// This job already has the unique key or alias.
    Existing(JobId),
    Refused(PushRefused),
}

impl Pushed {
    pub fn id(self) -> Option<JobId> {
        match self {
            Pushed::New(id) | Pushed::Existing(id) => Some(id),
            Pushed::Refused(_) => None,
        }
    }
}

/// Request of a worker for jobs.
#[derive(Clone, Debug)]
pub struct Claim {
    pub tenant: Tenant,
    /// Empty: any queue of the tenant.
    pub queues: Vec<Queue>,
    pub names: NameMatch,
    /// Only jobs of exactly this priority.
    pub priority: Option<i32>,
    pub limit: usize,
    /// Longest wait for a job.
    pub wait_ms: u64,
    /// Overrides the lease length of each job's policy.
    pub lease_ms: Option<i64>,
    pub worker: Option<Arc<str>>,
}

/// Event for one job.
#[derive(Clone, Debug)]
pub struct JobEvent {
    pub id: JobId,
    pub event: Event,
}

/// Checks the size of the payload, result and error in an event.
pub(crate) fn check_sizes(event: &Event, max: usize) -> Result<(), EngineError> {
    match payload_of(event).map(|payload| payload.bytes.len()) {
        Some(bytes) if bytes > max => return Err(EngineError::TooLarge { bytes, max }),
        _ => {}
    }
    match report_bytes(event) {
        bytes if bytes > max => Err(EngineError::ReportTooLarge { bytes, max }),
        _ => Ok(()),
    }
}

pub(crate) fn payload_of(event: &Event) -> Option<&Payload> {
    match event {
        Event::Finish(finish) => finish.payload.as_ref(),
        Event::Fail(failure) => failure.payload.as_ref(),
        Event::Restart(restart) => restart.patch.payload.as_ref(),
        Event::Update(patch) => patch.payload.as_ref(),
        Event::Report { payload, .. } => payload.as_ref(),
        _ => None,
    }
}

/// Size of the result or the error of a run, whichever is larger.
pub(crate) fn report_bytes(event: &Event) -> usize {
    let outcome = match event {
        Event::Finish(finish) => &finish.outcome,
        Event::Fail(failure) => &failure.outcome,
        _ => return 0,
    };
    let both = [&outcome.result, &outcome.error];
    both.into_iter().flatten().map(|report| report.bytes.len()).max().unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// `None`: the job was deleted.
    pub state: Option<StateWord>,
    /// Time of the next run, if there is one.
    pub run_at: Option<Timestamp>,
}

/// Heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct Extend {
    pub id: JobId,
    pub by: Holder,
    pub lease_ms: Option<i64>,
}

/// Restart of a lease from now, also if it then ends earlier.
#[derive(Clone, Debug)]
pub struct Renew {
    pub id: JobId,
    pub by: Holder,
    /// `None`: the length of the job's policy.
    pub lease_ms: Option<i64>,
    /// New holder of the lease; `None`: unchanged.
    pub worker: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// `None`: the lease does not expire.
    pub until: Option<Timestamp>,
    /// True if the worker should stop; a finish still counts.
    pub cancel_asked: bool,
}

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: JobId,
    pub by: Holder,
    pub percent: Option<u8>,
    pub note: Option<String>,
    pub payload: Option<Payload>,
}

/// Log lines of a run.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub id: JobId,
    /// Holder of the run; `None`: the lines come from outside a run.
    pub by: Option<Holder>,
    /// Source of the lines, such as `stderr`.
    pub source: Option<Arc<str>>,
    pub lines: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Waited {
    /// Final version of the job, also if the keep policy deleted it at once.
    Settled(Arc<Job>),
    NotYet(Arc<Job>),
    /// There is no such job, or it was deleted during the wait.
    Unknown,
}

/// Limit and its current use.
#[derive(Clone, Debug)]
pub struct LimitView {
    pub limit: Limit,
    /// Running jobs under this limit.
    pub running: u64,
    /// Due jobs under this limit, whether or not they may start.
    pub waiting: u64,
    /// Due jobs that would start now without this limit.
    pub held: u64,
}

/// Limit that blocks a due job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// Id of the limit.
    pub limit: Box<str>,
    /// Time at which the rate allows a start; `None`: when another job under the limit ends.
    pub until: Option<Timestamp>,
}
