//! Table of actions: what each action does to a job in each state.

use super::{Api, fail, finish};
use crate::server::eventually;
use serde_json::{Value, json};

/// State before an action, and the job in it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Ready,
    Delayed,
    Retrying,
    Running,
    Parent,
    Child,
    Completed,
    Failed,
    Cancelled,
}

use Before::*;

const ALL: [Before; 9] = [Ready, Delayed, Retrying, Running, Parent, Child, Completed, Failed, Cancelled];

fn brought_to(api: &Api, before: Before) -> u64 {
    let name = format!("{before:?}");
    let claimed = |job: Value| {
        let mut job = job;
        job["name"] = json!(name);
        api.push(job);
        api.claim_one(&name)
    };
    let id = |claimed: &Value| claimed["id"].as_u64().unwrap();
    match before {
        Ready => api.push(json!({"name": "Ready"})),
        Delayed => api.push(json!({"name": "Delayed", "delay_ms": 3_600_000})),
        Running => id(&claimed(json!({}))),
        Retrying => {
            let run = claimed(json!({"retry": {"backoff": {"fixed_ms": 3_600_000}}}));
            api.settle(&run, fail());
            id(&run)
        }
        Parent => {
            let run = claimed(json!({}));
            api.push(json!({"name": "child", "parent": run["id"]}));
            api.settle(&run, finish());
            id(&run)
        }
        Child => {
            let run = claimed(json!({}));
            api.push(json!({"name": "child", "parent": run["id"]}))
        }
        Completed => {
            let run = claimed(json!({}));
            api.settle(&run, finish());
            id(&run)
        }
        Failed => {
            let run = claimed(json!({"retry": 1}));
            api.settle(&run, fail());
            id(&run)
        }
        Cancelled => {
            let job = api.push(json!({"name": name}));
            assert_eq!(api.call("POST", &format!("/jobs/{job}/cancel"), Value::Null).0, 200);
            job
        }
    }
}

/// State after an action, or the code of its refusal.
fn after(api: &Api, before: Before, action: &str) -> String {
    let id = brought_to(api, before);
    let (status, answer) = match action {
        "delete" => api.call("DELETE", &format!("/jobs/{id}"), Value::Null),
        "change" => api.call("PATCH", &format!("/jobs/{id}"), json!({"priority": 3})),
        action => api.call("POST", &format!("/jobs/{id}/{action}"), Value::Null),
    };
    match status {
        200 => answer["state"].as_str().unwrap().to_owned(),
        409 => format!("409 {}", answer["error"]["code"].as_str().unwrap()),
        _ => panic!("{action} of {before:?}: {status} {answer}"),
    }
}

#[test]
fn the_jobs_are_in_the_states_that_they_are_meant_to_be_in() {
    let api = Api::start();
    for before in ALL {
        let state = match before {
            Parent | Child => "waiting".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        assert_eq!(api.state(brought_to(&api, before)), state, "{before:?}");
    }
}

#[test]
fn each_action_is_allowed_in_the_states_of_the_page() {
    let api = Api::start();
    let check = |action: &str, expected: [&str; 9]| {
        for (before, expected) in ALL.into_iter().zip(expected) {
            assert_eq!(after(&api, before, action), expected, "{action} of {before:?}");
        }
    };
    // Ready, Delayed, Retrying, Running, Parent, Child, Completed, Failed, Cancelled
    let (cancelled, settled) = ("cancelled", "409 settled");
    let busy = "409 has_children";
    check("cancel", [cancelled, cancelled, cancelled, "running", busy, cancelled, settled, settled, settled]);
    let ready = "ready";
    check("retry", [ready, ready, ready, "409 running", busy, ready, ready, ready, ready]);
    check("run", [ready, ready, ready, "running", "409 waiting", "409 waiting", ready, settled, settled]);
    let gone = "gone";
    check("delete", [gone, gone, gone, "409 running", busy, gone, gone, gone, gone]);
    check(
        "change",
        [ready, "delayed", "retrying", "running", "waiting", "waiting", "completed", "failed", cancelled],
    );
}

#[test]
fn a_run_asked_for_during_a_run_follows_it() {
    let api = Api::start();
    let id = api.push(json!({"name": "x"}));
    let run = api.claim_one("x");
    assert_eq!(api.call("POST", &format!("/jobs/{id}/run"), Value::Null).0, 200);
    assert_eq!(api.settle(&run, finish())["state"], "ready");
    api.settle(&api.claim_one("x"), finish());
    assert_eq!(api.state(id), "completed");
}

#[test]
fn run_keeps_the_count_of_attempts_and_retry_does_not() {
    let api = Api::start();
    for (action, attempts) in [("run", 1), ("retry", 0)] {
        let id = brought_to(&api, Retrying);
        let (_, job) = api.call("POST", &format!("/jobs/{id}/{action}"), Value::Null);
        assert_eq!(job["attempts"], attempts, "{action}");
        assert_eq!(api.call("DELETE", &format!("/jobs/{id}"), Value::Null).0, 200);
    }
}

#[test]
fn the_worker_of_a_cancelled_job_learns_of_it_with_its_next_heartbeat() {
    let api = Api::start();
    for (report, state) in
        [(finish(), "completed"), (fail(), "cancelled"), (json!({"outcome": "release"}), "cancelled")]
    {
        let id = api.push(json!({"name": "x"}));
        let run = api.claim_one("x");
        assert_eq!(api.extend(&run, json!({}))["cancel"], false);
        assert_eq!(api.call("POST", &format!("/jobs/{id}/cancel"), Value::Null).1["state"], "running");
        assert_eq!(api.extend(&run, json!({}))["cancel"], true);
        assert_eq!(api.settle(&run, report)["state"], state);
    }
    let id = api.push(json!({"name": "x"}));
    let run = api.claim_one("x");
    let (_, job) = api.call("POST", &format!("/jobs/{id}/cancel"), json!({"now": true}));
    assert_eq!(job["state"], "cancelled");
    assert_eq!(api.settle(&run, finish())["error"]["code"], "lease_lost");
}

#[test]
fn a_cancelled_schedule_ends_even_if_its_run_is_finished() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "repeat": "every 1h"}));
    let run = api.claim_one("x");
    api.call("POST", &format!("/jobs/{id}/cancel"), Value::Null);
    assert_eq!(api.settle(&run, finish())["state"], "cancelled");
}

#[test]
fn a_paused_queue_hands_out_nothing_and_keeps_what_runs() {
    let api = Api::start();
    api.push(json!({"name": "x", "queue": "q"}));
    let run = api.claim_one("x");
    assert_eq!(api.call("POST", "/queues/q/pause", Value::Null).0, 200);
    let id = api.push(json!({"name": "x", "queue": "q"}));
    assert!(api.claim(json!({"queue": "q"})).is_empty());
    assert_eq!(api.job(id)["waiting_for"], "paused queue");
    assert_eq!(api.settle(&run, finish())["state"], "completed");
    assert_eq!(api.call("POST", "/queues/q/resume", Value::Null).0, 200);
    assert_eq!(api.claim_one("x")["id"], id);
}

#[test]
fn a_delayed_job_is_ready_when_its_time_comes() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "delay_ms": 200}));
    assert_eq!(api.state(id), "delayed");
    eventually("its time comes", || (api.state(id) == "ready").then_some(()));
    assert_eq!(api.claim_one("x")["id"], id);
}
