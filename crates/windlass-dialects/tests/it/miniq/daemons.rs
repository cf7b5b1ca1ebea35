//! Several servers on one store. The tests of the binary kill servers.

use super::world::{LOCK_MS, NOT_RUN, Setup, World, eventually, report, settled};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::{StateName, Timestamp};
use windlass_dialects::miniq::{commands, sysid};
use windlass_engine::{Engine, ManualClock, Options, SeededRandom};
use windlass_store::Filter;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

/// Two servers on one store, with one clock.
async fn two() -> (World, World) {
    let store = Arc::new(MemoryStore::shared());
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_763_200_000_000)));
    let setup = || Setup { store: Some(store.clone()), clock: clock.clone(), ..Setup::default() };
    (setup().start().await, setup().start().await)
}

/// Waits until `is_so`, while the server polls: on this store servers learn of each other by polling.
async fn eventually_looking(world: &World, what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        world.later(1);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{what}: not within thirty seconds");
}

#[tokio::test]
async fn what_is_added_to_one_server_is_run_by_another() {
    let (one, other) = two().await;
    one.server.get("/stop").await;
    one.handler("acme", "t", "{}").await;
    let id = one.add("acme", "t", "x\n").await.remove(0);
    eventually_looking(&one, "the other runs it", || other.fake.payloads() == ["x"]).await;
    one.until_code("acme", "t", &id, "ok").await;
    assert!(one.fake.payloads().is_empty());
}

