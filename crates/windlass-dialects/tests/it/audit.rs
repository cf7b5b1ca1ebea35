//! What the audit log says, and that nothing is missing in it.

use crate::support::TestServer;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_dialects::ServerOptions;
use windlass_engine::SystemClock;
use windlass_store::faulty::{Call, FaultyStore, Faults, Kind};
use windlass_store::memory::MemoryStore;

/// Far above the normal duration on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Server with one job on a store that can fail.
async fn faulty() -> (TestServer, Faults) {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::start_on(store, ServerOptions::default(), Arc::new(SystemClock)).await;
    assert_eq!(server.post("/api/v1/jobs", r#"{"name":"a"}"#).await.status, 201);
    (server, faults)
}

/// Entries as `tenant action target`, newest first.
fn told(page: &Value) -> Vec<String> {
    let word = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let one = |entry: &Value| {
        format!("{} {} {}", word(entry, "tenant"), word(entry, "action"), word(entry, "target"))
    };
    page["entries"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn an_action_is_recorded_even_if_its_caller_hangs_up() {
    let (server, faults) = faulty().await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let mut client = server.connect().await;
    client.send("DELETE", "/api/v1/jobs/1", &[], b"").await;
    faults.until_held(1).await;
    drop(client);
    // The server notices the end of the connection.
    tokio::time::sleep(Duration::from_millis(300)).await;
    faults.release();
    let began = Instant::now();
    loop {
        let page = server.get("/api/v1/audit").await.json();
        if told(&page) == ["default job.delete 1"] {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.get("/api/v1/jobs/1").await.status, 404);
}

#[tokio::test]
async fn an_action_of_which_a_part_may_have_happened_is_recorded_with_its_status() {
    let (server, faults) = faulty().await;
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    let answer = server.call("DELETE", "/api/v1/jobs/1", "").await;
    assert!(answer.status >= 500, "{}", answer.text());
    let page = server.get("/api/v1/audit").await.json();
    assert_eq!(told(&page), ["default job.delete 1"]);
    let detail = page["entries"][0]["detail"].as_str().unwrap();
    assert_eq!(detail, format!("ended with status {}", answer.status));
    assert_eq!(server.call("DELETE", "/api/v1/jobs/99", "").await.status, 404);
    assert_eq!(told(&server.get("/api/v1/audit").await.json()).len(), 1, "refused calls are left out");
}
