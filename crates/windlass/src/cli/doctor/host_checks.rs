//! Checks of the machine.

use super::host::{Descriptors, Process, Readings, Space, Syncs};
use crate::cli::findings::Finding;
use crate::human_time::show_bytes;
use std::time::Duration;

/// Sync times above which a single push takes noticeably long.
const SYNC_MEDIAN_MAX: Duration = Duration::from_millis(10);
const SYNC_P99_MAX: Duration = Duration::from_millis(100);
/// Median above which a disk is failing or overloaded.
const SYNC_BROKEN: Duration = Duration::from_millis(500);
/// Free space below which the store is about to stop, and below which it is scarce.
const SPACE_MIN: u64 = 256 << 20;
const SPACE_LOW: u64 = 2 << 30;
const FILES_LOW: u64 = 1_000;
/// Descriptors without which a server hardly works, and memory below which large requests are refused.
const DESCRIPTORS_MIN: u64 = 256;
const MEMORY_LOW: u64 = 256 << 20;

/// File systems of other machines: locks and shared memory of SQLite are not reliable there.
const NETWORK: [&str; 12] = [
    "9p",
    "afs",
    "ceph",
    "cifs",
    "fuse.glusterfs",
    "fuse.s3fs",
    "fuse.sshfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];
/// File systems in memory.
const IN_MEMORY: [&str; 2] = ["ramfs", "tmpfs"];

/// All findings. `resident_bytes`: memory that the running server uses.
pub(super) fn all(readings: &Readings, resident_bytes: Option<u64>) -> Vec<Finding> {
    let folder = readings.folder.display().to_string();
    let mut found = Vec::new();
    found.extend(readings.syncs.as_ref().map(|syncs| match syncs {
        Syncs::Timed(times) => disk_sync(&folder, times),
        Syncs::Failed(error) => Finding::warn(
            "fsync",
            format!("cannot write to {folder}: {error}"),
            "run windlass doctor as root or as the user of the server",
        ),
        Syncs::NoFolder => Finding::ok("fsync", "not timed: there is no data folder yet"),
    }));
    found.extend(readings.space.map(|space| disk_space(&folder, &space)));
    if readings.syncs.is_some() {
        found.extend(readings.file_system.as_deref().map(|name| file_system(&folder, name)));
    }
    found.extend(readings.descriptors.as_ref().map(descriptors));
    found.extend(readings.memory_bytes.map(|bytes| memory(bytes, resident_bytes)));
    if let Process::Hidden(id) = &readings.process {
        found.extend(["open files", "memory"].map(|about| hidden(about, id)));
    }
    found.push(synchronization(readings.clock_is_synchronized));
    found
}

/// Time of syncs, sorted.
fn disk_sync(folder: &str, times: &[Duration]) -> Finding {
    let (median, p99) = (percentile(times, 50), percentile(times, 99));
    let text = format!("median {}, 99 % within {} ({folder})", millis(median), millis(p99));
    if median >= SYNC_BROKEN {
        let advice = "every commit waits for it: use another disk; this one is overloaded or failing";
        return Finding::fail("fsync", text, advice);
    }
    if median >= SYNC_MEDIAN_MAX {
        let advice = "push in batches or with several clients, which share a commit, or use a faster disk";
        return Finding::warn("fsync", text, advice);
    }
    if p99 >= SYNC_P99_MAX {
        let advice = "other programs may load this disk: give the store its own, or set store.own_thread";
        return Finding::warn("fsync", text, advice);
    }
    Finding::ok("fsync", text)
}

/// Value at a rank of the sorted times.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn disk_space(folder: &str, space: &Space) -> Finding {
    let Space { free_bytes, all_bytes, free_files, all_files } = *space;
    let text = format!("{} of {} are free ({folder})", show_bytes(free_bytes), show_bytes(all_bytes));
    if free_bytes < SPACE_MIN {
        let advice = "a server on a full disk accepts no jobs: free some space, or move the data folder";
        return Finding::fail("disk space", text, advice);
    }
    if free_bytes < SPACE_LOW {
        let advice = "free some space, shorten keep.completed, or run windlass compact";
        return Finding::warn("disk space", text, advice);
    }
    if all_files > 0 && free_files < FILES_LOW {
        let text = format!("only {free_files} more files can be created ({folder})");
        return Finding::warn("disk space", text, "delete small files on this disk");
    }
    Finding::ok("disk space", text)
}

