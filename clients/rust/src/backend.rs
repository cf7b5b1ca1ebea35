//! Receiver of the calls of producers and runs: a server, or the memory of a test.

use crate::api::{Api, Repeat, WITHIN, encode};
use crate::error::Error;
use crate::testing::TestStore;
use crate::wire::{JobResult, NewJob, NewStep, PushAnswer, StepAnswer, StepsAnswer, StepsAsk};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub(crate) enum Backend {
    Server(Arc<Api>),
    Test(Arc<TestStore>),
}

/// Reply that is not read further.
#[derive(Deserialize)]
struct Ignored {}

impl Backend {
    pub(crate) async fn push(&self, jobs: &[NewJob]) -> Result<PushAnswer, Error> {
        match self {
            Backend::Server(api) => api.push(jobs).await,
            Backend::Test(test) => Box::pin(Arc::clone(test).push(jobs)).await,
        }
    }

    /// State of a job. Waits for its end: at most a minute at a server; in a test, until nothing is due.
    pub(crate) async fn result(&self, id: u64, wait: Duration) -> Result<JobResult, Error> {
        match self {
            Backend::Server(api) => api.result(id, wait).await,
            Backend::Test(test) => Box::pin(Arc::clone(test).result(id, wait)).await,
        }
    }

    pub(crate) async fn children(&self, id: u64) -> Result<Vec<JobResult>, Error> {
        match self {
            Backend::Server(api) => api.children(id).await,
            Backend::Test(test) => Ok(test.children(id)),
        }
    }

    /// Keeps steps; one attempt.
    pub(crate) async fn keep_steps(
        &self,
        id: u64,
        token: u64,
        steps: &[NewStep],
    ) -> Result<Vec<StepAnswer>, Error> {
        match self {
            Backend::Server(api) => {
                let path = format!("/api/v1/jobs/{id}/steps");
                let answer: StepsAnswer = api.post(&path, &StepsAsk { token, steps }, WITHIN).await?;
                Ok(answer.steps)
            }
            Backend::Test(test) => test.keep_steps(id, token, steps),
        }
    }

    pub(crate) async fn signal(&self, id: u64, name: &str, payload: &RawValue) -> Result<bool, Error> {
        #[derive(Deserialize)]
        struct Signalled {
            #[serde(default)]
            woken: bool,
        }
        match self {
            Backend::Server(api) => {
                let verb = format!("signal/{}", crate::api::segment(name));
                let answer: Signalled = api.act(id, &verb, encode(payload)?, Repeat::Unsent).await?;
                Ok(answer.woken)
            }
            Backend::Test(test) => test.signal(id, name, payload),
        }
    }

    /// Retries a job from a step: the step and the steps kept after it are dropped.
    pub(crate) async fn retry_from(&self, id: u64, step: &str) -> Result<(), Error> {
        match self {
            Backend::Server(api) => {
                let body = encode(&serde_json::json!({"from_step": step}))?;
                let _: Ignored = api.act(id, "retry", body, Repeat::Unsent).await?;
                Ok(())
            }
            Backend::Test(test) => test.retry_from(id, step),
        }
    }

    /// Sends `POST /api/v1/jobs/{id}/{verb}` without a body: `cancel`, `retry` or `run`.
    pub(crate) async fn act(&self, id: u64, verb: &'static str) -> Result<(), Error> {
        match self {
            Backend::Server(api) => {
                // A second retry would run a job again that has completed meanwhile.
                let repeat = if verb == "retry" { Repeat::Unsent } else { Repeat::Always };
                let _: Ignored = api.act(id, verb, bytes::Bytes::new(), repeat).await?;
                Ok(())
            }
            Backend::Test(test) => test.act(id, verb),
        }
    }
}
