//! Compaction: rewrites the database without the free pages that deleted jobs left.
//!
//! The new file is written beside the old one, read back in full, and put in its place by one rename: a crash
//! at any point leaves either file complete. The next run removes an unfinished new file.

use super::files::{self, CommitCounter};
use super::load::load_index;
use super::readers::read_only;
use super::rows::read_error;
use super::{commits_of, keep_log_when_closed, open_for_writing, schema};
use crate::error::StoreError;
use crate::open::Durability;
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Space left free on the disk beside the new file.
const ROOM_LEFT_BYTES: u64 = 16 << 20;
/// Interval of the calls of `progress`.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// File sizes before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub before_bytes: u64,
    pub after_bytes: u64,
}

/// Compacts a database that no server uses. `progress` receives (bytes written, total bytes).
pub fn compact(database: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Compacted, StoreError> {
    if !database.exists() {
        return Err(StoreError::Open(format!("no database at {}", database.display())));
    }
    let _lock = files::lock(database)?;
    files::refuse_lost_database(database)?;
    files::rewrite_log(database)?;
    let connection = open_for_writing(database, Durability::Full)?;
    let version = schema::version(&connection)?;
    if version != schema::CURRENT {
        return Err(StoreError::Open(format!(
            "the database has format {version}, but this binary compacts format {}; start a server \
             on it once to upgrade it",
            schema::CURRENT
        )));
    }
    CommitCounter::open(database, commits_of(&connection)?, false)?;
    // A damaged database is left unchanged: this load fails and names the damage.
    let old = load_index(&connection)?;
    keep_log_when_closed(&connection, false)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(read_error)?;
    let before_bytes = bytes_of(database)?;
    let live_bytes = live_bytes(&connection)?;
    refuse_without_room(database, live_bytes)?;

    let new = files::beside(database, ".compacting");
    let written = write_new(&connection, &new, live_bytes, progress);
    drop(connection);
    let replaced = written.and_then(|()| {
        let found = load_index(&read_only(&new)?)?;
        if (found.commits, found.next_id, found.rows) != (old.commits, old.next_id, old.rows) {
            return Err(StoreError::Unavailable(
                "the compacted file differs from the original; nothing was changed".to_owned(),
            ));
        }
        replace(&new, database)
    });
    if let Err(error) = replaced {
        let _ = std::fs::remove_file(&new);
        return Err(error);
    }
    Ok(Compacted { before_bytes, after_bytes: bytes_of(database)? })
}

fn write_new(
    connection: &Connection,
    new: &Path,
    live_bytes: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<(), StoreError> {
    let path = new.to_str().ok_or_else(|| trouble(new, "its name is not UTF-8"))?;
    let _ = std::fs::remove_file(new);
    // Created here with mode 0600, because SQLite would make it readable for others.
    files::open_private(new)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let done = std::fs::metadata(new).map_or(0, |found| found.len());
                progress(done.min(live_bytes), live_bytes);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let written = connection.execute("VACUUM INTO ?1", [path]).map_err(read_error);
        is_over.store(true, Ordering::Release);
        written
    })?;
    let synced = std::fs::File::open(new).and_then(|file| file.sync_all());
    synced.map_err(|error| trouble(new, &error.to_string()))
}

/// Replaces the old file and removes its empty write-ahead log.
fn replace(new: &Path, database: &Path) -> Result<(), StoreError> {
    let log = files::beside(database, "-wal");
    if std::fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
        return Err(trouble(&log, "another program is using the database; nothing was changed"));
    }
    for leftover in
        [log, files::beside(database, "-shm"), files::beside(new, "-wal"), files::beside(new, "-shm")]
    {
        let _ = std::fs::remove_file(leftover);
    }
    let replace = || {
        std::fs::rename(new, database)?;
        files::sync_folder(database)
    };
    replace().map_err(|error: std::io::Error| trouble(database, &error.to_string()))
}

fn live_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let read = || Ok((number("page_count")?, number("freelist_count")?, number("page_size")?));
    let (pages, free, bytes) = read().map_err(read_error)?;
    Ok(u64::try_from((pages - free) * bytes).unwrap_or_default())
}

fn refuse_without_room(database: &Path, live_bytes: u64) -> Result<(), StoreError> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let needed = live_bytes.saturating_add(ROOM_LEFT_BYTES);
    if free >= needed {
        return Ok(());
    }
    Err(StoreError::Full(format!(
        "{needed} bytes of free disk space are required beside {}, but only {free} are free; nothing \
         was changed",
        database.display()
    )))
}

fn bytes_of(path: &Path) -> Result<u64, StoreError> {
    std::fs::metadata(path).map(|found| found.len()).map_err(|error| trouble(path, &error.to_string()))
}

fn trouble(path: &Path, why: &str) -> StoreError {
    StoreError::Unavailable(format!("{}: {why}", path.display()))
}
