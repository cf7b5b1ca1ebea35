//! Restore: puts a backup in the place of a database that no server uses.
//!
//! The backup is copied beside the database, upgraded and read in full there; only then are the files of the old store
//! moved to a folder of their own and the new ones renamed into place. The commit counter of the old store is moved
//! last: after a crash in between, a server refuses to start, and the restore can be repeated.

use super::check_and_backup::{Report, check, copy};
use super::files::{self, beside};
use super::readers::read_only;
use super::rows::read_error;
use super::{keep_log_when_closed, open_for_writing, schema};
use crate::blobs::files::{copy_folder, damaged_blobs};
use crate::error::StoreError;
use crate::open::Durability;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Suffix of the copy until it is in place.
const STAGED: &str = ".restoring";
/// Suffixes of the files of a store, in the order in which they are moved away; the lock stays.
const PARTS: [&str; 5] = ["", "-wal", "-shm", files::BLOBS, files::COMMITS];

/// Part of the work, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStage {
    Copy,
    Check,
    Blobs,
}

/// Result of a restore.
#[derive(Debug)]
pub struct Restored {
    pub jobs: u64,
    pub blobs: u64,
    /// First id for new jobs: above all ids of the backup, and of the old store if it could be read.
    pub next_id: u64,
    /// Folder with the files of the old store.
    pub kept: Option<PathBuf>,
}

/// Restores `backup` as `database`. Refused if a server uses the database, or if there is one and `replace` is false;
/// with `replace` its files are moved to the folder `before-restore-MOMENT` beside it. An error before the files are
/// moved changes nothing.
pub fn restore(
    backup: &Path,
    database: &Path,
    replace: bool,
    moment: &str,
    progress: &dyn Fn(RestoreStage, u64, u64),
) -> Result<Restored, StoreError> {
    refuse_other_files(backup, database)?;
    files::make_folder(database)?;
    let _lock = files::lock(database)?;
    let is_new = parts_of(database).is_empty();
    if !is_new && !replace {
        return Err(StoreError::Open(format!("there is a store at {} already", database.display())));
    }
    let staged = beside(database, STAGED);
    remove_staged(&staged);
    let prepared = prepare(backup, &staged, database, progress);
    let swapped = prepared.and_then(|restored| {
        let kept = (!is_new).then(|| database.with_file_name(format!("before-restore-{moment}")));
        swap(&staged, database, kept.as_deref()).map_err(|error| trouble(database, &error.to_string()))?;
        Ok(Restored { kept, ..restored })
    });
    if swapped.is_err() {
        remove_staged(&staged);
    }
    swapped
}

/// Suffixes of the files that exist.
fn parts_of(database: &Path) -> Vec<&'static str> {
    PARTS.into_iter().filter(|part| beside(database, part).exists()).collect()
}

fn refuse_other_files(backup: &Path, database: &Path) -> Result<(), StoreError> {
    if !backup.is_file() {
        return Err(StoreError::Open(format!("no backup at {}", backup.display())));
    }
    let same =
        matches!((backup.canonicalize(), database.canonicalize()), (Ok(one), Ok(other)) if one == other);
    match same {
        true => Err(StoreError::Open(format!("{} is the store itself", backup.display()))),
        false => Ok(()),
    }
}

/// Makes a complete, checked store at `staged`.
fn prepare(
    backup: &Path,
    staged: &Path,
    database: &Path,
    progress: &dyn Fn(RestoreStage, u64, u64),
) -> Result<Restored, StoreError> {
    copy_backup(backup, staged, &|done, all| progress(RestoreStage::Copy, done, all))?;
    let next_id = upgrade(staged, next_id_of(database))?;
    let report = check(staged, &|done, all| progress(RestoreStage::Check, done, all))?;
    remove_log(staged);
    refuse_damage(backup, &report)?;
    progress(RestoreStage::Blobs, 0, 0);
    let blobs = beside(staged, files::BLOBS);
    let count = copy_folder(&beside(backup, files::BLOBS), &blobs)?;
    match damaged_blobs(&blobs)?.as_slice() {
        [] => Ok(Restored { jobs: report.jobs, blobs: count, next_id, kept: None }),
        [first, ..] => Err(damaged(backup, &format!("the blob {first} is not what its name says"))),
    }
}

