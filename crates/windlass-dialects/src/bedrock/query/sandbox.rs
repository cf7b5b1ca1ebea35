//! In-memory SQLite database for one statement: a `jobs` table and nothing else.
//!
//! The statement is prepared twice. The first time the table is empty, and SQLite's authorizer reports the
//! columns that the statement reads and writes: they decide whether it may run and which jobs are loaded. The
//! second time it runs. It runs on a copy, in a process of its own, and cannot reach a store.

use super::format::Table;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::hooks::{Action, AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Columns in the order of the table.
pub(super) const COLUMNS: [&str; 11] = [
    "created",
    "jobID",
    "state",
    "name",
    "nextRun",
    "lastRun",
    "repeat",
    "data",
    "priority",
    "parentJobID",
    "retryAfter",
];

pub const SCHEMA: &str = "CREATE TABLE jobs ( created TIMESTAMP NOT NULL, jobID INTEGER NOT NULL PRIMARY KEY, \
    state TEXT NOT NULL, name TEXT NOT NULL, nextRun TIMESTAMP NOT NULL, lastRun TIMESTAMP, repeat TEXT NOT NULL, \
    data TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 500, parentJobID INTEGER NOT NULL DEFAULT 0, \
    retryAfter TEXT NOT NULL DEFAULT '')";

/// Columns that UPDATE may set.
const WRITABLE: [&str; 7] = ["nextRun", "data", "priority", "repeat", "name", "retryAfter", "state"];

/// Bytes of one answer, which is built in memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of one value while jobs are copied: the largest payload.
const VALUE_BYTES_MAX: i32 = 64 << 20;
/// Minimum bound on the bytes of a value that a function produces: many functions take quadratic time.
const MADE_BYTES_MIN: usize = 1 << 20;
/// A function may produce values this many times as large as the largest row, as `hex` and quoting do.
const MADE_PER_ROW: usize = 2;
/// Bytes of a LIKE or GLOB pattern; their running time grows with it.
const PATTERN_BYTES_MAX: i32 = 1_000;
/// SQLite instructions between two checks of the time: well under a millisecond.
const STEPS_PER_LOOK: i32 = 10_000;
/// Memory of a value in addition to its text.
const VALUE_OVERHEAD: usize = 32;

pub(super) type Row = [Value; COLUMNS.len()];

/// Reason for a failed statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum QueryError {
    /// SQLite cannot parse it; `at` is the byte offset of the error.
    Bad {
        message: String,
        at: Option<usize>,
    },
    /// Not allowed.
    Refused(String),
    /// The new values violate a constraint.
    Constraint(String),
    /// A size limit would be exceeded.
    TooLarge(String),
    TimedOut,
}

/// Accesses of a statement, as reported by SQLite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accesses {
    /// The statement reads or writes the `jobs` table.
    pub reads_jobs: bool,
    /// Indexes into [`COLUMNS`].
    pub columns: BTreeSet<usize>,
    pub updates: BTreeSet<usize>,
    pub deletes: bool,
    #[serde(skip)]
    refused: Option<String>,
}

impl Accesses {
    pub(super) fn writes(&self) -> bool {
        self.deletes || !self.updates.is_empty()
    }

    fn judge(&mut self, action: AuthAction<'_>) -> Authorization {
        match action {
            AuthAction::Select | AuthAction::Recursive => Authorization::Allow,
            AuthAction::Function { function_name }
                if !function_name.eq_ignore_ascii_case("load_extension") =>
            {
                Authorization::Allow
            }
            AuthAction::Read { table_name, column_name } => {
                if table_name.eq_ignore_ascii_case("jobs") {
                    self.reads_jobs = true;
                    self.columns.extend(place_of(column_name));
                }
                Authorization::Allow
            }
            AuthAction::Delete { table_name } if table_name.eq_ignore_ascii_case("jobs") => {
                self.deletes = true;
                self.reads_jobs = true;
                // Allows the deletion, row by row, so that the update hook reports each row.
                Authorization::Ignore
            }
            AuthAction::Update { table_name, column_name } if table_name.eq_ignore_ascii_case("jobs") => {
                self.reads_jobs = true;
                match place_of(column_name).filter(|_| is_writable(column_name)) {
                    Some(place) => {
                        self.updates.insert(place);
                        self.columns.insert(place);
                        Authorization::Allow
                    }
                    None => self.refuse(format!(
                        "{column_name} cannot be changed; UPDATE may change {}",
                        WRITABLE.join(", ")
                    )),
                }
            }
            other => self.refuse(format!("{} is not allowed; {ALLOWED}", name_of(&other))),
        }
    }

