//! Error format: `{"error":{"code","message"}}` with an HTTP status.

use super::Native;
use super::reply::encode;
use super::wire::{self, Id};
use crate::answer::respond;
use crate::codec::{Encoding, Malformed};
use crate::problem::{ErrorFormat, Problem};
use crate::route::{BadBody, Call};
use ::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::Refused;
use windlass_engine::{PushRefused, VerbError};

pub type ApiError = Problem<Native>;

impl ApiError {
    pub fn batch_too_large(count: usize) -> ApiError {
        let max = wire::BATCH_MAX;
        let message = format!("{count} entries in one call; the maximum is {max}, send several calls");
        ApiError::coded(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message)
    }

    /// Same error for a job that never existed, was deleted, or belongs to another tenant.
    pub fn no_such_job() -> ApiError {
        VerbError::NotFound.into()
    }

    pub fn into_body(self) -> ErrorBody {
        ErrorBody { code: self.code, message: self.message, id: self.job.map(Id) }
    }
}

impl ErrorFormat for Native {
    fn response(problem: &ApiError, encoding: Encoding) -> Response {
        let answer = ErrorAnswer { error: problem.clone().into_body() };
        // An error that cannot be serialized has an empty body.
        respond(problem.status, encoding, encode(encoding, 128, &answer).unwrap_or_default())
    }

    fn reply_encoding(call: &Call) -> Encoding {
        call.reply_encoding(Encoding::Json)
    }

    fn body_code(bad: BadBody) -> &'static str {
        match bad {
            BadBody::TooLarge { .. } => "body_too_large",
            BadBody::Slow => "body_too_slow",
            BadBody::CutOff => "body_cut_off",
            BadBody::Busy(_) => "busy",
        }
    }
}

/// Error response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorAnswer {
    error: ErrorBody,
}

/// Error.
#[derive(Serialize, JsonSchema)]
pub struct ErrorBody {
    /// Stable code for programs.
    pub code: &'static str,
    /// Message for people, with advice.
    pub message: String,
    /// Conflicting job.
    pub id: Option<Id>,
}

impl From<Malformed> for ApiError {
    fn from(malformed: Malformed) -> ApiError {
        ApiError::coded(StatusCode::BAD_REQUEST, "malformed", format!("invalid body: {malformed}"))
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
                | Refused::NoStep
                | Refused::StepsFull
                | Refused::SignalsFull
                | Refused::KeyTaken(_),
            ) => StatusCode::CONFLICT,
            VerbError::ReportTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        };
        let id = match error {
            VerbError::Refused(Refused::KeyTaken(holder)) => Some(holder),
            VerbError::Refused(_) | VerbError::NotFound | VerbError::ReportTooLarge { .. } => None,
        };
        ApiError::coded(status, error.code(), error.to_string()).about(id)
    }
}

impl From<PushRefused> for ApiError {
    fn from(refused: PushRefused) -> ApiError {
        let (status, id) = match refused {
            PushRefused::Duplicate(id) => (StatusCode::CONFLICT, Some(id)),
            PushRefused::NoParent(_) => (StatusCode::NOT_FOUND, None),
            PushRefused::ParentNotActive(_) => (StatusCode::CONFLICT, None),
        };
        ApiError::coded(status, refused.code(), refused.to_string()).about(id)
    }
}
