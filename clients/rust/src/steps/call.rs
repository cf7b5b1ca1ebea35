//! A step: runs once, and its result is kept.

use super::{Turn, begin, decode, keep};
use crate::error::{BoxError, Error};
use crate::outcome::{HandlerError, RetryWish, Settlement};
use crate::run::{Run, now_ms};
use crate::wire::NewStep;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};
use std::time::Duration;

/// Pause before the first further try of a step.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

type Working<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Step of a run, made by [`Context::step`](crate::Context::step). Await it.
#[must_use = "a step runs when it is awaited"]
pub struct Step<'a, F, T> {
    run: Arc<Run>,
    start: Option<(Turn, Box<F>)>,
    /// Copies the function for a further try.
    copy: Option<fn(&F) -> F>,
    tries: Tries,
    working: Option<Working<'a, T>>,
}

/// Further tries of a step in the same run.
#[derive(Clone, Copy)]
struct Tries {
    left: u32,
    pause: Duration,
}

impl<F, T> Step<'_, F, T> {
    pub(crate) fn new(run: Arc<Run>, turn: Turn, function: F) -> Self {
        let tries = Tries { left: 0, pause: BACKOFF };
        Step { run, start: Some((turn, Box::new(function))), copy: None, tries, working: None }
    }

    /// Further tries in the same run, if the function returns an error. After the last one the error leaves the
    /// step, and the retry rules of the job hold. A [`Fail`](crate::Fail), [`Retry`](crate::Retry) or
    /// [`Snooze`](crate::Snooze) leaves the step at once.
    pub fn retry(mut self, times: u32) -> Self
    where
        F: Clone,
    {
        self.copy = Some(F::clone);
        self.tries.left = times;
        self
    }

    /// Pause before the first further try, doubled before each next one; 100 ms unless given.
    pub fn backoff(mut self, pause: Duration) -> Self {
        self.tries.pause = pause;
        self
    }
}

impl<'a, F, Fut, T, E> Future for Step<'a, F, T>
where
    F: FnOnce() -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
    T: Serialize + DeserializeOwned + Send + 'a,
    E: Into<BoxError> + 'a,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Polling<'_>) -> Poll<Self::Output> {
        let step = self.get_mut();
        if let Some((turn, function)) = step.start.take() {
            let run = Arc::clone(&step.run);
            step.working = Some(Box::pin(work(run, turn, function, step.copy, step.tries)));
        }
        match &mut step.working {
            Some(working) => working.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

async fn work<F, Fut, T, E>(
    run: Arc<Run>,
    turn: Turn,
    function: Box<F>,
    copy: Option<fn(&F) -> F>,
    tries: Tries,
) -> Result<T, Error>
where
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
    T: Serialize + DeserializeOwned + Send,
    E: Into<BoxError>,
{
    let Turn { name, kept } = turn;
    if let Some(kept) = kept {
        return decode(&name, kept.result.as_deref());
    }
    begin(&run, &name)?;
    let started_at = Some(now_ms());
    let value = attempt(&run, &name, function, copy, tries).await?;
    let result = serde_json::value::to_raw_value(&value)
        .map_err(|source| Error::Value { what: format!("the result of step {name}"), source })?;
    match keep(&run, NewStep { name: name.clone(), result, started_at }).await? {
        None => Ok(value),
        Some(earlier) => decode(&name, Some(&earlier)),
    }
}

/// Runs the function, again after errors while tries are left.
async fn attempt<F, Fut, T, E>(
    run: &Run,
    name: &str,
    function: Box<F>,
    copy: Option<fn(&F) -> F>,
    mut tries: Tries,
) -> Result<T, Error>
where
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
    T: Send,
    E: Into<BoxError>,
{
    let mut function = *function;
    loop {
        let spare = copy.filter(|_| tries.left > 0).map(|copy| copy(&function));
        let source: BoxError = match function().await {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        let failed = HandlerError { error: source, class: None };
        let may_repeat = !run.is_suspended()
            && matches!(
                Settlement::of(&failed, run.is_cancelled()),
                Settlement::Fail { retry: RetryWish::Policy, .. }
            );
        let Some(next) = spare.filter(|_| may_repeat) else {
            return Err(Error::Step { name: name.to_owned(), source: failed.error });
        };
        tracing::debug!(job.id = run.job.id, error = %failed.error, "step {name} failed; trying again");
        tokio::time::sleep(tries.pause).await;
        tries = Tries { left: tries.left - 1, pause: (tries.pause * 2).min(BACKOFF_MAX) };
        function = next;
    }
}
