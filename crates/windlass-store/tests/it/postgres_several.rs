//! Several stores on one database, and applications that push by SQL.

use crate::postgres_server::{PostgresServer, psql, try_psql};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::event::Finish;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{
    Event, Holder, Job, JobSpec, KeepFor, Name, NameMatch, Payload, Policy, Queue, Tenant, Timestamp, apply,
};
use windlass_store::postgres::{PostgresOptions, PostgresStore};
use windlass_store::{
    ClaimAsk, Filter, Gate, Held, Listener, NewJob, Settings, Step, Store, StoreError, Verdict,
};

/// Far above any normal delay.
const HEARING_MAX: Duration = Duration::from_secs(20);
/// Polling interval that leaves only notifications.
const NEVER_MS: u64 = 3_600_000;

pub fn now() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_millis(since.as_millis() as i64)
}

pub fn new_job(name: &str) -> NewJob {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new(name).unwrap(),
        payload: Payload::json("{\"n\":1}"),
        priority: 0,
        created_at: now(),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    NewJob { spec: Arc::new(spec), run_at: now(), body: None, held_by_parent: false }
}

pub fn ask(limit: usize) -> ClaimAsk {
    ClaimAsk {
        scope: windlass_core::Scope::default(),
        tenant: Tenant::default(),
        queues: Vec::new(),
        names: NameMatch::Any,
        priority: None,
        limit,
        worker: None,
        lease_ms: None,
        seed: 1,
        gate: None,
    }
}

async fn open(url: &str, listen: bool, poll_ms: u64) -> Arc<dyn Store> {
    let options = PostgresOptions { listen, poll_ms, ..crate::not_safe() };
    Arc::new(PostgresStore::open(url, &options).await.unwrap())
}

pub async fn push(store: &dyn Store, names: &[&str]) -> Result<Vec<Verdict>, StoreError> {
    let step = Step::insert(names.iter().map(|name| new_job(name)).collect());
    store.commit(vec![step], now()).await
}

#[derive(Default)]
struct Ears {
    heard: Mutex<BTreeSet<String>>,
    news: Notify,
}

impl Listener for Ears {
    fn became_ready(&self, _: &Tenant, _: &Queue, name: &Name, _: Option<usize>) {
        self.heard.lock().unwrap().insert(name.to_string());
        self.news.notify_one();
    }
}

impl Ears {
    fn at(store: &dyn Store) -> Arc<Ears> {
        let ears = Arc::new(Ears::default());
        store.listen(ears.clone());
        ears
    }

