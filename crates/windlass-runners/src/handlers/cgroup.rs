//! Control groups (cgroup v2): kernel limits on memory, processes and I/O of a context, for all of its
//! processes together. All memory is counted: shared memory, memfds, kernel memory.
//!
//! ```text
//!   the server's cgroup, delegated to it (systemd: Delegate=yes; or the cgroup of a container)
//!   ├── windlass-server        the server and its own child processes
//!   └── windlass-PID-7         a context: memory.max, memory.swap.max, pids.max, io.weight
//! ```
//!
//! A cgroup that enables controllers for its children may not contain processes, so the server first moves to
//! a child cgroup. If its cgroup contains other processes, or is not delegated, contexts get no cgroups and
//! only the watches in `memory.rs`, `disk.rs` and `census.rs` limit them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Required controllers. `io` is used if available.
const NEEDED: [&str; 2] = ["memory", "pids"];
const SERVER: &str = "windlass-server";
/// Memory and tasks added for the guard process, which runs in the cgroup of its context.
const GUARD_BYTES: u64 = 32 << 20;
const GUARD_TASKS: u64 = 4;
/// I/O weight of a context. The default of a cgroup is 100, so the server has priority.
const IO_WEIGHT: &str = "50";
/// Time for killed processes to exit before `cgroup.kill` is used.
const END_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Parent cgroup of the contexts' cgroups.
#[derive(Debug)]
pub(super) struct Cgroups {
    base: PathBuf,
}

/// Cgroup of the server, read without changing anything.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    folder: PathBuf,
    /// Controllers are already enabled for child cgroups.
    is_prepared: bool,
}

impl Cgroups {
    /// Checks whether contexts can have cgroups on this machine; the error gives the reason.
    pub(super) fn check() -> Result<(), String> {
        find(Path::new("/"), std::process::id()).map(drop)
    }

    /// Moves this process and its children to a child cgroup and enables the controllers.
    pub(super) fn prepare() -> Result<Cgroups, String> {
        prepare(Path::new("/"), std::process::id())
    }

