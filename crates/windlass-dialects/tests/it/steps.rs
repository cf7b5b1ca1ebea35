//! Durable steps over HTTP: results that are kept, waits, signals, retries from a step; idempotency keys.

use crate::stores::{Kind, repeat_on};
use crate::support::{Reply, TestServer};
use serde_json::{Value, json};

/// Keeps steps of a run.
async fn keep(server: &TestServer, (id, token): (u64, u64), steps: Value) -> Reply {
    let body = json!({"token": token, "steps": steps});
    server.post(&format!("/api/v1/jobs/{id}/steps"), &body.to_string()).await
}

async fn suspend(server: &TestServer, (id, token): (u64, u64), fields: Value) -> Value {
    let mut entry = json!({"id": id, "token": token, "outcome": "suspend"});
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
    settled["settled"][0].clone()
}

async fn job(server: &TestServer, id: u64) -> Value {
    server.get(&format!("/api/v1/jobs/{id}")).await.json()
}

/// Claims the only job, which must be ready.
async fn claim(server: &TestServer) -> Value {
    let claimed = server.post("/api/v1/claim", "{}").await.json();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1), "{claimed}");
    claimed["jobs"][0].clone()
}

fn run_of(claimed: &Value) -> (u64, u64) {
    (claimed["id"].as_u64().unwrap(), claimed["token"].as_u64().unwrap())
}

/// Steps as `name kind result`.
fn words(job: &Value) -> Vec<String> {
    let steps = job["steps"].as_array().cloned().unwrap_or_default();
    let word = |step: &Value| {
        let late = if step["timed_out"] == true { " late" } else { "" };
        format!(
            "{} {} {}{late}",
            step["name"].as_str().unwrap(),
            step["kind"].as_str().unwrap(),
            step["result"]
        )
    };
    steps.iter().map(word).collect()
}