fn file_system(folder: &str, name: &str) -> Finding {
    let text = format!("{name} ({folder})");
    if NETWORK.contains(&name) {
        let advice =
            "SQLite needs locks that network file systems do not keep: use a local disk, or PostgreSQL";
        return Finding::warn("file system", text, advice);
    }
    if IN_MEMORY.contains(&name) {
        let advice = "all jobs are lost when the machine restarts: use a folder on a disk";
        return Finding::warn("file system", text, advice);
    }
    if name == "overlay" {
        let advice = "the layer of a container is removed with it: mount a volume for the data folder";
        return Finding::warn("file system", text, advice);
    }
    Finding::ok("file system", text)
}

fn descriptors(found: &Descriptors) -> Finding {
    let Descriptors { limit, asked, fitting } = *found;
    let text = format!("{limit} open files allowed");
    let advice = format!(
        "room for {fitting} of {asked} connections per port: raise the limit (ulimit -n, LimitNOFILE= of systemd), \
         or lower limits.connections"
    );
    if limit < DESCRIPTORS_MIN {
        return Finding::fail("open files", text, advice);
    }
    // The server warns of the same.
    if fitting < asked / 2 {
        return Finding::warn("open files", text, advice);
    }
    Finding::ok("open files", format!("{text}: room for {fitting} connections per port"))
}

fn memory(limit: u64, resident: Option<u64>) -> Finding {
    let text = match resident {
        Some(resident) => {
            format!("{} available, {} in use by the server", show_bytes(limit), show_bytes(resident))
        }
        None => format!("{} available", show_bytes(limit)),
    };
    if resident.is_some_and(|resident| resident > limit / 10 * 9) {
        let advice = "the server may be killed: raise the memory limit, or lower limits.memory_bytes";
        return Finding::fail("memory", text, advice);
    }
    if resident.is_some_and(|resident| resident > limit / 4 * 3) {
        return Finding::warn("memory", text, "raise the memory limit, or lower limits.memory_bytes");
    }
    if limit < MEMORY_LOW {
        let advice = "requests may use half of it, and large ones are refused: raise the limit";
        return Finding::warn("memory", text, advice);
    }
    Finding::ok("memory", text)
}

/// Remark about limits of a server whose process cannot be seen.
fn hidden(about: &'static str, id: &str) -> Finding {
    let text = format!(
        "unknown: no windlass has the process id of the lock file ({id}) here; if the server is in a container, run \
         windlass doctor there"
    );
    Finding::ok(about, text)
}

