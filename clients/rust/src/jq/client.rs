//! Calls to the server, by producers and by workers.

use super::error::Error;
use super::wire::{self, Enqueued, NewWorker, Registered};
use crate::http::{Ask, Http};
use ::http::Method;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of calls that the server answers at once.
const WITHIN: Duration = Duration::from_secs(10);
/// Longest wait of one call at the server.
const POLL_S_MAX: u64 = 300;

/// Client that enqueues jobs and waits for their results. Cheap to clone; clones share a connection pool.
#[derive(Clone)]
pub struct Client {
    http: Arc<Http>,
}

/// Job to be enqueued.
#[derive(Clone, Debug, Serialize)]
pub struct NewJob<'a, A> {
    name: &'a str,
    argument: A,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retry: Option<u32>,
    keep_result: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
}

impl<'a, A: Serialize> NewJob<'a, A> {
    /// Job with this name and argument. The argument has to be a map or a struct with named fields.
    pub fn new(name: &'a str, argument: A) -> NewJob<'a, A> {
        NewJob { name, argument, priority: None, max_retry: None, keep_result: false, timeout: None }
    }

    /// Smaller numbers run first; the default is 0.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        NewJob { priority: Some(priority), ..self }
    }

    /// Most retries after the first attempt; the default is 10.
    #[must_use]
    pub fn max_retry(self, max_retry: u32) -> Self {
        NewJob { max_retry: Some(max_retry), ..self }
    }

    /// Keeps the result, for one read.
    #[must_use]
    pub fn keep_result(self) -> Self {
        NewJob { keep_result: true, ..self }
    }

    /// Timeout of an attempt, in whole seconds, at least one; the default is 30.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        NewJob { timeout: Some(timeout.as_secs().max(1)), ..self }
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Waiting for its first attempt.
    Queued,
    /// Running on a worker.
    Running,
    /// Failed, and waiting for its next attempt.
    Retrying,
    /// Failed for good.
    Error,
    /// Finished successfully.
    Done,
}

impl Status {
    /// True if the state will not change any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Status::Error | Status::Done)
    }
}

/// Job as reported by the server, with a result of type `R`.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct JobView<R> {
    /// Id of the job.
    pub job_id: String,
    /// State of the job.
    pub status: Status,
    /// Last worker that ran it.
    pub worker_id: Option<String>,
    /// Retries so far.
    pub retry_count: u32,
    /// Result, delivered once, if it was to be kept.
    // The default avoids a bound on `R`: an absent result is no error.
    #[serde(default = "nothing")]
    pub result: Option<R>,
    /// Error message of the worker.
    pub message: Option<String>,
    /// Constraint that blocks the job now.
    pub held_by: Option<String>,
}

fn nothing<R>() -> Option<R> {
    None
}

impl Client {
    /// Client for the server at this address, such as `http://127.0.0.1:7373/jq`. Makes no call yet.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn new(url: &str) -> Result<Client, Error> {
        Ok(Client { http: Arc::new(Http::new(url, None)?) })
    }

    /// Client with an access token.
    ///
    /// # Errors
    /// If the address is invalid, or the token contains characters that are not allowed in a header.
    pub fn with_token(url: &str, token: &str) -> Result<Client, Error> {
        Ok(Client { http: Arc::new(Http::new(url, Some(token))?) })
    }

    /// Enqueues a job. Returns its id once the job is stored.
    ///
    /// # Errors
    /// If the job is refused, or there is no reply; in that case the job may or may not be stored.
    pub async fn enqueue<A: Serialize>(&self, job: &NewJob<'_, A>) -> Result<String, Error> {
        let body = rmp_serde::to_vec_named(job)?;
        let answer = self.call(Method::POST, "/job", None, body.into(), WITHIN).await?;
        Ok(wire::read::<Enqueued>(&answer)?.job_id)
    }

    /// Returns the state of a job. A stored result is delivered once and then deleted.
    ///
    /// # Errors
    /// If there is no such job ([`Error::is_not_found`]), or its result cannot be decoded as an `R`.
    pub async fn job<R: DeserializeOwned>(&self, id: &str) -> Result<JobView<R>, Error> {
        let answer = self.call(Method::GET, &job_path(id)?, None, Bytes::new(), WITHIN).await?;
        wire::read(&answer)
    }

    /// Waits until a job ends; `None` if that takes longer than `within`.
    ///
    /// # Errors
    /// As for [`Client::job`].
    pub async fn wait<R: DeserializeOwned>(
        &self,
        id: &str,
        within: Duration,
    ) -> Result<Option<JobView<R>>, Error> {
        let until = tokio::time::Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            // Whole seconds, rounded up, so that the last second is not spent on repeated calls.
            let seconds = left.as_millis().div_ceil(1_000).min(POLL_S_MAX.into());
            let path = format!("{}/polling?timeout={seconds}", job_path(id)?);
            let longest = WITHIN + Duration::from_secs(POLL_S_MAX);
            match self.call(Method::GET, &path, None, Bytes::new(), longest).await {
                Ok(answer) => return wire::read(&answer).map(Some),
                Err(Error::Refused { status: 408, .. }) if left.is_zero() || seconds == 0 => return Ok(None),
                Err(Error::Refused { status: 408, .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes a job that is queued or waits for a retry.
    ///
    /// # Errors
    /// If there is no such job, or it is running or has ended (409).
    pub async fn cancel(&self, id: &str) -> Result<(), Error> {
        self.call(Method::DELETE, &job_path(id)?, None, Bytes::new(), WITHIN).await.map(drop)
    }

    pub(super) async fn register(&self, worker: &NewWorker<'_>) -> Result<String, Error> {
        let body = rmp_serde::to_vec_named(worker)?;
        let answer = self.call(Method::POST, "/worker", None, body.into(), WITHIN).await?;
        Ok(wire::read::<Registered>(&answer)?.worker_id)
    }

    pub(super) async fn ping(&self, worker: &str, within: Duration) -> Result<(), Error> {
        self.call(Method::POST, "/worker/ping", Some(worker), Bytes::new(), within).await.map(drop)
    }

    /// Asks the server to send no more jobs; reports on running jobs are still accepted.
    pub(super) async fn drain(&self, worker: &str) -> Result<(), Error> {
        self.call(Method::DELETE, "/worker?drain=true", Some(worker), Bytes::new(), WITHIN).await.map(drop)
    }

    /// Deregisters the worker. Its running jobs fail and are retried elsewhere.
    pub(super) async fn leave(&self, worker: &str) -> Result<(), Error> {
        self.call(Method::DELETE, "/worker", Some(worker), Bytes::new(), WITHIN).await.map(drop)
    }

    pub(super) async fn done(&self, worker: &str, body: Bytes) -> Result<(), Error> {
        self.call(Method::POST, "/done", Some(worker), body, WITHIN).await.map(drop)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        worker: Option<&str>,
        body: Bytes,
        within: Duration,
    ) -> Result<Bytes, Error> {
        let header = worker.map(|worker| (wire::WORKER_ID, worker));
        let ask = Ask { method, path, media: wire::MSGPACK, header, body, within };
        let reply = self.http.call(ask).await?;
        match reply.status {
            200..=299 => Ok(reply.body),
            status => Err(wire::refusal(status, &reply.body)),
        }
    }
}

/// Ids are made by the server; an id with other characters is invalid.
fn job_path(id: &str) -> Result<String, Error> {
    let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match is_plain {
        true => Ok(format!("/job/{id}")),
        false => Err(Error::Setting(format!("{id:?} is not a job id"))),
    }
}
