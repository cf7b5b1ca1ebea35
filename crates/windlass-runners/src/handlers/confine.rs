//! What a handler's context gives up before the first line of the handler's code: see the table in docs/runners.md, which
//! says for each part where it holds.
//!
//! It is done by the guard process to itself, and everything it starts inherits it.

use super::handler::Lang;
use super::trees;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Open files of one process.
const FILES: u64 = 256;
/// Address space that one process may write to, beside the memory it is allowed: stacks of threads that are never used,
/// and what allocators reserve. A last fence; the memory of the whole context is watched from outside.
const DATA_EXTRA_BYTES: u64 = 512 << 20;

/// What is asked of the guard: limits, and what may be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// The language of its handlers, which decides about the system calls it may make.
    pub lang: Lang,
    pub memory_bytes_max: u64,
    pub file_bytes_max: u64,
    /// Processes and threads of the user the context runs as.
    pub user_processes_max: u64,
    /// May be changed.
    pub work: PathBuf,
    /// May be read: what the server has for it.
    pub orders: PathBuf,
    /// May be read, beside the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// The server's own files, which are not read wherever they are.
    pub hidden: Vec<PathBuf>,
    pub network: bool,
    /// It becomes this user and the group of the same number.
    pub uid: Option<u32>,
    /// It is in namespaces of its own, with names of their own for all that is here.
    pub is_apart: bool,
}

/// Returns what holds; if it cannot become the user it should, nothing may be run. For the calling thread and what is started
/// later: call it while there is one thread.
pub fn confine(bounds: &Bounds) -> Result<Vec<String>, String> {
    let mut holds = Vec::new();
    // The server and other people's programs come first; a handler gets what is left.
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

/// Where programs and libraries are, and the few things about the machine that interpreters ask for. Nothing of it is
/// anybody's secret: of /etc only what libraries read at their start.
pub const SYSTEM: &[&str] = &[
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

/// May be written to. Not `/dev/zero`: mapped for writing it is shared memory of any size.
pub const DEVICES: &[&str] = &["/dev/null", "/dev/full"];

fn readable(bounds: &Bounds) -> Vec<PathBuf> {
    let hidden = trees::resolve(&bounds.hidden);
    let trees = SYSTEM.iter().map(Path::new).chain(bounds.readable.iter().map(PathBuf::as_path));
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

    /// From this one on signals stay inside.
    const SCOPED: ABI = ABI::V6;

    pub fn confine(bounds: &Bounds, holds: &mut Vec<String>) -> Result<(), String> {
        // If the machine runs out of memory, this is what may go first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let landlock = restrict_files_and_network(bounds).ok();
        match landlock.as_ref().map(|status| &status.ruleset) {
            Some(RulesetStatus::FullyEnforced) => holds.push("landlock".to_owned()),
            Some(RulesetStatus::PartiallyEnforced) => holds.push("landlock in part".to_owned()),
            Some(RulesetStatus::NotEnforced) | None => {}
        }
        if let Some(uid) = bounds.uid {
            become_user(uid).map_err(|error| format!("cannot become the user {uid}: {error}"))?;
            holds.push("a user of its own".to_owned());
        }
        // The guard does not end before its interpreter, unless somebody ends it.
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

    /// Of the one thread there is.
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
        // Everything but devices: one made by root would be the disk itself.
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