    async fn hear(&self, name: &str) {
        let heard = async {
            while !self.heard.lock().unwrap().remove(name) {
                self.news.notified().await;
            }
        };
        tokio::time::timeout(HEARING_MAX, heard).await.unwrap_or_else(|_| panic!("did not hear of {name}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_at_one_store_is_heard_and_claimed_at_the_other() {
    let url = PostgresServer::shared().new_schema_url();
    let one = open(&url, true, NEVER_MS).await;
    let ears = Ears::at(&*one);
    // Opened second, so that it knows of the first.
    let other = open(&url, true, NEVER_MS).await;
    for name in ["a", "b", "a"] {
        push(&*other, &[name]).await.unwrap();
        ears.hear(name).await;
        assert_eq!(one.claim(ask(10), now()).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_listening_a_poll_finds_what_others_pushed() {
    let url = PostgresServer::shared().new_schema_url();
    let one = open(&url, false, 50).await;
    let ears = Ears::at(&*one);
    let other = open(&url, false, NEVER_MS).await;
    push(&*other, &["a"]).await.unwrap();
    ears.hear("a").await;
    assert_eq!(one.claim(ask(10), now()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_push_is_in_the_next_claim_of_any_store() {
    let url = PostgresServer::shared().new_schema_url();
    let one = open(&url, false, NEVER_MS).await;
    let other = open(&url, false, NEVER_MS).await;
    push(&*other, &["mail"]).await.unwrap();
    assert_eq!(one.claim(ask(1), now()).await.unwrap().len(), 1, "nobody told it, so it has to look");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_share_no_job_and_leave_none() {
    let url = PostgresServer::shared().new_schema_url();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(open(&url, true, 200).await);
    }
    let names: Vec<String> = (0..600).map(|n| format!("name-{}", n % 5)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    push(&*stores[0], &names).await.unwrap();
    let drain = |store: Arc<dyn Store>| async move {
        let (mut mine, mut empty) = (Vec::new(), 0);
        while empty < 3 {
            let jobs = store.claim(ask(7), now()).await.unwrap();
            empty = if jobs.is_empty() { empty + 1 } else { 0 };
            mine.extend(jobs.iter().map(|job| job.id));
        }
        mine
    };
    let drains: Vec<_> = stores.iter().map(|store| tokio::spawn(drain(store.clone()))).collect();
    let mut all = Vec::new();
    for drained in drains {
        all.extend(drained.await.unwrap());
    }
    let different: BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "a job was given out twice");
    assert_eq!(all.len(), 600, "all were given out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_every_job_once_while_they_end() {
    let url = PostgresServer::shared().new_schema_url();
    let store = open(&url, true, 200).await;
    let all = 200;
    push(&*store, &vec!["ending"; all]).await.unwrap();
    let ending = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            while let Some(job) = store.claim(ask(1), now()).await.unwrap().pop() {
                let by = Holder::Token(job.state().lease().unwrap().token);
                let (outcome, payload, ignore_repeat) = Default::default();
                let finish = Event::Finish(Finish { by, outcome, payload, ignore_repeat });
                let after = apply(&job, finish, now()).unwrap().job;
                store.commit(vec![Step::change(job, after)], now()).await.unwrap();
            }
        })
    };
    while !ending.is_finished() {
        let page = store.list(Filter { limit: all, ..Filter::default() }).await.unwrap();
        let ids: BTreeSet<_> = page.jobs.iter().map(|job| job.id).collect();
        assert_eq!((ids.len(), page.jobs.len()), (all, all));
    }
    ending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_at_one_store_holds_at_the_other_at_once() {
    let url = PostgresServer::shared().new_schema_url();
    let one = open(&url, false, NEVER_MS).await;
    let other = open(&url, false, NEVER_MS).await;
    push(&*one, &["a", "a"]).await.unwrap();
    assert_eq!(other.claim(ask(1), now()).await.unwrap().len(), 1);
    one.set_paused(&Tenant::default(), &Queue::default(), true).await.unwrap();
    assert_eq!(other.claim(ask(1), now()).await.unwrap().len(), 0);
    one.set_paused(&Tenant::default(), &Queue::default(), false).await.unwrap();
    assert_eq!(other.claim(ask(1), now()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_makes_one_job_however_many_stores_push() {
    let url = PostgresServer::shared().new_schema_url();
    let stores = [open(&url, true, 500).await, open(&url, true, 500).await];
    let mut pushing = Vec::new();
    for n in 0..40 {
        let store = stores[n % 2].clone();
        pushing.push(tokio::spawn(async move {
            let mut new = new_job("once");
            let unique = Unique {
                key: format!("k{}", n % 4).as_str().into(),
                on_conflict: OnConflict::Return,
                held_until: HeldUntil::Settled,
            };
            Arc::get_mut(&mut new.spec).unwrap().extras.get_or_insert_default().unique = Some(unique);
            store.commit(vec![Step::insert(vec![new])], now()).await.unwrap();
        }));
    }
    for one in pushing {
        one.await.unwrap();
    }
    assert_eq!(stores[0].claim(ask(100), now()).await.unwrap().len(), 4);
}

/// Two servers may create the same lane concurrently; each of them then uses one of the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_was_made_twice_counts_right_and_wakes_whoever_waits() {
    let url = PostgresServer::shared().new_schema_url();
    let s = schema_of(&url).to_owned();
    let one = open(&url, false, NEVER_MS).await;
    push(&*one, &["twin", "twin"]).await.unwrap();
    let columns = "tenant, queue, name, priority, limit_keys";
    psql(&url, &format!("INSERT INTO {s}.lanes ({columns}) SELECT {columns} FROM {s}.lanes"));
    let other = open(&url, false, NEVER_MS).await;
    push(&*other, &["twin", "twin"]).await.unwrap();
    let ears = Ears::at(&*other);
    let by_lane = |table: &str, n: &str| {
        psql(
            &url,
            // Higher values of `state` are tallies of bytes.
            &format!(
                "SELECT lane, state, {n} FROM {s}.{table} WHERE state < 100 GROUP BY 1, 2 HAVING {n} <> 0 ORDER BY 1, 2"
            ),
        )
    };
    let mut held = other.claim(ask(4), now()).await.unwrap();
    assert_eq!(held.len(), 4);
    assert_eq!(by_lane("jobs", "count(*)").lines().count(), 2, "jobs are in both lanes");
    // Each store ends jobs of either lane; one job is returned.
    let back = held.pop().unwrap();
    for (store, job) in [&one, &other, &one].into_iter().zip(held) {
        store.commit(vec![Step::change(job, None)], now()).await.unwrap();
        assert_eq!(by_lane("tallies", "sum(n)"), by_lane("jobs", "count(*)"));
    }
    let ready = apply(&back, Event::Return { by: Holder::Anyone }, now()).unwrap().job;
    other.commit(vec![Step::change(back, ready)], now()).await.unwrap();
    assert_eq!(by_lane("tallies", "sum(n)"), by_lane("jobs", "count(*)"));
    ears.hear("twin").await;
    for store in [&one, &other] {
        let counts = store.counts(None, now()).await.unwrap();
        assert_eq!(counts[0].by_state, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(other.claim(ask(4), now()).await.unwrap().len(), 1);
}

// --- pushes by SQL ---------------------------------------------------------------------------------------------------

fn schema_of(url: &str) -> &str {
    url.split_once("schema=").unwrap().1
}

async fn load(store: &dyn Store, id: &str) -> Option<Arc<Job>> {
    let id = windlass_core::JobId::new(id.parse().unwrap()).unwrap();
    store.load(vec![id]).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_by_sql_has_all_it_asked_for() {
    let url = PostgresServer::shared().new_schema_url();
    let store = open(&url, true, NEVER_MS).await;
    let s = schema_of(&url);
    let plain = psql(&url, &format!("SELECT {s}.push('hello')"));
    let job = load(&*store, &plain).await.unwrap();
    assert_eq!((&*job.spec.name, &*job.spec.payload.bytes), ("hello", &b"null"[..]));
    assert_eq!(*job.spec.policy, Policy::default());
    assert!(job.spec.extras.is_none());
    let options = r#"{"queue": "out", "priority": -3, "delay_ms": 60000, "tenant": "shop", "lease_ms": 5000, "alias": "a1",
        "retry": {"max_attempts": 4, "backoff": {"fixed_ms": 250}, "give_up_after_ms": 9000}, "tags": ["x", "y"],
        "unique": {"key": "k1", "held_until": "forgotten"}, "keep": {"completed_ms": 0, "failed_ms": 77, "cancelled_ms": "ever"}}"#;
    let full = psql(&url, &format!("SELECT {s}.push('mail', '{{\"to\": \"ann\"}}', '{options}')"));
    let job = load(&*store, &full).await.unwrap();
    let spec = &job.spec;
    assert_eq!((&*spec.tenant, &*spec.queue, spec.priority), ("shop", "out", -3));
    let run_at = job.state().claimable_at().unwrap();
    assert_eq!(run_at.since_ms(spec.created_at), 60_000);
    assert_eq!(spec.policy.lease.length_ms, Some(5_000));
    assert_eq!((spec.policy.retry.max_attempts, spec.policy.retry.give_up_after_ms), (Some(4), Some(9_000)));
    assert_eq!(spec.policy.retry.backoff, windlass_core::retry::Backoff::Fixed { delay_ms: 250 });
    let keep = spec.policy.keep;
    assert_eq!(
        (keep.completed, keep.failed, keep.cancelled),
        (KeepFor::Drop, KeepFor::Ms(77), KeepFor::Ever)
    );
    assert_eq!((spec.alias(), spec.tags()), (Some("a1"), &["x".into(), "y".into()][..]));
    assert_eq!(spec.unique().unwrap().held_until, HeldUntil::Forgotten);
    // Server and SQL agree on the holder of a key.
    assert_eq!(store.find_alias(&Tenant::new("shop").unwrap(), "a1").await.unwrap(), Some(job.id));
    let again =
        psql(&url, &format!("SELECT {s}.push('other', '1', '{{\"tenant\": \"shop\", \"unique\": \"k1\"}}')"));
    assert_eq!(again, full);
    let bytes = psql(&url, &format!("SELECT {s}.push_bytes('raw', '\\x00ff', '{{}}')"));
    assert_eq!(&*load(&*store, &bytes).await.unwrap().spec.payload.bytes, &[0, 255]);
    let counts = store.counts(None, now()).await.unwrap();
    assert_eq!(counts.iter().map(|queue| queue.by_state[0]).sum::<u64>(), 3, "they are counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_by_sql_says_whether_it_waits_for_a_date() {
    let url = PostgresServer::shared().new_schema_url();
    let store = open(&url, true, NEVER_MS).await;
    let s = schema_of(&url);
    for (options, is_dated) in [
        (r#"{"run_at": "2100-01-01T00:00:00Z"}"#, true),
        (r#"{"run_at": 4102444800000, "alias": "x"}"#, true),
        // As in the native API: a past time is no date to wait for.
        (r#"{"run_at": "2001-01-01T00:00:00Z"}"#, false),
        (r#"{"delay_ms": 60000}"#, false),
        ("{}", false),
    ] {
        let id = psql(&url, &format!("SELECT {s}.push('a', 'null', '{options}')"));
        let job = load(&*store, &id).await.unwrap();
        assert_eq!((job.spec.is_dated(), job.appointment().is_some()), (is_dated, is_dated), "{options}");
    }
}

/// A copy contains the calendar of the source's clock, which this clock need not agree with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_opened_for_a_copy_says_nothing_of_its_own_about_the_clock() {
    let url = PostgresServer::shared().new_schema_url();
    let options = PostgresOptions { poll_ms: 10, follow_clock: false, ..crate::not_safe() };
    let store = PostgresStore::open(&url, &options).await.unwrap();
    let kept = windlass_store::calendar::Kept { ahead_ms: 7_200_000, ..Default::default() }.bytes();
    store.put_setting("clock", Some(kept.clone())).await.unwrap();
    let s = schema_of(&url);
    let signs = || psql(&url, &format!("SELECT max(seen_at) FROM {s}.servers WHERE id <> '-'"));
    // Two polls since then.
    for _ in 0..2 {
        let (before, began) = (signs(), std::time::Instant::now());
        while signs() == before {
            assert!(began.elapsed() < HEARING_MAX, "it does not look");
        }
    }
    assert_eq!(store.settings("clock").await.unwrap(), [("clock".to_owned(), kept)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_by_sql_wakes_on_commit_and_goes_with_a_rollback() {
    let url = PostgresServer::shared().new_schema_url();
    let store = open(&url, true, NEVER_MS).await;
    let (ears, s) = (Ears::at(&*store), schema_of(&url));
    // Listening begins shortly after opening; before that a notification would be missed.
    tokio::task::block_in_place(|| psql(&url, &format!("SELECT {s}.push('first'), pg_sleep(0.5)")));
    psql(&url, &format!("BEGIN; SELECT {s}.push('taken back'); ROLLBACK"));
    psql(&url, &format!("BEGIN; SELECT {s}.push('kept', '{{\"n\": 1}}'); COMMIT"));
    ears.hear("kept").await;
    let names: Vec<String> = store
        .claim(ask(10), now().plus_ms(1_000))
        .await
        .unwrap()
        .iter()
        .map(|job| job.spec.name.to_string())
        .collect();
    assert_eq!(names, ["first", "kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_by_sql_that_asks_for_nonsense_is_refused() {
    let url = PostgresServer::shared().new_schema_url();
    let _store = open(&url, true, NEVER_MS).await;
    let s = schema_of(&url);
    for (asked, complaint) in [
        ("'', '1'", "1 to 255 bytes"),
        ("'a', '1', '{\"colour\": 1}'", "there is no option colour"),
        ("'a', '1', '{\"repeat\": \"every 1s\"}'", "there is no option repeat"),
        ("'a', '1', '{\"parent\": 1}'", "there is no option parent"),
        ("'a', '1', '{\"unique\": {\"key\": \"k\", \"on_conflict\": \"update\"}}'", "the server's own API"),
        ("'a', '1', '{\"tenant\": \"a/b\"}'", "a tenant has"),
        ("'a', '1', '{\"run_at\": 1, \"delay_ms\": 1}'", "exclude each other"),
        ("'a', '1', '{\"retry\": 0}'", "write 1 for a single attempt"),
        ("'a', '1', '{\"keep\": {\"failed_ms\": \"long\"}}'", "or \"ever\""),
    ] {
        let error = try_psql(&url, &format!("SELECT {s}.push({asked})")).unwrap_err();
        assert!(error.contains(complaint), "{asked}: {error}");
    }
    psql(&url, &format!("SELECT {s}.push('a', '1', '{{\"unique\": \"k\"}}')"));
    let refuse = "'a', '1', '{\"unique\": {\"key\": \"k\", \"on_conflict\": \"refuse\"}}'";
    let error = try_psql(&url, &format!("SELECT {s}.push({refuse})")).unwrap_err();
    assert!(error.contains("holds this unique key"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_only_push_can_do_no_more() {
    let url = PostgresServer::shared().new_schema_url();
    let _store = open(&url, true, NEVER_MS).await;
    let s = schema_of(&url);
    psql(&url, &format!("CREATE ROLE app_{s}"));
    let as_app = |sql: &str| try_psql(&url, &format!("SET ROLE app_{s}; {sql}"));
    psql(&url, &format!("GRANT USAGE ON SCHEMA {s} TO app_{s}"));
    assert!(as_app(&format!("SELECT {s}.push('a')")).unwrap_err().contains("permission denied"));
    psql(&url, &format!("GRANT EXECUTE ON FUNCTION {s}.push, {s}.push_bytes TO app_{s}"));
    as_app(&format!("SELECT {s}.push('a')")).unwrap();
    assert!(as_app(&format!("SELECT * FROM {s}.jobs")).unwrap_err().contains("permission denied"));
}

/// Gate that admits everything, and records the times it receives.
#[derive(Default)]
struct Watch {
    told: Mutex<Vec<Timestamp>>,
}

impl Gate for Watch {
    fn admit(&self, _: &Tenant, _: &[Arc<str>], now: Timestamp) -> Result<(), Held> {
        self.told.lock().unwrap().push(now);
        Ok(())
    }

    fn give_back(&self, _: &Tenant, _: &[Arc<str>], _: Timestamp) {}

    fn adopt(&self, _: &Tenant, _: &Arc<str>, _: u32, _: Option<&[u8]>, now: Timestamp) {
        self.told.lock().unwrap().push(now);
    }
}

/// If a claim that had to wait used the time of its request, the rate would earn tokens for that time twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_goes_by_the_time_at_which_its_key_was_taken() {
    let store = open(&PostgresServer::shared().new_schema_url(), true, NEVER_MS).await;
    let mut job = new_job("a");
    let extras = windlass_core::Extras { limit_keys: vec!["rate".into()], ..Default::default() };
    Arc::make_mut(&mut job.spec).extras = Some(Box::new(extras));
    job.run_at = now().plus_ms(-60_000);
    store.commit(vec![Step::insert(vec![job])], now()).await.unwrap();
    let watch = Arc::new(Watch::default());
    let before = now();
    let claim = ClaimAsk { gate: Some(watch.clone()), ..ask(1) };
    assert_eq!(store.claim(claim, before.plus_ms(-30_000)).await.unwrap().len(), 1);
    let told = watch.told.lock().unwrap().clone();
    assert!(told.len() == 2 && told.iter().all(|at| *at >= before && *at <= now()), "{told:?}, {before}");
}
