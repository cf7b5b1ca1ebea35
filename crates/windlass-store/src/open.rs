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

/// Store that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `sqlite:PATH`, with the path of the database file.
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres,
}

impl StoreUrl {
    /// The error for another scheme lists the known ones.
    pub fn parse(url: &str) -> Result<StoreUrl> {
        match url.split_once(':') {
            Some(("memory", _)) => Ok(StoreUrl::Memory),
            Some(("sqlite", path)) if !matches!(path, "" | "//") => {
                Ok(StoreUrl::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))
            }
            Some(("postgres" | "postgresql", _)) => Ok(StoreUrl::Postgres),
            split => {
                // The rest may contain a password.
                let shown = match split {
                    Some((scheme, rest)) if !rest.is_empty() => format!("{scheme}:…"),
                    _ => url.to_owned(),
                };
                Err(StoreError::Open(format!(
                    "{shown:?} is not a store URL; use sqlite:PATH (embedded), postgres://… (several servers \
                     on one database) or memory: (lost at the end of the process)"
                )))
            }
        }
    }
}

/// Opens `sqlite:PATH`, `postgres://…` or `memory:`.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    match StoreUrl::parse(url)? {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new())),
        StoreUrl::Sqlite(path) => {
            let opening = tokio::task::spawn_blocking(move || SqliteStore::open(&path, options));
            let store = opening.await.map_err(|error| StoreError::Open(error.to_string()))??;
            Ok(Arc::new(store))
        }
        StoreUrl::Postgres => {
            // Relaxed durability also accepts an unsafe configuration of the database.
            let accept_unsafe = options.postgres.accept_unsafe || options.durability == Durability::Relaxed;
            let options = PostgresOptions { accept_unsafe, ..options.postgres };
            Ok(Arc::new(PostgresStore::open(url, &options).await?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_stores() {
        let check =
            |url: &str, expected: StoreUrl| assert_eq!(StoreUrl::parse(url).unwrap(), expected, "{url}");
        check("memory:", StoreUrl::Memory);
        check("sqlite:a/b.db", StoreUrl::Sqlite("a/b.db".into()));
        check("sqlite:///a/b.db", StoreUrl::Sqlite("/a/b.db".into()));
        check("postgres://db/jobs", StoreUrl::Postgres);
        check("postgresql://db/jobs", StoreUrl::Postgres);
        for url in ["", "jobs.db", "sqlite:", "sqlite://", "bogus:x", "postgress://ann:s3cret@db/jobs"] {
            let error = StoreUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains("is not a store URL; use sqlite:PATH"), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
