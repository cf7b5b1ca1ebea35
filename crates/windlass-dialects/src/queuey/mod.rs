//! queuey-queue: a pull queue for WASI binaries on content-addressed data, JSON over HTTP. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs`, `ids.rs` | bytes to what is asked, a job to bytes; UUIDs |
//! | `commands.rs` | what is asked, in the engine's words; how a job looks in this protocol's |
//! | `calls.rs` | the calls on jobs |
//! | `insider.rs` | the same for a runner inside the server |
//! | `blobs.rs` | bytes by their hash |
//! | `errors.rs` | how a refusal is said: a status and a line of text |

mod blobs;
mod calls;
mod commands;
mod errors;
mod ids;
pub mod insider;
pub mod routes;
mod wire;

use crate::Dialect;
use crate::route::{Refusal, Route};
use axum::response::Response;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use windlass_core::{Policy, Tenant, Timestamp};
use windlass_engine::blob::AddrForm;

pub struct Queuey;

impl Dialect for Queuey {
    fn name(&self) -> &'static str {
        "queuey"
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::Problem::from(refusal).response()
    }
}

/// What counts as an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// A claim and an abandonment each add one; more than the limit is failed.
    #[default]
    Literal,
    /// Only claims do; as many as the limit, all abandoned, is failed.
    ClaimsOnly,
}

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How the answer to a put spells the address.
    pub addresses: AddrForm,
    /// A job is abandoned when its runner gave no sign of life for longer than this.
    pub abandoned_age_ms: i64,
    pub max_attempts: u32,
    pub counting: Counting,
    /// How long ended jobs stay; `None`: for ever.
    pub keep_ms: Option<i64>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            addresses: AddrForm::default(),
            abandoned_age_ms: 300_000,
            max_attempts: 3,
            counting: Counting::default(),
            keep_ms: None,
        }
    }
}

/// What the calls share.
pub struct State {
    pub settings: Settings,
    /// One for all jobs made here.
    policy: Arc<Policy>,
    looks: Looks,
}

impl State {
    pub fn new(settings: Settings) -> State {
        State { policy: Arc::new(commands::policy(&settings)), settings, looks: Looks::default() }
    }
}

/// When somebody of a tenant last looked at its jobs, in a way that in this protocol brings abandonments to light: any
/// get, claim or tickle. Until then a runner whose time is over may still complete its job.
#[derive(Default)]
struct Looks {
    last: Mutex<HashMap<Tenant, Timestamp>>,
}

impl Looks {
    fn looked(&self, tenant: &Tenant, now: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.get_mut(tenant) {
            Some(at) => *at = now.max(*at),
            None => {
                last.insert(tenant.clone(), now);
            }
        }
    }

    fn has_looked_since(&self, tenant: &Tenant, at: Timestamp) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(tenant).is_some_and(|looked| *looked >= at)
    }
}
