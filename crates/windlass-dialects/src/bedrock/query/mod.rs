//! `Query`: SQL over a `jobs` table, independent of the store.
//!
//! | file | contents |
//! |---|---|
//! | `narrow.rs`, `tokens.rs` | which jobs a statement can concern |
//! | `parameters.rs` | values of bound parameters |
//! | `load.rs` | loads those jobs page by page, as rows |
//! | `pool.rs`, `child.rs` | processes that run statements, and their limits |
//! | `message.rs`, `guest.rs` | messages to and from such a process; its main loop |
//! | `sandbox.rs` | in-memory SQLite database on which the statement runs, and its restrictions |
//! | `writes.rs` | changes made by UPDATE and DELETE, as engine calls |
//! | `format.rs` | output formats |
//!
//! Time, number of jobs, memory, size of the answer and concurrency are bounded. A statement cannot be
//! interrupted inside one of SQLite's functions, so it runs in a process that can be killed.

mod child;
mod format;
mod guest;
mod load;
mod message;
mod narrow;
pub mod parameters;
mod pool;
mod sandbox;
mod tokens;
mod writes;

pub use child::Program;
pub use format::{Cli, Format, Mode, Typing};
pub use guest::serve;
pub use message::QueryLimits;
pub use sandbox::SCHEMA;

use super::Profile;
use message::Run;
use pool::{Pool, Search};
use sandbox::{QueryError, RowChange};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::{Engine, EngineError, JobEvent, Stop, VerbError};

/// Time limit of a statement, whatever timeout its client sends.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Query of a client.
#[derive(Clone, Debug)]
pub struct Ask {
    pub tenant: Tenant,
    pub sql: String,
    /// Header `Format`.
    pub format: Option<String>,
    /// Header `ReadDBFlags` or `SQLiteArgs`.
    pub flags: Option<String>,
    /// Accepts UPDATE and DELETE without WHERE.
    pub nowhere: bool,
    /// The caller may change jobs by SQL.
    pub may_write: bool,
    /// `false`: every job's `data` is an empty object.
    pub sees_payloads: bool,
    pub profile: Profile,
    /// Timeout of the client.
    pub patience: Duration,
}

/// Reply: status line, headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    fn status(status: &'static str) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    fn error(status: &'static str, error: impl Into<String>) -> Answer {
        Answer { headers: vec![("error", error.into())], ..Answer::status(status) }
    }
}

/// Runs queries with bounded concurrency. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Queries {
    pool: Arc<Pool>,
}

impl Queries {
    /// `program` starts the processes in which statements run.
    pub fn new(program: Option<Program>, limits: QueryLimits) -> Queries {
        Queries { pool: Arc::new(Pool::new(program, limits)) }
    }

    pub async fn answer(&self, engine: &Engine, ask: Ask) -> Answer {
        match self.answered(engine, &ask).await {
            Ok(answer) => answer,
            Err(Failure::Trouble(trouble)) => of_trouble(trouble, &ask.sql),
            Err(Failure::Engine(error)) => Answer::error("502 Query failed", error.to_string()),
            Err(Failure::Rules(why) | Failure::Process(why)) => Answer::error("502 Query failed", why),
        }
    }

    async fn answered(&self, engine: &Engine, ask: &Ask) -> Result<Answer, Failure> {
        let sql = ask.sql.trim();
        if sql.is_empty() {
            return Ok(Answer::status("402 Missing query"));
        }
        if let Some(about) = schema_of(sql) {
            return Ok(schema(about));
        }
        if !sql.ends_with(';') {
            return Ok(Answer::status("502 Query Missing Semicolon"));
        }
        if !ask.nowhere && lacks_where(sql) {
            let why = "UPDATE and DELETE require WHERE; send `nowhere: true` to change all jobs";
            return Ok(Answer::error("502 Query aborted", why));
        }
        let format = match format_of(ask) {
            Ok(format) => format,
            Err(why) => return Ok(Answer::error("402 Bad query", why)),
        };
        let until = Instant::now() + ask.patience.min(TIME_MAX);
        let look = || async {
            let search = Search {
                engine: engine.clone(),
                tenant: ask.tenant.clone(),
                run: Run { sql: sql.to_owned(), format: format.clone(), left_ms: 0 },
                may_write: ask.may_write,
                sees_payloads: ask.sees_payloads,
                until,
            };
            let found = self.pool.run(search).await?;
            Ok((found.changes.iter().map(|change| change.job.clone()).collect(), found))
        };
        let answered = engine.transact_seen(&ask.tenant, look, |tx, found: &pool::Outcome| {
            let events = writes::events(&found.changes, ask.profile, tx.now());
            let mut refused = Vec::new();
            for JobEvent { id, event } in events.map_err(QueryError::Refused).map_err(Failure::from)? {
                refused.extend(tx.apply(id, event)?.err().map(|why| (id, why)));
            }
            match refused.is_empty() {
                true => Ok(()),
                false => Err(Failure::Rules(why_not(&refused)).into()),
            }
        });
        let ((), found) = answered.await?;
        Ok(Answer { body: found.body, ..Answer::status("200 OK") })
    }
}

