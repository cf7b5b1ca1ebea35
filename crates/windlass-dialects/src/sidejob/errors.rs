//! Refusals: `{"error": message}` with an HTTP status.

use super::SideJob;
use super::wire::BadCall;
use crate::answer::{JSON, answer};
use crate::codec::Encoding;
use crate::problem::{self, ErrorFormat};
use ::http::StatusCode;
use axum::body::Body;
use axum::response::Response;
use windlass_core::JobId;
use windlass_core::ports::PortError;

pub(super) type Problem = problem::Problem<SideJob>;

impl Problem {
    /// Invalid request, or a request that is not allowed in the current state.
    pub fn refused(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// `id` is the text that the client sent.
    pub fn no_job(id: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, format!("Job {id} does not exist!"))
    }

    pub fn stale(id: JobId) -> Problem {
        let message = format!(
            "Job {id} no longer belongs to this worker: the lease of the run has expired, or the \
             token is wrong"
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
            "Job {id} is not a SideJob job, and no worker is registered for {class} in queue \
             {queue}; the job was not changed"
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

    /// Error concerning a port of job `id`.
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
}

impl ErrorFormat for SideJob {
    fn response(problem: &Problem, _encoding: Encoding) -> Response {
        let body = serde_json::json!({ "error": problem.message });
        answer(problem.status, JSON, body.to_string())
    }

    fn bad_name_status() -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }
}

pub(super) fn json(body: impl Into<Body>) -> Response {
    answer(StatusCode::OK, JSON, body)
}

impl From<BadCall> for Problem {
    fn from(bad: BadCall) -> Problem {
        match &bad {
            BadCall::NotJson(_) | BadCall::Member(_) => {
                Problem::new(StatusCode::BAD_REQUEST, bad.to_string())
            }
            BadCall::Field(message) => Problem::refused(message.clone()),
            BadCall::TooManyMembers { .. } | BadCall::Port(PortError::ValueTooLong { .. }) => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, bad.to_string())
            }
            BadCall::Port(_) => Problem::refused(bad.to_string()),
        }
    }
}
