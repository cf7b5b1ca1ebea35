//! Error format: `{"error":{"code","message"}}` with an HTTP status.

use super::reply::encode;
use super::wire::{self, Id};
use crate::answer::answer;
use crate::auth::BadTenant;
use crate::codec::{Encoding, Malformed};
use crate::problem::CallError;
use crate::route::{BadBody, Call, Refusal, status_of};
use ::http::StatusCode;
use axum::body::Body;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use windlass_core::{BadName, JobId, Refused};
use windlass_engine::{EngineError, PushRefused, VerbError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    /// Conflicting job.
    pub id: Option<JobId>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), id: None }
    }

    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn batch_too_large(count: usize) -> ApiError {
        let max = wire::BATCH_MAX;
        let message = format!("{count} entries in one call; the maximum is {max}, send several calls");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message)
    }

    /// Same error for a job that never existed, was deleted, or belongs to another tenant.
    pub fn no_such_job() -> ApiError {
        VerbError::NotFound.into()
    }

    pub fn body(&self) -> ErrorBody<'_> {
        ErrorBody { code: self.code, message: (&*self.message).into(), id: self.id.map(Id) }
    }

    pub fn into_body(self) -> ErrorBody<'static> {
        ErrorBody { code: self.code, message: self.message.into(), id: self.id.map(Id) }
    }
}

impl CallError for ApiError {
    fn reply_encoding(call: &Call) -> Encoding {
        call.reply_encoding(Encoding::Json)
    }

    fn response(&self, encoding: Encoding) -> Response {
        let answer = ErrorAnswer { error: self.body() };
        // An error that cannot be serialized has an empty body.
        respond(self.status, encoding, encode(encoding, 128, &answer).unwrap_or_default())
    }
}

/// Error response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorAnswer<'a> {
    error: ErrorBody<'a>,
}

/// Error.
#[derive(Serialize, JsonSchema)]
pub struct ErrorBody<'a> {
    /// Stable code for programs.
    pub code: &'static str,
    /// Message for people, with advice.
    pub message: Cow<'a, str>,
    /// Conflicting job.
    pub id: Option<Id>,
}

pub fn respond(status: StatusCode, encoding: Encoding, body: impl Into<Body>) -> Response {
    answer(status, encoding.content_type(), body)
}

impl From<Malformed> for ApiError {
    fn from(malformed: Malformed) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "malformed", format!("invalid body: {malformed}"))
    }
}

impl From<BadName> for ApiError {
    fn from(bad: BadName) -> ApiError {
        ApiError::bad_request(bad.to_string())
    }
}

impl From<BadTenant> for ApiError {
    fn from(bad: BadTenant) -> ApiError {
        match bad {
            BadTenant::NotYours => ApiError::new(StatusCode::FORBIDDEN, "forbidden", bad.to_string()),
            BadTenant::Name(message) => ApiError::bad_request(message),
        }
    }
}

impl From<BadBody> for ApiError {
    fn from(bad: BadBody) -> ApiError {
        let code = match bad {
            BadBody::TooLarge { .. } => "body_too_large",
            BadBody::Slow => "body_too_slow",
            BadBody::CutOff => "body_cut_off",
            BadBody::Busy(_) => "busy",
        };
        ApiError::new(bad.status(), code, bad.to_string())
    }
}

impl From<&Refusal> for ApiError {
    fn from(refusal: &Refusal) -> ApiError {
        ApiError::new(refusal.status(), refusal.code(), refusal.to_string())
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        ApiError::new(status_of(&error), error.code(), error.to_string())
    }
}

impl From<VerbError> for ApiError {
    fn from(error: VerbError) -> ApiError {
        let status = match error {
            VerbError::NotFound => StatusCode::NOT_FOUND,
            VerbError::Refused(
                Refused::LeaseLost
                | Refused::LeaseLive
                | Refused::NotRunning
                | Refused::Running
                | Refused::NotDue
                | Refused::NotClaimable(_)
                | Refused::Settled(_)
                | Refused::Waiting
                | Refused::HasChildren
                | Refused::Terminating
                | Refused::StillKept
                | Refused::KeyTaken(_),
            ) => StatusCode::CONFLICT,
            VerbError::ReportTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        };
        let id = match error {
            VerbError::Refused(Refused::KeyTaken(holder)) => Some(holder),
            VerbError::Refused(_) | VerbError::NotFound | VerbError::ReportTooLarge { .. } => None,
        };
        ApiError { id, ..ApiError::new(status, error.code(), error.to_string()) }
    }
}

impl From<PushRefused> for ApiError {
    fn from(refused: PushRefused) -> ApiError {
        let (status, id) = match refused {
            PushRefused::Duplicate(id) => (StatusCode::CONFLICT, Some(id)),
            PushRefused::NoParent(_) => (StatusCode::NOT_FOUND, None),
            PushRefused::ParentNotActive(_) => (StatusCode::CONFLICT, None),
        };
        ApiError { status, code: refused.code(), message: refused.to_string(), id }
    }
}
