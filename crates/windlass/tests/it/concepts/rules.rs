//! Rules of the page, section by section.

use super::{Api, fail, finish};
use crate::server::{Server, eventually, request_with};
use serde_json::{Value, json};

fn ids(jobs: &[Value]) -> Vec<u64> {
    jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

#[test]
fn jobs_are_claimed_by_priority_then_time_then_id_across_queues() {
    let api = Api::start();
    let late = api.push(json!({"name": "x", "run_at": 2_000}));
    let early = api.push(json!({"name": "x", "run_at": 1_000, "queue": "other"}));
    let same = api.push(json!({"name": "x", "run_at": 2_000, "queue": "other"}));
    let first = api.push(json!({"name": "x", "priority": -1}));
    assert_eq!(ids(&api.claim(json!({"limit": 10}))), [first, early, late, same]);
}

#[test]
fn an_alias_finds_its_job_as_long_as_the_job_exists() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "alias": "one"}));
    api.settle(&api.claim_one("x"), finish());
    let (_, answer) = api.call("POST", "/jobs", json!({"name": "y", "alias": "one"}));
    assert_eq!((&answer["id"], &answer["existing"]), (&json!(id), &json!([id])));
    assert_eq!(api.call("GET", "/aliases/one", Value::Null).1["id"], id);
}

#[test]
fn the_length_of_a_lease_is_that_of_the_claim_or_of_the_job_or_thirty_seconds() {
    let api = Api::start();
    let length = |id: u64| {
        let lease = &api.job(id)["lease"];
        lease["until"].as_i64().unwrap() - lease["granted_at"].as_i64().unwrap()
    };
    let plain = api.push(json!({"name": "plain"}));
    let own = api.push(json!({"name": "own", "lease_ms": 60_000}));
    let asked = api.push(json!({"name": "asked", "lease_ms": 60_000}));
    api.claim_one("plain");
    let run = api.claim_one("own");
    api.claim(json!({"name": "asked", "lease_ms": 90_000}));
    assert_eq!((length(plain), length(own), length(asked)), (30_000, 60_000, 90_000));
    let before = length(own);
    api.extend(&run, json!({"lease_ms": 10}));
    assert_eq!(length(own), before, "a heartbeat never shortens the lease");
    api.extend(&run, json!({"lease_ms": 120_000}));
    assert!(length(own) >= 120_000);
    for lease_ms in [9, 366 * 86_400_000_i64 + 1] {
        assert_eq!(api.call("POST", "/jobs", json!({"name": "x", "lease_ms": lease_ms})).0, 400);
    }
}

#[test]
fn an_expired_lease_is_a_failed_attempt_without_backoff_and_the_old_token_is_refused() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": 2, "lease_ms": 50}));
    let dead = api.claim_one("x");
    let second = api.claim_one("x");
    assert_eq!((&second["id"], &second["attempt"]), (&json!(id), &json!(2)));
    assert_eq!(api.settle(&dead, finish())["error"]["code"], "lease_lost");
    let job = eventually("the second lease expires, too", || {
        Some(api.job(id)).filter(|job| job["state"] == "failed")
    });
    assert_eq!(job["message"], "lease expired: no heartbeat from w1");
    assert_eq!(job["code"], "lease_ended");
    assert_eq!(job["errors"].as_array().unwrap().len(), 2);
}

#[test]
fn a_released_attempt_does_not_count() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": 1}));
    assert_eq!(api.settle(&api.claim_one("x"), json!({"outcome": "release"}))["state"], "ready");
    assert_eq!(api.job(id)["attempts"], 0);
    assert_eq!(api.claim_one("x")["attempt"], 1);
}

#[test]
fn the_delay_doubles_up_to_its_cap_with_jitter() {
    let api = Api::start();
    let backoff = json!({"base_ms": 10_000, "cap_ms": 25_000, "jitter_percent": 10});
    let id = api.push(json!({"name": "x", "retry": {"max_attempts": null, "backoff": backoff}}));
    for delay_ms in [10_000, 20_000, 25_000, 25_000] {
        api.settle(&api.claim_one("x"), fail());
        let job = api.job(id);
        let delay = job["run_at"].as_i64().unwrap() - job["finished_at"].as_i64().unwrap();
        assert!((delay_ms..=delay_ms * 11 / 10).contains(&delay), "{delay} after {delay_ms}");
        api.call("POST", &format!("/jobs/{id}/run"), Value::Null);
    }
}

