//! Startup and shutdown of the server: configuration, store, engine, listeners, in this order, and back.

mod away;
mod banner;
mod last_resort;
mod listeners;
mod notify;
mod ready;
pub(crate) mod resources;
mod runners;
mod secrecy;
pub(crate) mod tokens;

#[cfg(test)]
mod tests;

use crate::config::{Config, ConfigArgs};
use crate::discovery::{self, Announcement};
use crate::fault::{Fault, Outcome};
use crate::handlers::LocalHandlers;
use crate::otel::Exporter;
use crate::telemetry;
use away::{NotOpened, Waited};
use clap::Args;
use last_resort::LastResort;
use listeners::{prepare, require_tokens_if_exposed, try_clone};
use ready::Readiness;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};
use windlass_dialects::auth::keeper;
use windlass_dialects::budget::Budget;
use windlass_dialects::dialect::Guests;
use windlass_dialects::guard::Hosts;
use windlass_dialects::listener::ListenerLimits;
use windlass_dialects::runners::Runners;
use windlass_dialects::tls::Tls;
use windlass_dialects::{Ports, ServerOptions, Started};
use windlass_engine::{Clock, Engine, FeedEvent, Options, StoreClock, SystemClock, SystemRandom};
use windlass_runners::spawn::{self, GuestProgram};
use windlass_store::{OpenOptions, Store, StoreError};

/// Time to close the store, in addition to the time for requests in flight.
const CLOSING: Duration = Duration::from_secs(20);
/// Time for blocking threads to end after the store is closed.
const THREADS: Duration = Duration::from_secs(2);
/// Additional time before the process is killed even if all runtime threads are blocked.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// Start the server
///
/// Configuration is read from flags, --set, environment variables (WINDLASS_HTTP, WINDLASS_STORE, …) and the file given
/// with --config; earlier sources override later ones. `windlass config` lists all keys.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
#[command(after_help = "\
Examples:
  windlass serve
  windlass serve --data /var/lib/windlass --http 127.0.0.1:9000
  windlass serve --store memory: --http 127.0.0.1:0 --ready-file ready.json
  windlass serve --config windlass.toml --set queuey.abandoned_age_s=60")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Write the listening addresses to this file as JSON when the server is ready
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
}

pub(crate) use banner::local_url;

pub(crate) fn run(args: ServeArgs) -> Outcome {
    let config = args.config.read()?;
    telemetry::start(&config)?;
    secrecy::protect_process();
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let last_resort = LastResort::start(config.shutdown + CLOSING + LAST_RESORT)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(config, args.ready_file, &last_resort));
    // A blocked thread must not delay the exit: everything acknowledged is on disk.
    runtime.shutdown_timeout(THREADS);
    outcome
}

async fn serve(config: Config, ready_file: Option<PathBuf>, last_resort: &LastResort) -> Outcome {
    // Before anything is opened, so that a signal during startup is not lost.
    let mut signals = Signals::listen()?;
    let mut ready = Readiness::new(ready_file);
    let bound = prepare(&config).await?;
    let mut server = match open_store(&config).await {
        Ok(store) => {
            let server = Server::start_on(&config, bound, store, false).await?;
            ready.tell(&server.listening)?;
            banner::print(&config, &server.listening);
            server
        }
        Err(NotOpened::Wrong(fault)) => return Err(fault),
        Err(NotOpened::Away(why)) => {
            match away::wait(&config, try_clone(&bound)?, why, &mut ready, signals.next()).await? {
                Waited::Opened(store) => Server::start_on(&config, bound, store, false).await?,
                Waited::Ended(server, ended) => {
                    return stop(*server, ended, &config, last_resort, &mut signals).await;
                }
            }
        }
    };
    server.hand_out();
    let quit = Arc::clone(&server.quit);
    let ended = tokio::select! {
        () = signals.next() => Ok(()),
        () = quit.notified() => Ok(()),
        ended = server.ended() => Err(ended),
    };
    stop(server, ended, &config, last_resort, &mut signals).await
}

/// Stops in order; a second signal exits at once.
async fn stop(
    mut server: Server,
    ended: Outcome,
    config: &Config,
    last_resort: &LastResort,
    signals: &mut Signals,
) -> Outcome {
    last_resort.count_down();
    notify::send(notify::STOPPING);
    info!("shutting down: finishing requests in flight; send a second signal to exit at once");
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(config.shutdown + CLOSING, server.stop()) => stopped,
        () = signals.next() => return Err(Fault::failed("exited at once after a second signal")),
    };
    match (ended, stopped) {
        (Err(fault), _) => Err(fault),
        (Ok(()), Ok(())) => {
            info!("stopped");
            Ok(())
        }
        (Ok(()), Err(_)) => {
            Err(Fault::failed("shutdown exceeded its time limit (shutdown_s); no acknowledged write is lost"))
        }
    }
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupts: Signal,
    terms: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals { interrupts: signal(SignalKind::interrupt())?, terms: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupts.recv() => {}
            _ = self.terms.recv() => {}
        }
    }
}

