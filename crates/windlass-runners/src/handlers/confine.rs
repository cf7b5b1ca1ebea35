//! Confinement of a context before it runs handler code; the table in docs/runners.md lists each mechanism
//! and where it is available.
//!
//! The guard process applies it to itself, and its descendants inherit it.

use super::handler::Lang;
#[cfg(target_os = "linux")]
use super::trees;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// RLIMIT_NOFILE of a process.
const FILES: u64 = 256;
/// RLIMIT_DATA of a process beyond the allowed memory: unused thread stacks and reservations of allocators.
/// Only a backstop; the memory of the whole context is measured from outside.
const DATA_EXTRA_BYTES: u64 = 512 << 20;

/// Limits and permitted paths, sent to the guard process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Language of the handlers; selects the seccomp filter.
    pub lang: Lang,
    pub memory_bytes_max: u64,
    pub file_bytes_max: u64,
    /// RLIMIT_NPROC: processes and threads of the context's user.
    pub user_processes_max: u64,
    /// Writable folder.
    pub work: PathBuf,
    /// Read-only folder with the files that the server provides.
    pub orders: PathBuf,
    /// Read-only paths besides the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// The server's own files; unreadable even below a readable path.
    pub hidden: Vec<PathBuf>,
    pub network: bool,
    /// User id, and group id of the same number, to switch to.
    pub uid: Option<u32>,
    /// The context runs in its own namespaces with its own view of the file system.
    pub is_apart: bool,
}

/// Confines the calling thread and its descendants, and returns the mechanisms in force. On an error (the
/// user id cannot be changed) no code may be run. Call it while the process has a single thread.
pub(super) fn confine(bounds: &Bounds) -> Result<Vec<String>, String> {
    let mut holds = Vec::new();
    // The server and other programs get CPU time first.
    let _ = rustix::process::nice(5);
    if limit_resources(bounds).is_ok() {
        holds.push("limits".to_owned());
    }
    #[cfg(target_os = "linux")]
    linux::confine(bounds, &mut holds)?;
    Ok(holds)
}

fn set(resource: Resource, value: u64) -> rustix::io::Result<()> {
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

fn limit_resources(bounds: &Bounds) -> rustix::io::Result<()> {
    set(Resource::Core, 0)?;
    set(Resource::Nofile, FILES)?;
    set(Resource::Fsize, bounds.file_bytes_max)?;
    set(Resource::Nproc, bounds.user_processes_max)?;
    set(Resource::Data, bounds.memory_bytes_max.saturating_add(DATA_EXTRA_BYTES))
}

/// Paths of programs and libraries, and the system files that interpreters read. None contains secrets: of
/// /etc only the files that libraries read at startup.
#[cfg(target_os = "linux")]
pub(super) const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/opt",
    "/sbin",
    "/usr",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/php",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
];

/// Writable devices. `/dev/zero` is missing: mapped shared, it is shared memory of any size.
#[cfg(target_os = "linux")]
pub(super) const DEVICES: &[&str] = &["/dev/null", "/dev/full"];

#[cfg(target_os = "linux")]
fn readable(bounds: &Bounds) -> Vec<PathBuf> {
    let hidden = trees::resolve(&bounds.hidden);
    let trees = SYSTEM.iter().map(std::path::Path::new).chain(bounds.readable.iter().map(PathBuf::as_path));
    let parts = trees.flat_map(|tree| trees::without(tree, &hidden));
    parts.chain([bounds.orders.clone()]).collect()
}

#[cfg(target_os = "linux")]
mod linux {
    use super::super::calls::{Fence, filter};
    use super::{Bounds, DEVICES, readable};
    use landlock::{
        ABI, Access, AccessFs, AccessNet, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };
    use rustix::process::{Gid, Signal, Uid};

    /// First Landlock ABI that keeps signals inside the sandbox.
    const SCOPED: ABI = ABI::V6;

    pub(super) fn confine(bounds: &Bounds, holds: &mut Vec<String>) -> Result<(), String> {
        // Makes the context the first victim of the system's OOM killer.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let landlock = restrict_files_and_network(bounds).ok();
        match landlock.as_ref().map(|status| &status.ruleset) {
            Some(RulesetStatus::FullyEnforced) => holds.push("landlock".to_owned()),
            Some(RulesetStatus::PartiallyEnforced) => holds.push("partial landlock".to_owned()),
            Some(RulesetStatus::NotEnforced) | None => {}
        }
        if let Some(uid) = bounds.uid {
            become_user(uid).map_err(|error| format!("cannot change to user {uid}: {error}"))?;
            holds.push("separate user".to_owned());
        }
        // The interpreter must not outlive the guard, which exits first only if it is killed.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if bounds.is_apart {
            holds.push("namespaces".to_owned());
        }
        let own = bounds.uid.is_some() || bounds.is_apart;
        let fence = Fence {
            lang: bounds.lang,
            network: bounds.network,
            owns_files: own,
            keeps_signals: own || landlock.is_some_and(|status| is_scoped(&status)),
        };
        if filter(fence).is_some() {
            holds.push("seccomp".to_owned());
            holds.push(if bounds.network { "internet only" } else { "no network" }.to_owned());
        }
        Ok(())
    }

    /// Changes the ids of the calling thread, which is the only one.
    fn become_user(number: u32) -> rustix::io::Result<()> {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_gid(Gid::from_raw(number))?;
        rustix::thread::set_thread_uid(Uid::from_raw(number))
    }

    fn is_scoped(status: &RestrictionStatus) -> bool {
        matches!(status.landlock, LandlockStatus::Available { effective_abi, .. } if effective_abi >= SCOPED)
    }

    fn restrict_files_and_network(bounds: &Bounds) -> Result<RestrictionStatus, RulesetError> {
        let abi = SCOPED;
        // All rights except creating device nodes: root could create one for the disk.
        let own = AccessFs::from_all(abi) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(abi))?;
        if !bounds.network {
            rules = rules.handle_access(AccessNet::from_all(abi))?;
        }
        let device = AccessFs::ReadFile | AccessFs::WriteFile;
        let rules = rules
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(readable(bounds), AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(DEVICES, device))?
            .add_rules(path_beneath_rules([&bounds.work], own))?;
        rules.restrict_self()
    }
}