/// Copies the database of the backup. SQLite creates files beside a database that it reads; those are removed.
fn copy_backup(backup: &Path, staged: &Path, progress: &dyn Fn(u64, u64)) -> Result<(), StoreError> {
    let had_log = beside(backup, "-wal").exists();
    let connection = read_only(backup)?;
    if schema::version(&connection)? == 0 {
        return Err(damaged(backup, "it is empty"));
    }
    let copied = copy(&connection, staged, progress);
    drop(connection);
    if !had_log {
        remove_log(backup);
    }
    copied
}

/// Upgrades the copy to the current format and raises its next id. Returns the next id.
fn upgrade(staged: &Path, next_id_min: u64) -> Result<u64, StoreError> {
    let mut connection = open_for_writing(staged, Durability::Full)?;
    schema::migrate(&mut connection)?;
    connection
        .execute("UPDATE meta SET next_id = max(next_id, ?1)", [next_id_min.cast_signed()])
        .map_err(read_error)?;
    let next_id = connection.query_row("SELECT next_id FROM meta", [], |row| row.get::<_, i64>(0));
    let next_id = next_id.map_err(read_error)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(read_error)?;
    keep_log_when_closed(&connection, false)?;
    connection.close().map_err(|(_, error)| read_error(error))?;
    Ok(next_id.cast_unsigned())
}

/// Next id of the old store, so that no id is given twice; 0 if it cannot be read.
fn next_id_of(database: &Path) -> u64 {
    if !database.is_file() {
        return 0;
    }
    let had_log = beside(database, "-wal").exists();
    let read = || {
        let connection = read_only(database)?;
        schema::version(&connection)?;
        let next_id = connection.query_row("SELECT next_id FROM meta", [], |row| row.get::<_, i64>(0));
        next_id.map_err(read_error)
    };
    let next_id = read().map_or(0, |next_id| u64::try_from(next_id).unwrap_or_default());
    if !had_log {
        remove_log(database);
    }
    next_id
}

fn refuse_damage(backup: &Path, report: &Report) -> Result<(), StoreError> {
    let count = report.problems.len() as u64 + report.more_problems;
    match report.problems.first() {
        None => Ok(()),
        Some(first) => Err(damaged(backup, &format!("{count} problems, the first: {first}"))),
    }
}

/// Moves the old files away and the new ones into place; the commit counter of the old store goes last.
fn swap(staged: &Path, database: &Path, kept: Option<&Path>) -> io::Result<()> {
    let put_new = || {
        if beside(staged, files::BLOBS).exists() {
            fs::rename(beside(staged, files::BLOBS), beside(database, files::BLOBS))?;
        }
        fs::rename(staged, database)?;
        files::sync_folder(database)
    };
    let Some(kept) = kept else { return put_new() };
    fs::DirBuilder::new().mode(0o700).create(kept)?;
    let old = kept.join(database.file_name().unwrap_or_default());
    let (counter, others): (Vec<_>, Vec<_>) =
        parts_of(database).into_iter().partition(|part| *part == files::COMMITS);
    for part in others {
        fs::rename(beside(database, part), beside(&old, part))?;
    }
    put_new()?;
    for part in counter {
        fs::rename(beside(database, part), beside(&old, part))?;
    }
    files::sync_folder(database)
}

fn remove_staged(staged: &Path) {
    let _ = fs::remove_file(staged);
    remove_log(staged);
    let _ = fs::remove_dir_all(beside(staged, files::BLOBS));
}

fn remove_log(database: &Path) {
    for part in ["-wal", "-shm"] {
        let _ = fs::remove_file(beside(database, part));
    }
}

fn damaged(backup: &Path, why: &str) -> StoreError {
    StoreError::Open(format!("{} cannot be restored: {why}; nothing was changed", backup.display()))
}

fn trouble(path: &Path, why: &str) -> StoreError {
    StoreError::Unavailable(format!("{}: {why}", path.display()))
}
