//! Error responses: `{"error": "code", "message": "sentence"}`, and the status.

use super::Jq;
use super::wire::Bad;
use crate::answer::respond;
use crate::codec::{Encoding, Out};
use crate::problem::{ErrorFormat, Problem};
use crate::route::{BadBody, Call};
use ::http::StatusCode;
use axum::body::Body;
use axum::response::Response;
use windlass_core::Refused;
use windlass_core::limits::BadLimit;
use windlass_engine::{EngineError, VerbError};

pub type JqError = Problem<Jq>;

impl ErrorFormat for Jq {
    fn response(problem: &JqError, encoding: Encoding) -> Response {
        let mut out = Out::new(encoding, 128);
        out.begin_map();
        out.key("error");
        out.str(problem.code);
        out.key("message");
        out.str(&problem.message);
        out.end_map();
        respond(problem.status, encoding, out.into_bytes())
    }

    fn reply_encoding(call: &Call) -> Encoding {
        call.reply_encoding(Encoding::Msgpack)
    }

    fn body_code(bad: BadBody) -> &'static str {
        match bad {
            BadBody::TooLarge { .. } => "too_large",
            BadBody::Slow => "too_slow",
            BadBody::CutOff => "bad_request",
            BadBody::Busy(_) => "busy",
        }
    }

    fn engine_status(error: &EngineError) -> StatusCode {
        let status = match error {
            EngineError::TooLarge { .. }
            | EngineError::ReportTooLarge { .. }
            | EngineError::BlobTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            EngineError::TooMany { .. } => StatusCode::BAD_REQUEST,
            EngineError::Quota { .. } => StatusCode::TOO_MANY_REQUESTS,
            EngineError::OutOfScope { .. } => StatusCode::FORBIDDEN,
            // The commit may or may not have happened: the client has to retry later.
            EngineError::Store(_)
            | EngineError::TooManyWaiters
            | EngineError::Contended
            | EngineError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        };
        if status.is_server_error() {
            tracing::warn!(code = error.code(), "request failed: {error}");
        }
        status
    }
}

impl JqError {
    pub fn no_such_job() -> JqError {
        JqError::coded(StatusCode::NOT_FOUND, "not_found", "job not found")
    }

    pub fn no_such_worker() -> JqError {
        JqError::coded(StatusCode::NOT_FOUND, "not_found", "worker not found; register again")
    }

    pub fn no_such_constraint() -> JqError {
        JqError::coded(StatusCode::NOT_FOUND, "not_found", "constraint not found")
    }

    /// Late report of a worker: the attempt timed out, or another worker has the job.
    pub fn not_yours() -> JqError {
        let message = "this attempt no longer belongs to you: it timed out, or the job was given to another \
             worker";
        JqError::coded(StatusCode::NOT_FOUND, "stale", message)
    }

    pub fn wrong_type() -> JqError {
        let message = "send MessagePack (Content-Type: application/msgpack) or JSON (application/json)";
        JqError::coded(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message)
    }
}

pub fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

impl From<Bad> for JqError {
    fn from(bad: Bad) -> JqError {
        JqError::bad_request(bad.to_string())
    }
}

impl From<crate::codec::Malformed> for JqError {
    fn from(bad: crate::codec::Malformed) -> JqError {
        Bad::from(bad).into()
    }
}

impl From<BadLimit> for JqError {
    fn from(bad: BadLimit) -> JqError {
        JqError::bad_request(bad.to_string())
    }
}

impl From<VerbError> for JqError {
    fn from(error: VerbError) -> JqError {
        match error {
            VerbError::NotFound => JqError::no_such_job(),
            VerbError::ReportTooLarge { .. } => {
                JqError::coded(StatusCode::PAYLOAD_TOO_LARGE, error.code(), error.to_string())
            }
            VerbError::Refused(Refused::LeaseLost | Refused::NotRunning) => JqError::not_yours(),
            VerbError::Refused(
                refused @ (Refused::LeaseLive
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
                | Refused::KeyTaken(_)),
            ) => JqError::coded(StatusCode::CONFLICT, refused.code(), refused.to_string()),
        }
    }
}
