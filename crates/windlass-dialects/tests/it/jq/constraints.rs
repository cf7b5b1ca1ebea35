use super::world::*;
use crate::stores::Kind;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windlass_dialects::jq::Settings;

async fn constrain(world: &World, id: &str, constraint: Value) {
    let answer = world.call("PUT", &format!("/constraint/{id}"), &constraint).await;
    assert_eq!(answer.status(), 200, "{:?}", answer.value());
}

#[tokio::test]
async fn a_rate_holds_what_it_is_about_and_nothing_else() {
    // Rates use the store's clock, and the tests cannot move that of PostgreSQL.
    let is_ours = Kind::chosen() != Kind::Postgres;
    let world = if is_ours { World::new().await } else { World::real(Settings::default()).await };
    // Slow enough that no token is earned during the test.
    constrain(
        &world,
        "mails",
        json!({"matcher": {"name": "mail"}, "rate": {"per_second": 0.001, "burst": 2}}),
    )
    .await;
    let mut worker = world.worker(50).await;
    for _ in 0..3 {
        world.enqueue(json!({"name": "mail"})).await;
    }
    worker.next_ids(2).await;
    worker.is_left_alone().await;
    let held = world.job("3").await;
    assert_eq!((&held["status"], &held["held_by"]), (&json!("queued"), &json!("mails")));
    let native = world.server.get("/api/v1/jobs/3").await.json();
    assert_eq!(native["waiting_for"], "limit mails", "told everywhere");
    let other = world.enqueue(json!({"name": "other"})).await;
    assert_eq!(worker.next_id().await, other);
}

