//! Files beside the database, and the steps that make a restart after a crash safe.
//!
//! * `X.lock`: exclusive lock, one server per database.
//! * `X-wal`: write-ahead log, rewritten after an unclean stop. A failed fsync may leave pages that the page
//!   cache shows and the disk lacks; copying and syncing the log puts on disk exactly what was read.
//! * `X.commits`: number of acknowledged commits, written after each. A database with fewer commits has lost
//!   some.

use crate::error::StoreError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Suffix of the blob folder beside the database.
pub(super) const BLOBS: &str = ".blobs";
/// Suffix of the commit counter.
pub(super) const COMMITS: &str = ".commits";

pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn open_error(what: &str, path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Open(format!("{what} {}: {error}", path.display()))
}

/// Creates the folder with mode 0700, because payloads are private data.
pub(super) fn make_folder(database: &Path) -> Result<(), StoreError> {
    let Some(folder) = database.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| open_error("cannot create the folder", folder, &error))
}

/// Opens or creates a file with mode 0600.
pub(super) fn open_private(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| open_error("opening", path, &error))
}

/// Creates the database file with mode 0600 before SQLite creates it with the umask; `-wal` and `-shm`
/// inherit the mode of the database. Files that other users can read are changed to 0600.
pub(super) fn make_private(database: &Path) -> Result<(), StoreError> {
    drop(open_private(database)?);
    for path in [database.to_owned(), beside(database, "-wal"), beside(database, "-shm")] {
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.permissions().mode() & 0o077 == 0 {
            continue;
        }
        match fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
            Ok(()) => info!("{} was readable by other users; its mode was changed to 0600", path.display()),
            Err(error) => {
                warn!(
                    "{} is readable by other users, and its mode cannot be changed: {error}; set it to \
                 0600",
                    path.display()
                )
            }
        }
    }
    Ok(())
}

/// Longest wait for programs that look at the lock, which takes them less than a millisecond.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Lock held as long as the store is open.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "the lock goes when the file is closed")] File);

pub(super) fn lock(database: &Path) -> Result<Lock, StoreError> {
    lock_within(database, LOOK_MAX)
}

/// Refuses a database that another server uses at once, and one that is only looked at after a time.
fn lock_within(database: &Path, limit: Duration) -> Result<Lock, StoreError> {
    let path = beside(database, ".lock");
    let mut file = open_private(&path)?;
    let failed = |error: std::io::Error| open_error("locking", &path, &error);
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        match file.try_lock_shared() {
            // All others look, as in `holder`.
            Ok(()) => file.unlock().map_err(failed)?,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let (holder, database) = (holder.trim(), database.display());
                return Err(StoreError::Open(format!("another server (pid {holder}) uses {database}")));
            }
        }
        if started.elapsed() >= limit {
            return Err(StoreError::Open(format!("another program holds a lock on {}", path.display())));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    let write = || -> std::io::Result<()> {
        file.set_len(0)?;
        file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
    };
    write().map_err(|error| open_error("writing", &path, &error))?;
    Ok(Lock(file))
}

/// Process id of the server that uses a database. The lock is taken for a moment, and nothing is written.
pub fn holder(database: &Path) -> Option<String> {
    let mut file = File::open(beside(database, ".lock")).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder).ok()?;
            Some(holder.trim().to_owned())
        }
    }
}

/// Number of acknowledged commits that must be in the database; 0 if they were not synced.
pub(super) fn acknowledged(database: &Path) -> u64 {
    let counter = File::open(beside(database, COMMITS));
    let counted = counter.ok().and_then(|file| CommitCounter { file, relaxed: false }.read());
    counted.filter(|(_, relaxed)| !relaxed).map_or(0, |(commits, _)| commits)
}

/// Refuses to replace a lost database: SQLite would create a new one and delete the write-ahead log, which
/// may contain all remaining jobs.
pub(super) fn refuse_lost_database(database: &Path) -> Result<(), StoreError> {
    let bytes_of = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    if bytes_of(database) > 0 {
        return Ok(());
    }
    let log_bytes = bytes_of(&beside(database, "-wal"));
    let acknowledged = acknowledged(database);
    if log_bytes == 0 && acknowledged == 0 {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "{} is missing or empty, but {acknowledged} commits to it were acknowledged and its \
         write-ahead log has {log_bytes} bytes; put the file back, or restore a backup; to start \
         with an empty store, move the remaining files away",
        database.display()
    )))
}

/// Refuses a database with fewer commits than were acknowledged.
pub(super) fn refuse_lost_commits(database: &Path, found: u64) -> Result<(), StoreError> {
    let acknowledged = acknowledged(database);
    if found >= acknowledged {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "{} of {acknowledged} acknowledged commits are missing from {}: its -wal file was truncated or deleted, \
         or the database was replaced by an older copy; restore a backup, or delete {} to continue with the \
         remaining data",
        acknowledged - found,
        database.display(),
        beside(database, COMMITS).display()
    )))
}