#[tokio::test]
async fn two_servers_have_different_names_and_no_job_is_handed_out_twice() {
    let (one, other) = two().await;
    for world in [&one, &other] {
        world.server.get("/stop").await;
        world.fake.hold();
    }
    one.handler("acme", "t", "{}").await;
    let payloads: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let first = one.add("acme", "t", &payloads[..500].join("\n")).await;
    let second = other.add("acme", "t", &payloads[500..].join("\n")).await;
    let name = |id: &str| id[8..15].to_owned();
    assert_ne!(name(&first[0]), name(&second[0]));
    one.job("acme", "t", &first[499]).await;
    other.job("acme", "t", &second[499]).await;
    // Both start at once, and neither can run all jobs: each has a limited number of slots.
    tokio::join!(one.server.get("/start"), other.server.get("/start"));
    for world in [&one, &other] {
        eventually("it takes part", || world.fake.batches().len() == 4).await;
    }
    one.fake.let_end(1_000);
    other.fake.let_end(1_000);
    let both = || [one.fake.payloads(), other.fake.payloads()].concat();
    eventually_looking(&one, "all are run", || both().len() >= 1_000).await;
    settled().await;
    let run = both();
    assert_eq!((run.len(), run.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
}

#[tokio::test]
async fn a_job_that_runs_for_three_locks_is_not_run_by_another_server() {
    let (one, other) = two().await;
    one.server.get("/stop").await;
    other.server.get("/stop").await;
    one.handler("acme", "t", "{}").await;
    one.fake.hold();
    let id = one.add("acme", "t", "x\n").await.remove(0);
    one.job("acme", "t", &id).await;
    one.server.get("/start").await;
    assert_eq!(one.until_started(1).await, ["x"]);
    other.server.get("/start").await;
    let mut last = one.job("acme", "t", &id).await["dt"].as_str().unwrap().to_owned();
    for _ in 0..9 {
        one.later(LOCK_MS / 3 + 1);
        let mut now = last.clone();
        for _ in 0..3_000 {
            now = other.job("acme", "t", &id).await["dt"].as_str().unwrap().to_owned();
            if now > last {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(now > last, "the lock is not renewed: {now} after {last}");
        last = now;
    }
    assert!(other.fake.payloads().is_empty(), "three locks long, and no second run");
    one.fake.let_end(1);
    one.until_code("acme", "t", &id, "ok").await;
    assert!(other.fake.payloads().is_empty());
}

#[tokio::test]
async fn the_name_of_a_server_is_a_row_that_never_runs() {
    let world = World::with("acme", "t").await;
    let id = world.add("acme", "t", "x\n").await.remove(0);
    world.until_code("acme", "t", &id, "ok").await;
    let name = id[8..15].to_owned();
    let row = world.server.get(&format!("/api/v1/aliases/{name}?tenant={}", sysid::TENANT)).await.json();
    assert_eq!((&row["state"], &row["lease"]["worker"]), (&"running".into(), &name.as_str().into()), "{row}");
    // The running server renews the reservation beyond its first expiry.
    let path = format!("/api/v1/aliases/{name}?tenant={}", sysid::TENANT);
    let mut until = row["lease"]["until"].as_i64().unwrap();
    for _ in 0..40 {
        world.later(sysid::RENEW_MS);
        let mut now = until;
        for _ in 0..3_000 {
            now = world.server.get(&path).await.json()["lease"]["until"].as_i64().unwrap();
            if now > until {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(now > until, "it is not renewed");
        until = now;
    }
    assert_eq!(world.fake.payloads(), ["x"]);
    let mut server = world.server;
    let engine = server.engine.clone();
    server.stop();
    server.serving.await.unwrap().unwrap();
    assert_eq!(engine.find_alias(&sysid::tenant(), &name).await.unwrap(), None, "released at the end");
}

#[tokio::test]
async fn a_server_that_stops_keeps_its_name_until_its_jobs_are_given_back() {
    let store = Arc::new(MemoryStore::shared());
    let (faulty, faults) = FaultyStore::new(store.clone());
    let mut one = Setup { store: Some(faulty), ..Setup::default() }.start().await;
    one.handler("acme", "t", "{}").await;
    one.fake.answers(|_, _| report(NOT_RUN));
    // Claims a job, and gets a stop before the response of the store.
    faults.fail_next_call(Call::Claim, 2, Kind::Hold);
    let adding = one.add("acme", "t", "x\n");
    tokio::join!(adding, async {
        // The first claim is for its name.
        faults.until_held(1).await;
        faults.release();
        faults.until_held(1).await;
    });
    one.server.stop();
    let onlooker =
        Engine::start(store, one.clock.clone(), Arc::new(SeededRandom::new(2)), Options::default());
    let onlooker = onlooker.await.unwrap();
    let rows = async |queue, state| {
        let filter = Filter { queue: Some(queue), states: vec![state], ..Filter::default() };
        onlooker.list(filter).await.unwrap().jobs.len()
    };
    settled().await;
    assert_eq!(
        rows(sysid::queue(), StateName::Running).await,
        1,
        "the name is kept while something is under way"
    );
    faults.release();
    one.server.serving.await.unwrap().unwrap();
    assert_eq!(rows(commands::queue(), StateName::Ready).await, 1, "what was claimed is given back");
    assert_eq!(rows(sysid::queue(), StateName::Running).await, 0, "and the name is free");
}

#[tokio::test]
async fn the_name_of_a_server_that_is_gone_is_free_after_its_time_and_is_no_waiting_job() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::start(store, clock.clone(), Arc::new(SeededRandom::new(1)), Options::default())
        .await
        .unwrap();
    sysid::reserve(&engine, "host", "ht-0000").await.unwrap();
    clock.advance(sysid::RESERVED_MS);
    engine.catch_up().await.unwrap();
    assert_eq!(engine.waiting(&sysid::queue()).await.unwrap(), vec![]);
    assert_eq!(engine.find_alias(&sysid::tenant(), "ht-0000").await.unwrap(), None);
    sysid::reserve(&engine, "host", "ht-0000").await.unwrap();
}

/// Random source that always returns the same number.
struct Loaded;

impl windlass_engine::Random for Loaded {
    fn next_u64(&self) -> u64 {
        7
    }
    fn next_fraction(&self) -> f64 {
        0.5
    }
}

#[tokio::test]
async fn twenty_names_that_are_taken_in_a_row_are_too_many() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::start(store, clock.clone(), Arc::new(Loaded), Options::default()).await.unwrap();
    let first = sysid::reserve(&engine, "host", "ht-0007").await.unwrap();
    assert_eq!(&*first.sysid, "ht-0007");
    let error = sysid::reserve(&engine, "host", "ht-0007").await.unwrap_err();
    assert!(error.to_string().contains("too many tries"), "{error}");
    // On a store of its own the same name is free.
    let elsewhere = Engine::start(Arc::new(MemoryStore::new()), clock, Arc::new(Loaded), Options::default());
    assert_eq!(
        &*sysid::reserve(&elsewhere.await.unwrap(), "host", "ht-0007").await.unwrap().sysid,
        "ht-0007"
    );
    first.release(&engine).await.unwrap();
    assert!(sysid::reserve(&engine, "host", "ht-0007").await.is_ok());
}
