//! State of a database file, read without a change of any byte. A connection would create or rewrite the `-wal` and
//! `-shm` files, so the format is read from the first page itself, in the write-ahead log or in the database.

use super::rows::read_error;
use super::{commits_of, files, schema};
use crate::copy::UNFINISHED;
use crate::error::StoreError;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Bytes of the first page that hold the versions and the number of tables.
const PAGE_START: usize = 108;
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// Page sizes of SQLite.
const PAGE_BYTES: std::ops::RangeInclusive<usize> = 512..=65_536;

/// Database file as a binary finds it that is about to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Format of the tables; 0: no tables yet.
    pub version: i64,
    pub newest: i64,
    /// Pending migrations, in order.
    pub missing: Vec<String>,
    /// True if a pending migration reads every job.
    pub reads_all: bool,
    pub database_bytes: u64,
    /// Bytes of the write-ahead log; not 0 while a server runs and after an unclean stop.
    pub log_bytes: u64,
    /// Number of jobs; `None` if there is a write-ahead log, or if a server uses the database. Then there was no look
    /// for lost commits and for an unfinished copy.
    pub jobs: Option<u64>,
    /// Begin of an unfinished copy, on which no server starts.
    pub unfinished: Option<String>,
    /// Process id of the server that uses it.
    pub holder: Option<String>,
}

/// Reads the state of a database. The error says why this binary cannot take it over.
pub fn look(database: &Path) -> Result<FileState, StoreError> {
    let unreadable =
        |error: std::io::Error| StoreError::Open(format!("cannot read {}: {error}", database.display()));
    let mut used = Use::of(database);
    let database_bytes = match std::fs::metadata(database) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(unreadable(error)),
    };
    files::refuse_lost_database(database)?;
    let version = match database_bytes {
        0 => 0,
        _ => {
            let page = first_page(database, &files::beside(database, "-wal")).map_err(unreadable)?;
            schema::version_in_page(&page)?
        }
    };
    let figures = match version > 0 && used.is_none() {
        false => None,
        true => {
            let figures = figures(database, version);
            used = Use::of(database);
            // A server that started meanwhile may have written between two reads.
            if used.is_none() { Some(figures?) } else { None }
        }
    };
    let pending = &schema::MIGRATIONS[version as usize..];
    let steps = pending.iter().zip(version + 1..);
    Ok(FileState {
        version,
        newest: schema::CURRENT,
        missing: steps.map(|(migration, number)| format!("{number}: {}", migration.what)).collect(),
        reads_all: version > 0 && pending.iter().any(|migration| migration.reads_all),
        database_bytes,
        log_bytes: used.log_bytes,
        jobs: figures.as_ref().map(|(jobs, _)| *jobs),
        unfinished: figures.and_then(|(_, unfinished)| unfinished),
        holder: used.holder,
    })
}

/// Signs that a server uses a database, or did not close it.
struct Use {
    log_bytes: u64,
    holder: Option<String>,
}

impl Use {
    fn of(database: &Path) -> Use {
        let holder = files::holder(database);
        let log = std::fs::metadata(files::beside(database, "-wal"));
        Use { log_bytes: log.map_or(0, |found| found.len()), holder }
    }

    fn is_none(&self) -> bool {
        self.log_bytes == 0 && self.holder.is_none()
    }
}

/// Number of jobs and begin of an unfinished copy, in a database that nobody uses and that has no write-ahead log.
fn figures(database: &Path, version: i64) -> Result<(u64, Option<String>), StoreError> {
    // `immutable`: no locks, and no files beside the database.
    let uri = format!("file:{}?immutable=1", escaped(database));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags).map_err(read_error)?;
    files::refuse_lost_commits(database, commits_of(&connection)?)?;
    let counted = if version < 2 { "SELECT count(*) FROM jobs" } else { "SELECT jobs FROM meta" };
    let jobs: i64 = connection.query_row(counted, [], |row| row.get(0)).map_err(read_error)?;
    let marked = "SELECT value FROM settings WHERE key = ?1";
    let begun = connection.query_row(marked, [UNFINISHED], |row| row.get::<_, Vec<u8>>(0)).optional();
    let begun = begun.map_err(read_error)?.map(|value| String::from_utf8_lossy(&value).into_owned());
    Ok((jobs.unsigned_abs(), begun))
}

/// Path in a URI: everything but letters, digits and a few marks is escaped.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => out.push(*byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// First bytes of page 1: its last committed version in the log, else the one in the database.
fn first_page(database: &Path, log: &Path) -> std::io::Result<Vec<u8>> {
    let mut page = vec![0; PAGE_START];
    File::open(database)?.read_exact(&mut page)?;
    if !page.starts_with(b"SQLite format 3\0") {
        return Err(std::io::Error::other("it is not a database"));
    }
    let logged = match File::open(log) {
        Ok(file) => page_one_in_log(BufReader::with_capacity(1 << 20, file)),
        Err(_) => None,
    };
    Ok(logged.unwrap_or(page))
}

