//! Configuration in two forms: as written ([`written`]: raw values and their sources) and as meant
//! ([`Config`]: checked values). Precedence: flags, `--set`, environment, file.

mod flags;
mod handlers;
pub(crate) mod keys;
mod limits;
mod otel;
pub(crate) mod template;
mod written;

#[cfg(test)]
mod tests;

pub(crate) use handlers::{HandlerConfig, HandlerNetwork};
pub(crate) use limits::Limits;
pub(crate) use otel::Otel;
pub(crate) use written::{Raw, Written};

pub(crate) use windlass_dialects::settings::{BadConfig, Bind, Effective, Value, ValueSource};

use clap::Args;
use flags::PortFlags;
use std::path::PathBuf;
use std::time::Duration;
use windlass_dialects::settings::{self, DialectSettings, Key, ValueKind, Values};
use windlass_dialects::{ALL, Dialects};
use windlass_engine::journal;
use windlass_http::Signer;
use windlass_store::Durability;
use windlass_store::postgres::PostgresOptions;

impl From<BadConfig> for crate::fault::Fault {
    fn from(bad: BadConfig) -> Self {
        crate::fault::Fault::Usage(bad.0)
    }
}

/// The flags of `windlass serve` that are configuration. Each is also a key; see `windlass config`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigArgs {
    /// Data folder, with the embedded store [default: windlass-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Store: sqlite:PATH, postgres://… or memory: [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// full: acknowledge a write after it is on disk; relaxed: before, so a power failure may lose the last writes [default: full]
    #[arg(long, value_name = "full|relaxed")]
    pub durability: Option<String>,
    /// Address of the HTTP API [default: 127.0.0.1:7373]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    #[command(flatten)]
    pub ports: PortFlags,
    /// Announce the server on the local network by multicast DNS [default: auto]
    #[arg(long, value_name = "on|off|auto")]
    pub mdns: Option<String>,
    /// Format of the log on standard error [default: text]
    #[arg(long, value_name = "text|json")]
    pub log: Option<String>,
    /// Log level: error, warn, info, debug, trace, or a filter such as windlass_engine=debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Allow a non-loopback address without tokens and TLS
    #[arg(long)]
    pub insecure: bool,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Set a configuration key, e.g. --set queuey.abandoned_age_s=2; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ConfigArgs {
    pub(crate) fn read(&self) -> Result<Config, BadConfig> {
        self.read_with(ALL, variables())
    }

    /// Configuration without the unknown keys of the file, and an error for each of those.
    pub(crate) fn read_known(&self) -> Result<(Config, Vec<BadConfig>), BadConfig> {
        let (written, unknown) = self.written(ALL, variables())?;
        Ok((self.meant(&written)?, unknown))
    }

    /// Configuration of a server with these dialects.
    pub(crate) fn read_with(
        &self,
        dialects: Dialects,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Config, BadConfig> {
        let (written, unknown) = self.written(dialects, variables)?;
        match unknown.into_iter().next() {
            Some(bad) => Err(bad),
            None => self.meant(&written),
        }
    }

    fn meant(&self, written: &Written) -> Result<Config, BadConfig> {
        Ok(Config { file: self.config.clone(), ..Config::from_written(written)? })
    }

    /// Values from all sources, and an error for each unknown key of the file.
    fn written(
        &self,
        dialects: Dialects,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(Written, Vec<BadConfig>), BadConfig> {
        let mut written = Written::new(dialects);
        let unknown = match &self.config {
            Some(path) => written.read_file(path)?,
            None => Vec::new(),
        };
        written.read_environment(variables);
        for assignment in &self.set {
            written.read_set(assignment)?;
        }
        for (name, text) in self.flags() {
            written.put_text(name, &text, ValueSource::Flag(name.replace('_', "-")))?;
        }
        Ok((written, unknown))
    }

    fn flags(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("data", &self.data),
            ("store", &self.store),
            ("durability", &self.durability),
            ("http", &self.http),
            ("mdns", &self.mdns),
            ("log", &self.log),
            ("log_level", &self.log_level),
        ];
        let given = texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?)));
        let given = given.chain(self.ports.given());
        given.chain(self.insecure.then(|| ("insecure", "true".to_string()))).collect()
    }
}

/// Environment variables; those that are not UTF-8 are ignored.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogForm {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// CA that signs the certificates clients must present.
    pub client_ca: Option<PathBuf>,
}

/// Log of the actions of operators and admins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Entries kept in the store; 0: none are written.
    pub entries_max: u64,
    pub keep_ms: i64,
    /// File for JSON lines.
    pub file: Option<PathBuf>,
}

/// Settings of the server's own WASI runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wasi {
    /// Number of guest processes; 0 disables the runner.
    pub workers: usize,
    pub time_limit: Duration,
    pub memory_bytes_max: u64,
    pub output_bytes_max: u64,
    pub cache_modules: u32,
    pub storage_url: Option<String>,
    pub tenant: String,
}

