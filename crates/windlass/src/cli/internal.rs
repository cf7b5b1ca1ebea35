//! Hidden subcommands: the server starts itself with them as helper processes.

pub mod run_guard;
pub mod run_handler;
pub mod run_query;
#[cfg(feature = "wasi")]
pub mod run_wasi;
#[cfg(feature = "wasi")]
pub mod run_wasi_guest;
