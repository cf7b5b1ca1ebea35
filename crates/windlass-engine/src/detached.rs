//! Work that runs to completion even if its caller stops waiting, so that no call is left half done.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Future that is polled by its caller; if dropped before it completes, the rest is spawned as a task. So the
/// common case needs no task, and wakes no other thread.
pub(crate) struct Detached<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: Handle,
}

impl<T: Send + 'static> Detached<T> {
    pub(crate) fn new(runtime: Handle, work: impl Future<Output = T> + Send + 'static) -> Detached<T> {
        Detached { work: Some(Box::pin(work)), runtime }
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        // Work that has panicked must not be polled again.
        if let Some(work) = self.work.take()
            && !std::thread::panicking()
        {
            self.runtime.spawn(work);
        }
    }
}
