//! Tables, their versions, and migrations.
//!
//! To change the format: add a migration at the end of `MIGRATIONS`, never edit a released one, and add a
//! database of the previous version to `tests/it/fixtures/`, so that every later version is tested with it.

use crate::error::StoreError;
use rusqlite::Connection;

/// `PRAGMA application_id`: "Wndl". Distinguishes our files from other databases.
const APPLICATION_ID: i64 = 0x576e_646c;

pub(super) struct Migration {
    /// Purpose, in a few words.
    pub what: &'static str,
    /// True if it reads every job, so that its time grows with the store.
    pub reads_all: bool,
    sql: &'static str,
}

/// Migration `n` leads from version `n` to `n + 1`.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        // Jobs by id, without SQL indexes: the index is in memory.
        what: "jobs and settings",
        reads_all: false,
        sql: "
    CREATE TABLE jobs (
        id         INTEGER PRIMARY KEY,
        version    INTEGER NOT NULL,
        state      INTEGER NOT NULL,  -- 0 ready 1 running 2 waiting 3 suspended 4 completed 5 failed 6 cancelled 7 terminating 8 terminated
        at         INTEGER NOT NULL,  -- ms: may run at; while running its lease ends at; once settled, since
        moves      BLOB    NOT NULL,  -- what changes while the job lives; see row.rs
        tenant     TEXT    NOT NULL,
        queue      TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        priority   INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        format     INTEGER NOT NULL,  -- of the payload: 0 json 1 msgpack 2 text 3 binary
        payload    BLOB,              -- NULL: in payloads
        asked      BLOB,              -- policy and rarer wishes as MessagePack; NULL: none
        asked_crc  INTEGER NOT NULL   -- CRC-32 of everything from tenant on, id included
    ) STRICT;
    -- Larger payloads, so that a claim does not rewrite them.
    CREATE TABLE payloads (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
    -- Results, errors, progress, ports: what most jobs never have.
    CREATE TABLE bodies (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;
    CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE paused (tenant TEXT NOT NULL, queue TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (tenant, queue))
        STRICT, WITHOUT ROWID;
    CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), commits INTEGER NOT NULL, next_id INTEGER NOT NULL) STRICT;
    INSERT INTO meta VALUES (1, 0, 1);
    ",
    },
    Migration {
        // A flipped bit in the header of a page hides its rows from every query.
        what: "row counts",
        reads_all: true,
        sql: "
    ALTER TABLE meta ADD COLUMN jobs INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE meta ADD COLUMN settings INTEGER NOT NULL DEFAULT 0;  -- and pauses
    UPDATE meta SET jobs = (SELECT count(*) FROM jobs),
                    settings = (SELECT count(*) FROM settings) + (SELECT count(*) FROM paused);
    ",
    },
    Migration {
        // AUTOINCREMENT: ids go on although all older rows are deleted.
        what: "audit log",
        reads_all: false,
        sql: "
    CREATE TABLE audit (
        id     INTEGER PRIMARY KEY AUTOINCREMENT,
        at     INTEGER NOT NULL,  -- ms
        tenant TEXT    NOT NULL,
        who    TEXT    NOT NULL,
        role   TEXT    NOT NULL,
        action TEXT    NOT NULL,
        target TEXT    NOT NULL,
        detail TEXT    NOT NULL,
        crc    INTEGER NOT NULL   -- CRC-32 of all columns but the id
    ) STRICT;
    ",
    },
];

pub(super) const CURRENT: i64 = MIGRATIONS.len() as i64;

/// Migrates to the current version, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found = version(connection)?;
    if found == CURRENT {
        return Ok(());
    }
    if found > CURRENT {
        return Err(too_new(found));
    }
    let step = connection.transaction().map_err(open_error)?;
    for migration in &MIGRATIONS[found as usize..] {
        step.execute_batch(migration.sql).map_err(open_error)?;
    }
    step.pragma_update(None, "user_version", CURRENT).map_err(open_error)?;
    step.pragma_update(None, "application_id", APPLICATION_ID).map_err(open_error)?;
    step.commit().map_err(open_error)
}

fn too_new(found: i64) -> StoreError {
    StoreError::Open(format!(
        "the database has format {found}, but this binary supports formats up to {CURRENT}; use a newer binary"
    ))
}

/// Version of the tables: 0 for an empty file, an error for a database of another program.
pub(super) fn version(connection: &Connection) -> Result<i64, StoreError> {
    let read = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = read("application_id").map_err(open_error)?;
    let version = read("user_version").map_err(open_error)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(open_error)?;
    version_of(application, version, tables > 0)
}

fn version_of(application: i64, version: i64, has_tables: bool) -> Result<i64, StoreError> {
    match (application, version, has_tables) {
        (0, 0, false) => Ok(0),
        (APPLICATION_ID, version, _) if version > 0 => Ok(version),
        _ => {
            Err(StoreError::Open("the file is a database of another program; nothing was changed".to_owned()))
        }
    }
}

/// Version of the tables that this binary can take over, read from the first page of the database.
pub(super) fn version_in_page(page: &[u8]) -> Result<i64, StoreError> {
    let number = |at: usize| Some(i64::from(u32::from_be_bytes(*page.get(at..)?.first_chunk()?)));
    let (Some(version), Some(application)) = (number(60), number(68)) else {
        return Err(StoreError::Corrupt("the first page of the database is incomplete".to_owned()));
    };
    // The list of tables begins after the file header: kind of the page, three bytes further the number of rows.
    let is_empty = page.get(100) == Some(&0x0d) && page.get(103..105) == Some(&[0, 0]);
    match version_of(application, version, !is_empty)? {
        version if version > CURRENT => Err(too_new(version)),
        version => Ok(version),
    }
}

pub(super) fn open_error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Corrupt(format!(
                "{error}; restore a backup, or examine the file with `windlass check`"
            ))
        }
        _ => StoreError::Open(error.to_string()),
    }
}
