//! Several engines on one PostgreSQL, in real time: limits, leases and clocks across servers.

#![expect(
    clippy::disallowed_methods,
    reason = "the database's clock cannot be moved, so these wait for real"
)]

use crate::postgres_server::PostgresServer;
use crate::world::{any, finish, holder, job, tenant};
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::limits::Limit;
use windlass_core::{Job, Timestamp};
use windlass_engine::*;
use windlass_store::calendar::{CLOCK, Kept, WallStep};
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{Settings, SharedStore, Store};

/// Far above any normal delay on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clock with an offset in milliseconds.
struct Wrong(i64);

#[async_trait]
impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_ms(self.0)
    }

    async fn sleep_until(&self, at: Timestamp) {
        SystemClock.sleep_until(at.plus_ms(-self.0)).await;
    }

    fn sleep_ms(&self, ms: u64) -> Sleep<'_> {
        SystemClock.sleep_ms(ms)
    }
}

fn unsafe_options() -> PostgresOptions {
    PostgresOptions { accept_unsafe: true, ..PostgresOptions::default() }
}

async fn server(url: &str, clock_error_ms: i64) -> Engine {
    let options = PostgresOptions { clock_error_ms, ..unsafe_options() };
    let store = PostgresStore::open(url, &options).await.unwrap();
    let ahead_ms = store.clock_ahead_ms().unwrap();
    let clock = Arc::new(StoreClock::new(Arc::new(Wrong(clock_error_ms)), ahead_ms));
    Engine::start(Arc::new(store), clock, Arc::new(SystemRandom::default()), Options::default())
        .await
        .unwrap()
}

async fn claim(engine: &Engine, limit: usize, wait_ms: u64) -> Vec<Arc<Job>> {
    let asked = Claim { limit, wait_ms, lease_ms: Some(60_000), ..any() };
    engine.claim(asked).await.unwrap().accept()
}

