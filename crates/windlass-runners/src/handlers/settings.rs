//! Operator's settings for handlers.

use super::isolation::Isolation;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Parent of the contexts' folders. Owned by the runner, which deletes its content at startup.
    pub folder: PathBuf,
    /// Concurrent contexts. An idle one can be replaced by one of another type.
    pub contexts_max: usize,
    /// Contexts per client and `eid` (or job type).
    pub contexts_per_type: usize,
    /// Contexts per client.
    pub contexts_per_client: usize,
    /// Concurrent batches of http handlers.
    pub http_batches_max: usize,
    /// Concurrent batches of http handlers per client.
    pub http_batches_per_client: usize,
    /// Concurrent batches of wasi handlers, each in its own process.
    pub wasi_batches_max: usize,
    /// Idle time after which a context is killed.
    pub idle: Duration,
    /// Time limit per job.
    pub time_limit: Duration,
    /// Time after which a batch starts no further job and returns the rest.
    pub batch_time: Duration,
    /// Memory of all processes of a context together.
    pub memory_bytes_max: u64,
    /// Processes and threads of a context.
    pub processes_max: u32,
    /// Largest file that a handler may write.
    pub file_bytes_max: u64,
    /// Disk usage of a context.
    pub disk_bytes_max: u64,
    /// Jobs before a context is replaced.
    pub recycle_jobs: u32,
    pub result_bytes_max: usize,
    /// Memory for HTTP responses in total, in addition to the largest single one.
    pub answers_bytes_max: usize,
    /// Memory for HTTP responses of one client.
    pub answers_bytes_per_client: usize,
    pub log_bytes_max: usize,
    /// New jobs that a job may push.
    pub new_jobs_max: usize,
    /// Total payload bytes of the new jobs.
    pub new_jobs_bytes_max: usize,
    pub network: Network,
    /// Paths that handlers may read besides the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// The server's own files: hidden from handlers even below readable paths.
    pub hidden: Vec<PathBuf>,
    pub interpreters: Interpreters,
    /// First user id for contexts, if the server is root and can change user ids.
    pub uid_base: Option<u32>,
    /// Puts contexts without a user id of their own into namespaces, where the kernel allows it.
    pub namespaces: bool,
    /// Refuses to run handlers if an isolation mechanism is missing.
    pub strict: bool,
    /// Isolation mechanisms of this machine, if known; otherwise they are tested at startup.
    pub isolation: Option<Isolation>,
    pub helper: HelperProgram,
    /// Guest program for wasi handlers; `None` disables them.
    pub wasi_guest: Option<HelperProgram>,
}

/// Policy for network access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Never,
    /// Only for handlers with `options.network`.
    WhenAsked,
    Always,
}

impl Network {
    pub(crate) fn grants(self, asked: bool) -> bool {
        match self {
            Network::Never => false,
            Network::WhenAsked => asked,
            Network::Always => true,
        }
    }
}

/// Program names, searched in the system's folders, or paths.
#[derive(Clone, Debug)]
pub struct Interpreters {
    pub node: String,
    pub python: String,
    pub php: String,
    pub sh: String,
}

impl Default for Interpreters {
    fn default() -> Self {
        let named = |name: &str| name.to_owned();
        Interpreters { node: named("node"), python: named("python3"), php: named("php"), sh: named("sh") }
    }
}

/// Path and arguments that start this program as a guard process.
#[derive(Clone, Debug)]
pub struct HelperProgram {
    pub path: PathBuf,
    pub args: Vec<String>,
}

impl Settings {
    pub fn new(folder: PathBuf, helper: HelperProgram) -> Settings {
        Settings {
            folder,
            contexts_max: 8,
            contexts_per_type: 2,
            contexts_per_client: 8,
            http_batches_max: 64,
            http_batches_per_client: 64,
            wasi_batches_max: 2,
            idle: Duration::from_secs(60),
            time_limit: Duration::from_secs(120),
            batch_time: Duration::from_secs(60),
            memory_bytes_max: 512 << 20,
            processes_max: 64,
            file_bytes_max: 256 << 20,
            disk_bytes_max: 1 << 30,
            recycle_jobs: 10_000,
            result_bytes_max: 16 << 20,
            answers_bytes_max: 128 << 20,
            answers_bytes_per_client: 128 << 20,
            log_bytes_max: 64 << 10,
            new_jobs_max: 10_000,
            new_jobs_bytes_max: 64 << 20,
            network: Network::Never,
            readable: Vec::new(),
            hidden: Vec::new(),
            interpreters: Interpreters::default(),
            uid_base: is_root().then(own_uids),
            namespaces: cfg!(target_os = "linux"),
            strict: false,
            isolation: None,
            helper,
            wasi_guest: None,
        }
    }
}

/// First of a range of unused user ids. The range differs between servers on a machine, because RLIMIT_NPROC
/// counts all processes of a user id. It is far from the ids of people and services, or at the end of the ids
/// of a container that has only a few.
fn own_uids() -> u32 {
    first_uid() + 1
}

/// User id before that range, for a process that is root and should not be.
#[cfg(target_os = "linux")]
pub(crate) fn own_uid() -> Option<u32> {
    is_root().then(first_uid)
}

fn first_uid() -> u32 {
    let pid = std::process::id();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let lines =
        map.lines().map(|line| line.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok()));
    let ends = lines.filter_map(|mut numbers| Some(numbers.next()? + numbers.nth(1)?));
    match ends.max() {
        Some(end) if end > u64::from(u32::MAX / 2) => 1_000_000_000 + (pid % 4_000_000) * 256,
        _ => 58_000 + (pid % 100) * 64,
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
