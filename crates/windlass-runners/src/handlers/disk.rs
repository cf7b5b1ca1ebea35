//! Disk usage of a context, measured from outside: files in its folder, and deleted files that are still open
//! or mapped.

use super::outcome::Verdict;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Most files; more are refused whatever their size, so that a scan is bounded.
const FILES_MAX: u64 = 100_000;
/// Most nested folders; a scan holds one descriptor per level.
const DEPTH_MAX: usize = 128;
/// Unit of `st_blocks` on every system.
const BLOCK_BYTES: u64 = 512;
/// Pause between two scans, as a multiple of the duration of the last one.
const PAUSES: u32 = 10;

/// Schedule and limit of the scans.
pub(super) struct DiskWatch {
    work: PathBuf,
    bytes_max: u64,
    next: Instant,
    /// Running scan and its start. It survives the cancellation of `look`, since a slow disk takes long.
    looking: Option<(Instant, JoinHandle<Count>)>,
}

impl DiskWatch {
    pub(super) fn new(work: PathBuf, bytes_max: u64) -> DiskWatch {
        DiskWatch { work, bytes_max, next: Instant::now(), looking: None }
    }

    /// Scans if a scan is due, and returns a verdict if the context must end. If the scan is not complete at
    /// `deadline`, or the future is dropped, the next call continues it.
    pub(super) async fn look(&mut self, processes: Vec<i32>, deadline: Instant) -> Option<Verdict> {
        if self.looking.is_none() && Instant::now() < self.next {
            return None;
        }
        let work = &self.work;
        let (began, counting) = self.looking.get_or_insert_with(|| {
            let work = work.clone();
            (Instant::now(), tokio::task::spawn_blocking(move || count(&work, &processes)))
        });
        let counted = timeout_at(deadline, counting).await.ok()?;
        let took = began.elapsed();
        self.looking = None;
        self.next = Instant::now() + took.saturating_mul(PAUSES).min(Duration::from_secs(10));
        self.judge(&counted.ok()?)
    }

    fn judge(&self, count: &Count) -> Option<Verdict> {
        let (bytes, most) = (count.bytes, self.bytes_max);
        let why = match count.cut_short {
            Some(why) => why.to_owned(),
            None if bytes > most => {
                format!("the handler used {bytes} bytes of disk space; the maximum is {most}")
            }
            None => return None,
        };
        Some(Verdict::error("DISK", why))
    }
}

#[derive(Debug, Default)]
struct Count {
    bytes: u64,
    files: u64,
    /// Inodes already counted, of files with several links or none.
    seen: HashSet<(u64, u64)>,
    /// Inodes of deleted files that a process has open.
    open: HashSet<u64>,
    /// Inodes of deleted files that are mapped, with the largest size mapped by one process.
    mapped: HashMap<u64, u64>,
    /// Limit at which the scan stopped.
    cut_short: Option<&'static str>,
}

fn count(work: &Path, processes: &[i32]) -> Count {
    let mut count = Count::default();
    let Ok(top) = open_folder(CWD, work) else { return count };
    let device = rustix::fs::fstat(&top).map(|about| device_of(&about)).ok();
    count.folder(top);
    for process in processes {
        count.open_files(*process, device);
    }
    count
}

