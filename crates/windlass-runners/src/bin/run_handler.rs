//! The processes handlers live in, as a program of its own.

use std::process::ExitCode;
use windlass_runners::handlers::guard::{INSIDE, serve};

fn main() -> ExitCode {
    #[cfg(feature = "wasi")]
    if std::env::args_os().nth(1).is_some_and(|word| word == "wasi-guest") {
        return match windlass_runners::wasi::guest::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let inside = std::env::args_os().nth(1).is_some_and(|word| word == INSIDE);
    // What is wrong has been said to whoever listens.
    match serve(inside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
