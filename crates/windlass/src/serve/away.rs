//! Startup without a reachable database: accepts requests that can be journaled, answers all others with 503,
//! and continues with the database when it is reachable.

use super::ready::Readiness;
use super::{Server, banner, open_store};
use crate::config::Config;
use crate::fault::{Fault, Outcome};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};
use windlass_dialects::Ports;
use windlass_engine::Engine;
use windlass_store::away::AwayStore;
use windlass_store::{Store, StoreError};

/// Interval between attempts to open the database.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Key prefixes that the engine and a dialect read at startup. They read as empty until the database is
/// reachable; nothing that depends on them is done before.
const READ_AT_START: &[&str] =
    &["limit/", "note/queue/", "note/quota/", "note/token/", "note/token-revoked/"];

/// Key prefixes of tokens and revoked tokens in the store.
const TOKENS: [&str; 2] = ["token/", "token-revoked/"];
/// Marker file in the data folder: the database holds tokens or revocations.
const MARK: &str = "tokens-in-database";
/// Interval between updates of the marker file.
const MARK_AGAIN: Duration = Duration::from_secs(10);

/// Reason why a store was not opened.
pub(crate) enum NotOpened {
    /// The database is unreachable; a retry may succeed.
    Away(StoreError),
    /// Permanent error.
    Wrong(Fault),
}

impl From<NotOpened> for Fault {
    fn from(why: NotOpened) -> Fault {
        match why {
            NotOpened::Away(error) => Fault::failed(error.to_string()),
            NotOpened::Wrong(fault) => fault,
        }
    }
}

/// Result of waiting for the database.
pub(super) enum Waited {
    Opened(Arc<dyn Store>),
    /// A shutdown was requested, or the server failed; it must still be stopped.
    Ended(Box<Server>, Outcome),
}

/// Serves from the journal until the database is reachable or `told_to_end` completes. Writes the ready file
/// at once.
pub(super) async fn wait(
    config: &Config,
    ports: Ports,
    why: StoreError,
    ready: &mut Readiness,
    told_to_end: impl Future<Output = ()>,
) -> Outcome<Waited> {
    if config.data.join(MARK).exists() {
        return Err(Fault::failed(format!(
            "{why}; the access tokens are stored in the database, so the server cannot start without \
             it"
        )));
    }
    warn!("{why}; starting without the database: new jobs are written to the journal until it is reachable");
    let reason = match why {
        StoreError::Unavailable(reason) => reason,
        other => other.to_string(),
    };
    let store = Arc::new(AwayStore::new(reason, READ_AT_START));
    let mut server = Server::start_on(config, ports, store, true).await?;
    ready.tell(&server.listening)?;
    banner::print(config, &server.listening);
    server.hand_out();
    let quit = Arc::clone(&server.quit);
    let opened = tokio::select! {
        () = told_to_end => Ok(None),
        () = quit.notified() => Ok(None),
        fault = server.ended() => Err(fault),
        opened = open_patiently(config) => opened.map(Some),
    };
    Ok(match opened {
        Ok(Some(store)) => {
            server.stop().await;
            info!("the database is reachable; resuming normal operation");
            Waited::Opened(store)
        }
        Ok(None) => Waited::Ended(Box::new(server), Ok(())),
        Err(fault) => Waited::Ended(Box::new(server), Err(fault)),
    })
}

async fn open_patiently(config: &Config) -> Outcome<Arc<dyn Store>> {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        match open_store(config).await {
            Ok(store) => return Ok(store),
            Err(NotOpened::Away(_)) => {}
            Err(NotOpened::Wrong(fault)) => return Err(fault),
        }
    }
}

/// Maintains the marker file: without the database, a server could not know which tokens to accept. Never
/// returns.
pub(super) async fn remember_tokens(engine: Engine, data: PathBuf) {
    let mark = data.join(MARK);
    loop {
        match has_tokens(&engine).await {
            Some(true) if !mark.exists() => {
                let made = super::create_private_folder(&data).and_then(|()| std::fs::write(&mark, ""));
                if let Err(error) = made {
                    warn!("cannot write {}: {error}", mark.display());
                }
            }
            Some(false) if mark.exists() => drop(std::fs::remove_file(&mark)),
            _ => {}
        }
        tokio::time::sleep(MARK_AGAIN).await;
    }
}

/// True if the store holds tokens or revocations; `None` if it cannot be read.
async fn has_tokens(engine: &Engine) -> Option<bool> {
    let mut found = false;
    for prefix in TOKENS {
        found |= !engine.note_keys(prefix).await.ok()?.is_empty();
    }
    Some(found)
}