    /// Creates an empty cgroup for a context.
    pub(super) fn make(&self, memory_bytes_max: u64, tasks_max: u64) -> io::Result<Leaf> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = self.base.join(format!("windlass-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let leaf = Leaf { folder };
        let memory = memory_bytes_max.saturating_add(GUARD_BYTES);
        leaf.write("memory.max", &memory.to_string())?;
        leaf.write("pids.max", &tasks_max.saturating_add(GUARD_TASKS).to_string())?;
        // Optional: swap accounting and the io controller are not available everywhere.
        let _ = leaf.write("memory.swap.max", "0");
        let _ = leaf.write("io.weight", IO_WEIGHT);
        Ok(leaf)
    }
}

/// Cgroup of one context.
#[derive(Debug)]
pub(super) struct Leaf {
    folder: PathBuf,
}

impl Leaf {
    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), text)
    }

    /// Moves a process into the cgroup. Call it before the process has children.
    pub(super) fn enter(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// True if the kernel's OOM killer has killed a process of the cgroup.
    pub(super) fn is_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Waits for the processes, which have been killed, and uses `cgroup.kill` on any that remain. Call it on
    /// a blocking thread.
    pub(super) fn remove(self) -> io::Result<()> {
        let began = Instant::now();
        let mut was_killed = false;
        loop {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => return Ok(()),
            }
            if began.elapsed() > END_PATIENCE {
                if std::mem::replace(&mut was_killed, true) && began.elapsed() > 2 * END_PATIENCE {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                // Needs Linux 5.14; older kernels rely on the guard process.
                let _ = self.write("cgroup.kill", "1");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Finds the server's cgroup. Tests pass another `root` than `/`.
fn find(root: &Path, server: u32) -> Result<Own, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let path =
        groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or("not supported by the kernel")?;
    let mounts = read("proc/self/mountinfo");
    let mount = mounts.lines().find_map(mount_point).ok_or("cgroup2 is not mounted")?;
    let mount = root.join(mount.trim_start_matches('/'));
    let mut folder = mount.join(path.trim_start_matches('/'));
    // An earlier start, or a service manager, has put the server into the child cgroup already.
    let is_own = |folder: &Path| folder.file_name().is_some_and(|name| name == SERVER);
    if is_own(&folder)
        && let Some(parent) = folder.parent()
    {
        folder = parent.to_owned();
    }
    let words = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let has_all =
        |text: &str| NEEDED.iter().all(|name| text.split_ascii_whitespace().any(|word| word == *name));
    if !has_all(&words("cgroup.controllers")) {
        return Err("the controllers memory and pids are not available in the server's cgroup".to_owned());
    }
    if !is_writable(&folder) || !(folder == mount || is_delegated(&folder)) {
        return Err("the server's cgroup is not delegated to the server".to_owned());
    }
    let is_prepared = has_all(&words("cgroup.subtree_control"));
    let is_ours = |pid: &u32| *pid == server || parent_of(root, *pid) == Some(server);
    if !is_prepared && must_be_empty(&folder) && !processes(&folder).iter().all(is_ours) {
        return Err("the server's cgroup contains other processes".to_owned());
    }
    Ok(Own { folder, is_prepared })
}

/// False only for the root cgroup, which may contain processes and enable controllers as well.
fn must_be_empty(folder: &Path) -> bool {
    folder.join("cgroup.type").exists()
}

fn processes(folder: &Path) -> Vec<u32> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Mount point in a line of `mountinfo`, if the file system is cgroup2.
fn mount_point(line: &str) -> Option<String> {
    let (about, kind) = line.split_once(" - ")?;
    let is_it = kind.split_ascii_whitespace().next() == Some("cgroup2");
    is_it.then(|| about.split_ascii_whitespace().nth(4).map(str::to_owned)).flatten()
}

fn is_writable(folder: &Path) -> bool {
    let files = ["", "cgroup.procs", "cgroup.subtree_control"].map(|file| folder.join(file));
    files.iter().all(|file| rustix::fs::access(file, rustix::fs::Access::WRITE_OK).is_ok())
}

/// A user other than root can write only to a delegated cgroup; for root, systemd sets an xattr.
fn is_delegated(folder: &Path) -> bool {
    let marked = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(folder, name, &mut value[..])
            .is_ok_and(|length| value[..length].starts_with(b"1"))
    };
    !rustix::process::geteuid().is_root() || marked("trusted.delegate") || marked("user.delegate")
}

fn prepare(root: &Path, server: u32) -> Result<Cgroups, String> {
    let own = find(root, server)?;
    if !own.is_prepared {
        if must_be_empty(&own.folder) {
            move_all(&own.folder)
                .map_err(|error| format!("cannot move the server to a separate cgroup: {error}"))?;
        }
        hand_down(&own.folder).map_err(|error| format!("cannot delegate controllers: {error}"))?;
    }
    // Cgroups left by a killed server.
    for entry in fs::read_dir(&own.folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("windlass-") && name != SERVER {
            // Fails if another server's processes are in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
    Ok(Cgroups { base: own.folder })
}

fn hand_down(folder: &Path) -> io::Result<()> {
    let file = folder.join("cgroup.subtree_control");
    fs::write(&file, "+memory +pids")?;
    let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_ascii_whitespace().any(|word| word == "io") {
        let _ = fs::write(&file, "+io");
    }
    Ok(())
}

/// Moves the server and its child processes.
fn move_all(folder: &Path) -> io::Result<()> {
    let to = folder.join(SERVER);
    match fs::create_dir(&to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for pid in processes(folder) {
        fs::write(to.join("cgroup.procs"), pid.to_string())?;
    }
    Ok(())
}

fn parent_of(root: &Path, pid: u32) -> Option<u32> {
    let status = fs::read_to_string(root.join(format!("proc/{pid}/status"))).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