/// Checked configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Configuration file, if any.
    pub file: Option<PathBuf>,
    pub data: PathBuf,
    pub store: String,
    /// No store was configured: the embedded store in the data folder is used.
    pub store_is_in_data: bool,
    pub durability: Durability,
    pub own_thread: bool,
    pub postgres: PostgresOptions,
    pub http: Bind,
    /// Host names besides localhost that are accepted from browsers.
    pub hosts: Vec<String>,
    pub mdns: String,
    pub log: LogForm,
    pub log_level: String,
    pub insecure: bool,
    pub shutdown: Duration,
    pub tokens: Vec<String>,
    pub hide_payloads: bool,
    pub tls: Option<Tls>,
    pub limits: Limits,
    pub blob_bytes_max: u64,
    pub metric_names_max: usize,
    /// Export to a collector; `None`: none.
    pub otel: Option<Otel>,
    pub audit: Audit,
    pub dialects: Dialects,
    pub settings: DialectSettings,
    /// Signs the server's outgoing requests.
    pub signer: Option<Signer>,
    pub wasi: Wasi,
    pub handlers: HandlerConfig,
    pub journal: journal::Settings,
    /// All keys, including those of the dialects.
    pub values: Values,
    pub warnings: Vec<String>,
}

impl Config {
    pub(crate) fn from_written(written: &Written) -> Result<Config, BadConfig> {
        let values = written.keys.all().map(|key| effective(key, written)).collect::<Result<_, _>>()?;
        let found = Values(values);
        let mut settings = DialectSettings::default();
        for dialect in written.keys.0 {
            dialect.configure(&found, &mut settings)?;
        }
        let signer = signer(&found)?;
        let data = PathBuf::from(found.text("data"));
        let store = match found.text("store") {
            "" => format!("sqlite:{}", data.join("windlass.db").display()),
            url => url.to_string(),
        };
        let store_is_in_data = found.text("store").is_empty();
        Ok(Config {
            file: None,
            durability: match found.text("durability") {
                "relaxed" => Durability::Relaxed,
                _ => Durability::Full,
            },
            own_thread: found.switch("store.own_thread"),
            postgres: PostgresOptions {
                schema: found.text("store.schema").to_string(),
                migrate: found.switch("store.migrate"),
                listen: found.switch("store.listen"),
                poll_ms: found.whole("store.poll_ms").unsigned_abs(),
                writers: found.count("store.writers"),
                ..PostgresOptions::default()
            },
            http: found.bind("http")?,
            hosts: found.list("hosts"),
            mdns: found.text("mdns").to_string(),
            log: if found.text("log") == "json" { LogForm::Json } else { LogForm::Text },
            log_level: found.text("log_level").to_string(),
            insecure: found.switch("insecure"),
            shutdown: found.seconds("shutdown_s"),
            tokens: found.list("auth.tokens"),
            hide_payloads: found.text("auth.viewer_payloads") == "hide",
            tls: tls(&found)?,
            limits: Limits::from_values(&found),
            blob_bytes_max: found.count("blobs.bytes_max") as u64,
            metric_names_max: found.count("metrics.series_max"),
            otel: Otel::from_values(&found)?,
            audit: Audit {
                entries_max: found.count("audit.entries_max") as u64,
                keep_ms: found.whole("audit.keep_days").saturating_mul(86_400_000),
                file: found.optional("audit.file").map(PathBuf::from),
            },
            dialects: written.keys.0,
            settings,
            wasi: Wasi::from_values(&found),
            handlers: HandlerConfig::from_values(&found, signer.clone())?,
            signer,
            journal: journal::Settings {
                home: handlers::journal_home(&store, &data, store_is_in_data),
                bytes_max: found.whole("journal.bytes_max").unsigned_abs(),
            },
            store_is_in_data,
            store,
            data,
            warnings: written.warnings.clone(),
            values: found,
        })
    }
}

impl Wasi {
    fn from_values(values: &Values) -> Wasi {
        Wasi {
            workers: values.count("wasi.workers"),
            time_limit: values.seconds("wasi.time_limit_s"),
            memory_bytes_max: values.count("wasi.memory_bytes_max") as u64,
            output_bytes_max: values.count("wasi.output_bytes_max") as u64,
            cache_modules: u32::try_from(values.whole("wasi.cache_modules")).unwrap_or(u32::MAX),
            storage_url: values.optional("wasi.storage_url").map(str::to_string),
            tenant: values.text("wasi.tenant").to_string(),
        }
    }
}

