//! Dialect: a protocol as one value. The server starts, routes, stops and lists dialects through these two
//! traits, and knows none of them by name.

use crate::answer::{TEXT, answer};
use crate::arrivals::Arrival;
use crate::auth::Tokens;
use crate::budget::Budget;
use crate::guard::Hosts;
use crate::http::meters::HttpMeters;
use crate::ingest::Reader;
use crate::listener::{ListenerLimits, Phase};
use crate::registered_handlers::RegisteredHandler;
use crate::registered_workers::RegisteredWorker;
use crate::route::{Refusal, Route};
use crate::runners::Runners;
use crate::settings::{BadConfig, Bind, DialectSettings, Key, Values};
use axum::response::Response;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio_rustls::server::TlsStream;
use windlass_core::Tenant;
use windlass_engine::journal::Journal;
use windlass_engine::{Engine, EngineError};
use windlass_http::Signer;

pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type Starting<'a> = Soon<'a, Result<Arc<dyn Running>, StartError>>;
/// List of dialects. The first one answers requests to paths that no dialect has.
pub type Dialects = &'static [&'static dyn Dialect];

/// Wire protocol.
pub trait Dialect: Send + Sync {
    /// Lower case: folder, prefix of its keys, entry in the ready file.
    fn name(&self) -> &'static str;

    /// Configuration keys. Each begins with the name and a dot; a key that is the name itself holds the
    /// address of its port and is also a flag of `windlass serve`.
    fn settings(&self) -> &'static [Key] {
        &[]
    }

    /// Builds the settings from the effective values. [`Context::settings`] returns them.
    fn configure(&self, _values: &Values, _settings: &mut DialectSettings) -> Result<(), BadConfig> {
        Ok(())
    }

    /// Every HTTP call. The router, the authorization and the OpenAPI document use this list.
    fn routes(&self) -> &'static [Route] {
        &[]
    }

    /// Response of this dialect to a request that was refused before its handler ran.
    fn refuse(&self, refusal: &Refusal) -> Response {
        answer(refusal.status(), TEXT, refusal.to_string())
    }

    /// Port of its own beside the HTTP port.
    fn listener(&self, _settings: &DialectSettings) -> Option<Listen> {
        None
    }

    fn start(&self, context: Context) -> Starting<'static>;
}

impl std::fmt::Debug for dyn Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Port of a dialect's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP, handled by [`Running::converse`].
    Tcp(Bind),
    /// The dialect's HTTP calls, at the addresses of the main port and the first free port from this one on.
    Http { port: u16 },
}

/// Reason why a dialect cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> StartError {
        StartError(error.to_string())
    }
}

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> StartError {
        StartError(error.to_string())
    }
}

/// Context shared by all dialects of a server.
#[derive(Clone)]
pub struct Context {
    pub engine: Engine,
    pub tokens: Arc<Tokens>,
    pub hosts: Hosts,
    pub limits: ListenerLimits,
    /// Memory for requests on all ports.
    pub budget: Budget,
    /// Limit of file descriptors of this process, where known.
    pub descriptors_max: Option<u64>,
    pub journal: Journal,
    /// Signs the server's outgoing requests.
    pub signer: Option<Signer>,
    /// Runs handlers; `None`: their jobs wait.
    pub runners: Option<Arc<dyn Runners>>,
    /// Starts helper processes that hold none of the server's secrets.
    pub guests: Option<Guests>,
    /// Viewers see jobs without payloads.
    pub hide_payloads: bool,
    /// The store cannot be read yet: no stored job can be looked up.
    pub store_is_away: bool,
    /// Notified when an authorized caller asks the server to quit.
    pub quit: Arc<Notify>,
    /// Ports of single dialects, for display.
    pub dialect_ports: Arc<[(&'static str, SocketAddr)]>,
    /// Kind of the store, shown in the statistics.
    pub store: Arc<str>,
    /// Folder whose disk space is shown in the metrics.
    pub data: Option<Arc<Path>>,
    pub version: &'static str,
    pub started: Instant,
    pub http_meters: Arc<HttpMeters>,
    /// File to which actions of operators are appended as JSON lines, besides the log in the store.
    pub audit_file: Option<PathBuf>,
    pub phase: watch::Receiver<Phase>,
    pub settings: DialectSettings,
}

/// Started dialect. Every method has a default.
pub trait Running: Any + Send + Sync {
    /// Serves one connection of its own port until either side closes it.
    fn converse(self: Arc<Self>, stream: Stream, connection: Connection) -> Soon<'static, ()> {
        Box::pin(async move { drop((stream, connection)) })
    }

    /// Response to a connection beyond the limits, sent before it is closed.
    fn too_many_connections(&self) -> &'static str {
        ""
    }

    /// True if web pages of this origin may make calls; by default only the server's own may.
    fn allows_origin(&self, _origin: &str) -> bool {
        false
    }

    /// Parser of the lines that this dialect writes to the journal.
    fn journal_reader(&self) -> Option<Arc<dyn Reader>> {
        None
    }

    /// Called before a stop: no new work begins, running work continues.
    fn drain(&self) {}

    /// Called when all connections are closed. Runs may end within `grace`.
    fn stop(&self, _grace: Duration) -> Soon<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called when all dialects have stopped and the journal is closed.
    fn close(&self) -> Soon<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called when the server ends without a stop: tasks end at once.
    fn abandon(&self) {}

    /// Handlers of one tenant or, for `None`, of all; at most `limit` kinds.
    fn handlers<'a>(
        &'a self,
        _tenant: Option<&'a Tenant>,
        _limit: usize,
    ) -> Soon<'a, Result<Vec<RegisteredHandler>, EngineError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn workers(&self) -> Vec<RegisteredWorker> {
        Vec::new()
    }

    /// Pauses or resumes a worker. Returns false if it is unknown.
    fn set_quiet(&self, _tenant: &Tenant, _id: &str, _quiet: bool) -> bool {
        false
    }

    /// Removes a worker; its jobs fail. Returns false if it is unknown.
    fn dismiss<'a>(&'a self, _tenant: &'a Tenant, _id: &'a str, _who: &'a str) -> Soon<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}

/// Starts a subcommand of this program as a process of its own, with pipes and nothing else.
#[derive(Clone)]
pub struct Guests(Arc<dyn Fn(&'static str) -> Soon<'static, io::Result<Child>> + Send + Sync>);

impl Guests {
    pub fn new<S>(start: impl Fn(&'static str) -> S + Send + Sync + 'static) -> Guests
    where
        S: Future<Output = io::Result<Child>> + Send + 'static,
    {
        Guests(Arc::new(move |command| Box::pin(start(command))))
    }

    pub fn start(&self, command: &'static str) -> Soon<'static, io::Result<Child>> {
        (self.0)(command)
    }
}

/// Connection to a dialect's own port.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for S {}

impl Stream {
    /// For protocols that treat plain and TLS connections alike.
    pub fn into_any(self) -> Box<dyn ReadWrite> {
        match self {
            Stream::Plain(stream) => Box::new(stream),
            Stream::Tls(stream) => stream,
        }
    }
}

/// Context of a connection.
pub struct Connection {
    /// Counted against its address until [`Arrival::admit`] is called.
    pub arrival: Arc<Arrival>,
    pub phase: watch::Receiver<Phase>,
}
