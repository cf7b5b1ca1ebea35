//! Claims and heartbeats.

use super::{AGE, Queue, R1, R2, fields};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::Timestamp;

#[tokio::test]
async fn s16_s17_a_claim_answers_with_the_job_as_it_is_then() {
    let queue = Queue::open().await;
    let id = queue.create().await;
    queue.pass(7);
    let reply = queue.claim(&R1.to_uppercase()).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let job = reply.json();
    assert_eq!(job["job_id"], json!(id));
    let shown = fields(&job, ["status", "runner_id", "run_attempts", "updated_at"]);
    assert_eq!(shown, [json!("active"), json!(R1), json!(1), json!(queue.now())]);
    queue.pass(9);
    assert_eq!(queue.get(&id).await, job);
}

#[tokio::test]
async fn s18_the_oldest_comes_first() {
    let queue = Queue::open().await;
    let mut made = vec![];
    for pause in [0, 5, 0] {
        made.push(queue.create().await);
        queue.pass(pause);
    }
    for id in &made {
        assert_eq!(queue.claimed(R1).await.as_ref(), Some(id));
    }
}

#[tokio::test]
async fn s19_s20_what_is_not_pending_is_not_given_out_and_none_is_204() {
    let queue = Queue::open().await;
    let (done, failed) = (queue.active().await, queue.active().await);
    queue.active().await;
    queue.completed(&done).await;
    queue.complete(&failed, json!({"status": "failed"})).await;
    let reply = queue.claim(R2).await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    assert_eq!((reply.header("content-length"), reply.header("content-type")), (None, None));
}

#[tokio::test]
async fn s21_two_runners_claiming_at_once_share_no_job() {
    let queue = Queue::open().await;
    let mut made = BTreeSet::new();
    for _ in 0..50 {
        made.insert(queue.create().await);
    }
    let queue = Arc::new(queue);
    let race = |runner: &'static str| {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move {
            let mut given = vec![];
            for _ in 0..50 {
                given.push(queue.claimed(runner).await);
            }
            given
        })
    };
    let (first, second) = (race(R1), race(R2));
    let given: Vec<Option<String>> = first.await.unwrap().into_iter().chain(second.await.unwrap()).collect();
    let jobs: Vec<String> = given.iter().flatten().cloned().collect();
    assert_eq!((given.len(), jobs.len()), (100, 50));
    assert_eq!(jobs.into_iter().collect::<BTreeSet<_>>(), made);
}

#[tokio::test]
async fn s22_an_abandoned_job_is_as_old_as_it_was() {
    let queue = Queue::open().await;
    let first = queue.active().await;
    queue.pass(10);
    let second = queue.create().await;
    queue.pass(AGE);
    assert_eq!(queue.claimed(R2).await, Some(first));
    assert_eq!(queue.claimed(R2).await, Some(second));
}

#[tokio::test]
async fn s23_a_claim_without_a_runner_claims_nothing() {
    let queue = Queue::open().await;
    let id = queue.create().await;
    for (body, status) in
        [("{}", 422), (r#"{"runner_id":"bob"}"#, 422), (r#"{"runner_id":1}"#, 422), ("{", 400), ("", 415)]
    {
        assert_eq!(queue.server.post("/jobs/claim", body).await.status, status, "{body}");
    }
    let reply = queue.server.get("/jobs/claim").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(queue.get(&id).await["status"], "pending");
}

#[tokio::test]
async fn s24_one_runner_may_hold_several() {
    let queue = Queue::open().await;
    let (first, second) = (queue.active().await, queue.active().await);
    for id in [first, second] {
        assert_eq!(queue.get(&id).await["runner_id"], R1);
    }
}

#[tokio::test]
async fn s25_s30_s31_a_tickle_moves_updated_at_and_nothing_else() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    let mut before = queue.get(&id).await;
    queue.pass(1_000);
    let reply = queue.tickle(&id).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "{}"));
    before["updated_at"] = json!(queue.now());
    assert_eq!(queue.get(&id).await, before);
}

#[tokio::test]
async fn s26_s29_only_an_active_job_can_be_tickled() {
    let queue = Queue::open().await;
    let unknown = queue.tickle("2d9e3e70-8f61-4c73-9f7d-30207c9eb003").await;
    assert_eq!((unknown.status, queue.tickle("nonsense").await.status), (404, 400));
    let pending = queue.create().await;
    let (completed, failed) = {
        let first = queue.claimed(R1).await.unwrap();
        queue.completed(&first).await;
        let second = queue.active().await;
        queue.complete(&second, json!({"status": "failed"})).await;
        (first, second)
    };
    assert_eq!(pending, completed);
    let pending = queue.create().await;
    for id in [pending, completed, failed] {
        let before = queue.get(&id).await;
        queue.pass(10);
        assert_eq!(queue.tickle(&id).await.status, 400, "{}", before["status"]);
        assert_eq!(queue.get(&id).await, before);
    }
}

#[tokio::test]
async fn s32_tickles_in_time_keep_a_job_active() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    for _ in 0..6 {
        queue.pass(AGE / 2);
        assert_eq!(queue.tickle(&id).await.status, 200);
    }
    let job = queue.get(&id).await;
    assert_eq!((&job["status"], &job["run_attempts"]), (&json!("active"), &json!(1)));
}

#[tokio::test]
async fn a_job_pushed_natively_is_handed_out_and_seen_to_its_end() {
    let queue = Queue::open().await;
    let push =
        json!({"queue": "queuey", "name": "any", "payload": {"binary_addr": "b"}, "alias": "not a uuid"});
    assert_eq!(queue.server.post("/api/v1/jobs", &push.to_string()).await.status, 201);
    let elsewhere = json!({"queue": "other", "name": "any", "alias": "2d9e3e70-8f61-4c73-9f7d-30207c9eb003"});
    assert_eq!(queue.server.post("/api/v1/jobs", &elsewhere.to_string()).await.status, 201);
    // Jobs of other queues are not found, not even by number.
    for id in ["2d9e3e70-8f61-4c73-9f7d-30207c9eb003", "00000000-0000-8000-8000-000000000002"] {
        assert_eq!(queue.server.get(&format!("/jobs/{id}")).await.status, 404, "{id}");
    }
    let job = queue.claim(R1).await.json();
    let id = "00000000-0000-8000-8000-000000000001";
    assert_eq!(
        (&job["job_id"], &job["binary_addr"], &job["input_addr"]),
        (&json!(id), &json!("b"), &Value::Null)
    );
    assert_eq!(queue.claimed(R1).await, None);
    assert_eq!(queue.tickle(id).await.status, 200);
    assert_eq!(queue.completed(id).await.status, 200);
    let native = queue.server.get("/api/v1/jobs/1").await.json();
    assert_eq!((&native["state"], &native["result"]), (&json!("completed"), &json!({"output_addr": "out"})));
}

#[tokio::test]
async fn a_job_of_this_queue_is_shown_natively() {
    let queue = Queue::open().await;
    let id = queue.active().await;
    let native = queue.server.get(&format!("/api/v1/aliases/{id}")).await.json();
    assert_eq!(
        (&native["queue"], &native["name"], &native["origin"]),
        (&json!("queuey"), &json!("wasi"), &json!("queuey"))
    );
    assert_eq!(native["payload"]["binary_addr"], json!(super::BINARY));
    assert_eq!(native["lease"]["worker"], json!(R1));
    let until = Timestamp::from_millis(queue.now() + AGE + 1);
    assert_eq!(native["lease"]["until"], json!(until.as_millis()));
}
