//! Handlers: code that clients hand in, run for each of their jobs.
//!
//! ```text
//!   start(batch) ─▶ run.rs ─┬─ exchange.rs ─▶ context.rs ══ socket ══ guard.rs ─▶ interpreter + shim + handler's code
//!        ▲                  │   (pool.rs: which contexts there are)
//!        │                  ├─ http: a URL is called
//!   next() ◀─ (job, ended) ─┴─ wasi: a module in a guest process
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `handler.rs`, `outcome.rs`, `settings.rs` | what is asked, what comes of it, what the operator decides |
//! | `run.rs` | one batch from its start to its last outcome |
//! | `pool.rs`, `find.rs` | idle contexts, how many there may be, and one for a batch |
//! | `booking.rs`, `seats.rs` | places that are kept for batches until they begin, shares of clients in them |
//! | `exchange.rs`, `portions.rs` | a batch in a context: the order of things, crashes, time limits; how many jobs it is sent at once |
//! | `context.rs`, `place.rs`, `frames.rs`, `pipe.rs` | a context's process, its folders, what is said on its socket, what it prints |
//! | `http.rs`, `answers.rs`, `wasi.rs` | handlers that are no processes of ours |
//! | `isolation.rs` | what holds contexts on this machine |
//! | `guard.rs`, `confine.rs` | the process around a context, and what it gives up |
//! | `calls.rs`, `trees.rs`, `view.rs` | system calls a context may make, files it may read, a world of its own |
//! | `cgroup.rs` | the kernel's bounds on a whole context, where control groups are delegated |
//! | `remove.rs` | what contexts leave behind |
//! | `shims/` | the interpreter's side, in its own language |
//! | `output.rs` | new jobs, statuses and log in what a job prints |
//! | `census.rs`, `memory.rs`, `disk.rs` | processes, memory and disk of a context, seen from outside |
//!
//! A context belongs to one client, and to one eid or jobtype of it. What a handler does to its context it does to its own
//! jobs.

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
mod trees;
#[cfg(target_os = "linux")]
mod view;
#[cfg(feature = "wasi")]
mod wasi;

