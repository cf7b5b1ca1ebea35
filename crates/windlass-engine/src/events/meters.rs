//! Metrics of the engine, exported by `/metrics` and `/api/v1/stats`.

use super::job_meters::JobMeters;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::turn::TurnOutcome;
use windlass_core::{Queue, Tenant};
use windlass_store::StoreError;
use windlass_store::meters::Histogram;

/// Counter that never decreases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Most queues with counters of their own; further queues are not counted.
const QUEUES_MAX: usize = 10_000;

/// Counters of one queue; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub pushed: u64,
    pub claimed: u64,
}

/// Counters by queue, updated once per batch and queue, not once per job.
#[derive(Debug, Default)]
pub struct QueueMeters(Mutex<FxHashMap<(Tenant, Queue), Traffic>>);

impl QueueMeters {
    /// `jobs`: the queue of each job; consecutive jobs of one queue are counted together.
    pub(crate) fn count<'a>(
        &self,
        tenant: &Tenant,
        jobs: impl Iterator<Item = &'a Queue>,
        add: impl Fn(&mut Traffic, u64),
    ) {
        let mut jobs = jobs.peekable();
        let Some(mut queue) = jobs.next() else { return };
        let mut queues = self.0.lock();
        let mut count = 1;
        loop {
            let next = jobs.next();
            if next == Some(queue) {
                count += 1;
                continue;
            }
            let is_full = queues.len() >= QUEUES_MAX;
            let key = (tenant.clone(), queue.clone());
            if !is_full || queues.contains_key(&key) {
                add(queues.entry(key).or_default(), count);
            }
            let Some(other) = next else { return };
            (queue, count) = (other, 1);
        }
    }

    pub fn all(&self) -> Vec<((Tenant, Queue), Traffic)> {
        let queues = self.0.lock();
        queues.iter().map(|(key, traffic)| (key.clone(), *traffic)).collect()
    }
}

/// Ended turns of repeating jobs by outcome.
#[derive(Debug, Default)]
pub struct TurnMeters([Counter; TurnOutcome::ALL.len()]);

impl TurnMeters {
    pub fn of(&self, outcome: TurnOutcome) -> &Counter {
        &self.0[outcome as usize]
    }
}

/// Writes and claims that the store did not carry out, by the kind of error.
#[derive(Debug, Default)]
pub struct StoreErrorMeters([Counter; STORE_ERRORS.len()]);

/// Kinds of errors, in the order of the counters.
const STORE_ERRORS: [&str; 4] = ["full", "unavailable", "outcome_unknown", "damaged"];

impl StoreErrorMeters {
    pub(crate) fn count(&self, error: &StoreError) {
        let kind = match error {
            StoreError::Full(_) => 0,
            StoreError::Unavailable(_) => 1,
            StoreError::Unknown(_) => 2,
            StoreError::Corrupt(_) => 3,
            StoreError::Open(_) | StoreError::Closed | StoreError::Unsupported(_) => return,
        };
        self.0[kind].add(1);
    }

    /// Kind and number of errors.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        STORE_ERRORS.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

#[derive(Debug)]
pub struct Meters {
    pub pushed: Counter,
    pub claimed: Counter,
    /// Successful runs.
    pub finished: Counter,
    /// Runs reported as failed, whether or not the job is retried.
    pub failed: Counter,
    /// Runs whose lease expired.
    pub lapsed: Counter,
    pub cancelled: Counter,
    /// Runs returned by their workers without a result.
    pub released: Counter,
    /// Jobs deleted at the end of their keep time.
    pub expired: Counter,
    /// Commits repeated because of a concurrent change.
    pub stale: Counter,
    pub store_errors: StoreErrorMeters,
    /// Spans that were not exported: the queue was full, or the collector did not take them.
    pub spans_dropped: Counter,
    pub turns: TurnMeters,
    /// Time from when a job could run until it was claimed.
    pub pickup_us: Histogram,
    /// Time from the claim to the worker's report.
    pub run_us: Histogram,
    pub queues: QueueMeters,
    pub jobs: JobMeters,
}

impl Meters {
    /// `series_max`: most names of jobs with metrics of their own.
    pub(crate) fn new(series_max: usize) -> Meters {
        Meters {
            pushed: Counter::default(),
            claimed: Counter::default(),
            finished: Counter::default(),
            failed: Counter::default(),
            lapsed: Counter::default(),
            cancelled: Counter::default(),
            released: Counter::default(),
            expired: Counter::default(),
            stale: Counter::default(),
            store_errors: StoreErrorMeters::default(),
            spans_dropped: Counter::default(),
            turns: TurnMeters::default(),
            pickup_us: Histogram::of_times(),
            run_us: Histogram::of_times(),
            queues: QueueMeters::default(),
            jobs: JobMeters::new(series_max),
        }
    }
}
