//! Builds the index from the rows: verifies every checksum, the order of the ids, and the number of rows.
//!
//! A large table is read by several threads, each with a connection of its own. A thread takes the next range
//! of ids, adds its jobs to an index of its own, and goes on; in the end the indexes are merged. If no
//! further connections can be opened, the given one reads everything. Nobody writes meanwhile: a start has
//! the lock of the file, and a rebuild is made by the writer.

use super::index::Index;
use super::read_settings;
use super::readers::read_only;
use super::rows::{COLUMNS, Parts, read_error};
use super::tables::{self, RowCounts};
use crate::calendar::{CLOCK, Kept};
use crate::error::StoreError;
use crate::{Result, row};
use parking_lot::Mutex;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::warn;
use windlass_core::{Queue, Tenant, Timestamp};

/// Rows from which on a second thread pays.
const ROWS_OF_ONE_THREAD: u64 = 50_000;
/// More threads would mostly wait for the disk, and every one is a connection.
const THREADS_MAX: usize = 4;
/// Ids that a thread takes at a time: some tens of milliseconds of work.
const IDS_AT_ONCE: u64 = 1 << 15;
/// Most ranges, however far apart the ids are.
const RANGES_MAX: u64 = 1 << 16;

pub(super) struct Loaded {
    pub index: Index,
    pub rows: RowCounts,
    pub commits: u64,
    pub next_id: u64,
}

pub(super) fn load_index(connection: &Connection) -> Result<Loaded> {
    let jobs = RowCounts::written(connection).map_err(read_error)?.jobs;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if jobs < ROWS_OF_ONE_THREAD { 1 } else { cores.min(THREADS_MAX) };
    load_with(connection, threads, IDS_AT_ONCE)
}

