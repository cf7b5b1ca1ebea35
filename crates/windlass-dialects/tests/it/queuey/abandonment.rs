//! Runners without heartbeat.

use super::{AGE, Queue, R1, R2, START, fields};
use serde_json::{Value, json};
use windlass_core::Tenant;
use windlass_dialects::queuey::in_process_runner::{InProcessRunner, StillHeld};
use windlass_dialects::queuey::{Counting, Settings};

const SHOWN: [&str; 4] = ["status", "runner_id", "run_attempts", "updated_at"];

#[tokio::test]
async fn s44_s45_s46_s54_a_job_is_abandoned_when_its_age_is_passed_and_not_before() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    queue.pass(AGE);
    let active = [json!("active"), json!(R1), json!(1), json!(START)];
    assert_eq!(fields(&queue.get(&id).await, SHOWN), active);
    queue.pass(1);
    let abandoned = [json!("pending"), Value::Null, json!(2), json!(START + AGE + 1)];
    assert_eq!(fields(&queue.get(&id).await, SHOWN), abandoned);
    assert_eq!(queue.get(&id).await["completed_at"], Value::Null);
}

#[tokio::test]
async fn s47_s48_the_second_abandonment_is_the_last_when_counting_literally() {
    let queue = Queue::open().await;
    let id = queue.create().await;
    for attempts in [1, 3] {
        let job = queue.claim(R1).await.json();
        assert_eq!((&job["job_id"], &job["run_attempts"]), (&json!(id), &json!(attempts)));
        queue.pass(AGE + 1);
    }
    let job = queue.get(&id).await;
    assert_eq!(fields(&job, SHOWN), [json!("failed"), Value::Null, json!(4), json!(queue.now())]);
    queue.pass(10 * AGE);
    assert_eq!(queue.claimed(R1).await, None);
    assert_eq!((queue.tickle(&id).await.status, queue.completed(&id).await.status), (400, 400));
    assert_eq!(queue.get(&id).await, job);
}

#[tokio::test]
async fn s47_counting_claims_only_the_third_abandonment_is_the_last() {
    let queue = Queue::with(Settings { counting: Counting::ClaimsOnly, ..Settings::default() }).await;
    let id = queue.create().await;
    for attempts in [1, 2, 3] {
        assert_eq!(queue.get(&id).await["status"], "pending");
        assert_eq!(queue.claim(R1).await.json()["run_attempts"], attempts);
        queue.pass(AGE + 1);
        assert_eq!(queue.get(&id).await["run_attempts"], attempts);
    }
    assert_eq!(queue.get(&id).await["status"], "failed");
}

#[tokio::test]
async fn age_and_limit_can_be_set() {
    let settings = Settings { abandoned_age_ms: 2_000, max_attempts: 1, ..Settings::default() };
    let queue = Queue::with(settings).await;
    let id = queue.active().await;
    queue.pass(2_000);
    assert_eq!(queue.get(&id).await["status"], "active");
    queue.pass(1);
    assert_eq!(fields(&queue.get(&id).await, SHOWN)[..3], [json!("failed"), Value::Null, json!(2)]);
}

#[tokio::test]
async fn s49_s50_what_is_pending_or_ended_stays_as_it_is() {
    let queue = Queue::open().await;
    let (completed, failed) = (queue.active().await, queue.active().await);
    queue.completed(&completed).await;
    queue.complete(&failed, json!({"status": "failed"})).await;
    let pending = queue.create().await;
    let mut before = vec![];
    for id in [&completed, &failed, &pending] {
        before.push(queue.get(id).await);
    }
    queue.pass(1_000 * AGE);
    for (id, job) in [&completed, &failed, &pending].into_iter().zip(&before) {
        assert_eq!(queue.get(id).await, *job);
    }
}

#[tokio::test]
async fn s51_a_late_completion_does_not_end_another_runners_run() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    queue.pass(AGE + 1);
    assert_eq!(queue.claimed(R2).await.as_ref(), Some(&id));
    let late =
        queue.complete(&id, json!({"status": "completed", "output_addr": "late", "runner_id": R1})).await;
    assert_eq!(late.status, 409);
    assert_eq!(fields(&queue.get(&id).await, SHOWN)[..2], [json!("active"), json!(R2)]);
    assert_eq!(queue.complete(&id, json!({"status": "completed", "runner_id": R2})).await.status, 200);
}

