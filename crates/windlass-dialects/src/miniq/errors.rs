//! How a refusal is said: `{"code":404,"message":"…"}`, with the status of that number.

use super::wire::BadAsk;
use crate::answer::{JSON, answer};
use crate::auth::BadTenant;
use crate::journal::JournalError;
use crate::route::{BadBody, Refusal, status_of};
use ::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use windlass_engine::EngineError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem { status, message: message.into() }
    }

    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, message)
    }

    pub fn response(&self) -> Response {
        json_response(self.status, &json!({"code": self.status.as_u16(), "message": self.message}))
    }
}

pub fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut text = value.to_string();
    text.push('\n');
    answer(status, JSON, text)
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Problem {
        Problem::new(refusal.status(), refusal.to_string())
    }
}

impl From<BadAsk> for Problem {
    fn from(bad: BadAsk) -> Problem {
        let status = match bad {
            BadAsk::LongHandler(_) | BadAsk::TooManyLines(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BadAsk::Client(_)
            | BadAsk::Dash(_)
            | BadAsk::Reserved(_)
            | BadAsk::Jobtype(_)
            | BadAsk::LangAndBody
            | BadAsk::Handler(_)
            | BadAsk::When
            | BadAsk::Kind(_)
            | BadAsk::Payload(_) => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, bad.to_string())
    }
}

impl From<BadTenant> for Problem {
    fn from(bad: BadTenant) -> Problem {
        let status = bad.status();
        match bad {
            BadTenant::NotYours => {
                Problem::new(status, "only an admin may speak for another client than their own")
            }
            BadTenant::Name(why) => Problem::new(status, why),
        }
    }
}

impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Problem {
        Problem::new(bad.status(), bad.to_string())
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Problem {
        let status = match error {
            JournalError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            JournalError::Unwritable => StatusCode::BAD_REQUEST,
            // As for jobs of which the store does not know what became.
            JournalError::Unknown(_) => StatusCode::INTERNAL_SERVER_ERROR,
            JournalError::Write(_)
            | JournalError::Broken(_)
            | JournalError::Read(_)
            | JournalError::AlreadyRead
            | JournalError::Expired
            | JournalError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        if status.is_server_error() {
            tracing::warn!("an add failed: {error}");
        }
        Problem::new(status, error.to_string())
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        Problem::new(status_of(&error), error.to_string())
    }
}