#[test]
fn the_worker_may_choose_the_delay_or_give_up_but_gets_no_more_attempts() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "retry": 2}));
    api.settle(&api.claim_one("x"), json!({"outcome": "fail", "delay_ms": 3_600_000}));
    let job = api.job(id);
    assert!(job["run_at"].as_i64().unwrap() - job["finished_at"].as_i64().unwrap() >= 3_599_000);
    api.call("POST", &format!("/jobs/{id}/run"), Value::Null);
    let last = api.settle(&api.claim_one("x"), json!({"outcome": "fail", "delay_ms": 1}));
    assert_eq!(last["state"], "failed");
    api.push(json!({"name": "y"}));
    let given_up = api.settle(&api.claim_one("y"), json!({"outcome": "fail", "retry": false}));
    assert_eq!(given_up["state"], "failed");
    api.push(json!({"name": "z", "retry": {"give_up_after_ms": 500}}));
    let late = api.settle(&api.claim_one("z"), json!({"outcome": "fail", "delay_ms": 1_000}));
    assert_eq!(late["state"], "failed");
}

#[test]
fn a_unique_key_holds_until_the_job_is_settled_or_started_or_deleted() {
    let api = Api::start();
    for (held_until, while_running, when_settled) in
        [("settled", false, true), ("started", true, true), ("forgotten", false, false)]
    {
        let unique = json!({"key": held_until, "held_until": held_until});
        let job = json!({"name": held_until, "unique": unique, "queue": "a"});
        let again = json!({"name": "again", "unique": unique, "queue": "b"});
        let is_new = || {
            let (status, answer) = api.call("POST", "/jobs", again.clone());
            assert_eq!(status, 201, "{answer}");
            let is_new = answer["existing"] == json!([]);
            if is_new {
                api.call("DELETE", &format!("/jobs/{}", answer["id"]), Value::Null);
            }
            is_new
        };
        let id = api.push(job);
        assert!(!is_new(), "{held_until}: waiting");
        let run = api.claim_one(held_until);
        assert_eq!(is_new(), while_running, "{held_until}: running");
        api.settle(&run, finish());
        assert_eq!(is_new(), when_settled, "{held_until}: settled");
        api.call("DELETE", &format!("/jobs/{id}"), Value::Null);
        assert!(is_new(), "{held_until}: deleted");
    }
}

#[test]
fn a_second_push_returns_updates_or_is_refused() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "payload": 1, "unique": "k"}));
    let second = |on_conflict: &str| {
        let unique = json!({"key": "k", "on_conflict": on_conflict});
        api.call("POST", "/jobs", json!({"name": "x", "payload": 2, "priority": 5, "unique": unique}))
    };
    assert_eq!(second("return").1["existing"], json!([id]));
    assert_eq!(api.job(id)["payload"], 1);
    let (status, answer) = second("refuse");
    assert_eq!(
        (status, &answer["error"]["code"], &answer["error"]["id"]),
        (409, &json!("duplicate"), &json!(id))
    );
    assert_eq!(second("update").1["existing"], json!([id]));
    assert_eq!((&api.job(id)["payload"], &api.job(id)["priority"]), (&json!(2), &json!(5)));
    api.settle(&api.claim_one("x"), finish());
    let newer = api.push(json!({"name": "x", "unique": "k"}));
    let (status, answer) = api.call("POST", &format!("/jobs/{id}/retry"), Value::Null);
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("key_taken")), "job {newer} has the key");
}

#[test]
fn a_limit_holds_back_its_jobs_and_no_others() {
    let api = Api::start();
    let limit = json!({"matcher": {"name": "x"}, "max_running": 1, "group_by": [["host"]]});
    let running = api.push(json!({"name": "x", "payload": {"host": "a"}}));
    let run = api.claim_one("x");
    assert_eq!(api.call("PUT", "/limits/one", limit).0, 200);
    let held = api.push(json!({"name": "x", "payload": {"host": "a"}}));
    let other = api.push(json!({"name": "x", "payload": {"host": "b"}}));
    let free = api.push(json!({"name": "y"}));
    assert_eq!(ids(&api.claim(json!({"limit": 10}))), [other, free], "job {running} counts, though older");
    assert_eq!((api.state(held).as_str(), &api.job(held)["waiting_for"]), ("ready", &json!("limit one")));
    api.settle(&run, finish());
    assert_eq!(api.claim_one("x")["id"], held);
}

