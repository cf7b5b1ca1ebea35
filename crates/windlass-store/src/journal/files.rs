//! Files of one journal: `00000001.log`, `00000002.log`, …, `head`, the position up to which all lines are
//! processed, and `id`.
//!
//! A file found at startup is never appended to, because its end may be torn. A processed file that reappears
//! after a power failure is removed with the next ones.

use super::Location;
use super::head::{self, HeadFile};
use super::identity;
use super::reservations::Place;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size at which a file is closed and the next one begun: small enough that processed lines do not fill the
/// disk.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Size from which on a file without unprocessed lines is removed at once; smaller ones are not worth the
/// cost.
const EMPTY_BYTES_MIN: u64 = 1 << 20;
/// Most journals beside each other: each server that shares a data folder has its own.
const FOLDERS_MAX: usize = 16;

pub(super) struct Files {
    home: Location,
    bytes_max: u64,
    state: Mutex<State>,
    /// Locked during a write of the head, so that heads are written in order.
    head_file: Mutex<Option<HeadFile>>,
}

#[derive(Default)]
struct State {
    /// Folder and its lock; `None`: in memory, or nothing was written so far.
    folder: Option<(PathBuf, File)>,
    /// Set together with the folder; in memory, at once.
    id: Option<Arc<str>>,
    files: BTreeMap<u64, Entry>,
    head: Place,
    /// Head that the next start will find at least.
    synced_head: Place,
    /// Files with damaged lines: renamed instead of removed after processing, for inspection by the operator.
    damaged: BTreeSet<u64>,
}

struct Entry {
    medium: Medium,
    /// Length that is synced for sure; of a file found at startup the whole length.
    bytes: u64,
    is_closed: bool,
}

enum Medium {
    Disk(Arc<File>),
    Memory(Vec<u8>),
}

/// Result of a read.
pub(super) struct Piece {
    pub bytes: Bytes,
    /// True if nothing will follow these bytes in this file.
    pub is_all: bool,
    /// Start of the next file, if `bytes` is empty because this file is read to its end.
    pub next: Option<Place>,
}

impl Files {
    pub(super) fn open(home: Location, bytes_max: u64) -> io::Result<Files> {
        let mut state = State { head: Place { file: 1, block: 0, line: 0 }, ..State::default() };
        if let Location::Folder(first) = &home {
            for folder in candidates(first) {
                if !folder.is_dir() {
                    break;
                }
                let Some(lock) = lock(&folder)? else { continue };
                state.find(&folder)?;
                state.id = Some(identity::of(&folder)?);
                state.folder = Some((folder, lock));
                break;
            }
        } else {
            state.id = Some(identity::random()?);
        }
        state.synced_head = state.head;
        Ok(Files { home, bytes_max, state: Mutex::new(state), head_file: Mutex::default() })
    }

    pub(super) fn head(&self) -> Place {
        self.state().head
    }

    pub(super) fn synced_head(&self) -> Place {
        self.state().synced_head
    }

    pub(super) fn id(&self) -> Option<Arc<str>> {
        self.state().id.clone()
    }

    pub(super) fn name(&self, file: u64) -> String {
        let state = self.state();
        state
            .folder
            .as_ref()
            .map_or_else(|| name(file), |(folder, _)| folder.join(name(file)).display().to_string())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state().files.values().map(|entry| entry.bytes).sum()
    }

    pub(super) fn is_full(&self) -> Option<u64> {
        Some(self.bytes()).filter(|bytes| *bytes >= self.bytes_max)
    }

