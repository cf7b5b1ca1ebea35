//! Handlers of miniq clients on this server: connects the dialect with the runner.

mod folder;

use crate::client::tls;
use crate::config::{self, Config};
use async_trait::async_trait;
use folder::TemporaryFolder;
use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use windlass_core::handler::HandlerText;
use windlass_core::{Tenant, fair};
use windlass_dialects::dialect::Soon;
use windlass_dialects::miniq;
use windlass_dialects::runners::{Batch, Booking, Ended, NoRoom, Report, Resource, Run, Runners};
use windlass_engine::Engine;
use windlass_engine::blob::BlobAddr;
use windlass_http::{Allowed, Signer};
use windlass_runners::handlers::{
    self, BlobError, Handler, Handlers, HelperProgram, Isolation, Lang, Settings, World,
};
use windlass_store::StoreUrl;

/// Handler runner, created on first use: a server without handlers creates no folder for them.
pub(crate) struct LocalHandlers {
    settings: Settings,
    world: Arc<ServerWorld>,
    made: Mutex<Slot>,
    isolation: Arc<OnceLock<Isolation>>,
    /// Thread of the isolation test, which has a folder of its own.
    isolation_test: Mutex<Option<JoinHandle<()>>>,
    /// The folder is a temporary one, removed at the end.
    is_temporary: bool,
}

enum Slot {
    NotYet,
    Made(Made),
    Stopped,
}

struct Made {
    handlers: Handlers,
    _folder: Option<TemporaryFolder>,
}

impl LocalHandlers {
    pub(crate) fn new(config: &Config, engine: &Engine) -> std::io::Result<LocalHandlers> {
        let asked = &config.handlers;
        let (settings, is_temporary) = settings(config)?;
        // A configured CA file is read at startup, so that the operator sees an error, not the clients.
        let tls = asked.ca.as_deref().map(|ca| tls::config(Some(ca), HANDLER_CA)).transpose();
        let world = Arc::new(ServerWorld {
            engine: engine.clone(),
            addresses: asked.addresses.clone(),
            signer: asked.signer.clone(),
            tls: Mutex::new(tls.map_err(|why| std::io::Error::other(format!("{HANDLER_CA}: {why}")))?),
        });
        let isolation = Arc::default();
        let isolation_test = check_isolation_in_background(settings.clone(), Arc::clone(&isolation));
        let (made, isolation_test) = (Mutex::new(Slot::NotYet), Mutex::new(isolation_test));
        Ok(LocalHandlers { settings, world, made, isolation, isolation_test, is_temporary })
    }

    fn handlers(&self) -> Result<Handlers, String> {
        let mut slot = self.slot();
        match &*slot {
            Slot::Made(made) => return Ok(made.handlers.clone()),
            Slot::Stopped => return Err("the server is shutting down".to_owned()),
            Slot::NotYet => {}
        }
        let (handlers, folder) = self.make().map_err(|(what, error)| {
            // The path is logged but not shown to clients.
            tracing::error!(folder = %self.settings.folder.display(), %error, "{what}");
            "the server cannot create a folder for handlers; see its log".to_owned()
        })?;
        *slot = Slot::Made(Made { handlers: handlers.clone(), _folder: folder });
        Ok(handlers)
    }

    fn make(&self) -> Result<(Handlers, Option<TemporaryFolder>), (&'static str, std::io::Error)> {
        let mut settings = self.settings.clone();
        // If the isolation test has not finished, the runner repeats it.
        settings.isolation = self.isolation.get().cloned();
        let folder = match self.is_temporary {
            true => Some(
                TemporaryFolder::new()
                    .map_err(|error| ("cannot create a temporary folder for handlers", error))?,
            ),
            false => None,
        };
        if let Some(folder) = &folder {
            settings.folder = folder.path().join("contexts");
        }
        let world: Arc<dyn World> = self.world.clone();
        let handlers =
            Handlers::new(settings, world).map_err(|error| ("cannot use the folder for handlers", error))?;
        Ok((handlers, folder))
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.made.lock()
    }
}