/// Rewrites the write-ahead log after an unclean stop, before SQLite opens it, so that the disk holds exactly
/// what was read.
pub(super) fn rewrite_log(database: &Path) -> Result<bool, StoreError> {
    let log = beside(database, "-wal");
    match fs::metadata(&log) {
        Ok(found) if found.len() > 0 => {}
        _ => return Ok(false),
    }
    let copy = beside(database, "-wal.rewritten");
    let rewrite = || -> std::io::Result<()> {
        fs::copy(&log, &copy)?;
        File::open(&copy)?.sync_all()?;
        fs::rename(&copy, &log)?;
        sync_folder(database)
    };
    rewrite().map_err(|error| open_error("cannot rewrite the write-ahead log", &log, &error))?;
    Ok(true)
}

pub(super) fn sync_folder(database: &Path) -> std::io::Result<()> {
    let folder = match database.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

/// Two slots of `[commits u64][relaxed u32][crc u32]`, written alternately, so that one is always intact.
#[derive(Debug)]
pub(super) struct CommitCounter {
    file: File,
    relaxed: bool,
}

const SLOT_BYTES: usize = 16;

impl CommitCounter {
    /// Compares with the number of commits in the database.
    pub(super) fn open(database: &Path, found: u64, relaxed: bool) -> Result<CommitCounter, StoreError> {
        let path = beside(database, COMMITS);
        let file = open_private(&path)?;
        let counter = CommitCounter { file, relaxed };
        refuse_lost_commits(database, found)?;
        Ok(counter)
    }

    /// True if commits are counted before they are synced.
    pub(super) fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    pub(super) fn write(&self, commits: u64) -> std::io::Result<()> {
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&commits.to_le_bytes());
        slot[8..12].copy_from_slice(&u32::from(self.relaxed).to_le_bytes());
        let crc = crc32fast::hash(&slot[..12]);
        slot[12..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&slot, (commits % 2) * SLOT_BYTES as u64)
    }

    fn read(&self) -> Option<(u64, bool)> {
        let slots = [0, SLOT_BYTES as u64].into_iter().filter_map(|offset| {
            let mut slot = [0; SLOT_BYTES];
            self.file.read_exact_at(&mut slot, offset).ok()?;
            let crc = u32::from_le_bytes([slot[12], slot[13], slot[14], slot[15]]);
            let (count, _) = slot.split_first_chunk::<8>()?;
            (crc == crc32fast::hash(&slot[..12])).then(|| (u64::from_le_bytes(*count), slot[8] != 0))
        });
        slots.max_by_key(|(commits, _)| *commits)
    }
}

/// True if the disk accepts a mebibyte again, after it was full.
pub(super) fn has_room(database: &Path) -> bool {
    let path = beside(database, ".room");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; 1 << 20])?;
        file.sync_all()
    });
    let _ = fs::remove_file(&path);
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_with_fewer_commits_than_acknowledged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let counter = CommitCounter::open(&database, 0, false).unwrap();
        for commits in 1..=5 {
            counter.write(commits).unwrap();
        }
        assert!(CommitCounter::open(&database, 5, false).is_ok());
        assert!(CommitCounter::open(&database, 6, false).is_ok());
        let error = CommitCounter::open(&database, 4, false).unwrap_err().to_string();
        assert!(error.contains("1 of 5 acknowledged commits are missing"), "{error}");
    }

    #[test]
    fn a_torn_counter_falls_back_to_the_slot_before() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let counter = CommitCounter::open(&database, 0, false).unwrap();
        counter.write(1).unwrap();
        counter.write(2).unwrap();
        counter.file.write_all_at(&[0xff; 3], 2).unwrap();
        assert_eq!(counter.read(), Some((1, false)));
    }

    #[test]
    fn a_second_server_on_one_database_is_told_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let held = lock(&database).unwrap();
        let error = lock(&database).unwrap_err().to_string();
        assert!(error.contains(&format!("another server (pid {})", std::process::id())), "{error}");
        drop(held);
        assert!(lock(&database).is_ok());
    }

    #[test]
    fn a_start_waits_for_programs_that_look_at_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let looking = open_private(&beside(&database, ".lock")).unwrap();
        looking.try_lock_shared().unwrap();
        let error = lock_within(&database, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("another program holds a lock"), "{error}");
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(looking);
        });
        // A large limit, for a machine under load.
        assert!(lock_within(&database, Duration::from_secs(60)).is_ok());
        release.join().unwrap();
    }
}