    /// Appends to the current file, or to a new one if the current one is full, and syncs.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<(), AppendError> {
        let (number, target, at) = self.present_file().map_err(AppendError::Write)?;
        if let Some(file) = target {
            if let Err(error) = file.write_all_at(bytes, at) {
                // A part of the bytes may be written, and the next start would find it.
                let cut = file.set_len(at).and_then(|()| file.sync_data());
                return Err(if cut.is_ok() { AppendError::Write(error) } else { AppendError::Sync(error) });
            }
            file.sync_data().map_err(AppendError::Sync)?;
        }
        let mut state = self.state();
        if let Some(entry) = state.files.get_mut(&number) {
            if let Medium::Memory(content) = &mut entry.medium {
                content.extend_from_slice(bytes);
            }
            entry.bytes = at + bytes.len() as u64;
        }
        Ok(())
    }

    /// Closes the current file. The next append begins another.
    pub(super) fn close_present(&self) {
        if let Some(mut entry) = self.state().files.last_entry() {
            entry.get_mut().is_closed = true;
        }
    }

    /// Closes and removes the current file if all of its lines are processed.
    pub(super) fn empty(&self) -> io::Result<()> {
        let head = {
            let mut state = self.state();
            let head = state.head;
            match state.files.last_entry() {
                Some(mut last) if *last.key() == head.file && last.get().bytes == head.line => {
                    last.get_mut().is_closed = true;
                    Place { file: head.file + 1, block: 0, line: 0 }
                }
                _ => return Ok(()),
            }
        };
        self.move_head(head)
    }

    pub(super) fn is_worth_emptying(&self, head: Place) -> bool {
        let state = self.state();
        let last = state.files.last_key_value();
        last.is_some_and(|(number, entry)| {
            *number == head.file && entry.bytes == head.line && entry.bytes >= EMPTY_BYTES_MIN
        })
    }

    /// True if bytes follow `from`.
    pub(super) fn has_more(&self, from: Place) -> bool {
        let state = self.state();
        let here = state.files.get(&from.file).is_some_and(|entry| entry.bytes > from.block);
        here || state.files.range(from.file + 1..).any(|(_, entry)| entry.bytes > 0)
    }

    /// Up to `want` bytes from the block on; `None`: there are none at present.
    pub(super) fn read(&self, from: Place, want: usize) -> io::Result<Option<Piece>> {
        let state = self.state();
        let next = state.files.range(from.file + 1..).next();
        let next = next.map(|(number, _)| Place { file: *number, block: 0, line: 0 });
        let over = |next: Option<Place>| next.map(|_| Piece { bytes: Bytes::new(), is_all: true, next });
        let Some(entry) = state.files.get(&from.file) else { return Ok(over(next)) };
        let left = entry.bytes.saturating_sub(from.block);
        if left == 0 {
            return Ok(if entry.is_closed { over(next) } else { None });
        }
        let length = left.min(want as u64);
        let is_all = entry.is_closed && length == left;
        if let Medium::Memory(content) = &entry.medium {
            let start = from.block as usize;
            let bytes = Bytes::copy_from_slice(&content[start..start + length as usize]);
            return Ok(Some(Piece { bytes, is_all, next: None }));
        }
        let Medium::Disk(file) = &entry.medium else { return Ok(None) };
        let file = Arc::clone(file);
        drop(state);
        let mut bytes = vec![0; length as usize];
        let got = read_at_most(&file, &mut bytes, from.block)?;
        bytes.truncate(got);
        Ok(Some(Piece { bytes: bytes.into(), is_all: is_all || got < length as usize, next: None }))
    }

    /// Moves the head: all lines before it are processed, and files that contain no others are removed.
    pub(super) fn move_head(&self, head: Place) -> io::Result<()> {
        let mut state = self.state();
        if head <= state.head {
            return Ok(());
        }
        state.head = head;
        let folder = state.folder.as_ref().map(|(folder, _)| folder.clone());
        let done: Vec<u64> =
            state.files.range(..head.file).filter(|(_, entry)| entry.is_closed).map(|(n, _)| *n).collect();
        for number in &done {
            state.files.remove(number);
        }
        let damaged: Vec<u64> = done.iter().copied().filter(|number| state.damaged.remove(number)).collect();
        drop(state);
        if let Some(folder) = &folder {
            self.write_head(folder, head)?;
        }
        let mut state = self.state();
        state.synced_head = state.synced_head.max(head);
        drop(state);
        let Some(folder) = folder else { return Ok(()) };
        for number in done {
            let path = folder.join(name(number));
            if damaged.contains(&number) {
                fs::rename(&path, folder.join(format!("damaged-{}", name(number))))?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn write_head(&self, folder: &Path, head: Place) -> io::Result<()> {
        let mut head_file = self.head_file.lock();
        let file = match head_file.take() {
            Some(file) => head_file.insert(file),
            None => head_file.insert(HeadFile::open(folder)?),
        };
        file.write(head)
    }

    /// Marks a file as damaged: after processing it is renamed instead of removed.
    pub(super) fn mark_damaged(&self, file: u64) {
        self.state().damaged.insert(file);
    }

    /// Number, file handle (`None` in memory) and end of the file to append to.
    fn present_file(&self) -> io::Result<(u64, Option<Arc<File>>, u64)> {
        let mut state = self.state();
        let is_usable = |entry: &Entry| !entry.is_closed && entry.bytes < FILE_BYTES_MAX;
        if !state.files.last_key_value().is_some_and(|(_, entry)| is_usable(entry)) {
            self.begin(&mut state)?;
        }
        let Some((number, entry)) = state.files.last_key_value() else {
            return Err(io::Error::other("no file was begun"));
        };
        let target = match &entry.medium {
            Medium::Disk(file) => Some(Arc::clone(file)),
            Medium::Memory(_) => None,
        };
        Ok((*number, target, entry.bytes))
    }

    fn begin(&self, state: &mut State) -> io::Result<()> {
        if let Some(mut entry) = state.files.last_entry() {
            entry.get_mut().is_closed = true;
        }
        if let (Location::Folder(first), None) = (&self.home, &state.folder) {
            let (folder, lock) = make_folder(first)?;
            state.id = Some(identity::of(&folder)?);
            state.folder = Some((folder, lock));
        }
        let last = state.files.last_key_value().map(|(number, _)| number + 1);
        let number = last.unwrap_or(1).max(state.head.file);
        let medium = match &state.folder {
            None => Medium::Memory(Vec::new()),
            Some((folder, _)) => {
                let path = folder.join(name(number));
                let file =
                    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
                // Sync the folder, or a crash could lose the directory entry of the new file.
                File::open(folder)?.sync_all()?;
                Medium::Disk(Arc::new(file))
            }
        };
        state.files.insert(number, Entry { medium, bytes: 0, is_closed: false });
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

pub(super) enum AppendError {
    /// Nothing was written.
    Write(io::Error),
    /// Unknown result: the bytes may be written, and earlier ones may be lost.
    Sync(io::Error),
}

impl State {
    fn find(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let file_name = entry.file_name();
            let number = file_name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<u64>().ok());
            let Some(number) = number else { continue };
            let file = File::open(entry.path())?;
            let bytes = file.metadata()?.len();
            self.files.insert(number, Entry { medium: Medium::Disk(Arc::new(file)), bytes, is_closed: true });
        }
        let first = self.files.first_key_value().map_or(1, |(number, _)| *number);
        // After a kill it may be in the page cache only.
        head::sync(folder)?;
        self.head = match head::find(folder) {
            Some(head) if head.file >= first => head,
            _ => Place { file: first, block: 0, line: 0 },
        };
        // New lines must not be written before the head.
        if self.files.range(self.head.file..).next().is_none() {
            self.head = Place { file: self.head.file + 1, block: 0, line: 0 };
        }
        Ok(())
    }
}

fn name(number: u64) -> String {
    format!("{number:08}.log")
}

fn candidates(first: &Path) -> impl Iterator<Item = PathBuf> {
    let more = (2..=FOLDERS_MAX).map(move |n| {
        let mut name = first.as_os_str().to_owned();
        name.push(format!("-{n}"));
        PathBuf::from(name)
    });
    std::iter::once(first.to_owned()).chain(more)
}

/// `None`: another process holds the lock.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Makes and locks a folder for the first line. A folder of a server that has stopped since the start of this
/// one is skipped: its lines were not read, and wait for the next start.
fn make_folder(first: &Path) -> io::Result<(PathBuf, File)> {
    for folder in candidates(first) {
        // Mode 0700, because payloads are private data.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        if let Some(lock) = lock(&folder)? {
            if has_journal(&folder)? {
                continue;
            }
            if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
            return Ok((folder, lock));
        }
    }
    Err(io::Error::other(format!("{} and the numbered folders beside it are all in use", first.display())))
}

/// True if a journal was written in this folder.
fn has_journal(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name == "head" || name.as_encoded_bytes().ends_with(b".log") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_at_most(file: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], from + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
