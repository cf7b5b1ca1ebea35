//! Handlers: code submitted by clients, run by the server for each of their jobs.
//!
//! ```text
//!   start(batch) ─▶ run.rs ─┬─ exchange.rs ─▶ context.rs ══ socket ══ guard.rs ─▶ interpreter + shim + code
//!        ▲                  │   (pool.rs: pool of contexts)
//!        │                  ├─ http: call of a URL
//!   next() ◀─ (job, ended) ─┴─ wasi: module in a guest process
//! ```
//!
//! | file | content |
//! |---|---|
//! | `handler.rs`, `outcome.rs`, `settings.rs` | handler definition, verdict on a job, operator's settings |
//! | `run.rs` | a batch from its start to its last outcome |
//! | `pool.rs`, `find.rs` | idle contexts and limits on their number; allocation for a batch |
//! | `booking.rs`, `seats.rs` | reserved slots for batches, and limits per client |
//! | `exchange.rs`, `portions.rs` | a batch in a context: messages, crashes, time limits; portion sizes |
//! | `context.rs`, `place.rs`, `frames.rs`, `pipe.rs` | process, folders, protocol and output of a context |
//! | `http.rs`, `answers.rs`, `wasi.rs` | handlers that run outside contexts |
//! | `isolation.rs` | isolation mechanisms available on this machine |
//! | `guard.rs`, `confine.rs` | guard process of a context, and its confinement |
//! | `calls.rs`, `trees.rs`, `view.rs` | seccomp filters, readable files, namespaces and mounts |
//! | `cgroup.rs` | kernel limits on a whole context, where cgroups are delegated |
//! | `remove.rs` | removal of the folders of contexts |
//! | `shims/` | interpreter side of the protocol, one shim per language |
//! | `output.rs` | parsing of new jobs, statuses and log in a job's output |
//! | `census.rs`, `memory.rs`, `disk.rs` | processes, memory and disk of a context, measured from outside |
//!
//! A context belongs to one client and to one `eid` or job type of that client, so a handler that
//! damages its context harms only its own jobs.

mod answers;
mod booking;
#[cfg(target_os = "linux")]
mod calls;
mod census;
mod cgroup;
mod confine;
mod context;
mod disk;
mod exchange;
mod find;
mod frames;
pub mod guard;
mod handler;
mod http;
mod interpreter;
mod isolation;
mod memory;
mod outcome;
mod output;
mod pipe;
mod place;
mod pool;
mod portions;
pub mod remove;
mod run;
mod seats;
mod settings;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod view;
#[cfg(feature = "wasi")]
mod wasi;

pub use booking::{Booking, CONTEXTS, HTTP, WASI};
#[cfg(feature = "wasi")]
pub(crate) use census::resident_bytes;
pub use handler::{BATCH_MAX, Handler, HandlerOptions, Lang};
pub use isolation::Isolation;
pub use run::Run;
#[cfg(target_os = "linux")]
pub(crate) use settings::own_uid;
pub use settings::{HelperProgram, Interpreters, Network, Settings};

use async_trait::async_trait;
use booking::Hold;
use census::Census;
use cgroup::Cgroups;
use interpreter::Launch;
use outcome::Verdict;
use pool::{Key, Pool};
use run::Drive;
use rustls::ClientConfig;
use seats::Seats;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use windlass_core::handler::Batch;
use windlass_http::{Allowed, Signer};