enum Failure {
    Trouble(QueryError),
    Engine(EngineError),
    /// The rules of a job do not permit the change.
    Rules(String),
    /// No process is available.
    Process(String),
}

impl From<Failure> for Stop<Failure> {
    fn from(failure: Failure) -> Stop<Failure> {
        Stop::Refuse(failure)
    }
}

impl From<QueryError> for Failure {
    fn from(trouble: QueryError) -> Failure {
        Failure::Trouble(trouble)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure::Engine(error)
    }
}

/// Job as the statement saw it, and the change to its row.
#[derive(Debug)]
struct Change {
    job: Arc<Job>,
    touched: RowChange,
}

fn of_trouble(trouble: QueryError, sql: &str) -> Answer {
    match trouble {
        QueryError::Bad { message, at } => {
            let body = snippet(&message, sql.trim(), at).into_bytes();
            Answer { body, ..Answer::error("402 Bad query", message) }
        }
        QueryError::Refused(why) | QueryError::TooLarge(why) => Answer::error("502 Query aborted", why),
        QueryError::Constraint(why) => Answer::error("400 Unique Constraints Violation", why),
        QueryError::TimedOut => {
            let why = "the query exceeded its time limit; restrict it by jobID, name or state";
            Answer::error("555 Timeout peeking command", why)
        }
    }
}

/// Error message, with the part of the statement that it concerns.
fn snippet(message: &str, sql: &str, at: Option<usize>) -> String {
    /// Characters shown before and after the error.
    const AROUND: usize = 38;
    let mut text = format!("{message}\n");
    let Some((before, after)) = at.and_then(|at| sql.split_at_checked(at)) else { return text };
    let skipped = before.chars().count().saturating_sub(AROUND);
    let line = |part: &str| part.replace(['\n', '\r', '\t'], " ");
    let before: String = line(before).chars().skip(skipped).collect();
    let after: String = line(after).chars().take(AROUND).collect();
    let arrow = " ".repeat(before.chars().count());
    text.push_str(&format!("  {before}{after}\n  {arrow}^--- error here\n"));
    text
}

fn why_not(refused: &[(JobId, VerbError)]) -> String {
    match refused {
        [(id, why)] => format!("job {id}: {why}"),
        [(id, why), rest @ ..] => format!("job {id}: {why}; and {} more", rest.len()),
        [] => "refused".to_owned(),
    }
}

/// Table named in `.schema [table]`.
fn schema_of(sql: &str) -> Option<&str> {
    let about = sql.strip_prefix(".schema")?;
    (about.is_empty() || about.starts_with([' ', ';'])).then(|| about.trim().trim_end_matches(';').trim())
}

fn schema(about: &str) -> Answer {
    let is_ours = about.is_empty() || about.eq_ignore_ascii_case("jobs");
    let body = if is_ours { format!("{};\n", sandbox::SCHEMA).into_bytes() } else { Vec::new() };
    Answer { body, ..Answer::status("200 OK") }
}

fn lacks_where(sql: &str) -> bool {
    // A statement that has no valid tokens is left for SQLite to refuse.
    let Some(words) = tokens::tokens(sql) else { return false };
    let writes = words.first().is_some_and(|first| first.is("update") || first.is("delete"));
    writes && !words.iter().any(|word| word.is("where"))
}

fn format_of(ask: &Ask) -> Result<Format, String> {
    let is_seed = ask.profile.query_answers_arrays();
    let typing = if is_seed { Typing::Plain } else { Typing::Guessed };
    if let Some(flags) = ask.flags.as_deref().filter(|flags| !flags.trim().is_empty()) {
        return Cli::parse(flags).map(Format::Cli);
    }
    match ask.format.as_deref() {
        Some(format) if format.eq_ignore_ascii_case("json") => Ok(Format::HeadersAndRows(typing)),
        _ if is_seed => Ok(Format::Arrays(typing)),
        _ => Ok(Format::Cli(Cli::default())),
    }
}
