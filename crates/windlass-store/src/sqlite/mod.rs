//! Embedded store: SQLite stores rows by id, and an in-memory index answers all other queries.
//!
//! | file | contents |
//! |---|---|
//! | `write_slot` | write lock: held by the writer thread, or by a caller without concurrent writers |
//! | `writer` | group commit, claims, error handling |
//! | `requests` | requests to the writer, and replies that wait for their commit |
//! | `index` | next job, due jobs, counters: in memory, rebuilt at startup |
//! | `load` | builds the index from the rows, on several threads |
//! | `tables`, `rows`, `crate::row` | jobs to rows and back, with checksums |
//! | `cache` | cached jobs |
//! | `audit` | log of the actions of operators |
//! | `readers` | lists and lookups on read-only connections |
//! | `files` | lock file, rewriting the write-ahead log after a crash, commit counter |
//! | `schema` | tables and migrations |
//! | `look` | format and figures of a file that is not opened |
//! | `check_and_backup`, `restore`, `compact` | integrity check and backup; putting a backup in place; compaction |

mod audit;
mod cache;
mod check_and_backup;
mod compact;
mod files;
mod index;
mod load;
mod look;
mod readers;
mod requests;
mod restore;
mod rows;
mod schema;
mod statement;
mod tables;
mod write_slot;
mod writer;

pub use check_and_backup::{Report, backup_file, check};
pub use compact::{Compacted, compact};
pub use files::holder;
pub use look::{FileState, look};
pub use restore::{RestoreStage, Restored, restore};

use crate::audit::{AuditBounds, AuditEntry, AuditFilter};
use crate::blobs::BlobStore;
use crate::blobs::files::FileBlobs;
use crate::change::{ClaimAsk, Due, KeyRule, Step, UnderLimits, Verdict};
use crate::error::StoreError;
use crate::meters::Meters;
use crate::open::{Durability, OpenOptions};
use crate::query::{Filter, Page, QueueCounts, WaitingName, find_named_by_listing};
use crate::{AuditLog, Listener, Lookup, Restore, Result, Settings, SharedStore, Store};
use async_trait::async_trait;
use cache::RecentJobs;
use files::CommitCounter;
use index::{Index, Named};
use load::load_index;
use parking_lot::{Mutex, MutexGuard};
use readers::Readers;
use requests::{Reply, Request};
use rows::{Rows, read_error};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use schema::open_error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tables::{RowCounts, Tables};
use tokio::sync::oneshot;
use tracing::info;
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};
use write_slot::WriteSlot;
use writer::WriterState;

/// Older versions can lose commits when the write-ahead log is reset.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Page cache of the writer: holds the hot end of a large queue.
const CACHE_KIB: i64 = 32_768;

/// State shared by the writer, the readers and the callers.
pub struct Shared {
    index: Mutex<Index>,
    recent: RecentJobs,
    listener: OnceLock<Arc<dyn Listener>>,
    meters: Arc<Meters>,
    /// Reason why writes are not acknowledged at present.
    trouble: Mutex<Option<StoreError>>,
    /// Pages in the write-ahead log, reported by SQLite after each commit.
    log_pages: AtomicU32,
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    fn set_trouble(&self, trouble: Option<StoreError>) {
        *self.trouble.lock() = trouble;
    }

    /// Notifies the listener of claimable jobs; never called while the mutex of the index is held.
    fn tell_news(&self) {
        let news = self.index().take_news();
        if let Some(listener) = self.listener.get() {
            for ((tenant, queue, name), count) in &news {
                listener.became_ready(tenant, queue, name, Some(*count));
            }
        }
    }
}

pub struct SqliteStore {
    shared: Arc<Shared>,
    readers: Arc<Readers>,
    write_slot: WriteSlot,
    closed: AtomicBool,
    blobs: FileBlobs,
}