/// Services that handlers need from the server.
#[async_trait]
pub trait World: Send + Sync + 'static {
    /// Addresses that http handlers may call.
    fn addresses(&self) -> Arc<Allowed>;

    /// Signer of requests to http handlers.
    fn signer(&self) -> Option<Signer> {
        None
    }

    /// TLS configuration for https handlers; the error is a message for the handler's author.
    fn tls(&self) -> Result<Arc<ClientConfig>, String>;

    /// Loads the module of a wasi handler.
    async fn blob(&self, client: &str, address: &str) -> Result<Vec<u8>, BlobError>;
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum BlobError {
    /// The blob does not exist, or the address is invalid.
    #[error("{0}")]
    Missing(String),
    /// The store failed; a retry may succeed.
    #[error("{0}")]
    Trouble(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// No new batches start; running ones may finish.
    Finish,
    Now,
}

/// Handler runner. Cheap to clone; owns all contexts.
#[derive(Clone)]
pub struct Handlers {
    inner: Arc<Inner>,
}

pub struct Inner {
    settings: Settings,
    world: Arc<dyn World>,
    pool: Pool,
    http_pools: http::Pools,
    answers: answers::Budget,
    http_seats: Arc<Seats>,
    #[cfg(feature = "wasi")]
    guests: wasi::Guests,
    wasi_seats: Arc<Seats>,
    /// Notified when a slot becomes free.
    room: Notify,
    census: Arc<Census>,
    isolation: Isolation,
    cgroups: Option<Cgroups>,
    contexts_made: AtomicU64,
    told_confinement: AtomicBool,
    stopping: watch::Sender<Stopping>,
    running: watch::Sender<usize>,
}

impl Handlers {
    /// Creates a runner. Deletes the content of the folder for contexts, which must not be shared.
    pub fn new(settings: Settings, world: Arc<dyn World>) -> io::Result<Handlers> {
        let old = remove::put_aside(&settings.folder)?;
        // Mode 711: contexts with other user ids can enter their folder but cannot list the others.
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&settings.folder)?;
        // Sets the mode regardless of the umask.
        std::fs::set_permissions(&settings.folder, std::fs::Permissions::from_mode(0o711))?;
        let settings = Settings { folder: settings.folder.canonicalize()?, ..settings };
        remove::remove_later(old);
        let isolation = match &settings.isolation {
            Some(isolation) => isolation.clone(),
            None => Isolation::find_out(&settings, &settings.folder),
        };
        let cgroups = Cgroups::prepare().inspect_err(|why| tracing::debug!("no control groups: {why}")).ok();
        let inner = Inner {
            isolation,
            cgroups,
            pool: Pool::new(settings.contexts_max, settings.contexts_per_type, settings.contexts_per_client),
            http_pools: http::Pools::default(),
            answers: answers::Budget::new(settings.answers_bytes_max, settings.answers_bytes_per_client),
            http_seats: Seats::new(HTTP, settings.http_batches_max, settings.http_batches_per_client),
            #[cfg(feature = "wasi")]
            guests: wasi::Guests::default(),
            // No share is kept for other clients: the default is two slots, and long batches are cut.
            wasi_seats: Seats::new(WASI, settings.wasi_batches_max, settings.wasi_batches_max),
            settings,
            world,
            room: Notify::new(),
            census: Arc::default(),
            contexts_made: AtomicU64::new(0),
            told_confinement: AtomicBool::new(false),
            stopping: watch::Sender::new(Stopping::No),
            running: watch::Sender::new(0),
        };
        Ok(Handlers { inner: Arc::new(inner) })
    }

    /// Checks whether the handler can run here; the error is a message for its author. An interpreter may be
    /// installed later, so a failed check is no reason to refuse the handler.
    pub fn check(&self, handler: &Handler) -> Result<(), String> {
        match handler.lang {
            Lang::Http => match http::parse_url(&handler.body)?.is_https() {
                true => self.inner.world.tls().map(drop),
                false => Ok(()),
            },
            Lang::Wasi => self.inner.check_wasi(),
            _ => {
                self.inner.check_isolation()?;
                Launch::find(handler.lang, &self.inner.settings.interpreters).map(drop)
            }
        }
    }

    /// Number of jobs to put into one batch.
    pub fn batch_size(&self, handler: &Handler) -> usize {
        handler.options.batch_size.unwrap_or_else(|| handler.lang.batch_size())
    }

    /// Completes when slots may have become free after this call. Call it, then [`Handlers::book`], then
    /// await it.
    pub fn room(&self) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        let mut notified = Box::pin(async move { inner.room.notified().await });
        // The first poll registers the waiter.
        let waker = std::task::Waker::noop();
        let ready = notified.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready();
        async move {
            if !ready {
                notified.await;
            }
        }
    }

    /// Clients and job types that have an idle context.
    pub fn warm(&self) -> Vec<(String, String)> {
        self.inner.pool.warm()
    }

    /// Runs the batch in its own task when there is room. Errors are reported as outcomes of its jobs.
    pub fn start(&self, batch: Batch<Handler>) -> Run {
        self.start_with(batch, None)
    }

    fn start_with(&self, batch: Batch<Handler>, hold: Option<Hold>) -> Run {
        let (run, mut drive) = run::begin(Arc::clone(&self.inner), batch, hold);
        let under_way = UnderWay::new(Arc::clone(&self.inner));
        tokio::spawn(async move {
            see_through(&mut drive).await;
            if drive.hold.take().is_some() {
                // The batch ended without using its slot.
                drive.inner.room.notify_waiters();
            }
            drop(drive);
            drop(under_way);
        });
        run
    }

    /// Stops accepting batches, gives running ones this long, and kills all contexts.
    pub async fn stop(&self, grace: Duration) {
        self.inner.stopping.send_replace(Stopping::Finish);
        let mut running = self.inner.running.subscribe();
        if tokio::time::timeout(grace, running.wait_for(|count| *count == 0)).await.is_err() {
            self.inner.stopping.send_replace(Stopping::Now);
            let _ = running.wait_for(|count| *count == 0).await;
        }
        for mut context in self.inner.pool.take_idle() {
            context.kill().await;
        }
        self.inner.http_pools.close();
        #[cfg(feature = "wasi")]
        self.inner.guests.end();
    }
}

