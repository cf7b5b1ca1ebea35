//! Pages of jobs, and what they may cost.

use crate::stores::{Kind, repeat_on};
use crate::support::TestServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_dialects::ServerOptions;
use windlass_engine::SystemClock;
use windlass_store::faulty::{self, FaultyStore};
use windlass_store::memory::MemoryStore;

/// Bytes of the payload of a large job: eight of them fill a page.
const LARGE: usize = 1 << 20;

/// Pushes large jobs with these fields, one per call.
async fn push_large(server: &TestServer, count: usize, fields: &str) {
    let body = format!(r#"{{{fields},"payload":"{}"}}"#, "x".repeat(LARGE - 2));
    for _ in 0..count {
        let pushed = server.post("/api/v1/jobs", &body).await;
        assert_eq!(pushed.status, 201, "{}", pushed.text());
    }
}

/// Ids on each page of a list.
async fn pages(server: &TestServer, path: &str) -> Vec<Vec<u64>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = server.get(&format!("{path}{cursor}")).await.json();
        pages.push(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect());
        let Some(next) = page["next"].as_str() else { return pages };
        cursor = format!("{}cursor={next}", if path.contains('?') { "&" } else { "?" });
    }
    panic!("no end of {path}: {pages:?}");
}

fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<u64> {
    ids.into_iter().collect()
}

#[tokio::test]
async fn lists_end_a_page_by_the_bytes_of_its_jobs() {
    let server = TestServer::open().await;
    push_large(&server, 20, r#""name":"a","tags":["t"]"#).await;
    server.post("/api/v1/jobs", r#"{"jobs":[{"name":"a"},{"name":"a"}]}"#).await;
    let named = format!("id:{}", (1..=22).map(|id: u64| id.to_string()).collect::<Vec<_>>().join(","));
    for search in ["", "state:ready", "name:a", "age%3C1h", &named] {
        let pages = pages(&server, &format!("/api/v1/jobs?limit=1000&search={search}")).await;
        assert_eq!(pages.concat(), ids((1..=22).rev()), "{search}");
        assert!(pages.iter().all(|page| page.len() <= 10), "{search}: eight large jobs at most: {pages:?}");
        let count = server.get(&format!("/api/v1/jobs/count?search={search}")).await.json();
        assert!(count["count"] == 22 || count["at_least"] == true, "{search}: {count}");
    }
    let pages = pages(&server, "/api/v1/jobs?limit=3&search=tag:t").await;
    assert_eq!((pages.concat(), pages[0].len()), (ids((1..=20).rev()), 3));
}

#[test]
fn lists_end_a_page_by_its_bytes_on_other_stores_too() {
    repeat_on(Kind::Sqlite, "pages::lists_end_a_page_by_the", "on_other_stores");
    repeat_on(Kind::Postgres, "pages::lists_end_a_page_by_the", "on_other_stores");
}

#[tokio::test]
async fn children_come_in_pages() {
    let server = TestServer::open().await;
    let (parent, _) = server.claimed(r#"{"name":"parent"}"#).await;
    push_large(&server, 18, &format!(r#""name":"child","parent":{parent}"#)).await;
    let pages = pages(&server, &format!("/api/v1/jobs/{parent}/children")).await;
    assert_eq!(pages.concat(), ids(2..=19));
    assert_eq!(pages[0], ids(2..=9));
    let past = server.get(&format!("/api/v1/jobs/{parent}/children?cursor=19")).await.json();
    assert_eq!((&past["jobs"], &past["next"]), (&json!([]), &Value::Null));
}

#[tokio::test]
async fn an_action_reaches_all_jobs_of_a_search_and_all_ids_however_large_they_are() {
    let server = TestServer::open().await;
    push_large(&server, 18, r#""name":"a""#).await;
    let mut ask = json!({"action": "priority", "priority": 5, "search": "name:a"});
    let mut steps = Vec::new();
    loop {
        let step = server.post("/api/v1/jobs/bulk", &ask.to_string()).await.json();
        steps.push(step["done"].as_u64().unwrap());
        let Some(next) = step["next"].as_str() else { break };
        ask["cursor"] = json!(next);
    }
    assert!(steps.len() > 1 && steps.iter().all(|done| *done <= 8), "{steps:?}");
    assert_eq!(steps.iter().sum::<u64>(), 18);
    let ask = json!({"action": "priority", "priority": 7, "ids": (1..=20).collect::<Vec<u64>>()});
    let done = server.post("/api/v1/jobs/bulk", &ask.to_string()).await.json();
    assert_eq!((&done["done"], &done["refused"]), (&json!(18), &json!(2)), "{done}");
    for id in [1, 9, 18] {
        assert_eq!(server.get(&format!("/api/v1/jobs/{id}")).await.json()["priority"], 7);
    }
    let ask = json!({"action": "delete", "ids": [1, 2, 99], "dry_run": true});
    let count = server.post("/api/v1/jobs/bulk", &ask.to_string()).await.json();
    assert_eq!((&count["count"], &count["at_least"]), (&json!(2), &json!(false)), "{count}");
}

#[tokio::test]
async fn an_alias_is_looked_up_once_for_all_tenants() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::start_on(store, ServerOptions::default(), Arc::new(SystemClock)).await;
    for tenant in 0..40 {
        let alias = if tenant % 10 == 3 { "wanted" } else { "other" };
        let push = json!({"name": "a", "alias": alias, "tenant": format!("t{tenant}")}).to_string();
        assert_eq!(server.post("/api/v1/jobs", &push).await.status, 201);
    }
    const PLANNED: usize = 1_000;
    faults.fail_next_call(faulty::Call::Read, PLANNED, faulty::Kind::Delay(Duration::ZERO));
    assert_eq!(pages(&server, "/api/v1/jobs?search=alias:wanted").await, [ids([34, 24, 14, 4])]);
    let reads = PLANNED - faults.pending();
    assert!(reads <= 10, "{reads} reads for four jobs of 40 tenants");
    let count = server.get("/api/v1/jobs/count?search=alias:wanted").await.json();
    assert_eq!(count, json!({"count": 4, "at_least": false}));
}

#[tokio::test]
async fn a_search_for_many_ids_ends_in_time_and_goes_on() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::start_on(store, ServerOptions::default(), Arc::new(SystemClock)).await;
    let jobs: Vec<Value> = (0..30).map(|_| json!({"name": "a"})).collect();
    server.post("/api/v1/jobs", &json!({"jobs": jobs}).to_string()).await;
    let list = (1..=30).map(|id: u64| id.to_string()).collect::<Vec<_>>().join(",");
    faults.fail_next_call(faulty::Call::Read, 60, faulty::Kind::Delay(Duration::from_millis(20)));
    let count = server.get(&format!("/api/v1/jobs/count?search=id:{list}")).await.json();
    assert!(count["at_least"] == true && count["count"].as_u64().unwrap() < 30, "{count}");
    let pages = pages(&server, &format!("/api/v1/jobs?search=id:{list}")).await;
    assert_eq!(pages.concat(), ids((1..=30).rev()));
    assert!(pages.len() > 1, "{pages:?}");
}
