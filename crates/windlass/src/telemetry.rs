//! Log setup: one line per event on stderr.

use crate::config::{Config, LogForm};
use crate::fault::Fault;
use crate::output;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

pub(crate) fn start(config: &Config) -> Result<(), Fault> {
    let filter = filter(&config.log_level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal() && output::colours_allowed();
    let started = match config.log {
        LogForm::Text => builder.with_ansi(colours).with_target(false).try_init(),
        LogForm::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    // An error means that a logger is already set (several servers in one process).
    let _ = started;
    Ok(())
}

/// Starts the log of a server whose command prints lines of its own: messages only.
pub(crate) fn start_brief(level: &str) -> Result<(), Fault> {
    let filter = filter(level)?;
    let colours = std::io::stderr().is_terminal() && output::colours_allowed();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = builder.with_ansi(colours).with_target(false).without_time().try_init();
    Ok(())
}

/// Starts the log of long-running client commands, without configuration.
#[cfg(feature = "wasi")]
pub(crate) fn start_plain() {
    let colours = std::io::stderr().is_terminal() && output::colours_allowed();
    let builder =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::new("info")).with_writer(std::io::stderr);
    let _ = builder.with_ansi(colours).with_target(false).try_init();
}

fn filter(level: &str) -> Result<EnvFilter, Fault> {
    EnvFilter::try_new(level).map_err(|error| {
        Fault::usage(format!("invalid log_level {level:?}: {error}; use error, warn, info, debug or trace"))
    })
}
