//! Finds a free name for this server at start.

use super::sysid::{self, NoSysid};
use crate::dialect::StartError;
use std::sync::Arc;
use tracing::{info, warn};
use windlass_engine::Engine;

/// Returns a free name; without one the server does not start. If the store does not answer, the server
/// starts anyway: adds are journaled, and the name is found when the store is back.
pub(super) async fn find_name(engine: &Engine, host: &str) -> Result<Option<Arc<str>>, StartError> {
    match sysid::end_leases_of_dead_servers(engine).await {
        Ok(0) => {}
        Ok(jobs) => info!("jobs that this server was running when it was killed are run again: {jobs}"),
        Err(error) => warn!("jobs of a server that was killed wait for the end of their locks: {error}"),
    }
    match sysid::find_free(engine, host).await {
        Ok(sysid) => Ok(Some(sysid)),
        Err(NoSysid::Store(error)) => {
            warn!("whether names of servers are free is not known: {error}");
            Ok(None)
        }
        Err(error @ NoSysid::TooManyTries) => Err(StartError(format!(
            "{error}: every name for this server that was tried is reserved in the store; names of servers that are gone \
             are free after {} minutes, so wait, or give this machine another host name (now {host:?})",
            sysid::RESERVED_MS / 60_000,
        ))),
    }
}

#[cfg(test)]
mod tests;
