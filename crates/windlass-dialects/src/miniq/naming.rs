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
        Ok(jobs) => info!("{jobs} jobs that were running when this server was killed run again"),
        Err(error) => warn!(
            "cannot release the jobs of a killed server; they run again when their locks expire: {error}"
        ),
    }
    match sysid::find_free(engine, host).await {
        Ok(sysid) => Ok(Some(sysid)),
        Err(NoSysid::Store(error)) => {
            warn!("cannot reserve a system id for this server: {error}");
            Ok(None)
        }
        Err(error @ NoSysid::TooManyTries) => Err(StartError(format!(
            "{error}: every system id that was tried is reserved in the store; reservations of \
             stopped servers expire after {} minutes: wait, or change the host name of this machine \
             (now {host:?})",
            sysid::RESERVED_MS / 60_000,
        ))),
    }
}

#[cfg(test)]
mod tests;
