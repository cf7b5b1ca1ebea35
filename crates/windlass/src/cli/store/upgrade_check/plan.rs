//! Readings of a store, and what follows from them.

use crate::cli::findings::Finding;
use crate::config::Config;
use crate::human_time::{show_bytes, show_duration};
use crate::output;
use serde_json::{Value, json};
use std::path::Path;
use windlass_store::postgres::{DatabaseState, PostgresStore};
use windlass_store::sqlite::{self, FileState};
use windlass_store::{StoreError, StoreUrl};

/// Reading speed on which the estimate of the time is based: that of a slow disk.
const BYTES_PER_SECOND: u64 = 50_000_000;
/// Disk space that the upgrade itself takes at most: a few pages of tables, and their copies in the log.
const UPGRADE_BYTES: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// The URL names no store.
    Unknown,
    Memory,
    Embedded,
    Postgres,
}

/// Store as this binary finds it. In the order of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub kind: StoreKind,
    /// URL without the password.
    pub store: String,
    /// Reason why this binary cannot take it over.
    pub refusal: Option<String>,
    /// Format before and after the start; 0: there is no store yet.
    pub version: u64,
    pub newest: u64,
    pub steps: Vec<String>,
    /// True if a step reads every job.
    pub reads_all: bool,
    pub jobs: Option<u64>,
    /// Bytes of the tables, including the write-ahead log.
    pub bytes: u64,
    /// Write-ahead log of an embedded store.
    pub log_bytes: u64,
    /// Free space beside an embedded store.
    pub free_bytes: Option<u64>,
    /// Servers that use it now, in a few words.
    pub server: Option<String>,
}

impl Plan {
    /// Reads the store of a configuration and changes nothing.
    pub(super) fn read(config: &Config) -> Plan {
        let store = output::without_password(&config.store);
        match StoreUrl::parse(&config.store) {
            Err(error) => Plan { refusal: Some(error.to_string()), ..Plan::empty(StoreKind::Unknown, store) },
            Ok(StoreUrl::Memory) => Plan::empty(StoreKind::Memory, store),
            Ok(StoreUrl::Sqlite(path)) => Plan::of_file(store, sqlite::look(&path), free_beside(&path)),
            Ok(StoreUrl::Postgres) => Plan::read_database(config, store),
        }
    }

