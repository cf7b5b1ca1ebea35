//! Schedules: repeating jobs, their turns, and what an operator may do to them.

use crate::support::{Reply, TestServer};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::Timestamp;
use windlass_dialects::ServerOptions;
use windlass_engine::ManualClock;
use windlass_store::Store;
use windlass_store::memory::MemoryStore;

const MINUTE: i64 = 60_000;
/// Time at which the manual clock starts.
const START: i64 = 1_000_000;

async fn schedule(server: &TestServer, fields: Value) {
    let mut job = json!({"name": "report", "repeat": "every 5m", "retry": 1});
    for (key, value) in fields.as_object().unwrap() {
        job[key] = value.clone();
    }
    let pushed = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(pushed.status, 201, "{}", pushed.text());
}

async fn claim(server: &TestServer) -> Option<Value> {
    let claimed = server.post("/api/v1/claim", r#"{"worker":"w1"}"#).await.json();
    claimed["jobs"].get(0).cloned()
}

/// Claims the job and ends its run.
async fn work(server: &TestServer, end: Value) {
    let job = claim(server).await.expect("a job is due");
    let mut entry = json!({"id": job["id"], "token": job["token"]});
    for (key, value) in end.as_object().unwrap() {
        entry[key] = value.clone();
    }
    let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
    assert_eq!(settled["settled"][0]["ok"], true, "{settled}");
}

async fn finish(server: &TestServer) {
    work(server, json!({"outcome": "finish"})).await;
}

async fn fail(server: &TestServer) {
    work(server, json!({"outcome": "fail", "message": "disk full", "code": "ENOSPC"})).await;
}

async fn act(server: &TestServer, verb: &str) -> Reply {
    server.post(&format!("/api/v1/schedules/1/{verb}"), "").await
}

async fn only(server: &TestServer) -> Value {
    let listed = server.get("/api/v1/schedules").await.json();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1), "{listed}");
    listed["jobs"][0].clone()
}

