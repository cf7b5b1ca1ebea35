//! Error responses: a status and a line of text.

use super::Queuey;
use super::wire::BadAsk;
use crate::answer::{TEXT, answer};
use crate::codec::Encoding;
use crate::problem::{self, Words};
use ::http::StatusCode;
use axum::response::Response;
use windlass_engine::Stop;

pub(super) type Problem = problem::Problem<Queuey>;

impl Words for Queuey {
    fn response(problem: &Problem, _encoding: Encoding) -> Response {
        answer(problem.status, TEXT, problem.message.clone())
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

impl From<Problem> for Stop<Problem> {
    fn from(problem: Problem) -> Stop<Problem> {
        Stop::Refuse(problem)
    }
}
