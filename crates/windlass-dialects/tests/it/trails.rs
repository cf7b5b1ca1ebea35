//! History of a job in the API: logs of its runs, changes of state, and actions of users.

use crate::support::{Keys, TestServer};
use serde_json::{Value, json};
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;

fn told(job: &Value) -> Vec<String> {
    let one = |happening: &Value| {
        let who = happening["who"].as_str().map(|who| format!(" by {who}")).unwrap_or_default();
        format!("{}{who}", happening["what"].as_str().unwrap())
    };
    job["history"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn the_words_of_a_run_are_shown_with_its_job_and_not_in_lists() {
    let (server, clock) = TestServer::manual().await;
    server.post("/api/v1/jobs", r#"{"name":"a","retry":3}"#).await;
    let claimed = server.post("/api/v1/claim", r#"{"worker":"w1"}"#).await.json()["jobs"][0].clone();
    clock.advance(5);
    let lines = json!({"token": claimed["token"], "lines": ["one\n", "<b>two</b>"], "source": "stderr"});
    let answer = server.post("/api/v1/jobs/1/log", &lines.to_string()).await;
    assert_eq!((answer.status, &answer.json()["cancel"]), (200, &json!(false)), "{}", answer.text());
    let job = server.get("/api/v1/jobs/1").await.json();
    let at = job["created_at"].as_i64().unwrap() + 5;
    let line = |text: &str| json!({"at": at, "attempt": 1, "source": "stderr", "text": text});
    assert_eq!(job["log"], json!({"lines": [line("one"), line("<b>two</b>")], "dropped": 0}));
    assert_eq!(server.get("/api/v1/jobs").await.json()["jobs"][0].get("log"), None);
    let late = server.post("/api/v1/jobs/1/log", r#"{"token":1,"lines":["x"]}"#).await;
    assert_eq!((late.status, late.code().as_str()), (409, "lease_lost"));
    let many = json!({"token": 1, "lines": vec!["x"; 1_001]});
    assert_eq!(server.post("/api/v1/jobs/1/log", &many.to_string()).await.status, 400);
    assert_eq!(server.post("/api/v1/jobs/9/log", r#"{"token":1,"lines":["x"]}"#).await.status, 404);
}

#[tokio::test]
async fn the_history_of_a_job_tells_what_became_of_it_and_by_whom() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(keys.options()).await;
    let (worker, operator) = (keys.of("a", Role::Worker), keys.of("a", Role::Operator));
    let call = async |token: &str, path: &str, body: Value| {
        let reply = server.call_as(Some(token), "POST", path, &body.to_string()).await;
        assert!(reply.status < 300, "{path}: {}", reply.text());
        reply.json()
    };
    call(worker, "/api/v1/jobs", json!({"name": "a", "retry": 2})).await;
    for (worker_name, outcome) in [("w1", "fail"), ("w2", "finish")] {
        let claimed = call(worker, "/api/v1/claim", json!({"worker": worker_name})).await["jobs"][0].clone();
        let end = json!({"id": 1, "token": claimed["token"], "outcome": outcome, "delay_ms": null});
        call(worker, "/api/v1/settle", json!({"settle": [end]})).await;
        if outcome == "fail" {
            call(operator, "/api/v1/jobs/1/run", json!({})).await;
        }
    }
    let job = server.call_as(Some(operator), "GET", "/api/v1/jobs/1", "").await.json();
    let who = operator.rsplit_once('_').unwrap().0;
    let run = format!("run by {who}");
    let expected = ["pushed", "claimed by w1", "attempt_failed by w1", &run, "claimed", "completed"];
    assert_eq!(told(&job), expected);
    assert_eq!(job["errors"][0]["worker"], "w1");
    assert!(job["errors"][0]["started_at"].as_i64() <= job["errors"][0]["at"].as_i64());
    call(operator, "/api/v1/jobs/bulk", json!({"action": "retry", "ids": [1]})).await;
    let job = server.call_as(Some(operator), "GET", "/api/v1/jobs/1", "").await.json();
    assert!(told(&job).contains(&format!("retried by {who}")), "{:?}", told(&job));
}

#[tokio::test]
async fn words_and_reasons_are_hidden_with_the_payloads() {
    let keys = Keys::for_tenants(&["a"]);
    let server = TestServer::start(ServerOptions { hide_payloads: true, ..keys.options() }).await;
    let (worker, viewer) = (keys.of("a", Role::Worker), keys.of("a", Role::Viewer));
    let call = async |path: &str, body: Value| {
        server.call_as(Some(worker), "POST", path, &body.to_string()).await.json()
    };
    call("/api/v1/jobs", json!({"name": "a"})).await;
    let token = call("/api/v1/claim", json!({})).await["jobs"][0]["token"].clone();
    call("/api/v1/jobs/1/log", json!({"token": token, "lines": ["secret 1"]})).await;
    let end = json!({"id": 1, "token": token, "outcome": "fail", "error": "secret 2", "retry": false});
    call("/api/v1/settle", json!({"settle": [end]})).await;
    let seen = server.call_as(Some(viewer), "GET", "/api/v1/jobs/1", "").await;
    assert!(!seen.text().contains("secret"), "{}", seen.text());
    assert!(told(&seen.json()).contains(&"attempt_failed".to_owned()), "{}", seen.text());
    let full = server.call_as(Some(worker), "GET", "/api/v1/jobs/1", "").await.text();
    assert!(full.contains("secret 1") && full.contains("secret 2"), "{full}");
}
