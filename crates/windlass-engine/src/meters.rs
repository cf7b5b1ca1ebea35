//! What the engine counts; read by `/metrics` and `/api/v1/stats`.

use std::sync::atomic::{AtomicU64, Ordering};
use windlass_store::meters::Histogram;

/// Only ever grows.
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

#[derive(Debug)]
pub struct Meters {
    pub pushed: Counter,
    pub claimed: Counter,
    /// Runs that ended well.
    pub finished: Counter,
    /// Runs that were reported as failed, whatever becomes of the job.
    pub failed: Counter,
    /// Runs that ended with their lease.
    pub lapsed: Counter,
    pub cancelled: Counter,
    /// Runs given back unfinished.
    pub released: Counter,
    /// Jobs forgotten because their keep time was over.
    pub expired: Counter,
    /// Commits that had to be tried again because someone else was first.
    pub stale: Counter,
    /// From when a job could run to when a worker had it.
    pub pickup_us: Histogram,
    /// From when a worker had it to its report.
    pub run_us: Histogram,
}

impl Default for Meters {
    fn default() -> Self {
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
            pickup_us: Histogram::of_times(),
            run_us: Histogram::of_times(),
        }
    }
}