/// Last committed version of page 1 in a write-ahead log. Reading ends at the first frame that is not of this log,
/// as in a recovery by SQLite.
fn page_one_in_log(mut log: impl Read) -> Option<Vec<u8>> {
    let mut header = [0; LOG_HEADER];
    log.read_exact(&mut header).ok()?;
    let is_big = match u32_at(&header, 0) {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return None,
    };
    let page_bytes = usize::try_from(u32_at(&header, 8)).ok().filter(|bytes| PAGE_BYTES.contains(bytes))?;
    let mut sum = checksum((0, 0), &header[..24], is_big);
    if sum != (u32_at(&header, 24), u32_at(&header, 28)) {
        return None;
    }
    let (mut pending, mut committed) = (None, None);
    let mut frame = vec![0; FRAME_HEADER + page_bytes];
    while log.read_exact(&mut frame).is_ok() {
        sum = checksum(checksum(sum, &frame[..8], is_big), &frame[FRAME_HEADER..], is_big);
        if frame[8..16] != header[16..24] || sum != (u32_at(&frame, 16), u32_at(&frame, 20)) {
            break;
        }
        if u32_at(&frame, 0) == 1 {
            pending = Some(frame[FRAME_HEADER..FRAME_HEADER + PAGE_START].to_vec());
        }
        let is_commit = u32_at(&frame, 4) != 0;
        if is_commit {
            committed = pending.take().or(committed);
        }
    }
    committed
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_be_bytes(*chunk))
}

/// Checksum of the log's format, continued over whole pairs of words.
fn checksum(sum: (u32, u32), bytes: &[u8], is_big: bool) -> (u32, u32) {
    let word = |chunk: &[u8]| {
        let bytes = chunk.first_chunk().copied().unwrap_or_default();
        if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    bytes.chunks_exact(8).fold(sum, |(first, second), pair| {
        let first = first.wrapping_add(word(pair)).wrapping_add(second);
        (first, second.wrapping_add(word(&pair[4..])).wrapping_add(first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    /// Bytes of every file in a folder.
    fn bytes_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
    }

    #[test]
    fn the_format_is_read_from_the_log_and_no_byte_changes() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a b?.db");
        let mut connection = Connection::open(&database).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        assert_eq!(look(&database).unwrap().version, 0);
        schema::migrate(&mut connection).unwrap();
        let in_file = std::fs::read(&database).unwrap();
        assert_eq!(u32_at(&in_file, 60), 0, "the new version is in the log only");
        let before = bytes_in(folder.path());
        let found = look(&database).unwrap();
        assert_eq!((found.version, found.missing.as_slice(), found.jobs), (schema::CURRENT, &[][..], None));
        assert_eq!(bytes_in(folder.path()), before);
        // A torn end of the log hides nothing that was committed before.
        let log = files::beside(&database, "-wal");
        let whole = std::fs::read(&log).unwrap();
        std::fs::write(&log, [&whole[..], &whole[LOG_HEADER..LOG_HEADER + 100]].concat()).unwrap();
        assert_eq!(look(&database).unwrap().version, schema::CURRENT);
        std::fs::write(&log, &whole).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(connection);
        let before = bytes_in(folder.path());
        let closed = look(&database).unwrap();
        assert_eq!((closed.version, closed.jobs, closed.holder), (schema::CURRENT, Some(0), None));
        assert_eq!(bytes_in(folder.path()), before);
    }

    #[test]
    fn the_figures_of_a_database_in_use_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        schema::migrate(&mut Connection::open(&database).unwrap()).unwrap();
        // As between the reads of the database and of the counter, while a server writes.
        files::CommitCounter::open(&database, 0, false).unwrap().write(1_000).unwrap();
        let held = files::lock(&database).unwrap();
        let found = look(&database).unwrap();
        let holder = Some(std::process::id().to_string());
        assert_eq!((found.log_bytes, found.jobs, found.holder), (0, None, holder));
        drop(held);
        let error = look(&database).unwrap_err().to_string();
        assert!(error.contains("acknowledged commits are missing"), "{error}");
    }

    #[test]
    fn files_that_cannot_be_taken_over_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, make: &dyn Fn(&Connection), says: &str| {
            let database = folder.path().join(name);
            make(&Connection::open(&database).unwrap());
            let error = look(&database).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        };
        let newer = |connection: &Connection| {
            connection
                .execute_batch(
                    "CREATE TABLE t (x); PRAGMA application_id = 1466852460; PRAGMA user_version = 99;",
                )
                .unwrap();
        };
        check("newer", &newer, "the database has format 99, but this binary supports formats up to");
        let other = |connection: &Connection| connection.execute_batch("CREATE TABLE t (x)").unwrap();
        check("other", &other, "database of another program");
        std::fs::write(folder.path().join("text"), "x".repeat(4096)).unwrap();
        let error = look(&folder.path().join("text")).unwrap_err().to_string();
        assert!(error.contains("it is not a database"), "{error}");
        let none = look(&folder.path().join("none")).unwrap();
        assert_eq!((none.version, none.missing.len() as i64), (0, schema::CURRENT));
    }
}