fn tls(values: &Values) -> Result<Option<Tls>, BadConfig> {
    let client_ca = values.optional("tls.client_ca").map(PathBuf::from);
    match (values.text("tls.cert"), values.text("tls.key")) {
        ("", "") if client_ca.is_some() => {
            Err(BadConfig("tls.client_ca requires tls.cert and tls.key".to_string()))
        }
        ("", "") => Ok(None),
        ("", _) | (_, "") => Err(BadConfig("tls.cert and tls.key must be set together".to_string())),
        (cert, key) => Ok(Some(Tls { cert: cert.into(), key: key.into(), client_ca })),
    }
}

/// Signer of outgoing requests.
fn signer(values: &Values) -> Result<Option<Signer>, BadConfig> {
    let signer = values.optional("outgoing.signing_key").map(Signer::new).transpose();
    signer.map_err(|why| BadConfig(format!("outgoing.signing_key: {why}")))
}

fn effective(key: &'static Key, written: &Written) -> Result<Effective, BadConfig> {
    let default = (Raw::Text(key.default.to_string()), ValueSource::Default);
    let (raw, source) = written.get(key).unwrap_or(&default);
    let value = understood(key.kind, raw).map_err(|wanted| {
        BadConfig(format!("{} ({source}): {} is not {wanted}", key.name, shown(key, raw)))
    })?;
    Ok(Effective { key, value, source: source.clone() })
}

fn shown(key: &Key, raw: &Raw) -> String {
    match raw {
        _ if key.secret => "the value".to_string(),
        Raw::Text(text) => format!("{text:?}"),
        Raw::Toml(value) => value.to_string(),
    }
}

/// Converts a raw value; `Err` describes the expected value.
fn understood(kind: ValueKind, raw: &Raw) -> Result<Value, String> {
    let text = match raw {
        Raw::Text(text) | Raw::Toml(toml::Value::String(text)) => Some(text.trim()),
        Raw::Toml(_) => None,
    };
    match (kind, raw, text) {
        (ValueKind::Text, _, Some(text)) => Ok(Value::Text(text.to_string())),
        (ValueKind::Address | ValueKind::AddressOrOff, _, Some(text)) => Ok(Value::Text(text.to_string())),
        (ValueKind::Choice(words), _, Some(text)) if words.contains(&text) => {
            Ok(Value::Text(text.to_string()))
        }
        (ValueKind::Whole { min, max }, Raw::Toml(toml::Value::Integer(number)), _)
            if (min..=max).contains(number) =>
        {
            Ok(Value::Whole(*number))
        }
        (ValueKind::Whole { min, max }, _, Some(text)) => match text.replace('_', "").parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(Value::Whole(number)),
            _ => Err(wanted(kind)),
        },
        (ValueKind::KeepTime, Raw::Toml(toml::Value::Integer(0)), _) => Ok(Value::Text("0".to_string())),
        (ValueKind::KeepTime, _, Some(text)) => match settings::parse_keep(text) {
            Some(_) => Ok(Value::Text(text.to_string())),
            None => Err(wanted(kind)),
        },
        (ValueKind::Share, Raw::Toml(number @ (toml::Value::Float(_) | toml::Value::Integer(_))), _) => {
            share(number.to_string())
        }
        (ValueKind::Share, _, Some(text)) => share(text.to_string()),
        (ValueKind::Switch, Raw::Toml(toml::Value::Boolean(on)), _) => Ok(Value::Switch(*on)),
        (ValueKind::Switch, _, Some("true" | "on" | "yes" | "1")) => Ok(Value::Switch(true)),
        (ValueKind::Switch, _, Some("false" | "off" | "no" | "0" | "")) => Ok(Value::Switch(false)),
        (ValueKind::List, _, Some(text)) => written::list(text).map(Value::List).ok_or_else(|| wanted(kind)),
        (ValueKind::List, Raw::Toml(toml::Value::Array(entries)), _) => {
            let texts = entries.iter().map(|entry| entry.as_str().map(str::to_string)).collect::<Option<_>>();
            texts.map(Value::List).ok_or_else(|| wanted(kind))
        }
        _ => Err(wanted(kind)),
    }
}

fn share(text: String) -> Result<Value, String> {
    settings::parse_share(&text).map(|_| Value::Text(text)).ok_or_else(|| wanted(ValueKind::Share))
}

fn wanted(kind: ValueKind) -> String {
    match kind {
        ValueKind::Text => "a string".to_string(),
        ValueKind::Address => "an address HOST:PORT".to_string(),
        ValueKind::AddressOrOff => "an address HOST:PORT or \"off\"".to_string(),
        ValueKind::Choice(words) => format!("one of {}", words.join(", ")),
        ValueKind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        ValueKind::Share => "a number from 0 to 1".to_string(),
        ValueKind::KeepTime => "a duration such as 7d, 0 or \"forever\"".to_string(),
        ValueKind::Switch => "true or false".to_string(),
        ValueKind::List => "a list of strings: \"one, two\" or [\"one\", \"two\"]".to_string(),
    }
}
