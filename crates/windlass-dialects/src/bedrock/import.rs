//! Reader of a Bedrock database file, and the rules for importing its jobs.
//!
//! It writes nothing and calls no server. [`Source::open`] opens the file; [`Source::each`] reads it row by
//! row, parents before children, and reports for each job how it is imported or why it cannot be.

use super::row;
use super::{Profile, commands, json, times};
use rusqlite::{Connection, OpenFlags, Row};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use windlass_core::repeat::{Repeat, Span};
use windlass_core::{Name, Policy};

#[cfg(test)]
mod tests;

/// Required columns of a Bedrock file.
const COLUMNS: &str =
    "jobID, created, state, name, nextRun, lastRun, repeat, data, priority, parentJobID, retryAfter";

/// Treatment of jobs that a worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunningRows {
    /// Queued again: the worker that has the job does not report to this server.
    #[default]
    Queue,
    /// Marked failed, for inspection by an operator.
    Fail,
}

#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Determines how repeat rules are parsed.
    pub profile: Profile,
    pub running: RunningRows,
}

/// Job in the format of `POST /api/v1/import`, except for its parent, of which only the old id is known.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub alias: String,
    pub name: String,
    pub queue: &'static str,
    pub payload: Box<RawValue>,
    pub priority: i32,
    pub stands: &'static str,
    pub created_at: i64,
    pub due_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    pub failure_settles: bool,
    pub policy: Policy,
    pub origin: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<&'static str, String>,
}

/// Result for one row.
#[derive(Debug)]
pub struct RowResult {
    pub job_id: i64,
    /// State in the file.
    pub state: String,
    pub outcome: ImportOutcome,
}

#[derive(Debug)]
pub enum ImportOutcome {
    Import {
        entry: Box<Entry>,
        /// Old id of the parent that the job is imported with.
        parent: Option<i64>,
        /// Other jobs name it as their parent, so its new id must be remembered.
        has_children: bool,
        /// Difference from the state in the file, if there is one.
        note: Option<&'static str>,
    },
    /// Not imported, with the reason.
    Leave(String),
}

pub struct ImportSource {
    db: Connection,
    choices: Choices,
    /// State of every job that others name as their parent, and whether it is a child itself.
    parents: HashMap<i64, (String, bool)>,
}

impl ImportSource {
    pub fn open(path: &Path, choices: Choices) -> Result<ImportSource, Unreadable> {
        if !path.is_file() {
            return Err(Unreadable(format!("file {} not found", path.display())));
        }
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(unreadable)?;
        db.prepare(&format!("SELECT {COLUMNS} FROM jobs")).map_err(unreadable)?;
        let parents = parents(&db).map_err(unreadable)?;
        Ok(ImportSource { db, choices, parents })
    }

    pub fn count(&self) -> Result<u64, Unreadable> {
        self.db
            .query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
            .map_err(unreadable)
    }

    /// Visits every job, parents before their children. An error of `tell` stops the iteration.
    pub fn each<E: From<Unreadable>>(
        &self,
        mut tell: impl FnMut(RowResult) -> Result<(), E>,
    ) -> Result<(), E> {
        for children in [false, true] {
            let mut select = self
                .db
                .prepare(&format!("SELECT {COLUMNS} FROM jobs WHERE (parentJobID != 0) = ?1 ORDER BY jobID"))
                .map_err(|error| E::from(unreadable(error)))?;
            let mut rows = select.query([children]).map_err(|error| E::from(unreadable(error)))?;
            while let Some(row) = rows.next().map_err(|error| E::from(unreadable(error)))? {
                tell(self.fate(row))?;
            }
        }
        Ok(())
    }

    fn fate(&self, row: &Row<'_>) -> RowResult {
        match Old::read(row) {
            Ok(old) => {
                let outcome = self.outcome(&old).unwrap_or_else(ImportOutcome::Leave);
                RowResult { job_id: old.id, state: old.state, outcome }
            }
            Err(error) => RowResult {
                job_id: row.get("jobID").unwrap_or(0),
                state: row.get("state").unwrap_or_default(),
                outcome: ImportOutcome::Leave(format!("its row is unreadable: {error}")),
            },
        }
    }

    fn outcome(&self, old: &Old) -> Result<ImportOutcome, String> {
        let (parent, orphaned) = self.parent_of(old)?;
        let has_children = self.parents.contains_key(&old.id) && parent.is_none();
        let (stands, mut note) = self.stands(old, has_children)?;
        if matches!(stands, "completed" | "cancelled") && parent.is_none() {
            return Err(format!("it is {} and no parent waits for it", old.state));
        }
        note = note.or(orphaned);
        let entry = Box::new(self.entry(old, stands, parent.is_some())?);
        Ok(ImportOutcome::Import { entry, parent, has_children: has_children && stands == "waiting", note })
    }

    /// Parent that the job is imported with. Only a parent that is still to run qualifies; other children are
    /// imported on their own.
    fn parent_of(&self, old: &Old) -> Result<(Option<i64>, Option<&'static str>), String> {
        if old.parent == 0 {
            return Ok((None, None));
        }
        match self.parents.get(&old.parent) {
            Some((_, true)) => Err("it is the child of a child".to_owned()),
            Some((state, false)) if self.goes_on(state) => Ok((Some(old.parent), None)),
            Some(_) => Ok((None, Some("imported without its parent, which has ended"))),
            None => Ok((None, Some("imported without its parent, which no longer exists"))),
        }
    }

    fn goes_on(&self, state: &str) -> bool {
        match state {
            "QUEUED" | "PAUSED" => true,
            "RUNNING" | "RUNQUEUED" => self.choices.running == RunningRows::Queue,
            _ => false,
        }
    }

