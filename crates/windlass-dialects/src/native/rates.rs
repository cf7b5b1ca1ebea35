//! Rates and latencies over the last minute, and counters of the last fifteen minutes.

pub(super) mod queue_steps;
#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use queue_steps::QueueSteps;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::{Queue, Tenant, Timestamp};
use windlass_engine::Meters;
use windlass_engine::meters::Traffic;
use windlass_engine::query::Histogram;

const WINDOW: Duration = Duration::from_secs(60);
pub const EVERY: Duration = Duration::from_secs(5);
/// Samples kept: fifteen minutes, for the chart.
const READINGS_MAX: usize = 181;

/// Samples of the counters, a few seconds apart.
#[derive(Default)]
pub struct Rates {
    readings: Mutex<VecDeque<Reading>>,
    queue_steps: QueueSteps,
}

#[derive(Clone)]
struct Reading {
    at: Instant,
    time: Timestamp,
    counts: Counts,
    pickup: Buckets,
    run: Buckets,
    /// Dropped once the sample is older than the window.
    queues: Queues,
}

type Queues = Arc<HashMap<(Tenant, Queue), Traffic>>;

/// Rates of a queue, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    pub pushed_per_s: f64,
    pub claimed_per_s: f64,
}

impl Flow {
    /// Estimated time until no job is ready, at the current rates.
    pub fn empties_in_ms(self, ready: u64) -> Option<i64> {
        let shrinks_per_s = self.claimed_per_s - self.pushed_per_s;
        // A hundredth is the finest resolution shown.
        (ready > 0 && shrinks_per_s >= 0.01).then(|| (ready as f64 / shrinks_per_s * 1_000.0) as i64)
    }
}

/// (Upper bound in microseconds, number of values up to it); the last entry counts all values.
type Buckets = Vec<(u64, u64)>;

/// Counters in the order of [`NAMES`].
pub type Counts = [u64; 4];
pub const NAMES: [&str; 4] = ["pushed", "claimed", "finished", "failed"];

/// Rates per second, in the order of [`NAMES`].
pub type PerSecond = [f64; 4];

/// Percentiles 50, 95 and 99 in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles(pub [f64; 3]);

impl Rates {
    pub fn sample(&self, time: Timestamp, meters: &Meters) {
        let reading = Reading {
            at: Instant::now(),
            time,
            counts: counts(meters),
            pickup: buckets(&meters.pickup_us),
            run: buckets(&meters.run_us),
            queues: Arc::new(meters.queues.all().into_iter().collect()),
        };
        self.keep(reading);
    }

    fn keep(&self, reading: Reading) {
        self.queue_steps.sample(reading.at, reading.time, &reading.queues);
        let mut readings = self.readings.lock();
        if readings.len() == READINGS_MAX {
            readings.pop_front();
        }
        // Queue counters before the window are not needed.
        let mut old = readings.iter_mut().rev().skip_while(|old| reading.at.duration_since(old.at) <= WINDOW);
        if let Some(old) = old.nth(1) {
            old.queues = Queues::default();
        }
        readings.push_back(reading);
    }

    pub fn now(&self, meters: &Meters) -> PerSecond {
        self.at(Instant::now(), counts(meters))
    }

    fn at(&self, now: Instant, counts: Counts) -> PerSecond {
        let Some(oldest) = self.a_window_ago(now) else { return PerSecond::default() };
        // At least a second, so that the first push does not look like a high rate.
        let seconds = now.duration_since(oldest.at).as_secs_f64().max(1.0);
        std::array::from_fn(|index| {
            let grown = counts[index].saturating_sub(oldest.counts[index]) as f64 / seconds;
            (grown * 100.0).round() / 100.0
        })
    }

    /// Rates by queue over the last minute.
    pub fn flows(&self, meters: &Meters) -> HashMap<(Tenant, Queue), Flow> {
        let now = Instant::now();
        let Some(oldest) = self.a_window_ago(now) else { return HashMap::new() };
        let seconds = now.duration_since(oldest.at).as_secs_f64().max(1.0);
        let per_second =
            |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds * 100.0).round() / 100.0;
        let flow = |(key, now): ((Tenant, Queue), Traffic)| {
            let before = oldest.queues.get(&key).copied().unwrap_or_default();
            let flow = Flow {
                pushed_per_s: per_second(now.pushed, before.pushed),
                claimed_per_s: per_second(now.claimed, before.claimed),
            };
            (key, flow)
        };
        meters.queues.all().into_iter().map(flow).collect()
    }

    /// End of the first step, and the traffic of a queue in each step of the last fifteen minutes.
    pub fn recent_of(&self, tenant: &Tenant, queue: &Queue) -> (Option<Timestamp>, Vec<Traffic>) {
        self.queue_steps.of(tenant, queue)
    }

    /// Latencies over the last minute: from due to claimed, and from claimed to reported. `None`: no values.
    pub fn latency(&self, meters: &Meters) -> (Option<Percentiles>, Option<Percentiles>) {
        let Some(oldest) = self.a_window_ago(Instant::now()) else { return (None, None) };
        let of = |histogram, before: &Buckets| percentiles(before, &buckets(histogram));
        (of(&meters.pickup_us, &oldest.pickup), of(&meters.run_us, &oldest.run))
    }

    /// Newest sample that covers the window, or the oldest one.
    fn a_window_ago(&self, now: Instant) -> Option<Reading> {
        let readings = self.readings.lock();
        let covers = |reading: &&Reading| now.duration_since(reading.at) >= WINDOW;
        readings.iter().rev().find(covers).or(readings.front()).cloned()
    }

    /// End of the first step, and the counts in each step.
    pub fn recent(&self) -> (Option<Timestamp>, Vec<Counts>) {
        let readings = self.readings.lock();
        let steps = readings.iter().zip(readings.iter().skip(1));
        let grown = steps.map(|(from, to)| difference(to.counts, from.counts)).collect();
        (readings.get(1).map(|reading| reading.time), grown)
    }
}

pub fn difference(now: Counts, before: Counts) -> Counts {
    std::array::from_fn(|index| now[index].saturating_sub(before[index]))
}

pub fn counts(meters: &Meters) -> Counts {
    [meters.pushed.get(), meters.claimed.get(), meters.finished.get(), meters.failed.get()]
}

fn buckets(histogram: &Histogram) -> Buckets {
    let (mut buckets, total, _) = histogram.snapshot();
    buckets.push((u64::MAX, total));
    buckets
}

/// Assumes an even distribution of values within a bucket.
fn percentiles(before: &Buckets, now: &Buckets) -> Option<Percentiles> {
    let grown: Vec<(u64, u64)> = now
        .iter()
        .zip(before)
        .map(|((bound, now), (_, before))| (*bound, now.saturating_sub(*before)))
        .collect();
    let total = grown.last().map_or(0, |(_, total)| *total);
    if total == 0 {
        return None;
    }
    let at = |share: f64| {
        let rank = (total as f64 * share).max(1.0);
        let slot = grown.iter().position(|(_, count)| *count as f64 >= rank).unwrap_or(grown.len() - 1);
        let (low, below) = if slot == 0 { (0, 0) } else { grown[slot - 1] };
        // The last bucket has no upper bound.
        let high = if grown[slot].0 == u64::MAX { low } else { grown[slot].0 };
        let inside = (rank - below as f64) / (grown[slot].1 - below).max(1) as f64;
        let us = low as f64 + (high - low) as f64 * inside;
        (us / 10.0).round() / 100.0
    };
    Some(Percentiles([at(0.5), at(0.95), at(0.99)]))
}
