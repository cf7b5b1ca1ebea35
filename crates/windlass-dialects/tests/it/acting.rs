//! Searches by the time of an end, and deletions of many jobs that are undone.

use crate::stores::{Kind, repeat_on};
use crate::support::{Keys, Reply, TestServer};
use serde_json::{Value, json};
use windlass_dialects::auth::Role;

async fn found(server: &TestServer, search: &str) -> Vec<u64> {
    let escaped: String = search.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let page = server.get(&format!("/api/v1/jobs?search={escaped}")).await;
    assert_eq!(page.status, 200, "{search}: {}", page.text());
    let count = server.get(&format!("/api/v1/jobs/count?search={escaped}")).await.json();
    let page = page.json();
    let ids: Vec<u64> =
        page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect();
    assert_eq!(count, json!({"count": ids.len(), "at_least": false}), "{search}");
    ids
}

#[tokio::test]
async fn jobs_are_found_by_the_time_since_their_last_run_ended() {
    let (server, clock) = TestServer::manual().await;
    for name in ["early", "late", "never", "running"] {
        server
            .post(
                "/api/v1/jobs",
                &json!({"name": name, "retry": 1, "keep": {"failed_ms": 86_400_000}}).to_string(),
            )
            .await;
    }
    let fail = async |name: &str| {
        let claimed = server.post("/api/v1/claim", &json!({"name": name}).to_string()).await.json();
        let (id, token) = (&claimed["jobs"][0]["id"], &claimed["jobs"][0]["token"]);
        let settle = json!({"settle": [{"id": id, "token": token, "outcome": "fail", "message": "no"}]});
        assert_eq!(server.post("/api/v1/settle", &settle.to_string()).await.status, 200);
    };
    fail("early").await;
    clock.advance(7_200_000);
    fail("late").await;
    server.post("/api/v1/claim", r#"{"name":"running","lease_ms":86400000}"#).await;
    clock.advance(600_000);
    for (search, ids) in [
        ("state:failed", vec![2, 1]),
        ("state:failed ended<1h", vec![2]),
        ("state:failed ended>1h", vec![1]),
        ("ended<1h", vec![2]),
        ("ended<10m", vec![]),
        ("ended>5m ended<3h", vec![2, 1]),
        ("ended<1h name:early", vec![]),
        ("state:failed age<1h", vec![]),
    ] {
        assert_eq!(found(&server, search).await, ids, "{search}");
    }
    let groups = server.get("/api/v1/failures?search=ended%3C1h").await.json();
    assert_eq!((&groups["looked_at"], &groups["groups"][0]["name"]), (&json!(1), &json!("late")), "{groups}");
    assert!(groups["groups"][0]["search"].as_str().unwrap().contains("ended<1h"), "{groups}");
    let wrong = server.get("/api/v1/jobs?search=ended%3Csoon").await;
    assert!(wrong.status == 400 && wrong.text().contains("ended<30m"), "{}", wrong.text());
}

#[test]
fn jobs_are_found_by_their_end_on_other_stores_too() {
    repeat_on(Kind::Sqlite, "acting::jobs_are_found_by_the_time", "on_other_stores");
    repeat_on(Kind::Postgres, "acting::jobs_are_found_by_the_time", "on_other_stores");
}

async fn bulk(server: &TestServer, ask: Value) -> Reply {
    server.post("/api/v1/jobs/bulk", &ask.to_string()).await
}

#[tokio::test]
async fn a_deletion_of_many_jobs_is_undone_together() {
    let (server, clock) = TestServer::manual().await;
    let jobs: Vec<Value> = (0..150).map(|n| json!({"name": "a", "payload": n})).collect();
    server.post("/api/v1/jobs", &json!({"jobs": jobs}).to_string()).await;
    let dry = bulk(&server, json!({"action": "delete", "search": "name:a", "dry_run": true})).await.json();
    assert_eq!((&dry["count"], &dry["undo_max"]), (&json!(150), &json!(10_000)), "{dry}");
    let gone = bulk(&server, json!({"action": "delete", "search": "name:a"})).await.json();
    assert_eq!((&gone["done"], &gone["undo_until"]), (&json!(150), &json!(1_060_000)), "{gone}");
    assert_eq!(found(&server, "name:a").await, [0; 0]);
    let undo: Vec<u64> = gone["undo"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(undo.len(), 150);
    let back = bulk(&server, json!({"action": "undelete", "ids": undo})).await.json();
    assert_eq!((&back["done"], &back["refused"]), (&json!(150), &json!(0)), "{back}");
    let listed = server.get("/api/v1/jobs?limit=1000").await.json();
    let payloads: Vec<&Value> =
        listed["jobs"].as_array().unwrap().iter().map(|job| &job["payload"]).collect();
    assert_eq!(payloads, (0..150).rev().map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());

    let again = bulk(&server, json!({"action": "undelete", "ids": [1, 2]})).await.json();
    assert_eq!((&again["done"], &again["refused"]), (&json!(0), &json!(2)), "{again}");
    assert_eq!(again["errors"][0]["code"], "not_found", "{again}");
    bulk(&server, json!({"action": "delete", "ids": [1]})).await;
    clock.advance(60_000);
    assert_eq!(bulk(&server, json!({"action": "undelete", "ids": [1]})).await.json()["refused"], 1);
    for wrong in [json!({"action": "undelete", "search": "name:a"}), json!({"action": "undelete"})] {
        let refused = bulk(&server, wrong).await;
        assert!(refused.status == 400 && refused.text().contains("needs `ids`"), "{}", refused.text());
    }
}

#[test]
fn a_deletion_of_many_jobs_is_undone_on_other_stores_too() {
    repeat_on(Kind::Sqlite, "acting::a_deletion_of_many_jobs_is_undone_together", "on_other_stores");
    repeat_on(Kind::Postgres, "acting::a_deletion_of_many_jobs_is_undone_together", "on_other_stores");
}

#[tokio::test]
async fn deleted_jobs_come_back_to_their_tenant_only_and_it_is_recorded_there() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    let call = async |(tenant, role): (&str, Role), method: &str, path: &str, body: &str| {
        server.call_as(Some(keys.of(tenant, role)), method, path, body).await.json()
    };
    let (own, other, admin) = (("b", Role::Operator), ("a", Role::Operator), ("a", Role::Admin));
    call(own, "POST", "/api/v1/jobs", r#"{"jobs":[{"name":"n"},{"name":"n"}]}"#).await;
    call(own, "POST", "/api/v1/jobs/bulk", r#"{"action":"delete","search":"name:n","dry_run":true}"#).await;
    let log = call(own, "GET", "/api/v1/audit", "").await;
    assert_eq!(log["entries"], json!([]), "a dry run changes nothing");
    call(own, "POST", "/api/v1/jobs/bulk", r#"{"action":"delete","search":"name:n"}"#).await;
    let undelete = r#"{"action":"undelete","ids":[1,2]}"#;
    let stranger = call(other, "POST", "/api/v1/jobs/bulk", undelete).await;
    assert_eq!((&stranger["done"], &stranger["refused"]), (&json!(0), &json!(2)), "{stranger}");
    let back = call(admin, "POST", "/api/v1/jobs/bulk", undelete).await;
    assert_eq!(back["done"], 2, "{back}");
    let log = call(own, "GET", "/api/v1/audit", "").await;
    assert_eq!(log["entries"][0]["detail"], "undelete, 2 ids: 2 done", "{log}");
}
