//! The dialect as the server sees it: its configuration keys, its port, and the state its connections share.

use super::commands::Shared;
use super::deferred::Deferred;
use super::profile::Profile;
use super::query::{Program, Queries, QueryLimits};
use super::session::{Session, SessionLimits};
use super::wire;
use crate::budget::Budget;
use crate::dialect::{Connection, Context, Dialect, Guests, Listen, Running, Soon, Starting, Stream};
use crate::guard::Hosts;
use crate::listener::ListenerLimits;
use crate::settings::{BadConfig, Bind, DialectSettings, Key, ValueKind, Values};
use std::sync::Arc;
use std::time::Duration;

/// Longest silence of a connection between two requests. See [`SessionLimits::idle`].
const IDLE: Duration = Duration::from_secs(24 * 3_600);

/// Factor on the time limit for a client's first request where no token is needed: people type requests by
/// hand.
const BY_HAND: u32 = 6;

/// Memory of a query on the smallest machine.
const QUERY_BYTES_MIN: u64 = 64 << 20;

pub struct Bedrock;

const KEYS: &[Key] = &[
    Key::new(
        "bedrock",
        ValueKind::AddressOrOff,
        "127.0.0.1:8888",
        "address of the Bedrock::Jobs dialect, or off (also bedrock.listen)",
    ),
    Key::new(
        "bedrock.profile",
        ValueKind::Choice(&["seed", "current"]),
        "seed",
        "protocol version: seed follows the first description of Bedrock::Jobs, current follows its \
         current source",
    ),
];

impl Dialect for Bedrock {
    fn name(&self) -> &'static str {
        "bedrock"
    }

    fn settings(&self) -> &'static [Key] {
        KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings.put(Settings {
            listen: values.bind_or_off("bedrock")?,
            profile: Profile::parse(values.text("bedrock.profile")).unwrap_or_default(),
        });
        Ok(())
    }

    fn listener(&self, settings: &DialectSettings) -> Option<Listen> {
        settings.get::<Settings>().listen.map(Listen::Tcp)
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move { Ok(Arc::new(State::new(context)) as Arc<dyn Running>) })
    }
}

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub listen: Option<Bind>,
    pub profile: Profile,
}

/// State shared by all connections, and limits of each.
struct State {
    shared: Arc<Shared>,
    deferred: Deferred,
    limits: ListenerLimits,
}

impl State {
    fn new(context: Context) -> State {
        let Settings { listen, profile } = context.settings.get();
        let program = |guests: Guests| Program::new(move || guests.start("run-query"));
        let shared = Arc::new(Shared {
            engine: context.engine,
            profile,
            tokens: context.tokens,
            hide_payloads: context.hide_payloads,
            version: context.version,
            queries: Queries::new(context.guests.map(program), query_limits(&context.budget)),
            hosts: Hosts { loopback_only: listen.is_some_and(|bind| bind.is_loopback()), ..context.hosts },
            budget: context.budget,
            crashed: Default::default(),
            commits: Default::default(),
            answered: Default::default(),
        });
        let later = Deferred::new(Arc::clone(&shared), context.phase);
        State { shared, deferred: later, limits: context.limits }
    }

    fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            wire: wire::RequestLimits {
                head_bytes_max: self.limits.body_bytes_max,
                ..wire::RequestLimits::default()
            },
            idle: IDLE,
            unknown: match self.shared.tokens.is_open() {
                true => self.limits.first_timeout * BY_HAND,
                false => self.limits.first_timeout,
            },
            stall: self.limits.idle_timeout,
            write: self.limits.write_timeout,
        }
    }
}

/// Limits a query to half of the memory for requests.
fn query_limits(budget: &Budget) -> QueryLimits {
    let most = QueryLimits::default().memory_bytes;
    QueryLimits { memory_bytes: most.min((budget.bytes() / 2).max(QUERY_BYTES_MIN)) }
}

impl Running for State {
    fn converse(self: Arc<Self>, stream: Stream, connection: Connection) -> Soon<'static, ()> {
        let (shared, later, limits) =
            (Arc::clone(&self.shared), self.deferred.clone(), self.session_limits());
        let from = (connection.phase, connection.arrival);
        Box::pin(async move {
            match stream {
                Stream::Plain(stream) => Session::new(stream, shared, later, limits, from).run().await,
                Stream::Tls(stream) => Session::new(*stream, shared, later, limits, from).run().await,
            }
        })
    }

    fn too_many_connections(&self) -> &'static str {
        "503 Too many connections\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    }

    fn stop(&self, grace: Duration) -> Soon<'_, ()> {
        Box::pin(self.deferred.ended(grace))
    }
}