    fn refuse(&mut self, why: String) -> Authorization {
        self.refused.get_or_insert(why);
        Authorization::Deny
    }
}

const ALLOWED: &str = "a query may use SELECT, DELETE FROM jobs and UPDATE jobs; create jobs with CreateJob";

fn place_of(column: &str) -> Option<usize> {
    COLUMNS.iter().position(|own| own.eq_ignore_ascii_case(column))
}

fn is_writable(column: &str) -> bool {
    WRITABLE.iter().any(|own| own.eq_ignore_ascii_case(column))
}

fn name_of(action: &AuthAction<'_>) -> &'static str {
    match action {
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }
            if table_name.starts_with("sqlite_") =>
        {
            "changing the schema"
        }
        AuthAction::Insert { .. } => "INSERT",
        AuthAction::Pragma { .. } => "PRAGMA",
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => "ATTACH",
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => "a transaction",
        AuthAction::Function { .. } => "load_extension",
        AuthAction::Update { .. } | AuthAction::Delete { .. } => "writing to another table",
        _ => "changing the schema",
    }
}

/// Change to a row of the copy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowChange {
    pub id: i64,
    /// New values, by index into [`COLUMNS`]; `None`: deleted.
    pub set: Option<Vec<(usize, Value)>>,
}

pub(super) struct Sandbox {
    db: Connection,
    wants: Arc<Mutex<Accesses>>,
    touched: Arc<Mutex<BTreeSet<i64>>>,
    /// Bytes of the largest row.
    row_bytes_max: usize,
}

impl Sandbox {
    /// Opens a sandbox that interrupts the statement at `until`, except inside a single function call.
    pub(super) fn open(until: Instant) -> Result<Sandbox, QueryError> {
        Sandbox::built(until).map_err(trouble)
    }

