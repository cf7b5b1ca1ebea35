//! The API's description: the calls of the master, and as a webhook the one call a worker has to answer.

use super::calls::Answer;
use super::errors::respond;
use crate::codec::Encoding;
use crate::route::Call;
use ::http::StatusCode;

/// A test holds it against the routes, and another against the running server.
pub const DOCUMENT: &str = include_str!("openapi.json");

pub async fn document(_: Call) -> Answer {
    Ok(respond(StatusCode::OK, Encoding::Json, DOCUMENT))
}
