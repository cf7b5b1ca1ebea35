//! Hidden subcommands: the server starts itself with them as helper processes.

pub(super) mod run_guard;
pub(super) mod run_handler;
pub(super) mod run_query;
#[cfg(feature = "wasi")]
pub(super) mod run_wasi;
#[cfg(feature = "wasi")]
pub(super) mod run_wasi_guest;
