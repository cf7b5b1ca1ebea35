//! Processes of a context, listed from outside through /proc. `memory.rs` and `disk.rs` measure their use.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Validity of one scan of /proc, which is shared by all contexts.
const FRESH: Duration = Duration::from_millis(100);

/// Processes of one process group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub processes: Vec<i32>,
    /// Number of processes and threads.
    pub tasks: u64,
}

type Groups = HashMap<i32, Group>;

#[derive(Default)]
pub(super) struct Census {
    last: Mutex<Option<(Instant, Arc<Groups>)>>,
}

impl Census {
    /// Reads /proc, which is slow with many processes: call it on a blocking thread.
    pub(super) fn group(&self, pgid: i32) -> Group {
        let mut last = self.last.lock();
        let groups = match &*last {
            Some((at, groups)) if at.elapsed() < FRESH => Arc::clone(groups),
            _ => {
                let groups = Arc::new(count());
                *last = Some((Instant::now(), Arc::clone(&groups)));
                groups
            }
        };
        groups.get(&pgid).cloned().unwrap_or_default()
    }
}

/// Scans /proc; empty if it cannot be read.
fn count() -> Groups {
    let mut groups = Groups::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let Some((pgid, one)) = stat(pid) else { continue };
        let group = groups.entry(pgid).or_default();
        group.processes.extend(pid.parse::<i32>());
        group.tasks += one.tasks;
    }
    groups
}

fn stat(pid: &str) -> Option<(i32, Group)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may contain brackets and spaces, so the fields are counted from the last bracket.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let pgid = fields.nth(2)?.parse().ok()?;
    let tasks = fields.nth(14)?.parse().ok()?;
    Some((pgid, Group { processes: Vec::new(), tasks }))
}

pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Children of the process's main thread; `None` if the kernel does not list them.
pub(super) fn children_of(pid: u32) -> Option<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Number of processes and threads of a user, which share RLIMIT_NPROC.
pub(super) fn tasks_of_user(uid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|about| about.uid() == uid));
    own.filter_map(|entry| stat(entry.file_name().to_str()?)).map(|(_, one)| one.tasks).sum()
}

/// True if RLIMIT_NPROC counts per user namespace, as since Linux 5.14.
pub(super) fn counts_by_namespace() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|version| version >= (5, 14))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("6.18.44-fc-v490\n"), Some((6, 18)));
        assert_eq!(version("5.4.0-150-generic"), Some((5, 4)));
        assert!(version("5.4.0").unwrap() < (5, 14));
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_group_is_all_its_processes() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & echo up; wait"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut said).unwrap();
        let pgid = i32::try_from(shell.id()).unwrap();
        let group = Census::default().group(pgid);
        let children = children_of(shell.id());
        let pid = rustix::process::Pid::from_child(&shell);
        rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert_eq!(group.tasks, 3);
        assert!(group.processes.contains(&pgid), "{group:?}");
        assert!(children.as_ref().is_none_or(|pids| pids.len() == 2), "{children:?}");
        assert!(tasks_of_user(rustix::process::getuid().as_raw()) > 0);
    }
}