#[tokio::test]
async fn a_rate_lets_one_after_another_go_in_its_time() {
    // Rates use the store's clock, and the tests cannot move that of PostgreSQL.
    let is_ours = Kind::chosen() != Kind::Postgres;
    let world = if is_ours { World::new().await } else { World::real(Settings::default()).await };
    constrain(&world, "mails", json!({"matcher": {"name": "mail"}, "rate": {"per_second": 2, "burst": 2}}))
        .await;
    let mut worker = world.worker(50).await;
    let began = Instant::now();
    for _ in 0..6 {
        world.enqueue(json!({"name": "mail"})).await;
    }
    worker.next_ids(2).await;
    for later in 1..=4 {
        if is_ours {
            world.pass(499);
            worker.is_left_alone().await;
            world.pass(1);
        }
        worker.next_id().await;
        // Both clocks are truncated to milliseconds.
        let earned = Duration::from_millis(500 * later - 10);
        assert!(is_ours || began.elapsed() >= earned, "{later} after {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_matcher_looks_into_the_argument() {
    let world = World::new().await;
    for word in ["arg", "parameter"] {
        let matcher = json!({"all": [{"name": "fetch"}, {word: ["host"], "op": "eq", "value": "a.example"}]});
        constrain(&world, word, json!({"matcher": matcher, "max_running": 1})).await;
        let mut worker = world.worker(50).await;
        let fetch =
            async |host: &str| world.enqueue(json!({"name": "fetch", "argument": {"host": host}})).await;
        let first = fetch("a.example").await;
        assert_eq!(worker.next_id().await, first);
        let second = fetch("a.example").await;
        let elsewhere = fetch("b.example").await;
        assert_eq!(worker.next_id().await, elsewhere);
        worker.is_left_alone().await;
        // Binary data beside it does not hide the host: {host: "a.example", x: bin}
        let body = b"\x82\xa4name\xa5fetch\xa8argument\x82\xa4host\xa9a.example\xa1x\xc4\x01\xff";
        assert_eq!(world.send("POST", "/job", &[("content-type", MSGPACK)], body).await.status(), 201);
        worker.is_left_alone().await;
        world.succeed(&worker.id, &first, Value::Null).await;
        assert_eq!(worker.next_id().await, second);
        world.succeed(&worker.id, &second, Value::Null).await;
        worker.next_id().await;
        world.call("DELETE", &format!("/constraint/{word}"), &Value::Null).await;
        world.call_as(Some(&worker.id), "DELETE", "/worker", &Value::Null).await;
        world.pass(100_000);
        let mut cleaner = world.worker(50).await;
        for id in cleaner.next_ids(2).await {
            world.succeed(&cleaner.id, &id, Value::Null).await;
        }
        world.call_as(Some(&cleaner.id), "DELETE", "/worker", &Value::Null).await;
    }
}

#[tokio::test]
async fn what_is_held_is_passed_by() {
    let world = World::new().await;
    constrain(
        &world,
        "none",
        json!({"matcher": {"name": "held"}, "rate": {"per_second": 0.001, "burst": 1}}),
    )
    .await;
    let mut worker = world.worker(5).await;
    for _ in 0..3 {
        world.enqueue(json!({"name": "held", "priority": -10})).await;
    }
    worker.next_id().await;
    let worse = world.enqueue(json!({"name": "free", "priority": 10})).await;
    assert_eq!(worker.next_id().await, worse);
}

#[tokio::test]
async fn no_more_run_at_once_than_allowed_on_all_workers_together() {
    let world = World::new().await;
    constrain(&world, "one", json!({"matcher": {"name_glob": "m*"}, "max_running": 1})).await;
    let (mut one, mut two) = (world.worker(5).await, world.worker(5).await);
    for name in ["ma", "mb", "mc"] {
        world.enqueue(json!({"name": name})).await;
    }
    for left in (0..3).rev() {
        let (id, worker) = tokio::select! {
            id = one.next_id() => (id, one.id.clone()),
            id = two.next_id() => (id, two.id.clone()),
        };
        one.is_left_alone().await;
        two.is_left_alone().await;
        assert_eq!(world.get("/constraint/one").await.value()["running"], 1);
        if left == 1 {
            world.fail(&worker, &id, false).await;
        } else {
            world.succeed(&worker, &id, Value::Null).await;
        }
    }
}

#[tokio::test]
async fn every_constraint_that_is_about_a_job_has_to_allow_it() {
    let world = World::new().await;
    constrain(&world, "a", json!({"matcher": {"name": "x"}, "max_running": 2})).await;
    constrain(&world, "b", json!({"matcher": {"priority": {"ge": 10}}, "max_running": 1})).await;
    let mut worker = world.worker(50).await;
    let first = world.enqueue(json!({"name": "x", "priority": 10})).await;
    worker.next_id().await;
    world.enqueue(json!({"name": "x", "priority": 10})).await;
    worker.is_left_alone().await;
    assert_eq!(world.job("2").await["held_by"], "b");
    world.enqueue(json!({"name": "x"})).await;
    worker.next_id().await;
    world.enqueue(json!({"name": "x"})).await;
    worker.is_left_alone().await;
    assert_eq!(world.job("4").await["held_by"], "a");
    let free = world.enqueue(json!({"name": "y"})).await;
    assert_eq!(worker.next_id().await, free, "what no constraint is about is always allowed");
    world.succeed(&worker.id, &first, Value::Null).await;
    assert_eq!(worker.next_id().await, "4", "the better one of the two; now a is full again");
}

#[tokio::test]
async fn groups_do_not_hold_each_other() {
    let world = World::new().await;
    let each = json!({"matcher": {"all": []}, "max_running": 1, "group_by": [["user"]]});
    constrain(&world, "each", each).await;
    let mut worker = world.worker(50).await;
    for user in ["ann", "ann", "bob"] {
        world.enqueue(json!({"argument": {"user": user}})).await;
    }
    let mut given = worker.next_ids(2).await;
    given.sort_unstable();
    assert_eq!(given, ["1", "3"]);
    worker.is_left_alone().await;
    assert_eq!(world.job("2").await["held_by"], "each");
    world.succeed(&worker.id, "1", Value::Null).await;
    assert_eq!(worker.next_id().await, "2");
}

#[tokio::test]
async fn without_its_constraint_what_was_held_goes_at_once() {
    let world = World::new().await;
    let mut worker = world.worker(50).await;
    for _ in 0..3 {
        world.enqueue(json!({})).await;
    }
    let before = worker.next_ids(3).await;
    constrain(&world, "one", json!({"matcher": {"name": "t"}, "max_running": 1})).await;
    let ids = [world.enqueue(json!({})).await, world.enqueue(json!({})).await];
    worker.is_left_alone().await;
    assert_eq!(world.get("/constraint/one").await.value()["running"], 3, "what runs already counts");
    for id in &before[..2] {
        world.succeed(&worker.id, id, Value::Null).await;
    }
    worker.is_left_alone().await;
    assert_eq!(world.call("DELETE", "/constraint/one", &Value::Null).await.status(), 204);
    let mut given = worker.next_ids(2).await;
    given.sort_unstable();
    assert_eq!(given, ids);
    assert_eq!(world.call("DELETE", "/constraint/one", &Value::Null).await.status(), 404);
}

#[tokio::test]
async fn what_is_no_constraint_changes_nothing() {
    let world = World::new().await;
    let good = json!({"matcher": {"name": "t"}, "max_running": 1});
    constrain(&world, "c", good.clone()).await;
    for bad in [
        json!({}),
        json!({"max_running": 1}),
        json!({"matcher": {"name": "t"}}),
        json!({"matcher": {"nam": "t"}, "max_running": 1}),
        json!({"matcher": {"name": "t", "name_glob": "x"}, "max_running": 1}),
        json!({"matcher": {"arg": ["a"], "op": "like", "value": 1}, "max_running": 1}),
        json!({"matcher": {"arg": "a", "op": "eq", "value": 1}, "max_running": 1}),
        json!({"matcher": {"all": {}}, "max_running": 1}),
        json!({"matcher": {"name": "t"}, "max_running": 0}),
        json!({"matcher": {"name": "t"}, "rate": {"per_second": 0}}),
        json!({"matcher": {"name": "t"}, "rate": {"per_second": "fast"}}),
        json!({"matcher": {"name": "t"}, "max_running": 1, "group_by": "user"}),
        json!([]),
    ] {
        let answer = world.call("PUT", "/constraint/c", &bad).await;
        assert_eq!((answer.status(), answer.error().as_str()), (400, "bad_request"), "{bad}");
        assert_eq!(world.call("PUT", "/constraint/new", &bad).await.status(), 400);
    }
    let all = world.get("/constraint").await.value();
    let expected = json!({"id": "c", "matcher": {"name": "t"}, "max_running": 1, "running": 0});
    assert_eq!(all, json!({"constraints": [expected]}));
    assert_eq!(world.get("/constraint/c").await.value(), expected);
    assert_eq!(world.get("/constraint/new").await.status(), 404);
}

#[tokio::test]
async fn a_token_that_reached_no_worker_is_given_back() {
    let world = World::new().await;
    constrain(&world, "slow", json!({"matcher": {"all": []}, "rate": {"per_second": 0.001, "burst": 1}}))
        .await;
    let broken = world.worker(1).await;
    broken.answers(|_| 503);
    let id = world.enqueue(json!({})).await;
    let mut sound = world.worker(1).await;
    assert_eq!(sound.next_id().await, id);
}

#[tokio::test]
async fn a_constraint_is_the_servers_limit_by_another_name() {
    let world = World::new().await;
    constrain(&world, "c", json!({"matcher": {"parameter": ["a"], "op": "exists"}, "max_running": 3})).await;
    let limits = world.server.get("/api/v1/limits").await.json();
    assert_eq!(limits["limits"][0]["id"], "c");
    let body = r#"{"matcher":{"queue":"jq"},"max_running":9}"#;
    assert_eq!(world.server.call("PUT", "/api/v1/limits/c", body).await.status, 200);
    assert_eq!(world.get("/constraint/c").await.value()["max_running"], 9);
}
