//! Memory of a context, measured from outside: resident memory per process, swap, and shared memory.
//!
//! Shared anonymous memory lives as long as any part of it is mapped anywhere, even if its pages are not
//! (`MADV_DONTNEED`, `munmap` of all but one page), and the kernel reports its size nowhere. Therefore the
//! seccomp filter limits the size of each mapping (`calls.rs`), and each mapped one counts with that limit.

use std::collections::HashSet;
use std::io::ErrorKind;

/// Largest shared anonymous mapping that a context can create.
pub(super) const SHARED_BYTES_MAX: u64 = 16 << 20;

/// Process whose maps cannot be read: its executable is unreadable, so only root may inspect its memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hidden(pub i32);

/// Bytes used by the processes; exited ones count as zero. Reads /proc: call it on a blocking thread.
pub(super) fn count(processes: &[i32]) -> Result<u64, Hidden> {
    let mut shared = HashSet::new();
    let mut bytes: u64 = 0;
    for process in processes {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        bytes = bytes.saturating_add(own_bytes(&status));
        match std::fs::read_to_string(format!("/proc/{process}/maps")) {
            Ok(maps) => shared.extend(maps.lines().filter_map(shared_inode)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Hidden(*process)),
            // The process has exited meanwhile.
            Err(_) => {}
        }
    }
    let pieces = u64::try_from(shared.len()).unwrap_or(u64::MAX);
    Ok(bytes.saturating_add(pieces.saturating_mul(SHARED_BYTES_MAX)))
}

/// Resident memory and swap without shared memory, which is counted once for all processes; tmpfs files count
/// as disk.
fn own_bytes(status: &str) -> u64 {
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let resident = field("VmRSS:").unwrap_or(0).saturating_sub(field("RssShmem:").unwrap_or(0));
    (resident + field("VmSwap:").unwrap_or(0)) << 10
}

/// Inode of a shared anonymous mapping in a line of `maps`.
fn shared_inode(line: &str) -> Option<u64> {
    let line = line.strip_suffix(" /dev/zero (deleted)")?;
    line.split_ascii_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_counts_and_shared_memory_counts_once_by_its_number() {
        let status =
            "Name:\tx\nVmRSS:\t   3000 kB\nRssAnon:\t 1000 kB\nRssShmem:\t  500 kB\nVmSwap:\t  20 kB\n";
        assert_eq!(own_bytes(status), 2520 << 10);
        assert_eq!(own_bytes("Name:\tzombie\n"), 0);
        let check = |line: &str, found: Option<u64>| assert_eq!(shared_inode(line), found, "{line}");
        check("7f00-9f00 rw-s 00000000 00:01 1234                       /dev/zero (deleted)", Some(1234));
        check("7f00-9f00 r--s 00000000 00:05 5                          /dev/zero", None);
        check("7f00-9f00 rw-p 00000000 00:00 0", None);
        check("7f00-9f00 rw-s 00000000 fe:00 4711    /tmp/dev/zero (deleted)", None);
    }

    #[test]
    fn a_process_counts_as_long_as_it_is_there() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(count(&[own]).unwrap() > 1 << 20);
        assert_eq!(count(&[i32::MAX]), Ok(0));
    }
}
