//! The native API: the whole engine, in batches, as JSON or MessagePack. See README.md.
//!
//! | file | contents |
//! |---|---|
//! | `calls.rs` | the list of calls: method, path, role, request and response types |
//! | `calls/` | a file per call, or per few calls that share a response |
//! | `request.rs`, `reply.rs` | parsing of bodies and parameters; writing of responses |
//! | `wire.rs`, `params.rs` | scalars, shared parts of bodies, parameters |
//! | `commands.rs` | conversions to engine types that several calls share |
//! | `views.rs` | a job as shown to clients |
//! | `search.rs` | the search syntax |
//! | `deleted.rs` | jobs whose deletion can be undone |
//! | `errors.rs` | the error format |
//! | `openapi.rs`, `schema.rs` | the OpenAPI description, generated from the list of calls and their types |
//! | `rates.rs`, `history.rs` | rates over the last minute; hourly counters of the last month |

pub mod calls;
mod commands;
mod deleted;
pub mod errors;
pub mod history;
pub mod openapi;
mod params;
pub mod rates;
mod reply;
mod request;
mod schema;
mod search;
mod views;
mod wire;

use crate::codec::Encoding;
use crate::dialect::{Context, Dialect, Running, Soon, Starting};
use crate::ingest::Reader;
use crate::ingest::pushes::PushReader;
use crate::route::{Refusal, Route};
use crate::server::Server;
use crate::settings::{BadConfig, DialectSettings, Key, SECONDS, Values};
use axum::response::Response;
use deleted::Deleted;
use history::History;
use rates::Rates;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::AbortHandle;
use windlass_core::{Keep, Timestamp};
use windlass_engine::{Engine, EngineError};

/// Metrics of the whole server in the Prometheus text format, as `GET /metrics` shows them to an admin.
pub async fn metrics_page(server: &Arc<Server>) -> Result<String, EngineError> {
    calls::metrics::whole_page(server).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native;

impl Dialect for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn routes(&self) -> &'static [Route] {
        calls::CALLS
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::ApiError::from(refusal).response(Encoding::Json)
    }

    fn settings(&self) -> &'static [Key] {
        KEYS
    }

    fn configure(&self, values: &Values, settings: &mut DialectSettings) -> Result<(), BadConfig> {
        settings.put(Settings {
            journals_pushes: values.switch("journal.native"),
            undo_ms: values.seconds_ms("native.undo_delete_s"),
            keep: Keep {
                completed: values.keep("keep.completed"),
                failed: values.keep("keep.failed"),
                cancelled: values.keep("keep.cancelled"),
            },
        });
        Ok(())
    }

    fn start(&self, context: Context) -> Starting<'static> {
        let settings: Settings = context.settings.get();
        let state = Arc::new(State {
            up_since: context.engine.now(),
            deleted: Deleted::new(settings.undo_ms),
            settings,
            engine: context.engine,
            rates: Rates::default(),
            history: History::default(),
            sampling: OnceLock::new(),
        });
        let sampling = tokio::spawn(history::keep_sampling(Arc::clone(&state)));
        let _ = state.sampling.set(sampling.abort_handle());
        Box::pin(async { Ok(state as Arc<dyn Running>) })
    }
}

const KEYS: &[Key] = &[Key::new(
    "native.undo_delete_s",
    SECONDS,
    "60",
    "time for which a deleted job can be brought back; 0: not at all",
)];

#[derive(Clone, Debug)]
pub struct Settings {
    /// Pushes that can wait are written to the journal and acknowledged from there.
    pub journals_pushes: bool,
    /// Time for which a deletion can be undone; 0: not at all.
    pub undo_ms: i64,
    /// Keep times of jobs whose push and queue set none.
    pub keep: Keep,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { journals_pushes: false, undo_ms: 60_000, keep: Keep::default() }
    }
}

/// State shared by the calls.
struct State {
    settings: Settings,
    /// Start of this server.
    up_since: Timestamp,
    engine: Engine,
    deleted: Deleted,
    rates: Rates,
    history: History,
    sampling: OnceLock<AbortHandle>,
}

impl Running for State {
    fn journal_reader(&self) -> Option<Arc<dyn Reader>> {
        Some(Arc::new(PushReader))
    }

    fn stop(&self, _grace: Duration) -> Soon<'_, ()> {
        self.abandon();
        Box::pin(std::future::ready(()))
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.history.read(&self.engine);
            if let Err(error) = self.history.write(&self.engine).await {
                tracing::debug!(%error, "cannot store the last minute of the history");
            }
        })
    }

    fn abandon(&self) {
        if let Some(sampling) = self.sampling.get() {
            sampling.abort();
        }
    }
}
