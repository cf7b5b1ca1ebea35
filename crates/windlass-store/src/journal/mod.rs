//! Journal: lines are appended to a local file, synced and acknowledged. Later they are read in bulk and
//! pushed into the store.
//!
//! ```text
//!  write ─► buffer ─► file ─► fsync ─► wsync answers          (one thread; group commit)
//!                      │
//!                      └─► reserve ─► read ─► rsync            (processed: the head advances, older files are removed)
//!                             ▲          └─► cancel, or late ─┐
//!                             └─────── delivered again first ─┘
//! ```
//!
//! Delivery is at least once. An acknowledged line is on disk and stays there until a reader calls `rsync`
//! for it. A line may be delivered again (after a crash, or when a reservation expired), so the reader has to
//! deduplicate: the ingest writes the position of the last line in the same commit as the jobs (`position.rs`).
//!
//! | file | contents |
//! |---|---|
//! | `format.rs` | encoding and decoding of lines: pure |
//! | `files.rs` | log files of one journal, or buffers in memory |
//! | `head.rs` | position up to which all lines are processed |
//! | `position.rs` | position of a line as the reader stores it, and its check against the files |
//! | `identity.rs` | id of the journal, a file in its folder |
//! | `writer.rs` | thread that appends and syncs |
//! | `reservations.rs` | reservation table: free and reserved lines |
//! | `ids.rs`, `radix64.rs` | ids that sort by time |

mod files;
pub mod format;
mod head;
mod identity;
pub mod ids;
mod position;
pub mod radix64;
mod reservations;
mod writer;

pub use format::{Line, NewLine};
pub use position::{Position, PositionCheck};
pub use reservations::{Place, Token};

use files::Files;
use format::Read;
use ids::IdMaker;
use parking_lot::{Mutex, MutexGuard};
use reservations::Reservations;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::Timestamp;
use writer::Writer;
pub use writer::Written;

/// Most lines of a block. Its header has three digits for each line.
const BLOCK_LINES_MAX: usize = 10_000;
/// Bytes of one read. A longer block is read whole.
const READ_BYTES: usize = 1 << 20;

/// Location of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// This folder, or a folder beside it if another process has locked this one. Created with the first
    /// line.
    Folder(PathBuf),
    /// Memory of the process: for stores that are not durable either.
    Memory,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub home: Location,
    /// Total size of the files from which on no line is accepted.
    pub bytes_max: u64,
}

impl Default for Settings {
    /// 8 GiB: hours of heavy traffic while a database cannot be reached.
    fn default() -> Self {
        Settings { home: Location::Memory, bytes_max: 8 << 30 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("the journal is full ({0} bytes); it empties when the store accepts jobs again")]
    Full(u64),
    #[error("cannot write the journal: {0}; nothing was stored")]
    Write(String),
    #[error(
        "cannot sync the journal: {0}; whether the jobs were stored is unknown until the next start \
         of the server"
    )]
    Unknown(String),
    /// After a failed fsync it is unknown which lines are on disk; only a restart can find out.
    #[error("the journal is closed after a disk error: {0}; restart the server")]
    Broken(String),
    #[error("cannot read the journal: {0}")]
    Read(String),
    #[error("a journal line must not contain a newline, and its id and type must not contain `|`")]
    Unwritable,
    #[error("already read")]
    AlreadyRead,
    #[error("token expired")]
    Expired,
    #[error("the journal is closed: the server is shutting down")]
    Closed,
}

/// Handle on a journal; cheap to clone.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

/// Consecutive lines, and the position after them.
type Stretch = (Place, Vec<(Place, Line)>);

struct Inner {
    files: Arc<Files>,
    writer: Writer,
    reservations: Mutex<Reservations>,
    arrived: Arc<Notify>,
    ids: IdMaker,
    sysid: Mutex<Arc<str>>,
}

impl Journal {
    pub fn open(settings: Settings) -> Result<Journal, JournalError> {
        let read = |error: std::io::Error| JournalError::Read(error.to_string());
        let files = Arc::new(Files::open(settings.home, settings.bytes_max).map_err(read)?);
        let arrived = Arc::new(Notify::new());
        let writer = Writer::start(Arc::clone(&files), Arc::clone(&arrived)).map_err(read)?;
        let reservations = Mutex::new(Reservations::new(files.head()));
        let sysid = Mutex::new(ids::new_sysid("", 0).into());
        let inner = Inner { files, writer, reservations, arrived, ids: IdMaker::new(), sysid };
        Ok(Journal { inner: Arc::new(inner) })
    }

