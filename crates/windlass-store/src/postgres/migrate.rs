//! Migrations of the tables. If several servers start at once, one migrates, and the others wait and find it
//! done.

use super::options::Address;
use super::statements::quote;
use crate::error::StoreError;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tracing::info;

/// Older versions lack features that the statements use.
const POSTGRES_VERSION_MIN: i32 = 130_000;
/// Time limit for another server's migration.
const LOCK_MAX: Duration = Duration::from_secs(300);
/// Time limit for a trivial query.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// Migrations in order; never changed once released.
const MIGRATIONS: &[Migration] = &[
    Migration { what: "jobs, lanes, settings, blobs", sql: include_str!("migrations/0001_jobs.sql") },
    Migration { what: "push from SQL", sql: include_str!("migrations/0002_push.sql") },
    Migration { what: "lanes by their birth", sql: include_str!("migrations/0003_lanes_by_birth.sql") },
    Migration { what: "a timeline beside the clock", sql: include_str!("migrations/0004_timeline.sql") },
    Migration { what: "bytes of payloads", sql: include_str!("migrations/0005_payload_bytes.sql") },
    Migration { what: "dates of pushes from SQL", sql: include_str!("migrations/0006_dates.sql") },
    Migration { what: "retried jobs", sql: include_str!("migrations/0007_retried.sql") },
    Migration { what: "audit log", sql: include_str!("migrations/0008_audit.sql") },
];

struct Migration {
    what: &'static str,
    sql: &'static str,
}

/// Numbers of the migrations that read every job, so that their time grows with the tables.
const READING_ALL: [usize; 2] = [5, 7];

/// Existing and required version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// 0: no tables yet.
    pub version: usize,
    pub newest: usize,
    /// Pending migrations, in order.
    pub missing: Vec<String>,
    /// True if a pending migration reads every job.
    pub reads_all: bool,
}

/// Reads the version and changes nothing.
pub(super) async fn look(address: &Address) -> Result<Standing, StoreError> {
    standing(&connect(address).await?, &address.schema).await
}

/// Applies all pending migrations in one transaction; returns the version found before.
pub(super) async fn migrate(address: &Address) -> Result<Standing, StoreError> {
    let mut client = connect(address).await?;
    let step = in_time(client.transaction()).await?;
    // Lock per schema: other schemas of the same database may be migrated at the same time.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('windlass migrate ' || $1, 0))";
    tokio::time::timeout(LOCK_MAX, step.execute_typed(lock, &[(&address.schema, Type::TEXT)]))
        .await
        .map_err(|_| {
            StoreError::Open("timed out while another server migrates the tables; retry".to_owned())
        })?
        .map_err(open_error)?;
    let before = standing(step.client(), &address.schema).await?;
    if before.missing.is_empty() {
        return Ok(before);
    }
    let schema = quote(&address.schema);
    let begin = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
         CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());"
    );
    step.batch_execute(&begin).await.map_err(open_error)?;
    for (number, migration) in MIGRATIONS.iter().enumerate().skip(before.version) {
        let channel = format!("'{}'", super::notifications::channel(&address.schema));
        let sql = migration.sql.replace("{s}", &schema).replace("{channel}", &channel);
        step.batch_execute(&sql).await.map_err(|error| at_step(number + 1, migration, &error))?;
        let record = format!("INSERT INTO {schema}.migrations (version) VALUES ({})", number + 1);
        step.batch_execute(&record).await.map_err(open_error)?;
    }
    step.commit().await.map_err(open_error)?;
    info!("the tables in {} were migrated to version {}", address.shown, before.newest);
    Ok(before)
}

fn at_step(number: usize, migration: &Migration, error: &tokio_postgres::Error) -> StoreError {
    let why = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
    StoreError::Open(format!("migration {number} ({}): {why}; nothing was changed", migration.what))
}

pub(super) async fn connect(address: &Address) -> Result<Client, StoreError> {
    let shown = &address.shown;
    let session = address.hosts().connect().await;
    let session = session.map_err(|why| {
        let text = format!("{shown}: PostgreSQL: {why}");
        if why.is_away() { StoreError::Unavailable(text) } else { StoreError::Open(text) }
    })?;
    tokio::spawn(session.traffic);
    Ok(session.client)
}

/// Awaits a query with a time limit.
pub(super) async fn in_time<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    let late = || format!("PostgreSQL did not respond within {} s", HELLO_MAX.as_secs());
    let answer = tokio::time::timeout(HELLO_MAX, asked).await;
    answer.map_err(|_| StoreError::Unavailable(late()))?.map_err(open_error)
}

/// Uses unnamed statements only: behind a pooler, named ones would stay on a connection that another client
/// gets next.
pub(super) async fn standing(client: &Client, schema: &str) -> Result<Standing, StoreError> {
    let number = "SELECT current_setting('server_version_num')::int, to_regclass($1) IS NOT NULL,
                         EXISTS (SELECT FROM pg_tables WHERE schemaname = $2)";
    let table = format!("{}.migrations", quote(schema));
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&schema, Type::TEXT)];
    let row = in_time(client.query_typed_one(number, &params)).await?;
    let (server, is_ours, is_used): (i32, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if server < POSTGRES_VERSION_MIN {
        return Err(StoreError::Open(format!(
            "PostgreSQL 13 or newer is required; this server is version {}",
            server / 10_000
        )));
    }
    if is_used && !is_ours {
        return Err(StoreError::Open(format!(
            "schema {schema:?} contains tables of another program; choose another schema with \
             ?schema= in the URL; nothing was changed"
        )));
    }
    let version: i32 = match is_ours {
        true => {
            let newest = format!("SELECT coalesce(max(version), 0) FROM {table}");
            in_time(client.query_typed_one(&newest, &[])).await?.get(0)
        }
        false => 0,
    };
    let (version, newest) = (usize::try_from(version).unwrap_or(0), MIGRATIONS.len());
    if version > newest {
        return Err(StoreError::Open(format!(
            "the tables have version {version}, but this binary supports versions up to {newest}; \
             use a newer binary"
        )));
    }
    let missing = MIGRATIONS.iter().enumerate().skip(version);
    let missing = missing.map(|(number, step)| format!("{}: {}", number + 1, step.what)).collect();
    let reads_all = version > 0 && READING_ALL.iter().any(|number| *number > version);
    Ok(Standing { version, newest, missing, reads_all })
}

pub(super) fn open_error(error: tokio_postgres::Error) -> StoreError {
    use std::error::Error;
    let why = match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    };
    match is_away(&error) {
        true => StoreError::Unavailable(format!("PostgreSQL: {why}")),
        false => StoreError::Open(format!("PostgreSQL: {why}")),
    }
}

/// True if the database cannot be reached, or is starting or stopping: it may become available. All other
/// errors need an operator.
pub(super) fn is_away(error: &tokio_postgres::Error) -> bool {
    use std::error::Error;
    let is_io = error.source().is_some_and(|cause| cause.is::<std::io::Error>());
    match error.code() {
        Some(code) => AWAY.contains(code),
        None => is_io || error.is_closed(),
    }
}

/// SQLSTATEs: starting, stopping, too many connections.
const AWAY: [SqlState; 4] = [
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::TOO_MANY_CONNECTIONS,
];