/// Server that accepts connections, and hands out jobs after [`Server::hand_out`]. Also started in-process by
/// `windlass demo` and `windlass dev`.
pub(crate) struct Server {
    pub listening: Vec<(&'static str, SocketAddr)>,
    engine: Engine,
    stop: watch::Sender<bool>,
    serving: JoinSet<()>,
    /// Background tasks, aborted with the server.
    _tasks: JoinSet<()>,
    announcement: Option<Announcement>,
    exporter: Option<Exporter>,
    runners: runners::Runners,
    /// Notified when an authorized client requests shutdown.
    quit: Arc<Notify>,
    /// Time for requests and runs in flight at shutdown.
    shutdown: Duration,
}

impl Server {
    pub(crate) async fn start(config: &Config) -> Outcome<Server> {
        let bound = prepare(config).await?;
        let store = open_store(config).await.map_err(Fault::from)?;
        Server::start_on(config, bound, store, false).await
    }

    async fn start_on(
        config: &Config,
        ports: Ports,
        store: Arc<dyn Store>,
        store_is_away: bool,
    ) -> Outcome<Server> {
        let tls = match &config.tls {
            Some(files) => {
                let tls = Tls::mutual(&files.cert, &files.key, files.client_ca.clone())
                    .map_err(|error| Fault::failed(format!("TLS: {error}")))?;
                Some(Arc::new(tls))
            }
            None => None,
        };
        let engine = start_engine(config, store).await?;
        // No job is handed out before every listener is open, so that its worker can report back.
        engine.hold_claims();
        let tokens = tokens::read(&config.tokens, &engine).await?;
        require_tokens_if_exposed(config, &tokens)?;
        config.handlers.addresses.while_open(tokens.open_check());
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper::follow(engine.clone(), Arc::clone(&tokens)));
        if engine.is_shared() {
            tasks.spawn(away::remember_tokens(engine.clone(), config.data.clone()));
        }
        let listening = listeners::addresses(&ports)?;
        let quit = Arc::new(Notify::new());
        let options = ServerOptions {
            tokens,
            tls,
            runners: handlers(config, &engine)?,
            quit: Arc::clone(&quit),
            store_is_away,
            ..options(config)?
        };
        let started = Started::new(engine.clone(), options, ports).await;
        let started = started.map_err(|error| Fault::failed(error.to_string()))?;
        let exporter = Exporter::start(config, started.server())?;
        let (stop, stopping) = watch::channel(false);
        let mut serving = JoinSet::new();
        serving.spawn(started.serve(wait_for_stop(stopping)));
        let announcement = announce(config, &listening, &engine)?;
        let runners = runners::start(config, &engine)?;
        let shutdown = config.shutdown;
        Ok(Server {
            listening,
            engine,
            stop,
            serving,
            _tasks: tasks,
            announcement,
            exporter,
            runners,
            quit,
            shutdown,
        })
    }

    /// Resolves only if the listeners end by themselves, which is an error.
    async fn ended(&mut self) -> Fault {
        let _ = self.serving.join_next().await;
        Fault::failed("internal error: all listeners stopped")
    }

    /// Events of jobs from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<FeedEvent>> {
        self.engine.events()
    }

    /// Starts handing out jobs, for all listeners and runners.
    pub(crate) fn hand_out(&self) {
        self.engine.release_claims();
    }

    /// Answers requests in flight, then closes the store.
    pub(crate) async fn stop(&mut self) {
        if let Some(announcement) = self.announcement.take() {
            let _ = tokio::task::spawn_blocking(move || announcement.end()).await;
        }
        self.stop.send_replace(true);
        tokio::join!(self.serving.join_next(), self.runners.stop(self.shutdown));
        if let Some(mut exporter) = self.exporter.take() {
            exporter.flush().await;
        }
        self.engine.shutdown().await;
    }
}

/// Runner of the handlers of miniq clients.
fn handlers(config: &Config, engine: &Engine) -> Outcome<Option<Arc<dyn Runners>>> {
    if !config.handlers.run {
        return Ok(None);
    }
    let handlers = LocalHandlers::new(config, engine)
        .map_err(|error| Fault::failed(format!("cannot run handlers: {error}")))?;
    Ok(Some(Arc::new(handlers)))
}

