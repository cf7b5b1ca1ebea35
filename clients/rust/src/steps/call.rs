//! A step: runs once, and its result is kept.

use super::{Turn, begin, check_running, decode, keep};
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
type Start<'a, T> = Box<dyn FnOnce(Duration) -> Working<'a, T> + Send + 'a>;

/// Step of a run, made by [`Context::step`](crate::Context::step). Await it.
// The types of the function are erased here, and the future has no bounds: handlers with several steps at once
// would not be `Send` otherwise, as far as the compiler can tell.
#[must_use = "a step runs when it is awaited"]
pub struct Step<'a, T> {
    start: Option<Start<'a, T>>,
    pause: Duration,
    working: Option<Working<'a, T>>,
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> Step<'a, T> {
    /// Step with this number of further tries. The function returns `None` when it cannot be called again.
    pub(crate) fn new<F, Fut, E>(run: Arc<Run>, turn: Turn, tries: u32, function: F) -> Step<'a, T>
    where
        F: FnMut() -> Option<Fut> + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        E: Into<BoxError> + 'a,
    {
        let start: Start<'a, T> =
            Box::new(move |pause| Box::pin(work(run, turn, function, Tries { left: tries, pause })));
        Step { start: Some(start), pause: BACKOFF, working: None }
    }
}

impl<T> Step<'_, T> {
    /// Pause before the first further try, doubled before each next one; 100 ms unless given.
    pub fn backoff(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }
}

impl<T> Future for Step<'_, T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Polling<'_>) -> Poll<Self::Output> {
        let step = self.get_mut();
        if let Some(start) = step.start.take() {
            step.working = Some(start(step.pause));
        }
        match &mut step.working {
            Some(working) => working.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

/// Further tries of a step in the same run.
#[derive(Clone, Copy)]
struct Tries {
    left: u32,
    pause: Duration,
}

async fn work<F, Fut, T, E>(run: Arc<Run>, turn: Turn, function: F, tries: Tries) -> Result<T, Error>
where
    F: FnMut() -> Option<Fut> + Send,
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
    let value = attempt(&run, &name, function, tries).await?;
    let result = serde_json::value::to_raw_value(&value)
        .map_err(|source| Error::Value { what: format!("the result of step {name}"), source })?;
    match keep(&run, NewStep { name: name.clone(), result, started_at }).await? {
        None => Ok(value),
        Some(earlier) => decode(&name, Some(&earlier)),
    }
}

/// Runs the function, again after errors while tries are left.
async fn attempt<F, Fut, T, E>(run: &Run, name: &str, mut function: F, mut tries: Tries) -> Result<T, Error>
where
    F: FnMut() -> Option<Fut> + Send,
    Fut: Future<Output = Result<T, E>> + Send,
    T: Send,
    E: Into<BoxError>,
{
    loop {
        check_running(run)?;
        let Some(trying) = function() else { return Err(Error::Suspended) };
        let source: BoxError = match trying.await {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        let failed = HandlerError { error: source, class: None };
        let may_repeat = !run.is_suspended()
            && matches!(
                Settlement::of(&failed, run.is_cancelled()),
                Settlement::Fail { retry: RetryWish::Policy, .. }
            );
        if tries.left == 0 || !may_repeat {
            return Err(Error::Step { name: name.to_owned(), source: failed.error });
        }
        tracing::debug!(job.id = run.job.id, error = %failed.error, "step {name} failed; trying again");
        tokio::time::sleep(tries.pause).await;
        tries = Tries { left: tries.left - 1, pause: (tries.pause * 2).min(BACKOFF_MAX) };
    }
}