    /// Queues lines for writing. They are durable after `wsync`, which succeeds or fails for all lines of one
    /// call.
    pub fn write(&self, lines: &[NewLine<'_>]) -> Result<Written, JournalError> {
        if !lines.iter().all(NewLine::is_writable) {
            return Err(JournalError::Unwritable);
        }
        let mut blocks = Vec::new();
        for part in lines.chunks(BLOCK_LINES_MAX) {
            blocks.append(&mut format::block(part.iter().copied()));
        }
        self.inner.writer.append(blocks)
    }

    /// Waits until the lines are on disk, or until it is known that they may not be.
    pub async fn wsync(&self, written: Written) -> Result<(), JournalError> {
        written.on_disk().await
    }

    /// Reserves up to `lines` of the next lines for one reader, which has to call `rsync` before `until`.
    /// `None`: there are none at present; wait for `arrival` before asking again.
    pub fn reserve(
        &self,
        lines: usize,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Token>, JournalError> {
        let mut reservations = self.reservations();
        reservations.expire_reservations(now);
        while reservations.waiting() < lines {
            let Some((frontier, found)) = self.read_on(reservations.frontier())? else { break };
            reservations.found(frontier, found);
        }
        Ok(reservations.reserve(lines, until))
    }

    /// Lines of a reservation, in order. A second read is refused.
    pub fn read(&self, token: Token, now: Timestamp) -> Result<Vec<(Place, Line)>, JournalError> {
        let mut reservations = self.reservations();
        reservations.expire_reservations(now);
        reservations.read(token)
    }

    /// Acknowledges the lines of a reservation: they are processed and are not delivered again.
    pub fn rsync(&self, token: Token, now: Timestamp) -> Result<(), JournalError> {
        let mut reservations = self.reservations();
        reservations.expire_reservations(now);
        reservations.done(token)?;
        let head = reservations.head();
        let is_empty = reservations.is_empty();
        drop(reservations);
        self.inner.files.move_head(head).map_err(|error| JournalError::Write(error.to_string()))?;
        if is_empty && self.inner.files.is_worth_emptying(head) {
            self.inner.writer.request_new_file();
        }
        Ok(())
    }

    /// Returns the lines of a reservation. They are delivered before all others.
    pub fn cancel(&self, token: Token) -> Result<(), JournalError> {
        self.reservations().cancel(token)
    }

    /// Completes when lines may have arrived since the future was created.
    pub fn arrival(&self) -> impl Future<Output = ()> + '_ {
        self.inner.arrived.notified()
    }

    /// Random id of this journal. `None`: its folder does not exist yet, so there are no lines either.
    pub fn id(&self) -> Option<Arc<str>> {
        self.inner.files.id()
    }

    /// Compares a stored position with the files.
    pub fn check_position(&self, position: &Position) -> Result<PositionCheck, JournalError> {
        if position.place < self.inner.files.synced_head() {
            return Ok(PositionCheck::Passed);
        }
        let block = position.place.at_block();
        let (_, read) = self.read_raw(block)?.unwrap_or_default();
        let is_it = |found: &format::Found| {
            found.block == 0
                && block.block + found.start as u64 == position.place.line
                && found.line.id == position.line
        };
        Ok(if read.lines.iter().any(is_it) { PositionCheck::Present } else { PositionCheck::Foreign })
    }

    /// Name of this server, a part of the ids it makes.
    pub fn sysid(&self) -> Arc<str> {
        Arc::clone(&self.inner.sysid.lock())
    }

    pub fn rename(&self, sysid: Arc<str>) {
        *self.inner.sysid.lock() = sysid;
    }

    /// Ids for new lines, each greater than all earlier ones.
    pub fn make_ids(&self, count: usize, now: Timestamp) -> Vec<String> {
        self.inner.ids.make(&self.sysid(), now.as_millis(), count)
    }

    /// True if there are lines that are not processed yet.
    pub fn has_lines(&self) -> bool {
        let reservations = self.reservations();
        !reservations.is_empty() || self.inner.files.has_more(reservations.frontier())
    }

    /// Total size of the files.
    pub fn bytes(&self) -> u64 {
        self.inner.files.bytes()
    }

    /// `Err` if the journal accepts no more lines.
    pub fn health(&self) -> Result<(), JournalError> {
        self.inner.writer.health()
    }

    /// Writes the queued lines and closes the files.
    pub async fn close(&self) {
        self.inner.writer.close().await;
    }

    /// Lines after `from` and the position after them; `None`: there are none at present.
    fn read_on(&self, from: Place) -> Result<Option<Stretch>, JournalError> {
        let Some((frontier, read)) = self.read_raw(from)? else { return Ok(None) };
        self.complain(from, &read);
        let at = |found: &format::Found| Place {
            file: from.file,
            block: from.block + found.block as u64,
            line: from.block + found.start as u64,
        };
        // After a restart the head may be in the middle of a block.
        let lines = read.lines.into_iter().map(|found| (at(&found), found.line));
        Ok(Some((frontier, lines.filter(|(place, _)| *place >= from).collect())))
    }

    /// Reads from the beginning of a block. Returns the position after what was read; `None`: nothing is there
    /// at present.
    fn read_raw(&self, from: Place) -> Result<Option<(Place, Read)>, JournalError> {
        let failed = |error: std::io::Error| JournalError::Read(error.to_string());
        let mut want = READ_BYTES;
        loop {
            let Some(piece) = self.inner.files.read(from, want).map_err(failed)? else { return Ok(None) };
            let got = piece.bytes.len();
            if got == 0 {
                // This file is closed and read to its end: continue with the next file.
                return Ok(piece.next.map(|next| (next, Read::default())));
            }
            let read = format::read(&piece.bytes, piece.is_all);
            if read.consumed > 0 {
                let frontier = Place { block: from.block + read.consumed as u64, ..from }.at_block();
                return Ok(Some((frontier, read)));
            }
            if got < want {
                // The block is incomplete: wait until the file is closed.
                return Ok(None);
            }
            want *= 4;
        }
    }

    fn complain(&self, from: Place, read: &Read) {
        if let Some((at, what)) = read.damaged.first() {
            let (file, at) = (self.inner.files.name(from.file), from.block + *at as u64);
            let count = read.damaged.len();
            tracing::error!(
                "journal {file}: {count} damaged lines are skipped; the first, at byte {at}: {what}"
            );
            self.inner.files.mark_damaged(from.file);
        }
    }

    fn reservations(&self) -> MutexGuard<'_, Reservations> {
        self.inner.reservations.lock()
    }
}

#[cfg(test)]
mod tests;
