//! Main function of the windlass command. The commands are in [`cli`], the server in [`serve`].

mod cli;
mod client;
mod config;
mod discovery;
mod docs;
mod fault;
mod handlers;
mod human_time;
mod otel;
mod output;
mod serve;
mod static_files;
mod telemetry;
mod ui;
#[cfg(feature = "wasi")]
mod wasi;

use fault::Fault;
use std::process::ExitCode;

/// mimalloc: jobs are allocated on one thread and freed on another thousands of times per second, which
/// system allocators handle worst.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run(cli::Cli::from_line()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            if !matches!(fault, Fault::PipeClosed) {
                let style = output::Style::of_stderr();
                let word = style.paint(output::Colour::Red, "error:");
                output::note(format!("{word} {fault}"));
            }
            ExitCode::from(fault.exit_code())
        }
    }
}