async fn settle(engine: &Engine, job: &Job) {
    let entry = crate::world::settle(job.id, holder(job), finish());
    engine.settle(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap();
}

async fn set_limit(servers: &[&Engine], words: serde_json::Value) {
    servers[0].set_limit(&tenant(), Limit::parse("few", &words).unwrap()).await.unwrap();
    let began = Instant::now();
    for server in servers {
        while server.limits(&tenant()).await.unwrap().is_empty() {
            assert!(began.elapsed() < PATIENCE, "the limit did not get about");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_run_as_a_limit_allows_over_all_servers() {
    let url = PostgresServer::shared().new_schema_url();
    let (one, other) = (server(&url, 0).await, server(&url, 0).await);
    set_limit(&[&one, &other], json!({ "matcher": { "name": "a" }, "max_running": 3 })).await;
    one.push(&tenant(), (0..12).map(|_| job("a")).collect()).await.unwrap();
    let mut running = Vec::new();
    for round in 0..4 {
        let (here, there) = tokio::join!(claim(&one, 10, 0), claim(&other, 10, 0));
        running.extend(here);
        running.extend(there);
        assert_eq!(running.len(), 3, "in round {round}");
        // Settled at either server, whichever granted the lease.
        let done = running.pop().unwrap();
        settle(if round % 2 == 0 { &one } else { &other }, &done).await;
        if round == 2 {
            let woken = claim(&other, 1, 20_000).await;
            assert_eq!(woken.len(), 1, "one that waits gets the place that became free");
            running.extend(woken);
            settle(&one, &running.pop().unwrap()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_shared_by_all_servers() {
    let url = PostgresServer::shared().new_schema_url();
    let (one, other) = (server(&url, 0).await, server(&url, 0).await);
    set_limit(
        &[&one, &other],
        json!({ "matcher": { "name": "a" }, "rate": { "per_second": 0.01, "burst": 4 } }),
    )
    .await;
    one.push(&tenant(), (0..20).map(|_| job("a")).collect()).await.unwrap();
    let mut started = 0;
    for _ in 0..3 {
        let (here, there) = tokio::join!(claim(&one, 3, 0), claim(&other, 3, 0));
        started += here.len() + there.len();
    }
    assert!((1..=5).contains(&started), "{started} started with four in the bucket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_of_a_server_changes_nothing() {
    let url = PostgresServer::shared().new_schema_url();
    let ten_minutes = 600_000;
    for error_ms in [ten_minutes, -ten_minutes] {
        let (wrong, right) = (server(&url, error_ms).await, server(&url, 0).await);
        let began = Instant::now();
        wrong.push(&tenant(), vec![Push { run_at: RunAt::After(1_200), ..job("a") }]).await.unwrap();
        assert_eq!(claim(&right, 1, 0).await.len(), 0, "its time has not come");
        let woken = claim(&right, 1, 20_000).await;
        assert_eq!(woken.len(), 1);
        assert!(began.elapsed() > Duration::from_millis(1_100) && began.elapsed() < Duration::from_secs(15));
        settle(&right, &woken[0]).await;

        right.push(&tenant(), vec![job("b")]).await.unwrap();
        let began = Instant::now();
        let held = wrong
            .claim(Claim { limit: 1, lease_ms: Some(1_500), wait_ms: 5_000, ..any() })
            .await
            .unwrap()
            .accept();
        assert_eq!(held.len(), 1);
        assert_eq!(claim(&right, 1, 0).await.len(), 0, "it is held");
        let again = claim(&right, 1, 20_000).await;
        assert_eq!(again.len(), 1, "the lease of the other has ended");
        assert!(began.elapsed() > Duration::from_millis(1_400) && began.elapsed() < Duration::from_secs(15));
        settle(&right, &again[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_held_when_it_vanished_goes_on_elsewhere() {
    let url = PostgresServer::shared().new_schema_url();
    let (gone, other) = (server(&url, 0).await, server(&url, 0).await);
    gone.push(&tenant(), vec![job("a"), Push { run_at: RunAt::After(1_500), ..job("later") }]).await.unwrap();
    let held = gone.claim(Claim { limit: 1, lease_ms: Some(1_000), ..any() }).await.unwrap().accept();
    assert_eq!(held.len(), 1);
    // Dropped without a shutdown: the other server receives no notification of the lease or of the delayed
    // job.
    drop(gone);
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(claim(&other, 1, 20_000).await.len(), 1);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_pushed_by_sql_comes_under_the_limits() {
    let url = PostgresServer::shared().new_schema_url();
    let one = server(&url, 0).await;
    set_limit(&[&one], json!({ "matcher": { "name": "a" }, "max_running": 1 })).await;
    let schema = url.split_once("schema=").unwrap().1;
    for name in ["a", "a", "b"] {
        crate::postgres_server::psql(&url, &format!("SELECT {schema}.push('{name}')"));
    }
    let mut names = Vec::new();
    let began = Instant::now();
    while names.len() < 2 && began.elapsed() < PATIENCE {
        names.extend(claim(&one, 10, 500).await.iter().map(|job| job.spec.name.to_string()));
    }
    names.sort_unstable();
    assert_eq!(names, ["a", "b"], "the second of the kind waits");
    assert_eq!(claim(&one, 10, 0).await.len(), 0);
}

/// A run that was returned costs no token, whichever server it was returned to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_run_that_was_given_back_returns_to_the_shared_rate() {
    let url = PostgresServer::shared().new_schema_url();
    let (one, other) = (server(&url, 0).await, server(&url, 0).await);
    let slow = json!({ "matcher": { "all": [] }, "rate": { "per_second": 0.001, "burst": 2 } });
    set_limit(&[&one, &other], slow).await;
    one.push(&tenant(), (0..3).map(|_| job("a")).collect()).await.unwrap();
    let give_back = async |engine: &Engine, job: &Job| {
        let entry = crate::world::settle(job.id, holder(job), crate::world::RETURN);
        engine.settle(&tenant(), vec![entry]).await.unwrap().remove(0).unwrap();
    };
    // From an empty bucket, and into a full one.
    for round in 0..3 {
        let mut claimed = claim(&one, 3, 0).await;
        assert_eq!(claimed.len(), 2, "in round {round}");
        give_back(&other, &claimed.pop().unwrap()).await;
        let mut again = claim(&other, 3, 0).await;
        assert_eq!(again.len(), 1, "in round {round}");
        give_back(&one, &claimed.pop().unwrap()).await;
        give_back(&one, &again.pop().unwrap()).await;
    }
    // A claim that waits for a token is notified of the refund.
    let claimed = claim(&one, 3, 0).await;
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { claim(&other, 1, 30_000).await }
    });
    while other.waiters() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    give_back(&one, &claimed[0]).await;
    assert_eq!(waiting.await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_servers_that_swap_a_note_one_does() {
    let url = PostgresServer::shared().new_schema_url();
    let (one, other) = (server(&url, 0).await, server(&url, 0).await);
    for before in [None, Some(b"first".to_vec())] {
        let swap = |engine: &Engine, to: &str| {
            let (engine, before, to) = (engine.clone(), before.clone(), to.as_bytes().to_vec());
            async move { engine.swap_note("key", before, to).await.unwrap() }
        };
        let name = if before.is_none() { "first" } else { "second" };
        let (here, there) = tokio::join!(swap(&one, name), swap(&other, name));
        assert!(here != there, "{here} {there}");
        assert_eq!(one.notes("key").await.unwrap(), [("key".to_owned(), name.as_bytes().to_vec())]);
        assert!(!swap(&one, "third").await, "it is not as expected any more");
    }
}

/// The clock was set while no server was running, and the step is recorded in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_the_clock_are_forgotten_when_every_date_was_moved() {
    const TEN_MINUTES_MS: i64 = 600_000;
    let url = PostgresServer::shared().new_schema_url();
    let one = server(&url, 0).await;
    let date = one.now().plus_ms(3_600_000);
    let mut pushed =
        one.push(&tenant(), vec![Push { run_at: RunAt::At(date), ..job("dated") }]).await.unwrap();
    let id = pushed.remove(0).id().unwrap();
    let at_ms = one.now().as_millis() + 1;
    one.shutdown().await;
    let store = PostgresStore::open(&url, &unsafe_options()).await.unwrap();
    let step = WallStep { at_ms, by_ms: -TEN_MINUTES_MS };
    let kept = Kept { ahead_ms: -TEN_MINUTES_MS, seen_ms: 0, steps: vec![step] };
    store.put_setting(CLOCK, Some(kept.bytes())).await.unwrap();
    store.close().await.unwrap();
    let two = server(&url, 0).await;
    let began = Instant::now();
    let store = PostgresStore::open(&url, &unsafe_options()).await.unwrap();
    loop {
        let found = store.settings(CLOCK).await.unwrap().remove(0).1;
        let found: Kept = serde_json::from_slice(&found).unwrap();
        assert_eq!(found.ahead_ms, kept.ahead_ms);
        if found.steps.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "each start looks through all waiting jobs: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let moved = two.get(&tenant(), vec![id]).await.unwrap().remove(0).unwrap();
    let waits_for = moved.state().claimable_at();
    assert_eq!(waits_for, Some(date.plus_ms(TEN_MINUTES_MS)), "the date was moved before");
}
