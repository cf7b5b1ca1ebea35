//! Rules of the page about what is kept: failures and deleted jobs.

use super::{Api, fail};
use serde_json::{Value, json};

#[test]
fn a_failed_attempt_keeps_class_message_error_and_backtrace() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": {"backoff": "none"}}));
    let report = json!({
        "outcome": "fail", "class": "DiskFull", "message": "no space", "error": {"free": 0},
        "backtrace": ["a.py:1", "b.py:2"],
    });
    api.settle(&api.claim_one("x"), report);
    let object = json!({"class": "Timeout", "message": "too slow", "backtrace": "c.py:3\nd.py:4"});
    api.settle(&api.claim_one("x"), json!({"outcome": "fail", "error": object}));
    api.settle(&api.claim_one("x"), json!({"outcome": "fail", "error": "plain text"}));
    let job = api.job(id);
    let errors = job["errors"].as_array().unwrap();
    let part = |index: usize, key: &str| errors[index][key].clone();
    assert_eq!(
        ["class", "message", "error", "backtrace", "worker"].map(|key| part(0, key)),
        [json!("DiskFull"), json!("no space"), json!({"free": 0}), json!(["a.py:1", "b.py:2"]), json!("w1")]
    );
    assert_eq!(
        ["class", "message", "backtrace"].map(|key| part(1, key)),
        [json!("Timeout"), json!("too slow"), json!(["c.py:3", "d.py:4"])]
    );
    assert_eq!(part(2, "message"), "plain text");
    assert_eq!((&job["message"], &job["class"]), (&json!("plain text"), &Value::Null));
}

#[test]
fn long_texts_of_a_failure_are_cut_and_not_refused() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": 1}));
    let long = "x".repeat(100_000);
    let report = json!({"outcome": "fail", "class": long, "message": long, "backtrace": long});
    assert_eq!(api.settle(&api.claim_one("x"), report)["state"], "failed");
    let job = api.job(id);
    let bytes = |text: &Value| text.as_str().unwrap().len();
    assert!(bytes(&job["class"]) <= 255 && bytes(&job["message"]) <= 16 * 1024);
    let backtrace: usize = job["backtrace"].as_array().unwrap().iter().map(bytes).sum();
    assert!(backtrace <= 32 * 1024, "{backtrace} bytes");
}

#[test]
fn only_the_last_ten_failed_attempts_are_kept() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": {"max_attempts": 12, "backoff": "none"}}));
    for _ in 0..12 {
        api.settle(&api.claim_one("x"), fail());
    }
    let job = api.job(id);
    let attempts: Vec<&Value> = job["errors"].as_array().unwrap().iter().map(|one| &one["attempt"]).collect();
    assert_eq!((attempts.len(), attempts[0], attempts[9]), (10, &json!(3), &json!(12)));
}

#[test]
fn a_deleted_job_comes_back_with_undelete_but_no_child_does() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "payload": 7, "unique": "k"}));
    assert_eq!(api.call("DELETE", &format!("/jobs/{id}"), Value::Null).0, 200);
    assert_eq!(api.call("GET", &format!("/jobs/{id}"), Value::Null).0, 404);
    assert_eq!(api.call("POST", &format!("/jobs/{id}/undelete"), Value::Null).0, 200);
    assert_eq!((&api.job(id)["payload"], &api.job(id)["unique"]), (&json!(7), &Value::Null));
    api.claim_one("x");
    let child = api.push(json!({"name": "child", "parent": id}));
    assert_eq!(api.call("DELETE", &format!("/jobs/{child}"), Value::Null).0, 200);
    assert_eq!(api.call("POST", &format!("/jobs/{child}/undelete"), Value::Null).0, 404);
}