impl SqliteStore {
    /// Opens or creates the database and reads all jobs once: verifies every row and builds the index.
    pub fn open(database: &Path, options: OpenOptions) -> Result<SqliteStore> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(StoreError::Open(format!(
                "SQLite {} is too old: it can lose commits; 3.51.3 or newer is required",
                rusqlite::version()
            )));
        }
        files::make_folder(database)?;
        let lock = files::lock(database)?;
        files::refuse_lost_database(database)?;
        files::make_private(database)?;
        let after_crash = files::rewrite_log(database)?;
        let mut connection = open_for_writing(database, options.durability)?;
        let relaxed = options.durability == Durability::Relaxed;
        let counter = CommitCounter::open(database, commits_of(&connection)?, relaxed)?;
        schema::migrate(&mut connection)?;
        let loaded = load_index(&connection)?;
        refuse_other_tables(&connection)?;
        // Everything was read and verified: from here on the write-ahead log may be checkpointed and deleted.
        keep_log_when_closed(&connection, false)?;
        if after_crash {
            info!("{} was not closed properly; its write-ahead log was recovered", database.display());
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(open_error)?;
        }
        files::sync_folder(database).map_err(|error| StoreError::Open(error.to_string()))?;
        let shared = Arc::new(Shared {
            index: Mutex::new(loaded.index),
            recent: RecentJobs::default(),
            listener: OnceLock::new(),
            meters: Arc::default(),
            trouble: Mutex::default(),
            log_pages: AtomicU32::new(0),
        });
        watch_log(&mut connection, &shared)?;
        let opened = writer::Opened {
            connection,
            database: database.to_owned(),
            lock,
            counter,
            commits: loaded.commits,
            next_id: loaded.next_id,
            rows: loaded.rows,
            runtime: tokio::runtime::Handle::try_current().ok(),
        };
        let blobs = FileBlobs::open(&files::beside(database, files::BLOBS), options.durability)?;
        let write_slot = WriteSlot::begin(WriterState::new(opened, Arc::clone(&shared)), options.own_thread)?;
        Ok(SqliteStore {
            shared,
            readers: Readers::new(database),
            write_slot,
            closed: AtomicBool::new(false),
            blobs,
        })
    }

    /// Index, for queries that need no row.
    fn index(&self) -> Result<MutexGuard<'_, Index>> {
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(self.shared.index()) }
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.write_slot.take(request(reply))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

fn open_for_writing(database: &Path, durability: Durability) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(open_error)?;
    keep_log_when_closed(&connection, true)?;
    connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(open_error)?;
    connection.set_prepared_statement_cache_capacity(64);
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        connection.pragma_update(None, name, value).map_err(open_error)
    };
    set("journal_mode", &"WAL")?;
    set("synchronous", &if durability == Durability::Full { "FULL" } else { "NORMAL" })?;
    // macOS only: plain fsync leaves the data in the cache of the drive. Other systems ignore it.
    set("fullfsync", &(durability == Durability::Full))?;
    set("wal_autocheckpoint", &0)?;
    set("cache_size", &-CACHE_KIB)?;
    set("trusted_schema", &false)?;
    Ok(connection)
}

/// Disables the checkpoint on close, so that a refused start changes nothing. SQLite reads a damaged
/// write-ahead log up to the damage; a checkpoint on close would apply that part and delete the rest, which
/// may hold the only copy of acknowledged jobs.
fn keep_log_when_closed(connection: &Connection, keep: bool) -> Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop).map_err(open_error)
}

fn watch_log(connection: &mut Connection, shared: &Arc<Shared>) -> Result<()> {
    let shared = Arc::clone(shared);
    let hook = move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
        shared.log_pages.store(pages.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    };
    connection.wal_hook(Some(hook)).map_err(open_error)
}

/// Commits recorded in the database, before anything is changed; zero for a new file.
fn commits_of(connection: &Connection) -> Result<u64> {
    if schema::version(connection)? == 0 {
        return Ok(0);
    }
    let commits = connection.query_row("SELECT commits FROM meta", [], |row| row.get::<_, i64>(0));
    commits.map(|commits| commits as u64).map_err(open_error)
}

/// Checked at startup, where an error can be returned; the writer thread could only abort the process.
fn refuse_other_tables(connection: &Connection) -> Result<()> {
    let mut tables = Tables::new(connection, RowCounts::default());
    let prepared = tables.prepare_all().and_then(|()| Rows::new(connection).prepare_all());
    prepared.map_err(|error| {
        StoreError::Corrupt(format!("the tables differ from the expected schema: {error}; restore a backup"))
    })
}

