//! Confinement of processes that run foreign code without files or network: WASI guests and SQL statements.
//! The WebAssembly sandbox and SQLite are the first line of defence; this is the second.
//!
//! Mechanisms: resource limits on every Unix. On Linux also the parent death signal, no core dumps or
//! tracing; by landlock (kernel 5.13, more rights with later ones) no files, no TCP and no signals to other
//! processes; by seccomp (x86-64, ARM64, 64-bit RISC-V) only the system calls needed for computing.

use rustix::process::{Resource, Rlimit, setrlimit};

#[cfg(all(test, feature = "wasi"))]
mod tests;

/// RLIMIT_NOFILE: stdin, stdout and stderr.
const FILES: u64 = 3;

/// Applies the mechanisms that must precede the first thread, as some bind only threads started later.
/// `data_bytes` limits writable memory (`RLIMIT_DATA`).
pub fn begin(data_bytes: u64) -> Vec<String> {
    let mut holds = Vec::new();
    if limit_resources(data_bytes).is_ok() {
        holds.push("limits".to_owned());
    }
    #[cfg(target_os = "linux")]
    linux::begin(&mut holds);
    holds
}

/// Applies the rest once all threads run: from here on the process only computes, reads orders and writes
/// replies.
pub fn finish(holds: &mut Vec<String>) {
    #[cfg(target_os = "linux")]
    linux::finish(holds);
    // Last: threads count towards RLIMIT_NPROC, and landlock needs a descriptor.
    if set(Resource::Nproc, 0).and_then(|()| set(Resource::Nofile, FILES)).is_ok() {
        holds.push("no new processes or files".to_owned());
    }
}

/// Missing mechanisms, as texts for the operator; `holds` is the list that the process reported at startup.
pub fn missing(holds: &[String]) -> Vec<&'static str> {
    let mut wanted = vec![
        ("limits", "resource limits (setrlimit)"),
        ("landlock", "full landlock (Linux 6.12)"),
        ("seccomp", "seccomp"),
        ("no new processes or files", "limits on processes and files"),
    ];
    if rustix::process::geteuid().is_root() {
        wanted.push(("separate user", "a separate user"));
    }
    wanted.retain(|(part, _)| !holds.iter().any(|held| held == part));
    wanted.into_iter().map(|(_, words)| words).collect()
}

fn set(resource: Resource, value: u64) -> rustix::io::Result<()> {
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

fn limit_resources(data_bytes: u64) -> rustix::io::Result<()> {
    set(Resource::Core, 0)?;
    set(Resource::Fsize, 0)?;
    set(Resource::Data, data_bytes)
}

/// Writable memory of this process as counted by `RLIMIT_DATA`. `None` if the system does not report it.
pub fn data_bytes_now() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(target_os = "linux")]
mod linux {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
    };
    use rustix::process::{DumpableBehavior, Gid, Signal, Uid};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };
    use std::collections::BTreeMap;

    pub(super) fn begin(holds: &mut Vec<String>) {
        // First: a change of user id resets the parent death signal and the dumpable flag.
        if let Some(uid) = crate::handlers::own_uid()
            && become_user(uid).is_ok()
        {
            holds.push("separate user".to_owned());
        }
        // Ends the guest if its runner is killed.
        if rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok() {
            holds.push("killed with its parent".to_owned());
        }
        if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok() {
            holds.push("not dumpable".to_owned());
        }
        match forbid_files_and_network() {
            Ok(RulesetStatus::FullyEnforced) => holds.push("landlock".to_owned()),
            Ok(RulesetStatus::PartiallyEnforced) => holds.push("partial landlock".to_owned()),
            Ok(RulesetStatus::NotEnforced) | Err(_) => {}
        }
    }

    /// Changes the ids of the calling thread, which is the only one.
    fn become_user(number: u32) -> rustix::io::Result<()> {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_gid(Gid::from_raw(number))?;
        rustix::thread::set_thread_uid(Uid::from_raw(number))
    }

    pub(super) fn finish(holds: &mut Vec<String>) {
        let applied = filter()
            .ok_or(())
            .and_then(|program| seccompiler::apply_filter_all_threads(&program).map_err(drop));
        if applied.is_ok() {
            holds.push("seccomp".to_owned());
        }
    }

    /// Landlock ruleset without rules: all handled accesses are forbidden.
    fn forbid_files_and_network() -> Result<RulesetStatus, RulesetError> {
        let rules = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V6))?
            .handle_access(AccessNet::from_all(ABI::V6))?
            .scope(Scope::from_all(ABI::V6))?
            .create()?;
        Ok(rules.restrict_self()?.ruleset)
    }

    /// Seccomp filter that returns EPERM for all calls not listed.
    fn filter() -> Option<BpfProgram> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            COMPUTING.iter().map(|call| (*call, Vec::new())).collect();
        rules.insert(libc::SYS_read, vec![on_file(0)?]);
        rules.insert(libc::SYS_write, vec![on_file(1)?, on_file(2)?]);
        let arch = std::env::consts::ARCH.try_into().ok()?;
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).ok()?;
        filter.try_into().ok()
    }

    fn on_file(number: u64) -> Option<SeccompRule> {
        let is_it = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number).ok()?;
        SeccompRule::new(vec![is_it]).ok()
    }

    /// Calls for memory, time, random numbers, existing threads, own signals (traps are signals), and exit.
    const COMPUTING: &[i64] = &[
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_membarrier,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_getrandom,
        libc::SYS_futex,
        libc::SYS_rseq,
        libc::SYS_sched_yield,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_tgkill,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
        // Needed by the limits that `super::finish` sets last.
        libc::SYS_prlimit64,
    ];
}
