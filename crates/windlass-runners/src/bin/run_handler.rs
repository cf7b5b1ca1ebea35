//! Standalone program for guard processes and WASI guest processes.

use std::process::ExitCode;
use windlass_runners::handlers::guard::serve;

fn main() -> ExitCode {
    #[cfg(feature = "wasi")]
    if std::env::args_os().nth(1).is_some_and(|word| word == "wasi-guest") {
        return match windlass_runners::wasi::guest::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let stage = std::env::args_os().nth(1).and_then(|word| word.into_string().ok());
    // The error has already been reported on the socket.
    match serve(stage.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
