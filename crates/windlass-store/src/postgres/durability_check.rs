//! Check that acknowledged commits are durable.

use super::migrate::{connect, in_time};
use super::options::Address;
use crate::error::StoreError;
use tracing::warn;

/// Settings of our own session, because a role or a database may override them.
const SETTINGS: &str = "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')";

/// Refuses a database that may lose acknowledged commits, unless accepted; then it logs a warning.
pub(super) async fn check(address: &Address, accept_unsafe: bool) -> Result<(), StoreError> {
    let client = connect(address).await?;
    let row = in_time(client.query_typed_one(SETTINGS, &[])).await?;
    if row.get::<_, &str>(2) == "off" {
        warn!(
            "PostgreSQL has full_page_writes = off: pages that are partly written at a power failure \
             cannot be repaired"
        );
    }
    match danger(row.get(0), row.get(1)) {
        None => Ok(()),
        Some(danger) if accept_unsafe => {
            warn!("{danger}; accepted because of --durability relaxed");
            Ok(())
        }
        Some(danger) => Err(StoreError::Open(format!(
            "{danger}; enable it, or accept the risk with --durability relaxed; nothing was changed"
        ))),
    }
}

fn danger(fsync: &str, synchronous_commit: &str) -> Option<&'static str> {
    match (fsync, synchronous_commit) {
        ("off", _) => Some(
            "PostgreSQL has fsync = off: if its machine crashes, acknowledged jobs are lost and the \
             database may be corrupt",
        ),
        (_, "off") => Some(
            "PostgreSQL has synchronous_commit = off (for this role, this database or the server): \
             if it crashes, the last acknowledged jobs are lost",
        ),
        // `local` and higher: at least synced on the primary.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_disk_when_it_is_acknowledged_is_a_danger() {
        for (fsync, synchronous_commit, named) in [
            ("on", "on", None),
            ("on", "local", None),
            ("on", "remote_write", None),
            ("on", "remote_apply", None),
            ("on", "off", Some("synchronous_commit = off")),
            ("off", "on", Some("fsync = off")),
            ("off", "off", Some("fsync = off")),
        ] {
            let said = danger(fsync, synchronous_commit);
            assert_eq!(said.is_some(), named.is_some(), "{fsync} {synchronous_commit}");
            assert!(said.unwrap_or_default().contains(named.unwrap_or_default()), "{said:?}");
        }
    }
}
