//! Failures: what is kept of them, in which states jobs are shown, and how the failed ones are found.

use crate::stores::{Kind, repeat_on};
use crate::support::TestServer;
use serde_json::{Value, json};

/// Pushes a job, claims it and reports a failure with these fields; its id and its view.
async fn failed(server: &TestServer, push: &str, fields: Value) -> (u64, Value) {
    let (id, token) = server.claimed(push).await;
    let mut entry = json!({"id": id, "token": token, "outcome": "fail"});
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
    assert_eq!(settled["settled"][0]["ok"], true, "{settled}");
    (id, server.get(&format!("/api/v1/jobs/{id}")).await.json())
}

#[tokio::test]
async fn a_failure_keeps_class_message_error_and_backtrace() {
    let server = TestServer::open().await;
    let (id, job) = failed(
        &server,
        r#"{"name":"mail","retry":3}"#,
        json!({"class": "SMTPServerDisconnected", "message": "short", "error": "Traceback…", "delay_ms": 0,
               "backtrace": ["mail.py:12", "smtplib.py:398"]}),
    )
    .await;
    for told in [&job, &job["errors"][0]] {
        assert_eq!(told["class"], "SMTPServerDisconnected", "{job}");
        assert_eq!((&told["message"], &told["error"]), (&json!("short"), &json!("Traceback…")), "{job}");
        assert_eq!(told["backtrace"], json!(["mail.py:12", "smtplib.py:398"]), "{job}");
    }
    let claimed = server.post("/api/v1/claim", r#"{"worker":"w2"}"#).await.json();
    let token = &claimed["jobs"][0]["token"];
    let object = json!({"type": "Timeout", "message": "slow", "stack": "a\nb", "after_ms": 5});
    let settle = json!({"settle": [{"id": id, "token": token, "outcome": "fail", "error": object}]});
    server.post("/api/v1/settle", &settle.to_string()).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!((&job["errors"][0]["class"], &job["class"]), (&json!("SMTPServerDisconnected"), &json!("Timeout")));
    let second = &job["errors"][1];
    assert_eq!((&second["attempt"], &second["worker"]), (&json!(2), &json!("w2")), "{job}");
    assert_eq!((&second["message"], &second["error"]), (&json!("slow"), &object), "{job}");
    assert_eq!(second["backtrace"], json!(["a", "b"]));
    assert!(second["at"].is_i64() && second["started_at"].is_i64());

    let listed = &server.get("/api/v1/jobs").await.json()["jobs"][0];
    assert_eq!((&listed["class"], &listed["errors"][1]["class"]), (&json!("Timeout"), &json!("Timeout")));
    assert!(listed.get("backtrace").is_none() && listed["errors"][1].get("backtrace").is_none(), "{listed}");
}

#[test]
fn failures_are_kept_on_postgresql_too() {
    repeat_on(Kind::Postgres, "triage::a_failure_keeps", "on_postgresql");
}

#[tokio::test]
async fn a_long_backtrace_is_cut_and_the_failure_counts() {
    let server = TestServer::open().await;
    let lines: Vec<String> = (0..5_000).map(|n| format!("frame {n} of a deep recursion")).collect();
    let (_, job) = failed(&server, r#"{"name":"deep","retry":1}"#, json!({"backtrace": lines})).await;
    assert_eq!(job["state"], "failed");
    let kept = job["errors"][0]["backtrace"].as_array().unwrap();
    assert!(kept.len() > 500 && kept.len() < 2_000, "{}", kept.len());
    assert_eq!((&kept[0], kept.last().unwrap()), (&json!(lines[0]), &json!(lines[4_999])));
    assert!(kept.iter().any(|line| line.as_str().unwrap().contains("bytes left out")));
}

#[tokio::test]
async fn an_expired_lease_is_a_class_of_its_own() {
    let (server, clock) = TestServer::manual().await;
    let (id, _) = server.claimed(r#"{"name":"a","lease_ms":1000,"retry":1}"#).await;
    clock.advance(2_000);
    let job = server.get(&format!("/api/v1/jobs/{id}/result?wait_ms=60000")).await.json();
    assert_eq!((&job["state"], &job["class"]), (&json!("failed"), &json!("LeaseExpired")), "{job}");
}

/// State of a job by every answer that tells it: the job, its result, the list, the search by state, counts.
async fn told_state(server: &TestServer, id: u64) -> String {
    let word = server.get(&format!("/api/v1/jobs/{id}")).await.json()["state"].as_str().unwrap().to_owned();
    let result = server.get(&format!("/api/v1/jobs/{id}/result")).await.json();
    let listed = server.get("/api/v1/jobs").await.json();
    let listed = listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
    assert_eq!((result["state"].as_str(), listed["state"].as_str()), (Some(&*word), Some(&*word)));
    for query in [format!("state={word}"), format!("search=state:{word}")] {
        let found = server.get(&format!("/api/v1/jobs?{query}")).await.json();
        assert_eq!(found["jobs"].as_array().unwrap().len(), 1, "{query}: {found}");
    }
    let count = server.get(&format!("/api/v1/jobs/count?search=state:{word}")).await.json();
    assert_eq!(count, json!({"count": 1, "at_least": false}), "{word}");
    let metrics = server.get("/metrics").await.text();
    let queues = server.get("/api/v1/queues").await.json();
    let totals = server.get("/api/v1/stats").await.json()["totals"].clone();
    let words = totals.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(words.len(), 11, "{words:?}");
    for state in words {
        let count = u64::from(state == word);
        assert_eq!((&totals[&state], &queues["queues"][0][&state]), (&json!(count), &json!(count)), "{state}");
        let line = format!("windlass_jobs{{tenant=\"default\",queue=\"default\",state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    word
}

#[tokio::test]
async fn a_job_has_the_same_state_in_every_answer() {
    let (server, clock) = TestServer::manual().await;
    server.post("/api/v1/jobs", r#"{"name":"a","delay_ms":1000,"retry":2}"#).await;
    assert_eq!(told_state(&server, 1).await, "delayed");
    clock.advance(1_000);
    assert_eq!(told_state(&server, 1).await, "ready");
    let claim = async || server.post("/api/v1/claim", "{}").await.json()["jobs"][0]["token"].clone();
    let fail = async |token: Value| {
        let entry = json!({"id": 1, "token": token, "outcome": "fail", "error": "no", "delay_ms": 500});
        let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
        settled["settled"][0]["state"].as_str().unwrap().to_owned()
    };
    let token = claim().await;
    assert_eq!(told_state(&server, 1).await, "running");
    assert_eq!(fail(token).await, "retrying");
    assert_eq!(told_state(&server, 1).await, "retrying");
    clock.advance(500);
    assert_eq!(told_state(&server, 1).await, "ready");
    assert_eq!(fail(claim().await).await, "failed");
    assert_eq!(told_state(&server, 1).await, "failed");
    server.post("/api/v1/jobs/1/retry", r#"{"delay_ms":500}"#).await;
    assert_eq!(told_state(&server, 1).await, "delayed");
    server.post("/api/v1/jobs/1/cancel", "").await;
    assert_eq!(told_state(&server, 1).await, "cancelled");
}

#[test]
fn states_are_the_same_on_other_stores() {
    repeat_on(Kind::Sqlite, "triage::a_job_has_the_same_state", "on_other_stores");
    repeat_on(Kind::Postgres, "triage::a_job_has_the_same_state", "on_other_stores");
}
