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
    key("data", ValueKind::Text, "windlass-data", "folder of the embedded store"),
    key(
        "store",
        ValueKind::Text,
        "",
        "sqlite:PATH, postgres://… or memory:; by default sqlite in the data folder (also store.url)",
    ),
    key(
        "store.schema",
        ValueKind::Text,
        "windlass",
        "PostgreSQL: schema of the tables; ?schema= in the URL goes before it",
    ),
    key("store.migrate", ValueKind::Switch, "true", "PostgreSQL: bring the tables up to date at the start"),
    key(
        "store.listen",
        ValueKind::Switch,
        "true",
        "PostgreSQL: hear of other servers' jobs at once; false behind a transaction-mode pooler",
    ),
    key(
        "store.poll_ms",
        whole(10, 60_000),
        "1000",
        "PostgreSQL: how often to look for what was not heard of",
    ),
    key(
        "store.own_thread",
        ValueKind::Switch,
        "false",
        "embedded store: every commit by the store's own thread, also that of a client who is alone; for disks that stall now \
         and then, so that no other request waits with it",
    ),
    key("store.writers", whole(1, 64), "2", "PostgreSQL: connections that commit side by side"),
    key(
        "durability",
        ValueKind::Choice(&["full", "relaxed"]),
        "full",
        "relaxed answers before the data is on disk, and accepts a PostgreSQL that does",
    ),
    key("http", ValueKind::Address, "127.0.0.1:7373", "address of the HTTP API; port 0 picks a free one"),
    key(
        "hosts",
        ValueKind::List,
        "",
        "host names, beside localhost, by which browsers may call an open server",
    ),
    key(
        "mdns",
        ValueKind::Choice(&["on", "off", "auto"]),
        "auto",
        "announce the server on the local network",
    ),
    key("log", ValueKind::Choice(&["text", "json"]), "text", "form of the log on standard error"),
    key(
        "log_level",
        ValueKind::Text,
        "info",
        "error, warn, info, debug, trace, or a filter like windlass_engine=debug",
    ),
    key("insecure", ValueKind::Switch, "false", "allow a non-loopback address without tokens and TLS"),
    key(
        "shutdown_s",
        SECONDS,
        "10",
        "how long a stop waits for requests in flight and for handlers that run",
    ),
    secret("auth.tokens", ValueKind::List, "", "who may call: lines made by `windlass token`"),
    key(
        "auth.viewer_payloads",
        ValueKind::Choice(&["show", "hide"]),
        "show",
        "hide: viewers see jobs without payloads, results and errors, and no blobs or handlers",
    ),
    key("tls.cert", ValueKind::Text, "", "certificate chain, PEM"),
    key("tls.key", ValueKind::Text, "", "private key, PEM"),
    key(
        "tls.client_ca",
        ValueKind::Text,
        "",
        "certificates, PEM: clients must present one that is signed by one of these, beside their token",
    ),
    key("limits.payload_bytes", whole(1, 1 << 30), "16777216", "largest payload or result of one job"),
    key("limits.body_bytes", whole(1024, 1 << 32), "67108864", "largest request body"),
    key("limits.batch", whole(1, 10_000), "10000", "most jobs in one call"),
    key("limits.waiters", COUNT, "10000", "most claims waiting for a job at once"),
    key("limits.connections", COUNT, "10000", "most open connections"),
    key(
        "limits.connections_per_address",
        COUNT,
        "1000",
        "of these, from one address, until they have made a call that they may make",
    ),
    key(
        "limits.memory_bytes",
        whole(0, 1 << 50),
        "0",
        "memory for requests on their way in; 0 is half of what the control group or the machine has",
    ),
    key("limits.idle_s", SECONDS, "120", "an idle connection is closed after this"),
    key("blobs.bytes_max", whole(0, 1 << 40), "104857600", "largest blob"),
    key(
        "blobs.address",
        ValueKind::Choice(&["sha1", "sha256", "sri"]),
        "sha1",
        "how the answer to a put spells the address; all three are understood",
    ),
    secret(
        "outgoing.signing_key",
        ValueKind::Text,
        "",
        "signs what JQ workers and http handlers are sent (Windlass-Signature); at least 32 characters",
    ),
    key(
        "wasi.workers",
        whole(0, 1024),
        "0",
        "processes in which the server itself runs WASI jobs; 0 is none",
    ),
    key("wasi.time_limit_s", whole(1, 100 * 366 * 86_400), "300", "a module that runs longer fails"),
    key("wasi.memory_bytes_max", whole(1 << 16, 1 << 40), "268435456", "memory of one module"),
    key(
        "wasi.output_bytes_max",
        whole(0, 1 << 30),
        "16777216",
        "standard output of one module, and again its standard error",
    ),
    key("wasi.cache_modules", whole(1, 10_000), "64", "compiled modules kept by each process"),
    key(
        "wasi.storage_url",
        ValueKind::Text,
        "",
        "another server for blobs: for those not here, and for outputs",
    ),
    key("wasi.tenant", ValueKind::Text, "default", "whose jobs are run"),
    key(
        "journal.native",
        ValueKind::Switch,
        "false",
        "acknowledge pushes of the native API from the journal, too",
    ),
    key(
        "journal.bytes_max",
        whole(1 << 20, 1 << 50),
        "8589934592",
        "a journal that has grown to this takes no more jobs until the store has taken some",
    ),
    key(
        "runners.isolation",
        ValueKind::Choice(&["auto", "strict"]),
        "auto",
        "auto holds handlers by all that this machine offers and says in the log what it lacks; strict runs no handler and no \
         WASI module if it lacks anything",
    ),
];

/// Alias of a key: TOML cannot hold `store = "…"` beside `[store] schema = "…"`.
const STORE_ALIAS: (&str, &str) = ("store.url", "store");

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