/// Settings of the runner, and whether its folder is temporary.
fn settings(config: &Config) -> std::io::Result<(Settings, bool)> {
    let asked = &config.handlers;
    let own = PathBuf::from("/proc/self/exe");
    let path = if own.exists() { own } else { std::env::current_exe()? };
    let helper = HelperProgram { path: path.clone(), args: vec!["run-handler".to_owned()] };
    let plain = Settings::new(config.data.join("contexts"), helper);
    // A temporary folder is needed if no embedded store locks the data folder against other servers, or if
    // contexts have other user ids and could not enter it.
    let uid_base = match asked.uid_base {
        0 => None,
        1 => plain.uid_base,
        first => plain.uid_base.map(|_| first),
    };
    let is_temporary = !config.store_is_in_data || uid_base.is_some();
    let settings = Settings {
        contexts_max: asked.contexts,
        contexts_per_type: asked.contexts_per_type,
        contexts_per_client: fair::share_max(asked.contexts),
        http_batches_max: asked.http_batches,
        http_batches_per_client: fair::share_max(asked.http_batches),
        answers_bytes_per_client: fair::share_max(plain.answers_bytes_max),
        time_limit: asked.time_limit,
        memory_bytes_max: asked.memory_bytes_max,
        disk_bytes_max: asked.disk_bytes_max,
        strict: asked.strict,
        network: match asked.network {
            config::HandlerNetwork::Never => handlers::Network::Never,
            config::HandlerNetwork::Asked => handlers::Network::WhenAsked,
            config::HandlerNetwork::Always => handlers::Network::Always,
        },
        readable: asked.readable.iter().cloned().map(absolute).collect(),
        hidden: own_files(config),
        uid_base,
        result_bytes_max: config.limits.payload_bytes.min(RESULT_BYTES_MAX),
        wasi_guest: wasi_guest(path),
        ..plain
    };
    Ok((settings, is_temporary))
}

/// Summary of the isolation of handlers with this configuration, in one line. Blocks while test processes
/// run.
pub(crate) fn isolation_line(config: &Config) -> std::io::Result<String> {
    let (settings, _) = settings(config)?;
    let folder = TemporaryFolder::new()?;
    Ok(Isolation::find_out(&settings, folder.path()).line())
}

/// Isolation of handlers as the readiness probe shows it.
fn isolation_shown(isolation: &Isolation, strict: bool) -> String {
    let missing = isolation.missing().join(", ");
    match strict && !missing.is_empty() {
        true => format!("disabled: runners.isolation is strict, and this machine lacks {missing}"),
        false => format!("isolated by {}", isolation.line()),
    }
}

/// Tests the isolation in the background and logs missing mechanisms.
fn check_isolation_in_background(
    settings: Settings,
    into: Arc<OnceLock<Isolation>>,
) -> Option<JoinHandle<()>> {
    let find_out = move || {
        let isolation = match TemporaryFolder::new() {
            Ok(folder) => Isolation::find_out(&settings, folder.path()),
            Err(error) => {
                return tracing::warn!(%error, "cannot create a temporary folder; handler isolation was not tested");
            }
        };
        let missing = isolation.missing().join(", ");
        match (missing.is_empty(), settings.strict) {
            (true, _) => tracing::info!("handler isolation: {}", isolation.line()),
            (false, true) => {
                tracing::error!(
                    "handlers are disabled: runners.isolation is strict, and this machine lacks \
                     {missing}"
                );
            }
            (false, false) => tracing::warn!(
                "handler isolation is incomplete: this machine lacks {missing}; set \
                 runners.isolation = strict to run no handlers in this case"
            ),
        }
        // An error means that it is already set, to the same value.
        let _ = into.set(isolation);
    };
    let spawned = std::thread::Builder::new().name("isolation".to_owned()).spawn(find_out);
    spawned
        .inspect_err(|error| {
            tracing::warn!(%error, "cannot start the isolation test; it is repeated when the first handler runs");
        })
        .ok()
}

