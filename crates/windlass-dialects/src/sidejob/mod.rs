//! SideJob: jobs that live for months, with ports, state and children; JSON over HTTP under `/sidejob`. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs` | bytes to what is asked, values as they were written |
//! | `calls.rs`, `create.rs`, `family.rs`, `workers.rs` | the calls: jobs and ports; making; parents and children; workers and locks |
//! | `presence.rs` | workers that hold a connection, and what follows when it ends |
//! | `tx.rs` | a call as one transaction of the engine, with what it logs |
//! | `runs.rs`, `ports.rs` | the rules: who is run and when; what flows |
//! | `registry.rs`, `log.rs` | classes with workers; what flowed and went wrong |
//! | `views.rs`, `errors.rs` | how a job and a refusal look |

mod calls;
mod create;
mod errors;
mod family;
mod log;
mod ports;
mod presence;
mod registry;
pub mod routes;
mod runs;
mod tx;
mod views;
mod wire;
mod workers;

use crate::codec::Encoding;
use crate::dialect::{Context, Dialect, Running, Starting};
use crate::problem::CallError;
use crate::route::{Refusal, Route};
use crate::server::Server;
use crate::settings::{BadConfig, COUNT, DialectSettings, Key, Kind, SECONDS, Values};
use axum::response::Response;
use std::sync::Arc;
use windlass_core::Policy;

/// Where jobs were made, as they say it.
const ORIGIN: &str = "sidejob";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideJob;

impl Dialect for SideJob {
    fn name(&self) -> &'static str {
        ORIGIN
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::Problem::from(refusal).response(Encoding::Json)
    }

    fn settings(&self) -> &'static [Key] {
        KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings.put(Settings::from_values(values));
        Ok(())
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move { Ok(Arc::new(State::new(context.settings.get())) as Arc<dyn Running>) })
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "sidejob.lease_s",
        SECONDS,
        "60",
        "a SideJob run without a sign of life for so long is another worker's",
    ),
    Key::new(
        "sidejob.grace_s",
        SECONDS,
        "1",
        "a SideJob worker whose connection ended keeps its runs if it opens another one within so long",
    ),
    Key::new(
        "sidejob.runs_per_minute",
        COUNT,
        "600",
        "a SideJob job that begins one more run in one minute by the clock is terminated",
    ),
    Key::new(
        "sidejob.origins",
        Kind::Text,
        "",
        "web pages from these origins, separated by spaces, may call the SideJob dialect; * is all of them",
    ),
];

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A run is another worker's when its worker gave no sign of life for this long.
    pub lease_ms: i64,
    /// A worker whose connection ended may open another one for this long before its runs are taken from it.
    pub grace_ms: i64,
    /// Runs of one job in one minute by the clock.
    pub runs_per_minute: u32,
    /// Web pages from these origins may call; `*`: from everywhere.
    pub origins: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { lease_ms: 60_000, grace_ms: 1_000, runs_per_minute: 600, origins: Vec::new() }
    }
}

impl Settings {
    fn from_values(values: &Values) -> Settings {
        Settings {
            // Without any time no run could end.
            lease_ms: values.seconds_ms("sidejob.lease_s").max(1_000),
            grace_ms: values.seconds_ms("sidejob.grace_s"),
            runs_per_minute: u32::try_from(values.whole("sidejob.runs_per_minute")).unwrap_or(u32::MAX),
            origins: values.text("sidejob.origins").split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// What the calls share.
struct State {
    settings: Settings,
    /// One for all jobs made here.
    policy: Arc<Policy>,
    registry: registry::Registry,
    log: log::Log,
    presences: presence::Presences,
}

impl Running for State {
    fn allows_origin(&self, origin: &str) -> bool {
        self.settings.origins.iter().any(|allowed| allowed == origin || allowed == "*")
    }
}

/// The state of this dialect.
fn state_of(server: &Server) -> &State {
    server.state()
}

impl State {
    fn new(settings: Settings) -> State {
        State {
            policy: Arc::new(create::policy(&settings)),
            settings,
            registry: registry::Registry::default(),
            log: log::Log::default(),
            presences: presence::Presences::default(),
        }
    }
}