fn read_setting_keys(connection: &Connection, prefix: &str) -> Result<Vec<String>> {
    let sql = "SELECT key FROM settings WHERE key >= ?1 ORDER BY key";
    let mut statement = connection.prepare_cached(sql).map_err(read_error)?;
    let mut rows = statement.query([prefix]).map_err(read_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        let key: String = row.get(0).map_err(read_error)?;
        if !key.starts_with(prefix) {
            break;
        }
        found.push(key);
    }
    Ok(found)
}

fn read_settings(connection: &Connection, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let sql = "SELECT key, value, crc FROM settings WHERE key >= ?1 ORDER BY key";
    let mut statement = connection.prepare_cached(sql).map_err(read_error)?;
    let mut rows = statement.query([prefix]).map_err(read_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        let read = || Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, u32>(2)?));
        let (key, value, crc) = read().map_err(read_error)?;
        if !key.starts_with(prefix) {
            break;
        }
        if tables::crc_of(&key, &value) != crc {
            return Err(StoreError::Corrupt(format!("wrong checksum of setting {key:?}; restore a backup")));
        }
        found.push((key, value));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.ask(|reply| Request::Commit { steps, now, reply }).await
    }

    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>> {
        self.ask(|reply| Request::Claim { ask: Box::new(ask), now, reply }).await
    }

    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
        self.readers.load(&self.shared.recent, ids).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due> {
        self.ask(|reply| Request::Due { now, limit, reply }).await
    }

    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()> {
        let (tenant, queue) = (tenant.clone(), queue.clone());
        self.ask(|reply| Request::Pause { tenant, queue, paused, reply }).await
    }

    fn reopen(&self, limit_key: &str) {
        self.shared.index().reopen(limit_key);
        self.shared.tell_news();
    }

    fn blobs(&self) -> Arc<dyn BlobStore> {
        Arc::new(self.blobs.clone())
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let _ = self.shared.listener.set(listener);
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        None
    }

    async fn health(&self) -> Result<()> {
        drop(self.index()?);
        let is_in_trouble = self.shared.trouble.lock().is_some();
        // Only the writer detects the end of the trouble, and without a request it would not check.
        if is_in_trouble { self.next_id().await.map(drop) } else { Ok(()) }
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.readers.close();
        let (reply, answer) = oneshot::channel();
        self.write_slot.send(Request::Close { reply })?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

#[async_trait]
impl Lookup for SqliteStore {
    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>> {
        Ok(self.index()?.find_alias(tenant, alias))
    }

    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        let known = self.index()?.named(tenant, queue, name);
        match known {
            Named::Nobody => Ok(None),
            Named::One(id) => Ok(Some(id)),
            Named::Among(states) => find_named_by_listing(self, tenant, queue, name, states).await,
        }
    }

    async fn children(&self, parent: JobId) -> Result<Vec<JobId>> {
        Ok(self.index()?.children_of(parent))
    }

    async fn list(&self, filter: Filter) -> Result<Page> {
        let shared = Arc::clone(&self.shared);
        self.readers.with(move |connection| readers::list(connection, &shared, &filter)).await
    }

    async fn next_id(&self) -> Result<JobId> {
        self.ask(|reply| Request::NextId { reply }).await
    }

    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64> {
        Ok(self.index()?.payload_bytes(tenant))
    }

    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>> {
        Ok(self.index()?.counts(tenant, now))
    }

    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
        Ok(self.index()?.waiting(queue, now))
    }

    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>> {
        Ok(self.index()?.under_limits(tenant, now))
    }
}

#[async_trait]
impl Settings for SqliteStore {
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        let key = key.to_owned();
        self.ask(|reply| Request::Setting { key, value, reply }).await
    }

    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let prefix = prefix.to_owned();
        self.readers.with(move |connection| read_settings(connection, &prefix)).await
    }

    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = prefix.to_owned();
        self.readers.with(move |connection| read_setting_keys(connection, &prefix)).await
    }
}

#[async_trait]
impl Restore for SqliteStore {
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()> {
        self.ask(|reply| Request::Restore { jobs, next, keys, reply }).await
    }
}

#[async_trait]
impl AuditLog for SqliteStore {
    async fn append_audit(&self, entries: Vec<AuditEntry>, bounds: AuditBounds) -> Result<()> {
        self.ask(|reply| Request::Audit { entries, bounds, reply }).await
    }

    async fn list_audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>> {
        self.readers.with(move |connection| audit::list(connection, &filter)).await
    }
}
