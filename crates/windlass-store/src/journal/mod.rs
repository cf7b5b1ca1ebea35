//! The journal: lines are appended to a local file and acknowledged; later they are read in bulk and put where they belong.
//!
//! ```text
//!  write ─► buffer ─► file ─► fsync ─► wsync answers          (one thread; what arrives meanwhile is the next group)
//!                      │
//!                      └─► reserve ─► read ─► rsync            (done: the head moves on, files behind it are removed)
//!                             ▲          └─► cancel, or late ─┐
//!                             └───────────── come back first ─┘
//! ```
//!
//! What is acknowledged is on disk and stays there until somebody has said `rsync` for it. A line may come more than once
//! (after a crash, or when whoever reserved it was late), so the reader must know what it has seen; ours does, by the id.
//!
//! | file | holds |
//! |---|---|
//! | `format.rs` | how lines lie in a file: pure |
//! | `files.rs` | the files of one journal, or memory in their place |
//! | `head.rs` | up to where the lines are taken care of |
//! | `writer.rs` | the thread that appends and syncs |
//! | `shelf.rs` | which lines are reserved, which come next: a plain table |
//! | `ids.rs`, `radix64.rs` | ids that sort by time |

mod files;
pub mod format;
mod head;
pub mod ids;
pub mod radix64;
mod shelf;
mod writer;

pub use format::{Line, NewLine};
pub use shelf::Token;

use files::Files;
use format::Read;
use ids::IdMaker;
use parking_lot::{Mutex, MutexGuard};
use shelf::{Place, Shelf};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::Timestamp;
use writer::Writer;
pub use writer::Written;

/// Lines in one block at most: its header has three digits for each.
const BLOCK_LINES_MAX: usize = 10_000;
/// Read at a time; a block that is longer is read whole.
const READ_BYTES: usize = 1 << 20;

/// Where a journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// In this folder, or if another process has it in one beside it. Made with the first line.
    Folder(PathBuf),
    /// Gone when the process is: for stores of which the same is true.
    Memory,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub home: Home,
    /// No line is taken while the files are this large together.
    pub bytes_max: u64,
}

impl Default for Settings {
    /// Eight gigabytes: hours of heavy traffic while a database is away.
    fn default() -> Self {
        Settings { home: Home::Memory, bytes_max: 8 << 30 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("the journal is full ({0} bytes); it empties as soon as the store takes jobs again")]
    Full(u64),
    #[error("writing the journal: {0}; nothing was kept")]
    Write(String),
    #[error(
        "the disk did not take the journal: {0}; the jobs may or may not have been kept, the next start of the server tells"
    )]
    Unknown(String),
    /// After a failed fsync nobody knows what is on the disk; only a restart finds out.
    #[error("the journal takes no more lines since the disk failed: {0}; restart the server")]
    Broken(String),
    #[error("reading the journal: {0}")]
    Read(String),
    #[error("a line of the journal may hold no newline, and its id and type no `|`")]
    Unwritable,
    #[error("already read")]
    AlreadyRead,
    #[error("token expired")]
    Expired,
    #[error("the journal is closed: the server is shutting down")]
    Closed,
}

/// A cheap handle; clones are the same journal.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

/// Lines that were found one after another, and where to go on.
type Stretch = (Place, Vec<(Place, Line)>);

