//! How a command ends when it does not end well: the message for the user and the exit code.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What was typed cannot be meant. Exit code 2, as clap's own.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work out. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Whoever read our output has gone (`windlass jobs | head`): nothing to complain about.
    #[error("output closed")]
    PipeClosed,
}

pub type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    pub fn usage(message: impl Into<String>) -> Fault {
        Fault::Usage(message.into())
    }

    pub fn failed(message: impl Into<String>) -> Fault {
        Fault::Failed(message.into())
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Fault::Usage(_) => 2,
            Fault::Failed(_) => 1,
            Fault::PipeClosed => 0,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Fault::PipeClosed,
            _ => Fault::Failed(error.to_string()),
        }
    }
}