#[tokio::test]
async fn a_kept_step_comes_with_the_next_claim() {
    let server = TestServer::open().await;
    let run = server.claimed(r#"{"name":"order","retry":5}"#).await;
    let both = json!([{"name": "charge", "result": {"id": 7}, "started_at": 1}, {"name": "pack"}]);
    let kept = keep(&server, run, both).await.json();
    assert_eq!(kept, json!({"steps": [{"name": "charge", "kept": true}, {"name": "pack", "kept": true}]}));
    let again = keep(&server, run, json!([{"name": "charge", "result": 8}])).await.json();
    assert_eq!(again, json!({"steps": [{"name": "charge", "kept": false, "result": {"id": 7}}]}));
    let one = json!({"token": run.1, "name": "label", "result": "A7"});
    let one = server.post(&format!("/api/v1/jobs/{}/steps", run.0), &one.to_string()).await.json();
    assert_eq!(one["steps"][0]["kept"], true, "{one}");

    let fail = json!({"settle": [{"id": run.0, "token": run.1, "outcome": "fail", "delay_ms": 0}]});
    server.post("/api/v1/settle", &fail.to_string()).await;
    let claimed = claim(&server).await;
    let expected = ["charge run {\"id\":7}", "pack run null", "label run \"A7\""];
    assert_eq!(words(&claimed), expected, "{claimed}");
    assert_eq!(words(&job(&server, run.0).await), expected);
    assert_eq!(claimed["steps"][0]["started_at"], 1);
    let refused = keep(&server, run, json!([{"name": "late"}])).await;
    assert_eq!((refused.status, refused.code()), (409, "lease_lost".to_owned()));
}

#[test]
fn steps_waits_and_keys_on_postgresql_too() {
    repeat_on(Kind::Postgres, "steps::a_", "on_postgresql");
}

#[tokio::test]
async fn bad_steps_are_refused_and_change_nothing() {
    let server = TestServer::open().await;
    let run = server.claimed(r#"{"name":"order"}"#).await;
    let path = format!("/api/v1/jobs/{}/steps", run.0);
    let long = "x".repeat(256);
    for (body, status, code) in [
        (json!({"token": run.1}), 400, "bad_request"),
        (json!({"token": run.1, "name": ""}), 400, "bad_request"),
        (json!({"token": run.1, "name": long}), 400, "bad_request"),
        (json!({"token": run.1, "name": "a", "steps": []}), 400, "bad_request"),
        (json!({"token": 1, "name": "a"}), 409, "lease_lost"),
        (json!({"token": run.1, "name": "a", "result": "x".repeat(5 << 20)}), 409, "steps_full"),
    ] {
        let reply = server.post(&path, &body.to_string()).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{}", reply.text());
    }
    let unknown = server.post("/api/v1/jobs/999/steps", r#"{"token":1,"name":"a"}"#).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(words(&job(&server, run.0).await), Vec::<String>::new());
}

#[tokio::test]
async fn a_suspended_job_wakes_at_its_time() {
    let (server, clock) = TestServer::manual().await;
    let run = server.claimed(r#"{"name":"order","retry":1}"#).await;
    let settled = suspend(&server, run, json!({"delay_ms": 60_000, "step": "sleep"})).await;
    assert_eq!((&settled["ok"], &settled["state"]), (&json!(true), &json!("suspended")), "{settled}");
    let shown = job(&server, run.0).await;
    let wait = &shown["wait"];
    assert_eq!(
        (&wait["step"], wait["until"].is_i64(), &shown["waiting_for"]),
        (&json!("sleep"), true, &json!("due"))
    );
    assert_eq!(server.post("/api/v1/claim", "{}").await.json()["jobs"], json!([]), "it holds no worker");
    clock.advance(60_000);
    let claimed = server.post("/api/v1/claim", r#"{"wait_ms":60000}"#).await.json()["jobs"][0].clone();
    assert_eq!((words(&claimed), &claimed["attempt"]), (vec!["sleep sleep null".to_owned()], &json!(1)));
    assert_eq!(claimed["id"], run.0);
}

#[tokio::test]
async fn a_signal_wakes_the_job_that_waits_for_it() {
    let server = TestServer::open().await;
    let run = server.claimed(r#"{"name":"order","alias":"order-1"}"#).await;
    let path = format!("/api/v1/jobs/{}/signal/approval", run.0);
    suspend(&server, run, json!({"signal": "approval", "step": "wait:approval"})).await;
    let other = server.post("/api/v1/jobs/order-1/signal/other", r#"{"n":1}"#).await;
    assert_eq!((other.status, &other.json()["woken"]), (202, &json!(false)));
    let shown = job(&server, run.0).await;
    assert_eq!(
        (&shown["waiting_for"], &shown["signals"][0]["name"]),
        (&json!("signal approval"), &json!("other"))
    );
    let told = server.post(&path, r#"{"by":"ann"}"#).await;
    assert_eq!((told.status, told.json()), (202, json!({"id": run.0, "woken": true})));
    let claimed = claim(&server).await;
    assert_eq!(words(&claimed), ["wait:approval signal {\"by\":\"ann\"}"]);

    // The early one is used at once, and a signal without a body is null.
    let settled = suspend(&server, run_of(&claimed), json!({"signal": "other", "step": "second"})).await;
    assert_eq!(settled["state"], "ready");
    let claimed = claim(&server).await;
    assert_eq!(words(&claimed)[1], "second signal {\"n\":1}");
    server.post(&path, "").await;
    suspend(&server, run_of(&claimed), json!({"signal": "approval", "step": "third"})).await;
    let claimed = claim(&server).await;
    assert_eq!(words(&claimed)[2], "third signal null");

    let (id, token) = run_of(&claimed);
    let finish = json!({"settle": [{"id": id, "token": token, "outcome": "finish"}]});
    server.post("/api/v1/settle", &finish.to_string()).await;
    let late = server.post(&path, "1").await;
    assert_eq!((late.status, late.code()), (409, "settled".to_owned()));
}

#[tokio::test]
async fn a_wait_for_a_signal_times_out() {
    let (server, clock) = TestServer::manual().await;
    let run = server.claimed(r#"{"name":"order"}"#).await;
    suspend(&server, run, json!({"signal": "approval", "delay_ms": 1_000, "step": "wait"})).await;
    clock.advance(1_000);
    let claimed = server.post("/api/v1/claim", r#"{"wait_ms":60000}"#).await.json()["jobs"][0].clone();
    assert_eq!(words(&claimed), ["wait signal null late"]);
}

#[tokio::test]
async fn a_parent_is_woken_by_the_end_of_all_its_children() {
    let server = TestServer::open().await;
    let run = server.claimed(r#"{"name":"order"}"#).await;
    let child = json!({"name": "pack", "parent": run.0, "payload": 1});
    let ids = server.post("/api/v1/jobs", &json!({"jobs": [child, child]}).to_string()).await.json();
    assert_eq!(ids["ids"].as_array().unwrap().len(), 2, "{ids}");
    let settled = suspend(&server, run, json!({"children": true, "step": "all"})).await;
    assert_eq!(settled["state"], "suspended");
    assert_eq!(job(&server, run.0).await["waiting_for"], "children 2");
    for state in ["suspended", "ready"] {
        let (id, token) = run_of(&server.post("/api/v1/claim", r#"{"name":"pack"}"#).await.json()["jobs"][0]);
        let finish = json!({"settle": [{"id": id, "token": token, "outcome": "finish", "result": id}]});
        server.post("/api/v1/settle", &finish.to_string()).await;
        assert_eq!(job(&server, run.0).await["state"], state);
    }
    let claimed = claim(&server).await;
    assert_eq!(words(&claimed), ["all children null"]);
    let children = server.get(&format!("/api/v1/jobs/{}/children", run.0)).await.json();
    let results: Vec<&Value> =
        children["jobs"].as_array().unwrap().iter().map(|job| &job["result"]).collect();
    assert_eq!(results.len(), 2, "{children}");
    assert!(results.iter().all(|result| result.is_u64()), "{children}");
}

#[tokio::test]
async fn a_retry_from_a_step_executes_it_and_the_later_ones_again() {
    let server = TestServer::open().await;
    let run = server.claimed(r#"{"name":"order","retry":1}"#).await;
    keep(&server, run, json!([{"name": "a", "result": 1}, {"name": "b", "result": 2}])).await;
    let fail = json!({"settle": [{"id": run.0, "token": run.1, "outcome": "fail", "retry": false}]});
    server.post("/api/v1/settle", &fail.to_string()).await;
    let retry = format!("/api/v1/jobs/{}/retry", run.0);
    let unknown = server.post(&retry, r#"{"from_step":"c"}"#).await;
    assert_eq!((unknown.status, unknown.code()), (409, "no_step".to_owned()));
    let retried = server.post(&retry, r#"{"from_step":"b"}"#).await;
    assert_eq!((retried.status, &retried.json()["state"]), (200, &json!("ready")));
    let claimed = claim(&server).await;
    assert_eq!((words(&claimed), &claimed["generation"]), (vec!["a run 1".to_owned()], &json!(1)));
}

#[tokio::test]
async fn fields_of_a_wait_belong_to_suspend() {
    let server = TestServer::open().await;
    let (id, token) = server.claimed(r#"{"name":"order"}"#).await;
    for entry in [
        json!({"id": id, "token": token, "outcome": "finish", "step": "a"}),
        json!({"id": id, "token": token, "outcome": "release", "signal": "a"}),
        json!({"id": id, "token": token, "outcome": "suspend", "result": 1}),
        json!({"id": id, "token": token, "outcome": "suspend", "until": 5, "delay_ms": 5}),
        json!({"id": id, "token": token, "outcome": "suspend", "signal": ""}),
    ] {
        let reply = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await;
        assert_eq!(
            (reply.status, reply.code()),
            (400, "bad_request".to_owned()),
            "{entry}: {}",
            reply.text()
        );
    }
    assert_eq!(job(&server, id).await["state"], "running");
}

#[tokio::test]
async fn a_push_with_the_same_idempotency_key_creates_one_job() {
    let server = TestServer::open().await;
    let push = r#"{"name":"mail","idempotency_key":"k1","keep":{"completed_ms":0}}"#;
    let first = server.post("/api/v1/jobs", push).await.json()["id"].as_u64().unwrap();
    let (id, token) = run_of(&claim(&server).await);
    let finish = json!({"settle": [{"id": id, "token": token, "outcome": "finish"}]});
    server.post("/api/v1/settle", &finish.to_string()).await;
    assert_eq!(server.post("/api/v1/jobs", push).await.json()["id"], first, "also after it is done");
    let shown = job(&server, first).await;
    assert_eq!((&shown["idempotency_key"], shown.get("unique")), (&json!("k1"), None), "{shown}");

    // Beside a unique key, and in a batch.
    let both = r#"{"name":"mail","unique":"u","idempotency_key":"k2"}"#;
    let third = server.post("/api/v1/jobs", both).await.json()["id"].clone();
    assert_eq!(server.post("/api/v1/jobs", both).await.json()["id"], third);
    let shown = server.get(&format!("/api/v1/jobs/{third}")).await.json();
    assert_eq!(
        (&shown["unique"]["key"], &shown["idempotency_key"], shown.get("alias")),
        (&json!("u"), &json!("k2"), None)
    );
    for rule in ["refuse", "update"] {
        let body = |payload: u8| {
            let unique = json!({"key": format!("u-{rule}"), "on_conflict": rule});
            json!({"name": "mail", "unique": unique, "idempotency_key": format!("k-{rule}-{payload}"), "payload": payload})
        };
        let first = server.post("/api/v1/jobs", &body(1).to_string()).await.json()["id"].clone();
        let again = server.post("/api/v1/jobs", &body(1).to_string()).await;
        assert_eq!((again.status, &again.json()["id"]), (201, &first), "{rule}: {}", again.text());
        let other = server.post("/api/v1/jobs", &body(2).to_string()).await;
        assert_eq!(other.status, if rule == "refuse" { 409 } else { 201 }, "{}", other.text());
        server.post("/api/v1/jobs", &body(1).to_string()).await;
        let payload = server.get(&format!("/api/v1/jobs/{first}")).await.json()["payload"].clone();
        assert_eq!(payload, if rule == "refuse" { 1 } else { 2 }, "{rule}: a repeated push changes nothing");
    }
    let all = r#"{"name":"mail","unique":"u","alias":"a","idempotency_key":"k"}"#;
    assert_eq!(server.post("/api/v1/jobs", all).await.status, 400);
    let batch = r#"{"jobs":[{"name":"a","idempotency_key":"k3"},{"name":"a","idempotency_key":"k4"},{"name":"a","idempotency_key":"k3"}]}"#;
    let ids = server.post("/api/v1/jobs", batch).await.json()["ids"].clone();
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[0], ids[1]);
    let long = json!({"name": "a", "idempotency_key": "x".repeat(256)});
    assert_eq!(server.post("/api/v1/jobs", &long.to_string()).await.status, 400);
}

#[tokio::test]
async fn the_key_of_a_push_goes_with_its_job() {
    let (server, clock) = TestServer::manual().await;
    let push = r#"{"name":"mail","idempotency_key":"k1","keep":{"completed_ms":0}}"#;
    let (first, token) = server.claimed(push).await;
    let finish = json!({"settle": [{"id": first, "token": token, "outcome": "finish"}]});
    server.post("/api/v1/settle", &finish.to_string()).await;
    clock.advance(9 * 60_000);
    assert_eq!(server.post("/api/v1/jobs", push).await.json()["id"], first);
    clock.advance(2 * 60_000);
    assert_ne!(server.post("/api/v1/jobs", push).await.json()["id"], first);
}
