//! Pushes and the handles of pushed jobs.

use crate::app::Windlass;
use crate::backend::Backend;
use crate::error::Error;
use crate::random;
use crate::sql::SqlPush;
use crate::task::Task;
use crate::wire::{JobResult, NewJob, Options, keep_completed, ms, ms_since_1970};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Prefix of the tag with the W3C trace context.
pub(crate) const TRACEPARENT: &str = "traceparent=";
/// Jobs per call.
const BATCH_MAX: usize = 1_000;
/// Bytes of payloads per call, well below the limit of the server on bodies.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Longest wait of one call for a result.
const WAIT: Duration = Duration::from_secs(30);

/// Push of jobs of one task, with options. Made by [`Task::with`], [`Task::delay`] and [`Task::at`].
#[must_use = "finish with `push` or `push_many`"]
pub struct Push<A, R> {
    task: Task<A, R>,
    options: Options,
    idempotency_key: Option<String>,
    parent: Option<u64>,
}

impl<A: Serialize, R: DeserializeOwned> Push<A, R> {
    pub(crate) fn new(task: Task<A, R>) -> Self {
        let options = (*task.options).clone();
        Push { task, options, idempotency_key: None, parent: None }
    }

    /// Earliest run, from now.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay_ms = Some(ms(delay));
        self.options.run_at = None;
        self
    }

    /// Earliest run.
    pub fn at(mut self, at: SystemTime) -> Self {
        self.options.run_at = Some(ms_since_1970(at));
        self.options.delay_ms = None;
        self
    }

    /// Queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = Some(queue.into());
        self
    }

    /// Priority; smaller numbers run first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = Some(priority);
        self
    }

    /// Key that makes the push safe to repeat, also by another process: a second push with the key creates no
    /// job. Without it the library makes a key for each push. Applies to [`Push::push`] alone.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Second id of the job.
    pub fn alias(mut self, alias: impl Into<String>) -> Self {
        self.options.alias = Some(alias.into());
        self
    }

    /// Adds a tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.options.tags.push(tag.into());
        self
    }

    /// W3C trace context that travels with the job; read by [`Context::traceparent`](crate::Context::traceparent).
    pub fn traceparent(self, traceparent: &str) -> Self {
        self.tag(format!("{TRACEPARENT}{traceparent}"))
    }

    /// Retention after completion.
    pub fn keep(mut self, for_: Duration) -> Self {
        self.options.keep = Some(keep_completed(for_));
        self
    }

    /// Makes the job a child of a running job.
    pub fn parent(mut self, id: u64) -> Self {
        self.parent = Some(id);
        self
    }

    /// Pushes a job with these options.
    ///
    /// # Errors
    /// As for [`Task::push`].
    pub async fn push(self, payload: &A) -> Result<JobHandle<R>, Error> {
        let job = self.job(payload)?;
        let mut handles = send(&self.task.app, vec![job]).await?;
        handles.pop().ok_or_else(|| Error::Answer("no id for the pushed job".to_owned()))
    }

    /// Pushes many jobs with these options.
    ///
    /// # Errors
    /// As for [`Task::push_many`].
    pub async fn push_many<'a>(
        mut self,
        payloads: impl IntoIterator<Item = &'a A>,
    ) -> Result<Vec<JobHandle<R>>, Error>
    where
        A: 'a,
    {
        self.idempotency_key = None;
        let jobs = payloads.into_iter().map(|payload| self.job(payload));
        let mut jobs = jobs.collect::<Result<Vec<NewJob>, Error>>()?;
        let mut handles = Vec::with_capacity(jobs.len());
        while !jobs.is_empty() {
            let rest = jobs.split_off(batch_len(&jobs));
            handles.extend(send(&self.task.app, std::mem::replace(&mut jobs, rest)).await?);
        }
        Ok(handles)
    }

    /// Statement and parameters that push this job with the caller's own PostgreSQL transaction.
    ///
    /// # Errors
    /// If the payload cannot be written as JSON, or the job has a parent, which a SQL push cannot have.
    pub fn sql(&self, payload: &A) -> Result<SqlPush, Error> {
        if self.parent.is_some() {
            return Err(Error::Setting("a job pushed from SQL cannot have a parent".to_owned()));
        }
        SqlPush::new(self.job(payload)?)
    }

    pub(crate) fn job(&self, payload: &A) -> Result<NewJob, Error> {
        let mut options = self.options.clone();
        #[cfg(feature = "opentelemetry")]
        if !options.tags.iter().any(|tag| tag.starts_with(TRACEPARENT)) {
            options.tags.extend(crate::otel::current().map(|of| format!("{TRACEPARENT}{of}")));
        }
        if let Some(key) = &self.task.unique {
            options.unique = Some(Value::String(format!("{}:{}", self.task.name, key(payload))));
        }
        Ok(NewJob {
            name: self.task.name.to_string(),
            payload: raw(&format!("the payload of {}", self.task.name), payload)?,
            options,
            idempotency_key: Some(self.idempotency_key.clone().unwrap_or_else(random::key)),
            parent: self.parent,
            repeat: None,
        })
    }
}