fn synchronization(is_synchronized: Option<bool>) -> Finding {
    match is_synchronized {
        Some(true) => Finding::ok("clock sync", "synchronized with a time server"),
        Some(false) => Finding::warn(
            "clock sync",
            "not synchronized with a time server",
            "delays and cron rules follow this clock: enable NTP, e.g. timedatectl set-ntp true",
        ),
        None => Finding::ok("clock sync", "unknown: this machine does not tell whether it uses NTP"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::findings::Level::{self, Fail, Ok, Warn};

    #[track_caller]
    fn check(finding: &Finding, level: Level, words: &str) {
        let whole = format!("{} {}", finding.text, finding.advice.as_deref().unwrap_or_default());
        assert!(finding.level == level && whole.contains(words), "{finding:?} should be {level:?}: {words}");
        assert_eq!(finding.advice.is_some(), level != Ok, "{finding:?}");
    }

    #[test]
    fn sync_times() {
        let ms = Duration::from_millis;
        let mut one_slow = vec![ms(1); 49];
        one_slow.push(ms(150));
        for (times, level, words) in [
            (vec![ms(1); 50], Ok, "median 1.00 ms, 99 % within 1.00 ms"),
            (one_slow, Warn, "99 % within 150.00 ms"),
            (vec![ms(12); 50], Warn, "batches"),
            (vec![ms(800); 6], Fail, "overloaded or failing"),
            (vec![], Ok, "median 0.00 ms"),
        ] {
            check(&disk_sync("data", &times), level, words);
        }
    }

    #[test]
    fn free_space() {
        let space = |free_bytes, free_files, all_files| Space {
            free_bytes,
            all_bytes: 100 << 30,
            free_files,
            all_files,
        };
        for (space, level, words) in [
            (space(50 << 30, 1 << 20, 1 << 21), Ok, "53.7 GB of 107.4 GB are free"),
            (space(1 << 30, 1 << 20, 1 << 21), Warn, "compact"),
            (space(1 << 20, 1 << 20, 1 << 21), Fail, "accepts no jobs"),
            (space(50 << 30, 10, 1 << 21), Warn, "only 10 more files"),
            (space(50 << 30, 0, 0), Ok, "are free"),
        ] {
            check(&disk_space("data", &space), level, words);
        }
    }

    #[test]
    fn file_systems() {
        for (name, level, words) in [
            ("ext4", Ok, "ext4 (data)"),
            ("xfs", Ok, "xfs"),
            ("nfs4", Warn, "network file systems"),
            ("cifs", Warn, "network file systems"),
            ("tmpfs", Warn, "lost when the machine restarts"),
            ("overlay", Warn, "mount a volume"),
        ] {
            check(&file_system("data", name), level, words);
        }
    }

    #[test]
    fn limits_of_files() {
        for (limit, fitting, level, words) in [
            (65_536, 10_000, Ok, "room for 10000 connections"),
            (20_000, 9_872, Ok, "room for 9872 connections"),
            (1_024, 384, Warn, "room for 384 of 10000 connections"),
            (64, 16, Fail, "ulimit -n"),
        ] {
            check(&descriptors(&Descriptors { limit, asked: 10_000, fitting }), level, words);
        }
    }

    #[test]
    fn memory_limits() {
        for (limit, resident, level, words) in [
            (8 << 30, None, Ok, "8.6 GB available"),
            (8 << 30, Some(1 << 30), Ok, "1.1 GB in use"),
            (8 << 30, Some(7 << 30), Warn, "raise the memory limit"),
            (8 << 30, Some(8 << 30), Fail, "may be killed"),
            (128 << 20, None, Warn, "large ones are refused"),
        ] {
            check(&memory(limit, resident), level, words);
        }
    }

    #[test]
    fn clocks() {
        check(&synchronization(Some(true)), Ok, "synchronized");
        check(&synchronization(Some(false)), Warn, "enable NTP");
        check(&synchronization(None), Ok, "unknown");
    }

    #[test]
    fn a_store_elsewhere_has_no_disk_here() {
        let readings = Readings {
            folder: "data".into(),
            syncs: None,
            space: None,
            file_system: Some("nfs".to_owned()),
            process: Process::NotRunning,
            descriptors: None,
            memory_bytes: None,
            clock_is_synchronized: None,
        };
        let about = |readings: &Readings| -> Vec<&str> {
            all(readings, None).iter().map(|finding| finding.about).collect()
        };
        assert_eq!(about(&readings), ["clock sync"]);
        let refused = Readings { syncs: Some(Syncs::Failed("permission denied".to_owned())), ..readings };
        check(&all(&refused, None)[0], Warn, "as the user of the server");
        assert_eq!(about(&refused), ["fsync", "file system", "clock sync"]);
        let missing = Readings { syncs: Some(Syncs::NoFolder), ..refused };
        check(&all(&missing, None)[0], Ok, "not timed: there is no data folder yet");
        let hidden = Readings { process: Process::Hidden("12".to_owned()), syncs: None, ..missing };
        assert_eq!(about(&hidden), ["open files", "memory", "clock sync"]);
        check(&all(&hidden, None)[0], Ok, "unknown: no windlass has the process id of the lock file (12)");
    }
}
