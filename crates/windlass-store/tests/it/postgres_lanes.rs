//! Detection of lanes created by other processes, and its cost.

use crate::postgres_server::{Disk, PostgresServer, binaries, psql};
use crate::postgres_several::{ask, now, push};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windlass_core::NameMatch;
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{ClaimAsk, Filter, Store};

/// Far above the normal duration on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Opens a store without notifications, which queries the database only for its own calls.
async fn open(url: &str) -> PostgresStore {
    let options = PostgresOptions { listen: false, poll_ms: 3_600_000, ..crate::not_safe() };
    PostgresStore::open(url, &options).await.unwrap()
}

fn schema_of(url: &str) -> &str {
    url.split_once("schema=").unwrap().1
}

fn named(names: &str) -> ClaimAsk {
    ClaimAsk { names: NameMatch::glob(names), ..ask(10) }
}

/// Number of jobs claimed. Repeats the claim: on a busy machine a query for lanes may take so long that the
/// next claims skip it.
async fn claimed(store: &dyn Store, names: &str) -> usize {
    let began = Instant::now();
    loop {
        match store.claim(named(names), now()).await {
            Ok(jobs) if !jobs.is_empty() => return jobs.len(),
            Ok(_) => assert!(began.elapsed() < PATIENCE, "nothing for {names}"),
            // After a crash, broken connections are noticed one by one.
            Err(error) => assert!(began.elapsed() < PATIENCE, "{names}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Application with an open transaction.
struct Application(Child);

impl Application {
    fn begin(url: &str, words: &str) -> Application {
        let mut child = Command::new(binaries().join("psql"))
            .args(["-X", "-q", "-d", url.split_once('?').unwrap().0])
            .env("PGAPPNAME", schema_of(url))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "BEGIN; {words};").unwrap();
        let began = Instant::now();
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND state = 'idle in transaction'
                AND backend_xid IS NOT NULL",
            schema_of(url)
        );
        while psql(url, &waits) != "1" {
            assert!(began.elapsed() < PATIENCE, "the application did not get so far");
        }
        Application(child)
    }

    fn commit(mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"COMMIT;\n").unwrap();
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_found_however_late_its_transaction_ends() {
    let url = PostgresServer::shared().new_schema_url();
    let s = schema_of(&url);
    let store = open(&url).await;
    let late = tokio::task::block_in_place(|| Application::begin(&url, &format!("SELECT {s}.push('late')")));
    for number in 0..5 {
        psql(&url, &format!("SELECT {s}.push('early.{number}')"));
        assert_eq!(claimed(&store, &format!("early.{number}")).await, 1);
        assert!(store.claim(named("late"), now()).await.unwrap().is_empty());
    }
    let ids = psql(&url, &format!("SELECT count(*), max(id) FROM {s}.lanes"));
    assert_eq!(ids, "5|6", "the first number was given to the one that is not there yet");
    tokio::task::block_in_place(|| late.commit());
    assert_eq!(claimed(&store, "late").await, 1);
}

/// Rows of lanes read so far, and number of job queries.
fn reads(url: &str) -> (i64, i64) {
    let s = schema_of(url);
    let sum = |table: &str, what: &str| {
        format!(
            "(SELECT coalesce(sum({what}), 0) FROM pg_stat_user_tables WHERE schemaname = '{s}' AND relname = '{table}')"
        )
    };
    let rows = sum("lanes", "seq_tup_read + idx_tup_fetch");
    let text = psql(url, &format!("SELECT {rows}, {}", sum("jobs", "seq_scan + idx_scan")));
    let (rows, scans) = text.split_once('|').unwrap();
    (rows.parse().unwrap(), scans.parse().unwrap())
}

/// Uses the database's own statistics, which are delayed: the claims continue until enough of them are
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_finds_nothing_does_not_read_the_lanes_it_did_not_ask_for() {
    const LANES: i64 = 5_000;
    const CLAIMS: i64 = 20;
    let url = PostgresServer::shared().new_schema_url();
    let s = schema_of(&url);
    drop(open(&url).await);
    psql(
        &url,
        &format!(
            "INSERT INTO {s}.lanes (tenant, queue, name, priority, limit_keys)
             SELECT 'default', 'default', n || '.name', 0, '' FROM generate_series(1, {LANES}) AS n"
        ),
    );
    let store = open(&url).await;
    // Waits until all lanes are read and counted in the statistics.
    let began = Instant::now();
    let mut before = reads(&url);
    while before.0 < LANES {
        assert!(began.elapsed() < PATIENCE, "the lanes were never read: {before:?}");
        assert!(store.claim(named("77.name"), now()).await.unwrap().is_empty());
        before = reads(&url);
    }
    loop {
        for names in ["77.name", "*4977.name", "nobody"] {
            assert!(store.claim(named(names), now()).await.unwrap().is_empty());
        }
        let after = reads(&url);
        if after.1 - before.1 > CLAIMS {
            let read = after.0 - before.0;
            assert!(read < LANES, "{CLAIMS} claims that found nothing read {read} lanes");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{before:?} {after:?}");
    }
    psql(&url, &format!("SELECT {s}.push('77.name')"));
    assert_eq!(claimed(&store, "*7.name").await, 1);
}

/// Lanes emptied one job at a time still count as non-empty; there are more of them than one claim checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_claim_gets_a_job_while_there_is_one_however_many_names_have_none_left() {
    const NAMES: usize = 700;
    let url = PostgresServer::shared().new_schema_url();
    let store = open(&url).await;
    let names: Vec<String> = (0..NAMES).map(|number| format!("name.{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    push(&store, &names).await.unwrap();
    push(&store, &["last", "last"]).await.unwrap();
    let mut claimed = Vec::new();
    for _ in 0..NAMES + 2 {
        let one = store.claim(ask(1), now()).await.unwrap();
        assert_eq!(one.len(), 1, "after {} of {}", claimed.len(), NAMES + 2);
        claimed.push(one[0].id);
    }
    assert!(claimed.is_sorted(), "in the order in which they came");
    assert!(store.claim(ask(1), now()).await.unwrap().is_empty());
}

/// Creates the tables of the first version with pushes from SQL.
fn make_tables_of_version_2(url: &str) {
    let s = schema_of(url);
    let channel = format!("'{s}_jobs'");
    let migrations = [
        include_str!("../../src/postgres/migrations/0001_jobs.sql"),
        include_str!("../../src/postgres/migrations/0002_push.sql"),
    ];
    let table = "migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())";
    psql(url, &format!("CREATE SCHEMA IF NOT EXISTS {s}; CREATE TABLE {s}.{table}"));
    for (sql, version) in migrations.into_iter().zip(1..) {
        psql(url, &sql.replace("{s}", s).replace("{channel}", &channel));
        psql(url, &format!("INSERT INTO {s}.migrations (version) VALUES ({version})"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_of_an_older_version_are_known_after_the_migration() {
    let url = PostgresServer::shared().new_schema_url();
    let s = schema_of(&url);
    make_tables_of_version_2(&url);
    psql(&url, &format!("SELECT {s}.push('old')"));
    let store = open(&url).await;
    assert_eq!(claimed(&store, "o*").await, 1);
    push(&store, &["old", "new"]).await.unwrap();
    assert_eq!(open(&url).await.claim(ask(10), now()).await.unwrap().len(), 2);
}

/// A crash resets the ids of transactions that wrote nothing, and PostgreSQL assigns them again; unless a
/// concurrent write recorded them, in which case the attempt is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_found_though_a_crash_turned_back_the_count_of_transactions() {
    const LOST: usize = 300;
    let server = PostgresServer::start(Disk::Fast, &[]);
    let url = server.new_schema_url();
    let s = schema_of(&url);
    let store = open(&url).await;
    let next = || -> u64 { psql(&url, "BEGIN; SELECT pg_current_xact_id(); ROLLBACK").parse().unwrap() };
    for attempt in 0..10 {
        psql(&url, &"BEGIN; SELECT pg_current_xact_id(); ROLLBACK;".repeat(LOST));
        let before = next();
        // Query for new lanes, which itself writes nothing.
        look_for_lanes(&store).await;
        tokio::task::block_in_place(|| {
            server.kill();
            server.resume();
        });
        if next() < before {
            psql(&url, &format!("SELECT {s}.push('after.{attempt}')"));
            assert_eq!(claimed(&store, &format!("after.{attempt}")).await, 1);
            return;
        }
    }
    panic!("the count was never turned back");
}

async fn look_for_lanes(store: &dyn Store) {
    let began = Instant::now();
    let filter = Filter { names: NameMatch::glob("x*"), ..Filter::default() };
    while let Err(error) = store.list(filter.clone()).await {
        assert!(began.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
