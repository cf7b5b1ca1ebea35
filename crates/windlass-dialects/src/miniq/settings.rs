//! Configuration keys of this dialect and the settings of its jobs. The binary reads the settings of
//! handlers.

use super::log::LogSettings;
use crate::settings::{Key, SECONDS, ValueKind, Values, whole};
use std::path::{Path, PathBuf};

pub(super) const KEYS: &[Key] = &[
    Key::new("miniq.lock_s", SECONDS, "300", "duration of the lock on a running job"),
    Key::new("miniq.retry_delay_s", SECONDS, "300", "delay between two attempts of a job"),
    Key::new("miniq.give_up_after_s", SECONDS, "21600", "time after which a job is not retried"),
    Key::new("miniq.archive_keep_s", SECONDS, "1209600", "how long finished jobs are kept in the archive"),
    Key::new("miniq.run", ValueKind::Switch, "true", "run the handlers of clients on this server"),
    Key::new("miniq.contexts", whole(1, 1_024), "8", "maximum number of handler processes"),
    Key::new(
        "miniq.contexts_per_type",
        whole(1, 1_024),
        "2",
        "maximum number of handler processes for one client and eid or job type",
    ),
    Key::new(
        "miniq.http_batches",
        whole(1, 10_000),
        "64",
        "maximum number of concurrent batches of http handlers",
    ),
    Key::new(
        "miniq.time_limit_s",
        whole(1, 100 * 366 * 86_400),
        "120",
        "time limit of a handler for one job",
    ),
    Key::new(
        "miniq.memory_bytes_max",
        whole(16 << 20, 1 << 40),
        "536870912",
        "memory limit of a handler process and its child processes",
    ),
    Key::new(
        "miniq.disk_bytes_max",
        whole(1 << 20, 1 << 50),
        "1073741824",
        "disk space limit of a handler process",
    ),
    Key::new(
        "miniq.network",
        ValueKind::Choice(&["never", "asked", "always"]),
        "never",
        "handlers with network access: none (never), those with options.network (asked), or all \
         (always)",
    ),
    Key::new(
        "miniq.handler_addresses",
        ValueKind::List,
        "",
        "addresses that http handlers may have: loopback, private, any, IP addresses, CIDR blocks; \
         default as for jq.worker_addresses",
    ),
    Key::new(
        "miniq.handler_ca",
        ValueKind::Text,
        "",
        "PEM file with trusted CA certificates for https handlers; default: those of the system",
    ),
    Key::new(
        "miniq.readable",
        ValueKind::List,
        "",
        "folders that handlers may read, besides the programs and libraries of the system",
    ),
    Key::new(
        "miniq.uid_base",
        whole(0, 4_000_000_000),
        "1",
        "only if the server runs as root: first user id for handler processes, each of which gets \
         its own; 1: choose unused ids; 0: no separate users (with user namespaces, if the kernel \
         allows them)",
    ),
    Key::new(
        "miniq.log_file",
        ValueKind::Text,
        "",
        "job log, with a line for each job that is added, started and ended; default: jobs.log in \
         the data folder; off: none",
    ),
    Key::new(
        "miniq.log_bytes_max",
        whole(1 << 10, 1 << 40),
        "67108864",
        "size at which the job log is rotated",
    ),
    Key::new("miniq.log_files_kept", whole(0, 1_000), "4", "number of rotated job logs that are kept"),
];

#[derive(Clone, Debug)]
pub struct Settings {
    /// Lease of a running job; renewed while it runs.
    pub lock_ms: i64,
    pub retry_delay_ms: i64,
    /// No attempt starts later than this after the job has reached the store.
    pub give_up_after_ms: i64,
    pub archive_keep_ms: i64,
    pub log: Option<LogSettings>,
    /// Host name of this machine, part of its sysids.
    pub host: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lock_ms: 300_000,
            retry_delay_ms: 300_000,
            give_up_after_ms: 6 * 3_600_000,
            archive_keep_ms: 14 * 86_400_000,
            log: None,
            host: String::new(),
        }
    }
}

impl Settings {
    pub fn from_values(values: &Values) -> Settings {
        let path = match values.text("miniq.log_file") {
            "off" => None,
            "" if values.text("store") == "memory:" => None,
            "" => Some(Path::new(values.text("data")).join("jobs.log")),
            path => Some(PathBuf::from(path)),
        };
        let log = path.map(|path| LogSettings {
            path,
            bytes_max: values.whole("miniq.log_bytes_max").unsigned_abs(),
            files_kept: values.count("miniq.log_files_kept"),
        });
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Settings {
            lock_ms: values.seconds_ms("miniq.lock_s").max(1_000),
            retry_delay_ms: values.seconds_ms("miniq.retry_delay_s"),
            give_up_after_ms: values.seconds_ms("miniq.give_up_after_s"),
            archive_keep_ms: values.seconds_ms("miniq.archive_keep_s"),
            log,
            host: host.trim().to_owned(),
        }
    }
}