pub(super) fn load_with(connection: &Connection, threads: usize, ids_at_once: u64) -> Result<Loaded> {
    // Puts due jobs into their claim queues at once; otherwise the first claim would have to move them all.
    let now = seen_at(connection)?;
    let ends = "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM jobs";
    let ends = connection.query_row(ends, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let (first, last) = ends.map_err(read_error)?;
    let path = connection.path().filter(|path| threads > 1 && !path.is_empty()).map(Path::new);
    let readers = path.map(|path| open_readers(path, threads)).unwrap_or_default();
    let (mut index, read) = match readers.len() {
        0 | 1 => read_ranges(connection, &Ranges::new(first, last, u64::MAX), now)?,
        _ => read_in_threads(readers, &Ranges::new(first, last, ids_at_once), now)?,
    };
    for (tenant, queue) in paused_queues(connection)? {
        index.set_paused(&tenant, &queue, true);
    }
    index.forget_news();
    let rows = checked(
        RowCounts::written(connection).map_err(read_error)?,
        RowCounts { jobs: read, settings: RowCounts::settings_found(connection).map_err(read_error)? },
    )?;
    let meta = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
    let (commits, next_id) =
        connection.query_row("SELECT commits, next_id FROM meta", [], meta).map_err(read_error)?;
    if next_id <= last as u64 {
        return Err(StoreError::Corrupt(format!(
            "job {last} exists, but the next id is {next_id}; restore a backup"
        )));
    }
    Ok(Loaded { index, rows, commits, next_id })
}

/// Ranges of ids, handed out in order.
struct Ranges {
    first: i64,
    last: i64,
    ids_at_once: u64,
    taken: AtomicU64,
}

impl Ranges {
    fn new(first: i64, last: i64, ids_at_once: u64) -> Ranges {
        let ids_at_once = ids_at_once.max(last.abs_diff(first) / RANGES_MAX + 1);
        Ranges { first, last, ids_at_once, taken: AtomicU64::new(0) }
    }

    /// First and last id of the next range.
    fn take(&self) -> Option<(i64, i64)> {
        let offset = self.taken.fetch_add(1, Ordering::Relaxed).checked_mul(self.ids_at_once)?;
        let from = self.first.checked_add_unsigned(offset).filter(|from| *from <= self.last)?;
        Some((from, from.saturating_add_unsigned(self.ids_at_once - 1).min(self.last)))
    }

    /// No more ranges are handed out.
    fn end(&self) {
        self.taken.store(u64::MAX / 2, Ordering::Relaxed);
    }
}

/// Index of some rows, and their number.
type Part = (Index, u64);

/// Opens connections until there are `count`, or one cannot be opened, as when the process has too many open
/// files: with fewer of them, reading only takes longer.
fn open_readers(path: &Path, count: usize) -> Vec<Connection> {
    let opened = std::iter::repeat_with(|| open_reader(path)).take(count);
    let told = |error: &StoreError| warn!(%error, "cannot open {count} connections to read the jobs");
    opened.map_while(|reader| reader.inspect_err(told).ok()).collect()
}

/// Opens a connection and reads once: SQLite opens the write-ahead log at the first read.
fn open_reader(path: &Path) -> Result<Connection> {
    let reader = read_only(path)?;
    reader.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(read_error)?;
    Ok(reader)
}

/// Reads with a thread per connection.
fn read_in_threads(readers: Vec<Connection>, ranges: &Ranges, now: Timestamp) -> Result<Part> {
    let waiting = Mutex::default();
    let work = |reader: Connection| -> Result<()> {
        let mut part = read_ranges(&reader, ranges, now).inspect_err(|_| ranges.end())?;
        while let Some((index, rows)) = partner(&waiting, &mut part) {
            part.0.absorb(index);
            part.1 += rows;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = readers.into_iter().map(|reader| scope.spawn(move || work(reader))).collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()
    })?;
    Ok(waiting.into_inner().unwrap_or_default())
}

/// Takes the part that waits for another one to be merged with, or else leaves `part` to wait.
fn partner(waiting: &Mutex<Option<Part>>, part: &mut Part) -> Option<Part> {
    let mut waiting = waiting.lock();
    let other = waiting.take();
    if other.is_none() {
        *waiting = Some(std::mem::take(part));
    }
    other
}

/// Reads ranges until there are no more. Returns the index of their jobs and the number of rows.
fn read_ranges(connection: &Connection, ranges: &Ranges, now: Timestamp) -> Result<Part> {
    let mut index = Index::at(now);
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id BETWEEN ?1 AND ?2 ORDER BY id");
    let mut statement = connection.prepare(&sql).map_err(read_error)?;
    let mut parts = Parts::new(connection);
    let mut read = 0;
    while let Some((from, to)) = ranges.take() {
        let mut rows = statement.query(params![from, to]).map_err(read_error)?;
        let mut last = from.saturating_sub(1);
        while let Some(row) = rows.next().map_err(read_error)? {
            let job = parts.job(row)?;
            // A corrupt page that points to a row twice hides another row; the order of the ids reveals it. So
            // does their number if a row ends its range too early.
            if job.id.get() as i64 <= last {
                return Err(row::damaged(job.id, "its id is out of order"));
            }
            last = job.id.get() as i64;
            read += 1;
            index.add(&job);
        }
        index.forget_news();
    }
    Ok((index, read))
}

/// Last known time of the timeline. Reads all settings, so that damage is found now and not at a later
/// request.
fn seen_at(connection: &Connection) -> Result<Timestamp> {
    let settings = read_settings(connection, "").map_err(|error| {
        StoreError::Corrupt(format!("cannot read the settings: {error}; restore a backup"))
    })?;
    let kept = settings.iter().find(|(key, _)| key == CLOCK);
    let kept = kept.and_then(|(_, bytes)| serde_json::from_slice::<Kept>(bytes).ok());
    Ok(kept.map_or(Timestamp::EPOCH, |kept| Timestamp::from_millis(kept.seen_ms)))
}

/// Rows on a damaged page are missing from every query; only the count reveals it.
pub(super) fn counted_rows(connection: &Connection) -> Result<RowCounts> {
    let (written, found) = RowCounts::written_and_found(connection).map_err(read_error)?;
    checked(written, found)
}

fn checked(written: RowCounts, found: RowCounts) -> Result<RowCounts> {
    match written == found {
        true => Ok(found),
        false => Err(StoreError::Corrupt(format!(
            "expected {} jobs and {} settings, found {} and {}; nothing was changed, restore a backup",
            written.jobs, written.settings, found.jobs, found.settings
        ))),
    }
}

pub(super) fn paused_queues(connection: &Connection) -> Result<Vec<(Tenant, Queue)>> {
    let mut statement = connection.prepare("SELECT tenant, queue, crc FROM paused").map_err(read_error)?;
    let mut rows = statement.query([]).map_err(read_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        let read = || Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?));
        let (tenant, queue, crc) = read().map_err(read_error)?;
        let names = Tenant::new(&tenant).ok().zip(Queue::new(&queue).ok());
        match names {
            Some(names) if tables::crc_of(&tenant, queue.as_bytes()) == crc => found.push(names),
            _ => {
                return Err(StoreError::Corrupt(format!(
                    "the pause of {queue:?} is damaged; restore a backup"
                )));
            }
        }
    }
    Ok(found)
}