/// Starts the mDNS announcement. A failure is fatal only if the announcement was requested explicitly.
fn announce(
    config: &Config,
    listening: &[(&'static str, SocketAddr)],
    engine: &Engine,
) -> Outcome<Option<Announcement>> {
    // Prefers the queuey listener, where its runners would connect.
    let http = ["queuey", "http"].iter().find_map(|door| listening.iter().find(|(what, _)| what == door));
    let Some((_, http)) = http.filter(|_| discovery::is_wanted(config)) else { return Ok(None) };
    match Announcement::start(*http, [engine.random_u64(), engine.random_u64()]) {
        Ok(announcement) => Ok(Some(announcement)),
        Err(error) if config.mdns == "on" => Err(Fault::failed(format!(
            "cannot announce the server by mDNS: {error}; disable this with --mdns off"
        ))),
        Err(error) => {
            warn!("cannot announce the server by mDNS: {error}");
            Ok(None)
        }
    }
}

async fn wait_for_stop(mut stopping: watch::Receiver<bool>) {
    // An error means that the server is gone, which also counts as a shutdown.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Options of the server from the configuration.
fn options(config: &Config) -> Outcome<ServerOptions> {
    let descriptors_max = resources::raise_descriptors();
    let memory = resources::memory_for_requests(Some(config.limits.memory_bytes).filter(|bytes| *bytes > 0));
    Ok(ServerOptions {
        dialects: config.dialects,
        settings: config.settings.clone(),
        hosts: Hosts { loopback_only: config.http.is_loopback(), allowed: config.hosts.clone() },
        limits: limits(config, descriptors_max),
        budget: Budget::new(memory),
        descriptors_max,
        extra: vec![("/ui/*", crate::ui::router()), ("/docs/*", crate::docs::router())],
        signer: config.signer.clone(),
        guests: Some(guests()?),
        journal: config.journal.clone(),
        audit_file: config.audit.file.clone(),
        hide_payloads: config.hide_payloads,
        store: config.store.split(':').next().unwrap_or_default().to_string(),
        data: config.data.exists().then(|| config.data.clone()),
        version: env!("CARGO_PKG_VERSION"),
        ..ServerOptions::default()
    })
}

/// Starts this program as a helper process, without the server's secrets.
fn guests() -> io::Result<Guests> {
    let path = own_program()?;
    Ok(Guests::new(move |command| {
        let own = GuestProgram { path: path.clone(), args: vec![command.to_owned()] };
        // SQL statements may use local time.
        let zone = std::env::var_os("TZ").map(|zone| ("TZ", zone));
        async move { spawn::start(&own, zone.into_iter().collect()).await }
    }))
}

/// Path of this executable, even if its file has been replaced.
fn own_program() -> io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { std::env::current_exe() }
}

async fn open_store(config: &Config) -> Result<Arc<dyn Store>, NotOpened> {
    if config.store_is_in_data {
        create_private_folder(&config.data).map_err(|error| {
            let what = format!("cannot create the data folder {}: {error}", config.data.display());
            NotOpened::Wrong(Fault::failed(what))
        })?;
        secrecy::look_at_folder(&config.data);
    }
    let options = OpenOptions {
        durability: config.durability,
        own_thread: config.own_thread,
        postgres: config.postgres.clone(),
    };
    let failed = |error: StoreError| match error {
        StoreError::Unavailable(_) => NotOpened::Away(error),
        _ => NotOpened::Wrong(Fault::failed(error.to_string())),
    };
    let store = windlass_store::open(&config.store, options).await.map_err(failed)?;
    match windlass_store::copy::unfinished(&*store).await.map_err(failed)? {
        None => Ok(store),
        Some(begun) => Err(NotOpened::Wrong(Fault::failed(format!(
            "this store is an unfinished copy, started {begun}; run `windlass copy` again to finish \
             it"
        )))),
    }
}

/// Creates a folder with mode 700, since payloads are confidential.
fn create_private_folder(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

async fn start_engine(config: &Config, store: Arc<dyn Store>) -> Outcome<Engine> {
    let options = Options {
        waiters_max: config.limits.waiters,
        connections_max: resources::connections(config.limits.connections, resources::raise_descriptors()),
        payload_bytes_max: config.limits.payload_bytes,
        batch_max: config.limits.batch,
        blob_bytes_max: config.blob_bytes_max,
        metric_names_max: config.metric_names_max,
        audit_entries_max: config.audit.entries_max,
        audit_keep_ms: config.audit.keep_ms,
    };
    let clock: Arc<dyn Clock> = match store.shared().and_then(|shared| shared.clock_ahead_ms()) {
        Some(ahead_ms) => Arc::new(StoreClock::new(Arc::new(SystemClock), ahead_ms)),
        None => Arc::new(SystemClock),
    };
    let started = Engine::start(store, clock, Arc::new(SystemRandom::default()), options).await;
    started.map_err(|error| Fault::failed(format!("cannot start the engine: {error}")))
}

/// Limits of each port.
fn limits(config: &Config, descriptors_max: Option<u64>) -> ListenerLimits {
    let connections_max = resources::connections(config.limits.connections, descriptors_max);
    if connections_max < config.limits.connections / 2 {
        warn!(
            "at most {connections_max} connections per port instead of {}: the process may open only \
             {} file descriptors; raise the limit (ulimit -n)",
            config.limits.connections,
            descriptors_max.unwrap_or_default()
        );
    }
    ListenerLimits {
        connections_max,
        connections_per_address: config.limits.connections_per_address,
        idle_timeout: config.limits.idle,
        body_bytes_max: config.limits.body_bytes,
        grace: config.shutdown,
        ..ListenerLimits::default()
    }
}
