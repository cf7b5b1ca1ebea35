//! The native API: everything the engine can do, batch first, in JSON or MessagePack. See README.md.
//!
//! | file | holds |
//! |---|---|
//! | `calls.rs` | the list of calls: method, path, role, what is asked and answered |
//! | `calls/` | a file per call, or per few that share their answer |
//! | `request.rs`, `reply.rs` | reads bodies and parameters; writes answers |
//! | `wire.rs`, `params.rs` | scalars, parts and parameters that calls share |
//! | `commands.rs` | what calls share of saying it in the engine's words |
//! | `views.rs` | how a job looks |
//! | `search.rs` | the words of a search |
//! | `errors.rs` | the one shape of all errors |
//! | `openapi.rs`, `schema.rs` | the API's description, made from the list and from the types that are read and written |
//! | `rates.rs`, `history.rs` | how much per second; what each hour of the last month was like |

pub mod calls;
mod commands;
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
        calls::CALLS
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        errors::ApiError::from(refusal).response(Encoding::Json)
    }
}
