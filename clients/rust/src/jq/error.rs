//! Errors of calls to the server.

use crate::http::CallError;
use std::net::SocketAddr;

/// Error of a call to the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid address or setting.
    #[error("{0}")]
    Setting(String),
    /// The listener could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The server did not reply in time, or at all. It is unknown whether the call took effect.
    #[error("cannot call {server}: {why}")]
    Unreachable {
        /// Address of the server.
        server: String,
        /// Cause.
        why: String,
    },
    /// The server refused the call.
    #[error("the server refused the request ({status} {code}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Error code, such as `not_found`.
        code: String,
        /// Error message.
        message: String,
    },
    /// The reply cannot be decoded. Most likely another program listens at this address.
    #[error("cannot read the response of the server: {0}")]
    Answer(String),
    /// The argument cannot be encoded as MessagePack.
    #[error("cannot encode the argument: {0}")]
    Argument(#[from] rmp_serde::encode::Error),
}

impl Error {
    /// True if the same call may succeed later: the server was unavailable or busy.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }

    /// True if the server does not know the id, or no longer.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. })
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
