//! Every configuration key there is: one line each. A key is written the same everywhere: `queuey.max_attempts` in the
//! file and with `--set`, `WINDLASS_QUEUEY_MAX_ATTEMPTS` in the environment.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Text,
    /// `HOST:PORT`.
    Address,
    /// `HOST:PORT` or `off`.
    AddressOrOff,
    Choice(&'static [&'static str]),
    Whole {
        min: i64,
        max: i64,
    },
    Switch,
    /// A list of texts; in the environment and with `--set` separated by commas.
    List,
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be written; empty means unset.
    pub default: &'static str,
    /// Never shown.
    pub secret: bool,
    pub help: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, kind, default, secret: false, help }
}

const fn secret(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, kind, default, secret: true, help }
}

const fn whole(min: i64, max: i64) -> Kind {
    Kind::Whole { min, max }
}

const SECONDS: Kind = whole(0, 100 * 366 * 86_400);
const COUNT: Kind = whole(1, 1_000_000_000);

/// In the order in which `windlass config` and the documentation show them.
pub const KEYS: &[Key] = &[
    key("data", Kind::Text, "windlass-data", "folder of the embedded store"),
    key(
        "store",
        Kind::Text,
        "",
        "sqlite:PATH, postgres://… or memory:; by default sqlite in the data folder (also store.url)",
    ),
    key(
        "store.schema",
        Kind::Text,
        "windlass",
        "PostgreSQL: schema of the tables; ?schema= in the URL goes before it",
    ),
    key("store.migrate", Kind::Switch, "true", "PostgreSQL: bring the tables up to date at the start"),
    key(
        "store.listen",
        Kind::Switch,
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
        Kind::Switch,
        "false",
        "embedded store: every commit by the store's own thread, also that of a client who is alone; for disks that stall now \
         and then, so that no other request waits with it",
    ),
    key("store.writers", whole(1, 64), "2", "PostgreSQL: connections that commit side by side"),
    key(
        "durability",
        Kind::Choice(&["full", "relaxed"]),
        "full",
        "relaxed answers before the data is on disk, and accepts a PostgreSQL that does",
    ),
    key("http", Kind::Address, "127.0.0.1:7373", "address of the HTTP API; port 0 picks a free one"),
    key("hosts", Kind::List, "", "host names, beside localhost, by which browsers may call an open server"),
    key(
        "bedrock",
        Kind::AddressOrOff,
        "127.0.0.1:8888",
        "address of the Bedrock::Jobs dialect (also bedrock.listen)",
    ),
    key("mdns", Kind::Choice(&["on", "off", "auto"]), "auto", "announce the server on the local network"),
    key("log", Kind::Choice(&["text", "json"]), "text", "form of the log on standard error"),
    key(
        "log_level",
        Kind::Text,
        "info",
        "error, warn, info, debug, trace, or a filter like windlass_engine=debug",
    ),
    key("insecure", Kind::Switch, "false", "allow a non-loopback address without tokens and TLS"),
    key(
        "shutdown_s",
        SECONDS,
        "10",
        "how long a stop waits for requests in flight and for handlers that run",
    ),
    secret("auth.tokens", Kind::List, "", "who may call: lines made by `windlass token`"),
    key(
        "auth.viewer_payloads",
        Kind::Choice(&["show", "hide"]),
        "show",
        "hide: viewers see jobs without payloads, results and errors, and no blobs or handlers",
    ),
    key("tls.cert", Kind::Text, "", "certificate chain, PEM"),
    key("tls.key", Kind::Text, "", "private key, PEM"),
    key(
        "tls.client_ca",
        Kind::Text,
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
        Kind::Choice(&["sha1", "sha256", "sri"]),
        "sha1",
        "how the answer to a put spells the address; all three are understood",
    ),
    key("bedrock.profile", Kind::Choice(&["seed", "current"]), "seed", "which Bedrock::Jobs is spoken"),
    key("jq.backoff_base_ms", whole(0, 86_400_000), "1000", "first retry of a JQ job"),
    key("jq.backoff_cap_s", SECONDS, "3600", "longest wait between two tries"),
    key("jq.result_ttl_s", SECONDS, "3600", "how long a result is kept"),
    key("jq.record_ttl_s", SECONDS, "604800", "how long the record of a job is kept"),
    key(
        "jq.worker_addresses",
        Kind::List,
        "",
        "where JQ workers may be: loopback, private, any, addresses, blocks; by default loopback, and private on a \
         server others can reach; with tokens nowhere",
    ),
    secret(
        "outgoing.signing_key",
        Kind::Text,
        "",
        "signs what JQ workers and http handlers are sent (Windlass-Signature); at least 32 characters",
    ),
    key("jq.workers", Kind::List, "", "JQ workers that need not register, each as NAME URL MAX_JOBS"),
    key(
        "queuey.abandoned_age_s",
        SECONDS,
        "300",
        "a job without a heartbeat for so long is given to another",
    ),
    key("queuey.max_attempts", COUNT, "3", "a job with more attempts than this fails when it is abandoned"),
    key(
        "queuey.attempt_counting",
        Kind::Choice(&["literal", "claims-only"]),
        "literal",
        "literal: claims and abandonments count as attempts; claims-only: claims alone",
    ),
    key("queuey.keep_s", SECONDS, "0", "how long ended jobs stay; 0 is for ever"),
    key(
        "queuey.port",
        whole(0, 65_535),
        "0",
        "a port of queuey-queue's own beside that of http, or the next free one; its program used 1717; 0: none",
    ),
    key(
        "sidejob.lease_s",
        SECONDS,
        "60",
        "a SideJob run without a sign of life for so long is another worker's",
    ),
    key(
        "sidejob.grace_s",
        SECONDS,
        "1",
        "a SideJob worker whose connection ended keeps its runs if it opens another one within so long",
    ),
    key(
        "sidejob.runs_per_minute",
        COUNT,
        "600",
        "a SideJob job that begins one more run in one minute by the clock is terminated",
    ),
    key(
        "sidejob.origins",
        Kind::Text,
        "",
        "web pages from these origins, separated by spaces, may call the SideJob dialect; * is all of them",
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
    key("wasi.storage_url", Kind::Text, "", "another server for blobs: for those not here, and for outputs"),
    key("wasi.tenant", Kind::Text, "default", "whose jobs are run"),
    key(
        "journal.native",
        Kind::Switch,
        "false",
        "acknowledge pushes of the native API from the journal, too",
    ),
    key(
        "journal.bytes_max",
        whole(1 << 20, 1 << 50),
        "8589934592",
        "a journal that has grown to this takes no more jobs until the store has taken some",
    ),
    key("miniq.lock_s", SECONDS, "300", "how long a worker may hold a job"),
    key("miniq.retry_delay_s", SECONDS, "300", "wait before the next try"),
    key("miniq.give_up_after_s", SECONDS, "21600", "no try begins later than this"),
    key("miniq.archive_keep_s", SECONDS, "1209600", "how long finished jobs stay in the archive"),
    key("miniq.run", Kind::Switch, "true", "whether this server runs the handlers of its clients"),
    key("miniq.contexts", whole(1, 1_024), "8", "processes of handlers at once"),
    key("miniq.contexts_per_type", whole(1, 1_024), "2", "of these, for one client and eid or job type"),
    key("miniq.http_batches", whole(1, 10_000), "64", "batches of http handlers at once"),
    key(
        "miniq.time_limit_s",
        whole(1, 100 * 366 * 86_400),
        "120",
        "a job that runs longer in its handler is ended",
    ),
    key(
        "miniq.memory_bytes_max",
        whole(16 << 20, 1 << 40),
        "536870912",
        "memory of one context with all its processes",
    ),
    key(
        "miniq.disk_bytes_max",
        whole(1 << 20, 1 << 50),
        "1073741824",
        "disk that one context may fill: a job that fills more is ended",
    ),
    key(
        "miniq.network",
        Kind::Choice(&["never", "asked", "always"]),
        "never",
        "which handlers have a network: none, those with options.network, all",
    ),
    key(
        "miniq.handler_addresses",
        Kind::List,
        "",
        "where http handlers may be: loopback, private, any, addresses, blocks; by default as jq.worker_addresses",
    ),
    key(
        "miniq.handler_ca",
        Kind::Text,
        "",
        "a file of certificates (PEM) by which https handlers are believed; by default the system's",
    ),
    key(
        "miniq.readable",
        Kind::List,
        "",
        "folders that handlers may read beside the system's programs and libraries",
    ),
    key(
        "miniq.uid_base",
        whole(0, 4_000_000_000),
        "1",
        "a server that is root runs each context as a user of its own: 1 picks numbers that are nobody's, a larger number is the \
         first, 0 runs them as itself (in namespaces of their own, where they are nobody, if the kernel allows it)",
    ),
    key(
        "runners.isolation",
        Kind::Choice(&["auto", "strict"]),
        "auto",
        "auto holds handlers by all that this machine offers and says in the log what it lacks; strict runs no handler and no \
         WASI module if it lacks anything",
    ),
    key(
        "miniq.log_file",
        Kind::Text,
        "",
        "a line for each job that enters, starts and ends; by default jobs.log in the data folder, off for none",
    ),
    key("miniq.log_bytes_max", whole(1 << 10, 1 << 40), "67108864", "a log of this size is put aside"),
    key("miniq.log_files_kept", whole(0, 1_000), "4", "logs that were put aside and are kept"),
];

/// Other ways to write a key: TOML cannot hold `bedrock = "…"` beside `[bedrock] profile = "…"`.
const ALIASES: &[(&str, &str)] = &[("bedrock.listen", "bedrock"), ("store.url", "store")];

/// Variables of the same family that are not configuration of the server.
pub const OTHER_VARIABLES: &[&str] = &["WINDLASS_CONFIG", "WINDLASS_SERVER", "WINDLASS_TOKEN", "WINDLASS_CA"];

pub fn find(name: &str) -> Option<&'static Key> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key);
    KEYS.iter().find(|key| key.name == name)
}

impl Key {
    pub fn variable(&self) -> String {
        variable(self.name)
    }
}

pub fn variable(name: &str) -> String {
    format!("WINDLASS_{}", name.replace('.', "_").to_ascii_uppercase())
}

/// Names with the variable that sets them, aliases included.
pub fn variables() -> impl Iterator<Item = (String, &'static str)> {
    let keys = KEYS.iter().map(|key| (key.variable(), key.name));
    keys.chain(ALIASES.iter().map(|(alias, key)| (variable(alias), *key)))
}

/// The known name a mistyped one most likely meant, if any is near.
pub fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_ascii_lowercase();
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let whole = strsim::damerau_levenshtein(&wrong, &name);
        // `max_attempts` for `queuey.max_attempts`: the part after the dot is what people remember.
        match name.rsplit_once('.') {
            Some((_, tail)) => whole.min(strsim::damerau_levenshtein(&wrong, tail) + 1),
            None => whole,
        }
    };
    let best = known.map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, name)| *distance <= 2.max(name.len() / 3)).map(|(_, name)| name)
}
