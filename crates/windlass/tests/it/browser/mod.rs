//! Web UI in a real browser, against a real server.

mod access;
mod acting;
mod bulk;
mod docs;
mod driver;
mod groups;
mod habits;
mod pages;
mod proxy;
mod schedules;
mod shape;
mod steps;
mod triage;

use crate::server::Server;
use driver::{Browser, DESK, Look, PHONE};
use serde_json::{Value, json};

/// URL of a UI page, by its path after `#/`.
fn page(server: &Server, path: &str) -> String {
    format!("{}/ui/#/{path}", server.url())
}

#[track_caller]
fn push(server: &Server, job: Value) -> u64 {
    let (status, answer) = server.call("POST", "/api/v1/jobs", Some(job));
    assert_eq!(status, 201, "{answer}");
    answer["ids"][0].as_u64().unwrap()
}

#[track_caller]
fn claim(server: &Server, ask: Value) -> Vec<Value> {
    let (status, mut answer) = server.call("POST", "/api/v1/claim", Some(ask));
    assert_eq!(status, 200, "{answer}");
    answer["jobs"].as_array_mut().map(std::mem::take).unwrap()
}

#[track_caller]
fn settle(server: &Server, jobs: &[Value], outcome: Value) {
    let entry = |job: &Value| {
        let mut entry = outcome.clone();
        entry["id"] = job["id"].clone();
        entry["token"] = job["token"].clone();
        entry
    };
    let ask = json!({"settle": jobs.iter().map(entry).collect::<Vec<_>>()});
    let (status, answer) = server.call("POST", "/api/v1/settle", Some(ask));
    assert_eq!(status, 200, "{answer}");
}

/// Creates this number of failed jobs.
fn failed(server: &Server, count: usize, name: &str) {
    let jobs: Vec<Value> =
        (0..count).map(|n| json!({"name": name, "retry": 1, "payload": {"n": n}})).collect();
    push(server, json!({"jobs": jobs}));
    let claimed = claim(server, json!({"name": name, "limit": count}));
    assert_eq!(claimed.len(), count);
    settle(server, &claimed, json!({"outcome": "fail", "error": "it broke"}));
}
