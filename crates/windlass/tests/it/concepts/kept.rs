//! Rules of the page about what is kept: failures, turns, children, settled and deleted jobs.

use super::{Api, fail, finish};
use crate::server::Server;
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

#[test]
fn a_child_stays_after_its_parent_has_ended() {
    let api = Api::start();
    let parent = api.push(json!({"name": "parent"}));
    let run = api.claim_one("parent");
    let child = api.push(json!({"name": "child", "parent": parent}));
    api.settle(&run, finish());
    api.settle(&api.claim_one("child"), finish());
    assert_eq!(api.settle(&api.claim_one("parent"), finish())["state"], "completed");
    let (_, children) = api.call("GET", &format!("/jobs/{parent}/children"), Value::Null);
    assert_eq!((&children["jobs"][0]["id"], api.state(child)), (&json!(child), "completed".to_owned()));
    assert_eq!(api.call("DELETE", &format!("/jobs/{parent}"), Value::Null).0, 200);
    assert_eq!(api.job(child)["parent"], Value::Null);
}

#[test]
fn turns_have_outcomes_and_a_requested_run_does_not_move_the_schedule() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "repeat": "every 1h"}));
    api.settle(&api.claim_one("x"), finish());
    let due = api.job(id)["run_at"].clone();
    assert_eq!(api.call("POST", &format!("/schedules/{id}/run"), Value::Null).0, 200);
    let failed = api.settle(&api.claim_one("x"), json!({"outcome": "fail", "retry": false, "message": "no"}));
    assert_eq!((&failed["state"], &api.job(id)["run_at"]), (&json!("delayed"), &due));
    let (_, answer) = api.call("GET", &format!("/schedules/{id}/turns"), Value::Null);
    let part = |index: usize, key: &str| answer["turns"][index][key].clone();
    assert_eq!(
        (part(0, "outcome"), part(0, "requested"), part(0, "message")),
        (json!("failed"), json!(true), json!("no"))
    );
    assert_eq!((part(1, "outcome"), part(1, "requested")), (json!("completed"), Value::Null));
}

#[test]
fn a_paused_schedule_starts_no_turn_until_it_is_resumed() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "repeat": "every 1h"}));
    let act = |action: &str| api.call("POST", &format!("/schedules/{id}/{action}"), Value::Null);
    assert_eq!(act("pause").1["state"], "suspended");
    assert!(api.claim(json!({"name": "x"})).is_empty());
    assert_eq!(act("run").0, 409);
    let (_, job) = act("resume");
    assert_eq!(job["state"], "delayed", "the time that passed meanwhile is not made up");
}

#[test]
fn a_new_rule_of_a_schedule_moves_its_next_run() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "repeat": "every 1h", "delay_ms": 3_600_000}));
    let (_, job) = api.call("PATCH", &format!("/schedules/{id}"), json!({"repeat": "every 5m"}));
    let ahead = job["run_at"].as_i64().unwrap() - job["updated_at"].as_i64().unwrap();
    assert!((299_000..=300_000).contains(&ahead), "{ahead} ms");
}

#[test]
fn the_keep_time_of_the_push_comes_before_that_of_the_queue_and_that_of_the_server() {
    let api = Api(Server::start(&["--store", "memory:", "--set", "keep.completed=2h"]));
    let keep = json!({"keep": {"completed_ms": 60_000}});
    let (status, answer) = api.call("PUT", "/queues/q", keep);
    assert_eq!(status, 200, "{answer}");
    let kept_for = |job: Value| {
        let id = api.push(job);
        api.settle(&api.claim_one("x"), finish());
        let job = api.job(id);
        job["expires_at"].as_i64().unwrap() - job["finished_at"].as_i64().unwrap()
    };
    assert_eq!(kept_for(json!({"name": "x"})), 7_200_000);
    assert_eq!(kept_for(json!({"name": "x", "queue": "q"})), 60_000);
    assert_eq!(kept_for(json!({"name": "x", "queue": "q", "keep": {"completed_ms": 1_000}})), 1_000);
}
