//! Descriptions of all metrics. `/metrics` and the reference page of the documentation are written from this
//! list.

use MetricKind::{Counter, Gauge, Histogram};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Counter => "counter",
            Gauge => "gauge",
            Histogram => "histogram",
        }
    }
}

/// Metric with all its series.
#[derive(Debug)]
pub struct MetricFamily {
    pub name: &'static str,
    pub kind: MetricKind,
    /// Names of the labels, in the order of their values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Metrics that belong together, with a title for people.
#[derive(Debug)]
pub struct MetricGroup {
    pub title: &'static str,
    pub families: &'static [&'static MetricFamily],
}

macro_rules! metrics {
    ($($title:literal { $($id:ident: $kind:ident $name:literal $labels:tt $help:literal;)* })*) => {
        $($(pub(super) static $id: MetricFamily =
            MetricFamily { name: $name, kind: $kind, labels: &$labels, help: $help };)*)*

        /// All metrics. A test compares them with the page of a running server.
        pub static GROUPS: &[MetricGroup] =
            &[$(MetricGroup { title: $title, families: &[$(&$id),*] }),*];
    };
}

metrics! {
    "Queues" {
        JOBS: Gauge "windlass_jobs" ["tenant", "queue", "state"] "Jobs by queue and state; each job is counted once.";
        QUEUE_OLDEST: Gauge "windlass_queue_oldest_seconds" ["tenant", "queue"] "Age of the oldest job that is ready to run.";
        QUEUE_PAUSED: Gauge "windlass_queue_paused" ["tenant", "queue"] "1 while the queue is paused.";
        QUEUES_NOT_SHOWN: Gauge "windlass_queues_not_shown" [] "Queues not shown because there are more than 2,000.";
    }
    "Jobs by name" {
        JOB_PUSHES: Counter "windlass_job_pushes_total" ["tenant", "queue", "name"] "Jobs pushed.";
        JOB_CLAIMS: Counter "windlass_job_claims_total" ["tenant", "queue", "name"] "Jobs claimed by workers.";
        JOB_RUNS: Counter "windlass_job_runs_total" ["tenant", "queue", "name", "outcome"]
            "Ends of runs by outcome: completed, failed (no attempt is left), retried, lapsed (the lease expired), released, cancelled.";
        JOB_WAIT: Histogram "windlass_job_wait_seconds" ["tenant", "queue", "name"] "Time from when a job was due until it was claimed.";
        JOB_RUN: Histogram "windlass_job_run_seconds" ["tenant", "queue", "name"]
            "Time from when a job was claimed until its outcome was reported.";
    }
    "Tenants" {
        TENANT_CONNECTIONS: Gauge "windlass_tenant_connections" ["tenant"] "Open connections by the tenant of their last request.";
        TENANT_HANDLER_SECONDS: Counter "windlass_tenant_handler_seconds_total" ["tenant"] "Run time of handlers and WASI modules by tenant.";
    }
    "HTTP" {
        HTTP_REQUESTS: Counter "windlass_http_requests_total" ["route", "method", "status"]
            "HTTP requests by route, method and class of the status (2xx, …); route other for unknown paths.";
        HTTP_REQUEST_SECONDS: Histogram "windlass_http_request_seconds" ["route", "method"]
            "Time until the response of an HTTP request began; claims that wait for a job are included.";
    }
    "Whole server" {
        PUSHED: Counter "windlass_pushed_total" [] "Jobs pushed.";
        CLAIMED: Counter "windlass_claimed_total" [] "Jobs claimed by workers.";
        FINISHED: Counter "windlass_finished_total" [] "Runs that finished successfully.";
        FAILED: Counter "windlass_failed_total" [] "Runs reported as failed.";
        LAPSED: Counter "windlass_lapsed_total" [] "Runs whose lease expired.";
        CANCELLED: Counter "windlass_cancelled_total" [] "Jobs cancelled.";
        RELEASED: Counter "windlass_released_total" [] "Runs released by their worker.";
        EXPIRED: Counter "windlass_expired_total" [] "Jobs deleted because their retention time was over.";
        TURNS: Counter "windlass_turns_total" ["outcome"] "Ended turns of repeating jobs by outcome: completed, failed, cancelled, missed.";
        WAITING_CLAIMS: Gauge "windlass_waiting_claims" [] "Claims waiting for jobs.";
        LEASES_HELD: Gauge "windlass_leases_held" [] "Running jobs claimed from this server.";
        PICKUP: Histogram "windlass_pickup_seconds" [] "Time from when a job was due until it was claimed.";
        RUN: Histogram "windlass_run_seconds" [] "Time from when a job was claimed until its outcome was reported.";
        UPTIME: Gauge "windlass_uptime_seconds" [] "Time since the start of the server.";
        OTEL_DROPPED: Counter "windlass_otel_dropped_total" []
            "Spans that were not exported because the queue was full or the collector did not take them.";
        BUILD_INFO: Gauge "windlass_build_info" ["version", "target"] "Always 1; the labels describe the program.";
        INFO: Gauge "windlass_info" ["version", "store"] "Always 1; the labels contain the version and the store.";
    }
    "Store" {
        COMMITS: Counter "windlass_commits_total" [] "Commits of the store.";
        COMMIT_SIZE: Histogram "windlass_commit_size" [] "Operations per commit (group commit).";
        COMMIT_SECONDS: Histogram "windlass_commit_seconds" [] "Duration of commits, until the data is on disk.";
        SYNC_SECONDS: Histogram "windlass_sync_seconds" [] "Duration of writing and syncing the write-ahead log.";
        CHECKPOINT_SECONDS: Histogram "windlass_checkpoint_seconds" [] "Duration of checkpoints of the write-ahead log.";
        STALE: Counter "windlass_stale_total" [] "Commits retried after a concurrent change.";
        JOURNAL_BYTES: Gauge "windlass_journal_bytes" [] "Size of the journal.";
        STORE_UP: Gauge "windlass_store_up" [] "1 if the store answers; if not, the page has no figures of queues.";
        STORE_ERRORS: Counter "windlass_store_errors_total" ["kind"]
            "Writes and claims that the store did not carry out, by kind: full, unavailable, outcome_unknown, damaged.";
        DISK: Gauge "windlass_disk_bytes" [] "Size of the file system with the data folder.";
        DISK_FREE: Gauge "windlass_disk_free_bytes" []
            "Free space of the file system with the data folder, for users other than root.";
    }
    "Process" {
        CPU_SECONDS: Counter "process_cpu_seconds_total" [] "CPU time of the process, user and system.";
        RESIDENT_BYTES: Gauge "process_resident_memory_bytes" [] "Resident memory of the process.";
        VIRTUAL_BYTES: Gauge "process_virtual_memory_bytes" [] "Virtual memory of the process.";
        START_TIME: Gauge "process_start_time_seconds" [] "Start of the process, in seconds since 1970.";
        THREADS: Gauge "process_threads" [] "Threads of the process.";
        OPEN_FDS: Gauge "process_open_fds" [] "Open file descriptors.";
        MAX_FDS: Gauge "process_max_fds" [] "Maximum number of open file descriptors.";
    }
}
