//! queuey-queue: a pull queue for WASI binaries on content-addressed data, JSON over HTTP. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `wire.rs`, `ids.rs` | parsing of requests, jobs as JSON; UUIDs |
//! | `commands.rs` | requests as engine commands; jobs in responses |
//! | `calls.rs` | the calls on jobs |
//! | `in_process_runner.rs` | runner inside the server |
//! | `blobs.rs` | upload and download of blobs |
//! | `errors.rs` | error responses: a status and a line of text |

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
use crate::route::{Refusal, Route};
use crate::settings::{BadConfig, COUNT, DialectSettings, Key, SECONDS, ValueKind, Values, whole};
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
        "time without a heartbeat after which a running job is given to another runner",
    ),
    Key::new(
        "queuey.max_attempts",
        COUNT,
        "3",
        "maximum number of attempts; an abandoned job with more attempts fails",
    ),
    Key::new(
        "queuey.attempt_counting",
        ValueKind::Choice(&["literal", "claims-only"]),
        "literal",
        "literal: claims and abandonments count as attempts; claims-only: only claims count",
    ),
    Key::new("queuey.keep_s", SECONDS, "0", "how long finished jobs are kept; 0: for ever"),
    Key::new(
        "queuey.port",
        whole(0, 65_535),
        "0",
        "additional HTTP port for queuey-queue clients, or the next free one; the original program \
         used 1717; 0: none",
    ),
];

/// Events that count as attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Claims and abandonments; a job with more than the limit fails.
    #[default]
    Literal,
    /// Claims; a job fails when it is abandoned and has reached the limit.
    ClaimsOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Form of the address in the response to an upload.
    pub addresses: AddrForm,
    /// Time without a heartbeat after which a job is abandoned.
    pub abandoned_age_ms: i64,
    pub max_attempts: u32,
    pub counting: Counting,
    /// Retention of settled jobs; `None`: for ever.
    pub keep_ms: Option<i64>,
    /// First port tried for a listener of its own.
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

/// State shared by the calls.
struct State {
    settings: Settings,
    /// Policy shared by all jobs created here.
    policy: Arc<Policy>,
    looks: AbandonmentChecks,
}

impl Running for State {}

impl State {
    fn new(settings: Settings) -> State {
        State { policy: Arc::new(commands::policy(&settings)), settings, looks: AbandonmentChecks::default() }
    }
}

/// Time of the last get, claim or tickle per tenant: the calls that detect abandonments in this protocol.
/// Until then a runner whose lease has expired may still complete its job.
#[derive(Default)]
struct AbandonmentChecks {
    last: Mutex<HashMap<Tenant, Timestamp>>,
}

impl AbandonmentChecks {
    fn record(&self, tenant: &Tenant, now: Timestamp) {
        let mut last = self.last.lock();
        match last.get_mut(tenant) {
            Some(at) => *at = now.max(*at),
            None => {
                last.insert(tenant.clone(), now);
            }
        }
    }

    fn checked_since(&self, tenant: &Tenant, at: Timestamp) -> bool {
        let last = self.last.lock();
        last.get(tenant).is_some_and(|looked| *looked >= at)
    }
}
