//! A claimed job reaches a live worker, or is returned.

use crate::support::TestServer;
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use windlass_core::Tenant;

/// Waits until `holds`, for effects of another task.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come to be");
}

#[tokio::test]
async fn a_waiting_claim_is_woken_by_a_push() {
    let server = TestServer::open().await;
    let mut worker = server.connect().await;
    let json = [("content-type", "application/json")];
    worker.send("POST", "/api/v1/claim", &json, br#"{"wait_ms":20000,"name":"mail*"}"#).await;
    eventually("the wait", async || server.engine.waiters() == 1).await;
    server.post("/api/v1/jobs", r#"{"name":"mail.new"}"#).await;
    assert_eq!(worker.reply("POST").await.unwrap().json()["jobs"][0]["name"], "mail.new");
}

#[tokio::test]
async fn a_worker_that_hangs_up_while_waiting_is_given_nothing() {
    let server = TestServer::open().await;
    let mut worker = server.connect().await;
    let json = [("content-type", "application/json")];
    worker.send("POST", "/api/v1/claim", &json, br#"{"wait_ms":20000}"#).await;
    eventually("the wait", async || server.engine.waiters() == 1).await;
    drop(worker);
    eventually("the end of the wait", async || server.engine.waiters() == 0).await;
    server.post("/api/v1/jobs", r#"{"name":"a"}"#).await;
    let claimed = server.post("/api/v1/claim", "{}").await.json();
    assert_eq!(claimed["jobs"][0]["attempt"], 1);
}

#[tokio::test]
async fn a_job_whose_answer_nobody_takes_is_given_back() {
    let server = TestServer::open().await;
    let jobs: Vec<_> = (0..50).map(|n| json!({"name": "a", "payload": n})).collect();
    server.post("/api/v1/jobs", &json!({"jobs": jobs}).to_string()).await;
    // Claims and hangs up at once, many times: whatever the moment, each job is either returned or was
    // written to the connection before the server could notice.
    for _ in 0..30 {
        let mut worker = server.connect().await;
        let json = [("content-type", "application/json")];
        worker.send("POST", "/api/v1/claim", &json, br#"{"limit":1}"#).await;
        worker.stream.set_zero_linger().unwrap();
        drop(worker);
    }
    eventually("rest", async || {
        let before = server.engine.meters().claimed.get();
        tokio::time::sleep(Duration::from_millis(30)).await;
        before == server.engine.meters().claimed.get()
    })
    .await;
    let counts = server.engine.counts(Some(&Tenant::default())).await.unwrap();
    let held = server.engine.leases_held() as u64;
    assert_eq!(counts[0].by_state[0] + held, 50, "no job is lost between the two");
}

#[tokio::test]
async fn shutting_down_answers_what_was_taken_and_then_closes() {
    let mut server = TestServer::open().await;
    let mut waiting = server.connect().await;
    let json = [("content-type", "application/json")];
    waiting.send("POST", "/api/v1/claim", &json, br#"{"wait_ms":60000}"#).await;
    eventually("the wait", async || server.engine.waiters() == 1).await;
    let mut idle = server.connect().await;
    idle.call("GET", "/healthz", &[], b"").await;
    // A half-received request counts as accepted.
    let mut half = server.connect().await;
    let job = br#"{"name":"late"}"#;
    let head = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        job.len()
    );
    half.stream.write_all(head.as_bytes()).await.unwrap();
    half.stream.write_all(&job[..5]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;

    server.stop();
    let reply = waiting.reply("POST").await.unwrap();
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"jobs":[]}"#));
    assert!(idle.until(b"x").await.is_none(), "idle connections are closed");
    half.stream.write_all(&job[5..]).await.unwrap();
    assert_eq!(half.reply("POST").await.unwrap().status, 201);
    assert!(half.until(b"x").await.is_none());
    (&mut server.serving).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(server.addr).await.is_err());
}

#[tokio::test]
async fn a_worker_settles_and_claims_in_one_call() {
    let server = TestServer::open().await;
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#).await;
    let first = server.post("/api/v1/claim", r#"{"name":"a"}"#).await.json()["jobs"][0].clone();
    let done = json!([{"id": first["id"], "token": first["token"], "outcome": "finish"}]);
    let answer =
        server.post("/api/v1/settle", &json!({"settle": done, "claim": {"name": "c"}}).to_string()).await;
    assert_eq!(answer.json()["settled"][0]["state"], "completed");
    assert_eq!(answer.json()["jobs"][0]["name"], "c");
    // Settled already: the entry is refused, and the next job is claimed all the same.
    let late = server.post("/api/v1/settle", &json!({"settle": done, "claim": {}}).to_string()).await.json();
    assert_eq!((&late["settled"][0]["ok"], &late["jobs"][0]["name"]), (&json!(false), &json!("b")));
    let none = server.post("/api/v1/settle", &json!({"settle": [], "claim": {}}).to_string()).await.json();
    assert_eq!(none, json!({"settled": [], "jobs": []}));
    let misplaced = json!({"settle": [], "claim": {"tenant": "other"}}).to_string();
    assert_eq!(server.post("/api/v1/settle", &misplaced).await.status, 400);
}
