//! Server: the running dialects on their ports, from start to stop.

use crate::ALL;
use crate::auth::{Caller, Tokens};
use crate::budget::Budget;
use crate::dialect::{Context, Dialect, Dialects, Guests, Listen, Running, StartError};
use crate::guard::Hosts;
use crate::http::router;
use crate::ingest::Ingest;
use crate::listener::{self, ListenerLimits, Phase};
use crate::runners::Runners;
use crate::settings::DialectSettings;
use crate::tls::Tls;
use axum::Router;
use futures_util::future::{BoxFuture, join_all};
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use windlass_engine::Engine;
use windlass_engine::journal::{self, Journal, Location};
use windlass_http::Signer;

/// Options of a server. Fields without a comment are those of [`Context`].
pub struct ServerOptions {
    pub dialects: Dialects,
    pub settings: DialectSettings,
    pub tokens: Arc<Tokens>,
    pub hosts: Hosts,
    pub tls: Option<Arc<Tls>>,
    pub limits: ListenerLimits,
    pub budget: Budget,
    pub descriptors_max: Option<u64>,
    /// Served beside the dialects without their guard: the files of the web UI and of the documentation, each
    /// with the route under which its requests are counted.
    pub extra: Vec<(&'static str, Router)>,
    pub signer: Option<Signer>,
    pub runners: Option<Arc<dyn Runners>>,
    pub guests: Option<Guests>,
    pub journal: journal::Settings,
    pub audit_file: Option<PathBuf>,
    pub quit: Arc<Notify>,
    pub hide_payloads: bool,
    pub store_is_away: bool,
    pub store: String,
    pub data: Option<PathBuf>,
    pub version: &'static str,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            dialects: ALL,
            settings: DialectSettings::default(),
            tokens: Tokens::open(),
            hosts: Hosts::default(),
            tls: None,
            limits: ListenerLimits::default(),
            budget: Budget::default(),
            descriptors_max: None,
            extra: Vec::new(),
            signer: None,
            runners: None,
            guests: None,
            journal: journal::Settings::default(),
            audit_file: None,
            quit: Arc::default(),
            hide_payloads: false,
            store_is_away: false,
            store: String::new(),
            data: None,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Bound sockets, not served yet.
#[derive(Default)]
pub struct Ports {
    /// For the calls of all HTTP dialects.
    pub http: Option<TcpListener>,
    pub own: Vec<OwnPort>,
}

/// Port of one dialect.
pub struct OwnPort {
    pub dialect: &'static str,
    pub listener: TcpListener,
    /// Served without TLS even if there is a certificate: the protocol's own clients do not use TLS.
    pub is_local: bool,
}

impl Ports {
    /// By dialect, in their order.
    fn addresses(&self) -> io::Result<Vec<(&'static str, SocketAddr)>> {
        self.own.iter().map(|port| Ok((port.dialect, port.listener.local_addr()?))).collect()
    }
}

/// Context of all calls, and the running dialects.
pub struct Server {
    context: Context,
    running: Vec<(&'static dyn Dialect, Arc<dyn Running>)>,
}

impl Deref for Server {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Server {
    pub fn running(&self) -> impl Iterator<Item = (&'static dyn Dialect, &Arc<dyn Running>)> {
        self.running.iter().map(|(dialect, running)| (*dialect, running))
    }

    /// State of the dialect of this type. Panics if it does not run: its calls are routed only if it does.
    pub fn state<T: Running>(&self) -> &T {
        let states = self.running.iter().map(|(_, running)| &**running as &dyn Any);
        let found = states.into_iter().find_map(|state| state.downcast_ref::<T>());
        found.unwrap_or_else(|| panic!("{} is not running", std::any::type_name::<T>()))
    }

    pub fn is_stopping(&self) -> bool {
        *self.phase.borrow() >= Phase::Draining
    }

    /// Waits until the server stops or the caller would be refused: waiting calls should answer then.
    pub async fn wait_until_ended_for(&self, caller: &Caller) {
        tokio::select! {
            () = self.stopping() => {}
            () = self.tokens.wait_until_refused(caller, &self.engine) => {}
        }
    }

    /// Waits until the server stops.
    async fn stopping(&self) {
        // The sender lives as long as the server.
        let _ = self.phase.clone().wait_for(|phase| *phase >= Phase::Draining).await;
    }
}

/// Serves HTTP until `shutdown` is done, then answers accepted requests and closes. The engine is left
/// running.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let ports = Ports { http: Some(listener), own: Vec::new() };
    Started::new(engine, options, ports).await.map_err(io::Error::other)?.serve(shutdown).await;
    Ok(())
}

/// Server whose dialects have started. Its sockets are bound; `serve` accepts connections.
pub struct Started {
    server: Arc<Server>,
    ports: Ports,
    tls: Option<Arc<Tls>>,
    extra: Vec<(&'static str, Router)>,
    phase: watch::Sender<Phase>,
    ingest: JoinHandle<()>,
    stop_ingest: watch::Sender<bool>,
    _tasks: Tasks,
}

impl Started {
    /// Starts every dialect that is reachable: over HTTP, if there is a port for it, or by a port of its own.
    pub async fn new(engine: Engine, options: ServerOptions, ports: Ports) -> Result<Started, StartError> {
        let ServerOptions { dialects, tls, extra, .. } = options;
        let (phase, watching) = watch::channel(Phase::Serving);
        let is_reached = |dialect: &&&dyn Dialect| {
            ports.http.is_some() || ports.own.iter().any(|port| port.dialect == dialect.name())
        };
        // Without HTTP no call writes to the journal.
        let home = if ports.http.is_some() { options.journal.home } else { Location::Memory };
        let journal = journal::Settings { home, ..options.journal };
        let context = Context {
            engine,
            tokens: options.tokens,
            hosts: options.hosts,
            limits: options.limits,
            budget: options.budget,
            descriptors_max: options.descriptors_max,
            journal: Journal::open(journal).map_err(|error| StartError(error.to_string()))?,
            signer: options.signer,
            runners: options.runners,
            guests: options.guests,
            hide_payloads: options.hide_payloads,
            store_is_away: options.store_is_away,
            quit: options.quit,
            dialect_ports: ports.addresses()?.into(),
            store: options.store.into(),
            data: options.data.map(Into::into),
            version: options.version,
            started: Instant::now(),
            http_meters: Arc::default(),
            audit_file: options.audit_file,
            phase: watching,
            settings: options.settings,
        };
        let mut tasks = Tasks::default();
        for dialect in dialects.iter().filter(is_reached) {
            let running = dialect.start(context.clone()).await?;
            tasks.running.push((*dialect, running));
        }
        let running = tasks.running.clone();
        let readers = running.iter().filter_map(|(_, running)| running.journal_reader()).collect();
        let (stop_ingest, stopping) = watch::channel(false);
        let ingest = Ingest::new(context.engine.clone(), context.journal.clone(), readers);
        let ingest = tokio::spawn(ingest.run(stopping));
        tasks.ingest = Some(ingest.abort_handle());
        let server = Arc::new(Server { context, running });
        Ok(Started { server, ports, tls, extra, phase, ingest, stop_ingest, _tasks: tasks })
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Serves until `shutdown` is done, then answers accepted requests and closes.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>) {
        let server = Arc::clone(&self.server);
        let listening = join_all(self.listen());
        let told = OnceLock::new();
        let stopping = async {
            shutdown.await;
            let _ = told.set(Instant::now());
            self.phase.send_replace(Phase::Draining);
            server.running().for_each(|(_, running)| running.drain());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = listening => {}
            () = stopping => {}
        }
        // Connections and runs share one grace period.
        let used = told.get().map_or(Duration::ZERO, Instant::elapsed);
        let grace = server.limits.grace.saturating_sub(used);
        join_all(server.running().map(|(_, running)| running.stop(grace))).await;
        self.stop_ingest.send_replace(true);
        let _ = self.ingest.await;
        server.journal.close().await;
        join_all(server.running().map(|(_, running)| running.close())).await;
    }

    /// Returns a future for each port.
    fn listen(&mut self) -> Vec<BoxFuture<'static, ()>> {
        let Ports { http, own } = std::mem::take(&mut self.ports);
        let (server, limits) = (&self.server, &self.server.limits);
        let mut ports: Vec<BoxFuture<'static, ()>> = Vec::new();
        if let Some(listener) = http {
            let app = router(server, None, std::mem::take(&mut self.extra));
            let phase = self.phase.clone();
            ports.push(Box::pin(listener::serve_http(
                "http",
                listener,
                self.tls.clone(),
                app,
                limits.clone(),
                phase,
            )));
        }
        for OwnPort { dialect: name, listener, is_local } in own {
            let Some((dialect, running)) = server.running().find(|(dialect, _)| dialect.name() == name)
            else {
                continue;
            };
            let (tls, phase) = (self.tls.clone().filter(|_| !is_local), self.phase.clone());
            if let Some(Listen::Http { .. }) = dialect.listener(&server.settings) {
                let app = router(server, Some(name), Vec::new());
                ports.push(Box::pin(listener::serve_http(name, listener, tls, app, limits.clone(), phase)));
                continue;
            }
            let too_many = running.too_many_connections().to_owned();
            let not_tls = String::new();
            let port = listener::Port { name, listener, tls, limits: limits.clone(), too_many, not_tls };
            let running = Arc::clone(running);
            ports.push(Box::pin(port.serve(phase, move |stream, _, connection| {
                Arc::clone(&running).converse(stream, connection)
            })));
        }
        ports
    }
}

/// Background tasks: end with the server, also when the future that serves is dropped halfway.
#[derive(Default)]
struct Tasks {
    running: Vec<(&'static dyn Dialect, Arc<dyn Running>)>,
    ingest: Option<tokio::task::AbortHandle>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.running.iter().for_each(|(_, running)| running.abandon());
        if let Some(ingest) = &self.ingest {
            ingest.abort();
        }
    }
}
