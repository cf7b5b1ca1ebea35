//! Writer thread: appends and syncs, with group commit. Lines that arrive during a sync form the next group,
//! so a busy journal needs one sync for many writes.

use super::JournalError;
use super::files::{AppendError, Files};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread;
use tokio::sync::{Notify, oneshot};

/// Most bytes waiting for the disk: a backlog this large means that clients write faster than the disk.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// Lines that are queued for writing.
#[must_use = "they are not safe before `wsync`"]
pub struct Written {
    answer: oneshot::Receiver<Result<(), JournalError>>,
}

impl Written {
    pub(super) async fn on_disk(self) -> Result<(), JournalError> {
        self.answer.await.unwrap_or(Err(JournalError::Closed))
    }
}

pub(super) struct Writer {
    queue: Arc<WriteQueue>,
    files: Arc<Files>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct WriteQueue {
    work: Mutex<Work>,
    something: Condvar,
}

#[derive(Default)]
struct Work {
    bytes: Vec<u8>,
    waiting: Vec<oneshot::Sender<Result<(), JournalError>>>,
    start_anew: bool,
    is_closed: bool,
    broken: Option<String>,
}

impl Writer {
    pub(super) fn start(files: Arc<Files>, arrived: Arc<Notify>) -> std::io::Result<Writer> {
        let queue = Arc::new(WriteQueue::default());
        let (its_queue, its_files) = (Arc::clone(&queue), Arc::clone(&files));
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || run(&its_queue, &its_files, &arrived))?;
        Ok(Writer { queue, files, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn append(&self, mut bytes: Vec<u8>) -> Result<Written, JournalError> {
        if let Some(full) = self.files.is_full() {
            return Err(JournalError::Full(full));
        }
        let (tell, answer) = oneshot::channel();
        let mut work = self.queue.work();
        work.may_write()?;
        if !work.bytes.is_empty() && work.bytes.len() + bytes.len() > WAITING_BYTES_MAX {
            return Err(JournalError::Full(work.bytes.len() as u64));
        }
        if work.bytes.is_empty() {
            work.bytes = bytes;
        } else {
            work.bytes.append(&mut bytes);
        }
        work.waiting.push(tell);
        drop(work);
        self.queue.something.notify_one();
        Ok(Written { answer })
    }

    /// Asks the thread to remove the current file if all of its lines are processed.
    pub(super) fn request_new_file(&self) {
        self.queue.work().start_anew = true;
        self.queue.something.notify_one();
    }

    pub(super) fn health(&self) -> Result<(), JournalError> {
        self.queue.work().may_write()
    }

    pub(super) async fn close(&self) {
        self.queue.work().is_closed = true;
        self.queue.something.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.work().is_closed = true;
        self.queue.something.notify_one();
    }
}

impl WriteQueue {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }
}

impl Work {
    fn may_write(&self) -> Result<(), JournalError> {
        match &self.broken {
            Some(why) => Err(JournalError::Broken(why.clone())),
            None if self.is_closed => Err(JournalError::Closed),
            None => Ok(()),
        }
    }

    fn has_something(&self) -> bool {
        !self.waiting.is_empty() || self.start_anew || self.is_closed
    }
}

fn run(queue: &WriteQueue, files: &Files, arrived: &Notify) {
    loop {
        let mut work = queue.work();
        while !work.has_something() {
            queue.something.wait(&mut work);
        }
        let bytes = std::mem::take(&mut work.bytes);
        let waiting = std::mem::take(&mut work.waiting);
        let start_anew = std::mem::take(&mut work.start_anew);
        let is_last = work.is_closed;
        let broken = work.broken.clone();
        drop(work);
        if !waiting.is_empty() {
            let answer = match broken {
                Some(why) => Err(JournalError::Broken(why)),
                None => append(queue, files, &bytes),
            };
            arrived.notify_one();
            for tell in waiting {
                // A caller that has stopped waiting is ignored; its lines are kept all the same.
                let _ = tell.send(answer.clone());
            }
        } else if start_anew {
            if let Err(error) = files.empty() {
                tracing::warn!(%error, "cannot delete an old journal file");
            }
        } else if is_last {
            return;
        }
    }
}

fn append(queue: &WriteQueue, files: &Files, bytes: &[u8]) -> Result<(), JournalError> {
    match files.append(bytes) {
        Ok(()) => Ok(()),
        Err(AppendError::Write(error)) => {
            tracing::error!(%error, "cannot write the journal");
            files.close_present();
            Err(JournalError::Write(error.to_string()))
        }
        Err(AppendError::Sync(error)) => {
            tracing::error!(%error, "cannot sync the journal; no more lines are accepted until a restart");
            queue.work().broken = Some(error.to_string());
            Err(JournalError::Unknown(error.to_string()))
        }
    }
}
