//! Worker: registration, heartbeats and graceful shutdown.

use super::client::Client;
use super::error::Error;
use super::handler::{self, Failure, Handler, Job};
use super::serve;
use super::shared::{Counts, Registration, Shared, keep_alive};
use crate::signals::stop_signals;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Most slots that the server accepts.
const MAX_JOBS_MAX: u32 = 100_000;

/// Builder of a [`Worker`]; made by [`Worker::builder`].
pub struct Builder {
    server: String,
    token: Option<String>,
    name: String,
    max_jobs: u32,
    listen: SocketAddr,
    url: Option<String>,
    grace: Duration,
    register_within: Duration,
    handlers: HashMap<String, Handler>,
}

/// Registered worker that runs jobs. On drop it stops at once: running jobs are dropped, and the server
/// notices within ten seconds. Prefer [`Worker::shutdown`].
pub struct Worker {
    shared: Arc<Shared>,
    address: SocketAddr,
    grace: Duration,
    tasks: Vec<JoinHandle<()>>,
}

/// Counts of a worker's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs whose success was reported to the server.
    pub done: u64,
    /// Jobs whose failure was reported to the server.
    pub failed: u64,
    /// Jobs that were dropped while running, or whose report the server did not accept.
    pub dropped: u64,
}

impl Builder {
    /// Display name; need not be unique. The default is `worker`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Jobs that run at once; by default one per processor.
    #[must_use]
    pub fn max_jobs(mut self, max_jobs: u32) -> Self {
        self.max_jobs = max_jobs;
        self
    }

    /// Access token for the server.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Address to listen on for the server's calls; by default `127.0.0.1` on any free port. The server calls
    /// back at the address from which this worker connects; if that does not work, set [`Builder::url`].
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Address at which the server calls this worker, such as `http://worker-3:6401`.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Time that running jobs have to finish during a shutdown; the default is 30 seconds. Jobs still running
    /// then are dropped, and retried elsewhere.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Time to wait at startup for an unavailable server; the default is 30 seconds. Later the worker waits
    /// without a limit.
    #[must_use]
    pub fn register_within(mut self, register_within: Duration) -> Self {
        self.register_within = register_within;
        self
    }

    /// Registers a handler with argument and result as serde types. An argument that cannot be decoded as an
    /// `A` is a failure that is not retried. A second handler for the same name replaces the first.
    #[must_use]
    pub fn handle<A, R, F, Fut>(mut self, name: impl Into<String>, handle: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Fn(Job<A>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.handlers.insert(name.into(), handler::typed(handle));
        self
    }

    /// Registers a handler with argument and result as the bytes of one MessagePack value, for values that
    /// serde cannot represent.
    #[must_use]
    pub fn handle_raw<R, F, Fut>(mut self, name: impl Into<String>, handle: F) -> Self
    where
        R: Into<Bytes>,
        F: Fn(Job<Bytes>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.handlers.insert(name.into(), handler::raw(handle));
        self
    }

    /// Starts to listen, registers, and accepts jobs from then on.
    ///
    /// # Errors
    /// If a setting is invalid, the listener cannot be opened, or the server refuses the worker or is
    /// unavailable for too long.
    pub async fn start(self) -> Result<Worker, Error> {
        self.check()?;
        let client = match &self.token {
            Some(token) => Client::with_token(&self.server, token)?,
            None => Client::new(&self.server)?,
        };
        let listen = |source| Error::Listen { address: self.listen, source };
        let listener = TcpListener::bind(self.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            client,
            handlers: self.handlers,
            places: Arc::new(Semaphore::new(self.max_jobs as usize)),
            registration: watch::Sender::default(),
            counts: Counts::default(),
            is_leaving: AtomicBool::new(false),
            active: watch::Sender::new(0),
            name: self.name,
            max_jobs: self.max_jobs,
            url: self.url,
            port: address.port(),
        });
        let accepting = tokio::spawn(serve::accept(listener, Arc::clone(&shared)));
        let mut worker = Worker { shared, address, grace: self.grace, tasks: vec![accepting] };
        worker.shared.register(Some(Instant::now() + self.register_within)).await?;
        worker.tasks.push(tokio::spawn(keep_alive(Arc::clone(&worker.shared))));
        Ok(worker)
    }

    /// Starts the worker, runs until the process receives a signal (Ctrl-C, or SIGTERM where it exists), and
    /// shuts down gracefully. A second signal ends the wait for running jobs.
    ///
    /// # Errors
    /// See [`Builder::start`].
    pub async fn run(self) -> Result<Summary, Error> {
        let mut told = stop_signals().map_err(|e| Error::Setting(format!("cannot handle signals: {e}")))?;
        let worker = self.start().await?;
        told.wait().await;
        tracing::info!("shutting down: waiting for running jobs; send the signal again to exit at once");
        let mut now = false;
        let summary = worker.shut_down_unless(async { told.wait().await }, &mut now).await;
        if now {
            tracing::warn!("stopped before all jobs were finished");
        }
        Ok(summary)
    }

    fn check(&self) -> Result<(), Error> {
        if self.handlers.is_empty() {
            return Err(Error::Setting("a worker needs at least one handler".into()));
        }
        if self.name.is_empty() {
            return Err(Error::Setting("a worker needs a name".into()));
        }
        match self.max_jobs {
            1..=MAX_JOBS_MAX => Ok(()),
            _ => Err(Error::Setting(format!("max_jobs must be from 1 to {MAX_JOBS_MAX}"))),
        }
    }
}

impl Worker {
    /// Builder of a worker for the server at this address, such as `http://127.0.0.1:7373/jq`.
    #[must_use]
    pub fn builder(server: impl Into<String>) -> Builder {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Builder {
            server: server.into(),
            token: None,
            name: "worker".into(),
            max_jobs: u32::try_from(processors).unwrap_or(1),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            url: None,
            grace: Duration::from_secs(30),
            register_within: Duration::from_secs(30),
            handlers: HashMap::new(),
        }
    }

    /// Id at the server; `None` while not registered because the server has removed the worker.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.shared.registration.borrow().id.as_deref().map(str::to_owned)
    }

    /// Address on which the worker listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of running jobs, including those whose result is not reported yet.
    #[must_use]
    pub fn running(&self) -> usize {
        *self.shared.active.borrow()
    }

    /// Counts so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.shared.counts.summary()
    }

    /// Accepts no more jobs, waits up to the grace time for running ones, and deregisters. Jobs still running
    /// then are dropped, and the server gives them to other workers at once.
    pub async fn shutdown(self) -> Summary {
        self.shut_down_unless(std::future::pending(), &mut false).await
    }

    /// Like [`Worker::shutdown`], but stops waiting when `hurry` completes.
    async fn shut_down_unless(self, hurry: impl Future<Output = ()>, hurried: &mut bool) -> Summary {
        let until = Instant::now() + self.grace;
        self.shared.is_leaving.store(true, Ordering::SeqCst);
        let good_order = async {
            let told = self.shared.drain(until).await;
            let mut active = self.shared.active.subscribe();
            let idle = tokio::time::timeout_at(until, active.wait_for(|active| *active == 0)).await;
            told && idle.is_ok()
        };
        let is_clean = tokio::select! {
            is_clean = good_order => is_clean,
            () = hurry => {
                *hurried = true;
                false
            }
        };
        if !is_clean {
            self.shared.abort_running().await;
        }
        self.summary()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.shared.registration.send_replace(Registration::default());
    }
}
