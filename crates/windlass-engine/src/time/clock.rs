//! The only place that reads the time.

use async_trait::async_trait;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::Timestamp;

/// Future that completes after a delay.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[async_trait]
pub trait Clock: Send + Sync {
    /// Timeline that advances evenly: leases, delays and backoff count on it.
    fn now(&self) -> Timestamp;

    /// Wall clock, which an administrator may set: dates refer to it.
    fn wall(&self) -> Timestamp {
        self.now()
    }

    /// Sets by how many ms dates are ahead of the timeline.
    fn show_ahead(&self, ms: i64) {
        let _ = ms;
    }

    /// Waits until the timeline reaches `at`.
    async fn sleep_until(&self, at: Timestamp);

    /// Waits for a duration, even if the clock is set meanwhile: a client waits in its own time. The time
    /// starts with this call, not with the first poll.
    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        self.sleep_until(self.now().plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// Longest sleep before the clock is read again. After a suspension of the machine, deadlines are noticed at
/// most this late.
const LOOK_AGAIN_MS: i64 = 15_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
#[expect(clippy::disallowed_methods, reason = "this is where time is read")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        windlass_store::steady::now()
    }

    fn wall(&self) -> Timestamp {
        windlass_store::steady::wall()
    }

    fn show_ahead(&self, ms: i64) {
        windlass_core::time::set_calendar_ahead_ms(ms);
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left_ms = at.since_ms(self.now());
            if left_ms == 0 {
                return;
            }
            self.sleep_ms(left_ms.min(LOOK_AGAIN_MS).unsigned_abs()).await;
        }
    }

    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }
}

/// Clock of a store: the local clock plus an offset. On a shared store leases and timers then agree on all
/// servers, even if the servers' clocks do not; on a store that was closed, its timeline continues where it
/// ended.
pub struct StoreClock {
    ours: Arc<dyn Clock>,
    ahead_ms: Arc<AtomicI64>,
}

impl StoreClock {
    /// The store updates `ahead_ms` from time to time.
    pub fn new(ours: Arc<dyn Clock>, ahead_ms: Arc<AtomicI64>) -> StoreClock {
        StoreClock { ours, ahead_ms }
    }
}

#[async_trait]
impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        self.ours.now().plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Timestamp {
        self.ours.wall()
    }

    fn show_ahead(&self, ms: i64) {
        self.ours.show_ahead(ms);
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left_ms = at.since_ms(self.now());
            if left_ms == 0 {
                return;
            }
            self.ours.sleep_ms(left_ms.min(LOOK_AGAIN_MS).unsigned_abs()).await;
        }
    }

    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        self.ours.sleep_ms(ms)
    }
}

/// Clock that stands still until it is advanced.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Timestamp>,
    wall_ahead_ms: AtomicI64,
}

impl ManualClock {
    pub fn at(start: Timestamp) -> ManualClock {
        ManualClock { now: watch::Sender::new(start), wall_ahead_ms: AtomicI64::new(0) }
    }

    /// Advances the timeline and wakes every sleeper whose time has come.
    pub fn advance(&self, ms: i64) {
        self.now.send_modify(|now| *now = now.plus_ms(ms));
    }

    /// Sets the timeline, also backwards, which no real clock should do.
    pub fn set(&self, at: Timestamp) {
        self.now.send_replace(at);
    }

    /// Sets the wall clock forward or back, as an administrator may.
    pub fn step_wall(&self, ms: i64) {
        self.wall_ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    /// Starts at a round number that is easy to read in expectations.
    fn default() -> Self {
        ManualClock::at(Timestamp::from_millis(1_000_000))
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn wall(&self) -> Timestamp {
        self.now().plus_ms(self.wall_ahead_ms.load(Ordering::Relaxed))
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut now = self.now.subscribe();
        // Cannot fail: the sender lives as long as `self`.
        let _ = now.wait_for(|now| *now >= at).await;
    }
}
