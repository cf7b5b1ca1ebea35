//! What the operator decides about handlers.

use super::isolation::Isolation;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Contexts have their folders in it. It belongs to the runners: what is there when they start is removed.
    pub folder: PathBuf,
    /// Processes at once. An idle one makes room for another type's.
    pub contexts_max: usize,
    /// Of these, for one client and eid (or jobtype).
    pub contexts_per_type: usize,
    /// Of all contexts, for one client.
    pub contexts_per_client: usize,
    /// Batches of http handlers at once.
    pub http_batches_max: usize,
    /// Of these, for one client.
    pub http_batches_per_client: usize,
    /// Batches of wasi handlers at once, each in a process of its own.
    pub wasi_batches_max: usize,
    /// After so long without a batch a context is ended.
    pub idle: Duration,
    /// For one job.
    pub time_limit: Duration,
    /// After so long a batch begins no further job: the rest of it is given back.
    pub batch_time: Duration,
    /// Of all processes of one context together.
    pub memory_bytes_max: u64,
    /// Processes and threads of one context.
    pub processes_max: u32,
    /// The largest file a handler may write.
    pub file_bytes_max: u64,
    /// Disk that one context may fill.
    pub disk_bytes_max: u64,
    /// Jobs before a context is replaced.
    pub recycle_jobs: u32,
    pub result_bytes_max: usize,
    /// Memory for answers of URLs at once, beside that for the largest single one.
    pub answers_bytes_max: usize,
    pub log_bytes_max: usize,
    /// New jobs that one job may print.
    pub new_jobs_max: usize,
    /// And all their payloads together.
    pub new_jobs_bytes_max: usize,
    pub network: Network,
    /// What handlers may read beside the system's programs and libraries.
    pub readable: Vec<PathBuf>,
    /// The server's own files: not to be read by handlers, also where they are among what they may read.
    pub hidden: Vec<PathBuf>,
    pub interpreters: Interpreters,
    /// Where the server may change its user (it is root): contexts get users of their own, from this number on.
    pub uid_base: Option<u32>,
    /// Contexts without a user of their own get namespaces of their own where the kernel allows it.
    pub namespaces: bool,
    /// No handler is run where something of what should hold it is missing.
    pub strict: bool,
    /// What holds contexts here, if it is known; else it is found out.
    pub isolation: Option<Isolation>,
    pub helper: HelperProgram,
    /// The guest process for wasi handlers; without one there are none.
    pub wasi_guest: Option<HelperProgram>,
}

/// Who gets a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Never,
    /// Handlers with `options.network`.
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

/// Names that are looked up in the system's folders for programs, or paths.
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

/// How to start this very program as the process around a context.
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
            log_bytes_max: 64 << 10,
            new_jobs_max: 10_000,
            new_jobs_bytes_max: 64 << 20,
            network: Network::Never,
            readable: Vec::new(),
            hidden: Vec::new(),
            interpreters: Interpreters::default(),
            uid_base: is_root().then(own_uids),
            namespaces: true,
            strict: false,
            isolation: None,
            helper,
            wasi_guest: None,
        }
    }
}

/// The first of some users that are nobody else's: other servers on this machine have others, because a limit on
/// processes counts all that a user has. Far from the numbers that people and services get; where only those of a
/// container are to be had, at the end of them.
fn own_uids() -> u32 {
    first_uid() + 1
}

/// The one before them, of a process that is root and should not be.
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
