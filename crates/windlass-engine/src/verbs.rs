//! What can be asked of the engine, and what it answers.

mod actions;
pub(crate) mod blobs;
mod children;
pub(crate) mod claim;
mod import;
mod push;
mod reads;
mod runs;

use crate::error::{EngineError, PushRefused};
use std::sync::Arc;
use windlass_core::event::Standing;
use windlass_core::limits::Limit;
use windlass_core::{
    Body, Event, Extras, Holder, Job, JobId, Name, NameMatch, Payload, Policy, Queue, StateName, Tenant,
    Timestamp,
};

/// Bounds on what one caller may ask.
#[derive(Clone, Debug)]
pub struct Options {
    /// Claims that wait at once. Each is a few hundred bytes and a connection that its client keeps open.
    pub waiters_max: usize,
    /// Bytes of one payload, result or error. Larger things belong in a file or blob that it names.
    pub payload_bytes_max: usize,
    /// Entries of one call. A batch is built in memory and committed as one.
    pub batch_max: usize,
    /// Bytes of one blob. They pass through in pieces; what it bounds is the disk one call may fill.
    pub blob_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            waiters_max: 10_000,
            payload_bytes_max: 16 << 20,
            batch_max: 10_000,
            blob_bytes_max: 100 << 20,
        }
    }
}

/// A job to be made.
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

/// A job that was made elsewhere. Its `run_at` and the other times are those it has there.
#[derive(Clone, Debug)]
pub struct Import {
    pub push: Push,
    pub created_at: Timestamp,
    pub standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAt {
    Now,
    /// At a date that somebody named.
    At(Timestamp),
    /// So many milliseconds from now.
    After(i64),
    /// The end of a delay that began earlier.
    Delayed(Timestamp),
    /// When the job's repeat rule says; at once if it has none.
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
    /// Its unique key or alias was taken by this job.
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

/// A worker asks for jobs.
#[derive(Clone, Debug)]
pub struct Claim {
    pub tenant: Tenant,
    /// Empty: any queue of the tenant.
    pub queues: Vec<Queue>,
    pub names: NameMatch,
    /// Only jobs of exactly this priority.
    pub priority: Option<i32>,
    pub limit: usize,
    /// How long to wait when there is nothing.
    pub wait_ms: u64,
    /// Overrides the length in each job's policy.
    pub lease_ms: Option<i64>,
    pub worker: Option<Arc<str>>,
}

/// What is to happen to a job.
#[derive(Clone, Debug)]
pub struct JobEvent {
    pub id: JobId,
    pub event: Event,
}

/// Bytes are bounded wherever they come in: payloads, and what runs report.
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

/// The larger of what a run reports as data: its result, its error.
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
    /// `None`: the job is gone.
    pub state: Option<StateName>,
    /// When it runs again, if it does.
    pub run_at: Option<Timestamp>,
}

/// A sign of life.
#[derive(Clone, Copy, Debug)]
pub struct Extend {
    pub id: JobId,
    pub by: Holder,
    pub lease_ms: Option<i64>,
}

/// A lease that runs anew from now, also if that is shorter.
#[derive(Clone, Debug)]
pub struct Renew {
    pub id: JobId,
    pub by: Holder,
    /// `None`: as long as the job's policy says.
    pub lease_ms: Option<i64>,
    /// Whose it is from now on; `None`: as before.
    pub worker: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// `None`: the lease has no end.
    pub until: Option<Timestamp>,
    /// The worker should stop; a finish still counts.
    pub cancel_asked: bool,
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: JobId,
    pub by: Holder,
    pub percent: Option<u8>,
    pub note: Option<String>,
    pub payload: Option<Payload>,
}

/// Words of a run, line by line.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub id: JobId,
    /// Whose run it is; `None`: said of the job from outside its runs.
    pub by: Option<Holder>,
    /// Where the lines come from, such as `stderr`.
    pub source: Option<Arc<str>>,
    pub lines: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Waited {
    /// As it was when it settled, also when its keep policy drops it at once.
    Settled(Arc<Job>),
    NotYet(Arc<Job>),
    /// There is no such job, or it was deleted while we waited.
    Unknown,
}

/// A limit and how much of it is in use.
#[derive(Clone, Debug)]
pub struct LimitView {
    pub limit: Limit,
    /// Jobs that hold it now.
    pub running: u64,
    /// Jobs that are due and count against it, whether or not it lets them start.
    pub waiting: u64,
    /// How many of these it holds back: they would start now if it were not for this limit.
    pub held: u64,
}

/// What keeps a job that is due from being handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The id of the limit.
    pub limit: Box<str>,
    /// When it opens by itself; `None`: when another job under it ends.
    pub until: Option<Timestamp>,
}