#[tokio::test]
async fn s52_a_late_tickle_is_refused_and_brings_the_abandonment_to_light() {
    for is_noticed in [true, false] {
        let queue = Queue::open().await;
        let id = queue.active().await;
        match is_noticed {
            true => queue.pass_unseen(AGE + 1).await,
            false => queue.pass(AGE + 1),
        }
        assert_eq!(queue.tickle(&id).await.status, 400);
        assert_eq!(queue.completed(&id).await.status, 400, "the tickle was a look");
        assert_eq!(queue.get(&id).await["status"], "pending");
    }
}

#[tokio::test]
async fn s53_a_late_completion_counts_as_long_as_nobody_looked() {
    for is_noticed in [true, false] {
        let queue = Queue::open().await;
        let id = queue.active().await;
        queue.pass(1_000);
        queue.tickle(&id).await;
        // As in the example of the protocol's own document: long after the age.
        match is_noticed {
            true => queue.pass_unseen(1_658_000).await,
            false => queue.pass(1_658_000),
        }
        let other = queue.complete(&id, json!({"status": "completed", "runner_id": R2})).await;
        assert_eq!(other.status, 409, "it was never that runner's");
        let reply =
            queue.complete(&id, json!({"status": "completed", "output_addr": "x", "runner_id": R1})).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let job = queue.get(&id).await;
        assert_eq!(fields(&job, SHOWN), [json!("completed"), json!(R1), json!(1), json!(START + 1_000)]);
        assert_eq!(job["completed_at"], json!(START + 1_659_000));
    }
}

#[tokio::test]
async fn s53_a_look_at_any_job_ends_the_chance_of_a_late_completion() {
    for look in ["get", "claim", "get another"] {
        let queue = Queue::open().await;
        let id = queue.active().await;
        queue.pass_unseen(AGE + 1).await;
        match look {
            "get" => assert_eq!(queue.get(&id).await["status"], "pending"),
            "claim" => assert_eq!(queue.claimed(R2).await.as_ref(), Some(&id)),
            _ => assert_eq!(queue.server.get("/jobs/2d9e3e70-8f61-4c73-9f7d-30207c9eb003").await.status, 404),
        }
        let late = queue.complete(&id, json!({"status": "completed", "runner_id": R1})).await;
        assert_eq!(late.status, if look == "claim" { 409 } else { 400 }, "{look}");
    }
}

#[tokio::test]
async fn s55_the_defaults_are_five_minutes_and_three() {
    let settings = Settings::default();
    assert_eq!((settings.abandoned_age_ms, settings.max_attempts), (300_000, 3));
    assert_eq!((settings.counting, settings.keep_ms), (Counting::Literal, None));
}

#[tokio::test]
async fn ended_jobs_go_after_the_time_an_operator_set() {
    let queue = Queue::with(Settings { keep_ms: Some(5_000), ..Settings::default() }).await;
    let id = queue.active().await;
    queue.completed(&id).await;
    queue.pass(4_999);
    assert_eq!(queue.get(&id).await["status"], "completed");
    queue.pass(1);
    assert_eq!(queue.server.get(&format!("/jobs/{id}")).await.status, 404);
}

/// Applies even if remote runners have a day: a runner inside the server ends with it.
#[tokio::test]
async fn a_runner_inside_a_server_that_was_killed_keeps_its_job_for_half_a_minute() {
    let settings = Settings { abandoned_age_ms: 24 * 3_600_000, ..Settings::default() };
    let queue = Queue::with(settings.clone()).await;
    let id = queue.create().await;
    let runner = || InProcessRunner::new(queue.server.engine.clone(), Tenant::default(), settings.clone());
    let (killed, other) = (runner(), runner());
    let held = killed.claim(1, 0).await.unwrap().pop().unwrap();
    assert_eq!(held.job_id, id);
    for _ in 0..4 {
        queue.pass_unseen(20_000).await;
        assert_eq!(killed.tickle(&held).await.unwrap(), StillHeld::Yes);
    }
    queue.pass_unseen(30_000).await;
    assert!(other.claim(1, 0).await.unwrap().is_empty());
    queue.pass_unseen(1).await;
    assert_eq!(other.claim(1, 0).await.unwrap().pop().map(|held| held.job_id), Some(id));
    assert_eq!(killed.tickle(&held).await.unwrap(), StillHeld::No);
}