    /// State of the imported job, and a note if it differs from the file.
    fn stands(&self, old: &Old, has_children: bool) -> Result<(&'static str, Option<&'static str>), String> {
        let is_out = matches!(old.state.as_str(), "RUNNING" | "RUNQUEUED");
        Ok(match old.state.as_str() {
            _ if is_out && self.choices.running == RunningRows::Fail => {
                ("failed", Some("imported as failed: it was running"))
            }
            "QUEUED" if !has_children => ("ready", None),
            "RUNNING" if !has_children => ("ready", Some("queued again: it was running")),
            "RUNQUEUED" if !has_children => ("ready", Some("queued for its nextRun: it was running")),
            "PAUSED" if !has_children && old.parent == 0 => {
                ("ready", Some("queued: it was PAUSED without unfinished children"))
            }
            "PAUSED" if !has_children => ("ready", None),
            "QUEUED" | "PAUSED" => ("waiting", None),
            "RUNNING" | "RUNQUEUED" => ("waiting", Some("runs again after its children: it was running")),
            "FINISHED" => ("completed", None),
            "FAILED" => ("failed", None),
            "CANCELLED" => ("cancelled", None),
            other => return Err(format!("unknown state {other:?}")),
        })
    }

    fn entry(&self, old: &Old, stands: &'static str, is_child: bool) -> Result<Entry, String> {
        Name::new(&old.name).map_err(|error| format!("invalid name: {error}"))?;
        if !json::is_object(&old.data) {
            return Err("its data is not a JSON object".to_owned());
        }
        let profile = self.choices.profile;
        let repeat = match old.repeat.as_str() {
            "" => None,
            text => {
                let rule = Repeat::parse_styled(&profile.repeat_text(text), profile.repeat_style());
                Some(rule.map_err(|error| format!("invalid repeat: {error}"))?)
            }
        };
        let retry_after = match old.retry_after.as_str() {
            "" => None,
            text => Some(Span::parse(text).map_err(|error| format!("invalid retryAfter: {error}"))?),
        };
        let data = plain_data(&old.data);
        let due_at = times::moment_of(&old.next_run);
        let mut facts = BTreeMap::new();
        if times::shortest(due_at) != old.next_run {
            facts.insert(row::NEXT_RUN, old.next_run.clone());
        }
        Ok(Entry {
            alias: format!("bedrock-{}", old.id),
            name: old.name.clone(),
            queue: if is_mocked(&old.data) { row::MOCK_QUEUE } else { row::QUEUE },
            payload: RawValue::from_string(data).map_err(|error| error.to_string())?,
            priority: row::engine_priority(old.priority),
            stands,
            created_at: times::moment_of(&old.created).as_millis(),
            due_at: due_at.as_millis(),
            started_at: old.last_run.as_deref().map(|text| times::moment_of(text).as_millis()),
            parent: None,
            // A child that failed in Bedrock does not block its parent there either.
            failure_settles: stands == "failed" || profile == Profile::Seed,
            policy: commands::policy(profile, repeat, retry_after, is_child.then_some(true)),
            origin: "bedrock",
            facts,
        })
    }
}

/// Row as read from the file.
struct Old {
    id: i64,
    created: String,
    state: String,
    name: String,
    next_run: String,
    last_run: Option<String>,
    repeat: String,
    data: String,
    priority: i64,
    parent: i64,
    retry_after: String,
}

impl Old {
    fn read(row: &Row<'_>) -> rusqlite::Result<Old> {
        Ok(Old {
            id: row.get("jobID")?,
            created: row.get("created")?,
            state: row.get("state")?,
            name: row.get("name")?,
            next_run: row.get("nextRun")?,
            last_run: row.get::<_, Option<String>>("lastRun")?.filter(|text| !text.is_empty()),
            repeat: row.get("repeat")?,
            data: row.get("data")?,
            priority: row.get("priority")?,
            parent: row.get("parentJobID")?,
            retry_after: row.get("retryAfter")?,
        })
    }
}

fn parents(db: &Connection) -> rusqlite::Result<HashMap<i64, (String, bool)>> {
    let mut named = db.prepare("SELECT DISTINCT parentJobID FROM jobs WHERE parentJobID != 0")?;
    let named: HashSet<i64> = named.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut look = db.prepare("SELECT state, parentJobID FROM jobs WHERE jobID = ?")?;
    let mut parents = HashMap::with_capacity(named.len());
    for id in named {
        let mut rows = look.query([id])?;
        if let Some(row) = rows.next()? {
            parents.insert(id, (row.get(0)?, row.get::<_, i64>(1)? != 0));
        }
    }
    Ok(parents)
}

/// Removes Bedrock's counters from the data; here they are kept beside the data.
fn plain_data(data: &str) -> String {
    let is_noted = |name: &str| json::get(&json::minified(data), name).is_some();
    match is_noted("retryAfterCount") || is_noted("originalNextRun") {
        true => json::without(&json::without(data, "retryAfterCount"), "originalNextRun"),
        false => data.to_owned(),
    }
}

fn is_mocked(data: &str) -> bool {
    data.contains("mockRequest") && json::get(&json::minified(data), "mockRequest") == Some("true")
}

/// Reason why a file cannot be read, and advice.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

fn unreadable(error: rusqlite::Error) -> Unreadable {
    Unreadable(format!(
        "cannot read the file as a Bedrock database ({error}); stop Bedrock first; if the file has \
         Bedrock's own journal format, make a plain copy with Bedrock's sqlite3: VACUUM INTO \
         'copy.db'"
    ))
}
