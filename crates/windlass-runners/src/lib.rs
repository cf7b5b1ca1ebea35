//! Runners, which execute jobs: handlers, commands and WASI modules. A runner executes one job and interprets
//! its end; the caller claims jobs and reports outcomes.

pub mod confine;
pub mod handlers;
pub mod process;
pub mod spawn;
#[cfg(feature = "wasi")]
pub mod wasi;
