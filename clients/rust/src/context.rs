//! Handler's view of its run.

use crate::error::{BoxError, Error};
use crate::push::TRACEPARENT;
use crate::run::{Job, Run};
use crate::steps::{self, Step, Until, Wait};
use crate::task::Call;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Run of a job, as its handler sees it: the [`Job`], progress and log, cancellation, and durable steps. Cheap to
/// clone.
///
/// # Rules of durable steps
///
/// 1. The handler runs from its first line after every wait and after every failed attempt (*replay*).
/// 2. A step whose result is kept is not run again: the call returns the kept result.
/// 3. A step runs at least once: a worker that dies between the effect and the keeping of the result leaves an
///    effect that the next run repeats. Give external calls an idempotency key made of `ctx.id` and the step.
/// 4. Steps are found by name; a name used twice is `charge`, `charge#2`, … by the order of the calls. So the
///    order must depend only on the payload and on results of steps.
/// 5. Time, random numbers, and everything read from outside belong into a step.
/// 6. Waits hold no worker. [`Error::Suspended`] leaves the handler with `?`; do not catch it. To deal with a failure,
///    match [`Error::Step`] and [`Error::ChildFailed`], and nothing else.
/// 7. Code outside of steps may run several times.
/// 8. An error of a step leaves the handler unless the handler deals with it; the step is not kept. The job is
///    retried by its own rules, and goes on after its kept steps.
/// 9. Kept steps that the changed code does not ask for are reported ([`OnChange`](crate::OnChange)). Branch on
///    [`Context::version`] where old jobs must go the old way.
/// 10. To undo effects, catch the error of a later step and run a step that compensates, then return
///     [`Fail`](crate::Fail).
#[derive(Clone)]
pub struct Context {
    run: Arc<Run>,
}

impl Deref for Context {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.run.job
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Context").field(&self.run.job).finish()
    }
}

impl Context {
    pub(crate) fn new(run: Arc<Run>) -> Context {
        Context { run }
    }