#[tokio::test]
async fn a_turn_that_failed_is_shown_listed_and_counted() {
    let (server, clock) = TestServer::manual().await;
    schedule(&server, json!({})).await;
    finish(&server).await;
    clock.advance(5 * MINUTE);
    fail(&server).await;
    let job = only(&server).await;
    assert_eq!(job["state"], "delayed", "it waits for its next turn");
    let failed = json!({
        "due_at": START + 5 * MINUTE, "started_at": START + 5 * MINUTE, "ended_at": START + 5 * MINUTE,
        "duration_ms": 0, "outcome": "failed", "attempts": 1, "code": "ENOSPC", "message": "disk full",
        "worker": "w1",
    });
    assert_eq!(
        job["schedule"],
        json!({"paused": false, "catch_up": "one", "last_turn": failed, "failed_in_a_row": 1})
    );
    assert_eq!(job["next_runs"][0], START + 10 * MINUTE);
    let turns = server.get("/api/v1/schedules/1/turns").await.json()["turns"].clone();
    let outcomes: Vec<&Value> = turns.as_array().unwrap().iter().map(|turn| &turn["outcome"]).collect();
    assert_eq!((&turns[0], outcomes), (&failed, vec![&json!("failed"), &json!("completed")]));
    assert_eq!(server.get("/api/v1/jobs/1").await.json()["schedule"]["turns"], turns);
    let metrics = server.get("/metrics").await.text();
    for line in [
        "windlass_turns_total{outcome=\"completed\"} 1",
        "windlass_turns_total{outcome=\"failed\"} 1",
        "windlass_turns_total{outcome=\"missed\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test]
async fn a_failed_turn_is_an_event() {
    let (server, _clock) = TestServer::manual().await;
    schedule(&server, json!({"retry": {"max_attempts": 2, "backoff": "none"}})).await;
    let mut stream = server.connect().await;
    stream.send("GET", "/api/v1/events", &[], b"").await;
    stream.until(b": listening\n\n").await.unwrap();
    fail(&server).await;
    fail(&server).await;
    let mut kinds = Vec::new();
    for _ in 0..4 {
        stream.until(b"event: ").await.unwrap();
        kinds.push(String::from_utf8(stream.until(b"\n").await.unwrap()).unwrap().trim().to_owned());
    }
    assert_eq!(kinds, ["claimed", "retrying", "claimed", "turn_failed"]);
}

#[tokio::test]
async fn a_server_that_was_down_says_so() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let server = TestServer::start_on(store.clone(), ServerOptions::default(), clock.clone()).await;
    schedule(&server, json!({})).await;
    drop(server);
    clock.advance(11 * MINUTE);
    let server = TestServer::start_on(store, ServerOptions::default(), clock).await;
    let overdue = json!({"due_at": START, "missed": 2, "server_was_down": true});
    assert_eq!(only(&server).await["schedule"]["overdue"], overdue);
}

#[tokio::test]
async fn a_schedule_is_paused_and_goes_on_at_its_next_time() {
    let (server, clock) = TestServer::manual().await;
    schedule(&server, json!({})).await;
    finish(&server).await;
    for _ in 0..2 {
        let paused = act(&server, "pause").await;
        assert_eq!((paused.status, &paused.json()["schedule"]["paused"]), (200, &json!(true)));
    }
    let job = server.get("/api/v1/jobs/1").await.json();
    assert_eq!((&job["state"], &job["waiting_for"]), (&json!("suspended"), &json!("being resumed")));
    assert_eq!(job.get("next_runs"), None);
    let refused = act(&server, "run").await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "paused"));
    clock.advance(12 * MINUTE);
    assert_eq!(claim(&server).await, None);
    for _ in 0..2 {
        let resumed = act(&server, "resume").await.json();
        assert_eq!((&resumed["state"], &resumed["run_at"]), (&json!("delayed"), &json!(START + 15 * MINUTE)));
    }
    clock.advance(3 * MINUTE);
    finish(&server).await;
    let job = only(&server).await;
    assert_eq!(job["schedule"]["last_turn"].get("missed"), None, "a pause misses nothing");
    assert_eq!(job["run_at"], START + 20 * MINUTE);
}

#[tokio::test]
async fn a_turn_that_runs_when_its_schedule_is_paused_goes_on() {
    let (server, clock) = TestServer::manual().await;
    schedule(&server, json!({})).await;
    let job = claim(&server).await.unwrap();
    assert_eq!(act(&server, "pause").await.json()["state"], "running");
    let settle = json!({"settle": [{"id": 1, "token": job["token"], "outcome": "finish"}]});
    server.post("/api/v1/settle", &settle.to_string()).await;
    let job = only(&server).await;
    assert_eq!((&job["state"], &job["schedule"]["paused"]), (&json!("suspended"), &json!(true)));
    assert_eq!(job["schedule"]["last_turn"]["outcome"], "completed");
    clock.advance(7 * MINUTE);
    assert_eq!(act(&server, "resume").await.json()["run_at"], START + 10 * MINUTE);
}

#[tokio::test]
async fn a_requested_run_does_not_move_the_next_one() {
    for path in ["/api/v1/schedules/1/run", "/api/v1/jobs/1/run"] {
        let (server, clock) = TestServer::manual().await;
        schedule(&server, json!({})).await;
        finish(&server).await;
        clock.advance(2 * MINUTE);
        let asked = server.post(path, "").await.json();
        assert_eq!((&asked["state"], &asked["run_at"]), (&json!("ready"), &json!(START + 2 * MINUTE)));
        finish(&server).await;
        let job = only(&server).await;
        assert_eq!(job["run_at"], START + 5 * MINUTE, "{path}");
        assert_eq!(job["schedule"]["last_turn"]["requested"], true);
        clock.advance(3 * MINUTE);
        finish(&server).await;
        assert_eq!(only(&server).await["schedule"]["last_turn"].get("requested"), None);
    }
}

