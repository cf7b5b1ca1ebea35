//! Shutdown flag, and the count of calls in flight.

use crate::engine::Inner;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    closing: AtomicBool,
    inside: AtomicUsize,
    left: Notify,
    shut: Notify,
}

impl Shutdown {
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Returns true for the first call.
    pub(crate) fn close(&self) -> bool {
        let is_first = !self.closing.swap(true, Ordering::SeqCst);
        self.shut.notify_waiters();
        is_first
    }

    pub(crate) async fn closed(&self) {
        let shut = self.shut.notified();
        if !self.is_closing() {
            shut.await;
        }
    }

    /// Waits until no call is in flight.
    pub(crate) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.inside.load(Ordering::SeqCst) == 0 {
                return;
            }
            left.await;
        }
    }
}

/// Call in flight; the store stays open while there is one.
pub(crate) struct InFlight(Arc<Inner>);

impl InFlight {
    pub(crate) fn new(engine: &Arc<Inner>) -> InFlight {
        engine.shutdown.inside.fetch_add(1, Ordering::SeqCst);
        InFlight(engine.clone())
    }
}

impl Deref for InFlight {
    type Target = Arc<Inner>;
    fn deref(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let shutdown = &self.0.shutdown;
        if shutdown.inside.fetch_sub(1, Ordering::SeqCst) == 1 && shutdown.is_closing() {
            shutdown.left.notify_waiters();
        }
    }
}
