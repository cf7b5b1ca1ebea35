//! Waits without a worker: for a time, or for a signal.

use super::{Turn, begin, decode, keep_version};
use crate::error::Error;
use crate::outcome::Suspension;
use crate::run::Run;
use crate::wire::{ms, ms_since_1970};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};
use std::time::{Duration, SystemTime};

/// End of a sleep.
pub(crate) enum Until {
    After(Duration),
    At(SystemTime),
}

/// Suspends the run until the time has come.
pub(crate) async fn sleep(run: Arc<Run>, turn: Turn, until: Until) -> Result<(), Error> {
    if turn.kept.is_some() {
        return Ok(());
    }
    begin(&run, &turn.name)?;
    keep_version(&run).await?;
    let wait = Suspension { step: turn.name, ..Suspension::default() };
    Err(run.suspend(match until {
        Until::After(delay) => Suspension { delay_ms: Some(ms(delay)), ..wait },
        Until::At(at) => Suspension { until_ms: Some(ms_since_1970(at)), ..wait },
    }))
}

type Waiting<T> = Pin<Box<dyn Future<Output = Result<Option<T>, Error>> + Send>>;

/// Wait for a signal, made by [`Context::wait_for`](crate::Context::wait_for). Await it: `Some` payload of the
/// signal, or `None` if the timeout came first.
#[must_use = "a wait begins when it is awaited"]
pub struct Wait<T> {
    run: Arc<Run>,
    start: Option<(Turn, String)>,
    timeout: Option<Duration>,
    waiting: Option<Waiting<T>>,
    payload: PhantomData<fn() -> T>,
}

impl<T> Wait<T> {
    pub(crate) fn new(run: Arc<Run>, turn: Turn, signal: String) -> Wait<T> {
        Wait { run, start: Some((turn, signal)), timeout: None, waiting: None, payload: PhantomData }
    }

    /// Longest wait; without it the run waits for as long as it takes.
    pub fn timeout(mut self, timeout: Duration) -> Wait<T> {
        self.timeout = Some(timeout);
        self
    }
}

impl<T: DeserializeOwned + 'static> Future for Wait<T> {
    type Output = Result<Option<T>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Polling<'_>) -> Poll<Self::Output> {
        let wait = self.get_mut();
        if let Some((turn, signal)) = wait.start.take() {
            let waiting = wait_for(Arc::clone(&wait.run), turn, signal, wait.timeout);
            wait.waiting = Some(Box::pin(waiting));
        }
        match &mut wait.waiting {
            Some(waiting) => waiting.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

async fn wait_for<T: DeserializeOwned>(
    run: Arc<Run>,
    turn: Turn,
    signal: String,
    timeout: Option<Duration>,
) -> Result<Option<T>, Error> {
    if let Some(kept) = turn.kept {
        return match kept.timed_out {
            true => Ok(None),
            false => decode(&turn.name, kept.result.as_deref()).map(Some),
        };
    }
    begin(&run, &turn.name)?;
    keep_version(&run).await?;
    Err(run.suspend(Suspension {
        step: turn.name,
        delay_ms: timeout.map(ms),
        signal: Some(signal),
        ..Suspension::default()
    }))
}
