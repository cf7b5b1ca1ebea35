//! OpenAPI document: the calls of the server, and as a webhook the call that a worker has to implement.

use super::calls::Answer;
use crate::answer::respond;
use crate::codec::Encoding;
use crate::route::Call;
use ::http::StatusCode;

/// Compared by tests with the routes and with the running server.
pub const DOCUMENT: &str = include_str!("openapi.json");

pub async fn document(_: Call) -> Answer {
    Ok(respond(StatusCode::OK, Encoding::Json, DOCUMENT))
}
