//! Large requests and the threads of the runtime.
//!
//! Parsing a body of many megabytes takes a good part of a second and would block a thread of the runtime.
//! Futures of such requests are polled in `block_in_place`: the runtime moves its other work to another
//! thread before each poll.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Size from which a body, or data loaded for a call, is large. Smaller ones take a few milliseconds.
const LARGE_BYTES: usize = 256 << 10;

/// True once the rest of a request is large work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weight(Arc<AtomicBool>);

impl Weight {
    /// Announces work on this many bytes.
    pub(crate) async fn add(&self, bytes: usize) {
        if bytes >= LARGE_BYTES && !self.0.swap(true, Ordering::Relaxed) {
            // The next poll is the first that does not hold a thread of the runtime.
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn is_large(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Completes `work`; once it is large, without holding a thread of the runtime.
    pub(crate) async fn carry<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.is_large() && can_block() {
                return tokio::task::block_in_place(|| work.as_mut().poll(context));
            }
            work.as_mut().poll(context)
        })
        .await
    }
}

/// A runtime of one thread has no other thread to move its work to.
fn can_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// Blocks its thread until another task of the runtime has run.
    async fn hold_the_thread(weight: &Weight, bytes: usize) -> bool {
        let (ran, has_run) = std::sync::mpsc::channel();
        let (begin, begun) = oneshot::channel();
        tokio::spawn(async move {
            let _ = begun.await;
            let _ = ran.send(());
        });
        weight
            .carry(async move {
                weight.add(bytes).await;
                let _ = begin.send(());
                has_run.recv_timeout(Duration::from_secs(if bytes < LARGE_BYTES { 1 } else { 60 })).is_ok()
            })
            .await
    }

    #[test]
    fn large_work_leaves_the_runtime_to_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let held = |bytes| {
            runtime.block_on(runtime.spawn(async move { hold_the_thread(&Weight::default(), bytes).await }))
        };
        assert!(held(LARGE_BYTES).unwrap(), "the only thread serves others meanwhile");
        assert!(!held(LARGE_BYTES - 1).unwrap(), "which is worth its price for large work only");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        let weight = Weight::default();
        let done = weight
            .carry(async {
                weight.add(LARGE_BYTES).await;
                weight.is_large()
            })
            .await;
        assert!(done);
    }
}
