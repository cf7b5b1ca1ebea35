//! The windlass command. What it does is in [`cli`]; how the server starts is in [`serve`].

mod cli;
mod client;
mod config;
mod discovery;
mod fault;
mod handlers;
mod output;
mod serve;
mod telemetry;
mod ui;
#[cfg(feature = "wasi")]
mod wasi;
mod words;

use clap::Parser;
use fault::Fault;
use std::process::ExitCode;

/// Jobs are made on one thread and let go on another, thousands of times a second: what the system's allocator is worst at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
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
