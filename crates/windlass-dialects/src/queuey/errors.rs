//! Error responses: a status and a line of text.

use super::Queuey;
use super::wire::BadRequest;
use crate::answer::{TEXT, answer};
use crate::codec::Encoding;
use crate::problem::{self, ErrorFormat};
use ::http::StatusCode;
use axum::response::Response;
use windlass_engine::Stop;

pub(super) type Problem = problem::Problem<Queuey>;

impl ErrorFormat for Queuey {
    fn response(problem: &Problem, _encoding: Encoding) -> Response {
        answer(problem.status, TEXT, problem.message.clone())
    }
}

impl From<BadRequest> for Problem {
    fn from(bad: BadRequest) -> Problem {
        let status = match bad {
            BadRequest::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            BadRequest::Fields(_) => StatusCode::UNPROCESSABLE_ENTITY,
            BadRequest::NotJson(_) | BadRequest::EmptyAddress { .. } | BadRequest::LongAddress { .. } => {
                StatusCode::BAD_REQUEST
            }
        };
        Problem::new(status, bad.to_string())
    }
}

impl From<Problem> for Stop<Problem> {
    fn from(problem: Problem) -> Stop<Problem> {
        Stop::Refuse(problem)
    }
}
