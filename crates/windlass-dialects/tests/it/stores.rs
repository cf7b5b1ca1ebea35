//! Store of the test servers: the memory store, unless `WINDLASS_TEST_STORE` is `sqlite` or `postgres`.
//! [`repeat_on`] runs tests again on another store, in a process of its own.
//!
//! To repeat a test manually:
//! `WINDLASS_TEST_STORE=postgres cargo test -p windlass-dialects --test it sidejob::ports`.

use crate::postgres_server::PostgresServer;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_store::memory::MemoryStore;
use windlass_store::{Durability, OpenOptions, Store, open};

const CHOICE: &str = "WINDLASS_TEST_STORE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Sqlite,
    Postgres,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Memory, Kind::Sqlite, Kind::Postgres];

    /// Kind from the environment; an unknown value is an error.
    pub fn chosen() -> Kind {
        let Some(word) = std::env::var_os(CHOICE) else { return Kind::Memory };
        let known = Kind::ALL.into_iter().find(|kind| word == kind.word());
        known.unwrap_or_else(|| panic!("{CHOICE} is {word:?}: it can be memory, sqlite or postgres"))
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Memory => "memory",
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        }
    }
}

/// New store of the chosen kind; its folder is removed with it.
pub struct Chosen {
    pub store: Arc<dyn Store>,
    pub folder: Option<TempDir>,
}

impl Chosen {
    pub async fn new() -> Chosen {
        let Reopenable { store, folder, .. } = Reopenable::new().await;
        Chosen { store, folder }
    }
}

/// Store for tests in which another server starts on it.
pub struct Reopenable {
    pub store: Arc<dyn Store>,
    folder: Option<TempDir>,
    /// URL of the store; `None` for the memory store.
    url: Option<String>,
}

impl Reopenable {
    pub async fn new() -> Reopenable {
        match Kind::chosen() {
            Kind::Memory => Reopenable { store: Arc::new(MemoryStore::new()), folder: None, url: None },
            Kind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite:{}", folder.path().join("windlass.db").display());
                Reopenable { folder: Some(folder), ..Reopenable::at(url).await }
            }
            Kind::Postgres => Reopenable::postgres().await,
        }
    }

    /// New schema on the process's shared PostgreSQL server.
    pub async fn postgres() -> Reopenable {
        Reopenable::at(PostgresServer::shared().new_schema_url()).await
    }

    async fn at(url: String) -> Reopenable {
        Reopenable { store: opened(&url).await, folder: None, url: Some(url) }
    }

    /// Second handle, as another server on the same store has.
    pub async fn second(&self) -> Reopenable {
        Reopenable::at(self.url.clone().expect("a store that several may open")).await
    }

    /// Reopens the store for a server that starts after the first has ended: a store has one listener.
    pub async fn again(self) -> Reopenable {
        let Some(url) = &self.url else { return self };
        self.store.close().await.unwrap();
        Reopenable { store: opened(url).await, ..self }
    }
}

async fn opened(url: &str) -> Arc<dyn Store> {
    let durability = if url.starts_with("postgres:") { Durability::Relaxed } else { Durability::default() };
    open(url, OpenOptions { durability, ..OpenOptions::default() }).await.unwrap()
}

/// Runs the tests of this program with `part` in their names on another store, except those with `but` in
/// them.
pub fn repeat_on(kind: Kind, part: &str, but: &str) {
    let this = std::env::current_exe().unwrap();
    let arguments = [part, "--skip", but];
    let listed = Command::new(&this).args(arguments).arg("--list").output().unwrap();
    let listed =
        String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.ends_with(": test")).count();
    assert_ne!(listed, 0, "no test has {part} in its name");
    let output = Command::new(this).args(arguments).env(CHOICE, kind.word()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "on {kind:?}, {}:\n{text}\n{errors}", output.status);
    assert!(text.contains(&format!("test result: ok. {listed} passed;")), "all of {listed}:\n{text}");
}
