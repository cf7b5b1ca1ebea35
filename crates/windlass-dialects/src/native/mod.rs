//! The native API: everything the engine can do, batch first, in JSON or MessagePack. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role, what it asks and answers |
//! | `wire.rs` | bytes to what is asked |
//! | `commands.rs` | what is asked, in the engine's words |
//! | `blobs.rs`, `calls.rs`, `bulk.rs`, `queries.rs`, `watch.rs`, `probes.rs`, `events.rs`, `family.rs`, `handlers.rs`, `import.rs`, `metrics.rs`, `trail.rs` | the calls |
//! | `search.rs` | the words of a search |
//! | `views.rs` | how jobs, queues and answers look |
//! | `errors.rs` | the one shape of all errors |
//! | `openapi.rs`, `schemas.rs` | the API's description, made from the routes |
//! | `rates.rs`, `history.rs` | how much per second; what each hour of the last month was like |

mod blobs;
mod bulk;
mod calls;
pub mod commands;
pub mod errors;
mod events;
mod family;
mod handlers;
pub mod history;
mod import;
mod metrics;
pub mod openapi;
mod probes;
mod queries;
mod quota;
pub mod rates;
pub mod routes;
mod schemas;
mod search;
mod tokens;
mod trail;
pub mod views;
mod watch;
pub mod wire;

use crate::Dialect;
use crate::codec::Encoding;
use crate::route::{Refusal, Route};
use axum::response::Response;

pub struct Native;

impl Dialect for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn routes(&self) -> &'static [Route] {
        routes::ROUTES
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::ApiError::from(refusal).response(Encoding::Json)
    }
}
