//! Integrity check and backup of a database.

use super::files;
use super::readers::read_only;
use super::rows::{COLUMNS, Parts, read_error};
use super::{read_settings, schema};
use crate::blobs::files::copy_folder;
use crate::error::StoreError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::path::Path;
use windlass_core::StateName;

/// Pages per step: few enough for a progress bar to move, enough to be fast.
const PAGES_PER_STEP: i32 = 2_048;
/// Problems listed; further ones are only counted.
const PROBLEMS_MAX: usize = 100;

#[derive(Debug, Default)]
pub struct Report {
    pub jobs: u64,
    pub by_state: [u64; StateName::ALL.len()],
    pub settings: u64,
    pub commits: u64,
    /// Empty: no damage found.
    pub problems: Vec<String>,
    /// Problems beyond the listed ones.
    pub more_problems: u64,
}

impl Report {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }
}

/// Reads everything and verifies every checksum. Changes nothing; may run while a server uses the database.
pub fn check(database: &Path, progress: &dyn Fn(u64, u64)) -> Result<Report, StoreError> {
    if !database.exists() {
        return Err(StoreError::Open(format!("no database at {}", database.display())));
    }
    let connection = read_only(database)?;
    let version = schema::version(&connection)?;
    if version != schema::CURRENT {
        return Err(StoreError::Open(format!(
            "the database has format {version}, but this binary checks format {}",
            schema::CURRENT
        )));
    }
    let mut report = Report::default();
    check_pages(&connection, &mut report)?;
    check_jobs(&connection, &mut report, progress)?;
    if let Err(error) = super::load::counted_rows(&connection) {
        report.problem(error.to_string());
    }
    if let Err(error) = super::load::paused_queues(&connection) {
        report.problem(error.to_string());
    }
    if let Err(error) = super::audit::check(&connection) {
        report.problem(error.to_string());
    }
    match read_settings(&connection, "") {
        Ok(settings) => report.settings = settings.len() as u64,
        Err(error) => report.problem(error.to_string()),
    }
    Ok(report)
}

fn check_pages(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(read_error)?;
    let mut rows = statement.query([]).map_err(read_error)?;
    loop {
        match rows.next() {
            Ok(Some(row)) => match row.get::<_, String>(0) {
                Ok(line) if line == "ok" => {}
                Ok(line) => report.problem(line),
                Err(error) => report.problem(error.to_string()),
            },
            Ok(None) => return Ok(()),
            Err(error) => {
                report.problem(error.to_string());
                return Ok(());
            }
        }
    }
}

fn check_jobs(
    connection: &Connection,
    report: &mut Report,
    progress: &dyn Fn(u64, u64),
) -> Result<(), StoreError> {
    let meta = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
    let (commits, next_id) =
        connection.query_row("SELECT commits, next_id FROM meta", [], meta).map_err(read_error)?;
    report.commits = commits;
    let all: i64 =
        connection.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).map_err(read_error)?;
    let sql = format!("SELECT {COLUMNS} FROM jobs ORDER BY id");
    let mut statement = connection.prepare(&sql).map_err(read_error)?;
    let mut parts = Parts::new(connection);
    let mut rows = statement.query([]).map_err(read_error)?;
    let mut done = 0;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => {
                report.problem(error.to_string());
                break;
            }
        };
        match parts.job(row) {
            Ok(job) => {
                report.jobs += 1;
                report.by_state[job.state().name() as usize] += 1;
                if job.id.get() >= next_id {
                    report.problem(format!("job {} is not below the next id {next_id}", job.id));
                }
            }
            Err(error) => report.problem(error.to_string()),
        }
        done += 1;
        progress(done, all as u64);
    }
    Ok(())
}

/// Makes a consistent copy of a database that a server may be using.
pub fn backup_file(database: &Path, to: &Path, progress: &dyn Fn(u64, u64)) -> Result<(), StoreError> {
    if !database.exists() {
        return Err(StoreError::Open(format!("no database at {}", database.display())));
    }
    let connection = read_only(database)?;
    schema::version(&connection)?;
    copy(&connection, to, progress)?;
    copy_blobs(database, to)
}

/// Runs after the copy of the jobs: every blob that a copied job refers to exists by then.
fn copy_blobs(database: &Path, to: &Path) -> Result<(), StoreError> {
    let blobs = |database: &Path| files::beside(database, files::BLOBS);
    copy_folder(&blobs(database), &blobs(to)).map(|_| ())
}

/// Copies a snapshot: the read transaction hides later commits, so that the copy need not start over.
pub(super) fn copy(from: &Connection, to: &Path, progress: &dyn Fn(u64, u64)) -> Result<(), StoreError> {
    if to.exists() {
        return Err(StoreError::Open(format!("{} already exists; choose another file name", to.display())));
    }
    let partial = files::beside(to, ".partial");
    let _ = std::fs::remove_file(&partial);
    let copied = copy_to(from, &partial, progress);
    let finished = copied.and_then(|()| {
        let finish = || -> std::io::Result<()> {
            std::fs::File::open(&partial)?.sync_all()?;
            std::fs::rename(&partial, to)?;
            files::sync_folder(to)
        };
        finish().map_err(|error| StoreError::Unavailable(format!("cannot finish {}: {error}", to.display())))
    });
    if finished.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    finished
}

fn copy_to(from: &Connection, to: &Path, progress: &dyn Fn(u64, u64)) -> Result<(), StoreError> {
    // Mode 0600 whatever the umask: a copy contains every payload.
    drop(files::open_private(to)?);
    let mut target = Connection::open(to).map_err(read_error)?;
    let moment = from.unchecked_transaction().map_err(read_error)?;
    from.query_row("SELECT commits FROM meta", [], |_| Ok(())).map_err(read_error)?;
    {
        let backup = Backup::new(from, &mut target).map_err(read_error)?;
        loop {
            let step = backup.step(PAGES_PER_STEP).map_err(read_error)?;
            let state = backup.progress();
            let (all, left) = (state.pagecount.max(0) as u64, state.remaining.max(0) as u64);
            progress(all - left.min(all), all);
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
    }
    drop(moment);
    target.close().map_err(|(_, error)| read_error(error))
}
