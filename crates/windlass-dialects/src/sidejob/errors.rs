//! How a refusal is said: `{"error": message}`, and the fitting status.

use super::wire::BadAsk;
use crate::answer::{JSON, answer};
use crate::auth::BadTenant;
use crate::route::{BadBody, Refusal, status_of};
use ::http::StatusCode;
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

    pub fn made_elsewhere(id: JobId, class: &str, queue: &str) -> Problem {
        Problem::refused(format!(
            "Job {id} was not made by SideJob, and no worker is registered for {class} in queue {queue}: it stays as it is"
        ))
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
        answer(self.status, JSON, body.to_string())
    }
}

pub fn json(body: impl Into<Body>) -> Response {
    answer(StatusCode::OK, JSON, body)
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Problem {
        Problem::new(refusal.status(), refusal.to_string())
    }
}

impl From<BadAsk> for Problem {
    fn from(bad: BadAsk) -> Problem {
        match &bad {
            BadAsk::NotJson(_) | BadAsk::Member(_) => Problem::new(StatusCode::BAD_REQUEST, bad.to_string()),
            BadAsk::Field(message) => Problem::refused(message.clone()),
            BadAsk::TooManyMembers { .. } | BadAsk::Port(PortError::ValueTooLong { .. }) => {
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
        Problem::new(bad.status(), bad.to_string())
    }
}

impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Problem {
        Problem::new(bad.status(), bad.to_string())
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        Problem::new(status_of(&error), error.to_string())
    }
}
