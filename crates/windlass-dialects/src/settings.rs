//! Configuration keys: names, types, and effective values. A dialect lists its own keys and builds its
//! settings from them; the binary lists the rest and reads files, variables and flags.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::KeepFor;
use windlass_core::repeat::every::parse_duration_ms;
use windlass_http::Allowed;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
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
    /// Number from 0 to 1.
    Share,
    /// Keep time: a duration such as `7d`, `0` or `forever`.
    KeepTime,
    /// List of texts; in the environment and with `--set` separated by commas.
    List,
}

/// Configuration key, with one name everywhere: `queuey.max_attempts` in the file and with `--set`,
/// `WINDLASS_QUEUEY_MAX_ATTEMPTS` in the environment.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: ValueKind,
    /// In the syntax of the file; empty: unset.
    pub default: &'static str,
    /// The value is never shown.
    pub secret: bool,
    pub help: &'static str,
}

impl Key {
    pub const fn new(name: &'static str, kind: ValueKind, default: &'static str, help: &'static str) -> Key {
        Key { name, kind, default, secret: false, help }
    }

    /// Marks a key whose value is never shown.
    pub const fn secret(self) -> Key {
        Key { secret: true, ..self }
    }
}

pub const fn whole(min: i64, max: i64) -> ValueKind {
    ValueKind::Whole { min, max }
}

/// Up to a century.
pub const SECONDS: ValueKind = whole(0, 100 * 366 * 86_400);
pub const COUNT: ValueKind = whole(1, 1_000_000_000);

/// Parses a keep time: a duration such as `7d`, `0` (not kept) or `forever`.
pub fn parse_keep(text: &str) -> Option<KeepFor> {
    match text.trim() {
        "0" => Some(KeepFor::Drop),
        "forever" => Some(KeepFor::Ever),
        text => match parse_duration_ms(text).ok()? {
            0 => Some(KeepFor::Drop),
            ms => Some(KeepFor::Ms(ms)),
        },
    }
}

/// Parses a number from 0 to 1.
pub fn parse_share(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

/// Invalid configuration, with a message for its author.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadConfig(pub String);

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    Default,
    File(String),
    Variable(String),
    Set,
    Flag(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File(path) => f.write_str(path),
            ValueSource::Variable(name) => f.write_str(name),
            ValueSource::Set => f.write_str("--set"),
            ValueSource::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// Value that fits its key's kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Whole(i64),
    Switch(bool),
    List(Vec<String>),
}

/// Key with its effective value.
#[derive(Clone, Debug)]
pub struct Effective {
    pub key: &'static Key,
    pub value: Value,
    pub source: ValueSource,
}

/// Address to listen on. A default that is in use is skipped; an address that was configured is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    pub addresses: Vec<SocketAddr>,
    pub text: String,
    pub asked: bool,
}

impl Bind {
    pub fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }
}

/// Values of all keys, including every dialect's. A key that is not listed, or has another kind, yields the
/// empty value of the requested kind; a test builds the settings of every dialect from the defaults.
#[derive(Clone, Debug, Default)]
pub struct Values(pub Vec<Effective>);

impl Values {
    fn get(&self, name: &str) -> Option<&Effective> {
        let found = self.0.iter().find(|entry| entry.key.name == name);
        debug_assert!(found.is_some(), "{name} is not a key");
        found
    }

    pub fn text(&self, name: &str) -> &str {
        match self.get(name).map(|entry| &entry.value) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Optional text.
    pub fn optional(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn keep(&self, name: &str) -> KeepFor {
        parse_keep(self.text(name)).unwrap_or(KeepFor::Ever)
    }

    pub fn share(&self, name: &str) -> f64 {
        parse_share(self.text(name)).unwrap_or(0.0)
    }

    pub fn switch(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Effective { value: Value::Switch(true), .. }))
    }

    pub fn whole(&self, name: &str) -> i64 {
        match self.get(name).map(|entry| &entry.value) {
            Some(Value::Whole(number)) => *number,
            _ => 0,
        }
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        match self.get(name).map(|entry| &entry.value) {
            Some(Value::List(entries)) => entries.clone(),
            _ => Vec::new(),
        }
    }

    pub fn count(&self, name: &str) -> usize {
        usize::try_from(self.whole(name)).unwrap_or(usize::MAX)
    }

    pub fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(u64::try_from(self.whole(name)).unwrap_or(0))
    }

    /// Number of seconds, in milliseconds.
    pub fn seconds_ms(&self, name: &str) -> i64 {
        self.whole(name).saturating_mul(1_000)
    }

    pub fn bind(&self, name: &str) -> Result<Bind, BadConfig> {
        let text = self.text(name).to_string();
        match text.to_socket_addrs() {
            Ok(addresses) => {
                let asked = self.get(name).is_some_and(|entry| entry.source != ValueSource::Default);
                Ok(Bind { addresses: addresses.collect(), text, asked })
            }
            Err(error) => {
                Err(self.bad(name, format_args!("{text:?} is not an address of the form HOST:PORT: {error}")))
            }
        }
    }

    /// `None`: it is off.
    pub fn bind_or_off(&self, name: &str) -> Result<Option<Bind>, BadConfig> {
        if self.text(name) == "off" { Ok(None) } else { self.bind(name).map(Some) }
    }

    /// The addresses that the server may call; by default what fits the address of HTTP.
    pub fn allowed(&self, name: &str) -> Result<Allowed, BadConfig> {
        let entries = self.list(name);
        match entries.is_empty() {
            true => Ok(Allowed::default_for(self.bind("http")?.is_loopback())),
            false => Allowed::parse(entries.iter().map(String::as_str)).map_err(|why| self.bad(name, why)),
        }
    }

    /// Error for an unusable value, with its origin.
    pub fn bad(&self, name: &str, why: impl fmt::Display) -> BadConfig {
        match self.get(name) {
            Some(entry) => BadConfig(format!("{name} ({}): {why}", entry.source)),
            None => BadConfig(format!("{name}: {why}")),
        }
    }
}

/// Settings of the dialects, each in the dialect's own type.
#[derive(Clone, Default)]
pub struct DialectSettings(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl DialectSettings {
    pub fn of<T: Any + Send + Sync>(settings: T) -> DialectSettings {
        let mut all = DialectSettings::default();
        all.put(settings);
        all
    }

    pub fn put<T: Any + Send + Sync>(&mut self, settings: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(settings));
    }

    /// Returns the defaults if none were put.
    pub fn get<T: Any + Send + Sync + Default + Clone>(&self) -> T {
        let found = self.0.get(&TypeId::of::<T>()).and_then(|settings| settings.downcast_ref::<T>());
        found.cloned().unwrap_or_default()
    }
}

impl fmt::Debug for DialectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DialectSettings({})", self.0.len())
    }
}
