//! The only place that reads the time.

use async_trait::async_trait;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::Timestamp;

/// What ends when its time is over.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[async_trait]
pub trait Clock: Send + Sync {
    /// A timeline that goes on evenly: leases, delays and backoff are counted on it.
    fn now(&self) -> Timestamp;

    /// What the clock on the wall shows, which somebody may set: dates are by it.
    fn wall(&self) -> Timestamp {
        self.now()
    }

    /// From here on dates are shown and read so far ahead of the timeline.
    fn show_ahead(&self, ms: i64) {
        let _ = ms;
    }

    /// Until the clock shows `at` or later.
    async fn sleep_until(&self, at: Timestamp);

    /// For so long, whatever is done to the clock meanwhile: a client waits in its own time, not in ours. The time begins
    /// with the call, not when somebody first waits for what it gives.
    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        self.sleep_until(self.now().plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// How long to sleep before looking at the clock again. The machine may have been suspended, and then what became due is
/// noticed at most this late.
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

/// The time as a store has it: ours, put right by how far the other is ahead. Of a store that several servers share, leases
/// and timers then mean the same everywhere, however wrong the clocks of the servers are; of one that was closed, they go
/// on where they were.
pub struct StoreClock {
    ours: Arc<dyn Clock>,
    ahead_ms: Arc<AtomicI64>,
}

impl StoreClock {
    /// `ahead_ms` is measured anew, now and then, by the store.
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

/// A clock that stands still until it is told to go on.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Timestamp>,
    wall_ahead_ms: AtomicI64,
}

impl ManualClock {
    pub fn at(start: Timestamp) -> ManualClock {
        ManualClock { now: watch::Sender::new(start), wall_ahead_ms: AtomicI64::new(0) }
    }

    /// Wakes every sleeper whose time has come.
    pub fn advance(&self, ms: i64) {
        self.now.send_modify(|now| *now = now.plus_ms(ms));
    }

    /// The timeline itself, also backwards, as no clock should.
    pub fn set(&self, at: Timestamp) {
        self.now.send_replace(at);
    }

    /// The clock on the wall is set forward or back, as an administrator may.
    pub fn step_wall(&self, ms: i64) {
        self.wall_ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    /// Starts at a round moment that is easy to read in expectations.
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
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = now.wait_for(|now| *now >= at).await;
    }
}
