//! List of all configuration keys; the keys of a dialect are in its folder.

use windlass_dialects::Dialects;
use windlass_dialects::settings::{COUNT, Key, SECONDS, ValueKind, whole};

const fn key(name: &'static str, kind: ValueKind, default: &'static str, help: &'static str) -> Key {
    Key::new(name, kind, default, help)
}

const fn secret(name: &'static str, kind: ValueKind, default: &'static str, help: &'static str) -> Key {
    Key::new(name, kind, default, help).secret()
}

/// Keys that belong to no dialect, in the order of `windlass config`.
const KEYS: &[Key] = &[
    key("data", ValueKind::Text, "windlass-data", "data folder, with the embedded store"),
    key(
        "store",
        ValueKind::Text,
        "",
        "sqlite:PATH, postgres://… or memory:; default: SQLite in the data folder (also store.url)",
    ),
    key(
        "store.schema",
        ValueKind::Text,
        "windlass",
        "PostgreSQL: schema of the tables; ?schema= in the URL overrides it",
    ),
    key("store.migrate", ValueKind::Switch, "true", "PostgreSQL: create or upgrade the tables at startup"),
    key(
        "store.listen",
        ValueKind::Switch,
        "true",
        "PostgreSQL: use LISTEN and NOTIFY to learn of other servers' jobs at once; set false behind \
         a connection pooler in transaction mode",
    ),
    key(
        "store.poll_ms",
        whole(10, 60_000),
        "1000",
        "PostgreSQL: interval of polling for changes that were not notified",
    ),
    key(
        "store.own_thread",
        ValueKind::Switch,
        "false",
        "embedded store: run every commit on a dedicated thread, also if there is only one client; \
         for disks that stall, so that a stalled commit does not block other requests",
    ),
    key("store.writers", whole(1, 64), "2", "PostgreSQL: number of connections that commit concurrently"),
    key(
        "durability",
        ValueKind::Choice(&["full", "relaxed"]),
        "full",
        "full: acknowledge a write after it is on disk; relaxed: before, and accept a PostgreSQL \
         server that does the same",
    ),
    key("http", ValueKind::Address, "127.0.0.1:7373", "address of the HTTP API; port 0 picks a free port"),
    key(
        "hosts",
        ValueKind::List,
        "",
        "host names besides localhost under which a server without tokens accepts requests",
    ),
    key(
        "mdns",
        ValueKind::Choice(&["on", "off", "auto"]),
        "auto",
        "announce the server on the local network by multicast DNS; auto: if http is not a loopback \
         address",
    ),
    key("log", ValueKind::Choice(&["text", "json"]), "text", "format of the log on standard error"),
    key(
        "log_level",
        ValueKind::Text,
        "info",
        "error, warn, info, debug, trace, or a filter such as windlass_engine=debug",
    ),
    key("insecure", ValueKind::Switch, "false", "allow a non-loopback address without tokens and TLS"),
    key("shutdown_s", SECONDS, "10", "how long a shutdown waits for requests in flight and running handlers"),
    secret("auth.tokens", ValueKind::List, "", "access tokens: lines printed by `windlass token`"),
    key(
        "auth.viewer_payloads",
        ValueKind::Choice(&["show", "hide"]),
        "show",
        "hide: viewers see no payloads, results, errors, blobs and handlers",
    ),
    key("tls.cert", ValueKind::Text, "", "PEM file with the certificate chain"),
    key("tls.key", ValueKind::Text, "", "PEM file with the private key"),
    key(
        "tls.client_ca",
        ValueKind::Text,
        "",
        "PEM file with CA certificates: clients must present a certificate signed by one of them, in \
         addition to their token",
    ),
    key(
        "limits.payload_bytes",
        whole(1, 1 << 30),
        "16777216",
        "maximum size of the payload or result of a job",
    ),
    key("limits.body_bytes", whole(1024, 1 << 32), "67108864", "maximum size of a request body"),
    key("limits.batch", whole(1, 10_000), "10000", "maximum number of jobs in one call"),
    key("limits.waiters", COUNT, "10000", "maximum number of waiting claims"),
    key("limits.connections", COUNT, "10000", "maximum number of open connections"),
    key(
        "limits.connections_per_address",
        COUNT,
        "1000",
        "maximum number of connections from one address that have not yet made an authorized call",
    ),
    key(
        "limits.memory_bytes",
        whole(0, 1 << 50),
        "0",
        "memory for incoming requests; 0: half of the memory of the control group or the machine",
    ),
    key("limits.idle_s", SECONDS, "120", "time after which an idle connection is closed"),
    key(
        "keep.completed",
        ValueKind::KeepTime,
        "1h",
        "how long completed jobs of the native API are kept: 7d, 90m, 0 (delete at once) or forever; \
         settings of a queue and `keep` of a push override it",
    ),
    key("keep.failed", ValueKind::KeepTime, "forever", "how long failed jobs of the native API are kept"),
    key("keep.cancelled", ValueKind::KeepTime, "7d", "how long cancelled jobs of the native API are kept"),
    key(
        "metrics.series_max",
        whole(0, 10_000),
        "200",
        "job names, each in its queue, with metrics of their own; further ones are counted together as `other`",
    ),
    key(
        "otel.endpoint",
        ValueKind::Text,
        "",
        "URL of an OpenTelemetry collector (OTLP over HTTP, usually port 4318) to which traces and metrics are \
         exported; empty: none (also the variable OTEL_EXPORTER_OTLP_ENDPOINT)",
    ),
    secret(
        "otel.headers",
        ValueKind::List,
        "",
        "headers of the requests to the collector, each as NAME=VALUE with percent-encoded values (also \
         OTEL_EXPORTER_OTLP_HEADERS)",
    ),
    key(
        "otel.service_name",
        ValueKind::Text,
        "windlass",
        "name of this service in traces and metrics (also OTEL_SERVICE_NAME)",
    ),
    key(
        "otel.sample",
        ValueKind::Share,
        "1",
        "share of the jobs pushed without a trace context for which the server begins a trace, from 0 to 1; a \
         context that comes with a job decides for itself",
    ),
    key(
        "otel.interval_s",
        whole(1, 86_400),
        "60",
        "interval of exporting metrics; traces are sent every 5 s or sooner",
    ),
    key(
        "otel.ca",
        ValueKind::Text,
        "",
        "PEM file with CA certificates to trust for an https collector; default: those of the system (also \
         OTEL_EXPORTER_OTLP_CERTIFICATE)",
    ),
    key(
        "audit.entries_max",
        whole(0, 1_000_000),
        "10000",
        "entries of the audit log in the store; the oldest are deleted; 0: none are written",
    ),
    key("audit.keep_days", whole(1, 36_500), "90", "days after which entries of the audit log are deleted"),
    key(
        "audit.file",
        ValueKind::Text,
        "",
        "file to which actions of operators and admins are appended as JSON lines, too",
    ),
    key("blobs.bytes_max", whole(0, 1 << 40), "104857600", "maximum size of a blob"),
    key(
        "blobs.address",
        ValueKind::Choice(&["sha1", "sha256", "sri"]),
        "sha1",
        "format of a blob's address in the response to an upload; requests may use any of the three",
    ),
    secret(
        "outgoing.signing_key",
        ValueKind::Text,
        "",
        "key that signs requests to JQ workers and http handlers (header Windlass-Signature); at \
         least 32 characters",
    ),
    key(
        "wasi.workers",
        whole(0, 1024),
        "0",
        "number of processes in which the server itself runs WASI jobs; 0: none",
    ),
    key("wasi.time_limit_s", whole(1, 100 * 366 * 86_400), "300", "time limit of a WASI module"),
    key("wasi.memory_bytes_max", whole(1 << 16, 1 << 40), "268435456", "memory limit of a WASI module"),
    key(
        "wasi.output_bytes_max",
        whole(0, 1 << 30),
        "16777216",
        "size limit of standard output and of standard error of a WASI module, each",
    ),
    key("wasi.cache_modules", whole(1, 10_000), "64", "number of compiled modules cached by each process"),
    key(
        "wasi.storage_url",
        ValueKind::Text,
        "",
        "server from which blobs are fetched that this server does not have, and to which outputs \
         are uploaded",
    ),
    key("wasi.tenant", ValueKind::Text, "default", "tenant whose WASI jobs the server runs"),
    key(
        "journal.native",
        ValueKind::Switch,
        "false",
        "acknowledge pushes of the native API when they are in the journal, before they are in the \
         store",
    ),
    key(
        "journal.bytes_max",
        whole(1 << 20, 1 << 50),
        "8589934592",
        "size limit of the journal; at this size it accepts no jobs until some are in the store",
    ),
    key(
        "runners.isolation",
        ValueKind::Choice(&["auto", "strict"]),
        "auto",
        "auto: isolate handlers and WASI modules with all mechanisms that this machine has, and log \
         the missing ones; strict: run none if a mechanism is missing",
    ),
];