async fn see_through(drive: &mut Drive) {
    if *drive.inner.stopping.borrow() != Stopping::No {
        return drive.tell_all_unrun("the server is shutting down");
    }
    if drive.batch.handler.options.batch {
        drive.refuse_payloads_with_newlines();
    }
    match drive.batch.handler.lang {
        Lang::Sh | Lang::Node | Lang::Python | Lang::Php => exchange::drive(drive).await,
        Lang::Http => {
            let inner = drive.inner.clone();
            within_limit(drive, &inner.http_seats, http::drive).await;
            inner.room.notify_waiters();
        }
        Lang::Wasi => {
            let inner = drive.inner.clone();
            match inner.check_wasi() {
                Err(why) => drive.tell_all(&Verdict::error("BAD_HANDLER", why)),
                #[cfg(feature = "wasi")]
                Ok(()) => within_limit(drive, &inner.wasi_seats, wasi::drive).await,
                #[cfg(not(feature = "wasi"))]
                Ok(()) => {}
            }
            inner.room.notify_waiters();
        }
    }
}

/// Waits for a slot, runs the batch, and frees the slot.
async fn within_limit(drive: &mut Drive, seats: &Arc<Seats>, run: impl AsyncFnOnce(&mut Drive)) {
    let inner = drive.inner.clone();
    while drive.hold.is_none() {
        let room = inner.room.notified();
        tokio::pin!(room);
        room.as_mut().enable();
        match seats.try_take(&drive.batch.client) {
            Ok(seat) => drive.hold = Some(Hold::Seat { _seat: seat }),
            Err(_) => tokio::select! {
                () = room => {}
                interrupt = drive.interrupted(None) => return drive.tell_all_unrun(interrupt.why()),
            },
        }
    }
    run(drive).await;
    drive.hold = None;
}

impl Inner {
    /// Refuses to run handlers if isolation is strict and a mechanism is missing.
    fn check_isolation(&self) -> Result<(), String> {
        self.check_strict(&self.isolation.missing())
    }

    fn check_strict(&self, missing: &[String]) -> Result<(), String> {
        if !self.settings.strict || missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(format!(
            "this server runs no handlers: runners.isolation is strict, and the machine lacks \
             {missing}"
        ))
    }

    fn check_wasi(&self) -> Result<(), String> {
        if !cfg!(feature = "wasi") {
            return Err("this server was built without WASI support (cargo feature `wasi`)".to_owned());
        }
        match self.settings.wasi_guest {
            Some(_) => self.check_strict(&self.isolation.missing_for_guests()),
            None => Err("this server does not run wasi handlers".to_owned()),
        }
    }

    fn key(&self, client: &str, jobtype: &str, handler: &Handler) -> Key {
        Key {
            client: client.to_owned(),
            name: Key::name_of(handler.eid.as_deref(), jobtype),
            lang: handler.lang,
            network: self.settings.network.grants(handler.options.network),
        }
    }
}

/// Guard that counts a running batch.
struct UnderWay(Arc<Inner>);

impl UnderWay {
    fn new(inner: Arc<Inner>) -> UnderWay {
        inner.running.send_modify(|count| *count += 1);
        UnderWay(inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.running.send_modify(|count| *count -= 1);
    }
}
