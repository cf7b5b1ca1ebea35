//! Connection options.

use super::hosts::Hosts;
use super::tls::{SslMode, Tls};
use crate::error::StoreError;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// A peer that acknowledges nothing for this long is considered dead.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// TCP keepalive of an idle connection: start, interval and number of probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TRIES: u32 = 3;

/// Options of the PostgreSQL store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Overridden by `?schema=` in the URL.
    pub schema: String,
    /// Migrates the tables when opening; otherwise outdated tables are an error.
    pub migrate: bool,
    /// Receives notifications of other servers' jobs (LISTEN). Without it, and behind a pooler in transaction
    /// mode, changes are polled every `poll_ms`.
    pub listen: bool,
    pub poll_ms: u64,
    /// Follows the database's clock, and records its steps in the database. Off for copies, which write
    /// nothing of their own.
    pub follow_clock: bool,
    /// For tests: error added to this machine's clock.
    pub clock_error_ms: i64,
    /// Accepts a database that acknowledges commits before they are on disk (`fsync` or `synchronous_commit`
    /// off); otherwise that is an error.
    pub accept_unsafe: bool,
    /// Write connections, beside those for reads and notifications.
    pub writers: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            schema: "windlass".to_owned(),
            migrate: true,
            listen: true,
            poll_ms: 1_000,
            follow_clock: true,
            clock_error_ms: 0,
            accept_unsafe: false,
            writers: 2,
        }
    }
}

/// Parsed URL: the driver's settings, and the schema.
pub(super) struct Address {
    pub config: Config,
    pub tls: Tls,
    pub schema: String,
    /// For display, without the password.
    pub shown: String,
}

impl Address {
    pub(super) fn parse(url: &str, options: &PostgresOptions) -> Result<Address, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| OURS.contains(&key_of(pair)));
        let asked = |key: &str| {
            let pair = ours.iter().rfind(|pair| key_of(pair) == key)?;
            pair.split_once('=').map(|(_, value)| unescaped(value))
        };
        let schema = asked("schema").unwrap_or_else(|| options.schema.clone());
        check_schema(&schema)?;
        let mode = match asked("sslmode") {
            Some(word) => SslMode::parse(&word).ok_or_else(|| bad_mode(&word))?,
            None => SslMode::default(),
        };
        let roots = asked("sslrootcert");
        let tls = Tls::new(mode, roots.as_deref())?;
        let url = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        // The driver's message may quote the URL, including the password.
        let mut config: Config = url.parse().map_err(|_| {
            StoreError::Open(
                "the URL is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned(),
            )
        })?;
        watch_the_peer(&mut config, &theirs);
        refuse_standby(&config)?;
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        config.ssl_mode(mode.for_driver());
        // A Unix socket is never encrypted, whatever the mode.
        if config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_))) {
            config.ssl_mode(SslMode::Disable.for_driver());
        } else if (mode < SslMode::Require || (mode == SslMode::Require && roots.is_none()))
            && is_far(&config)
        {
            let word = "any server at that address is trusted";
            tracing::warn!(
                "the certificate of PostgreSQL is not verified, so {word}; sslmode=verify-full \
                 verifies it"
            );
        }
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
        let database = config.get_dbname().unwrap_or("postgres");
        let shown = format!("database {database:?} at {} (schema {schema:?})", hosts.join(", "));
        Ok(Address { config, tls, schema, shown })
    }

    pub(super) fn hosts(&self) -> Hosts {
        Hosts::new(&self.config, self.tls.clone())
    }
}

/// Sets timeouts that detect a silent peer; parameters of the URL take precedence.
fn watch_the_peer(config: &mut Config, asked: &[&str]) {
    let is_asked = |key: &str| asked.iter().any(|pair| key_of(pair) == key);
    if !is_asked("tcp_user_timeout") {
        config.tcp_user_timeout(SILENCE_MAX);
    }
    if !is_asked("keepalives_idle") {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if !is_asked("keepalives_interval") {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if !is_asked("keepalives_retries") {
        config.keepalives_retries(KEEPALIVE_TRIES);
    }
}

/// Refuses `target_session_attrs=read-only`: every session must be read-write.
fn refuse_standby(config: &Config) -> Result<(), StoreError> {
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        let what = "target_session_attrs=read-only selects a standby, but the server needs to write; use \
         read-write";
        return Err(StoreError::Open(what.to_owned()));
    }
    Ok(())
}

/// URL parameters that are not passed to the driver.
const OURS: [&str; 3] = ["schema", "sslmode", "sslrootcert"];

fn key_of<'a>(pair: &&'a str) -> &'a str {
    pair.split_once('=').map_or(*pair, |(key, _)| key)
}

/// Decodes `%2F` as `/`; an invalid escape stays as it is.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bad_mode(word: &str) -> StoreError {
    StoreError::Open(format!(
        "unknown sslmode={word}; use disable, prefer, require, verify-ca or verify-full"
    ))
}

/// True if the connection leaves this machine.
fn is_far(config: &Config) -> bool {
    let is_near = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    !config.get_hosts().iter().all(is_near)
}

fn check_schema(schema: &str) -> Result<(), StoreError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    // PostgreSQL's limit is 63; names derived from the schema need some space.
    if begins_well && schema.len() <= 48 && schema.chars().all(is_plain) {
        return Ok(());
    }
    Err(StoreError::Open(format!(
        "invalid schema {schema:?}; use at most 48 lower-case letters, digits and _, not starting \
         with a digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<(String, String), String> {
        let parsed = Address::parse(url, &PostgresOptions::default()).map_err(|error| error.to_string())?;
        Ok((parsed.schema, parsed.shown))
    }

    #[test]
    fn the_schema_comes_from_the_url_or_the_options() {
        assert_eq!(parsed("postgres://u@h/db").unwrap().0, "windlass");
        assert_eq!(parsed("postgres://u@h/db?connect_timeout=3&schema=other").unwrap().0, "other");
        assert!(parsed("postgres://u@h/db?schema=Bad%20one").unwrap_err().contains("invalid schema"));
    }

    #[test]
    fn what_the_url_says_about_connections_goes_before_our_own() {
        let config = |url: &str| Address::parse(url, &PostgresOptions::default()).unwrap().config;
        let plain = config("postgres://u@h/db");
        assert_eq!(plain.get_connect_timeout(), None);
        assert_eq!(plain.get_tcp_user_timeout(), Some(&SILENCE_MAX));
        let told = config("postgres://u@h/db?connect_timeout=7&keepalives_idle=60&tcp_user_timeout=3");
        assert_eq!(told.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!(told.get_keepalives_idle(), Duration::from_secs(60));
        assert_eq!(told.get_keepalives_interval(), Some(KEEPALIVE_INTERVAL));
        assert_eq!(told.get_tcp_user_timeout(), Some(&Duration::from_secs(3)));
        let standby = parsed("postgres://u@h/db?target_session_attrs=read-only").unwrap_err();
        assert!(standby.contains("use read-write"), "{standby}");
    }

    #[test]
    fn no_message_shows_the_password() {
        assert!(!parsed("postgres://u:secret@h/db").unwrap().1.contains("secret"));
        assert!(!parsed("postgres://u:secret@h:port/db").unwrap_err().contains("secret"));
    }
}
