//! Ends of runs.

use super::{Queue, R1, R2, START, fields};
use serde_json::{Value, json};

#[tokio::test]
async fn s33_s41_a_completion_says_what_came_out_and_when_and_leaves_the_rest() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    queue.pass(1_000);
    queue.tickle(&id).await;
    queue.pass(5_000);
    let before = queue.get(&id).await;
    let reply = queue.complete(&id, json!({"status": "completed", "output_addr": "there"})).await;
    assert_eq!(reply.status, 200);
    let job = queue.get(&id).await;
    assert_eq!(reply.json(), job);
    let shown = fields(&job, ["status", "output_addr", "completed_at", "runner_id"]);
    assert_eq!(shown, [json!("completed"), json!("there"), json!(START + 6_000), json!(R1)]);
    assert_eq!((&job["updated_at"], &job["run_attempts"]), (&json!(START + 1_000), &json!(1)));
    for same in ["created_at", "updated_at", "run_attempts", "runner_id", "binary_addr"] {
        assert_eq!(job[same], before[same], "{same}");
    }
}

#[tokio::test]
async fn s34_s42_an_explicit_failure_is_final_and_has_an_end() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    queue.pass(3);
    assert_eq!(queue.complete(&id, json!({"status": "failed", "output_addr": "why"})).await.status, 200);
    let job = queue.get(&id).await;
    let shown = fields(&job, ["status", "output_addr", "completed_at", "run_attempts"]);
    assert_eq!(shown, [json!("failed"), json!("why"), json!(START + 3), json!(1)]);
    assert_eq!((&job["updated_at"], &job["runner_id"]), (&json!(START), &json!(R1)));
    queue.pass(10_000_000);
    assert_eq!(queue.claimed(R1).await, None);
}

#[tokio::test]
async fn s35_s37_the_output_may_be_left_out_and_the_words_capitalised() {
    let queue = Queue::open().await;
    for (said, shown) in [("Completed", "completed"), ("Failed", "failed")] {
        let id = queue.active().await;
        assert_eq!(queue.complete(&id, json!({ "status": said })).await.status, 200);
        let job = queue.get(&id).await;
        assert_eq!((&job["status"], &job["output_addr"]), (&json!(shown), &Value::Null));
    }
}

#[tokio::test]
async fn s36_what_is_no_end_changes_nothing() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    let before = queue.get(&id).await;
    for (body, status) in [
        (json!({"status": "pending"}), 422),
        (json!({"status": "active"}), 422),
        (json!({"status": "done"}), 422),
        (json!({"output_addr": "x"}), 422),
        (json!({"status": "completed", "output_addr": 7}), 422),
        (json!({"status": "completed", "output_addr": ""}), 400),
        (json!({"status": "completed", "runner_id": "bob"}), 422),
    ] {
        assert_eq!(queue.complete(&id, body.clone()).await.status, status, "{body}");
    }
    assert_eq!(queue.server.call("POST", &format!("/jobs/{id}/complete"), "").await.status, 415);
    assert_eq!(queue.server.post(&format!("/jobs/{id}/complete"), "{").await.status, 400);
    let reply = queue.server.get(&format!("/jobs/{id}/complete")).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(queue.get(&id).await, before);
}

#[tokio::test]
async fn s38_s40_only_an_active_job_can_be_completed_and_only_once() {
    let queue = Queue::open().await;
    let pending = queue.create().await;
    assert_eq!(queue.completed(&pending).await.status, 400);
    assert_eq!(queue.get(&pending).await["status"], "pending");
    queue.claim(R1).await;
    assert_eq!(
        queue.complete(&pending, json!({"status": "failed", "output_addr": "first"})).await.status,
        200
    );
    let first = queue.get(&pending).await;
    queue.pass(10);
    assert_eq!(queue.completed(&pending).await.status, 400);
    assert_eq!(queue.get(&pending).await, first);
    assert_eq!(queue.completed("2d9e3e70-8f61-4c73-9f7d-30207c9eb003").await.status, 404);
    assert_eq!(queue.completed("nonsense").await.status, 400);
}

#[tokio::test]
async fn s43_a_runner_that_says_who_it_is_must_be_the_holder() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    let before = queue.get(&id).await;
    queue.pass(10);
    let path = format!("/jobs/{id}/tickle");
    let other = json!({ "runner_id": R2 }).to_string();
    assert_eq!(queue.server.post(&path, &other).await.status, 409);
    // Also without the header: a runner that sends its id is checked.
    assert_eq!(queue.server.connect().await.call("POST", &path, &[], other.as_bytes()).await.status, 409);
    assert_eq!(queue.complete(&id, json!({"status": "completed", "runner_id": R2})).await.status, 409);
    assert_eq!(queue.get(&id).await, before);
    let own = json!({ "runner_id": R1.to_uppercase() }).to_string();
    assert_eq!(queue.server.post(&path, &own).await.status, 200);
    assert_eq!(queue.complete(&id, json!({"status": "completed", "runner_id": R1})).await.status, 200);
}

#[tokio::test]
async fn a_completion_by_other_ways_is_shown_without_what_it_never_said() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    queue.completed(&id).await;
    // Restarted by an operator, and finished by a worker of another dialect.
    assert_eq!(queue.server.post("/api/v1/jobs/1/retry", "{}").await.status, 200);
    let pending = queue.get(&id).await;
    let shown = fields(&pending, ["status", "output_addr", "runner_id", "completed_at"]);
    assert_eq!(shown, [json!("pending"), Value::Null, Value::Null, Value::Null]);
    queue.pass(500);
    let claimed = queue.server.post("/api/v1/claim", r#"{"queues":["queuey"]}"#).await.json();
    let settle = json!({"settle": [{"id": 1, "token": claimed["jobs"][0]["token"], "outcome": "finish", "result": 5}]});
    assert_eq!(queue.server.post("/api/v1/settle", &settle.to_string()).await.status, 200);
    let job = queue.get(&id).await;
    let shown = fields(&job, ["status", "output_addr", "runner_id", "updated_at"]);
    assert_eq!(shown, [json!("completed"), Value::Null, Value::Null, json!(queue.now())]);
}