    /// Job of this run.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.run.job
    }

    /// Reports progress, 0 to 100 percent, with a note; an empty note leaves the earlier one. It is sent in the
    /// background, only the newest if several follow quickly.
    pub fn progress(&self, percent: u8, note: impl Into<String>) {
        self.run.note_progress(percent, Some(note.into()).filter(|note| !note.is_empty()));
    }

    /// Adds a line to the log of the job. It is sent in the background.
    pub fn log(&self, text: impl Into<String>) {
        self.run.note_line(text.into());
    }

    /// True if the job was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.run.is_cancelled()
    }

    /// Completes when the job is cancelled. End the handler then, with [`Error::Cancelled`] for example: a
    /// handler that goes on is dropped after five seconds.
    ///
    /// ```no_run
    /// # use windlass_client::{Context, Error};
    /// # async fn render() -> u32 { 1 }
    /// async fn handler(frame: u32, ctx: Context) -> Result<u32, Error> {
    ///     tokio::select! {
    ///         size = render() => Ok(size),
    ///         () = ctx.cancelled() => Err(Error::Cancelled),
    ///     }
    /// }
    /// ```
    pub async fn cancelled(&self) {
        self.run.cancelled().await;
    }

    /// W3C trace context that travels with the job.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.run.job.tags.iter().find_map(|tag| tag.strip_prefix(TRACEPARENT))
    }

    /// Runs a function once and keeps its result: later runs of the job get the kept result. The result is kept
    /// before the call returns; steps that finish together are kept in one call.
    ///
    /// ```no_run
    /// # use windlass_client::{BoxError, Context};
    /// # async fn charge_card(card: &str, key: String) -> Result<String, BoxError> { Ok(key) }
    /// async fn order(card: String, ctx: Context) -> Result<String, BoxError> {
    ///     let key = format!("order-{}", ctx.id);
    ///     let receipt = ctx.step("charge", || charge_card(&card, key)).await?;
    ///     Ok(receipt)
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of the function as [`Error::Step`], or the reason why the result could not be kept.
    pub fn step<'a, F, Fut, T, E>(&self, name: &str, function: F) -> Step<'a, T>
    where
        F: FnOnce() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<BoxError> + 'a,
    {
        let turn = self.run.steps().next(name);
        let mut function = Some(function);
        Step::new(Arc::clone(&self.run), turn, 0, move || function.take().map(|function| function()))
    }

    /// Like [`Context::step`], with further tries in the same run if the function returns an error. After the last
    /// one the error leaves the step, and the retry rules of the job hold. A [`Fail`](crate::Fail),
    /// [`Retry`](crate::Retry) or [`Snooze`](crate::Snooze) leaves the step at once. [`Step::backoff`] sets the
    /// pause between tries.
    ///
    /// # Errors
    /// As for [`Context::step`].
    pub fn step_retry<'a, F, Fut, T, E>(&self, name: &str, tries: u32, mut function: F) -> Step<'a, T>
    where
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<BoxError> + 'a,
    {
        let turn = self.run.steps().next(name);
        Step::new(Arc::clone(&self.run), turn, tries, move || Some(function()))
    }

    /// Suspends the run for this time; no worker is held meanwhile.
    ///
    /// # Errors
    /// [`Error::Suspended`], which the handler passes on.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let turn = self.run.steps().next("sleep");
        steps::sleep(Arc::clone(&self.run), turn, Until::After(time))
    }

    /// Suspends the run until this time.
    ///
    /// # Errors
    /// [`Error::Suspended`], which the handler passes on.
    pub fn sleep_until(&self, at: SystemTime) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let turn = self.run.steps().next("sleep");
        steps::sleep(Arc::clone(&self.run), turn, Until::At(at))
    }

    /// Suspends the run until the job gets this signal: `Some` payload, or `None` after
    /// [`Wait::timeout`]. A signal that came before the wait is used at once.
    ///
    /// ```no_run
    /// # use windlass_client::{Context, Error}; use std::time::Duration;
    /// # async fn handler(ctx: Context) -> Result<(), Error> {
    /// let week = Duration::from_secs(7 * 86_400);
    /// let approved: Option<bool> = ctx.wait_for("approval").timeout(week).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Suspended`], which the handler passes on; [`Error::Value`] if the payload is no `T`.
    pub fn wait_for<T: DeserializeOwned + 'static>(&self, signal: &str) -> Wait<T> {
        let turn = self.run.steps().next(&format!("wait:{signal}"));
        Wait::new(Arc::clone(&self.run), turn, signal.to_owned())
    }

    /// Runs the calls as children of this job, on any worker, and waits for all of them. Returns their results in
    /// order.
    ///
    /// # Errors
    /// [`Error::Suspended`], which the handler passes on; [`Error::ChildFailed`] if a child failed.
    pub fn all<R: DeserializeOwned + Send>(
        &self,
        calls: impl IntoIterator<Item = Call<R>>,
    ) -> impl Future<Output = Result<Vec<R>, Error>> + Send {
        let turn = self.run.steps().next("all");
        steps::all(Arc::clone(&self.run), turn, calls.into_iter().collect())
    }

    /// Like [`Context::all`], with the failure of each child as a value.
    ///
    /// # Errors
    /// [`Error::Suspended`], which the handler passes on.
    pub fn all_settled<R: DeserializeOwned + Send>(
        &self,
        calls: impl IntoIterator<Item = Call<R>>,
    ) -> impl Future<Output = Result<Vec<Result<R, Error>>, Error>> + Send {
        let turn = self.run.steps().next("all");
        steps::all_settled(Arc::clone(&self.run), turn, calls.into_iter().collect())
    }

    /// Version of the task at the first step of this job; the present version if no step is kept yet; 0 if the
    /// task had none.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.run.steps().version()
    }
}
