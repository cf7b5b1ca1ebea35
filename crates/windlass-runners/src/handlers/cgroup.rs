//! Control groups (version 2): the kernel's own bounds on memory, processes and I/O of a context, all of its processes together.
//! Memory is counted whatever it is: shared, in files without a name, in the kernel.
//!
//! ```text
//!   the server's group, delegated to it (systemd: Delegate=yes; a container's own group)
//!   ├── windlass-server        the server and the processes it starts for itself
//!   └── windlass-PID-7         a context: memory.max, memory.swap.max, pids.max, io.weight
//! ```
//!
//! A group whose controllers are handed down may hold no processes itself, so the server moves to a group of its own first. Where
//! others are in the same group, or nothing is delegated, there are no groups for contexts, and the watches are all there is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What contexts need. `io` is used where it is to be had.
const NEEDED: [&str; 2] = ["memory", "pids"];
const SERVER: &str = "windlass-server";
/// Memory and processes of the guard, which is in the group of its context.
const GUARD_BYTES: u64 = 32 << 20;
const GUARD_TASKS: u64 = 4;
/// Share of the disk's time, of which a group has 100 by default: the server goes first.
const IO_WEIGHT: &str = "50";
/// For processes that were told to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// The group in which contexts get groups of their own.
#[derive(Debug)]
pub struct Cgroups {
    base: PathBuf,
}

/// The server's group as the kernel shows it; nothing is changed to find it out.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    folder: PathBuf,
    /// Controllers are handed down already.
    is_prepared: bool,
}

impl Cgroups {
    /// Whether contexts would get groups here; if not, why.
    pub fn check() -> Result<(), String> {
        find(Path::new("/"), std::process::id()).map(drop)
    }

    /// Moves this process and its children out of the way, and hands the controllers down.
    pub fn prepare() -> Result<Cgroups, String> {
        prepare(Path::new("/"), std::process::id())
    }

    /// A group for a context; empty until somebody is put in.
    pub fn make(&self, memory_bytes_max: u64, tasks_max: u64) -> io::Result<Leaf> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = self.base.join(format!("windlass-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        let leaf = Leaf { folder };
        let memory = memory_bytes_max.saturating_add(GUARD_BYTES);
        leaf.write("memory.max", &memory.to_string())?;
        leaf.write("pids.max", &tasks_max.saturating_add(GUARD_TASKS).to_string())?;
        // Not to be had everywhere: swap, I/O.
        let _ = leaf.write("memory.swap.max", "0");
        let _ = leaf.write("io.weight", IO_WEIGHT);
        Ok(leaf)
    }
}

/// The group of one context.
#[derive(Debug)]
pub struct Leaf {
    folder: PathBuf,
}

impl Leaf {
    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), text)
    }

    /// Puts a process in, which has not started anything yet.
    pub fn enter(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Whether the kernel has ended a process for want of memory.
    pub fn is_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Waits for its processes, which were told to end, and ends those that do not. Takes its time: not for a thread others wait
    /// for.
    pub fn remove(self) -> io::Result<()> {
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
                // Linux 5.14; without it the guard has to do.
                let _ = self.write("cgroup.kill", "1");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// In the tree of files below `root`, which is the machine's.
fn find(root: &Path, server: u32) -> Result<Own, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let path = groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or("the kernel has none")?;
    let mounts = read("proc/self/mountinfo");
    let mount = mounts.lines().find_map(mount_point).ok_or("cgroup2 is not mounted")?;
    let mount = root.join(mount.trim_start_matches('/'));
    let mut folder = mount.join(path.trim_start_matches('/'));
    // A server that was here before has moved; so has one whose manager made a group for it in the delegated one.
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
        return Err("memory and pids are not among the controllers of the server's group".to_owned());
    }
    if !is_writable(&folder) || !(folder == mount || is_delegated(&folder)) {
        return Err("the server's group is not delegated to it".to_owned());
    }
    let is_prepared = has_all(&words("cgroup.subtree_control"));
    let is_ours = |pid: &u32| *pid == server || parent_of(root, *pid) == Some(server);
    if !is_prepared && must_be_empty(&folder) && !processes(&folder).iter().all(is_ours) {
        return Err("other processes than the server's are in its group".to_owned());
    }
    Ok(Own { folder, is_prepared })
}

/// The group of the whole machine alone may hold processes and hand down its controllers.
fn must_be_empty(folder: &Path) -> bool {
    folder.join("cgroup.type").exists()
}

fn processes(folder: &Path) -> Vec<u32> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The mount point in a line of `mountinfo`, if it is of control groups.
fn mount_point(line: &str) -> Option<String> {
    let (about, kind) = line.split_once(" - ")?;
    let is_it = kind.split_ascii_whitespace().next() == Some("cgroup2");
    is_it.then(|| about.split_ascii_whitespace().nth(4).map(str::to_owned)).flatten()
}

fn is_writable(folder: &Path) -> bool {
    let files = ["", "cgroup.procs", "cgroup.subtree_control"].map(|file| folder.join(file));
    files.iter().all(|file| rustix::fs::access(file, rustix::fs::Access::WRITE_OK).is_ok())
}

/// Who is not root can write to a group only if it is; for root systemd leaves a mark.
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
                .map_err(|error| format!("moving the server to a group of its own: {error}"))?;
        }
        hand_down(&own.folder).map_err(|error| format!("handing controllers down: {error}"))?;
    }
    // What a killed server left.
    for entry in fs::read_dir(&own.folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("windlass-") && name != SERVER {
            // If there are processes in it, it is another server's.
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

/// The server and the processes it has started.
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
