//! Readings of this machine: disk, limits, memory, clock.

use crate::serve::resources;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Syncs that are timed: enough for a percentile, few enough for a slow disk.
const SYNCS: usize = 50;
/// Time limit of all syncs.
const SYNCS_WITHIN: Duration = Duration::from_secs(5);
/// Size of each write: a page.
const WRITE_BYTES: usize = 4096;
/// Time limit of the program that tells the state of the clock.
const PROGRAM_WITHIN: Duration = Duration::from_secs(2);
/// Output of that program that is read.
const PROGRAM_BYTES_MAX: u64 = 1024;

/// Part of the machine that concerns a server.
pub(super) struct Subject<'a> {
    /// Data folder; may not exist yet.
    pub folder: &'a Path,
    /// The store syncs to the disk of the folder.
    pub times_disk: bool,
    /// Id of the server's process according to the lock file, if it runs.
    pub process: Option<&'a str>,
    /// Connections that the server is meant to have.
    pub connections: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readings {
    /// Data folder, or its nearest parent that exists.
    pub folder: PathBuf,
    /// `None` if the store is elsewhere.
    pub syncs: Option<Syncs>,
    pub space: Option<Space>,
    /// Name of the file system, as in the list of mounts.
    pub file_system: Option<String>,
    pub process: Process,
    pub descriptors: Option<Descriptors>,
    /// Memory of the control group or the machine.
    pub memory_bytes: Option<u64>,
    /// True if the clock is synchronized with a time server; `None`: unknown.
    pub clock_is_synchronized: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Syncs {
    /// Duration of each sync, sorted.
    Timed(Vec<Duration>),
    Failed(String),
    /// There is no data folder yet.
    NoFolder,
}

/// Process of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// No server runs, and this process stands for it.
    NotRunning,
    Visible(u32),
    /// Text of the lock file that is no process of Windlass here: the server may be in a container.
    Hidden(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub free_bytes: u64,
    pub all_bytes: u64,
    pub free_files: u64,
    /// 0: the file system has no fixed number.
    pub all_files: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Limit of the process after the server has raised it.
    pub limit: u64,
    /// Connections that the configuration asks for, and that fit.
    pub asked: usize,
    pub fitting: usize,
}

pub(super) fn read(subject: &Subject<'_>) -> Readings {
    let folder = existing(subject.folder);
    let process = process(Path::new("/proc"), subject.process);
    Readings {
        syncs: subject.times_disk.then(|| match subject.folder.is_dir() {
            true => time_syncs(&folder).map_or_else(|error| Syncs::Failed(error.to_string()), Syncs::Timed),
            false => Syncs::NoFolder,
        }),
        space: space(&folder),
        file_system: file_system(&folder),
        descriptors: descriptors(&process, subject.connections),
        memory_bytes: match &process {
            Process::NotRunning => resources::memory_of("self"),
            Process::Visible(id) => resources::memory_of(&id.to_string()),
            Process::Hidden(_) => None,
        },
        process,
        clock_is_synchronized: clock_is_synchronized(),
        folder,
    }
}

/// The folder, or its nearest parent that exists.
fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let found = absolute.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("/"));
    // A relative name is easier to read.
    if found == absolute { folder.to_owned() } else { found.to_owned() }
}

/// Process of an id in a lock file, which may have been written in another process namespace.
fn process(proc: &Path, written: Option<&str>) -> Process {
    let Some(written) = written else { return Process::NotRunning };
    let name = |id: u32| std::fs::read_to_string(proc.join(id.to_string()).join("comm")).ok();
    match written.parse() {
        Ok(id) if name(id).is_some_and(|name| name.starts_with("windlass")) => Process::Visible(id),
        _ => Process::Hidden(written.to_owned()),
    }
}

