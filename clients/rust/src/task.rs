//! Tasks: a name, a handler, and the rules for its jobs.

use crate::app::Windlass;
use crate::context::Context;
use crate::error::{BoxError, Error};
use crate::outcome::{Fail, HandlerError};
use crate::push::{JobHandle, Push};
use crate::run::Running;
use crate::steps::OnChange;
use crate::wire::{NewJob, Options, keep_completed, ms};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) type Handler = Arc<dyn Fn(Context) -> Running + Send + Sync>;

/// Delay before the next attempt of a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// No delay.
    None,
    /// The same delay each time.
    Fixed(Duration),
    /// Delay that doubles with each failure.
    Exponential {
        /// First delay.
        base: Duration,
        /// Longest delay.
        cap: Duration,
    },
}

impl Backoff {
    fn to_json(self) -> Value {
        match self {
            Backoff::None => json!("none"),
            Backoff::Fixed(delay) => json!({"fixed_ms": ms(delay)}),
            Backoff::Exponential { base, cap } => json!({"base_ms": ms(base), "cap_ms": ms(cap)}),
        }
    }
}

/// Task as the worker knows it.
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) handler: Handler,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) version: u32,
    pub(crate) on_change: OnChange,
    /// Job of the schedule, for a task with a repeat rule.
    pub(crate) schedule: Option<NewJob>,
}

pub(crate) type UniqueKey<A> = Arc<dyn Fn(&A) -> String + Send + Sync>;

/// Builder of a task; made by [`Windlass::task`] and [`Windlass::declare`].
#[must_use = "finish with `register`"]
pub struct TaskBuilder<A, R> {
    app: Windlass,
    name: String,
    handler: Option<Handler>,
    options: Options,
    attempts: Option<u32>,
    backoff: Option<Backoff>,
    timeout: Option<Duration>,
    unique: Option<UniqueKey<A>>,
    version: u32,
    on_change: OnChange,
    repeat: Option<String>,
    types: PhantomData<fn(A) -> R>,
}

/// Task whose jobs can be pushed. `A` is the type of the payload, `R` of the result. Cheap to clone.
pub struct Task<A, R> {
    pub(crate) app: Windlass,
    pub(crate) name: Arc<str>,
    pub(crate) options: Arc<Options>,
    pub(crate) unique: Option<UniqueKey<A>>,
    types: PhantomData<fn(A) -> R>,
}

impl<A, R> Clone for Task<A, R> {
    fn clone(&self) -> Self {
        Task {
            app: self.app.clone(),
            name: Arc::clone(&self.name),
            options: Arc::clone(&self.options),
            unique: self.unique.clone(),
            types: PhantomData,
        }
    }
}

/// Job that a run starts as its child; made by [`Task::call`] for [`Context::all`].
#[must_use = "pass it to `Context::all`"]
pub struct Call<R> {
    pub(crate) job: Result<NewJob, Error>,
    result: PhantomData<fn() -> R>,
}

impl<A, R> TaskBuilder<A, R> {
    pub(crate) fn new(app: &Windlass, name: &str, handler: Option<Handler>) -> Self {
        TaskBuilder {
            app: app.clone(),
            name: name.to_owned(),
            handler,
            options: Options::default(),
            attempts: None,
            backoff: None,
            timeout: None,
            unique: None,
            version: 0,
            on_change: OnChange::default(),
            repeat: None,
            types: PhantomData,
        }
    }