/// Alias of a key: TOML cannot hold `store = "…"` beside `[store] schema = "…"`.
const STORE_ALIAS: (&str, &str) = ("store.url", "store");

/// Variables that OpenTelemetry defines for all programs, and the key that each sets.
pub(crate) const STANDARD_VARIABLES: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otel.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "otel.headers"),
    ("OTEL_SERVICE_NAME", "otel.service_name"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otel.ca"),
];

/// WINDLASS_ variables that are not configuration of the server.
pub(crate) const OTHER_VARIABLES: &[&str] =
    &["WINDLASS_CONFIG", "WINDLASS_SERVER", "WINDLASS_TOKEN", "WINDLASS_CA"];

/// All keys of a server with these dialects.
#[derive(Clone, Copy)]
pub(crate) struct Keys(pub Dialects);

impl Keys {
    /// Keys in the order of `windlass config`.
    pub(crate) fn all(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().chain(self.0.iter().flat_map(|dialect| dialect.settings()))
    }

    /// Keys of dialects that are also flags: each holds the address of a port and has the name of its
    /// dialect.
    pub(crate) fn ports(self) -> impl Iterator<Item = &'static Key> {
        let is_port = |dialect: &str, key: &Key| key.name == dialect;
        self.0.iter().flat_map(move |dialect| {
            dialect.settings().iter().filter(move |key| is_port(dialect.name(), key))
        })
    }

    /// Aliases of keys that have keys below them.
    fn aliases(self) -> impl Iterator<Item = (String, &'static str)> {
        let ports = self.ports().map(|key| (format!("{}.listen", key.name), key.name));
        ports.chain([(STORE_ALIAS.0.to_owned(), STORE_ALIAS.1)])
    }

    pub(crate) fn find(self, name: &str) -> Option<&'static Key> {
        let meant = self.aliases().find(|(alias, _)| alias == name).map_or(name, |(_, key)| key);
        self.all().find(|key| key.name == meant)
    }

    /// Name of a key in a file with tables, where a key with others below it needs its alias: `store.url`.
    pub(crate) fn name_in_table(self, key: &Key) -> String {
        let alias = self.aliases().find(|(_, name)| *name == key.name);
        alias.map_or_else(|| key.name.to_owned(), |(alias, _)| alias)
    }

    /// Environment variables with the key they set, including aliases.
    pub(crate) fn variables(self) -> impl Iterator<Item = (String, &'static str)> {
        let keys = self.all().map(|key| (variable(key.name), key.name));
        keys.chain(self.aliases().map(|(alias, key)| (variable(&alias), key)))
    }
}

pub(crate) fn variable(name: &str) -> String {
    format!("WINDLASS_{}", name.replace('.', "_").to_ascii_uppercase())
}

/// Known name closest to a mistyped one, if any is close enough.
pub(crate) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_ascii_lowercase();
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let whole = strsim::damerau_levenshtein(&wrong, &name);
        // `max_attempts` for `queuey.max_attempts`: people remember the part after the dot.
        match name.rsplit_once('.') {
            Some((_, tail)) => whole.min(strsim::damerau_levenshtein(&wrong, tail) + 1),
            None => whole,
        }
    };
    let best = known.map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, name)| *distance <= 2.max(name.len() / 3)).map(|(_, name)| name)
}
