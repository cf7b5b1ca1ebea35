//! Error responses: `{"code":404,"message":"…"}`, with the status of that number.

use super::Miniq;
use super::wire::BadLine;
use crate::answer::{JSON, answer};
use crate::codec::Encoding;
use crate::problem::{self, ErrorFormat};
use ::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use windlass_engine::journal::JournalError;

pub(super) type Problem = problem::Problem<Miniq>;

impl ErrorFormat for Miniq {
    fn response(problem: &Problem, _encoding: Encoding) -> Response {
        json_response(problem.status, &json!({"code": problem.status.as_u16(), "message": problem.message}))
    }

    fn foreign_tenant_message() -> String {
        "only an admin may act for another client".to_owned()
    }
}

pub(super) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut text = value.to_string();
    text.push('\n');
    answer(status, JSON, text)
}

impl From<BadLine> for Problem {
    fn from(bad: BadLine) -> Problem {
        let status = match bad {
            BadLine::LongHandler(_) | BadLine::TooManyLines(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BadLine::Client(_)
            | BadLine::Dash(_)
            | BadLine::Reserved(_)
            | BadLine::Jobtype(_)
            | BadLine::LangAndBody
            | BadLine::Handler(_)
            | BadLine::When
            | BadLine::Kind(_)
            | BadLine::Payload(_) => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, bad.to_string())
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Problem {
        let status = match error {
            JournalError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            JournalError::Unwritable => StatusCode::BAD_REQUEST,
            // Same status as for a commit with unknown result.
            JournalError::Unknown(_) => StatusCode::INTERNAL_SERVER_ERROR,
            JournalError::Write(_)
            | JournalError::Broken(_)
            | JournalError::Read(_)
            | JournalError::AlreadyRead
            | JournalError::Expired
            | JournalError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        if status.is_server_error() {
            tracing::warn!("cannot add jobs: {error}");
        }
        Problem::new(status, error.to_string())
    }
}
