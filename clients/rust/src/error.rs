//! Errors of calls to the server, and the errors that a handler may return.

use crate::http::CallError;
use crate::outcome::{Fail, Retry, Snooze};
use std::error::Error as StdError;

/// Any error that can be sent between threads.
///
/// Handlers and steps return `Result<T, E>` with any `E` that converts into this type: [`Error`], the errors of
/// the standard library, `BoxError` itself (then `?` takes every error), and a plain text.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Error of a call to the server, or of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid address, token or setting.
    #[error("{0}")]
    Setting(String),
    /// The server did not reply in time, or at all. It is unknown whether the call took effect.
    ///
    /// A handler that returns this error, or an error caused by it, has its run released: it does not count as
    /// an attempt. The same holds for every error that [is retryable](Error::is_retryable).
    #[error("cannot call {server}: {why}")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// Cause.
        why: String,
    },
    /// The lease of the run is lost: it expired, or the job was given to another worker.
    #[error("the lease is lost: {message}")]
    LeaseLost {
        /// Message of the server.
        message: String,
    },
    /// No job with this id, or no longer.
    #[error("{message}")]
    NotFound {
        /// Message of the server.
        message: String,
    },
    /// The state of the job does not allow the call (409).
    #[error("{message} ({code})")]
    Conflict {
        /// Error code, such as `settled` or `steps_full`.
        code: String,
        /// Message of the server.
        message: String,
    },
    /// The server refused the call for another reason.
    #[error("the server refused the request ({status} {code}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Error code, such as `bad_request`.
        code: String,
        /// Message of the server.
        message: String,
    },
    /// The reply cannot be decoded. Most likely another program listens at this address.
    #[error("cannot read the response of the server: {0}")]
    Answer(String),
    /// A value cannot be written as JSON, or is not of the expected type.
    #[error("{what}: {source}")]
    Value {
        /// Value concerned, such as `result of job 7`.
        what: String,
        /// Error of the decoder or encoder.
        source: serde_json::Error,
    },
    /// A job that was waited for did not complete.
    #[error("job {id} is {state}{}", because(message.as_deref()))]
    NotCompleted {
        /// Id of the job.
        id: u64,
        /// State, such as `failed` or `cancelled`.
        state: String,
        /// Class of its last error.
        class: Option<String>,
        /// Message of its last error.
        message: Option<String>,
    },
    /// A child that a run waited for did not complete.
    #[error("child {id} is {state}{}", because(message.as_deref()))]
    ChildFailed {
        /// Id of the child.
        id: u64,
        /// State, `failed` or `cancelled`.
        state: String,
        /// Class of its last error.
        class: Option<String>,
        /// Message of its last error.
        message: Option<String>,
    },
    /// A step failed; the source is its error.
    #[error("step {name}: {source}")]
    Step {
        /// Name of the step.
        name: String,
        /// Error of the step.
        source: BoxError,
    },
    /// The kept steps of the job do not fit the handler any more.
    #[error("{0}")]
    StepsChanged(String),
    /// The run is suspended. Pass this error on with `?`: the handler runs again when the wait is over.
    #[error("the run is suspended")]
    Suspended,
    /// The job was cancelled.
    #[error("the job was cancelled")]
    Cancelled,
    /// Outcome asked for by the handler.
    #[error(transparent)]
    Retry(#[from] Retry),
    /// Outcome asked for by the handler.
    #[error(transparent)]
    Fail(#[from] Fail),
    /// Outcome asked for by the handler.
    #[error(transparent)]
    Snooze(#[from] Snooze),
    /// Any other error.
    #[error("{0}")]
    Other(#[from] BoxError),
}

fn because(message: Option<&str>) -> String {
    message.map(|message| format!(": {message}")).unwrap_or_default()
}

impl Error {
    /// True if the same call may succeed later: the server was unavailable or busy.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.is_outage()
    }

    /// Code for programs: the code of the server, or a word for the kind of the error.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Error::Setting(_) => "setting",
            Error::Unreachable { .. } => "unreachable",
            Error::LeaseLost { .. } => "lease_lost",
            Error::NotFound { .. } => "not_found",
            Error::Conflict { code, .. } | Error::Refused { code, .. } => code,
            Error::Answer(_) => "answer",
            Error::Value { .. } => "value",
            Error::NotCompleted { .. } => "not_completed",
            Error::ChildFailed { .. } => "child_failed",
            Error::Step { .. } => "step",
            Error::StepsChanged(_) => "steps_changed",
            Error::Suspended => "suspended",
            Error::Cancelled => "cancelled",
            Error::Retry(_) => "retry",
            Error::Fail(_) => "fail",
            Error::Snooze(_) => "snooze",
            Error::Other(_) => "other",
        }
    }

    /// HTTP status of the reply, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::LeaseLost { .. } | Error::Conflict { .. } => Some(409),
            Error::NotFound { .. } => Some(404),
            Error::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Error of a refused call.
    pub(crate) fn refused(status: u16, code: String, message: String) -> Error {
        match (status, code.as_str()) {
            (_, "lease_lost") => Error::LeaseLost { message },
            (404, _) => Error::NotFound { message },
            (409, _) => Error::Conflict { code, message },
            _ => Error::Refused { status, code, message },
        }
    }

    /// True if the gateway or the server could not take the call: busy, unavailable, or without space.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            _ => false,
        }
    }

    /// Copy for a second receiver of the same failure.
    pub(crate) fn copy(&self) -> Error {
        match self {
            Error::Setting(text) => Error::Setting(text.clone()),
            Error::Unreachable { server, why } => {
                Error::Unreachable { server: server.clone(), why: why.clone() }
            }
            Error::LeaseLost { message } => Error::LeaseLost { message: message.clone() },
            Error::NotFound { message } => Error::NotFound { message: message.clone() },
            Error::Conflict { code, message } => {
                Error::Conflict { code: code.clone(), message: message.clone() }
            }
            Error::Refused { status, code, message } => {
                Error::Refused { status: *status, code: code.clone(), message: message.clone() }
            }
            other => Error::Answer(other.to_string()),
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        match error {
            CallError::Setting(message) => Error::Setting(message),
            CallError::Unreachable { server, why, .. } => Error::Unreachable { server, why },
        }
    }
}

/// Messages of an error and its sources, without repetition.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_becomes_the_error_of_its_status_and_code() {
        let of = |status, code: &str| Error::refused(status, code.to_owned(), "m".to_owned());
        assert!(matches!(of(409, "lease_lost"), Error::LeaseLost { .. }));
        assert!(matches!(of(404, "not_found"), Error::NotFound { .. }));
        assert!(matches!(of(409, "steps_full"), Error::Conflict { .. }));
        let retryable = [408, 429, 500, 502, 503, 504, 507].map(|status| (status, true));
        let refused = [400, 401, 403, 413, 422].map(|status| (status, false));
        for (status, is_retryable) in retryable.into_iter().chain(refused) {
            let error = of(status, "x");
            assert_eq!((error.is_retryable(), error.status()), (is_retryable, Some(status)), "{status}");
        }
        let lost = Error::Unreachable { server: "s".into(), why: "w".into() };
        assert_eq!((lost.is_retryable(), lost.code(), lost.status()), (true, "unreachable", None));
    }

    #[test]
    fn a_message_has_its_causes_once() {
        let step = Error::Step { name: "charge".into(), source: "card declined".into() };
        assert_eq!(chain(&step), "step charge: card declined");
        let other = Error::Other(Box::new(Fail::new("no")));
        assert_eq!(chain(&other), "no");
    }
}
