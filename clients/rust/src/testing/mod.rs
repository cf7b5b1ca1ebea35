//! Tests of an application without a server: jobs are collected in memory, and run when the test says so.

mod entry;
mod store;

pub(crate) use store::TestStore;

use crate::app::Windlass;
use crate::error::Error;
use crate::task::Task;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Memory in place of the server, made by [`Windlass::testing`]. Dropping it ends the test mode of the
/// application.
///
/// ```
/// use std::time::Duration;
/// use windlass_client::{Context, Error, Windlass};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let app = Windlass::from_env()?;
/// let test = app.testing();
/// let greet = app.task("greet", |name: String, ctx: Context| async move {
///     ctx.sleep(Duration::from_secs(3 * 86_400)).await?;
///     Ok::<_, Error>(format!("hello {name}"))
/// }).register();
///
/// let job = greet.push(&"ann".to_owned()).await?;
/// test.assert_pushed(&greet, |name| name == "ann");
/// test.run().await;
/// assert_eq!(test.job(job.id()).state, "suspended");
/// test.advance(Duration::from_secs(3 * 86_400)).await;
/// assert_eq!(job.wait().await?, "hello ann");
/// # Ok(())
/// # }
/// ```
pub struct Testing {
    app: Windlass,
    store: Arc<TestStore>,
}

/// Job in a test.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TestJob {
    /// Id of the job.
    pub id: u64,
    /// Name of its task.
    pub name: String,
    /// State, with the words of the API.
    pub state: String,
    /// Payload.
    pub payload: Value,
    /// Result, once it is completed.
    pub result: Option<Value>,
    /// Counted attempts.
    pub attempts: u32,
    /// Class of its last error.
    pub class: Option<String>,
    /// Message of its last error.
    pub message: Option<String>,
    /// Time of its next run, if it has one.
    pub run_at: Option<SystemTime>,
    /// Names and results of its kept steps, in the order kept.
    pub steps: Vec<(String, Value)>,
    /// Lines of its log.
    pub log: Vec<String>,
    /// Last reported progress: percent and note.
    pub progress: Option<(u8, Option<String>)>,
}

impl Testing {
    pub(crate) fn new(app: Windlass, store: Arc<TestStore>) -> Testing {
        Testing { app, store }
    }

    /// Runs each job as soon as it is pushed, instead of collecting jobs. Delayed jobs wait for
    /// [`Testing::advance`].
    #[must_use]
    pub fn inline(self) -> Testing {
        self.store.set_inline();
        self
    }

    /// Runs all jobs that are due, and the jobs that they push. Returns the number of runs.
    ///
    /// # Panics
    /// After 100,000 runs: a job keeps pushing itself.
    pub async fn run(&self) -> usize {
        Arc::clone(&self.store).run_due().await
    }

    /// Moves the time forward. Jobs, retries and waits that become due on the way run at their times, in order.
    /// Returns the number of runs.
    ///
    /// # Panics
    /// As for [`Testing::run`].
    pub async fn advance(&self, time: Duration) -> usize {
        Arc::clone(&self.store).advance(time).await
    }

    /// Present time of the test.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.store.now())
    }

    /// Sends a signal to a job, and runs what becomes due.
    ///
    /// # Errors
    /// If there is no such job, or it is settled.
    pub async fn signal<P: Serialize + ?Sized>(
        &self,
        id: u64,
        name: &str,
        payload: &P,
    ) -> Result<bool, Error> {
        let woken = self.app.job::<Value>(id).signal(name, payload).await?;
        self.run().await;
        Ok(woken)
    }

    /// All jobs, in the order of the pushes.
    #[must_use]
    pub fn jobs(&self) -> Vec<TestJob> {
        self.store.views()
    }

    /// Job with this id.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn job(&self, id: u64) -> TestJob {
        self.jobs().into_iter().find(|job| job.id == id).unwrap_or_else(|| panic!("there is no job {id}"))
    }

    /// Payloads of the jobs of a task, in the order of the pushes.
    ///
    /// # Panics
    /// If a payload is no `A`.
    #[must_use]
    pub fn pushed<A: DeserializeOwned, R>(&self, task: &Task<A, R>) -> Vec<A> {
        let jobs = self.jobs().into_iter().filter(|job| *job.name == *task.name);
        jobs.map(|job| {
            let id = job.id;
            serde_json::from_value(job.payload).unwrap_or_else(|why| panic!("payload of job {id}: {why}"))
        })
        .collect()
    }

    /// Checks that a job of this task was pushed whose payload fulfils the condition.
    ///
    /// # Panics
    /// If there is none; the message lists the payloads.
    #[track_caller]
    pub fn assert_pushed<A: DeserializeOwned, R>(&self, task: &Task<A, R>, is_wanted: impl Fn(&A) -> bool) {
        let is_there = self.pushed(task).iter().any(is_wanted);
        assert!(is_there, "no such job of {} among {}", task.name, self.list(task));
    }

    /// Checks that no job of this task was pushed.
    ///
    /// # Panics
    /// If there is one.
    #[track_caller]
    pub fn assert_not_pushed<A, R>(&self, task: &Task<A, R>) {
        let list = self.list(task);
        assert!(list == "[]", "jobs of {} were pushed: {list}", task.name);
    }

    fn list<A, R>(&self, task: &Task<A, R>) -> String {
        let jobs = self.jobs().into_iter().filter(|job| *job.name == *task.name);
        Value::from_iter(jobs.map(|job| job.payload)).to_string()
    }
}

impl Drop for Testing {
    fn drop(&mut self) {
        self.app.end_testing(&self.store);
    }
}

impl Debug for Testing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.jobs()).finish()
    }
}
