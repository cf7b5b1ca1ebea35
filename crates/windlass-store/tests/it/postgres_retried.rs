//! Ready jobs with an attempt behind them are found and counted by indexes of their own.

use crate::postgres_server::{PostgresServer, psql};
use crate::postgres_several::{now, push};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::event::Patch;
use windlass_core::{Event, StateName, apply};
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{Filter, Inserted, Step, Store, Verdict};

/// Far above the normal duration on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the index was used: the server reports its statistics with a delay.
fn until_used(url: &str, schema: &str, index: &str) {
    let uses = format!(
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = '{schema}' AND indexrelname = '{index}'"
    );
    let began = Instant::now();
    while psql(url, &uses).parse::<u64>().unwrap_or(0) == 0 {
        assert!(began.elapsed() < PATIENCE, "{index} was not used");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_retried_jobs_are_found_among_many_without_reading_them_all() {
    let url = PostgresServer::shared().new_schema_url();
    let schema = url.split_once("schema=").unwrap().1;
    let options = PostgresOptions { listen: false, poll_ms: 3_600_000, ..crate::not_safe() };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&url, &options).await.unwrap());
    let verdicts = push(&*store, &["a", "a"]).await.unwrap();
    let Verdict::Done(inserted) = &verdicts[0] else { panic!("{verdicts:?}") };
    let Inserted::New(id) = inserted[0] else { panic!("{inserted:?}") };
    let before = store.load(vec![id]).await.unwrap().remove(0).unwrap();
    let later = now().plus_ms(3_600_000);
    let patch = Patch { attempts: Some(1), run_at: Some(later), ..Patch::default() };
    let after = apply(&before, Event::Update(Box::new(patch)), now()).unwrap().job;
    store.commit(vec![Step::change(before, after)], now()).await.unwrap();
    psql(
        &url,
        &format!(
            "INSERT INTO {schema}.jobs (lane, state, at, created_at, format, payload, moves, asked)
             SELECT lane, state, at, created_at, format, payload, moves, asked
             FROM {schema}.jobs, generate_series(1, 20000) WHERE id <> {id}; ANALYZE {schema}.jobs"
        ),
    );

    for states in [vec![StateName::Ready], vec![StateName::Ready, StateName::Running, StateName::Failed]] {
        let filter = Filter { states, retried: true, limit: 1_000, ..Filter::default() };
        let page = store.list(filter).await.unwrap();
        assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
        assert_eq!(page.next, None);
    }

    // A server of another version tallied differently.
    psql(&url, &format!("INSERT INTO {schema}.tallies SELECT lane, 101, -1 FROM {schema}.jobs LIMIT 1"));
    let counts = store.counts(None, now()).await.unwrap();
    assert_eq!((counts[0].retrying, counts[0].delayed), (1, 0));
    // A connection reports what it used at its end at the latest.
    store.close().await.unwrap();
    until_used(&url, schema, "jobs_retried");
    until_used(&url, schema, "jobs_later");
}
