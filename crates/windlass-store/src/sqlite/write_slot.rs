//! Write lock of the embedded store.
//!
//! There is one [`WriterState`], behind a mutex. The writer thread takes the mutex while requests wait, so
//! that requests arriving during a commit share the next one (group commit). Handing a request to that thread
//! and its reply back costs more than the commit itself, so a caller without concurrent writers takes the
//! mutex and commits on its own thread. The conditions: recent commits had one request each, no request
//! waits, the request is small, and the disk is fast, because a caller that writes blocks its thread.

use super::requests::{Reply, Request};
use super::writer::{WriterState, stop};
use crate::error::StoreError;
use crate::group::GroupLimits;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Bounds on a group, to keep the time to the first reply short when hundreds of clients write at once.
const GROUP: GroupLimits = GroupLimits { requests: 256, jobs: 10_000 };

/// Consecutive commits with a single request before callers may write directly.
const CALM_AFTER: usize = 4;
/// Most jobs in a direct write: some tens of microseconds without the disk.
const ALONE_JOBS_MAX: usize = 16;
/// With slower commits, only the writer thread writes.
const QUICK: Duration = Duration::from_millis(1);

pub(super) struct WriteSlot {
    shared: Arc<SharedSlot>,
    inbox: Sender<Request>,
    /// Disables direct writes.
    thread_only: bool,
}

/// Mutex around the writer state, and the counters that decide on direct writes.
struct SharedSlot {
    /// `None`: closed.
    state: Mutex<Option<WriterState>>,
    /// Requests sent to the thread and not answered yet.
    waiting: AtomicUsize,
    /// Consecutive fast commits with a single request.
    calm: AtomicUsize,
}

impl WriteSlot {
    /// Starts the writer thread. It ends when `WriteSlot` is dropped or a `Close` request arrives.
    pub(super) fn begin(state: WriterState, thread_only: bool) -> Result<WriteSlot, StoreError> {
        let shared = SharedSlot {
            state: Mutex::new(Some(state)),
            waiting: AtomicUsize::new(0),
            calm: AtomicUsize::new(0),
        };
        let shared = Arc::new(shared);
        let (inbox, requests) = channel();
        let for_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || for_thread.serve(&requests))
            .map_err(|error| StoreError::Open(error.to_string()))?;
        Ok(WriteSlot { shared, inbox, thread_only })
    }

    /// Applies the request before returning if no other writer is active; otherwise sends it to the thread.
    pub(super) fn take(&self, request: Request) -> Result<(), StoreError> {
        if self.thread_only {
            return self.send(request);
        }
        match self.shared.write_alone(request) {
            Alone::Written { log_is_long: false } => Ok(()),
            Alone::Written { log_is_long: true } => {
                // If the store was closed meanwhile, closing has made the checkpoint; the commit stays valid.
                let _ = self.send(Request::Tidy {});
                Ok(())
            }
            Alone::Not(request) => self.send(request),
        }
    }

    /// Sends a request to the writer thread, even if the caller could write directly.
    pub(super) fn send(&self, request: Request) -> Result<(), StoreError> {
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        self.inbox.send(request).map_err(|_| StoreError::Closed)
    }
}

enum Alone {
    Written { log_is_long: bool },
    Not(Request),
}

impl SharedSlot {
    fn write_alone(&self, request: Request) -> Alone {
        let (calm, waiting) = (self.calm.load(Ordering::SeqCst), self.waiting.load(Ordering::SeqCst));
        if !may_write(calm, waiting, request.jobs()) {
            return Alone::Not(request);
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return Alone::Not(request),
            Err(TryLockError::Poisoned(_)) => half_written(),
        };
        let Some(state) = state.as_mut() else { return Alone::Not(request) };
        let began = Instant::now();
        state.write(&mut vec![request]);
        if self.waiting.load(Ordering::SeqCst) > 0 || began.elapsed() > QUICK {
            self.calm.store(0, Ordering::SeqCst);
        }
        Alone::Written { log_is_long: state.log_is_long() }
    }

    /// Main loop of the writer thread.
    fn serve(&self, requests: &Receiver<Request>) {
        let mut group = Vec::new();
        let closing = loop {
            let Ok(first) = requests.recv() else { break None };
            let mut shared = self.state();
            // Gathers after taking the mutex: further requests may have arrived while another writer held it.
            GROUP.gather(&mut group, first, Request::jobs, || requests.try_recv().ok());
            let Some(state) = shared.as_mut() else { break None };
            if let Some(closing) = self.write_together(state, &mut group) {
                break Some(closing);
            }
            if state.log_is_long() {
                state.checkpoint("PASSIVE");
            }
        };
        let closed = self.state().take().map_or(Ok(()), WriterState::close);
        if let Some(reply) = closing {
            let _ = reply.send(closed);
        }
    }

    fn write_together(&self, state: &mut WriterState, group: &mut Vec<Request>) -> Option<Reply<()>> {
        let count = group.len();
        let began = Instant::now();
        let closing = state.write(group);
        let others = self.waiting.fetch_sub(count, Ordering::SeqCst) - count;
        match count == 1 && others == 0 && began.elapsed() <= QUICK {
            true => self.calm.fetch_add(1, Ordering::SeqCst),
            false => self.calm.swap(0, Ordering::SeqCst),
        };
        closing
    }

    fn state(&self) -> MutexGuard<'_, Option<WriterState>> {
        self.state.lock().unwrap_or_else(|_| half_written())
    }
}

/// True if a caller with `jobs` jobs may write directly.
fn may_write(calm: usize, waiting: usize, jobs: usize) -> bool {
    calm >= CALM_AFTER && waiting == 0 && jobs <= ALONE_JOBS_MAX
}

/// A writer panicked during a commit: the index and the disk may differ, so the process aborts.
fn half_written() -> ! {
    stop("a write to the store panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_alone_when_it_is_calm_and_nobody_waits_and_it_is_little() {
        let cases = [
            (CALM_AFTER, 0, 1, true),
            (CALM_AFTER, 0, ALONE_JOBS_MAX, true),
            (usize::MAX, 0, 0, true),
            (CALM_AFTER - 1, 0, 1, false),
            (CALM_AFTER, 1, 1, false),
            (CALM_AFTER, 0, ALONE_JOBS_MAX + 1, false),
        ];
        for (calm, waiting, jobs, expected) in cases {
            assert_eq!(
                may_write(calm, waiting, jobs),
                expected,
                "calm {calm}, waiting {waiting}, jobs {jobs}"
            );
        }
    }
}
