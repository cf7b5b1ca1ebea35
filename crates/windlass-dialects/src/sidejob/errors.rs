//! How a refusal is said: `{"error": message}`, and the fitting status.

use super::wire::BadAsk;
use crate::auth::BadTenant;
use crate::route::{BadBody, Refusal};
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::Response;
use windlass_core::ports::PortError;
use windlass_core::{BadName, JobId};
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

    /// What is asked makes no sense, or may not be now.
    pub fn refused(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// `id` as the caller wrote it.
    pub fn no_job(id: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, format!("Job {id} does not exist!"))
    }

    pub fn stale(id: JobId) -> Problem {
        let message = format!(
            "Job {id} is not yours any more: the lease of this run has ended, or the token is not that of its run"
        );
        Problem::new(StatusCode::CONFLICT, message)
    }

    pub fn not_registered(class: &str, queue: &str) -> Problem {
        Problem::refused(format!("No worker registered for {class} in queue {queue}"))
    }

    pub fn no_longer_registered(class: &str, queue: &str) -> Problem {
        Problem::refused(format!("Worker no longer registered for {class} in queue {queue}"))
    }

    pub fn adopts_itself(id: JobId) -> Problem {
        Problem::refused(format!("Job {id} cannot adopt itself as a child"))
    }

    pub fn has_a_parent(id: JobId, child: JobId) -> Problem {
        Problem::refused(format!("Job {id} cannot adopt job {child} as it already has a parent"))
    }

    pub fn would_go_round(id: JobId, child: JobId) -> Problem {
        Problem::refused(format!("Job {id} cannot adopt job {child} as it is one of its ancestors"))
    }

    pub fn name_not_unique(id: JobId, child: JobId, name: &str) -> Problem {
        Problem::refused(format!("Job {id} cannot adopt job {child} as child name {name} is not unique"))
    }

    pub fn not_a_child(id: JobId, child: JobId) -> Problem {
        Problem::refused(format!("Job {id} cannot disown job {child} as it is not a child"))
    }

    pub fn no_such_child(id: JobId, name: &str) -> Problem {
        Problem::refused(format!("Job {id} cannot disown non-existent child {name}"))
    }

    /// What was wrong with a port of job `id`.
    pub fn port(id: JobId, error: &PortError) -> Problem {
        match error {
            PortError::BadName { name } => Problem::refused(format!("Invalid port name: {name}")),
            PortError::Missing { side, name } => {
                Problem::refused(format!("Job {id} does not have {side} {name}!"))
            }
            PortError::NoDestination => Problem::refused("Nothing to connect to: name at least one port"),
            PortError::ValueTooLong { .. }
            | PortError::TooManyItems { .. }
            | PortError::TooManyPorts { .. }
            | PortError::TooLarge { .. } => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("Job {id}: {error}"))
            }
            PortError::NotJson { .. } | PortError::TooDeep { .. } => Problem::refused(error.to_string()),
        }
    }

    pub fn response(&self) -> Response {
        let body = serde_json::json!({ "error": self.message });
        let mut response = json(body.to_string());
        *response.status_mut() = self.status;
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

pub fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
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
        match &bad {
            BadAsk::NotJson(_) => Problem::new(StatusCode::BAD_REQUEST, bad.to_string()),
            BadAsk::Field(message) => Problem::refused(message.clone()),
            BadAsk::Port(PortError::ValueTooLong { .. }) => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, bad.to_string())
            }
            BadAsk::Port(_) => Problem::refused(bad.to_string()),
        }
    }
}

impl From<BadName> for Problem {
    fn from(bad: BadName) -> Problem {
        Problem::refused(bad.to_string())
    }
}

impl From<BadTenant> for Problem {
    fn from(bad: BadTenant) -> Problem {
        let status = match bad {
            BadTenant::NotYours => StatusCode::FORBIDDEN,
            BadTenant::Name(_) => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, bad.to_string())
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

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        let status = match error.code() {
            "store_full" => StatusCode::INSUFFICIENT_STORAGE,
            "payload_too_large" | "batch_too_large" | "blob_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "too_many_waiters" => StatusCode::TOO_MANY_REQUESTS,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::warn!(%error, "a call of the SideJob dialect has no answer");
        }
        Problem::new(status, error.to_string())
    }
}
