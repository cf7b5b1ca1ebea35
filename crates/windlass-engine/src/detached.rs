//! Work that runs to its end even if its caller stops waiting: half of a verb is worse than one nobody hears the answer of.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Polled by its caller like any future; dropped before its end, the rest becomes a task of its own. So the common case
/// costs no task, and no other thread is woken for it.
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
        // Work that broke off with a panic must not be asked to go on.
        if let Some(work) = self.work.take()
            && !std::thread::panicking()
        {
            self.runtime.spawn(work);
        }
    }
}
