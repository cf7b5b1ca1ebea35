//! Next wake-up of the scheduler: the earliest planned deadline.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tokio::sync::Notify;
use windlass_core::Timestamp;

/// No deadline.
const NEVER: i64 = i64::MAX;

#[derive(Debug)]
pub(crate) struct Timers {
    earliest: AtomicI64,
    nudge: Notify,
    closed: AtomicBool,
}

impl Timers {
    /// Due at once, so that the scheduler first queries the store.
    pub(crate) fn new() -> Timers {
        Timers { earliest: AtomicI64::new(i64::MIN), nudge: Notify::new(), closed: AtomicBool::new(false) }
    }

    /// Plans a deadline. Wakes the scheduler only if the deadline is earlier than its next wake-up.
    pub(crate) fn plan(&self, at: Timestamp) {
        let at = at.as_millis();
        // The load avoids a shared write in the common case of a later deadline.
        if at < self.earliest.load(Ordering::Relaxed) && at < self.earliest.fetch_min(at, Ordering::AcqRel) {
            self.nudge.notify_one();
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        match self.earliest.load(Ordering::Acquire) {
            NEVER => None,
            ms => Some(Timestamp::from_millis(ms)),
        }
    }

    /// Clears the deadline. Called before the store is queried, so that deadlines planned meanwhile are kept.
    pub(crate) fn forget(&self) {
        self.earliest.store(NEVER, Ordering::Release);
    }

    /// Waits until an earlier deadline is planned, or the table is closed.
    pub(crate) async fn nudged(&self) {
        self.nudge.notified().await;
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.nudge.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[tokio::test]
    async fn only_an_earlier_deadline_nudges() {
        let timers = Timers::new();
        timers.forget();
        timers.plan(at(500));
        timers.nudged().await;
        timers.plan(at(900));
        timers.plan(at(500));
        let nudged = tokio::time::timeout(std::time::Duration::ZERO, timers.nudged()).await;
        assert!(nudged.is_err(), "a later or equal deadline needs no nudge");
        assert_eq!(timers.next_deadline(), Some(at(500)));
        timers.plan(at(100));
        timers.nudged().await;
        assert_eq!(timers.next_deadline(), Some(at(100)));
    }
}