    fn built(until: Instant) -> rusqlite::Result<Sandbox> {
        let mut db = Connection::open_in_memory()?;
        db.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=MEMORY;")?;
        db.execute_batch(SCHEMA)?;
        db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        db.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        db.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX)?;
        db.progress_handler(STEPS_PER_LOOK, Some(move || Instant::now() >= until))?;
        Ok(Sandbox { db, wants: Arc::default(), touched: Arc::default(), row_bytes_max: 0 })
    }

    /// Makes SQLite read the files that it reads once per process.
    pub(super) fn warm_up(&self) -> Result<(), QueryError> {
        let read = self.db.query_row("SELECT random(), datetime('now', 'localtime')", [], |_| Ok(()));
        read.map_err(trouble)
    }

    /// Returns the accesses of the statement, or the reason why it may not run.
    pub(super) fn look(&mut self, sql: &str) -> Result<Accesses, QueryError> {
        self.guard().map_err(trouble)?;
        let outcome = self.db.prepare(sql).map(|statement| statement.readonly());
        self.unguard().map_err(trouble)?;
        let wants = std::mem::take(&mut *lock(&self.wants));
        match (outcome, &wants.refused) {
            (_, Some(why)) => Err(QueryError::Refused(why.clone())),
            (Err(error), None) => Err(trouble(error)),
            (Ok(is_readonly), None) if is_readonly || wants.writes() => Ok(wants),
            (Ok(_), None) => Err(QueryError::Refused(format!("this is not allowed; {ALLOWED}"))),
        }
    }

    pub(super) fn fill(&mut self, rows: impl Iterator<Item = Row>) -> Result<(), QueryError> {
        let mut largest = self.row_bytes_max;
        let filled = |db: &mut Connection| -> rusqlite::Result<()> {
            let transaction = db.transaction()?;
            {
                let marks = vec!["?"; COLUMNS.len()].join(",");
                let mut insert = transaction.prepare_cached(&format!("INSERT INTO jobs VALUES ({marks})"))?;
                for row in rows {
                    largest = largest.max(row.iter().map(size).sum());
                    insert.execute(rusqlite::params_from_iter(row))?;
                }
            }
            transaction.commit()
        };
        let outcome = filled(&mut self.db).map_err(trouble);
        self.row_bytes_max = largest;
        outcome
    }

    /// Runs the statement; if it writes, also returns the changed rows.
    pub(super) fn run(&mut self, sql: &str, wants: &Accesses) -> Result<(Table, Vec<RowChange>), QueryError> {
        self.guard().map_err(trouble)?;
        let made_max = self.row_bytes_max.saturating_mul(MADE_PER_ROW).max(MADE_BYTES_MIN);
        let made_max = i32::try_from(made_max).unwrap_or(VALUE_BYTES_MAX).min(VALUE_BYTES_MAX);
        self.db.set_limit(Limit::SQLITE_LIMIT_LENGTH, made_max).map_err(trouble)?;
        let touched = self.touched.clone();
        let note = move |_: Action, _: &str, _: &str, id: i64| {
            lock(&touched).insert(id);
        };
        self.db.update_hook(Some(note)).map_err(trouble)?;
        let answer = self.answer(sql);
        self.unguard().map_err(trouble)?;
        // Some accesses, such as a PRAGMA used as a table, are reported only now.
        if let Some(why) = lock(&self.wants).refused.take() {
            return Err(QueryError::Refused(why));
        }
        let table = answer?;
        let ids = std::mem::take(&mut *lock(&self.touched));
        let touched = self.values(ids, wants).map_err(trouble)?;
        Ok((table, touched))
    }

    fn answer(&self, sql: &str) -> Result<Table, QueryError> {
        let mut statement = self.db.prepare(sql).map_err(trouble)?;
        let mut table = Table { headers: headers(&statement), rows: Vec::new() };
        let mut bytes = 0;
        let mut rows = statement.query([]).map_err(trouble)?;
        while let Some(row) = rows.next().map_err(trouble)? {
            let values: Vec<Value> = (0..table.headers.len())
                .map(|at| row.get_ref(at).map(owned))
                .collect::<Result<_, _>>()
                .map_err(trouble)?;
            bytes += values.iter().map(size).sum::<usize>();
            check_answer(bytes)?;
            table.rows.push(values);
        }
        Ok(table)
    }

    fn values(&self, ids: BTreeSet<i64>, wants: &Accesses) -> rusqlite::Result<Vec<RowChange>> {
        let places: Vec<usize> = wants.updates.iter().copied().collect();
        let names: Vec<&str> = places.iter().map(|place| COLUMNS[*place]).collect();
        let columns = if names.is_empty() { "1".to_owned() } else { names.join(",") };
        let mut select = self.db.prepare(&format!("SELECT {columns} FROM jobs WHERE jobID = ?"))?;
        let mut touched = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = select.query([id])?;
            let set = match rows.next()? {
                None => None,
                Some(row) => {
                    let value = |(at, place): (usize, &usize)| Ok((*place, owned(row.get_ref(at)?)));
                    Some(places.iter().enumerate().map(value).collect::<rusqlite::Result<Vec<_>>>()?)
                }
            };
            touched.push(RowChange { id, set });
        }
        Ok(touched)
    }

    fn guard(&mut self) -> rusqlite::Result<()> {
        let wants = self.wants.clone();
        self.db.authorizer(Some(move |context: AuthContext<'_>| lock(&wants).judge(context.action)))
    }

    fn unguard(&mut self) -> rusqlite::Result<()> {
        self.db.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)
    }
}

pub(super) fn check_answer(bytes: usize) -> Result<(), QueryError> {
    if bytes <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    let limit = ANSWER_BYTES_MAX >> 20;
    Err(QueryError::TooLarge(format!("the result exceeds {limit} MiB; add LIMIT, or select fewer columns")))
}

/// Memory of a value.
pub(super) fn size(value: &Value) -> usize {
    VALUE_OVERHEAD
        + match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
        }
}

fn headers(statement: &Statement<'_>) -> Vec<String> {
    statement.column_names().map(str::to_owned).collect()
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        other => other.try_into().unwrap_or(Value::Null),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

fn trouble(error: rusqlite::Error) -> QueryError {
    let (code, message) = match &error {
        rusqlite::Error::SqlInputError { msg, offset, .. } => {
            return QueryError::Bad { message: msg.clone(), at: usize::try_from(*offset).ok() };
        }
        rusqlite::Error::MultipleStatement => {
            let message = "a query must be a single statement".to_owned();
            return QueryError::Bad { message, at: None };
        }
        rusqlite::Error::SqliteFailure(failure, message) => {
            (failure.code, message.clone().unwrap_or_else(|| failure.to_string()))
        }
        other => return QueryError::Bad { message: other.to_string(), at: None },
    };
    match code {
        ErrorCode::OperationInterrupted => QueryError::TimedOut,
        ErrorCode::ConstraintViolation => QueryError::Constraint(message),
        ErrorCode::TooBig | ErrorCode::OutOfMemory | ErrorCode::DiskFull => QueryError::TooLarge(message),
        _ => QueryError::Bad { message, at: None },
    }
}
