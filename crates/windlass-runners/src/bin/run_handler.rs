//! The process a handler's context lives in, as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    // What is wrong has been said to whoever listens.
    match windlass_runners::handlers::guard::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
