//! Checks of the configuration and of the store.

use super::server::Readings;
use super::server_checks::isolation_of;
use crate::cli::findings::Finding;
use crate::config::Config;
use crate::handlers;
use crate::human_time::show_duration;
use std::path::Path;
use windlass_store::postgres::{DatabaseState, PostgresStore};
use windlass_store::sqlite::{self, FileState};
use windlass_store::{Durability, StoreError, StoreUrl};

/// Difference between the clocks of this machine and of the database that is worth a warning.
const CLOCK_MS: i64 = 2_000;

pub(super) fn findings(config: &Config, server: Option<&Readings>) -> Vec<Finding> {
    let warnings = config.warnings.iter();
    let mut found: Vec<Finding> = warnings
        .map(|warning| Finding::warn("configuration", warning.clone(), "remove or correct it"))
        .collect();
    let used = server.and_then(|server| server.inside.as_ref().ok()).and_then(|inside| inside.store.clone());
    let named = config.store.split(':').next().unwrap_or_default();
    found.extend(used.and_then(|used| other_store(&used, named)));
    found.extend(store(config));
    if StoreUrl::parse(&config.store).is_ok() {
        found.push(durability(config.durability, named));
    }
    found.push(exposure(&Exposure {
        address: &config.http.text,
        is_loopback: config.http.is_loopback(),
        has_tls: config.tls.is_some(),
        has_tokens: !config.tokens.is_empty(),
        is_insecure: config.insecure,
    }));
    // A running server tells by itself.
    if server.is_none() && config.handlers.run {
        found.push(match handlers::isolation_line(config) {
            Ok(line) => isolation_of(&format!("isolated by {line}")),
            Err(error) => Finding::warn(
                "isolation",
                format!("cannot be tested: {error}"),
                "make the temporary folder writable",
            ),
        });
    }
    found
}

fn store(config: &Config) -> Vec<Finding> {
    match StoreUrl::parse(&config.store) {
        Err(error) => vec![Finding::fail("store", error.to_string(), "correct the URL of the store")],
        Ok(StoreUrl::Memory) => Vec::new(),
        Ok(StoreUrl::Sqlite(path)) => vec![match unreadable(&path) {
            Some(error) => Finding::warn(
                "store",
                format!("cannot read {}: {error}", path.display()),
                "run windlass doctor as root or as the user of the server",
            ),
            None => file(&sqlite::look(&path)),
        }],
        Ok(StoreUrl::Postgres) => database(&look(config), config.durability),
    }
}

