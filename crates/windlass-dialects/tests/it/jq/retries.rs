use super::world::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windlass_dialects::jq::Settings;

#[tokio::test]
async fn without_retries_or_against_the_workers_word_a_failure_is_the_end() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    for (overrides, should_retry) in [(json!({"max_retry": 0}), true), (json!({"max_retry": 5}), false)] {
        let id = world.enqueue(overrides).await;
        worker.next_id().await;
        world.fail(&worker.id, &id, should_retry).await;
        let job = world.job(&id).await;
        assert_eq!((&job["status"], &job["retry_count"]), (&json!("error"), &json!(0)));
        world.pass(10_000_000);
        worker.is_left_alone().await;
    }
}

#[tokio::test]
async fn retries_are_counted_and_wait_twice_as_long_each_time() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"max_retry": 4})).await;
    assert_eq!(world.job(&id).await["retry_count"], 0);
    for (retry, wait_ms) in (1..=4).zip([1_000, 2_000, 4_000, 8_000]) {
        assert_eq!(worker.next().await.value["attempt"], retry);
        assert_eq!(world.status(&id).await, "running");
        world.fail(&worker.id, &id, true).await;
        let job = world.job(&id).await;
        assert_eq!((&job["status"], &job["retry_count"]), (&json!("retrying"), &json!(retry)));
        assert_eq!((&job["error"], &job["message"]), (&json!({"code": 7}), &json!("no luck")));
        assert_eq!(job["worker_id"], json!(worker.id));
        world.pass(wait_ms - 1);
        worker.is_left_alone().await;
        // Jitter: up to a tenth more.
        world.pass(1 + wait_ms / 10);
    }
    worker.next_id().await;
    world.fail(&worker.id, &id, true).await;
    let job = world.job(&id).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("error"), &json!(4)));
    assert_eq!(
        (&job["error"], &job["message"], &job["reason"]),
        (&json!({"code": 7}), &json!("no luck"), &json!("other"))
    );
    world.pass(100_000_000);
    worker.is_left_alone().await;
}

#[tokio::test]
async fn ten_retries_are_allowed_where_nothing_is_said() {
    let world = World::with(Settings { backoff_base_ms: 0, ..Settings::default() }).await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({})).await;
    for attempt in 1..=11 {
        assert_eq!(worker.next().await.value["attempt"], attempt);
        world.fail(&worker.id, &id, true).await;
    }
    let job = world.job(&id).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("error"), &json!(10)));
    worker.is_left_alone().await;
}

#[tokio::test]
async fn no_wait_is_longer_than_the_cap() {
    let settings = Settings { backoff_base_ms: 1_000, backoff_cap_ms: 3_000, ..Settings::default() };
    let world = World::with(settings).await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({})).await;
    for wait_ms in [1_100, 2_200, 3_300, 3_300, 3_300] {
        worker.next_id().await;
        world.fail(&worker.id, &id, true).await;
        world.pass(wait_ms);
    }
    worker.next_id().await;
}

#[tokio::test]
async fn while_one_waits_for_its_retry_others_run() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let failing = world.enqueue(json!({"priority": -5})).await;
    worker.next_id().await;
    let worse = world.enqueue(json!({"priority": 5})).await;
    world.fail(&worker.id, &failing, true).await;
    assert_eq!(worker.next_id().await, worse);
}

#[tokio::test]
async fn a_job_nobody_answers_for_times_out() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"timeout": 1, "max_retry": 1})).await;
    worker.next_id().await;
    world.until_written(&id, &worker.id).await;
    world.pass(999);
    assert_eq!(world.status(&id).await, "running");
    world.pass(1);
    let job = world.until(&id, "retrying").await;
    assert_eq!((&job["reason"], &job["retry_count"]), (&json!("timeout"), &json!(1)));
    assert_eq!(job["worker_id"], json!(worker.id));
    world.pass(1_100);
    assert_eq!(worker.next_id().await, id, "its place was free again");
    world.until_written(&id, &worker.id).await;
    world.pass(1_000);
    assert_eq!(world.until(&id, "error").await["reason"], "timeout");

    let id = world.enqueue(json!({"max_retry": 0})).await;
    worker.next_id().await;
    world.until_written(&id, &worker.id).await;
    world.pass(29_999);
    assert_eq!(world.status(&id).await, "running");
    world.pass(1);
    world.until(&id, "error").await;
}

/// The timeout counts from the worker's answer, not from the claim.
#[tokio::test]
async fn the_timeout_counts_from_the_workers_yes() {
    let world = World::real(Settings::default()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = json!({"name": "slow", "max_jobs": 1, "url": url});
    assert_eq!(world.call("POST", "/worker", &body).await.status(), 201);
    let id = world.enqueue(json!({"timeout": 1, "max_retry": 0})).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    // The worker answers later than the timeout of the job.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.status(&id).await, "running");
    let yes = Instant::now();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    world.until(&id, "error").await;
    let after = yes.elapsed();
    assert!(after >= Duration::from_millis(900) && after < Duration::from_millis(2_500), "{after:?}");
    assert_eq!(world.job(&id).await["reason"], "timeout");
}

#[tokio::test]
async fn a_timeout_the_worker_reports_is_a_failure_like_any_other() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"keep_result": true})).await;
    worker.next_id().await;
    let mut body = failure(&id, true);
    body["reason"] = json!("timeout");
    assert_eq!(world.done(&worker.id, body).await, 204);
    let job = world.job(&id).await;
    assert_eq!((&job["status"], &job["reason"]), (&json!("retrying"), &json!("timeout")));
    world.pass(1_100);
    worker.next_id().await;
    world.succeed(&worker.id, &id, json!("at last")).await;
    let job = world.get(&format!("/job/{id}")).await.value();
    let seen = ["status", "retry_count", "result", "error", "message"].map(|key| job[key].clone());
    assert_eq!(json!(seen), json!(["done", 1, "at last", Value::Null, Value::Null]));
}
