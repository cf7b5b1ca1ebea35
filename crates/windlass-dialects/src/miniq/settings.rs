//! Configuration keys of this dialect and the settings of its jobs. The binary reads the settings of
//! handlers.

use super::log::LogSettings;
use crate::settings::{Key, SECONDS, ValueKind, Values, whole};
use std::path::{Path, PathBuf};

pub(super) const KEYS: &[Key] = &[
    Key::new("miniq.lock_s", SECONDS, "300", "how long a worker may hold a job"),
    Key::new("miniq.retry_delay_s", SECONDS, "300", "wait before the next try"),
    Key::new("miniq.give_up_after_s", SECONDS, "21600", "no try begins later than this"),
    Key::new("miniq.archive_keep_s", SECONDS, "1209600", "how long finished jobs stay in the archive"),
    Key::new("miniq.run", ValueKind::Switch, "true", "whether this server runs the handlers of its clients"),
    Key::new("miniq.contexts", whole(1, 1_024), "8", "processes of handlers at once"),
    Key::new("miniq.contexts_per_type", whole(1, 1_024), "2", "of these, for one client and eid or job type"),
    Key::new("miniq.http_batches", whole(1, 10_000), "64", "batches of http handlers at once"),
    Key::new(
        "miniq.time_limit_s",
        whole(1, 100 * 366 * 86_400),
        "120",
        "a job that runs longer in its handler is ended",
    ),
    Key::new(
        "miniq.memory_bytes_max",
        whole(16 << 20, 1 << 40),
        "536870912",
        "memory of one context with all its processes",
    ),
    Key::new(
        "miniq.disk_bytes_max",
        whole(1 << 20, 1 << 50),
        "1073741824",
        "disk that one context may fill: a job that fills more is ended",
    ),
    Key::new(
        "miniq.network",
        ValueKind::Choice(&["never", "asked", "always"]),
        "never",
        "which handlers have a network: none, those with options.network, all",
    ),
    Key::new(
        "miniq.handler_addresses",
        ValueKind::List,
        "",
        "where http handlers may be: loopback, private, any, addresses, blocks; by default as jq.worker_addresses",
    ),
    Key::new(
        "miniq.handler_ca",
        ValueKind::Text,
        "",
        "a file of certificates (PEM) by which https handlers are believed; by default the system's",
    ),
    Key::new(
        "miniq.readable",
        ValueKind::List,
        "",
        "folders that handlers may read beside the system's programs and libraries",
    ),
    Key::new(
        "miniq.uid_base",
        whole(0, 4_000_000_000),
        "1",
        "a server that is root runs each context as a user of its own: 1 picks numbers that are nobody's, a larger number is the \
         first, 0 runs them as itself (in namespaces of their own, where they are nobody, if the kernel allows it)",
    ),
    Key::new(
        "miniq.log_file",
        ValueKind::Text,
        "",
        "a line for each job that enters, starts and ends; by default jobs.log in the data folder, off for none",
    ),
    Key::new("miniq.log_bytes_max", whole(1 << 10, 1 << 40), "67108864", "a log of this size is put aside"),
    Key::new("miniq.log_files_kept", whole(0, 1_000), "4", "logs that were put aside and are kept"),
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
