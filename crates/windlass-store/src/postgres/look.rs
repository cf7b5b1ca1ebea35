//! Settings and figures of a database, read without a change, for checks before and beside a server.

use super::READERS;
use super::migrate::{Standing, connect, in_time, standing};
use super::options::{Address, PostgresOptions};
use super::statements::quote;
use crate::copy::UNFINISHED;
use crate::error::StoreError;
use std::time::SystemTime;
use tokio_postgres::types::{ToSql, Type};

/// Connections of a server beside those that commit and read: claims, notifications, polling, and one to start.
const CONNECTIONS_BESIDE: usize = 4;

/// $1: schema.
const FIGURES: &str = "
    SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
           current_setting('full_page_writes'),
           current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
           (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
           (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'),
           (SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname IN ('jobs', 'jobs_done')),
           floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Mark of an unfinished copy, and servers that reported in the last ten seconds. $1: key of the mark.
const SERVERS: &str = "
    SELECT (SELECT value FROM {s}.settings WHERE key = $1),
           (SELECT count(*) FROM {s}.servers WHERE id <> '-' AND seen_at > clock_timestamp() - interval '10 seconds')";

/// Database as a server finds it that is about to use it.
#[derive(Debug)]
pub struct DatabaseState {
    /// Version of PostgreSQL.
    pub version: String,
    pub fsync: String,
    /// Of our own session, because a role or a database may override it.
    pub synchronous_commit: String,
    pub full_page_writes: String,
    /// Connections for clients that are not superusers.
    pub connections_max: u64,
    pub connections: u64,
    /// Connections of one server with these options.
    pub connections_needed: u64,
    /// Servers that use the tables now.
    pub servers: u64,
    /// Bytes of the tables and indexes in the schema.
    pub bytes: u64,
    /// Number of jobs, as estimated by PostgreSQL.
    pub jobs: u64,
    /// Clock of the database minus that of this machine.
    pub clock_ahead_ms: i64,
    /// Begin of an unfinished copy, on which no server starts.
    pub unfinished: Option<String>,
    /// Version of the tables, or why this binary cannot take them over.
    pub standing: Result<Standing, StoreError>,
}

pub(super) async fn look(address: &Address, options: &PostgresOptions) -> Result<DatabaseState, StoreError> {
    let client = connect(address).await?;
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(&address.schema, Type::TEXT)];
    let before = now_ms();
    let row = in_time(client.query_typed_one(FIGURES, &params)).await?;
    // Half of the round trip has passed when the database reads its clock.
    let here_ms = before + (now_ms() - before) / 2;
    let count = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    let standing = standing(&client, &address.schema).await;
    let has_tables = standing.as_ref().is_ok_and(|standing| standing.version > 0);
    let (unfinished, servers) = match has_tables {
        true => {
            let query = SERVERS.replace("{s}", &quote(&address.schema));
            let row = in_time(client.query_typed_one(&query, &[(&UNFINISHED, Type::TEXT)])).await?;
            let begun = row.get::<_, Option<&[u8]>>(0);
            (
                begun.map(|value| String::from_utf8_lossy(value).into_owned()),
                row.get::<_, i64>(1).unsigned_abs(),
            )
        }
        false => (None, 0),
    };
    Ok(DatabaseState {
        version: row.get(0),
        fsync: row.get(1),
        synchronous_commit: row.get(2),
        full_page_writes: row.get(3),
        connections_max: count(4),
        connections: count(5),
        connections_needed: (options.writers.max(1) + READERS + CONNECTIONS_BESIDE) as u64,
        servers,
        bytes: count(6),
        jobs: count(7),
        clock_ahead_ms: row.get::<_, i64>(8) - here_ms,
        unfinished,
        standing,
    })
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
