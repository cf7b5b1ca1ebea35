//! Keep times of settled jobs: by push, by queue, by server.

use crate::support::TestServer;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::{Keep, KeepFor, Timestamp};
use windlass_dialects::ServerOptions;
use windlass_dialects::native;
use windlass_engine::ManualClock;
use windlass_store::Store;
use windlass_store::memory::MemoryStore;

const START: i64 = 1_000_000;

/// Pushes, claims and ends a job; returns the time after its end at which it is deleted.
async fn kept_ms(server: &TestServer, job: Value, outcome: &str) -> Option<i64> {
    let (id, token) = server.claimed(&job.to_string()).await;
    if outcome == "cancel" {
        server.post(&format!("/api/v1/jobs/{id}/cancel"), r#"{"now":true}"#).await;
    } else {
        let end = json!({"id": id, "token": token, "outcome": outcome});
        server.post("/api/v1/settle", &json!({"settle": [end]}).to_string()).await;
    }
    let job = server.get(&format!("/api/v1/jobs/{id}")).await;
    match job.status {
        404 => Some(0),
        _ => job.json()["expires_at"].as_i64().map(|at| at - START),
    }
}

fn options(keep: Keep) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.settings.put(native::Settings { keep, ..native::Settings::default() });
    options
}

#[tokio::test]
async fn the_times_of_push_queue_and_server_apply_in_this_order() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let keep = Keep { completed: KeepFor::Ms(100), failed: KeepFor::Ms(200), cancelled: KeepFor::Ever };
    let server = TestServer::start_at(options(keep), clock).await;
    let set =
        server.call("PUT", "/api/v1/queues/q", r#"{"keep":{"completed_ms":10,"cancelled_ms":0}}"#).await;
    assert_eq!(set.status, 200, "{}", set.text());
    for (push, queue, finish, fail, cancel) in [
        (json!({}), "default", Some(100), Some(200), None),
        (json!({}), "q", Some(10), Some(200), Some(0)),
        (json!({"keep": {"completed_ms": 1}}), "q", Some(1), Some(200), Some(0)),
        (json!({"keep": {"cancelled_ms": 7, "failed_ms": "ever"}}), "q", Some(10), None, Some(7)),
        (json!({"keep": {}}), "default", Some(100), Some(200), None),
    ] {
        for (outcome, expected) in [("finish", finish), ("fail", fail), ("cancel", cancel)] {
            let mut job = json!({"name": "a", "queue": queue, "retry": 1});
            job.as_object_mut().unwrap().extend(push.as_object().unwrap().clone());
            assert_eq!(kept_ms(&server, job.clone(), outcome).await, expected, "{job} {outcome}");
        }
    }
    // Neighbors in a batch have the times of their own queues.
    let batch = json!({"jobs": [{"name": "b"}, {"name": "b", "queue": "q"}, {"name": "b", "queue": "q"}]});
    server.post("/api/v1/jobs", &batch.to_string()).await;
    let claimed = server.post("/api/v1/claim", r#"{"limit":3}"#).await.json();
    let jobs = claimed["jobs"].as_array().unwrap();
    let ends: Vec<Value> =
        jobs.iter().map(|job| json!({"id": job["id"], "token": job["token"], "outcome": "finish"})).collect();
    server.post("/api/v1/settle", &json!({"settle": ends}).to_string()).await;
    for (job, expected) in jobs.iter().zip([100, 10, 10]) {
        let job = server.get(&format!("/api/v1/jobs/{}", job["id"])).await.json();
        assert_eq!(job["expires_at"], START + expected, "{job}");
    }
}

#[tokio::test]
async fn settings_of_a_queue_are_shown_changed_field_by_field_and_given_back() {
    let server = TestServer::open().await;
    let put = async |body: &str| server.call("PUT", "/api/v1/queues/mail", body).await;
    let keep = |completed: Value, failed: Value| json!({"completed_ms": completed, "failed_ms": failed, "cancelled_ms": 604_800_000});
    let shown = server.get("/api/v1/queues/mail").await.json();
    assert_eq!((&shown["keep"], shown.get("keep_set")), (&keep(json!(3_600_000), json!("ever")), None));
    assert_eq!(shown["ready"], 0, "a queue without jobs can be set up");
    put(r#"{"keep":{"completed_ms":5}}"#).await;
    let shown = put(r#"{"keep":{"failed_ms":6}}"#).await.json();
    assert_eq!(shown["keep"], keep(json!(5), json!(6)));
    assert_eq!(shown["keep_set"], json!(["completed_ms", "failed_ms"]));
    server.post("/api/v1/jobs", r#"{"name":"a","queue":"mail"}"#).await;
    assert_eq!(server.get("/api/v1/queues").await.json()["queues"][0]["keep"], keep(json!(5), json!(6)));
    let shown = put(r#"{"keep":{"completed_ms":null,"failed_ms":null}}"#).await.json();
    assert_eq!((&shown["keep"], shown.get("keep_set")), (&keep(json!(3_600_000), json!("ever")), None));
    for body in ["{}", r#"{"keep":{"completed_ms":-1}}"#, r#"{"keep":{"done_ms":1}}"#, r#"{"color":1}"#] {
        assert_eq!(put(body).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn settings_of_a_queue_outlive_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let server = TestServer::start_on(store.clone(), ServerOptions::default(), clock.clone()).await;
    server.call("PUT", "/api/v1/queues/a%2Fb", r#"{"keep":{"completed_ms":5}}"#).await;
    drop(server);
    let server = TestServer::start_on(store, ServerOptions::default(), clock).await;
    let shown = server.get("/api/v1/queues/a%2Fb").await.json();
    assert_eq!((&shown["queue"], &shown["keep"]["completed_ms"]), (&json!("a/b"), &json!(5)));
    assert_eq!(kept_ms(&server, json!({"name": "x", "queue": "a/b"}), "finish").await, Some(5));
}
