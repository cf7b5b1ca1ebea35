//! Writes responses in the encoding that the client accepts.

use super::errors::ApiError;
use super::request::reply_encoding;
use crate::answer::respond;
use crate::codec::{Encoding, Out};
use crate::route::Call;
use ::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

pub(super) type Answer = Result<Response, ApiError>;

/// Initial buffer for a response of unknown length.
const ROOM: usize = 256;

pub(super) fn ok(call: &Call, value: &impl Serialize) -> Answer {
    reply(call, StatusCode::OK, ROOM, value)
}

/// `room` is the expected length of the body; it avoids most reallocations.
pub(super) fn reply(call: &Call, status: StatusCode, room: usize, value: &impl Serialize) -> Answer {
    let encoding = reply_encoding(call);
    Ok(respond(status, encoding, encode(encoding, room, value)?))
}

pub(super) fn encode(encoding: Encoding, room: usize, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    let mut out = Out::new(encoding, room);
    match value.serialize(&mut out) {
        Ok(()) => Ok(out.into_bytes()),
        Err(error) => {
            Err(ApiError::coded(StatusCode::INTERNAL_SERVER_ERROR, "unwritable", error.to_string()))
        }
    }
}