pub use booking::{Booking, NoRoom, Resource};
#[cfg(feature = "wasi")]
pub(crate) use census::resident_bytes;
pub use handler::{BATCH_MAX, Handler, HandlerOptions, Lang};
pub use isolation::Isolation;
pub use outcome::{Ended, NewJob, Outcome, Status};
pub use run::{Batch, BatchJob, Run, Stopper};
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
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// What handlers need from the server.
#[async_trait]
pub trait World: Send + Sync + 'static {
    /// Whether an http handler may be called at this address.
    fn may_call(&self, address: IpAddr) -> bool;

    /// The signature of what is sent to an http handler of this client: a header's name and value.
    fn sign(&self, _client: &str, _body: &[u8]) -> Option<(&'static str, String)> {
        None
    }

    /// By whose certificates https handlers are believed; if not, why, in words for the handler's author.
    fn tls(&self) -> Result<Arc<ClientConfig>, String>;

    /// The module of a wasi handler.
    async fn blob(&self, client: &str, address: &str) -> Result<Vec<u8>, BlobError>;
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum BlobError {
    /// There is none, or it cannot be one.
    #[error("{0}")]
    Missing(String),
    /// Nobody could say. Another try may work.
    #[error("{0}")]
    Trouble(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    /// No new batches; those that run may end.
    Finish,
    Now,
}

/// Runs handlers. Cheap to clone; owns all contexts.
#[derive(Clone)]
pub struct Handlers {
    inner: Arc<Inner>,
}

pub struct Inner {
    settings: Settings,
    world: Arc<dyn World>,
    pool: Pool,
    lines: http::Lines,
    answers: answers::Budget,
    http_seats: Arc<Seats>,
    #[cfg(feature = "wasi")]
    guests: wasi::Guests,
    wasi_seats: Arc<Seats>,
    /// Somebody has left a place.
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
    /// Removes what is in the folder for contexts, so nobody else may use it.
    pub fn new(settings: Settings, world: Arc<dyn World>) -> io::Result<Handlers> {
        let old = remove::put_aside(&settings.folder)?;
        // Contexts may be other users: they must get through, and need not see who else is there.
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&settings.folder)?;
        // Whatever the umask took.
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
            lines: http::Lines::default(),
            answers: answers::Budget::new(settings.answers_bytes_max),
            http_seats: Seats::new(
                Resource::Http,
                settings.http_batches_max,
                settings.http_batches_per_client,
            ),
            #[cfg(feature = "wasi")]
            guests: wasi::Guests::default(),
            // Two by default: there is no share to be kept for others, and their batches are cut.
            wasi_seats: Seats::new(Resource::Wasi, settings.wasi_batches_max, settings.wasi_batches_max),
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

    /// Whether the handler could be run here and now; if not, why, for its author. What is missing today may be installed
    /// tomorrow, so this is no reason to refuse it.
    pub fn check(&self, handler: &Handler) -> Result<(), String> {
        match handler.lang {
            Lang::Http => match http::Target::parse(&handler.body)?.is_https {
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

    /// How many jobs to put into one batch.
    pub fn batch_size(&self, handler: &Handler) -> usize {
        handler.options.batch_size.unwrap_or_else(|| handler.lang.batch_size())
    }

    /// Ready when there may be more room than before the call. Call it, then ask [`Handlers::book`], then await it.
    pub fn room(&self) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        let mut notified = Box::pin(async move { inner.room.notified().await });
        // Polled once, it is registered.
        let waker = std::task::Waker::noop();
        let ready = notified.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready();
        async move {
            if !ready {
                notified.await;
            }
        }
    }

    /// Clients and jobtypes that have an idle context.
    pub fn warm(&self) -> Vec<(String, String)> {
        self.inner.pool.warm()
    }

    /// Runs the batch in a task of its own, as soon as there is room; what is wrong with it is told job by job.
    pub fn start(&self, batch: Batch) -> Run {
        self.start_with(batch, None)
    }

    fn start_with(&self, batch: Batch, hold: Option<Hold>) -> Run {
        let (run, mut drive) = run::begin(Arc::clone(&self.inner), batch, hold);
        let under_way = UnderWay::new(Arc::clone(&self.inner));
        tokio::spawn(async move {
            see_through(&mut drive).await;
            if drive.hold.take().is_some() {
                // It ended without having needed its place.
                drive.inner.room.notify_waiters();
            }
            drop(drive);
            drop(under_way);
        });
        run
    }

    /// No new batches; those that run have this long. No context is left afterwards.
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
        self.inner.lines.hang_up();
        #[cfg(feature = "wasi")]
        self.inner.guests.end();
    }
}

async fn see_through(drive: &mut Drive) {
    if *drive.inner.stopping.borrow() != Stopping::No {
        return drive.tell_all_unrun("the server is stopping");
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

/// Waits for its turn first. Its place is free again when this returns.
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
    /// Of what handlers are only run with, if the operator says so.
    fn check_isolation(&self) -> Result<(), String> {
        self.check_strict(&self.isolation.missing())
    }

    fn check_strict(&self, missing: &[String]) -> Result<(), String> {
        if !self.settings.strict || missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(format!(
            "this server runs handlers only if they are fully isolated (runners.isolation = strict), and here they lack \
             {missing}"
        ))
    }

    fn check_wasi(&self) -> Result<(), String> {
        if !cfg!(feature = "wasi") {
            return Err("this windlass was built without WASI (cargo feature `wasi`)".to_owned());
        }
        match self.settings.wasi_guest {
            Some(_) => self.check_strict(&self.isolation.missing_for_guests()),
            None => Err("this server runs no wasi handlers".to_owned()),
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

/// Counted while a batch runs.
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
