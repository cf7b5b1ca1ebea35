//! SideJob: jobs that live for months, with ports, state and children; JSON over HTTP under `/sidejob`. See
//! README.md.
//!
//! | file | contents |
//! |---|---|
//! | `routes.rs` | all calls: method, path, role |
//! | `wire.rs` | parsing of request bodies; values stay as written |
//! | `calls.rs`, `create.rs`, `family.rs`, `workers.rs` | the calls: jobs and ports; creation; parents and children; workers and locks |
//! | `presence.rs` | workers that hold a connection, and the end of their leases when it closes |
//! | `tx.rs` | a call as one transaction of the engine, with its log entries |
//! | `runs.rs`, `ports.rs` | rules: which job runs and when; values through ports |
//! | `registry.rs`, `log.rs` | registered classes; log of port values and errors |
//! | `views.rs`, `errors.rs` | JSON of a job and of a refusal |

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
use crate::route::{Refusal, Route};
use crate::server::Server;
use crate::settings::{BadConfig, COUNT, DialectSettings, Key, SECONDS, ValueKind, Values};
use axum::response::Response;
use std::sync::Arc;
use windlass_core::Policy;

/// Origin of the jobs created by this dialect.
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
        "time without a heartbeat after which a SideJob run is given to another worker",
    ),
    Key::new(
        "sidejob.grace_s",
        SECONDS,
        "1",
        "time in which a SideJob worker whose connection was lost may reconnect and keep its runs",
    ),
    Key::new(
        "sidejob.runs_per_minute",
        COUNT,
        "600",
        "maximum number of runs of a SideJob job per minute; a job that exceeds it is terminated",
    ),
    Key::new(
        "sidejob.origins",
        ValueKind::Text,
        "",
        "origins of web pages that may call the SideJob dialect (CORS), separated by spaces; * \
         allows all",
    ),
];

/// Settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a lease. A run without a heartbeat for this long goes to another worker.
    pub lease_ms: i64,
    /// Grace period after a worker's connection ends. Its leases expire unless it connects again within this
    /// time.
    pub grace_ms: i64,
    /// Runs of one job within a calendar minute.
    pub runs_per_minute: u32,
    /// Origins of web pages that may call; `*`: any origin.
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
            // A lease of length zero would let no run end.
            lease_ms: values.seconds_ms("sidejob.lease_s").max(1_000),
            grace_ms: values.seconds_ms("sidejob.grace_s"),
            runs_per_minute: u32::try_from(values.whole("sidejob.runs_per_minute")).unwrap_or(u32::MAX),
            origins: values.text("sidejob.origins").split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// State shared by the calls.
struct State {
    settings: Settings,
    /// Shared by all jobs created here.
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

/// Returns the state of this dialect.
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
