//! The calls to the server: those of pushers, and those that workers make.

use super::error::Error;
use super::http::{Ask, Http};
use super::wire::{self, Enqueued, NewWorker, Registered};
use ::http::Method;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long the server may take to answer what it can answer at once.
const WITHIN: Duration = Duration::from_secs(10);
/// The longest the server waits in one call.
const POLL_S_MAX: u64 = 300;

/// Enqueues jobs and asks for their ends. Cheap to clone; connections are kept and shared.
#[derive(Clone)]
pub struct Client {
    http: Arc<Http>,
}

/// A job to be enqueued.
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
    /// Of this kind, with this argument, which has to be a map or a struct with named fields.
    pub fn new(name: &'a str, argument: A) -> NewJob<'a, A> {
        NewJob { name, argument, priority: None, max_retry: None, keep_result: false, timeout: None }
    }

    /// Smaller ones first; 0 unless told otherwise.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        NewJob { priority: Some(priority), ..self }
    }

    /// How often it is tried again after its first attempt; 10 unless told otherwise.
    #[must_use]
    pub fn max_retry(self, max_retry: u32) -> Self {
        NewJob { max_retry: Some(max_retry), ..self }
    }

    /// The result is kept for one read.
    #[must_use]
    pub fn keep_result(self) -> Self {
        NewJob { keep_result: true, ..self }
    }

    /// How long an attempt may take, in whole seconds, at least one; 30 unless told otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        NewJob { timeout: Some(timeout.as_secs().max(1)), ..self }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Waits for its first attempt.
    Queued,
    /// A worker has it.
    Running,
    /// Has failed, and waits for its next attempt.
    Retrying,
    /// Has failed for good.
    Error,
    /// Is done.
    Done,
}

impl Status {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Status::Error | Status::Done)
    }
}

/// What the server says of a job, with a result of type `R`.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct JobView<R> {
    /// Its id.
    pub job_id: String,
    /// Where it stands.
    pub status: Status,
    /// The last worker that had it.
    pub worker_id: Option<String>,
    /// Retries so far.
    pub retry_count: u32,
    /// The result, once, if it was to be kept.
    // Without a bound on `R` of its own, an absent result is no error.
    #[serde(default = "nothing")]
    pub result: Option<R>,
    /// What the worker said when it failed.
    pub message: Option<String>,
    /// The constraint that holds it now.
    pub held_by: Option<String>,
}

fn nothing<R>() -> Option<R> {
    None
}

impl Client {
    /// For the server at this address, such as `http://127.0.0.1:7373/jq`. Nothing is called yet.
    ///
    /// # Errors
    /// If that is no address.
    pub fn new(url: &str) -> Result<Client, Error> {
        Ok(Client { http: Arc::new(Http::new(url, None)?) })
    }

    /// The same, with a token.
    ///
    /// # Errors
    /// If that is no address, or the token has characters that no token has.
    pub fn with_token(url: &str, token: &str) -> Result<Client, Error> {
        Ok(Client { http: Arc::new(Http::new(url, Some(token))?) })
    }

    /// Enqueues a job; answers with its id once it is kept.
    ///
    /// # Errors
    /// If it is refused, or there is no answer: then it may or may not be there.
    pub async fn enqueue<A: Serialize>(&self, job: &NewJob<'_, A>) -> Result<String, Error> {
        let body = rmp_serde::to_vec_named(job)?;
        let answer = self.call(Method::POST, "/job", None, body.into(), WITHIN).await?;
        Ok(wire::read::<Enqueued>(&answer)?.job_id)
    }

    /// How a job is. A result that was kept is handed out and then gone.
    ///
    /// # Errors
    /// If there is no such job ([`Error::is_not_found`]), or its result is not an `R`.
    pub async fn job<R: DeserializeOwned>(&self, id: &str) -> Result<JobView<R>, Error> {
        let answer = self.call(Method::GET, &job_path(id)?, None, Bytes::new(), WITHIN).await?;
        wire::read(&answer)
    }

    /// Waits for the end of a job; `None` if that takes longer.
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
            // Whole seconds, rounded up, so that the last one is not asked for over and over.
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

    /// Removes a job that is queued or waits for a retry.
    ///
    /// # Errors
    /// If there is none, or it runs or has ended (409).
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

    /// No more jobs; what runs is still answered for.
    pub(super) async fn drain(&self, worker: &str) -> Result<(), Error> {
        self.call(Method::DELETE, "/worker?drain=true", Some(worker), Bytes::new(), WITHIN).await.map(drop)
    }

    /// What still runs has failed, and is tried again elsewhere.
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
        self.http.call(Ask { method, path, worker, body, within }).await
    }
}

/// Ids are given by the server; one with other characters is none of its.
fn job_path(id: &str) -> Result<String, Error> {
    let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match is_plain {
        true => Ok(format!("/job/{id}")),
        false => Err(Error::Setting(format!("{id:?} is no job's id"))),
    }
}
