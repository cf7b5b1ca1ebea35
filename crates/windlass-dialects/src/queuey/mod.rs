//! queuey-queue: a pull queue for WASI binaries on content-addressed data, JSON over HTTP. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs`, `ids.rs` | bytes to what is asked, a job to bytes; UUIDs |
//! | `commands.rs` | what is asked, in the engine's words; how a job looks in this protocol's |
//! | `calls.rs` | the calls on jobs |
//! | `runner.rs` | the same for a runner inside the server |
//! | `blobs.rs` | bytes by their hash |
//! | `errors.rs` | how a refusal is said: a status and a line of text |

mod blobs;
mod calls;
mod commands;
mod errors;
mod ids;
pub mod in_process_runner;
pub mod routes;
mod wire;

use crate::codec::Encoding;
use crate::dialect::{Context, Dialect, Listen, Running, Starting};
use crate::problem::CallError;
use crate::route::{Refusal, Route};
use crate::settings::{BadConfig, COUNT, DialectSettings, Key, Kind, SECONDS, Values, whole};
use axum::response::Response;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::{Policy, Tenant, Timestamp};
use windlass_engine::blob::AddrForm;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuey;

impl Dialect for Queuey {
    fn name(&self) -> &'static str {
        "queuey"
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

    fn listener(&self, settings: &DialectSettings) -> Option<Listen> {
        settings.get::<Settings>().port.map(|port| Listen::Http { port })
    }

    fn start(&self, context: Context) -> Starting<'static> {
        Box::pin(async move { Ok(Arc::new(State::new(context.settings.get())) as Arc<dyn Running>) })
    }
}

const KEYS: &[Key] = &[
    Key::new(
        "queuey.abandoned_age_s",
        SECONDS,
        "300",
        "a job without a heartbeat for so long is given to another",
    ),
    Key::new(
        "queuey.max_attempts",
        COUNT,
        "3",
        "a job with more attempts than this fails when it is abandoned",
    ),
    Key::new(
        "queuey.attempt_counting",
        Kind::Choice(&["literal", "claims-only"]),
        "literal",
        "literal: claims and abandonments count as attempts; claims-only: claims alone",
    ),
    Key::new("queuey.keep_s", SECONDS, "0", "how long ended jobs stay; 0 is for ever"),
    Key::new(
        "queuey.port",
        whole(0, 65_535),
        "0",
        "a port of queuey-queue's own beside that of http, or the next free one; its program used 1717; 0: none",
    ),
];

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
    /// Where to look for a free port of its own.
    pub port: Option<u16>,
}

impl Settings {
    fn from_values(values: &Values) -> Settings {
        Settings {
            addresses: AddrForm::parse(values.text("blobs.address")).unwrap_or_default(),
            abandoned_age_ms: values.seconds_ms("queuey.abandoned_age_s"),
            max_attempts: u32::try_from(values.whole("queuey.max_attempts")).unwrap_or(u32::MAX),
            counting: match values.text("queuey.attempt_counting") {
                "claims-only" => Counting::ClaimsOnly,
                _ => Counting::Literal,
            },
            keep_ms: Some(values.seconds_ms("queuey.keep_s")).filter(|ms| *ms > 0),
            port: u16::try_from(values.whole("queuey.port")).ok().filter(|port| *port > 0),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            addresses: AddrForm::default(),
            abandoned_age_ms: 300_000,
            max_attempts: 3,
            counting: Counting::default(),
            keep_ms: None,
            port: None,
        }
    }
}

/// What the calls share.
struct State {
    settings: Settings,
    /// One for all jobs made here.
    policy: Arc<Policy>,
    looks: Looks,
}

impl Running for State {}

impl State {
    fn new(settings: Settings) -> State {
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
        let mut last = self.last.lock();
        match last.get_mut(tenant) {
            Some(at) => *at = now.max(*at),
            None => {
                last.insert(tenant.clone(), now);
            }
        }
    }

    fn has_looked_since(&self, tenant: &Tenant, at: Timestamp) -> bool {
        let last = self.last.lock();
        last.get(tenant).is_some_and(|looked| *looked >= at)
    }
}