/// Times syncs of small writes to a file in the folder. The file has no name, so that none is left if this process is
/// ended.
fn time_syncs(folder: &Path) -> io::Result<Vec<Duration>> {
    let mut file = tempfile::tempfile_in(folder)?;
    let (page, started) = ([0_u8; WRITE_BYTES], Instant::now());
    // The first sync also writes the new file's entry, which a commit does not.
    file.write_all(&page)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    while times.len() < SYNCS && started.elapsed() < SYNCS_WITHIN {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        let before = Instant::now();
        file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

fn space(folder: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(Space {
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        all_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_files: found.f_favail,
        all_files: found.f_files,
    })
}

fn file_system(folder: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounted_as(&mounts, &folder.canonicalize().ok()?)
}

/// Name of the file system that holds a path, from the kernel's list of mounts.
fn mounted_as(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        // `36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw`
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(name)) = (before.split(' ').nth(4), after.split(' ').next()) else { continue };
        let point = point.replace("\\040", " ");
        // Of several mounts at one place the last one is seen.
        if path.starts_with(&point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

fn descriptors(process: &Process, asked: usize) -> Option<Descriptors> {
    let limit = match process {
        Process::Visible(id) => descriptors_in(&std::fs::read_to_string(format!("/proc/{id}/limits")).ok()?)?,
        // The server raises its own limit in the same way.
        Process::NotRunning => resources::raise_descriptors()?,
        Process::Hidden(_) => return None,
    };
    Some(Descriptors { limit, asked, fitting: resources::connections(asked, Some(limit)) })
}

/// Soft limit of open files in the kernel's list of a process's limits.
fn descriptors_in(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// State of the clock according to systemd.
fn clock_is_synchronized() -> Option<bool> {
    if !Path::new("/run/systemd/system").exists() {
        return None;
    }
    let mut child = Command::new("timedatectl")
        .args(["show", "--property=NTPSynchronized", "--value"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > PROGRAM_WITHIN {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut said = String::new();
    child.stdout.take()?.take(PROGRAM_BYTES_MAX).read_to_string(&mut said).ok()?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_innermost_mount() {
        let mounts = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                      30 22 0:26 / /mnt/my\\040data rw - nfs4 box:/data rw\n\
                      31 22 0:27 / /mnt rw - tmpfs tmpfs rw\n\
                      broken line\n";
        let check = |path: &str, name: &str| {
            assert_eq!(mounted_as(mounts, Path::new(path)).as_deref(), Some(name), "{path}");
        };
        check("/var/lib/windlass", "ext4");
        check("/mnt/x", "tmpfs");
        check("/mnt/my data/jobs", "nfs4");
        check("/mntx", "ext4");
        assert_eq!(mounted_as("", Path::new("/")), None);
    }

    #[test]
    fn the_limit_of_files_is_found_among_the_limits() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             127000               127000               processes \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(descriptors_in(limits), Some(1024));
        assert_eq!(descriptors_in(""), None);
    }

    #[test]
    fn syncs_are_timed_and_no_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let times = time_syncs(folder.path()).unwrap();
        assert!((1..=SYNCS).contains(&times.len()) && times.is_sorted(), "{times:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_folder_is_not_timed_in_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("data");
        let subject = Subject { folder: &missing, times_disk: true, process: None, connections: 1 };
        let readings = read(&subject);
        assert_eq!((readings.syncs, readings.process), (Some(Syncs::NoFolder), Process::NotRunning));
    }

    #[test]
    fn a_process_of_another_program_is_not_the_server() {
        let proc = tempfile::tempdir().unwrap();
        for (id, name) in [("7", "windlass\n"), ("8", "cron\n")] {
            std::fs::create_dir(proc.path().join(id)).unwrap();
            std::fs::write(proc.path().join(id).join("comm"), name).unwrap();
        }
        assert_eq!(process(proc.path(), None), Process::NotRunning);
        assert_eq!(process(proc.path(), Some("7")), Process::Visible(7));
        for hidden in ["8", "9", "", "../7"] {
            assert_eq!(process(proc.path(), Some(hidden)), Process::Hidden(hidden.to_owned()));
        }
        assert_eq!(descriptors(&Process::Hidden("8".to_owned()), 10), None);
    }

    #[test]
    fn a_folder_that_does_not_exist_yet_stands_for_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(existing(&folder.path().join("a/b")), folder.path());
        assert_eq!(existing(folder.path()), folder.path());
        assert_eq!(existing(Path::new(".")), Path::new("."));
    }
}