/// Number of jobs in the next call, at least one.
fn batch_len(jobs: &[NewJob]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&NewJob| {
        bytes += job.payload.get().len();
        bytes <= BATCH_BYTES_MAX
    };
    jobs.iter().take(BATCH_MAX).take_while(fits).count().max(1)
}

async fn send<R>(app: &Windlass, jobs: Vec<NewJob>) -> Result<Vec<JobHandle<R>>, Error> {
    let backend = app.backend();
    let answer = backend.push(&jobs).await?;
    if answer.ids.len() != jobs.len() {
        return Err(Error::Answer(format!("{} ids for {} jobs", answer.ids.len(), jobs.len())));
    }
    let existing = answer.existing;
    let handle = |id| JobHandle { is_new: !existing.contains(&id), ..JobHandle::new(app, id) };
    Ok(answer.ids.into_iter().map(handle).collect())
}

/// Value as JSON text.
pub(crate) fn raw(what: &str, value: &(impl Serialize + ?Sized)) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(value).map_err(|source| Error::Value { what: what.to_owned(), source })
}

/// Handle of a job with a result of type `R`.
pub struct JobHandle<R> {
    app: Windlass,
    id: u64,
    is_new: bool,
    result: PhantomData<fn() -> R>,
}

impl<R> JobHandle<R> {
    pub(crate) fn new(app: &Windlass, id: u64) -> JobHandle<R> {
        JobHandle { app: app.clone(), id, is_new: false, result: PhantomData }
    }

    /// Id of the job.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True if the push created the job; false if an earlier job has the unique key or the idempotency key.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// State of the job, such as `ready` or `completed`.
    ///
    /// # Errors
    /// If there is no such job, or the server is unavailable.
    pub async fn state(&self) -> Result<String, Error> {
        Ok(self.backend().result(self.id, Duration::ZERO).await?.state)
    }

    /// Cancels the job. A running one is told so with its next heartbeat.
    ///
    /// # Errors
    /// If there is no such job, or it is settled.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.backend().act(self.id, "cancel").await
    }

    /// Makes the job ready again, with its attempts counted from zero. Not repeated after a lost answer: the job
    /// may have completed meanwhile.
    ///
    /// # Errors
    /// If there is no such job, or it is running. After [`Error::Unreachable`] it is unknown whether the call took
    /// effect.
    pub async fn retry(&self) -> Result<(), Error> {
        self.backend().act(self.id, "retry").await
    }

    /// Makes the job ready again, from this step: the step and the steps kept after it run again. Not repeated after
    /// a lost answer, as for [`JobHandle::retry`].
    ///
    /// # Errors
    /// If there is no such job or step, or the job is running.
    pub async fn retry_from(&self, step: &str) -> Result<(), Error> {
        self.backend().retry_from(self.id, step).await
    }

    /// Sends a signal to the job. True if the job waited for it; otherwise the signal is kept until it does. Not
    /// repeated after a lost answer: a second signal would end a second wait.
    ///
    /// # Errors
    /// If there is no such job, or it is settled. After [`Error::Unreachable`] it is unknown whether the call took
    /// effect.
    pub async fn signal<P: Serialize + ?Sized>(&self, name: &str, payload: &P) -> Result<bool, Error> {
        self.backend().signal(self.id, name, &raw("the payload of the signal", payload)?).await
    }

    fn backend(&self) -> Backend {
        self.app.backend()
    }
}

impl<R: DeserializeOwned> JobHandle<R> {
    /// Waits until the job completes. Returns its result.
    ///
    /// # Errors
    /// [`Error::NotCompleted`] if the job failed or was cancelled; [`Error::NotFound`] if it is gone.
    pub async fn wait(&self) -> Result<R, Error> {
        loop {
            if let Some(ended) = self.wait_once(WAIT).await? {
                return ended.decode();
            }
        }
    }

    /// Waits until the job completes; `None` if that takes longer than `within`.
    ///
    /// # Errors
    /// As for [`JobHandle::wait`].
    pub async fn wait_within(&self, within: Duration) -> Result<Option<R>, Error> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(ended) = self.wait_once(left.min(WAIT)).await? {
                return ended.decode().map(Some);
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    async fn wait_once(&self, wait: Duration) -> Result<Option<JobResult>, Error> {
        let job = self.backend().result(self.id, wait).await?;
        Ok(Some(job).filter(JobResult::is_settled))
    }
}

impl JobResult {
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled" | "terminated")
    }

    /// Result of a completed job; otherwise its failure.
    pub(crate) fn decode<R: DeserializeOwned>(self) -> Result<R, Error> {
        if self.state != "completed" {
            let JobResult { id, state, class, message, .. } = self;
            return Err(Error::NotCompleted { id, state, class, message });
        }
        let text = self.result.as_deref().map_or("null", RawValue::get);
        serde_json::from_str(text)
            .map_err(|source| Error::Value { what: format!("the result of job {}", self.id), source })
    }
}
