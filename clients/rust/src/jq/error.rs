//! What can go wrong between this process and the server.

use std::net::SocketAddr;

/// What can go wrong between this process and the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server's address, or what the worker was told about itself, cannot be meant.
    #[error("{0}")]
    Setting(String),
    /// The address to listen on cannot be had.
    #[error("listening on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server did not answer: it is not there, or not in time. Whether it did what was asked is not known.
    #[error("calling {server}: {why}")]
    Unreachable {
        /// Where it should be.
        server: String,
        /// What happened instead of an answer.
        why: String,
    },
    /// The server answered, and said no.
    #[error("the server refused it ({status} {code}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's word for the reason, such as `not_found`.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// The server's answer is not what it should be. Most likely something else listens there.
    #[error("the server's answer cannot be read: {0}")]
    Answer(String),
    /// An argument that cannot be written as MessagePack.
    #[error("writing the argument: {0}")]
    Argument(#[from] rmp_serde::encode::Error),
}

impl Error {
    /// Whether the same call may well work a little later: the server was away, or busy.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }

    /// Whether the server knows nothing by that id, or no longer.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. })
    }
}
