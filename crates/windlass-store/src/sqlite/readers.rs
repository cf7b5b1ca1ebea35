//! Read-only connections: they never block the writer, and see every acknowledged commit.

use super::Shared;
use super::cache::RecentJobs;
use super::rows::{COLUMNS, Parts, Rows, read_error};
use crate::error::StoreError;
use crate::query::{Filter, PAGE_MAX, Page, PageBuilder, SCAN_MAX};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;
use windlass_core::{Job, JobId, NameMatch, Queue, StateName, Tenant};

/// Concurrent reads: more would only take CPU time from the writer.
const READERS_MAX: usize = 4;
/// Longest scan for one page; then the page is returned with a cursor. Users notice a wait of more than a
/// tenth of a second.
const SCAN_TIME_MAX: std::time::Duration = std::time::Duration::from_millis(80);

pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Readers {
    pub(super) fn new(database: &Path) -> Arc<Readers> {
        let idle = Mutex::default();
        Arc::new(Readers { database: database.to_owned(), idle, permits: Semaphore::new(READERS_MAX) })
    }

    /// Runs `read` with a pooled connection on the blocking thread pool.
    pub(super) async fn with<T, F>(self: &Arc<Self>, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let connection = readers.connection()?;
            let result = read(&connection);
            readers.idle.lock().push(connection);
            result
        });
        task.await.map_err(|error| StoreError::Unavailable(format!("a read was aborted: {error}")))?
    }

    /// Loads jobs. Cached jobs need no connection and no other thread.
    pub(super) async fn load(
        self: &Arc<Self>,
        recent: &RecentJobs,
        ids: Vec<JobId>,
    ) -> Result<Vec<Option<Arc<Job>>>, StoreError> {
        if self.permits.is_closed() {
            return Err(StoreError::Closed);
        }
        let known: Vec<Option<Arc<Job>>> = ids.iter().map(|id| recent.get(*id)).collect();
        if known.iter().all(Option::is_some) {
            return Ok(known);
        }
        self.with(move |connection| load(connection, &ids, known)).await
    }

    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }

    fn connection(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| read_only(&self.database), Ok)
    }
}

/// Opens a connection that cannot write.
pub(super) fn read_only(database: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(read_error)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(read_error)?;
    connection.pragma_update(None, "query_only", true).map_err(read_error)?;
    Ok(connection)
}

/// Reads the jobs that are not cached.
fn load(
    connection: &Connection,
    ids: &[JobId],
    known: Vec<Option<Arc<Job>>>,
) -> Result<Vec<Option<Arc<Job>>>, StoreError> {
    let mut rows = Rows::new(connection);
    let read = |(id, known): (&JobId, Option<Arc<Job>>)| match known {
        Some(job) => Ok(Some(job)),
        None => Ok(rows.load(*id)?.map(Arc::new)),
    };
    ids.iter().zip(known).map(read).collect()
}

/// Lists jobs: by ids from the index if it knows the few that can match, else by scanning rows from the
/// newest down.
pub(super) fn list(connection: &Connection, shared: &Shared, filter: &Filter) -> Result<Page, StoreError> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let before = filter.before.map_or(i64::MAX as u64, JobId::get);
    // A filter on states alone matches every listed id: a page and one more id are enough.
    let most = if filter.is_about_states_only() { limit + 1 } else { SCAN_MAX };
    let known = shared.index().ids_fitting(filter, before, most);
    match known {
        Some(ids) => list_known(connection, &ids, filter, limit, most),
        None => list_by_rows(connection, before, filter, limit),
    }
}

fn list_known(
    connection: &Connection,
    ids: &[JobId],
    filter: &Filter,
    limit: usize,
    most: usize,
) -> Result<Page, StoreError> {
    // One transaction for the page: without, each job takes and releases the locks of the file.
    let _snapshot = connection.unchecked_transaction().map_err(read_error)?;
    let mut rows = Rows::new(connection);
    let began = std::time::Instant::now();
    let mut page = PageBuilder::new(limit);
    for (looked_at, id) in ids.iter().enumerate() {
        if let Some(job) = rows.load(*id)?
            && filter.fits(&job)
        {
            page.push(Arc::new(job));
        }
        let more = looked_at + 1 < ids.len() || ids.len() == most;
        if more && (page.is_full() || began.elapsed() > SCAN_TIME_MAX) {
            return Ok(page.end_at(Some(*id)));
        }
    }
    Ok(page.end_at(ids.last().copied().filter(|_| ids.len() == most)))
}

/// Ids scanned per statement: small enough to check the time limit often.
const IDS_AT_ONCE: u64 = 10_000;

/// Bit mask of the requested states; all bits if none is requested.
fn state_bits(states: &[StateName]) -> i64 {
    match states {
        [] => i64::MAX,
        some => some.iter().fold(0, |bits, state| bits | 1 << (*state as u8)),
    }
}

/// Scans rows from the newest down. SQLite filters by tenant, queue, name and state, which is ten times as
/// fast as decoding the whole job.
fn list_by_rows(
    connection: &Connection,
    before: u64,
    filter: &Filter,
    limit: usize,
) -> Result<Page, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM jobs WHERE id < ?1 AND id >= ?2 AND (?3 IS NULL OR tenant = ?3) \
         AND (?4 IS NULL OR queue = ?4) AND (?5 IS NULL OR name = ?5) AND (?6 & (1 << state)) <> 0 ORDER BY id DESC"
    );
    let name = match &filter.names {
        NameMatch::Exact(name) => Some(&**name),
        _ => None,
    };
    let states = state_bits(&filter.states);
    let (tenant, queue) =
        (filter.tenant.as_ref().map(Tenant::as_str), filter.queue.as_ref().map(Queue::as_str));
    // Skips the gaps that deleted jobs left in the ids.
    let newest = "SELECT coalesce(max(id), 0) FROM jobs WHERE id < ?1";
    let mut newest = connection.prepare_cached(newest).map_err(read_error)?;
    let mut upper = before as i64;
    let mut statement = connection.prepare_cached(&sql).map_err(read_error)?;
    let mut parts = Parts::new(connection);
    let began = std::time::Instant::now();
    let mut page = PageBuilder::new(limit);
    loop {
        let newest: i64 = newest.query_row([upper], |row| row.get(0)).map_err(read_error)?;
        if newest == 0 {
            return Ok(page.end_at(None));
        }
        upper = newest.saturating_add(1);
        let lower = upper.saturating_sub(IDS_AT_ONCE as i64).max(1);
        let mut rows =
            statement.query(params![upper, lower, tenant, queue, name, states]).map_err(read_error)?;
        while let Some(row) = rows.next().map_err(read_error)? {
            if page.is_full() {
                return Ok(page.end_here());
            }
            let job = parts.job(row)?;
            let id = job.id;
            if filter.fits(&job) {
                page.push(Arc::new(job));
            }
            if began.elapsed() > SCAN_TIME_MAX {
                return Ok(page.end_at(Some(id)));
            }
        }
        upper = lower;
        if upper > 1 && began.elapsed() > SCAN_TIME_MAX {
            return Ok(page.end_at(u64::try_from(upper).ok().and_then(JobId::new)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_asked_for_twice_is_asked_for_once() {
        let (ready, failed) = (StateName::Ready, StateName::Failed);
        assert_eq!(state_bits(&[ready, ready]), state_bits(&[ready]));
        assert_eq!(state_bits(&[failed, ready, failed]), state_bits(&[ready]) | state_bits(&[failed]));
    }
}
