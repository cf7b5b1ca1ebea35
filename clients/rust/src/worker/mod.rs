//! Worker: claims jobs, runs their handlers, and reports the outcomes.

mod beat;
mod pump;
mod settle;

use crate::api::Api;
use crate::app::Windlass;
use crate::error::Error;
use crate::hooks::Hooks;
use crate::run::{Run, lock};
use crate::signals::stop_signals;
use crate::task::Registered;
use crate::wire::{ClaimAsk, SettleEntry, ms};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Most jobs at once; the server hands out no more in one claim.
const CONCURRENCY_MAX: usize = 10_000;
/// Most names and queues that the server accepts in a claim.
const NAMES_MAX: usize = 1_000;
/// Lease of a worker whose tasks name none.
const LEASE: Duration = Duration::from_secs(30);
/// Shortest timeout of a heartbeat or a report.
const WITHIN_MIN: Duration = Duration::from_secs(1);
/// Time for the release of jobs after the grace.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// Builder of a [`Worker`]; made by [`Windlass::worker`].
#[must_use = "finish with `run` or `start`"]
pub struct WorkerBuilder {
    app: Windlass,
    name: String,
    concurrency: usize,
    lease: Option<Duration>,
    grace: Duration,
    cancel_grace: Duration,
    poll: Duration,
    queues: Vec<String>,
}

/// Running worker. On drop it stops at once: its jobs run again when their leases have expired. Prefer
/// [`Worker::shutdown`].
pub struct Worker {
    shared: Arc<Shared>,
    grace: Duration,
    pump: JoinHandle<Result<(), Error>>,
    beats: Vec<JoinHandle<()>>,
}

/// State of a worker.
pub(crate) struct Shared {
    app: Windlass,
    api: Arc<Api>,
    hooks: Hooks,
    tasks: HashMap<String, Arc<Registered>>,
    claim: ClaimAsk,
    concurrency: usize,
    cancel_grace: Duration,
    /// Runs by job id and lease token.
    running: Mutex<HashMap<(u64, u64), Arc<Run>>>,
    /// Reports that the server does not have yet.
    reports: Mutex<Vec<Arc<SettleEntry>>>,
    /// Notified when a run has ended.
    ended: Notify,
    /// Notified when a run has progress or log lines.
    noted: Arc<Notify>,
    stop: watch::Sender<bool>,
}

impl WorkerBuilder {
    pub(crate) fn new(app: &Windlass) -> WorkerBuilder {
        WorkerBuilder {
            app: app.clone(),
            name: default_name(),
            concurrency: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            lease: None,
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            poll: Duration::from_secs(20),
            queues: Vec::new(),
        }
    }

    /// Name shown to people; host and process id unless given.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Jobs that run at once; by default one per processor.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Length of the leases. Heartbeats renew them every third of it. By default the shortest lease of the tasks,
    /// or 30 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Time that running jobs have to finish during a shutdown; 30 seconds unless given. Jobs that still run then
    /// are released: another worker gets them, and the run does not count as an attempt.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Time that the handler of a cancelled job has to end; five seconds unless given. Then it is dropped.
    pub fn cancel_grace(mut self, cancel_grace: Duration) -> Self {
        self.cancel_grace = cancel_grace;
        self
    }

    /// Longest wait of one claim; 20 seconds unless given.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Queues to claim from, instead of the queues of the tasks.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the worker in the background.
    ///
    /// # Errors
    /// If no task has a handler, or a setting is invalid. Must be called in a tokio runtime.
    pub fn start(self) -> Result<Worker, Error> {
        let grace = self.grace;
        let shared = Arc::new(self.shared()?);
        let pump = tokio::spawn(pump::pump(Arc::clone(&shared)));
        let beats = vec![
            tokio::spawn(beat::heartbeats(Arc::clone(&shared))),
            tokio::spawn(beat::notes(Arc::clone(&shared))),
        ];
        Ok(Worker { shared, grace, pump, beats })
    }