/// The server's own files, which handlers must not read even below a readable path, such as a data folder in
/// /opt.
fn own_files(config: &Config) -> Vec<PathBuf> {
    let mut files = vec![config.data.clone()];
    files.extend(config.file.clone());
    files.extend(config.tls.as_ref().map(|tls| tls.key.clone()));
    files.extend(config.settings.get::<miniq::Settings>().log.map(|log| log.path));
    if let Ok(StoreUrl::Sqlite(path)) = StoreUrl::parse(&config.store) {
        let beside = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
        files.extend(["", "-wal", "-shm", "-journal", ".lines"].map(beside));
    }
    files.into_iter().map(absolute).collect()
}

/// Absolute path: guard processes have another working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Configuration key of the CA file.
const HANDLER_CA: &str = "miniq.handler_ca";
/// Largest result, as in miniq.
const RESULT_BYTES_MAX: usize = 16 << 20;

#[cfg(feature = "wasi")]
fn wasi_guest(path: PathBuf) -> Option<HelperProgram> {
    Some(HelperProgram { path, args: vec!["run-wasi-guest".to_owned()] })
}

#[cfg(not(feature = "wasi"))]
fn wasi_guest(_: PathBuf) -> Option<HelperProgram> {
    None
}

impl Runners for LocalHandlers {
    fn check(&self, text: &HandlerText) -> Result<(), String> {
        self.handlers()?.check(&Handler::parse(text)?)
    }

    fn resource(&self, text: &HandlerText) -> Resource {
        Lang::parse(&text.lang).map_or("none", Lang::resource)
    }

    fn book(&self, client: &str, jobtype: &str, text: &HandlerText) -> Result<Box<dyn Booking>, NoRoom> {
        let ready = self.handlers().and_then(|handlers| Ok((handlers, Handler::outline(text)?)));
        Ok(Box::new(match ready {
            Ok((handlers, handler)) => LocalBooking::Place(handlers.book(client, jobtype, &handler)?),
            // The error is reported for each job.
            Err(why) => {
                let is_over = matches!(*self.slot(), Slot::Stopped);
                LocalBooking::None { why, is_over }
            }
        }))
    }

    fn room(&self) -> Soon<'static, ()> {
        match &*self.slot() {
            Slot::Made(made) => Box::pin(made.handlers.room()),
            // No booking has been made yet, so a retry is worthwhile at once.
            Slot::NotYet => Box::pin(std::future::ready(())),
            Slot::Stopped => Box::pin(std::future::pending()),
        }
    }

    fn warm(&self) -> Vec<(String, String)> {
        match &*self.slot() {
            Slot::Made(made) => made.handlers.warm(),
            Slot::NotYet | Slot::Stopped => Vec::new(),
        }
    }

    fn isolation(&self) -> String {
        match self.isolation.get() {
            Some(isolation) => isolation_shown(isolation, self.settings.strict),
            None => "isolation not tested yet".to_owned(),
        }
    }

    fn stop(&self, grace: Duration) -> Soon<'_, ()> {
        let slot = std::mem::replace(&mut *self.slot(), Slot::Stopped);
        let test = self.isolation_test.lock().take();
        Box::pin(async move {
            // A server that is stopped right after its start leaves no folder behind.
            if let Some(test) = test {
                let ended = tokio::task::spawn_blocking(move || test.join());
                let _ = tokio::time::timeout(grace, ended).await;
            }
            if let Slot::Made(made) = slot {
                made.handlers.stop(grace).await;
            }
        })
    }
}

enum LocalBooking {
    Place(handlers::Booking),
    None {
        why: String,
        /// The server is shutting down; the handler itself may be valid.
        is_over: bool,
    },
}