struct Inner {
    files: Arc<Files>,
    writer: Writer,
    shelf: Mutex<Shelf>,
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
        let shelf = Mutex::new(Shelf::new(files.head()));
        let sysid = Mutex::new(ids::new_sysid("", 0).into());
        let inner = Inner { files, writer, shelf, arrived, ids: IdMaker::new(), sysid };
        Ok(Journal { inner: Arc::new(inner) })
    }

    /// Hands lines over to be written. They are safe once `wsync` says so, all of them or none of those in one call.
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

    /// Ready when what was written is on disk, or it is known that it may not be.
    pub async fn wsync(&self, written: Written) -> Result<(), JournalError> {
        written.on_disk().await
    }

    /// Sets up to `lines` of the next lines aside for one reader, who has until `until` to say that they are taken care of.
    /// `None`: there are none at present; `arrival` tells when to ask again.
    pub fn reserve(
        &self,
        lines: usize,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Token>, JournalError> {
        let mut shelf = self.shelf();
        shelf.take_back_late(now);
        while shelf.waiting() < lines {
            let Some((frontier, found)) = self.read_on(shelf.frontier())? else { break };
            shelf.found(frontier, found);
        }
        Ok(shelf.reserve(lines, until))
    }

    /// The lines of a reservation, once.
    pub fn read(&self, token: Token, now: Timestamp) -> Result<Vec<Line>, JournalError> {
        let mut shelf = self.shelf();
        shelf.take_back_late(now);
        shelf.read(token)
    }

    /// The lines of this reservation are taken care of and need not come again.
    pub fn rsync(&self, token: Token, now: Timestamp) -> Result<(), JournalError> {
        let mut shelf = self.shelf();
        shelf.take_back_late(now);
        shelf.done(token)?;
        let head = shelf.head();
        let is_empty = shelf.is_empty();
        drop(shelf);
        self.inner.files.move_head(head).map_err(|error| JournalError::Write(error.to_string()))?;
        if is_empty && self.inner.files.is_worth_emptying(head) {
            self.inner.writer.start_anew();
        }
        Ok(())
    }

    /// The lines of this reservation come back, before all others.
    pub fn cancel(&self, token: Token) -> Result<(), JournalError> {
        self.shelf().cancel(token)
    }

    /// Ready when lines may have arrived since the future was made.
    pub fn arrival(&self) -> impl Future<Output = ()> + '_ {
        self.inner.arrived.notified()
    }

    /// The name of this server, which its ids are made with.
    pub fn sysid(&self) -> Arc<str> {
        Arc::clone(&self.inner.sysid.lock())
    }

    pub fn rename(&self, sysid: Arc<str>) {
        *self.inner.sysid.lock() = sysid;
    }

    /// Ids for new lines, each greater than those before it.
    pub fn make_ids(&self, count: usize, now: Timestamp) -> Vec<String> {
        self.inner.ids.make(&self.sysid(), now.as_millis(), count)
    }

    /// Whether there are lines that nobody has taken care of yet.
    pub fn has_lines(&self) -> bool {
        let shelf = self.shelf();
        !shelf.is_empty() || self.inner.files.has_more(shelf.frontier())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.inner.files.bytes()
    }

    /// `Err`: it takes no more lines.
    pub fn health(&self) -> Result<(), JournalError> {
        self.inner.writer.health()
    }

    /// Writes what was handed over and lets go of the files.
    pub async fn close(&self) {
        self.inner.writer.close().await;
    }

    /// What follows on `from`, and where to go on; `None`: nothing does at present.
    fn read_on(&self, from: Place) -> Result<Option<Stretch>, JournalError> {
        let failed = |error: std::io::Error| JournalError::Read(error.to_string());
        let mut want = READ_BYTES;
        loop {
            let Some(piece) = self.inner.files.read(from, want).map_err(failed)? else { return Ok(None) };
            let got = piece.bytes.len();
            if got == 0 {
                // A file that is closed and read: on to the next one.
                return Ok(piece.next.map(|next| (next, Vec::new())));
            }
            let read = format::read(&piece.bytes, piece.is_all);
            if read.consumed == 0 {
                if got < want {
                    // What is there of it does not end: it waits until the file is closed.
                    return Ok(None);
                }
                want *= 4;
                continue;
            }
            self.complain(from, &read);
            let frontier = Place { block: from.block + read.consumed as u64, ..from }.at_block();
            let at = |found: &format::Found| Place {
                file: from.file,
                block: from.block + found.block as u64,
                line: from.block + found.start as u64,
            };
            // After a restart the head may lie in the middle of a block.
            let lines = read.lines.into_iter().map(|found| (at(&found), found.line));
            return Ok(Some((frontier, lines.filter(|(place, _)| *place >= from).collect())));
        }
    }

    fn complain(&self, from: Place, read: &Read) {
        if let Some((at, what)) = read.damaged.first() {
            let (file, at) = (self.inner.files.name(from.file), from.block + *at as u64);
            let count = read.damaged.len();
            tracing::error!(
                "journal {file}: {count} damaged lines are left out; the first, at byte {at}: {what}"
            );
            self.inner.files.set_aside(from.file);
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.inner.shelf.lock()
    }
}

#[cfg(test)]
mod tests;