/// Error if this user may not read a file.
fn unreadable(path: &Path) -> Option<std::io::Error> {
    std::fs::File::open(path).err().filter(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Check of an embedded store.
fn file(looked: &Result<FileState, StoreError>) -> Finding {
    let advice = "see windlass upgrade-check";
    let state = match looked {
        Ok(state) => state,
        Err(error) => return Finding::fail("store", error.to_string(), advice),
    };
    let FileState { version, newest, .. } = state;
    match &state.unfinished {
        Some(begun) => Finding::fail("store", format!("an unfinished copy, started {begun}"), advice),
        None if *version == 0 => Finding::ok("store", "none yet; a start creates it"),
        None if state.missing.is_empty() => Finding::ok("store", format!("SQLite; format {version}")),
        None => Finding::warn("store", format!("SQLite; format {version} of {newest}"), advice),
    }
}

/// Remark if the server has another store than the configuration.
fn other_store(used: &str, named: &str) -> Option<Finding> {
    let same = |scheme: &str| scheme.trim_end_matches("ql").to_owned();
    (same(used) != same(named)).then(|| {
        Finding::warn(
            "configuration",
            format!("the server uses {used}, and this configuration names {named}"),
            "give the --config, --data or --store of the server",
        )
    })
}

fn durability(durability: Durability, store: &str) -> Finding {
    match (durability, store) {
        (_, "memory") => Finding::warn(
            "durability",
            "jobs are kept in memory",
            "they are lost when the server stops: use SQLite or PostgreSQL",
        ),
        (Durability::Full, _) => {
            Finding::ok("durability", "full: a write is acknowledged when it is on disk")
        }
        (Durability::Relaxed, _) => Finding::warn(
            "durability",
            "relaxed: a power failure may lose the last acknowledged jobs",
            "set durability = \"full\" unless that is acceptable",
        ),
    }
}

struct Exposure<'a> {
    address: &'a str,
    is_loopback: bool,
    has_tls: bool,
    /// Tokens in the configuration; there may be others in the store.
    has_tokens: bool,
    is_insecure: bool,
}

fn exposure(found: &Exposure<'_>) -> Finding {
    let Exposure { address, is_loopback, has_tls, has_tokens, is_insecure } = *found;
    if is_loopback {
        return Finding::ok("exposure", format!("{address}: reachable from this machine only"));
    }
    let text = |lacking: &str| format!("{address} is reachable from other machines, without {lacking}");
    match (has_tokens, has_tls) {
        (true, true) => Finding::ok(
            "exposure",
            format!("{address} is reachable from other machines, with tokens and TLS"),
        ),
        (true, false) => Finding::warn("exposure", text("TLS"), "set tls.cert and tls.key"),
        (false, _) if is_insecure => Finding::fail(
            "exposure",
            text("tokens"),
            "create tokens (windlass token) and remove `insecure`, or listen on 127.0.0.1",
        ),
        (false, _) => {
            Finding::ok("exposure", format!("{address}: the server does not start there without tokens"))
        }
    }
}

fn look(config: &Config) -> Result<DatabaseState, StoreError> {
    let failed = |error: std::io::Error| StoreError::Open(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let looked = runtime.block_on(PostgresStore::look(&config.store, &config.postgres));
    runtime.shutdown_background();
    looked
}

fn database(looked: &Result<DatabaseState, StoreError>, durability: Durability) -> Vec<Finding> {
    let state = match looked {
        Ok(state) => state,
        Err(error) => {
            let advice = "start PostgreSQL, or correct the URL of the store";
            return vec![Finding::fail("database", error.to_string(), advice)];
        }
    };
    let mut found = vec![match &state.standing {
        Ok(standing) if standing.missing.is_empty() || standing.version == 0 => {
            Finding::ok("database", format!("PostgreSQL {}", state.version))
        }
        Ok(standing) => Finding::warn(
            "database",
            format!(
                "PostgreSQL {}; tables of version {} of {}",
                state.version, standing.version, standing.newest
            ),
            "see windlass upgrade-check",
        ),
        Err(error) => Finding::fail("database", error.to_string(), "see windlass upgrade-check"),
    }];
    found.push(commits(state, durability));
    found.push(connections(state));
    found.extend(clock(state.clock_ahead_ms));
    found
}

fn commits(state: &DatabaseState, durability: Durability) -> Finding {
    let DatabaseState { fsync, synchronous_commit, full_page_writes, .. } = state;
    let text = format!("fsync = {fsync}, synchronous_commit = {synchronous_commit}");
    let loses = fsync == "off" || synchronous_commit == "off";
    if loses && durability == Durability::Full {
        let advice =
            "the server does not start: set both to on, or accept losses with durability = \"relaxed\"";
        return Finding::fail("commits", text, advice);
    }
    if loses {
        return Finding::warn("commits", text, "acknowledged jobs may be lost: set both to on");
    }
    if full_page_writes == "off" {
        let advice = "a power failure may damage pages: set full_page_writes = on";
        return Finding::warn("commits", "full_page_writes = off", advice);
    }
    Finding::ok("commits", text)
}

fn connections(state: &DatabaseState) -> Finding {
    let DatabaseState { connections, connections_max, connections_needed, .. } = *state;
    let text = format!("{connections} of {connections_max} are in use; a server takes {connections_needed}");
    let advice = "raise max_connections of PostgreSQL, or lower store.writers";
    match connections_max.saturating_sub(connections) {
        0 => Finding::fail("db connections", text, advice),
        left if left < connections_needed => Finding::warn("db connections", text, advice),
        _ => Finding::ok("db connections", text),
    }
}

/// Remark about the clock of the database, if it differs.
fn clock(ahead_ms: i64) -> Option<Finding> {
    let word = if ahead_ms > 0 { "ahead of" } else { "behind" };
    (ahead_ms.abs() >= CLOCK_MS).then(|| {
        Finding::warn(
            "clock",
            format!("the database's clock is {} {word} this machine's", show_duration(ahead_ms.abs())),
            "servers follow the database's clock: synchronize both with NTP",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::findings::Level::{self, Fail, Ok, Warn};
    use windlass_store::postgres::Standing;

    #[track_caller]
    fn check(finding: &Finding, level: Level, words: &str) {
        let whole = format!("{} {}", finding.text, finding.advice.as_deref().unwrap_or_default());
        assert!(finding.level == level && whole.contains(words), "{finding:?} should be {level:?}: {words}");
    }

    fn state() -> DatabaseState {
        let standing = Standing { version: 8, newest: 8, missing: Vec::new(), reads_all: false };
        DatabaseState {
            version: "17.2".to_owned(),
            fsync: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            connections_max: 97,
            connections: 10,
            connections_needed: 10,
            servers: 1,
            bytes: 0,
            jobs: 0,
            clock_ahead_ms: 0,
            unfinished: None,
            standing: Result::Ok(standing),
        }
    }

    #[test]
    fn commits_that_may_be_lost() {
        for (fsync, synchronous_commit, pages, durability, level, words) in [
            ("on", "on", "on", Durability::Full, Ok, "fsync = on"),
            ("on", "remote_apply", "on", Durability::Full, Ok, "remote_apply"),
            ("on", "off", "on", Durability::Full, Fail, "does not start"),
            ("off", "on", "on", Durability::Full, Fail, "does not start"),
            ("on", "off", "on", Durability::Relaxed, Warn, "may be lost"),
            ("on", "on", "off", Durability::Full, Warn, "full_page_writes"),
        ] {
            let state = DatabaseState {
                fsync: fsync.to_owned(),
                synchronous_commit: synchronous_commit.to_owned(),
                full_page_writes: pages.to_owned(),
                ..state()
            };
            check(&commits(&state, durability), level, words);
        }
    }

    #[test]
    fn room_for_connections() {
        for (connections_now, level) in [(10, Ok), (87, Ok), (88, Warn), (97, Fail), (99, Fail)] {
            let state = DatabaseState { connections: connections_now, ..state() };
            check(&connections(&state), level, "a server takes 10");
        }
    }

    #[test]
    fn tables_and_reachability() {
        let all = database(&Result::Ok(state()), Durability::Full);
        assert!(all.iter().all(|finding| finding.level == Ok), "{all:?}");
        let away = database(&Err(StoreError::Unavailable("refused".to_owned())), Durability::Full);
        check(&away[0], Fail, "start PostgreSQL");
        let old = Standing { version: 6, newest: 8, missing: vec!["7: x".to_owned()], reads_all: true };
        let old = DatabaseState { standing: Result::Ok(old), ..state() };
        check(&database(&Result::Ok(old), Durability::Full)[0], Warn, "version 6 of 8");
        let newer = Err(StoreError::Open("the tables have version 9".to_owned()));
        let newer = DatabaseState { standing: newer, clock_ahead_ms: -3_000, ..state() };
        let found = database(&Result::Ok(newer), Durability::Full);
        check(&found[0], Fail, "version 9");
        check(found.last().unwrap(), Warn, "3s behind");
    }

    #[test]
    fn files_of_an_embedded_store() {
        let state = FileState {
            version: 3,
            newest: 3,
            missing: Vec::new(),
            reads_all: false,
            database_bytes: 1,
            log_bytes: 0,
            jobs: Some(1),
            unfinished: None,
            holder: None,
        };
        let old = FileState { version: 2, missing: vec!["3: x".to_owned()], ..state.clone() };
        let new = FileState { version: 0, missing: vec!["1: x".to_owned()], ..state.clone() };
        let copy = FileState { unfinished: Some("today".to_owned()), ..state.clone() };
        check(&file(&Result::Ok(state)), Ok, "format 3");
        check(&file(&Result::Ok(old)), Warn, "format 2 of 3 see windlass upgrade-check");
        check(&file(&Result::Ok(new)), Ok, "none yet");
        check(&file(&Result::Ok(copy)), Fail, "unfinished copy, started today");
        check(&file(&Err(StoreError::Open("format 9".to_owned()))), Fail, "format 9");
    }

    #[test]
    fn exposure_of_the_address() {
        for (is_loopback, has_tokens, has_tls, is_insecure, level, words) in [
            (true, false, false, false, Ok, "this machine only"),
            (false, true, true, false, Ok, "with tokens and TLS"),
            (false, true, false, true, Warn, "tls.cert"),
            (false, false, false, true, Fail, "windlass token"),
            (false, false, true, true, Fail, "windlass token"),
            (false, false, false, false, Ok, "does not start"),
        ] {
            let found = Exposure { address: "0.0.0.0:7373", is_loopback, has_tls, has_tokens, is_insecure };
            check(&exposure(&found), level, words);
        }
    }

    #[test]
    fn durability_of_the_store() {
        check(&durability(Durability::Full, "sqlite"), Ok, "on disk");
        check(&durability(Durability::Relaxed, "postgres"), Warn, "power failure");
        check(&durability(Durability::Full, "memory"), Warn, "in memory");
    }

    #[test]
    fn a_configuration_of_another_server_is_noticed() {
        assert_eq!(other_store("sqlite", "sqlite"), None);
        assert_eq!(other_store("postgres", "postgresql"), None);
        check(&other_store("postgres", "sqlite").unwrap(), Warn, "give the --config");
    }
}