#[tokio::test]
async fn a_schedule_can_be_edited() {
    let (server, _clock) = TestServer::manual().await;
    schedule(&server, json!({})).await;
    let edit = json!({
        "repeat": "0 4 * * *", "payload": {"full": true}, "priority": 7, "queue": "night", "catch_up": "none",
    });
    let job = server.call("PATCH", "/api/v1/schedules/1", &edit.to_string()).await.json();
    let four = 4 * 3_600_000;
    assert_eq!((&job["repeat"], &job["run_at"]), (&json!("0 4 * * *"), &json!(four)));
    assert_eq!((&job["payload"], &job["priority"]), (&json!({"full": true}), &json!(7)));
    assert_eq!((&job["queue"], &job["schedule"]["catch_up"]), (&json!("night"), &json!("none")));
    for (body, code) in [(r#"{"repeat":"sometimes"}"#, "bad_request"), (r#"{"name":"x"}"#, "malformed")] {
        let refused = server.call("PATCH", "/api/v1/schedules/1", body).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, code));
    }
}

#[tokio::test]
async fn only_a_live_repeating_job_is_a_schedule() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"name":"once"}"#).await;
    for verb in ["pause", "resume", "run"] {
        let refused = act(&server, verb).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "not_repeating"), "{verb}");
    }
    assert_eq!(server.get("/api/v1/schedules/1/turns").await.status, 409);
    assert_eq!(server.get("/api/v1/schedules/2/turns").await.status, 404);
    let odd = server.post("/api/v1/jobs", r#"{"name":"once","catch_up":"none"}"#).await;
    assert!(odd.status == 400 && odd.text().contains("repeat"), "{}", odd.text());
    server.call("DELETE", "/api/v1/jobs/1", "").await;
    schedule(&server, json!({})).await;
    server.post("/api/v1/jobs/2/cancel", "").await;
    let refused = server.post("/api/v1/schedules/2/pause", "").await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "settled"));
}

#[tokio::test]
async fn a_turn_that_could_not_run_says_so_and_is_made_up_as_asked() {
    let (server, clock) = TestServer::manual().await;
    schedule(&server, json!({})).await;
    clock.advance(17 * MINUTE);
    let overdue = json!({"due_at": START, "missed": 3, "server_was_down": false});
    assert_eq!(only(&server).await["schedule"]["overdue"], overdue);
    finish(&server).await;
    let job = only(&server).await;
    assert_eq!(
        (&job["schedule"]["last_turn"]["missed"], &job["run_at"]),
        (&json!(3), &json!(START + 20 * MINUTE))
    );
    assert_eq!(job["schedule"].get("overdue"), None);
    assert_eq!(claim(&server).await, None, "one of four is made up");

    server.call("PATCH", "/api/v1/schedules/1", r#"{"catch_up":"none"}"#).await;
    clock.advance(15 * MINUTE);
    schedule(&server, json!({"name": "other", "priority": 9})).await;
    let other = claim(&server).await.expect("the claim goes on to the next job");
    assert_eq!(other["name"], "other");
    let job = server.get("/api/v1/jobs/1").await.json();
    assert_eq!(job["run_at"], START + 35 * MINUTE);
    let missed = &job["schedule"]["last_turn"];
    assert_eq!((&missed["outcome"], &missed["due_at"]), (&json!("missed"), &json!(START + 20 * MINUTE)));
    assert_eq!((&missed["missed"], missed.get("started_at")), (&json!(2), None));
}

#[tokio::test]
async fn a_requested_run_is_not_handed_out_before_its_time() {
    let server = TestServer::open().await;
    let pushed = server.post("/api/v1/jobs", r#"{"name":"report","repeat":"every 1h"}"#).await.json();
    server.post(&format!("/api/v1/jobs/{}/run", pushed["id"]), "").await;
    let claimed = server.post("/api/v1/claim", r#"{"lease_ms":30000}"#).await.json()["jobs"][0].clone();
    let (run_at, until) = (claimed["run_at"].as_i64().unwrap(), claimed["lease_until"].as_i64().unwrap());
    assert!(run_at <= until - 30_000, "{claimed}");
}
