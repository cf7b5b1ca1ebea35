//! Errors of commands: message for the user and exit code.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Usage error. Exit code 2, as for clap's own errors.
    #[error("{0}")]
    Usage(String),
    /// The command failed. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The reader of stdout is gone (`windlass jobs | head`): not reported as an error.
    #[error("output closed")]
    PipeClosed,
    /// Ctrl-C, after everything was cleared away. Exit code 130, as for a program that the signal ended.
    #[error("interrupted")]
    Interrupted,
}

pub(crate) type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) fn usage(message: impl Into<String>) -> Fault {
        Fault::Usage(message.into())
    }

    pub(crate) fn failed(message: impl Into<String>) -> Fault {
        Fault::Failed(message.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Fault::Usage(_) => 2,
            Fault::Failed(_) => 1,
            Fault::PipeClosed => 0,
            Fault::Interrupted => 130,
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