impl Booking for LocalBooking {
    fn jobs_max(&self) -> usize {
        match self {
            LocalBooking::Place(booking) => booking.jobs_max(),
            LocalBooking::None { .. } => BROKEN_BATCH,
        }
    }

    fn start(self: Box<Self>, batch: Batch) -> Box<dyn Run> {
        let left = batch.jobs.len();
        let booking = match *self {
            LocalBooking::Place(booking) => booking,
            LocalBooking::None { why, is_over } => return Box::new(Broken { left, why, is_over }),
        };
        match Handler::parse(&batch.handler) {
            Ok(handler) => Box::new(booking.start(batch.with_handler(Arc::new(handler)))),
            Err(why) => Box::new(Broken { left, why, is_over: false }),
        }
    }
}

/// Jobs per batch of an invalid handler, all of which fail at once.
const BROKEN_BATCH: usize = 500;

struct Broken {
    left: usize,
    why: String,
    /// See [`LocalBooking::None`].
    is_over: bool,
}

impl Run for Broken {
    fn next(&mut self) -> Soon<'_, Option<(usize, Ended)>> {
        Box::pin(async {
            self.left = self.left.checked_sub(1)?;
            if self.is_over {
                return Some((self.left, Ended::Unrun(self.why.clone())));
            }
            let report = Report {
                exitcode: 500,
                code: "BAD_HANDLER".to_owned(),
                message: Some(self.why.clone()),
                ..Report::default()
            };
            Some((self.left, Ended::Done(report)))
        })
    }

    fn stop(&self, _: usize) {}

    fn cut(&self) {}
}

struct ServerWorld {
    engine: Engine,
    addresses: Arc<Allowed>,
    signer: Option<Signer>,
    /// TLS configuration; `None` until the first https handler needs the system's CA certificates.
    tls: Mutex<Option<Arc<ClientConfig>>>,
}

#[async_trait]
impl World for ServerWorld {
    fn addresses(&self) -> Arc<Allowed> {
        Arc::clone(&self.addresses)
    }

    fn signer(&self) -> Option<Signer> {
        self.signer.clone()
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let mut made = self.tls.lock();
        if let Some(config) = &*made {
            return Ok(Arc::clone(config));
        }
        let config = tls::config(None, HANDLER_CA)?;
        *made = Some(Arc::clone(&config));
        Ok(config)
    }

    async fn blob(&self, client: &str, address: &str) -> Result<Vec<u8>, BlobError> {
        let missing = |why: String| BlobError::Missing(why);
        let trouble = |error: windlass_engine::EngineError| BlobError::Trouble(error.to_string());
        let client = Tenant::new(client).map_err(|error| missing(error.to_string()))?;
        let wanted =
            BlobAddr::parse(address).ok_or_else(|| missing(format!("{address:?} is not a blob address")))?;
        let found = self.engine.get_blob(&client, &wanted).await.map_err(trouble)?;
        let mut blob = found.ok_or_else(|| missing(format!("blob {address} not found")))?;
        let mut bytes = Vec::with_capacity(usize::try_from(blob.info.bytes).unwrap_or(0));
        while let Some(piece) = blob.next().await.map_err(trouble)? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readiness_probe_shows_what_isolates_handlers_or_why_none_is_run() {
        let all = ["limits", "landlock", "namespaces", "seccomp"];
        let check = |holds: &[&str], strict, expected: &str| {
            let holds = holds.iter().map(|part| (*part).to_owned()).collect();
            let isolation = Isolation { holds, ..Isolation::default() };
            assert_eq!(isolation_shown(&isolation, strict), expected, "{isolation:?} {strict}");
        };
        let whole = "isolated by limits, landlock, namespaces, seccomp; missing: nothing";
        check(&all, false, whole);
        check(&all, true, whole);
        check(&all[..3], false, "isolated by limits, landlock, namespaces; missing: seccomp");
        let refused = "disabled: runners.isolation is strict, and this machine lacks seccomp";
        check(&all[..3], true, refused);
    }
}