    fn read_database(config: &Config, store: String) -> Plan {
        let looked = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
            let looked = runtime.block_on(PostgresStore::look(&config.store, &config.postgres));
            // The connection is closed by a task, which ends with the runtime.
            runtime.shutdown_background();
            looked
        });
        Plan::of_database(store, looked.unwrap_or_else(|error| Err(StoreError::Open(error.to_string()))))
    }

    fn empty(kind: StoreKind, store: String) -> Plan {
        Plan {
            kind,
            store,
            refusal: None,
            version: 0,
            newest: 0,
            steps: Vec::new(),
            reads_all: false,
            jobs: None,
            bytes: 0,
            log_bytes: 0,
            free_bytes: None,
            server: None,
        }
    }

    pub(super) fn of_file(
        store: String,
        looked: Result<FileState, StoreError>,
        free_bytes: Option<u64>,
    ) -> Plan {
        let plan = Plan::empty(StoreKind::Embedded, store);
        match looked {
            Err(error) => Plan { refusal: Some(error.to_string()), ..plan },
            Ok(state) => Plan {
                refusal: state.unfinished.as_deref().map(unfinished_copy),
                version: state.version.unsigned_abs(),
                newest: state.newest.unsigned_abs(),
                steps: state.missing,
                reads_all: state.reads_all,
                jobs: state.jobs,
                bytes: state.database_bytes + state.log_bytes,
                log_bytes: state.log_bytes,
                free_bytes,
                server: state.holder.map(|pid| format!("a server (pid {pid})")),
                ..plan
            },
        }
    }

    pub(super) fn of_database(store: String, looked: Result<DatabaseState, StoreError>) -> Plan {
        let plan = Plan::empty(StoreKind::Postgres, store);
        let state = match looked {
            Err(error) => return Plan { refusal: Some(error.to_string()), ..plan },
            Ok(state) => state,
        };
        let plan = Plan {
            refusal: state.unfinished.as_deref().map(unfinished_copy),
            jobs: Some(state.jobs),
            bytes: state.bytes,
            server: match state.servers {
                0 => None,
                1 => Some("1 server is".to_owned()),
                several => Some(format!("{several} servers are")),
            },
            ..plan
        };
        match state.standing {
            Err(error) => Plan { refusal: Some(error.to_string()), ..plan },
            Ok(standing) => Plan {
                version: standing.version as u64,
                newest: standing.newest as u64,
                steps: standing.missing,
                reads_all: standing.reads_all,
                ..plan
            },
        }
    }

    /// True if a start would change the format.
    pub(super) fn is_pending(&self) -> bool {
        self.version > 0 && !self.steps.is_empty()
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        if self.kind == StoreKind::Memory {
            return vec![Finding::ok("format", "the store is in memory: there is nothing to take over")];
        }
        let mut found = vec![self.about_format()];
        if self.refusal.is_some() {
            return found;
        }
        found.extend(self.about_steps());
        found.extend(self.about_cost());
        found.extend(self.about_log());
        found.push(self.about_server());
        found
    }

    fn about_format(&self) -> Finding {
        let Plan { store, version, newest, .. } = self;
        match &self.refusal {
            Some(why) => Finding::fail("format", format!("{store} cannot be taken over"), why.clone()),
            None if *version == 0 => Finding::ok(
                "format",
                format!("{store}: no store yet; a start creates one of format {newest}"),
            ),
            None if version == newest => {
                Finding::ok("format", format!("{store}: format {version}, the one that this version uses"))
            }
            None => {
                Finding::ok("format", format!("{store}: format {version}; a start upgrades it to {newest}"))
            }
        }
    }

    fn about_steps(&self) -> Vec<Finding> {
        if !self.is_pending() {
            let text = format!("binaries that support format {} can still open it", self.newest);
            return if self.version == 0 { Vec::new() } else { vec![Finding::ok("way back", text)] };
        }
        let advice = match self.kind {
            StoreKind::Embedded => "take a backup first: windlass backup FILE",
            StoreKind::Unknown | StoreKind::Memory | StoreKind::Postgres => {
                "take a backup of the database first, with pg_dump"
            }
        };
        vec![
            Finding::ok("migrations", format!("{}, in one transaction", self.steps.join(", "))),
            Finding::warn(
                "way back",
                format!("afterwards, binaries that support only formats below {} refuse it", self.newest),
                advice,
            ),
        ]
    }

    fn about_cost(&self) -> Option<Finding> {
        if self.version == 0 {
            return None;
        }
        let is_embedded = self.kind == StoreKind::Embedded;
        let about = if is_embedded { "" } else { "about " };
        let jobs = self.jobs.map_or_else(String::new, |jobs| format!("{about}{jobs} jobs, "));
        let size = format!("{jobs}{}", show_bytes(self.bytes));
        // An embedded store is read as a whole at every start.
        let reads = is_embedded || (self.is_pending() && self.reads_all);
        let seconds = self.bytes.div_ceil(BYTES_PER_SECOND).max(1);
        let time = match reads {
            true => {
                let estimate =
                    show_duration(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000));
                format!("reads all of it once: about {estimate} at {}/s", show_bytes(BYTES_PER_SECOND))
            }
            false => "reads no jobs: less than a second".to_owned(),
        };
        let disk = match (self.is_pending(), self.free_bytes) {
            (true, Some(free)) => {
                format!("; needs {} of the {} that are free", show_bytes(UPGRADE_BYTES), show_bytes(free))
            }
            (true, None) => format!("; needs about {} more", show_bytes(UPGRADE_BYTES)),
            (false, _) => String::new(),
        };
        let text = format!("{size}; the start {time}{disk}");
        let lacks = |bytes: u64| self.is_pending() && self.free_bytes.is_some_and(|free| free < bytes);
        if lacks(UPGRADE_BYTES) {
            return Some(Finding::fail("time and disk", text, "free some disk space first"));
        }
        if lacks(self.bytes + UPGRADE_BYTES) {
            let advice = "a backup does not fit on this disk; write it to another";
            return Some(Finding::warn("time and disk", text, advice));
        }
        Some(Finding::ok("time and disk", text))
    }

    /// Remarks about a store that was not closed.
    fn about_log(&self) -> Vec<Finding> {
        if self.log_bytes == 0 || self.server.is_some() {
            return Vec::new();
        }
        let log = show_bytes(self.log_bytes);
        vec![
            Finding::ok("unclean stop", format!("the start recovers the write-ahead log of {log} first")),
            Finding::warn(
                "not checked",
                "because of the write-ahead log: unfinished copies, lost commits",
                "the start checks both, and refuses the store if it finds them",
            ),
        ]
    }

    fn about_server(&self) -> Finding {
        match (&self.server, self.kind) {
            (None, _) => Finding::ok("server", "none uses the store now"),
            (Some(server), StoreKind::Postgres) if self.is_pending() => Finding::warn(
                "server",
                format!("{server} on these tables now"),
                "stop all of them before the start: two versions must not use the same tables",
            ),
            (Some(server), StoreKind::Postgres) => {
                Finding::ok("server", format!("{server} on these tables now"))
            }
            (Some(server), _) => Finding::warn(
                "server",
                format!("{server} uses the store now"),
                "stop it before the start: a second one is refused",
            ),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let after = if self.refusal.is_none() { json!(self.newest) } else { Value::Null };
        json!({
            "store": self.store, "format": self.version, "format_after": after, "migrations": self.steps,
            "older_binaries_can_open": !self.is_pending(), "jobs": self.jobs, "bytes": self.bytes,
            "free_bytes": self.free_bytes, "server": self.server,
        })
    }
}

fn unfinished_copy(begun: &str) -> String {
    format!("it is an unfinished copy, started {begun}; run `windlass copy` again to finish it")
}

/// Free space on the disk of a file, or of its nearest folder that exists.
fn free_beside(path: &Path) -> Option<u64> {
    let mut places = path.ancestors().map(|place| match place.as_os_str().is_empty() {
        true => Path::new("."),
        false => place,
    });
    let found = places.find_map(|place| rustix::fs::statvfs(place).ok())?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
