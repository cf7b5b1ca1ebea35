//! Metrics of a store, exported by `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the time buckets, in microseconds; the last bucket has no bound. The range covers commits
/// and long runs.
pub const TIME_BOUNDS_US: [u64; 16] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    100_000,
    500_000,
    2_500_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
];
/// Upper bounds of the time buckets of metrics with labels, where every bucket is a series of its own.
pub const COARSE_TIME_BOUNDS_US: [u64; 11] = [
    1_000,
    5_000,
    25_000,
    100_000,
    500_000,
    2_500_000,
    10_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    7_200_000_000,
];
/// Upper bounds of the size buckets.
pub const SIZE_BOUNDS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 10_000];

/// Bucket counts; cheap enough for the hot path.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// Length is one more than `bounds`.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub fn of_times() -> Self {
        Self::new(&TIME_BOUNDS_US)
    }

    /// With fewer buckets, for metrics with labels.
    pub fn of_coarse_times() -> Self {
        Self::new(&COARSE_TIME_BOUNDS_US)
    }

    pub fn of_sizes() -> Self {
        Self::new(&SIZE_BOUNDS)
    }

    fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, buckets, sum: AtomicU64::new(0) }
    }

    pub fn record(&self, value: u64) {
        let slot = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[slot].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn record_time(&self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Cumulative counts (upper bound, values up to it), the total count and the sum.
    pub fn snapshot(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut total = 0;
        let mut cumulative = Vec::with_capacity(self.bounds.len());
        for (bound, bucket) in self.bounds.iter().zip(&*self.buckets) {
            total += bucket.load(Ordering::Relaxed);
            cumulative.push((*bound, total));
        }
        total += self.buckets[self.bounds.len()].load(Ordering::Relaxed);
        (cumulative, total, self.sum.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub struct Meters {
    /// Requests (steps, claims) in one group commit.
    pub commit_size: Histogram,
    /// From the first statement to the end of the fsync.
    pub commit_us: Histogram,
    /// The commit statement alone: writing and syncing the write-ahead log.
    pub sync_us: Histogram,
    pub checkpoint_us: Histogram,
}

impl Default for Meters {
    fn default() -> Self {
        Meters {
            commit_size: Histogram::of_sizes(),
            commit_us: Histogram::of_times(),
            sync_us: Histogram::of_times(),
            checkpoint_us: Histogram::of_times(),
        }
    }
}
