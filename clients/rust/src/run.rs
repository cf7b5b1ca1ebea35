//! State of one run of a job, shared by its handler, the worker and its steps.

use crate::backend::Backend;
use crate::error::{BoxError, Error};
use crate::outcome::{HandlerError, RetryWish, Settlement, Suspension};
use crate::steps::{Finished, OnChange, StepLog};
use crate::task::Registered;
use crate::wire::{ClaimedJob, ms_since_1970, null};
use serde_json::value::RawValue;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};

/// Lines of a log that wait to be sent; more are dropped, oldest first, as the server keeps no more either.
const LINES_MAX: usize = 1_000;

/// Job whose handler runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job {
    /// Id of the job.
    pub id: u64,
    /// Name of its task.
    pub name: String,
    /// Queue that it came from.
    pub queue: String,
    /// Number of the attempt; 1 for the first.
    pub attempt: u32,
    /// Priority; smaller numbers run first.
    pub priority: i32,
    /// Tags.
    pub tags: Vec<String>,
    /// Payload as JSON. Bytes that are not JSON are a string in base64.
    pub payload: Box<RawValue>,
}

/// Order to end the handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Halt {
    #[default]
    No,
    /// The lease is lost.
    Lost,
    /// The worker stops.
    Stop,
}

/// Progress and log lines that the server does not have yet.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) progress: Option<(u8, Option<String>)>,
    pub(crate) lines: Vec<String>,
}

pub(crate) struct Run {
    pub(crate) job: Job,
    pub(crate) token: u64,
    /// Number of times that steps of the job were dropped to be executed again.
    pub(crate) generation: u32,
    pub(crate) backend: Backend,
    pub(crate) on_change: OnChange,
    /// Wakes the worker to send notes.
    wake: Arc<Notify>,
    cancel: watch::Sender<bool>,
    halt: watch::Sender<Halt>,
    ended: watch::Sender<bool>,
    notes: Mutex<Notes>,
    /// True once the handler has noted progress or a line.
    has_noted: AtomicBool,
    /// Held while notes are sent.
    pub(crate) sending: tokio::sync::Mutex<()>,
    suspension: Mutex<Option<Suspension>>,
    steps: Mutex<StepLog>,
    finished: Mutex<Finished>,
}

impl Run {
    pub(crate) fn new(claimed: ClaimedJob, task: &Registered, backend: Backend, wake: Arc<Notify>) -> Run {
        let payload = match (claimed.payload, claimed.payload_base64) {
            (Some(payload), _) => payload,
            (None, Some(base64)) => serde_json::value::to_raw_value(&base64).unwrap_or_else(|_| null()),
            (None, None) => null(),
        };
        let job = Job {
            id: claimed.id,
            name: claimed.name,
            queue: claimed.queue,
            attempt: claimed.attempt,
            priority: claimed.priority,
            tags: claimed.tags,
            payload,
        };
        Run {
            job,
            token: claimed.token,
            generation: claimed.generation,
            backend,
            on_change: task.on_change,
            wake,
            cancel: watch::Sender::new(false),
            halt: watch::Sender::new(Halt::No),
            ended: watch::Sender::new(false),
            notes: Mutex::default(),
            has_noted: AtomicBool::new(false),
            sending: tokio::sync::Mutex::default(),
            suspension: Mutex::default(),
            steps: Mutex::new(StepLog::new(claimed.steps, task.version)),
            finished: Mutex::default(),
        }
    }

    /// Tells the handler that the job was cancelled.
    pub(crate) fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    pub(crate) async fn cancelled(&self) {
        let mut cancel = self.cancel.subscribe();
        // The sender lives as long as `self`.
        let _ = cancel.wait_for(|is_cancelled| *is_cancelled).await;
    }

    /// Drops the handler without a report.
    pub(crate) fn lose(&self) {
        self.halt.send_replace(Halt::Lost);
    }

