//! The only place that reads the time.

use async_trait::async_trait;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use windlass_core::Timestamp;

/// What ends when its time is over.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[async_trait]
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Until the clock shows `at` or later.
    async fn sleep_until(&self, at: Timestamp);

    /// For so long, whatever is done to the clock meanwhile: a client waits in its own time, not in ours. The time begins
    /// with the call, not when somebody first waits for what it gives.
    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        self.sleep_until(self.now().plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// How long to sleep before looking at the clock again. Someone may set it, or the machine may have been
/// suspended, and then what became due is noticed at most this late.
const LOOK_AGAIN_MS: i64 = 15_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
#[expect(clippy::disallowed_methods, reason = "this is where time is read")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
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

/// The time as a store has it, which several servers share: ours, put right by how far the other is ahead. Leases and
/// timers then mean the same everywhere, however wrong the clocks of the servers are.
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
}

impl ManualClock {
    pub fn at(start: Timestamp) -> ManualClock {
        ManualClock { now: watch::Sender::new(start) }
    }

    /// Wakes every sleeper whose time has come.
    pub fn advance(&self, ms: i64) {
        self.now.send_modify(|now| *now = now.plus_ms(ms));
    }

    /// Also backwards, as an administrator may.
    pub fn set(&self, at: Timestamp) {
        self.now.send_replace(at);
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

    async fn sleep_until(&self, at: Timestamp) {
        let mut now = self.now.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = now.wait_for(|now| *now >= at).await;
    }
}
