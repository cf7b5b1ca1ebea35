//! Queues, limits, metrics, probes.

use crate::stores::{Kind, repeat_on};
use crate::support::TestServer;
use serde_json::json;
use std::sync::Arc;
use windlass_dialects::ServerOptions;
use windlass_engine::SystemClock;
use windlass_store::faulty::{self, FaultyStore};
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn a_paused_queue_hands_out_nothing() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"name":"a","queue":"mail out"}"#).await;
    let paused = server.post("/api/v1/queues/mail%20out/pause", "").await;
    assert_eq!(paused.text(), r#"{"queue":"mail out","tenant":"default","paused":true}"#);
    assert_eq!(server.post("/api/v1/claim", "{}").await.text(), r#"{"jobs":[]}"#);
    assert_eq!(server.get("/api/v1/jobs/1").await.json()["waiting_for"], "paused queue");
    let queues = server.get("/api/v1/queues").await.json();
    assert_eq!((&queues["queues"][0]["paused"], &queues["queues"][0]["ready"]), (&json!(true), &json!(1)));
    server.post("/api/v1/queues/mail%20out/resume", "").await;
    assert_eq!(server.post("/api/v1/claim", "{}").await.json()["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_limit_holds_and_can_be_lifted() {
    let server = TestServer::open().await;
    let limit = server.call("PUT", "/api/v1/limits/one", r#"{"matcher":{"name":"a"},"max_running":1}"#).await;
    assert_eq!(limit.status, 200, "{}", limit.text());
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"a"}]}"#).await;
    let claimed = server.post("/api/v1/claim", r#"{"limit":10}"#).await.json();
    assert_eq!(claimed["jobs"].as_array().unwrap().len(), 1);
    let limits = server.get("/api/v1/limits").await.json();
    assert_eq!((&limits["limits"][0]["id"], &limits["limits"][0]["running"]), (&json!("one"), &json!(1)));
    assert_eq!((&limits["limits"][0]["waiting"], &limits["limits"][0]["held"]), (&json!(1), &json!(1)));
    assert_eq!(server.get("/api/v1/jobs/2").await.json()["waiting_for"], "limit one");
    assert_eq!(server.call("DELETE", "/api/v1/limits/one", "").await.status, 200);
    let claimed = server.post("/api/v1/claim", r#"{"limit":10}"#).await.json();
    assert_eq!(claimed["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_limit_is_told_of_on_postgresql_too() {
    repeat_on(Kind::Postgres, "operations::a_limit_holds", "told_of");
}

#[tokio::test]
async fn the_figures_agree_with_the_jobs() {
    let server = TestServer::open().await;
    server
        .post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"a","delay_ms":60000},{"name":"b"}]}"#)
        .await;
    server.post("/api/v1/claim", "{}").await;
    let stats = server.get("/api/v1/stats").await.json();
    let totals = &stats["totals"];
    assert_eq!((&totals["ready"], &totals["delayed"], &totals["running"]), (&json!(1), &json!(1), &json!(1)));
    assert!(stats["rates"]["pushed"].as_f64().unwrap() > 0.0);
    assert!(stats["uptime_ms"].is_u64() && stats["version"].is_string());
}

#[tokio::test]
async fn metrics_can_be_parsed_and_tell_the_truth() {
    let server = TestServer::open().await;
    server
        .post("/api/v1/jobs", r#"{"jobs":[{"name":"a","queue":"q\"\\"},{"name":"a","queue":"q\"\\"}]}"#)
        .await;
    server.post("/api/v1/claim", "{}").await;
    let reply = server.get("/metrics").await;
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let text = reply.text();
    let mut families = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(rest.split(' ').next().unwrap().to_owned()), "{line} twice");
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(families.contains(family) || families.contains(name), "{line} has no TYPE");
    }
    for line in [
        r#"windlass_jobs{tenant="default",queue="q\"\\",state="ready"} 1"#,
        r#"windlass_jobs{tenant="default",queue="q\"\\",state="running"} 1"#,
        "windlass_pushed_total 2",
        "windlass_claimed_total 1",
        "windlass_pickup_seconds_count 1",
        "windlass_leases_held 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn figures_of_the_server_are_shown_while_its_store_is_away() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::start_on(store, ServerOptions::default(), Arc::new(SystemClock)).await;
    server.get("/healthz").await;
    faults.fail_next_call(faulty::Call::Read, 1_000, faulty::Kind::BeforeDoing);
    let text = server.get("/metrics").await.text();
    assert!(text.contains("windlass_store_up 0\n") && text.contains("windlass_pushed_total 0\n"), "{text}");
    faults.clear();
    let text = server.get("/metrics").await.text();
    assert!(text.contains("windlass_store_up 1\n"), "{text}");
}

#[tokio::test]
async fn the_root_sends_browsers_to_the_ui_and_says_ok_to_the_rest() {
    let server = TestServer::open().await;
    let reply = server.get("/").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "OK\n"));
    let browser = [("accept", "text/html,application/xhtml+xml")];
    let reply = server.connect().await.call("GET", "/", &browser, b"").await;
    assert_eq!((reply.status, reply.header("location")), (302, Some("ui/")));
}

#[tokio::test]
async fn readiness_ends_with_the_engine_but_life_does_not() {
    let server = TestServer::open().await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.engine.shutdown().await;
    let reply = server.get("/readyz").await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "shutting_down"));
    assert_eq!(server.get("/healthz").await.status, 200);
    let push = server.post("/api/v1/jobs", r#"{"name":"a"}"#).await;
    assert_eq!((push.status, push.header("retry-after")), (503, Some("1")));
}

#[tokio::test]
async fn jobs_from_elsewhere_are_taken_over_once_as_they_stand() {
    let server = TestServer::open().await;
    let policy = r#"{"repeat":{"text":"every 5m"},"keep":{"completed":"drop"}}"#;
    let job = |alias: &str, stands: &str, more: &str| {
        format!(
            r#"{{"alias":"{alias}","name":"{alias}","payload":{{"a":1}},"stands":"{stands}","created_at":1000,"due_at":2000{more}}}"#
        )
    };
    let parent = job("parent", "waiting", r#","facts":{"old.id":"5"},"origin":"old""#);
    let body = format!(r#"{{"jobs":[{parent},{}]}}"#, job("failed", "failed", r#","started_at":1500"#));
    let reply = server.post("/api/v1/import", &body).await;
    assert_eq!((reply.status, reply.json()["ids"].clone()), (200, serde_json::json!([1, 2])));
    let child = job("child", "ready", &format!(r#","parent":1,"policy":{policy}"#));
    let body = format!(r#"{{"jobs":[{parent},{child}]}}"#);
    let reply = server.post("/api/v1/import", &body).await.json();
    assert_eq!(
        (reply["ids"].clone(), reply["existing"].clone()),
        (serde_json::json!([1, 3]), serde_json::json!([1]))
    );
    let shown = server.get("/api/v1/jobs/1").await.json();
    assert_eq!((shown["state"].as_str(), shown["pending_children"].as_u64()), (Some("waiting"), Some(1)));
    assert_eq!(shown["created_at"], 1000);
    assert_eq!(server.get("/api/v1/jobs/2").await.json()["state"], "failed");
    assert_eq!(server.get("/api/v1/jobs/3").await.json()["repeat"], "every 5m");
    let missing = server.post("/api/v1/import", r#"{"jobs":[{"name":"n","stands":"ready"}]}"#).await;
    assert_eq!(missing.status, 400);
}
