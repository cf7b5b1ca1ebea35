//! Process that runs a query, as a program of its own for tests.

use std::process::ExitCode;
use windlass_dialects::bedrock::query;

fn main() -> ExitCode {
    // Drops no privileges: the sandbox is tested with the real binary.
    match query::serve(std::io::stdin().lock(), std::io::stdout().lock(), |_| Vec::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
