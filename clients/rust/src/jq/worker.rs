//! The worker: registers, gives signs of life, and leaves in good order.

use super::client::Client;
use super::error::Error;
use super::handler::{self, Failure, Handler, Job};
use super::serve;
use super::shared::{Counts, Registration, Shared, keep_alive};
use super::signals::told_to_stop;
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

/// Places at most: what the server accepts.
const MAX_JOBS_MAX: u32 = 100_000;

/// How a worker is to be; made by [`Worker::builder`].
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

/// A worker that has registered and runs jobs. Dropped, it stops at once: what runs is dropped, and the server notices
/// within ten seconds. [`Worker::shutdown`] is the better way.
pub struct Worker {
    shared: Arc<Shared>,
    address: SocketAddr,
    grace: Duration,
    tasks: Vec<JoinHandle<()>>,
}

/// What a worker has done in its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs whose handlers succeeded, as the server knows.
    pub done: u64,
    /// Jobs whose handlers failed, as the server knows.
    pub failed: u64,
    /// Jobs that were dropped while they ran, or whose end the server did not want to hear any more.
    pub dropped: u64,
}

impl Builder {
    /// Shown to people; several workers may have the same. `worker` unless told otherwise.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many jobs run at once; one per processor unless told otherwise.
    #[must_use]
    pub fn max_jobs(mut self, max_jobs: u32) -> Self {
        self.max_jobs = max_jobs;
        self
    }

    /// The token that the server asks for.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Where to listen for the server's calls; `127.0.0.1` on any free port unless told otherwise. The server calls back
    /// at the address this worker calls from; if it cannot, say [`Builder::url`].
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Where the server is to call this worker, such as `http://worker-3:6401`.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// How long running jobs have to end when the worker shuts down; 30 seconds unless told otherwise. What is not done by
    /// then is dropped, and tried again elsewhere.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long to wait at the start for a server that is not there yet; 30 seconds unless told otherwise. Later the worker
    /// waits as long as it takes.
    #[must_use]
    pub fn register_within(mut self, register_within: Duration) -> Self {
        self.register_within = register_within;
        self
    }

    /// Runs jobs of this name, with arguments and results that serde knows. An argument that cannot be read as an `A` is a
    /// failure that is not tried again. Of two handlers for one name the later one counts.
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

    /// Runs jobs of this name, with argument and result as the bytes of one MessagePack value: what serde has no word for
    /// stays as it is.
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

    /// Listens, registers, and takes jobs from then on.
    ///
    /// # Errors
    /// If a setting cannot be meant, the address cannot be had, the server refuses the worker, or is not there in time.
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

    /// Starts, works until the process is told to stop (Ctrl-C, or SIGTERM where there is one), and shuts down in good
    /// order. Told a second time, it does not wait any more.
    ///
    /// # Errors
    /// As for [`Builder::start`].
    pub async fn run(self) -> Result<Summary, Error> {
        let mut told = told_to_stop().map_err(|e| Error::Setting(format!("listening for signals: {e}")))?;
        let worker = self.start().await?;
        told.wait().await;
        tracing::info!("ending what runs; once more to stop at once");
        let mut now = false;
        let summary = worker.shut_down_unless(async { told.wait().await }, &mut now).await;
        if now {
            tracing::warn!("stopped before everything was done");
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
    /// A worker for the server at this address, such as `http://127.0.0.1:7373/jq`.
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

    /// Its id at the server; `None` while it is not registered because the server let it go.
    #[must_use]
    pub fn id(&self) -> Option<String> {
        self.shared.registration.borrow().id.as_deref().map(str::to_owned)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Jobs it has now: those that run, and those whose end the server has not heard yet.
    #[must_use]
    pub fn running(&self) -> usize {
        *self.shared.active.borrow()
    }

    /// What it has done so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.shared.counts.summary()
    }

    /// Takes no more jobs, ends those it has within the grace time, and leaves. What is not done by then is dropped, and
    /// the server gives it to others at once.
    pub async fn shutdown(self) -> Summary {
        self.shut_down_unless(std::future::pending(), &mut false).await
    }

    /// The same, but at once when `hurry` is there.
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
            self.shared.break_off().await;
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
