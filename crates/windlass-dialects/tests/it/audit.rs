//! What the audit log says, and that nothing is missing in it.

use crate::support::{Keys, TestServer};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_dialects::ServerOptions;
use windlass_dialects::auth::Role;
use windlass_engine::SystemClock;
use windlass_store::faulty::{Call, Faults, FaultyStore, Kind};
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

#[tokio::test]
async fn an_action_stands_with_the_tenant_and_the_job_that_it_concerns() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let call = async |(tenant, role): (&str, Role), method: &str, path: &str, body: &str| {
        let answer = server.call_as(Some(keys.of(tenant, role)), method, path, body).await;
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer.json()
    };
    let (admin, own) = (("a", Role::Admin), ("b", Role::Operator));
    call(own, "POST", "/api/v1/jobs", r#"{"name":"n","alias":"first"}"#).await;
    call(("a", Role::Operator), "POST", "/api/v1/jobs", r#"{"name":"n"}"#).await;
    call(own, "POST", "/api/v1/jobs", r#"{"name":"n"}"#).await;
    call(admin, "POST", "/api/v1/jobs/3/cancel", "").await;
    call(own, "PATCH", "/api/v1/jobs/first", r#"{"priority":1}"#).await;
    call(admin, "POST", "/api/v1/jobs/bulk", r#"{"action":"priority","priority":5,"ids":[1,2]}"#).await;
    call(admin, "PUT", "/api/v1/tenants/b/quota", r#"{"jobs":100}"#).await;
    let seen = call(own, "GET", "/api/v1/audit", "").await;
    assert_eq!(told(&seen), ["b quota.set b", "b jobs.bulk ", "b job.change 1", "b job.cancel 3"]);
    assert_eq!(seen["entries"][1]["detail"], "priority, 2 ids: 1 done, 0 refused");
    assert_eq!(told(&call(own, "GET", "/api/v1/audit?job=1", "").await), ["b job.change 1"]);
    assert_eq!(told(&call(("a", Role::Operator), "GET", "/api/v1/audit", "").await), ["a jobs.bulk "]);
}

#[tokio::test]
async fn the_tokens_of_a_tenant_are_recorded_with_this_tenant() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let call = async |(tenant, role): (&str, Role), method: &str, path: &str, body: &str| {
        let answer = server.call_as(Some(keys.of(tenant, role)), method, path, body).await;
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer.json()
    };
    let admin = ("a", Role::Admin);
    let made = call(admin, "POST", "/api/v1/tokens", r#"{"tenant":"b","note":"mail"}"#).await;
    let old = made["prefix"].as_str().unwrap();
    let made = call(admin, "POST", &format!("/api/v1/tokens/{old}/rotate"), "").await;
    let new = made["prefix"].as_str().unwrap();
    call(admin, "DELETE", &format!("/api/v1/tokens/{new}"), "").await;
    let own = call(("b", Role::Operator), "GET", "/api/v1/audit", "").await;
    let expected =
        [format!("b token.delete {new}"), format!("b token.rotate {new}"), format!("b token.create {old}")];
    assert_eq!(told(&own), expected);
    assert_eq!(told(&call(("a", Role::Operator), "GET", "/api/v1/audit", "").await), [""; 0]);
    let refused = server.call_as(Some(keys.of("a", Role::Admin)), "DELETE", "/api/v1/tokens/none", "").await;
    assert_eq!(refused.status, 404);
    assert_eq!(told(&call(("a", Role::Admin), "GET", "/api/v1/audit?tenant=a", "").await), [""; 0]);
}
