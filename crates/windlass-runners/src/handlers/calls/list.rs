//! System call lists of the seccomp filters. Numbers from 424 on are the same on all architectures; calls
//! without a constant in the `libc` crate are given as numbers.

/// Calls for every context: needed by the C library, a shell and the basic system programs.
pub(super) const BASE: &[i64] = &[
    // File descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_sendfile,
    libc::SYS_write,
    libc::SYS_writev,
    // Paths.
    libc::SYS_chdir,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchdir,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_getcwd,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_readlinkat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    // Memory. `memfd_create` is missing on purpose: memory.rs could not account for its pages.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
    // Processes and threads.
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    FUTEX_REQUEUE,
    FUTEX_WAIT,
    FUTEX_WAKE,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals.
    libc::SYS_kill,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    // Time and random numbers.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    // Waiting.
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Existing sockets.
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Calls of one architecture only: legacy calls with newer replacements.
#[cfg(target_arch = "x86_64")]
pub(super) const BASE_OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_vfork,
];

#[cfg(target_arch = "aarch64")]
pub const BASE_OLD: &[i64] = &[libc::SYS_getrlimit, libc::SYS_renameat, libc::SYS_setrlimit];

/// Also riscv_hwprobe (258) and riscv_flush_icache (259).
#[cfg(target_arch = "riscv64")]
pub const BASE_OLD: &[i64] = &[libc::SYS_getrlimit, libc::SYS_setrlimit, 258, 259];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub const BASE_OLD: &[i64] = &[];

/// Event loops: epoll.
pub(super) const EPOLL: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// Vectored I/O at a file offset.
pub(super) const VECTORS: &[i64] =
    &[libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_pwritev, libc::SYS_pwritev2];

/// Process descriptors (pidfd).
pub(super) const PIDFD: &[i64] = &[libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal];

/// Timers as file descriptors.
pub(super) const TIMERFD: &[i64] =
    &[libc::SYS_timerfd_create, libc::SYS_timerfd_gettime, libc::SYS_timerfd_settime];

/// Splice between file and pipe. `tee` and `vmsplice` are missing: they keep memory in pipes, which is not
/// accounted for.
pub(super) const SPLICE: &[i64] = &[libc::SYS_splice];

/// CPU affinity and scheduling class of the caller.
pub(super) const SCHEDULING: &[i64] = &[
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// File change notification.
pub(super) const INOTIFY: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
];

/// Memory protection keys and sealing, used by JIT compilers.
pub(super) const PROTECTION: &[i64] =
    &[libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, MSEAL];

/// Query of the process's capabilities.
pub(super) const RIGHTS: &[i64] = &[libc::SYS_capget];

/// Calls of other programs that shell scripts start.
pub(super) const PROGRAMS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_signalfd,
    libc::SYS_execveat,
    libc::SYS_get_mempolicy,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_readahead,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_signalfd4,
    libc::SYS_sync_file_range,
    // Only changes to the current ids succeed; the kernel refuses others.
    libc::SYS_setgid,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
];

const FCHMODAT2: i64 = 452;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;
const MSEAL: i64 = 462;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Calls that change file metadata. The kernel checks only the owner, so in a context with the server's user
/// id they would reach the server's own files.
pub(super) const ATTRIBUTES: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

/// Calls whose first argument is a process id, which must be 0 (the caller).
pub(super) const ON_ITSELF: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Calls that send signals; `tgkill` has a rule of its own.
pub(super) const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_tkill,
];

/// Socket calls that create and connect sockets, or can pass file descriptors (SCM_RIGHTS): files of
/// descriptors in flight are not counted.
pub(super) const SOCKETS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Flags of `clone` that create namespaces: a process has all capabilities in a new user namespace.
pub(super) const NAMESPACES: &[u64] = &[
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWNET as u64,
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWUTS as u64,
];

/// Call, index of the argument, forbidden values.
pub(super) const FORBIDDEN_ARGUMENTS: &[(i64, u8, &[u64])] = &[
    // Signals to any process on file events: F_SETOWN, F_SETSIG, F_SETOWN_EX.
    (libc::SYS_fcntl, 1, &[8, 10, 15]),
    // The same (FIOSETOWN, SIOCSPGRP), input to a terminal (TIOCSTI), file flags (FS_IOC_SETFLAGS,
    // FS_IOC_FSSETXATTR).
    (libc::SYS_ioctl, 1, &[0x8901, 0x8902, 0x5412, 0x4008_6602, 0x401c_5820]),
    // PR_SET_DUMPABLE would hide the process's files from the server's count. PR_SCHED_CORE affects other
    // processes.
    (libc::SYS_prctl, 0, &[4, 62]),
];

pub(super) const REFUSED: &[i64] = &[
    // A process that leaves the process group is not frozen or killed with it.
    libc::SYS_setpgid,
    libc::SYS_setsid,
    // io_uring reaches files and sockets without passing this filter.
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
    // IPC objects outlive the context and would be visible to the next context with its user id.
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
    // System administration.
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
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setgroups,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];
