//! `head`: position up to which all lines of a journal are processed.
//!
//! Two lines `FILE BLOCK LINE CRC`, each in its own sector, written alternately and synced: a power failure
//! can damage only one of them. An outdated, damaged or missing head causes lines to be delivered again; a
//! job that was finished and deleted would then run again. To change the format, keep reading the old one:
//! the first slot is where older journals have their only line.

use super::reservations::Place;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Sector size: disks write a sector atomically.
const SLOT_BYTES: usize = 512;
/// Four numbers are shorter.
const LINE_BYTES_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct HeadFile {
    file: File,
    /// Newest position, and the slot (0 or 1) that contains it.
    newest: Option<(Place, usize)>,
}

impl HeadFile {
    /// Opens the file, or creates it.
    pub(super) fn open(folder: &Path) -> io::Result<HeadFile> {
        let path = folder.join("head");
        let is_new = !path.exists();
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if is_new {
            File::open(folder)?.sync_all()?;
        }
        let newest = read(&file)?;
        Ok(HeadFile { file, newest })
    }

    /// Writes and syncs the position. An earlier position than the newest is ignored.
    pub(super) fn write(&mut self, head: Place) -> io::Result<()> {
        if self.newest.is_some_and(|(newest, _)| newest >= head) {
            return Ok(());
        }
        let slot = self.newest.map_or(0, |(_, slot)| 1 - slot);
        let text = format!("{} {} {}", head.file, head.block, head.line);
        let line = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
        self.file.write_all_at(line.as_bytes(), (slot * SLOT_BYTES) as u64)?;
        self.file.sync_data()?;
        self.newest = Some((head, slot));
        Ok(())
    }
}

/// Position in the head file of a folder; `None` if it is missing or damaged.
pub(super) fn find(folder: &Path) -> Option<Place> {
    let file = File::open(folder.join("head")).ok()?;
    read(&file).ok()?.map(|(head, _)| head)
}

/// Syncs the head file of a folder, if there is one.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder.join("head")) {
        Ok(file) => {
            file.sync_data()?;
            File::open(folder)?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn read(file: &File) -> io::Result<Option<(Place, usize)>> {
    let mut newest = None;
    for slot in 0..2 {
        let mut bytes = [0; LINE_BYTES_MAX];
        let got = file.read_at(&mut bytes, (slot * SLOT_BYTES) as u64)?;
        newest = newest.max(place_of(&bytes[..got]).map(|place| (place, slot)));
    }
    Ok(newest)
}

fn place_of(bytes: &[u8]) -> Option<Place> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let (numbers, crc) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
    if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(numbers.as_bytes()) {
        return None;
    }
    let mut numbers = numbers.split(' ').map(|number| number.parse::<u64>().ok());
    Some(Place { file: numbers.next()??, block: numbers.next()??, line: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn place(line: u64) -> Place {
        Place { file: 1, block: line, line }
    }

    #[test]
    fn one_of_two_lines_is_whole_whatever_happens_to_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head");
        assert_eq!(find(folder.path()), None);
        sync(folder.path()).unwrap();
        let mut head = HeadFile::open(folder.path()).unwrap();
        for line in [5, 10, 15] {
            head.write(place(line)).unwrap();
            assert_eq!(find(folder.path()), Some(place(line)));
        }
        sync(folder.path()).unwrap();
        head.write(place(7)).unwrap();
        assert_eq!(find(folder.path()), Some(place(15)), "it never goes back");
        // A torn write damages the older of the two slots.
        let whole = fs::read(&path).unwrap();
        for (slot, left) in [(0, 10), (1, 15)] {
            let mut torn = whole.clone();
            torn[slot * SLOT_BYTES..slot * SLOT_BYTES + 3].fill(0);
            fs::write(&path, torn).unwrap();
            assert_eq!(find(folder.path()), Some(place(left)));
        }
        // The next write leaves the intact slot unchanged.
        let mut head = HeadFile::open(folder.path()).unwrap();
        head.write(place(20)).unwrap();
        let mut torn = fs::read(&path).unwrap();
        torn[SLOT_BYTES..SLOT_BYTES + 3].fill(0);
        fs::write(&path, torn).unwrap();
        assert_eq!(find(folder.path()), Some(place(15)));
    }

    #[test]
    fn the_head_of_an_older_journal_is_read_and_kept_until_there_is_a_newer() {
        let folder = tempfile::tempdir().unwrap();
        let text = "3 40 44";
        let old = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
        fs::write(folder.path().join("head"), &old).unwrap();
        let old = Place { file: 3, block: 40, line: 44 };
        assert_eq!(find(folder.path()), Some(old));
        let new = Place { file: 4, block: 0, line: 0 };
        HeadFile::open(folder.path()).unwrap().write(new).unwrap();
        assert_eq!(find(folder.path()), Some(new));
        let bytes = fs::read(folder.path().join("head")).unwrap();
        assert!(bytes.starts_with(text.as_bytes()), "the old line was written over");
    }
}
