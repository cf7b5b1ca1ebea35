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

use crate::Dialect;
use crate::http::Server;
use crate::route::{Refusal, Route};
use axum::response::Response;
use std::sync::Arc;
use windlass_core::Policy;

/// Where jobs were made, as they say it.
const ORIGIN: &str = "sidejob";

pub struct SideJob;

impl Dialect for SideJob {
    fn name(&self) -> &'static str {
        ORIGIN
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::Problem::from(refusal).response()
    }

    fn lets_in(&self, server: &Server, origin: &str) -> bool {
        server.sidejob.settings.origins.iter().any(|allowed| allowed == origin || allowed == "*")
    }
}

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

/// What the calls share.
pub struct State {
    pub settings: Settings,
    /// One for all jobs made here.
    policy: Arc<Policy>,
    registry: registry::Registry,
    log: log::Log,
    presences: presence::Presences,
}

impl State {
    pub fn new(settings: Settings) -> State {
        State {
            policy: Arc::new(create::policy(&settings)),
            settings,
            registry: registry::Registry::default(),
            log: log::Log::default(),
            presences: presence::Presences::default(),
        }
    }
}
