//! How much per second, over the last minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_engine::Meters;

const WINDOW: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(5);

/// Readings of the counters, a few seconds apart.
#[derive(Default)]
pub struct Rates {
    readings: Mutex<VecDeque<Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    counts: Counts,
}

/// In the order pushed, claimed, finished, failed.
type Counts = [u64; 4];

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerSecond {
    pub pushed: f64,
    pub claimed: f64,
    pub finished: f64,
    pub failed: f64,
}

impl Rates {
    /// Never ends.
    pub async fn keep_sampling(&self, meters: &Meters) {
        loop {
            self.sample(Instant::now(), counts(meters));
            tokio::time::sleep(EVERY).await;
        }
    }

    fn sample(&self, at: Instant, counts: Counts) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        // One reading is kept from before the window, so that the window is always covered.
        while readings.get(1).is_some_and(|second| at.duration_since(second.at) >= WINDOW) {
            readings.pop_front();
        }
        readings.push_back(Reading { at, counts });
    }

    pub fn now(&self, meters: &Meters) -> PerSecond {
        self.at(Instant::now(), counts(meters))
    }

    fn at(&self, now: Instant, counts: Counts) -> PerSecond {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(oldest) = readings.front().copied() else { return PerSecond::default() };
        // At least a second, so that the first push does not look like a flood.
        let seconds = now.duration_since(oldest.at).as_secs_f64().max(1.0);
        let rate = |index: usize| {
            let grown = counts[index].saturating_sub(oldest.counts[index]) as f64 / seconds;
            (grown * 100.0).round() / 100.0
        };
        PerSecond { pushed: rate(0), claimed: rate(1), finished: rate(2), failed: rate(3) }
    }
}

fn counts(meters: &Meters) -> Counts {
    [meters.pushed.get(), meters.claimed.get(), meters.finished.get(), meters.failed.get()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_last_minute() {
        let rates = Rates::default();
        let start = Instant::now();
        for step in 0..=24 {
            rates.sample(start + EVERY * step, [u64::from(step) * 50, 0, 0, 0]);
        }
        let now = start + EVERY * 24;
        assert_eq!(rates.at(now, [24 * 50, 0, 0, 0]).pushed, 10.0);
        assert!(rates.readings.lock().unwrap().len() <= 14);
    }

    #[test]
    fn nothing_happened_yet() {
        assert_eq!(Rates::default().at(Instant::now(), [5; 4]), PerSecond::default());
    }
}
