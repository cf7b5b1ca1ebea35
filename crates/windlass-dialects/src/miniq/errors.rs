//! How a refusal is said: `{"code":404,"message":"…"}`, with the status of that number.

use super::wire::BadAsk;
use crate::auth::BadTenant;
use crate::journal::JournalError;
use crate::route::{BadBody, Refusal};
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
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
        let mut response =
            json_response(self.status, &json!({"code": self.status.as_u16(), "message": self.message}));
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

pub fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut text = value.to_string();
    text.push('\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
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
        match bad {
            BadTenant::NotYours => Problem::new(
                StatusCode::FORBIDDEN,
                "only an admin may speak for another client than their own",
            ),
            BadTenant::Name(why) => Problem::new(StatusCode::BAD_REQUEST, why),
        }
    }
}

impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Problem {
        let status = match bad {
            BadBody::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BadBody::Slow => StatusCode::REQUEST_TIMEOUT,
            BadBody::CutOff => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, bad.to_string())
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Problem {
        let status = match error {
            JournalError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            JournalError::Unwritable => StatusCode::BAD_REQUEST,
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
        let status = match error.code() {
            "store_full" => StatusCode::INSUFFICIENT_STORAGE,
            "payload_too_large" | "batch_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "unsupported" => StatusCode::NOT_IMPLEMENTED,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::warn!(code = error.code(), "a call failed: {error}");
        }
        Problem::new(status, error.to_string())
    }
}