#[test]
fn a_rate_allows_a_burst_of_one_seconds_worth() {
    let api = Api::start();
    let limit = json!({"matcher": {"queue": "q"}, "rate": {"per_second": 2}});
    let (_, shown) = api.call("PUT", "/limits/two", limit);
    assert_eq!(shown["rate"]["burst"], 2);
    for _ in 0..5 {
        api.push(json!({"name": "x", "queue": "q"}));
    }
    assert_eq!(api.claim(json!({"limit": 10})).len(), 2);
    api.claim_one("x");
    for per_second in [0.0, 2_000_000.0] {
        let limit = json!({"matcher": {"name": "x"}, "rate": {"per_second": per_second}});
        assert_eq!(api.call("PUT", "/limits/bad", limit).0, 400);
    }
}

#[test]
fn a_parent_waits_for_its_children_and_runs_again() {
    let api = Api::start();
    let parent = api.push(json!({"name": "parent"}));
    let run = api.claim_one("parent");
    let child = |name: &str| api.push(json!({"name": name, "parent": parent, "retry": 1}));
    let (good, bad) = (child("good"), child("bad"));
    assert_eq!((api.state(good), api.state(bad)), ("waiting".into(), "waiting".into()));
    assert_eq!(api.settle(&run, finish())["state"], "waiting");
    assert_eq!((api.state(good), api.state(bad)), ("ready".into(), "ready".into()));
    api.settle(&api.claim_one("good"), finish());
    assert_eq!(api.state(parent), "waiting");
    api.settle(&api.claim_one("bad"), fail());
    let second = api.claim_one("parent");
    assert_eq!((&second["id"], &second["attempt"]), (&json!(parent), &json!(1)));
    let (_, children) = api.call("GET", &format!("/jobs/{parent}/children"), Value::Null);
    let states: Vec<&Value> = children["jobs"].as_array().unwrap().iter().map(|job| &job["state"]).collect();
    assert_eq!(states, [&json!("completed"), &json!("failed")]);
    assert_eq!(api.settle(&second, finish())["state"], "completed");
    let (status, answer) = api.call("POST", "/jobs", json!({"name": "late", "parent": parent}));
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("parent_not_active")));
}

#[test]
fn children_wait_for_the_next_attempt_of_their_parent_and_run_without_it_if_it_fails() {
    let api = Api::start();
    api.push(json!({"name": "parent", "retry": {"max_attempts": 2, "backoff": "none"}}));
    let run = api.claim_one("parent");
    let child = api.push(json!({"name": "child", "parent": run["id"]}));
    assert_eq!(api.settle(&run, fail())["state"], "ready");
    assert_eq!(api.state(child), "waiting");
    assert_eq!(api.settle(&api.claim_one("parent"), fail())["state"], "failed");
    assert_eq!(api.claim_one("child")["id"], child);
}

#[test]
fn a_schedule_is_one_job_that_goes_on_after_success_and_failure() {
    let api = Api::start();
    let every = api.push(json!({"name": "every", "repeat": "every 1h"}));
    let cron = api.push(json!({"name": "cron", "repeat": "@yearly"}));
    assert_eq!((api.state(every), api.state(cron)), ("ready".into(), "delayed".into()));
    let due = api.job(every)["run_at"].as_i64().unwrap();
    assert_eq!(api.settle(&api.claim_one("every"), finish())["state"], "delayed");
    assert_eq!(api.job(every)["run_at"], due + 3_600_000, "it keeps its phase");
    api.call("POST", &format!("/jobs/{every}/run"), Value::Null);
    let failed = api.settle(&api.claim_one("every"), json!({"outcome": "fail", "retry": false}));
    assert_eq!(failed["state"], "delayed");
}

#[test]
fn a_new_rule_applies_after_the_next_run_and_null_ends_the_repetition() {
    let api = Api::start();
    let id = api.push(json!({"name": "x", "repeat": "every 1h", "delay_ms": 60_000}));
    let due = api.job(id)["run_at"].clone();
    api.call("PATCH", &format!("/jobs/{id}"), json!({"repeat": "every 2h"}));
    assert_eq!((&api.job(id)["run_at"], &api.job(id)["repeat"]), (&due, &json!("every 2h")));
    api.call("PATCH", &format!("/jobs/{id}"), json!({"repeat": null, "delay_ms": 0}));
    assert_eq!(api.settle(&api.claim_one("x"), finish())["state"], "completed");
}

