//! A dialect: one protocol as one value. The server starts, routes, stops and lists dialects through these two traits and
//! knows none of them by name.

use crate::answer::{TEXT, answer};
use crate::arrivals::Arrival;
use crate::auth::Tokens;
use crate::budget::Budget;
use crate::guard::Hosts;
use crate::ingest::Reader;
use crate::listener::{Limits, Phase};
use crate::registered_handlers::RegisteredHandler;
use crate::registered_workers::RegisteredWorker;
use crate::route::{Refusal, Route};
use crate::runners::Runners;
use crate::settings::{BadConfig, Bind, DialectSettings, Key, Values};
use crate::signature::Signer;
use axum::response::Response;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
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

pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type Starting<'a> = Soon<'a, Result<Arc<dyn Running>, StartError>>;
/// A list of dialects, the one that answers for paths nobody owns first.
pub type Dialects = &'static [&'static dyn Dialect];

/// One protocol.
pub trait Dialect: Send + Sync {
    /// Lower case: the folder, the prefix of its keys, its entry in the ready file.
    fn name(&self) -> &'static str;

    /// Its configuration keys. Each begins with its name and a dot; a key that is the name itself holds the address of its
    /// port and is a flag of `windlass serve`, too.
    fn settings(&self) -> &'static [Key] {
        &[]
    }

    /// Makes its settings of the values in force. [`Context::settings`] gives them back.
    fn configure(&self, _values: &Values, _settings: &mut DialectSettings) -> Result<(), BadConfig> {
        Ok(())
    }

    /// Every call it answers over HTTP. The router, the authorisation and the API description are made from this list.
    fn routes(&self) -> &'static [Route] {
        &[]
    }

    /// The answer, in this dialect's words, to a request that was refused before its handler was asked.
    fn refuse(&self, refusal: &Refusal) -> Response {
        answer(refusal.status(), TEXT, refusal.to_string())
    }

    /// A port of its own beside the one for HTTP.
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

/// A port of a dialect's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP, spoken by [`Running::converse`].
    Tcp(Bind),
    /// The dialect's HTTP calls alone, at the addresses of the main port and the first free port from this one on.
    Http { port: u16 },
}

/// Why a dialect cannot start.
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

/// What all dialects of a server share.
#[derive(Clone)]
pub struct Context {
    pub engine: Engine,
    pub tokens: Arc<Tokens>,
    pub hosts: Hosts,
    pub limits: Limits,
    /// Memory for requests on all ports.
    pub budget: Budget,
    /// File descriptors that this process may have, where that is known.
    pub descriptors_max: Option<u64>,
    pub journal: Journal,
    /// Signs what the server sends by itself.
    pub signer: Option<Signer>,
    /// What runs handlers; without it their jobs wait.
    pub runners: Option<Arc<dyn Runners>>,
    /// Starts processes that hold nothing of what the server does.
    pub guests: Option<Guests>,
    /// Viewers see that there are jobs, and not what is in them.
    pub hide_payloads: bool,
    /// The store cannot be read yet: no job that is in it can be looked up.
    pub store_is_away: bool,
    /// Told when a caller who may has asked the server to end.
    pub quit: Arc<Notify>,
    /// Ports of single dialects, for people who want to know where to connect.
    pub doors: Arc<[(&'static str, SocketAddr)]>,
    /// Kind of the store, for people: shown in the statistics.
    pub store: Arc<str>,
    pub version: &'static str,
    pub started: Instant,
    pub phase: watch::Receiver<Phase>,
    pub settings: DialectSettings,
}

/// A dialect that was started. Every method but the ones it needs can be left as it is.
pub trait Running: Any + Send + Sync {
    /// Speaks on one connection of its own port until either side ends it.
    fn converse(self: Arc<Self>, stream: Stream, connection: Connection) -> Soon<'static, ()> {
        Box::pin(async move { drop((stream, connection)) })
    }

    /// What a connection beyond the limits is told before it is closed.
    fn too_many_connections(&self) -> &'static str {
        ""
    }

    /// Whether web pages from this origin may make calls; by default only our own may.
    fn allows_origin(&self, _origin: &str) -> bool {
        false
    }

    /// Understands the lines that this dialect keeps in the journal.
    fn journal_reader(&self) -> Option<Arc<dyn Reader>> {
        None
    }

    /// The server is about to stop: nothing new begins, what runs goes on.
    fn drain(&self) {}

    /// No connection is open any more. What runs may end within `grace`.
    fn stop(&self, _grace: Duration) -> Soon<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// All dialects have stopped and the journal is closed.
    fn close(&self) -> Soon<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The server is gone without a stop: its tasks end at once.
    fn abandon(&self) {}

    /// Handlers of one tenant or, for `None`, of all, at most `limit` kinds.
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

    /// Gives a worker no more jobs, or jobs again. `false`: there is no such worker.
    fn set_quiet(&self, _tenant: &Tenant, _id: &str, _quiet: bool) -> bool {
        false
    }

    /// Forgets a worker: the jobs it has count as failed. `false`: there is no such worker.
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

/// A connection to a dialect's own port.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for S {}

impl Stream {
    /// For protocols to which plain and TLS connections are the same.
    pub fn into_any(self) -> Box<dyn ReadWrite> {
        match self {
            Stream::Plain(stream) => Box::new(stream),
            Stream::Tls(stream) => stream,
        }
    }
}

/// What a conversation has to know beside its bytes.
pub struct Connection {
    /// Counted against its address until [`Arrival::admit`] is called.
    pub arrival: Arc<Arrival>,
    pub phase: watch::Receiver<Phase>,
}