    /// Drops the handler and releases the job.
    pub(crate) fn stop(&self) {
        self.halt.send_if_modified(|halt| {
            *halt == Halt::No && {
                *halt = Halt::Stop;
                true
            }
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow() || *self.halt.borrow() != Halt::No
    }

    async fn halted(&self) -> Halt {
        let mut halt = self.halt.subscribe();
        halt.wait_for(|halt| *halt != Halt::No).await.map_or(Halt::Lost, |halt| *halt)
    }

    pub(crate) fn note_progress(&self, percent: u8, note: Option<String>) {
        lock(&self.notes).progress = Some((percent.min(100), note));
        self.wake_sender();
    }

    pub(crate) fn note_line(&self, line: String) {
        let mut notes = lock(&self.notes);
        if notes.lines.len() == LINES_MAX {
            notes.lines.remove(0);
        }
        notes.lines.push(line);
        drop(notes);
        self.wake_sender();
    }

    fn wake_sender(&self) {
        self.has_noted.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    pub(crate) fn has_noted(&self) -> bool {
        self.has_noted.load(Ordering::Relaxed)
    }

    pub(crate) fn take_notes(&self) -> Notes {
        std::mem::take(&mut *lock(&self.notes))
    }

    pub(crate) fn has_notes(&self) -> bool {
        let notes = lock(&self.notes);
        notes.progress.is_some() || !notes.lines.is_empty()
    }

    /// Puts back notes that could not be sent, unless newer ones are there.
    pub(crate) fn put_back(&self, unsent: Notes) {
        let mut notes = lock(&self.notes);
        if notes.progress.is_none() {
            notes.progress = unsent.progress;
        }
        let newer = std::mem::replace(&mut notes.lines, unsent.lines);
        notes.lines.extend(newer);
        notes.lines.truncate(LINES_MAX);
    }

    pub(crate) fn steps(&self) -> MutexGuard<'_, StepLog> {
        lock(&self.steps)
    }

    pub(crate) fn finished(&self) -> MutexGuard<'_, Finished> {
        lock(&self.finished)
    }

    /// Suspends the run: it ends as soon as the handler returns. The first suspension counts.
    pub(crate) fn suspend(&self, suspension: Suspension) -> Error {
        lock(&self.suspension).get_or_insert(suspension);
        Error::Suspended
    }

    pub(crate) fn is_suspended(&self) -> bool {
        lock(&self.suspension).is_some()
    }

    /// Reports kept steps that the handler does not ask for any more.
    ///
    /// # Errors
    /// If the task refuses such changes.
    pub(crate) fn check_change(&self, now: &str) -> Result<(), Error> {
        let Some(message) = self.steps().change(now) else { return Ok(()) };
        if self.on_change == OnChange::Refuse {
            return Err(Error::StepsChanged(message));
        }
        tracing::warn!(job.id = self.job.id, name = %self.job.name, "job {}: {message}", self.job.id);
        self.note_line(format!("warning: {message}"));
        Ok(())
    }

    /// Settlement that follows from the end of the handler.
    fn settlement(&self, ended: Result<Box<RawValue>, HandlerError>) -> Settlement {
        if let Some(suspension) = lock(&self.suspension).take() {
            return Settlement::Suspend(suspension);
        }
        match ended {
            Ok(result) => match self.check_change("the end of the run") {
                Ok(()) => Settlement::Finish(result),
                Err(error) => Settlement::of(&HandlerError::of(error), false),
            },
            Err(failed) => match Settlement::of(&failed, self.is_cancelled()) {
                // The lease is there: the worker stops, and the handler could begin no further step.
                Settlement::Drop if *self.halt.borrow() == Halt::Stop => {
                    Settlement::Release { delay: Duration::ZERO }
                }
                settlement => settlement,
            },
        }
    }
}

/// Future of a handler.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Box<RawValue>, HandlerError>> + Send>>;

/// Runs a handler to its end, or drops it: after its timeout, some time after a cancellation, and when the run
/// is halted.
pub(crate) async fn drive(
    run: &Run,
    handler: Running,
    timeout: Option<Duration>,
    cancel_grace: Duration,
) -> Settlement {
    let ended = tokio::select! {
        biased;
        ended = caught(handler) => run.settlement(ended),
        halt = run.halted() => match halt {
            Halt::Stop => Settlement::Release { delay: Duration::ZERO },
            Halt::Lost | Halt::No => Settlement::Drop,
        },
        () = after(timeout) => {
            let within = timeout.unwrap_or_default();
            let message = format!("the handler did not finish within {} ms", within.as_millis());
            Settlement::failed("Timeout", message, RetryWish::Policy)
        }
        () = async { run.cancelled().await; tokio::time::sleep(cancel_grace).await } => {
            Settlement::Release { delay: Duration::ZERO }
        }
    };
    run.ended.send_replace(true);
    ended
}

async fn after(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Result of a future; a panic is an error.
pub(crate) async fn caught(handler: Running) -> Result<Box<RawValue>, HandlerError> {
    let mut handler = pin!(handler);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(panic) => {
            let message = format!("the handler panicked: {}", panic_message(&*panic));
            let error: BoxError = message.into();
            Poll::Ready(Err(HandlerError { error, class: Some("Panic".to_owned()) }))
        }
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

/// Present time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    ms_since_1970(SystemTime::now())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
