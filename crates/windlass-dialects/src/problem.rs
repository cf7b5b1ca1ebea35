//! Errors over HTTP: a status and a message, formatted by each dialect.

use crate::auth::BadTenant;
use crate::codec::Encoding;
use crate::route::{Answering, BadBody, Call, Refusal, status_of};
use ::http::StatusCode;
use axum::response::Response;
use std::marker::PhantomData;
use windlass_core::{BadName, JobId};
use windlass_engine::EngineError;

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem<D> {
    pub status: StatusCode,
    /// Stable code for programs, in dialects that have one.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
    /// Conflicting job, in dialects that name it.
    pub job: Option<JobId>,
    dialect: PhantomData<D>,
}

/// Format of a dialect's errors.
pub trait ErrorFormat: Sized + Send + 'static {
    fn response(problem: &Problem<Self>, encoding: Encoding) -> Response;

    /// Encoding of the response.
    fn reply_encoding(_call: &Call) -> Encoding {
        Encoding::Json
    }

    fn bad_name_status() -> StatusCode {
        StatusCode::BAD_REQUEST
    }

    /// Message for a caller that names another tenant.
    fn foreign_tenant_message() -> String {
        BadTenant::NotYours.to_string()
    }

    fn body_code(_bad: BadBody) -> &'static str {
        ""
    }

    fn engine_status(error: &EngineError) -> StatusCode {
        status_of(error)
    }
}

impl<D: ErrorFormat> Problem<D> {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Problem<D> {
        Problem::coded(status, "", message)
    }

    pub fn coded(status: StatusCode, code: &'static str, message: impl Into<String>) -> Problem<D> {
        Problem { status, code, message: message.into(), job: None, dialect: PhantomData }
    }

    /// Names the conflicting job.
    pub fn about(self, job: Option<JobId>) -> Problem<D> {
        Problem { job, ..self }
    }

    pub fn response(&self, encoding: Encoding) -> Response {
        D::response(self, encoding)
    }

    pub fn bad_request(message: impl Into<String>) -> Problem<D> {
        Problem::coded(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn not_found(message: impl Into<String>) -> Problem<D> {
        Problem::coded(StatusCode::NOT_FOUND, "not_found", message)
    }
}

/// Runs a call and converts its error into a response.
pub(crate) fn answering<D, F>(call: Call, handle: impl FnOnce(Call) -> F + Send + 'static) -> Answering
where
    D: ErrorFormat,
    F: Future<Output = Result<Response, Problem<D>>> + Send,
{
    Box::pin(async move {
        let encoding = D::reply_encoding(&call);
        handle(call).await.unwrap_or_else(|error| error.response(encoding))
    })
}

/// Wraps an `async fn(Call) -> Result<Response, Problem<_>>` as the handler of a route.
macro_rules! call {
    ($call:path) => {{
        fn handle(call: $crate::route::Call) -> $crate::route::Answering {
            $crate::problem::answering(call, $call)
        }
        handle
    }};
}

pub(crate) use call;

impl<D: ErrorFormat> From<&Refusal> for Problem<D> {
    fn from(refusal: &Refusal) -> Problem<D> {
        Problem::coded(refusal.status(), refusal.code(), refusal.to_string())
    }
}

impl<D: ErrorFormat> From<BadName> for Problem<D> {
    fn from(bad: BadName) -> Problem<D> {
        Problem { status: D::bad_name_status(), ..Problem::bad_request(bad.to_string()) }
    }
}

impl<D: ErrorFormat> From<BadTenant> for Problem<D> {
    fn from(bad: BadTenant) -> Problem<D> {
        let status = bad.status();
        match bad {
            BadTenant::NotYours => Problem::coded(status, "forbidden", D::foreign_tenant_message()),
            BadTenant::Name(message) => Problem { status, ..Problem::bad_request(message) },
        }
    }
}

impl<D: ErrorFormat> From<BadBody> for Problem<D> {
    fn from(bad: BadBody) -> Problem<D> {
        Problem::coded(bad.status(), D::body_code(bad), bad.to_string())
    }
}

impl<D: ErrorFormat> From<EngineError> for Problem<D> {
    fn from(error: EngineError) -> Problem<D> {
        Problem::coded(D::engine_status(&error), error.code(), error.to_string())
    }
}
