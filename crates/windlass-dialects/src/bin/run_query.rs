//! The process that a query runs in, as a program of its own.

use std::process::ExitCode;
use windlass_dialects::bedrock::query;

fn main() -> ExitCode {
    // Nothing is given up: what holds a process beside its limits is tested with the real program.
    match query::serve(std::io::stdin().lock(), std::io::stdout().lock(), |_| Vec::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
