//! What a handler's context gives up before the first line of the handler's code: see the table in docs/runners.md, which
//! says for each part where it holds.
//!
//! It is done by the guard process to itself, and everything it starts inherits it.

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
    pub memory_bytes_max: u64,
    pub file_bytes_max: u64,
    /// Processes and threads of the user the context runs as.
    pub user_processes_max: u64,
    /// May be changed.
    pub work: PathBuf,
    /// May be read, beside the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    pub network: bool,
}

/// Returns what holds. For the calling thread and what is started later: call it while there is one thread.
pub fn confine(bounds: &Bounds) -> Vec<String> {
    let mut holds = Vec::new();
    // The server and other people's programs come first; a handler gets what is left.
    let _ = rustix::process::nice(5);
    if limit_resources(bounds).is_ok() {
        holds.push("limits".to_owned());
    }
    #[cfg(target_os = "linux")]
    linux::confine(bounds, &mut holds);
    holds
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

const DEVICES: &[&str] = &["/dev/null", "/dev/full", "/dev/zero"];

fn readable(bounds: &Bounds) -> impl Iterator<Item = &Path> {
    SYSTEM.iter().map(Path::new).chain(bounds.readable.iter().map(PathBuf::as_path))
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Bounds, DEVICES, readable};
    use landlock::{
        ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
        RulesetStatus, Scope, path_beneath_rules,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };
    use std::collections::BTreeMap;

    pub fn confine(bounds: &Bounds, holds: &mut Vec<String>) {
        // If the machine runs out of memory, this is what may go first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        match restrict_files_and_network(bounds) {
            Ok(RulesetStatus::FullyEnforced) => holds.push("landlock".to_owned()),
            Ok(RulesetStatus::PartiallyEnforced) => holds.push("landlock in part".to_owned()),
            Ok(RulesetStatus::NotEnforced) | Err(_) => {}
        }
        let refused = refused_calls(bounds.network).and_then(|rules| apply(rules, libc::EPERM));
        // With its flags in memory, where a filter cannot look: C libraries go on to the older call.
        let hidden = apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS);
        if refused.is_some() && hidden.is_some() {
            holds.push("seccomp".to_owned());
            holds.push(if bounds.network { "internet only" } else { "no network" }.to_owned());
        }
    }

    fn restrict_files_and_network(bounds: &Bounds) -> Result<RulesetStatus, RulesetError> {
        let abi = ABI::V6;
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
            .add_rules(path_beneath_rules([&bounds.work], AccessFs::from_all(abi)))?;
        Ok(rules.restrict_self()?.ruleset)
    }

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// These fail as if there were no right to them; all others go through.
    fn refused_calls(network: bool) -> Option<Rules> {
        let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
        let spaces = NAMESPACES.iter().map(|flag| argument(0, SeccompCmpOp::MaskedEq(*flag), *flag));
        rules.insert(libc::SYS_clone, spaces.map(rule_of).collect::<Option<_>>()?);
        // Also sockets that are names in the file system: what listens on one trusts who can reach it.
        let socket = match network {
            false => Vec::new(),
            true => {
                let neither = [libc::AF_INET, libc::AF_INET6]
                    .map(|family| argument(0, SeccompCmpOp::Ne, u64::try_from(family).unwrap_or(0)));
                vec![SeccompRule::new(neither.into_iter().collect::<Option<_>>()?).ok()?]
            }
        };
        rules.insert(libc::SYS_socket, socket);
        #[cfg(target_arch = "x86_64")]
        also_as_x32(&mut rules);
        Some(rules)
    }

    /// The same calls by their other numbers, where the kernel knows them.
    #[cfg(target_arch = "x86_64")]
    fn also_as_x32(rules: &mut Rules) {
        const X32: i64 = 0x4000_0000;
        /// ptrace, process_vm_readv, process_vm_writev
        const RENUMBERED: [i64; 3] = [521, 539, 540];
        let others: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        rules.extend(others);
        rules.extend(RENUMBERED.map(|call| (call | X32, Vec::new())));
    }

    fn argument(index: u8, compare: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, compare, value).ok()
    }

    fn rule_of(condition: Option<SeccompCondition>) -> Option<SeccompRule> {
        SeccompRule::new(vec![condition?]).ok()
    }

    fn apply(rules: Rules, error: i32) -> Option<()> {
        let arch = std::env::consts::ARCH.try_into().ok()?;
        let refused = SeccompAction::Errno(u32::try_from(error).ok()?);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).ok()?;
        let program: BpfProgram = filter.try_into().ok()?;
        seccompiler::apply_filter(&program).ok()
    }

    /// A new namespace is a new world with rights of its own in it.
    const NAMESPACES: &[u64] = &[
        libc::CLONE_NEWCGROUP as u64,
        libc::CLONE_NEWIPC as u64,
        libc::CLONE_NEWNET as u64,
        libc::CLONE_NEWNS as u64,
        libc::CLONE_NEWPID as u64,
        libc::CLONE_NEWUSER as u64,
        libc::CLONE_NEWUTS as u64,
    ];

    const REFUSED: &[i64] = &[
        // Who leaves the process group is not stopped with it.
        libc::SYS_setpgid,
        libc::SYS_setsid,
        // A second way to files and sockets, past this filter.
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_setup,
        // Other processes.
        libc::SYS_kcmp,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        // What outlives a context, for whoever gets its user next.
        libc::SYS_mq_open,
        libc::SYS_msgget,
        libc::SYS_semget,
        libc::SYS_shmget,
        // The machine.
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_bpf,
        libc::SYS_chroot,
        libc::SYS_delete_module,
        libc::SYS_finit_module,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pivot_root,
        libc::SYS_quotactl,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_setns,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
    ];
}
