//! Two servers on one PostgreSQL: both know a worker that registered with one of them.

use super::world::*;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_dialects::jq::{FixedWorker, Settings};

async fn ping(world: &World, worker: &str) -> u16 {
    world.call_as(Some(worker), "POST", "/worker/ping", &Value::Null).await.status()
}

async fn leave(world: &World, worker: &str, how: &str) -> u16 {
    world.call_as(Some(worker), "DELETE", &format!("/worker{how}"), &Value::Null).await.status()
}

/// Workers to which a server sends jobs.
async fn served(world: &World) -> Value {
    world.server.get("/api/v1/workers").await.json()["registered"].clone()
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_worker_answers_any_server() {
    let (one, other) = World::two(Settings::default()).await;
    let mut worker = one.worker(1).await;
    let id = one.enqueue(json!({"max_retry": 0, "keep_result": true})).await;
    assert_eq!(worker.next_id().await, id);
    other.succeed(&worker.id, &id, json!("there")).await;
    assert_eq!(one.status(&id).await, "done");
    other.succeed(&worker.id, &id, json!("again")).await;
    assert_eq!(one.job(&id).await["result"], "there");
    // The slot is free, although the report went to the other server.
    let next = other.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, next);
    other.fail(&worker.id, &next, false).await;
    assert_eq!(other.status(&next).await, "error");
    let body = json!({"job_id": id, "type": "success"});
    assert_eq!(other.done("w-nobody", body).await, 404);
    assert_eq!(ping(&other, "w-nobody").await, 404);
    assert_eq!(leave(&other, "w-nobody", "").await, 404);
}

#[tokio::test]
async fn a_worker_leaves_at_any_server() {
    let (one, other) = World::two(Settings::default()).await;
    let mut worker = one.worker(1).await;
    let id = one.enqueue(json!({"max_retry": 0})).await;
    worker.next_id().await;
    assert_eq!(leave(&other, &worker.id, "").await, 204);
    let job = one.until(&id, "error").await;
    assert_eq!((&job["reason"], &job["worker_id"]), (&json!("other"), &json!(worker.id)));
    eventually("it is gone there, too", async || served(&one).await == json!([])).await;
    assert_eq!((leave(&one, &worker.id, "").await, leave(&other, &worker.id, "").await), (404, 404));

    let mut worker = one.worker(2).await;
    let has = one.enqueue(json!({})).await;
    worker.next_id().await;
    assert_eq!(leave(&other, &worker.id, "?drain=true").await, 204);
    other.succeed(&worker.id, &has, Value::Null).await;
    assert_eq!(one.status(&has).await, "done");
    eventually("it has ended what it had", async || served(&one).await == json!([])).await;
    eventually("and is known to nobody", async || ping(&other, &worker.id).await == 404).await;
}

#[tokio::test]
async fn a_ping_counts_at_any_server() {
    let (one, other) = World::two(Settings::default()).await;
    let worker = one.worker(1).await;
    assert_eq!(ping(&one, &worker.id).await, 204);
    one.pass(9_000);
    let now = one.server.engine.now().as_millis();
    assert_eq!(ping(&other, &worker.id).await, 204);
    eventually("the server that serves it hears of it", async || {
        served(&one).await[0]["last_sign"].as_i64() == Some(now)
    })
    .await;
    one.pass(9_000);
    assert_eq!(ping(&one, &worker.id).await, 204);
    one.pass(10_000);
    eventually("silence is silence", async || served(&one).await == json!([])).await;
    eventually("everywhere", async || ping(&other, &worker.id).await == 404).await;
}

#[tokio::test]
async fn the_workers_of_a_dead_server_are_served_by_another_and_get_no_more_than_they_take() {
    let (one, other) = World::two(Settings::default()).await;
    let mut worker = one.worker(2).await;
    let has = one.enqueue(json!({"max_retry": 0})).await;
    assert_eq!(worker.next_id().await, has);
    let (_store, _) = one.kill().await;
    let ids = [other.enqueue(json!({})).await, other.enqueue(json!({})).await];
    assert_eq!(worker.next_id().await, ids[0], "its second place");
    assert_eq!(served(&other).await[0]["running"], 2);
    worker.is_left_alone().await;
    other.succeed(&worker.id, &has, Value::Null).await;
    assert_eq!(other.status(&has).await, "done");
    assert_eq!(worker.next_id().await, ids[1]);
}

#[tokio::test]
async fn a_server_that_stops_leaves_its_workers_to_the_others_at_once() {
    let (mut one, other) = World::two(Settings::default()).await;
    let mut worker = one.worker(1).await;
    one.server.stop();
    (&mut one.server.serving).await.unwrap().unwrap();
    let id = other.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, id);
    other.succeed(&worker.id, &id, Value::Null).await;
}

#[tokio::test]
async fn a_worker_in_the_configuration_of_both_is_served_by_one() {
    let mut worker = FakeWorker::listen().await;
    let line = format!("mailer {} 1", worker.url());
    let settings = Settings { workers: vec![FixedWorker::parse(&line).unwrap()], ..Settings::default() };
    let (one, other) = World::two(settings).await;
    let first = one.enqueue(json!({})).await;
    let second = one.enqueue(json!({})).await;
    assert_eq!(worker.next_id().await, first);
    eventually("both have looked", async || {
        served(&one).await.as_array().unwrap().len() + served(&other).await.as_array().unwrap().len() == 1
    })
    .await;
    worker.is_left_alone().await;
    other.succeed("mailer", &first, Value::Null).await;
    assert_eq!(worker.next_id().await, second);
    one.succeed("mailer", &second, Value::Null).await;
}