    /// Queue of its jobs; `default` unless given.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = Some(queue.into());
        self
    }

    /// Attempts in total, the first included; 10 unless given.
    pub fn retry(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Delay before the next attempt; exponential from one second unless given.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Longest run. A handler that exceeds it is dropped at its next `.await`; the attempt has failed, with the
    /// class `Timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Length of the lease, which heartbeats renew; 30 seconds unless given. A job of a dead worker is run again
    /// after this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease_ms = Some(ms(lease));
        self
    }

    /// Priority; smaller numbers run first; 0 unless given.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = Some(priority);
        self
    }

    /// Unique key of a job, made from its payload: while a job of this task with the same key is not settled, a
    /// second push creates no job and returns the first.
    pub fn unique(mut self, key: impl Fn(&A) -> String + Send + Sync + 'static) -> Self {
        self.unique = Some(Arc::new(key));
        self
    }

    /// Retention of completed jobs.
    pub fn keep(mut self, for_: Duration) -> Self {
        self.options.keep = Some(keep_completed(for_));
        self
    }

    /// Adds a tag to its jobs.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.options.tags.push(tag.into());
        self
    }

    /// Version of the handler's steps, from 1. It is kept with the first step of a job;
    /// [`Context::version`] returns the kept one.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Effect of kept steps that the handler does not ask for any more.
    pub fn on_change(mut self, on_change: OnChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Runs the task by this cron rule in this time zone, with the payload `null`. A worker creates the schedule
    /// when it starts; a second worker finds it.
    pub fn cron(mut self, rule: &str, time_zone: &str) -> Self {
        self.repeat = Some(match time_zone {
            "" => rule.to_owned(),
            zone => format!("TZ={zone} {rule}"),
        });
        self
    }

    /// Adds the task to the application. A second task with the same name replaces the first.
    pub fn register(mut self) -> Task<A, R> {
        self.options.retry = match (self.attempts, self.backoff) {
            (None, None) => None,
            (Some(attempts), None) => Some(json!(attempts)),
            (None, Some(backoff)) => Some(json!({"backoff": backoff.to_json()})),
            (Some(attempts), Some(backoff)) => {
                Some(json!({"max_attempts": attempts, "backoff": backoff.to_json()}))
            }
        };
        if let Some(handler) = self.handler.clone() {
            let schedule = self.schedule();
            self.app.add(Registered {
                name: self.name.clone(),
                queue: self.options.queue.clone().unwrap_or_else(|| "default".to_owned()),
                handler,
                timeout: self.timeout,
                lease: self.options.lease_ms.map(Duration::from_millis),
                version: self.version,
                on_change: self.on_change,
                schedule,
            });
        }
        Task {
            app: self.app,
            name: self.name.into(),
            options: Arc::new(self.options),
            unique: self.unique,
            types: PhantomData,
        }
    }

    fn schedule(&self) -> Option<NewJob> {
        let repeat = self.repeat.clone()?;
        let mut options = self.options.clone();
        options.unique = Some(json!({"key": format!("cron:{}", self.name), "on_conflict": "update"}));
        Some(NewJob {
            name: self.name.clone(),
            payload: crate::wire::null(),
            options,
            idempotency_key: None,
            parent: None,
            repeat: Some(repeat),
        })
    }
}

/// Erases the types of a handler.
pub(crate) fn handler<A, R, E, F, Fut>(handle: F) -> Handler
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
    E: Into<BoxError> + Send + 'static,
    F: Fn(A, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
{
    let handle = Arc::new(handle);
    Arc::new(move |ctx: Context| {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            // A retry would fail to decode the same payload again.
            let payload: A = serde_json::from_str(ctx.payload.get()).map_err(|why| {
                HandlerError::of(
                    Fail::new(format!("the payload does not match {}: {why}", ctx.name)).class("Payload"),
                )
            })?;
            let result = handle(payload, ctx).await.map_err(HandlerError::of)?;
            serde_json::value::to_raw_value(&result).map_err(|why| {
                HandlerError::of(Fail::new(format!("cannot write the result as JSON: {why}")).class("Result"))
            })
        })
    })
}

impl<A: Serialize, R: DeserializeOwned> Task<A, R> {
    /// Name of the task.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Pushes a job. Returns once the job is stored.
    ///
    /// The push carries an idempotency key and is repeated for up to 30 seconds while the server is unavailable:
    /// a lost answer makes no second job.
    ///
    /// # Errors
    /// If the job is refused, or the server stays unavailable.
    pub async fn push(&self, payload: &A) -> Result<JobHandle<R>, Error> {
        self.with().push(payload).await
    }

    /// Pushes many jobs, in batches that are each stored completely or not at all.
    ///
    /// # Errors
    /// As for [`Task::push`]. Batches before the refused one are stored.
    pub async fn push_many<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a A>,
    ) -> Result<Vec<JobHandle<R>>, Error>
    where
        A: 'a,
    {
        self.with().push_many(payloads).await
    }

    /// Push with options for this job.
    pub fn with(&self) -> Push<A, R> {
        Push::new(self.clone())
    }

    /// Push of a job that runs after this time.
    pub fn delay(&self, delay: Duration) -> Push<A, R> {
        self.with().delay(delay)
    }

    /// Push of a job that runs at this time.
    pub fn at(&self, at: SystemTime) -> Push<A, R> {
        self.with().at(at)
    }

    /// Job for [`Context::all`].
    pub fn call(&self, payload: &A) -> Call<R> {
        Call { job: self.with().job(payload), result: PhantomData }
    }

    /// Handle of an existing job of this task.
    #[must_use]
    pub fn job(&self, id: u64) -> JobHandle<R> {
        self.app.job(id)
    }
}
