//! Workers that die, and jobs that run in an endless loop.

use super::World;
use serde_json::json;
use windlass_dialects::sidejob::Settings;

#[tokio::test]
async fn a_run_whose_worker_is_gone_is_given_to_another_and_its_finish_is_refused() {
    let w = World::new().await;
    let job = w.create("W").await;
    let first = w.claimed().await;
    assert_eq!(first.all["lease"], json!(60));
    w.pass(59_999).await;
    assert!(w.claim().await.is_none());
    w.pass(1).await;
    assert_eq!(w.status(job).await, "queued");
    let second = w.claimed().await;
    let late = json!({"token": first.token, "status": "completed"});
    let (status, message) = w.refused("POST", &format!("/jobs/{job}/finish"), late).await;
    assert_eq!(status, 409);
    assert!(message.starts_with("Job 1 no longer belongs to this worker"), "{message}");
    assert_eq!(w.status(job).await, "running", "the second goes on");
    w.finish(&second, "completed").await;
}

#[tokio::test]
async fn a_worker_may_ask_for_more_time() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    let path = format!("/jobs/{job}/refresh_lock");
    for _ in 0..5 {
        w.pass(50_000).await;
        let refreshed = w.post(&path, json!({"token": run.token, "ttl": 60})).await;
        assert_eq!(refreshed, json!({"refresh": true}));
    }
    assert_eq!(w.post(&path, json!({"token": "7", "ttl": 60})).await, json!({"refresh": false}));
    w.pass(60_000).await;
    assert_eq!(w.post(&path, json!({"token": run.token, "ttl": 60})).await, json!({"refresh": false}));
    assert_eq!(w.claimed().await.job, job);
    assert_eq!(w.refused("POST", "/queues/q/claim", json!({"lease": 0})).await.0, 422);
}

#[tokio::test]
async fn a_worker_that_stops_gives_its_run_back() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    assert_eq!(w.finish(&run, "queued").await, json!({"job": job, "status": "queued"}));
    assert_eq!(w.drain().await, [job]);
}

#[tokio::test]
async fn a_job_that_runs_too_often_in_one_minute_is_terminated() {
    let w = World::with(Settings { runs_per_minute: 3, ..Settings::default() }).await;
    let job = w.create("W").await;
    let other = w.create("W").await;
    w.drain().await;
    for _ in 0..2 {
        w.run(job).await;
        let run = w.claimed().await;
        assert_eq!(run.kind(), "perform", "as many as allowed");
        w.finish(&run, "completed").await;
    }
    w.pass(60_000).await;
    for _ in 0..3 {
        w.run(job).await;
        assert_eq!(w.drain().await, [job], "a new minute, a new count");
    }
    w.take_logs().await;
    w.run(job).await;
    let last = w.claimed().await;
    assert_eq!(last.kind(), "shutdown", "one more is not performed");
    assert_eq!(w.status(job).await, "terminating");
    let logs = w.take_logs().await;
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0]["error"], "Job was terminated due to being called too rapidly");
    assert_eq!(logs[0]["job"], json!(job));
    w.finish(&last, "completed").await;
    assert_eq!(w.status(job).await, "terminated");
    w.run(other).await;
    assert_eq!(w.claimed().await.kind(), "perform", "others are not affected");
}

#[tokio::test]
async fn six_hundred_runs_a_minute_are_allowed() {
    let w = World::new().await;
    let job = w.create("W").await;
    let (mut connection, headers) = (w.server.connect().await, [("content-type", "application/json")]);
    for count in 1..=601 {
        let claimed = connection.call("POST", "/sidejob/queues/q/claim", &headers, b"{}").await.json();
        let kind = if count <= 600 { "perform" } else { "shutdown" };
        assert_eq!(claimed["kind"], kind, "run {count}");
        let end = json!({"token": claimed["token"], "run": {}}).to_string();
        let path = format!("/sidejob/jobs/{job}/finish");
        let reply = connection.call("POST", &path, &headers, end.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(w.status(job).await, "terminated");
}
