//! How a refusal is said: a status, and a line of text for people.

use super::wire::BadAsk;
use crate::answer::{TEXT, answer};
use crate::auth::BadTenant;
use crate::route::{BadBody, Refusal, status_of};
use ::http::StatusCode;
use axum::response::Response;
use windlass_core::BadName;
use windlass_engine::{EngineError, Stop};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem { status, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn response(&self) -> Response {
        answer(self.status, TEXT, self.message.clone())
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Problem {
        Problem::new(refusal.status(), refusal.to_string())
    }
}

impl From<BadAsk> for Problem {
    fn from(bad: BadAsk) -> Problem {
        let status = match bad {
            BadAsk::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            BadAsk::Fields(_) => StatusCode::UNPROCESSABLE_ENTITY,
            BadAsk::NotJson(_) | BadAsk::EmptyAddress { .. } | BadAsk::LongAddress { .. } => {
                StatusCode::BAD_REQUEST
            }
        };
        Problem::new(status, bad.to_string())
    }
}

impl From<BadName> for Problem {
    fn from(bad: BadName) -> Problem {
        Problem::bad_request(bad.to_string())
    }
}

impl From<BadTenant> for Problem {
    fn from(bad: BadTenant) -> Problem {
        Problem::new(bad.status(), bad.to_string())
    }
}

impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Problem {
        Problem::new(bad.status(), bad.to_string())
    }
}

impl From<Problem> for Stop<Problem> {
    fn from(problem: Problem) -> Stop<Problem> {
        Stop::Refuse(problem)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        Problem::new(status_of(&error), error.to_string())
    }
}
