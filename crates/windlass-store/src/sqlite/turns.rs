//! Whose turn it is to write.
//!
//! There is one [`Pen`]. A thread of the store's own takes it for as long as requests wait, so that those that arrive
//! during a commit share the next. Handing a request to that thread and its answer back costs more than the commit itself,
//! though, so a caller who is alone takes the pen and writes where he stands. Alone means: commits came one by one lately,
//! nothing waits, it is a small matter, and the disk is quick, for whoever writes keeps his thread from other work.

use super::requests::{Reply, Request};
use super::writer::{Pen, stop};
use crate::error::StoreError;
use crate::group::GroupLimits;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Keeps the time to the first answer short when hundreds of clients write at once.
const GROUP: GroupLimits = GroupLimits { requests: 256, jobs: 10_000 };

/// Commits of one request each, one after the other, before a caller counts as alone.
const CALM_AFTER: usize = 4;
/// Jobs that a caller writes himself: some tens of microseconds without the disk.
const ALONE_JOBS_MAX: usize = 16;
/// A disk that takes longer is waited for by the store's own thread.
const QUICK: Duration = Duration::from_millis(1);

pub struct Turns {
    desk: Arc<Desk>,
    inbox: Sender<Request>,
    /// Nobody but the thread writes.
    thread_only: bool,
}

/// Where the pen lies.
struct Desk {
    /// `None`: closed.
    pen: Mutex<Option<Pen>>,
    /// Requests that were sent to the thread and are not answered yet.
    waiting: AtomicUsize,
    /// Quick commits of one request each since the last that was not.
    calm: AtomicUsize,
}

impl Turns {
    /// Starts the thread. It ends with the `Turns` or when it is told to close.
    pub fn begin(pen: Pen, thread_only: bool) -> Result<Turns, StoreError> {
        let desk =
            Desk { pen: Mutex::new(Some(pen)), waiting: AtomicUsize::new(0), calm: AtomicUsize::new(0) };
        let desk = Arc::new(desk);
        let (inbox, requests) = channel();
        let for_thread = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || for_thread.serve(&requests))
            .map_err(|error| StoreError::Open(error.to_string()))?;
        Ok(Turns { desk, inbox, thread_only })
    }

    /// Carries the request out before it returns, where nobody else wants to write; otherwise sees that it is.
    pub fn take(&self, request: Request) -> Result<(), StoreError> {
        if self.thread_only {
            return self.send(request);
        }
        match self.desk.write_alone(request) {
            Alone::Written { log_is_long: false } => Ok(()),
            Alone::Written { log_is_long: true } => {
                // Closed meanwhile: then the log is brought in anyway, and what was written stays so.
                let _ = self.send(Request::Tidy {});
                Ok(())
            }
            Alone::Not(request) => self.send(request),
        }
    }

    /// For the thread, whoever is alone.
    pub fn send(&self, request: Request) -> Result<(), StoreError> {
        self.desk.waiting.fetch_add(1, Ordering::SeqCst);
        self.inbox.send(request).map_err(|_| StoreError::Closed)
    }
}

enum Alone {
    Written { log_is_long: bool },
    Not(Request),
}

impl Desk {
    fn write_alone(&self, request: Request) -> Alone {
        let (calm, waiting) = (self.calm.load(Ordering::SeqCst), self.waiting.load(Ordering::SeqCst));
        if !may_write(calm, waiting, request.jobs()) {
            return Alone::Not(request);
        }
        let mut pen = match self.pen.try_lock() {
            Ok(pen) => pen,
            Err(TryLockError::WouldBlock) => return Alone::Not(request),
            Err(TryLockError::Poisoned(_)) => half_written(),
        };
        let Some(pen) = pen.as_mut() else { return Alone::Not(request) };
        let began = Instant::now();
        pen.write(&mut vec![request]);
        if self.waiting.load(Ordering::SeqCst) > 0 || began.elapsed() > QUICK {
            self.calm.store(0, Ordering::SeqCst);
        }
        Alone::Written { log_is_long: pen.log_is_long() }
    }

    /// The thread's whole life.
    fn serve(&self, requests: &Receiver<Request>) {
        let mut group = Vec::new();
        let closing = loop {
            let Ok(first) = requests.recv() else { break None };
            let mut desk = self.pen();
            // Only now: whoever had the pen may have kept it for a while.
            GROUP.gather(&mut group, first, Request::jobs, || requests.try_recv().ok());
            let Some(pen) = desk.as_mut() else { break None };
            if let Some(closing) = self.write_together(pen, &mut group) {
                break Some(closing);
            }
            if pen.log_is_long() {
                pen.checkpoint("PASSIVE");
            }
        };
        let closed = self.pen().take().map_or(Ok(()), Pen::close);
        if let Some(reply) = closing {
            let _ = reply.send(closed);
        }
    }

    fn write_together(&self, pen: &mut Pen, group: &mut Vec<Request>) -> Option<Reply<()>> {
        let count = group.len();
        let began = Instant::now();
        let closing = pen.write(group);
        let others = self.waiting.fetch_sub(count, Ordering::SeqCst) - count;
        match count == 1 && others == 0 && began.elapsed() <= QUICK {
            true => self.calm.fetch_add(1, Ordering::SeqCst),
            false => self.calm.swap(0, Ordering::SeqCst),
        };
        closing
    }

    fn pen(&self) -> MutexGuard<'_, Option<Pen>> {
        self.pen.lock().unwrap_or_else(|_| half_written())
    }
}

/// Whether a caller who asks for `jobs` jobs is alone.
fn may_write(calm: usize, waiting: usize, jobs: usize) -> bool {
    calm >= CALM_AFTER && waiting == 0 && jobs <= ALONE_JOBS_MAX
}

/// Somebody broke off in the middle of a commit: what the index knows and what is on the disk are no longer the same.
fn half_written() -> ! {
    stop("a write to the store broke off")
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
