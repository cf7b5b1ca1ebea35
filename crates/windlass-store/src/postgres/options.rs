//! Where the database is and how to behave there.

use crate::error::StoreError;
use std::time::Duration;
use tokio_postgres::Config;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A peer that acknowledges nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What only this store can be told.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `?schema=` in the URL goes before it.
    pub schema: String,
    /// Bring the tables up to date when opening; otherwise old ones are an error.
    pub migrate: bool,
    /// Hear of other servers' jobs at once. Without it, and through a pooler that gives out connections by transaction, they
    /// are looked for every `poll_ms`.
    pub listen: bool,
    pub poll_ms: u64,
    /// For tests: how far this machine's clock is taken to be ahead of what it shows.
    pub clock_error_ms: i64,
    /// Connections that write, beside those that read and listen.
    pub writers: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            schema: "windlass".to_owned(),
            migrate: true,
            listen: true,
            poll_ms: 1_000,
            clock_error_ms: 0,
            writers: 2,
        }
    }
}

/// The URL taken apart: what the driver needs, and the schema.
pub struct Address {
    pub config: Config,
    pub schema: String,
    /// For people: without the password.
    pub shown: String,
}

impl Address {
    pub fn parse(url: &str, options: &PostgresOptions) -> Result<Address, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("schema="));
        let schema = match ours.last().and_then(|pair| pair.split_once('=')) {
            Some((_, schema)) => schema,
            None => &options.schema,
        };
        check_schema(schema)?;
        let url = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        // The driver's own message may quote the URL, password included.
        let mut config: Config = url.parse().map_err(|_| {
            StoreError::Open(
                "the URL is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned(),
            )
        })?;
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(SILENCE_MAX).keepalives_idle(SILENCE_MAX);
        if config.get_application_name().is_none() {
            config.application_name("windlass");
        }
        let hosts: Vec<String> = config.get_hosts().iter().map(|host| format!("{host:?}")).collect();
        let database = config.get_dbname().unwrap_or("postgres");
        let shown = format!("database {database:?} at {} (schema {schema:?})", hosts.join(", "));
        Ok(Address { config, schema: schema.to_owned(), shown })
    }
}

fn check_schema(schema: &str) -> Result<(), StoreError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    // 63 is PostgreSQL's own limit; names made from this one need some room.
    if begins_well && schema.len() <= 48 && schema.chars().all(is_plain) {
        return Ok(());
    }
    Err(StoreError::Open(format!(
        "{schema:?} cannot be a schema: use lower-case letters, digits and _, at most 48, not beginning with a digit"
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
        assert!(parsed("postgres://u@h/db?schema=Bad%20one").unwrap_err().contains("cannot be a schema"));
    }

    #[test]
    fn no_message_shows_the_password() {
        assert!(!parsed("postgres://u:secret@h/db").unwrap().1.contains("secret"));
        assert!(!parsed("postgres://u:secret@h:port/db").unwrap_err().contains("secret"));
    }
}
