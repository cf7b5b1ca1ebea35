//! Opens a store by its URL.

use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::sqlite::SqliteStore;
use crate::{Result, Store};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Acknowledged after fsync.
    #[default]
    Full,
    /// Acknowledged before fsync: survives the end of the process, not a power cut.
    Relaxed,
}

#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub durability: Durability,
    /// Embedded store: every commit runs on the store's own thread, even where a caller could write directly.
    pub own_thread: bool,
    pub postgres: PostgresOptions,
}

/// Opens `sqlite:PATH`, `postgres://…` or `memory:`. The error for another scheme lists these.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    match url.split_once(':') {
        Some(("memory", _)) => Ok(Arc::new(MemoryStore::new())),
        Some(("sqlite", path)) if !path.is_empty() => {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            let opening = tokio::task::spawn_blocking(move || SqliteStore::open(&path, options));
            let store = opening.await.map_err(|error| StoreError::Open(error.to_string()))??;
            Ok(Arc::new(store))
        }
        Some(("postgres" | "postgresql", _)) => {
            // Relaxed durability also accepts an unsafe configuration of the database.
            let accept_unsafe = options.postgres.accept_unsafe || options.durability == Durability::Relaxed;
            let options = PostgresOptions { accept_unsafe, ..options.postgres };
            Ok(Arc::new(PostgresStore::open(url, &options).await?))
        }
        _ => Err(StoreError::Open(format!(
            "{url:?} is not a store URL; use sqlite:PATH (embedded), postgres://… (several servers \
             on one database) or memory: (lost at the end of the process)"
        ))),
    }
}
