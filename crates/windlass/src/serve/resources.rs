//! Memory and file descriptors available to this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};

/// Descriptor limit to request: enough for all connections and files. Not higher, since child processes
/// inherit it, and some programs iterate over all descriptors.
const DESCRIPTORS: u64 = 65_536;
/// Descriptors reserved for files, pipes to handlers, and outgoing connections.
const DESCRIPTORS_OWN: u64 = 256;

/// Raises the soft limit as far as possible and returns it. `None`: unlimited.
pub(crate) fn raise_descriptors() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// Connections per port, for two ports, so that descriptors for files remain.
pub(crate) fn connections(asked: usize, descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else { return asked };
    let room = descriptors.saturating_sub(DESCRIPTORS_OWN).max(descriptors / 2) / 2;
    asked.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
}

/// Memory for incoming requests: half of the memory available to the process.
pub(super) fn memory_for_requests(asked: Option<u64>) -> u64 {
    asked.or_else(|| memory_of("self").map(|bytes| bytes / 2)).unwrap_or(u64::MAX)
}

/// Memory available to a process, given by its id or as `self`.
pub(crate) fn memory_of(process: &str) -> Option<u64> {
    memory(Path::new("/"), process)
}

/// Smallest of the limits of the process's cgroups (v1 and v2) and the machine's memory. `root` is `/`
/// except in tests.
fn memory(root: &Path, process: &str) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc").join(process).join("cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => smallest(
                &[root.join("sys/fs/cgroup"), root.join("sys/fs/cgroup/unified")],
                path,
                "memory.max",
            ),
            "memory" => smallest(&[root.join("sys/fs/cgroup/memory")], path, "memory.limit_in_bytes"),
            _ => None,
        }
    });
    of_groups.chain(machine(root)).min()
}

/// Smallest limit along the cgroup path. In a container the path may not exist; then the mounted root is the
/// container's cgroup.
fn smallest(mounts: &[PathBuf], path: &str, file: &str) -> Option<u64> {
    let path = Path::new(path.trim_start_matches('/'));
    let limits =
        mounts.iter().flat_map(|mount| path.ancestors().map(move |group| mount.join(group).join(file)));
    limits.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

fn machine(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_of(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        memory(root.path(), "self")
    }

    #[test]
    fn the_smallest_limit_counts() {
        let machine = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:        1000 kB\n");
        assert_eq!(memory_of(&[]), None);
        assert_eq!(memory_of(&[machine]), Some(1000 << 10));
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(memory_of(&[machine, v2, ("sys/fs/cgroup/a/b/memory.max", "max\n")]), Some(1000 << 10));
        assert_eq!(memory_of(&[machine, v2, ("sys/fs/cgroup/a/memory.max", "5000\n")]), Some(5000));
        assert_eq!(memory_of(&[machine, v2, ("sys/fs/cgroup/memory.max", "6000\n")]), Some(6000));
        let v1 = ("proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n");
        let own = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_of(&[machine, v1, own, unlimited]), Some(7000));
        assert_eq!(memory_of(&[machine, v1, unlimited]), Some(1000 << 10));
    }

    #[test]
    fn connections_leave_descriptors_for_files() {
        for (asked, descriptors, expected) in [
            (10_000, None, 10_000),
            (10_000, Some(65_536), 10_000),
            (10_000, Some(1_024), 384),
            (10, Some(1_024), 10),
        ] {
            assert_eq!(connections(asked, descriptors), expected);
        }
        assert_eq!(connections(10_000, Some(64)), 16);
    }
}