#[test]
fn a_rule_in_a_time_zone_follows_its_local_time() {
    let api = Api::start();
    let of_day = |rule: &str| -> Vec<i64> {
        let id = api.push(json!({"name": "x", "repeat": rule}));
        let job = api.job(id);
        let runs = job["next_runs"].as_array().unwrap().iter();
        runs.map(|at| at.as_i64().unwrap().rem_euclid(86_400_000) / 60_000).collect()
    };
    assert_eq!(of_day("0 9 * * *"), [540; 10]);
    // India has no daylight saving time: 9:00 is 3:30 UTC all year.
    assert_eq!(of_day("TZ=Asia/Kolkata 0 9 * * *"), [210; 10]);
    let berlin = of_day("TZ=Europe/Berlin 0 9 15 1,7 *");
    assert!(berlin.contains(&480) && berlin.contains(&420), "winter and summer: {berlin:?}");
}

#[test]
fn a_settled_job_is_kept_as_the_page_says() {
    let api = Api::start();
    let kept_for = |id: u64| {
        let job = api.job(id);
        job["expires_at"].as_i64().map(|at| at - job["finished_at"].as_i64().unwrap())
    };
    let completed = api.push(json!({"name": "x"}));
    api.settle(&api.claim_one("x"), finish());
    let failed = api.push(json!({"name": "x", "retry": 1}));
    api.settle(&api.claim_one("x"), fail());
    let cancelled = api.push(json!({"name": "x"}));
    api.call("POST", &format!("/jobs/{cancelled}/cancel"), Value::Null);
    assert_eq!(
        (kept_for(completed), kept_for(failed), kept_for(cancelled)),
        (Some(3_600_000), None, Some(7 * 86_400_000))
    );
    let keep = json!({"completed_ms": 0, "failed_ms": 1_000, "cancelled_ms": "ever"});
    api.push(json!({"name": "x", "keep": keep}));
    assert_eq!(api.settle(&api.claim_one("x"), finish())["state"], "gone");
    let failed = api.push(json!({"name": "x", "retry": 1, "keep": keep}));
    api.settle(&api.claim_one("x"), fail());
    let cancelled = api.push(json!({"name": "x", "keep": keep}));
    api.call("POST", &format!("/jobs/{cancelled}/cancel"), Value::Null);
    assert_eq!((kept_for(failed), kept_for(cancelled)), (Some(1_000), None));
}

#[test]
fn no_call_of_a_tenant_shows_a_job_of_another() {
    let server = Server::start(&["--store", "memory:"]);
    let call = |token: &str, method: &str, path: &str, body: Value| -> (u16, Value) {
        let headers = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) =
            request_with(server.http, method, &format!("/api/v1{path}"), &headers, &body).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    };
    let token = |by: &str, role: &str, tenant: &str| {
        let (_, made) = call(by, "POST", "/tokens", json!({"role": role, "tenant": tenant}));
        made["token"].as_str().unwrap().to_owned()
    };
    let admin = token("", "admin", "default");
    let (one, two) = (token(&admin, "operator", "one"), token(&admin, "operator", "two"));
    let job = json!({"name": "x", "alias": "a", "unique": "k"});
    let ids: Vec<Value> =
        [&one, &two].map(|tenant| call(tenant, "POST", "/jobs", job.clone()).1["id"].clone()).into();
    assert_ne!(ids[0], ids[1], "the same alias and key in two tenants are two jobs");
    assert_eq!(call(&one, "GET", &format!("/jobs/{}", ids[1]), Value::Null).0, 404);
    assert_eq!(call(&one, "POST", &format!("/jobs/{}/cancel", ids[1]), Value::Null).0, 404);
    assert_eq!(call(&one, "GET", "/jobs?tenant=two", Value::Null).0, 403);
    let listed =
        |token: &str, path: &str| call(token, "GET", path, Value::Null).1["jobs"].as_array().unwrap().len();
    assert_eq!(
        (listed(&one, "/jobs"), listed(&admin, "/jobs"), listed(&admin, "/jobs?tenant=two")),
        (1, 2, 1)
    );
    call(&one, "POST", "/queues/default/pause", Value::Null);
    let claimed = |token: &str| call(token, "POST", "/claim", json!({})).1["jobs"].as_array().unwrap().len();
    assert_eq!((claimed(&one), claimed(&two)), (0, 1), "each tenant has its own queues");
    assert_eq!(call("", "GET", "/jobs", Value::Null).0, 401);
}