    /// Starts the worker, and works until Ctrl-C or SIGTERM. See [`Windlass::work`].
    ///
    /// # Errors
    /// As for [`Windlass::work`].
    pub async fn run(self) -> Result<(), Error> {
        let mut told = stop_signals().map_err(|e| Error::Setting(format!("cannot handle signals: {e}")))?;
        let mut worker = self.start()?;
        tokio::select! {
            ended = &mut worker.pump => return joined(ended),
            () = told.wait() => {}
        }
        tracing::info!(
            "shutting down: waiting for running jobs; send the signal again to release them at once"
        );
        worker.shut_down(told.wait()).await
    }

    fn shared(self) -> Result<Shared, Error> {
        let tasks = self.app.all_registered();
        if tasks.is_empty() {
            return Err(Error::Setting("a worker needs at least one task with a handler".to_owned()));
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return Err(Error::Setting(format!("concurrency must be from 1 to {CONCURRENCY_MAX}")));
        }
        let mut queues = self.queues;
        if queues.is_empty() {
            queues = tasks.iter().map(|task| task.queue.clone()).collect();
        }
        queues.sort_unstable();
        queues.dedup();
        if tasks.len().max(queues.len()) > NAMES_MAX {
            return Err(Error::Setting(format!("a worker has at most {NAMES_MAX} tasks and queues")));
        }
        let lease = self.lease.or_else(|| tasks.iter().filter_map(|task| task.lease).min());
        let claim = ClaimAsk {
            names: tasks.iter().map(|task| task.name.clone()).collect(),
            queues,
            limit: 0,
            wait_ms: ms(self.poll),
            lease_ms: ms(lease.unwrap_or(LEASE)),
            worker: self.name,
        };
        Ok(Shared {
            api: Arc::clone(self.app.api()),
            hooks: self.app.hooks(),
            app: self.app,
            tasks: tasks.into_iter().map(|task| (task.name.clone(), task)).collect(),
            claim,
            concurrency: self.concurrency,
            cancel_grace: self.cancel_grace,
            running: Mutex::default(),
            reports: Mutex::default(),
            ended: Notify::new(),
            noted: Arc::default(),
            stop: watch::Sender::new(false),
        })
    }
}

impl Worker {
    /// Number of running jobs.
    #[must_use]
    pub fn running(&self) -> usize {
        lock(&self.shared.running).len()
    }

    /// Claims no more jobs, waits up to the grace for running ones, and releases the others.
    ///
    /// # Errors
    /// If the server had refused the worker.
    pub async fn shutdown(mut self) -> Result<(), Error> {
        self.shut_down(std::future::pending()).await
    }

    /// Like [`Worker::shutdown`], but stops waiting when `hurry` completes.
    async fn shut_down(&mut self, hurry: impl Future<Output = ()>) -> Result<(), Error> {
        self.shared.stop.send_replace(true);
        tokio::select! {
            ended = &mut self.pump => return joined(ended),
            () = tokio::time::sleep(self.grace) => {}
            () = hurry => {}
        }
        let left = self.shared.runs();
        tracing::warn!("{} jobs did not finish in time and are released", left.len());
        left.iter().for_each(|run| run.stop());
        match tokio::time::timeout(RELEASE_WITHIN, &mut self.pump).await {
            Ok(ended) => joined(ended),
            Err(_) => {
                tracing::warn!("stopped before all outcomes were reported; their leases expire");
                Ok(())
            }
        }
    }
}

fn joined(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|error| Err(Error::Setting(format!("the worker stopped: {error}"))))
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pump.abort();
        self.beats.iter().for_each(JoinHandle::abort);
        self.shared.runs().iter().for_each(|run| run.lose());
    }
}

impl Shared {
    fn runs(&self) -> Vec<Arc<Run>> {
        lock(&self.running).values().cloned().collect()
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.claim.lease_ms)
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Host and process id.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => std::env::var("HOSTNAME").unwrap_or_else(|_| "worker".to_owned()),
        host => host.to_owned(),
    };
    format!("{host}:{}", std::process::id())
}