impl Count {
    fn folder(&mut self, top: OwnedFd) {
        let mut above: Vec<Dir> = Dir::new(top).into_iter().collect();
        while let Some(dir) = above.last_mut() {
            let Some(Ok(entry)) = dir.next() else {
                above.pop();
                continue;
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.files += 1;
            if self.files > FILES_MAX {
                self.cut_short = Some("the handler created more than 100000 files");
                return;
            }
            let Ok(within) = dir.fd() else { continue };
            let Ok(about) = rustix::fs::statat(within, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.add(&about);
            if !FileType::from_raw_mode(about.st_mode).is_dir() {
                continue;
            }
            if above.len() >= DEPTH_MAX {
                self.cut_short = Some("the handler created folders more than 128 levels deep");
                return;
            }
            let Some(dir) = above.last() else { return };
            let opened = dir.fd().ok().and_then(|within| open_folder(within, entry.file_name()).ok());
            above.extend(opened.and_then(|folder| Dir::new(folder).ok()));
        }
    }

    fn add(&mut self, about: &Stat) {
        let is_new = about.st_nlink == 1
            || FileType::from_raw_mode(about.st_mode).is_dir()
            || self.seen.insert((device_of(about), about.st_ino));
        if is_new {
            self.bytes += u64::try_from(about.st_blocks).unwrap_or(0) * BLOCK_BYTES;
        }
    }

    /// Counts deleted files that a process has open or mapped.
    fn open_files(&mut self, process: i32, device: Option<u64>) {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        for file in open {
            let Ok(about) = std::fs::metadata(file.path()) else { continue };
            let is_left = about.is_file() && about.nlink() == 0 && Some(about.dev()) == device;
            if is_left && self.seen.insert((about.dev(), about.ino())) {
                self.open.insert(about.ino());
                self.bytes += about.blocks() * BLOCK_BYTES;
            }
        }
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mut of_process: HashMap<u64, u64> = HashMap::new();
        for (inode, bytes) in maps.lines().filter_map(left_mapping) {
            *of_process.entry(inode).or_default() += bytes;
        }
        // By inode alone: the device in `maps` differs from `st_dev` on some file systems.
        for (inode, bytes) in of_process.into_iter().filter(|(inode, _)| !self.open.contains(inode)) {
            let known = self.mapped.entry(inode).or_default();
            self.bytes += bytes.saturating_sub(*known);
            *known = bytes.max(*known);
        }
    }
}

/// Inode and size of a mapping of a deleted file.
fn left_mapping(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let inode: u64 = words.nth(3)?.parse().ok()?;
    let name = line.strip_suffix(" (deleted)")?;
    // Shared memory, counted by `memory.rs`.
    if inode == 0 || name.ends_with(" /dev/zero") || name.contains(" /memfd:") || name.contains(" /SYSV") {
        return None;
    }
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    Some((inode, number(to)?.saturating_sub(number(from)?)))
}

/// Device of a file as std reports it.
#[allow(clippy::unnecessary_cast, reason = "the type of the number differs between systems")]
fn device_of(about: &Stat) -> u64 {
    about.st_dev as u64
}

/// Opens a folder, even if its owner has removed the permissions.
fn open_folder(within: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open =
        |within: BorrowedFd<'_>| rustix::fs::openat(within, name, flags | OFlags::RDONLY, Mode::empty());
    match open(within.as_fd()) {
        Err(Errno::ACCESS) => {
            super::remove::allow(within.as_fd(), name)?;
            open(within.as_fd())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_file_counts_once_by_what_it_takes() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/one"), vec![1; 300_000]).unwrap();
        fs::hard_link(path("a/b/one"), path("again")).unwrap();
        std::os::unix::fs::symlink("/usr", path("elsewhere")).unwrap();
        fs::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let named = count(folder.path(), &[]).bytes;
        assert!((300_000..400_000).contains(&named), "{named}");
        let kept = fs::File::open(path("again")).unwrap();
        fs::remove_file(path("again")).unwrap();
        fs::remove_file(path("a/b/one")).unwrap();
        assert!(count(folder.path(), &[]).bytes < 100_000);
        let open = count(folder.path(), &[own]).bytes;
        assert!(open >= 300_000, "{open}");
        drop(kept);
    }

    #[test]
    fn mappings_of_files_without_a_name_are_told_from_others() {
        let check = |line: &str, found: Option<(u64, u64)>| assert_eq!(left_mapping(line), found, "{line}");
        check("7f00-9f00 rw-s 00000000 fe:00 4711    /tmp/x y (deleted)", Some((4711, 0x2000)));
        check("7f00-9f00 rw-s 00000000 fe:00 4711    /tmp/x", None);
        check("7f00-9f00 rw-s 00000000 00:01 17      /dev/zero (deleted)", None);
        check("7f00-9f00 rw-p 00000000 00:00 0", None);
    }

    #[tokio::test]
    async fn a_slow_look_is_not_waited_for_beyond_the_deadline_and_is_the_only_one() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut watch = DiskWatch::new(folder.path().to_owned(), 1_000);
        let (release, slow) = std::sync::mpsc::channel::<()>();
        let counting = tokio::task::spawn_blocking(move || {
            let _ = slow.recv();
            Count { bytes: 2_000, ..Count::default() }
        });
        watch.looking = Some((Instant::now(), counting));
        let soon = || Instant::now() + Duration::from_millis(10);
        for _ in 0..2 {
            assert!(watch.look(Vec::new(), soon()).await.is_none());
        }
        release.send(()).unwrap();
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(watch.look(Vec::new(), late).await.unwrap().code, "DISK");
        assert!(watch.looking.is_none());
    }

    #[test]
    fn depth_and_number_have_an_end() {
        let folder = tempfile::TempDir::new().unwrap();
        let deep = (0..DEPTH_MAX + 1).fold(folder.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(deep).unwrap();
        let watch = DiskWatch::new(folder.path().to_owned(), 1 << 30);
        let verdict = watch.judge(&count(folder.path(), &[])).unwrap();
        assert_eq!(verdict.code, "DISK");
    }
}
