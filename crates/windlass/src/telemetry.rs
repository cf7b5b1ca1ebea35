//! The log: one line per thing worth knowing, on standard error.

use crate::config::{Config, LogForm};
use crate::fault::Fault;
use crate::output;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

pub fn start(config: &Config) -> Result<(), Fault> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| {
        Fault::usage(format!("log_level {:?}: {error}; try info or debug", config.log_level))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal() && output::colours_allowed();
    let started = match config.log {
        LogForm::Text => builder.with_ansi(colours).with_target(false).try_init(),
        LogForm::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    // Somebody else logs already (several servers in one process): that is fine.
    let _ = started;
    Ok(())
}

/// For commands that work for a long time: what they have to tell, without configuration.
#[cfg(feature = "wasi")]
pub fn start_plain() {
    let colours = std::io::stderr().is_terminal() && output::colours_allowed();
    let builder =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::new("info")).with_writer(std::io::stderr);
    let _ = builder.with_ansi(colours).with_target(false).try_init();
}
