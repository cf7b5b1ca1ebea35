//! queuey-queue: a pull queue for WASI binaries on content-addressed data, JSON over HTTP. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | every call: method, path, role |
//! | `blobs.rs` | bytes by their hash |
//! | `errors.rs` | how a refusal is said: a status and a line of text |

mod blobs;
mod errors;
mod routes;

use crate::Dialect;
use crate::route::{Refusal, Route};
use axum::response::Response;
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

/// What an operator may set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How the answer to a put spells the address.
    pub addresses: AddrForm,
}
