//! Failures: what is kept of them, in which states jobs are shown, and how the failed ones are found.

use crate::stores::{Kind, repeat_on};
use crate::support::{Keys, TestServer};
use serde_json::{Value, json};
use windlass_dialects::auth::Role;

/// Pushes a job, claims it and reports a failure with these fields; its id and its view.
async fn failed(server: &TestServer, push: &str, fields: Value) -> (u64, Value) {
    let (id, token) = server.claimed(push).await;
    let mut entry = json!({"id": id, "token": token, "outcome": "fail"});
    entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
    assert_eq!(settled["settled"][0]["ok"], true, "{settled}");
    (id, server.get(&format!("/api/v1/jobs/{id}")).await.json())
}

#[tokio::test]
async fn a_failure_keeps_class_message_error_and_backtrace() {
    let server = TestServer::open().await;
    let (id, job) = failed(
        &server,
        r#"{"name":"mail","retry":3}"#,
        json!({"class": "SMTPServerDisconnected", "message": "short", "error": "Traceback…", "delay_ms": 0,
               "backtrace": ["mail.py:12", "smtplib.py:398"]}),
    )
    .await;
    for told in [&job, &job["errors"][0]] {
        assert_eq!(told["class"], "SMTPServerDisconnected", "{job}");
        assert_eq!((&told["message"], &told["error"]), (&json!("short"), &json!("Traceback…")), "{job}");
        assert_eq!(told["backtrace"], json!(["mail.py:12", "smtplib.py:398"]), "{job}");
    }
    let claimed = server.post("/api/v1/claim", r#"{"worker":"w2"}"#).await.json();
    let token = &claimed["jobs"][0]["token"];
    let object = json!({"type": "Timeout", "message": "slow", "stack": "a\nb", "after_ms": 5});
    let settle = json!({"settle": [{"id": id, "token": token, "outcome": "fail", "error": object}]});
    server.post("/api/v1/settle", &settle.to_string()).await;
    let job = server.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(
        (&job["errors"][0]["class"], &job["class"]),
        (&json!("SMTPServerDisconnected"), &json!("Timeout"))
    );
    let second = &job["errors"][1];
    assert_eq!((&second["attempt"], &second["worker"]), (&json!(2), &json!("w2")), "{job}");
    assert_eq!((&second["message"], &second["error"]), (&json!("slow"), &object), "{job}");
    assert_eq!(second["backtrace"], json!(["a", "b"]));
    assert!(second["at"].is_i64() && second["started_at"].is_i64());

    let listed = &server.get("/api/v1/jobs").await.json()["jobs"][0];
    assert_eq!((&listed["class"], &listed["errors"][1]["class"]), (&json!("Timeout"), &json!("Timeout")));
    assert!(listed.get("backtrace").is_none() && listed["errors"][1].get("backtrace").is_none(), "{listed}");
}

#[test]
fn failures_are_kept_on_postgresql_too() {
    repeat_on(Kind::Postgres, "triage::a_failure_keeps", "on_postgresql");
}

#[tokio::test]
async fn a_long_backtrace_is_cut_and_the_failure_counts() {
    let server = TestServer::open().await;
    let lines: Vec<String> = (0..5_000).map(|n| format!("frame {n} of a deep recursion")).collect();
    let (_, job) = failed(&server, r#"{"name":"deep","retry":1}"#, json!({"backtrace": lines})).await;
    assert_eq!(job["state"], "failed");
    let kept = job["errors"][0]["backtrace"].as_array().unwrap();
    assert!(kept.len() > 500 && kept.len() < 2_000, "{}", kept.len());
    assert_eq!((&kept[0], kept.last().unwrap()), (&json!(lines[0]), &json!(lines[4_999])));
    assert!(kept.iter().any(|line| line.as_str().unwrap().contains("bytes left out")));
}

#[tokio::test]
async fn an_expired_lease_is_a_class_of_its_own() {
    let (server, clock) = TestServer::manual().await;
    let (id, _) = server.claimed(r#"{"name":"a","lease_ms":1000,"retry":1}"#).await;
    clock.advance(2_000);
    let job = server.get(&format!("/api/v1/jobs/{id}/result?wait_ms=60000")).await.json();
    assert_eq!((&job["state"], &job["class"]), (&json!("failed"), &json!("LeaseExpired")), "{job}");
}

/// State of a job by every answer that tells it: the job, its result, the list, the search by state, counts.
async fn told_state(server: &TestServer, id: u64) -> String {
    let word = server.get(&format!("/api/v1/jobs/{id}")).await.json()["state"].as_str().unwrap().to_owned();
    let result = server.get(&format!("/api/v1/jobs/{id}/result")).await.json();
    let listed = server.get("/api/v1/jobs").await.json();
    let listed = listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
    assert_eq!((result["state"].as_str(), listed["state"].as_str()), (Some(&*word), Some(&*word)));
    for query in [format!("state={word}"), format!("search=state:{word}")] {
        let found = server.get(&format!("/api/v1/jobs?{query}")).await.json();
        assert_eq!(found["jobs"].as_array().unwrap().len(), 1, "{query}: {found}");
    }
    let count = server.get(&format!("/api/v1/jobs/count?search=state:{word}")).await.json();
    assert_eq!(count, json!({"count": 1, "at_least": false}), "{word}");
    let metrics = server.get("/metrics").await.text();
    let queues = server.get("/api/v1/queues").await.json();
    let totals = server.get("/api/v1/stats").await.json()["totals"].clone();
    let words = totals.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(words.len(), 11, "{words:?}");
    for state in words {
        let count = u64::from(state == word);
        assert_eq!(
            (&totals[&state], &queues["queues"][0][&state]),
            (&json!(count), &json!(count)),
            "{state}"
        );
        let line =
            format!("windlass_jobs{{tenant=\"default\",queue=\"default\",state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    word
}

#[tokio::test]
async fn a_job_has_the_same_state_in_every_answer() {
    let (server, clock) = TestServer::manual().await;
    server.post("/api/v1/jobs", r#"{"name":"a","delay_ms":1000,"retry":2}"#).await;
    assert_eq!(told_state(&server, 1).await, "delayed");
    clock.advance(1_000);
    assert_eq!(told_state(&server, 1).await, "ready");
    let claim = async || server.post("/api/v1/claim", "{}").await.json()["jobs"][0]["token"].clone();
    let fail = async |token: Value| {
        let entry = json!({"id": 1, "token": token, "outcome": "fail", "error": "no", "delay_ms": 500});
        let settled = server.post("/api/v1/settle", &json!({"settle": [entry]}).to_string()).await.json();
        settled["settled"][0]["state"].as_str().unwrap().to_owned()
    };
    let token = claim().await;
    assert_eq!(told_state(&server, 1).await, "running");
    assert_eq!(fail(token).await, "retrying");
    assert_eq!(told_state(&server, 1).await, "retrying");
    clock.advance(500);
    assert_eq!(told_state(&server, 1).await, "ready");
    assert_eq!(fail(claim().await).await, "failed");
    assert_eq!(told_state(&server, 1).await, "failed");
    server.post("/api/v1/jobs/1/retry", r#"{"delay_ms":500}"#).await;
    assert_eq!(told_state(&server, 1).await, "delayed");
    server.post("/api/v1/jobs/1/cancel", "").await;
    assert_eq!(told_state(&server, 1).await, "cancelled");
}

#[test]
fn states_are_the_same_on_other_stores() {
    repeat_on(Kind::Sqlite, "triage::a_job_has_the_same_state", "on_other_stores");
    repeat_on(Kind::Postgres, "triage::a_job_has_the_same_state", "on_other_stores");
}

/// Ids that a search finds.
async fn found(server: &TestServer, search: &str) -> Vec<u64> {
    let escaped: String = form_urlencoded(search);
    let reply = server.get(&format!("/api/v1/jobs?search={escaped}")).await;
    assert_eq!(reply.status, 200, "{search}: {}", reply.text());
    let page = reply.json();
    let count = server.get(&format!("/api/v1/jobs/count?search={escaped}")).await.json();
    let ids: Vec<u64> =
        page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect();
    assert_eq!(count, json!({"count": ids.len(), "at_least": false}), "{search}");
    ids
}

fn form_urlencoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Five jobs: three failed, one that waits for its next attempt, one ready.
async fn five_jobs(server: &TestServer) {
    failed(
        server,
        r#"{"name":"mail","retry":1,"alias":"first"}"#,
        json!({"class": "SMTPError", "message": "closed"}),
    )
    .await;
    failed(
        server,
        r#"{"name":"mail","retry":3}"#,
        json!({"class": "SMTPError", "message": "slow", "delay_ms": 60_000}),
    )
    .await;
    failed(server, r#"{"name":"sms","retry":1,"queue":"q"}"#, json!({"message": "user 7 not found"})).await;
    failed(server, r#"{"name":"sms","retry":1,"queue":"q"}"#, json!({"message": "user 8 not found"})).await;
    server.post("/api/v1/jobs", r#"{"name":"sms","payload":"42 SMTPError"}"#).await;
}

#[tokio::test]
async fn failed_jobs_are_found_by_state_class_error_id_and_alias() {
    let server = TestServer::open().await;
    five_jobs(&server).await;
    for (search, ids) in [
        ("state:retrying", vec![2]),
        ("state:failed,retrying", vec![4, 3, 2, 1]),
        ("state:failed name:sms", vec![4, 3]),
        ("class:SMTPError", vec![2, 1]),
        ("class:SMTP*", vec![2, 1]),
        ("class:smtperror", vec![]),
        ("error:smtp*", vec![2, 1]),
        ("error:SLOW", vec![2]),
        ("error:\"user * not found\"", vec![4, 3]),
        ("error:\"not found\"", vec![4, 3]),
        ("error:found*", vec![]),
        ("group:\"user * not found\"", vec![4, 3]),
        ("group:SMTPError state:failed", vec![1]),
        ("id:3", vec![3]),
        ("id:3,1,99", vec![3, 1]),
        ("3", vec![3]),
        ("3 state:ready", vec![]),
        ("alias:first", vec![1]),
        ("alias:first state:retrying", vec![]),
        ("alias:none", vec![]),
        ("\"42\"", vec![5]),
        ("SMTPError", vec![5]),
        ("42", vec![]),
    ] {
        assert_eq!(found(&server, search).await, ids, "{search}");
    }
    let wrong = server.get("/api/v1/jobs?search=id:x").await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

#[tokio::test]
async fn failures_are_grouped_and_their_search_acts_on_the_group() {
    let server = TestServer::open().await;
    five_jobs(&server).await;
    let answer = server.get("/api/v1/failures").await.json();
    assert_eq!((&answer["total"], &answer["looked_at"]), (&json!(4), &json!(4)), "{answer}");
    assert_eq!(
        (&answer["partial"], &answer["next"], &answer["groups_total"]),
        (&json!(false), &Value::Null, &json!(2))
    );
    let groups = answer["groups"].as_array().unwrap();
    assert_eq!(
        (&groups[0]["title"], &groups[0]["name"]),
        (&json!("user * not found"), &json!("sms")),
        "{answer}"
    );
    assert_eq!(
        (&groups[0]["count"], &groups[0]["failed"], &groups[0]["queues"]),
        (&json!(2), &json!(2), &json!(["q"]))
    );
    assert_eq!(groups[0]["sample"], json!({"id": 4, "message": "user 8 not found"}));
    assert!(
        groups[0].get("class").is_none() && groups[0]["first_at"].as_i64() <= groups[0]["last_at"].as_i64()
    );
    assert_eq!(
        (&groups[1]["class"], &groups[1]["failed"], &groups[1]["retrying"]),
        (&json!("SMTPError"), &json!(1), &json!(1))
    );
    for group in groups {
        let count = group["count"].as_u64().unwrap();
        assert_eq!(found(&server, group["search"].as_str().unwrap()).await.len() as u64, count, "{group}");
    }
    for (query, counts) in [
        ("?state=retrying", vec![1]),
        ("?queue=q", vec![2]),
        ("?name=mai*", vec![2]),
        ("?search=class:SMTPError%20state:failed", vec![1]),
        ("?limit=1", vec![2]),
        ("?tenant=nobody", vec![]),
    ] {
        let answer = server.get(&format!("/api/v1/failures{query}")).await.json();
        let told: Vec<u64> = answer["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["count"].as_u64().unwrap())
            .collect();
        assert_eq!(told, counts, "{query}: {answer}");
    }
    // A group within a queue is acted on within it.
    failed(&server, r#"{"name":"mail","retry":1,"queue":"q","priority":-1}"#, json!({"class": "SMTPError"}))
        .await;
    let within = server.get("/api/v1/failures?queue=q&name=mail").await.json();
    assert_eq!(found(&server, within["groups"][0]["search"].as_str().unwrap()).await, [6], "{within}");
    for wrong in ["?sort=name", "?state=ready", "?search=state:ready", "?colour=red"] {
        assert_eq!(server.get(&format!("/api/v1/failures{wrong}")).await.status, 400, "{wrong}");
    }
    let retry = json!({"action": "retry", "search": groups[0]["search"]}).to_string();
    let done = server.post("/api/v1/jobs/bulk", &retry).await.json();
    assert_eq!((&done["done"], &done["refused"]), (&json!(2), &json!(0)), "{done}");
    assert_eq!(server.get("/api/v1/failures").await.json()["groups_total"], 1);
}

#[test]
fn failed_jobs_are_found_on_other_stores_too() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        repeat_on(kind, "triage::failed_jobs_are_found_by", "on_other_stores");
        repeat_on(kind, "triage::failures_are_grouped", "on_other_stores");
    }
}

#[tokio::test]
async fn a_token_sees_failures_of_its_own_jobs_only() {
    let keys = Keys::for_tenants(&["a", "b"]);
    let server = TestServer::start(keys.options()).await;
    for tenant in ["a", "b"] {
        let token = Some(keys.of(tenant, Role::Worker));
        server.call_as(token, "POST", "/api/v1/jobs", r#"{"name":"x","retry":1}"#).await;
        let claimed = server.call_as(token, "POST", "/api/v1/claim", "{}").await.json();
        let job = &claimed["jobs"][0];
        let entry = json!({"id": job["id"], "token": job["token"], "outcome": "fail", "class": "E"});
        server.call_as(token, "POST", "/api/v1/settle", &json!({"settle": [entry]}).to_string()).await;
    }
    let failures = async |tenant, role| {
        server.call_as(Some(keys.of(tenant, role)), "GET", "/api/v1/failures", "").await.json()
    };
    let own = failures("a", Role::Viewer).await;
    assert_eq!((&own["total"], &own["groups"][0]["tenant"]), (&json!(1), &json!("a")), "{own}");
    assert_eq!(own["groups"][0]["search"], "state:failed,retrying class:E name:x");
    let all = failures("a", Role::Admin).await;
    assert_eq!((&all["total"], &all["groups_total"]), (&json!(2), &json!(2)), "{all}");
    assert!(all["groups"][0]["search"].as_str().unwrap().contains(" tenant:"), "{all}");
}

#[tokio::test]
async fn many_jobs_are_moved_rescheduled_and_counted_first() {
    let server = TestServer::open().await;
    five_jobs(&server).await;
    let bulk = async |body: Value| server.post("/api/v1/jobs/bulk", &body.to_string()).await.json();
    let job = async |id: u64| server.get(&format!("/api/v1/jobs/{id}")).await.json();
    let dry = bulk(json!({"action": "delete", "search": "state:failed", "dry_run": true})).await;
    assert_eq!(
        (&dry["count"], &dry["at_least"], &dry["done"]),
        (&json!(3), &json!(false), &json!(0)),
        "{dry}"
    );
    let dry = bulk(json!({"action": "delete", "ids": [1, 2, 99], "dry_run": true})).await;
    assert_eq!(dry["count"], 2);
    assert_eq!(found(&server, "state:failed").await.len(), 3, "nothing was deleted");

    let moved = bulk(json!({"action": "move", "queue": "slow", "ids": [1, 2, 5]})).await;
    assert_eq!((&moved["done"], &moved["refused"]), (&json!(2), &json!(1)), "{moved}");
    assert_eq!((&moved["errors"][0]["id"], &moved["errors"][0]["code"]), (&json!(1), &json!("wrong_state")));
    assert_eq!((&job(2).await["queue"], &job(2).await["state"]), (&json!("slow"), &json!("retrying")));

    let later = bulk(json!({"action": "reschedule", "delay_ms": 3_600_000, "ids": [2, 3, 5]})).await;
    assert_eq!((&later["done"], &later["errors"][0]["id"]), (&json!(2), &json!(3)), "{later}");
    assert_eq!((&job(2).await["state"], &job(5).await["state"]), (&json!("retrying"), &json!("delayed")));

    let retried = bulk(json!({"action": "retry", "queue": "again", "search": "name:sms state:failed"})).await;
    assert_eq!((&retried["done"], &retried["refused"]), (&json!(2), &json!(0)), "{retried}");
    assert_eq!((&job(3).await["queue"], &job(3).await["state"]), (&json!("again"), &json!("ready")));
    let refused = bulk(json!({"action": "retry", "ids": [3]})).await;
    assert!(
        refused["errors"][0]["message"].as_str().unwrap().contains("does not fit a job that is ready"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_clone_runs_once_and_takes_no_key() {
    let server = TestServer::open().await;
    let push = r#"{"name":"mail","queue":"q","payload":{"a":1},"priority":3,"retry":4,"alias":"x","unique":"k","tags":["t"],"repeat":"every 5m"}"#;
    server.post("/api/v1/jobs", push).await;
    let cloned = server.post("/api/v1/jobs/1/clone", r#"{"delay_ms":60000,"queue":"other"}"#).await;
    assert_eq!((cloned.status, cloned.json()), (201, json!({"id": 2, "from": 1})));
    let job = server.get("/api/v1/jobs/2").await.json();
    for (field, value) in [
        ("name", json!("mail")),
        ("queue", json!("other")),
        ("payload", json!({"a": 1})),
        ("priority", json!(3)),
        ("max_attempts", json!(4)),
        ("tags", json!(["t"])),
        ("state", json!("delayed")),
        ("alias", Value::Null),
        ("unique", Value::Null),
        ("repeat", Value::Null),
    ] {
        assert_eq!(job[field], value, "{field}: {job}");
    }
    assert_eq!(server.post("/api/v1/jobs/9/clone", "").await.status, 404);
}

#[tokio::test]
async fn a_job_tells_the_actions_that_fit_it() {
    let server = TestServer::open().await;
    five_jobs(&server).await;
    let actions = async |id: u64| server.get(&format!("/api/v1/jobs/{id}")).await.json()["actions"].clone();
    assert_eq!(actions(1).await, json!(["retry", "delete", "clone"]));
    assert_eq!(actions(2).await, json!(["retry", "run", "cancel", "delete", "edit", "clone"]));
    assert_eq!(actions(5).await, json!(["cancel", "delete", "edit", "clone"]));
    server.post("/api/v1/claim", r#"{"name":"sms"}"#).await;
    assert_eq!(actions(5).await, json!(["cancel", "clone"]));
}

#[tokio::test]
async fn a_deletion_can_be_undone_for_a_minute() {
    let (server, clock) = TestServer::manual().await;
    five_jobs(&server).await;
    let before = server.get("/api/v1/jobs/1").await.json();
    let gone = server.call("DELETE", "/api/v1/jobs/1", "").await.json();
    assert_eq!((&gone["state"], &gone["undo_until"]), (&json!("gone"), &json!(1_060_000)), "{gone}");
    let bulk = server.post("/api/v1/jobs/bulk", r#"{"action":"delete","search":"name:sms"}"#).await.json();
    assert_eq!(bulk["done"], 3, "{bulk}");
    assert_eq!(server.get("/api/v1/jobs/1").await.status, 404);
    assert_eq!(found(&server, "").await, [2]);
    let undelete = async |id: u64| server.post(&format!("/api/v1/jobs/{id}/undelete"), "").await;
    let back = undelete(1).await;
    assert_eq!((back.status, &back.json()["state"]), (200, &json!("failed")), "{}", back.text());
    let after = server.get("/api/v1/jobs/1").await.json();
    for field in ["state", "alias", "payload", "errors", "message", "attempts", "created_at"] {
        assert_eq!(after[field], before[field], "{field}: {after}");
    }
    assert_eq!(undelete(5).await.status, 200);
    assert_eq!(server.post("/api/v1/claim", r#"{"name":"sms"}"#).await.json()["jobs"][0]["id"], 5);
    assert_eq!(found(&server, "state:failed").await, [1]);
    for id in [1, 2, 99] {
        assert_eq!(undelete(id).await.status, 404, "{id}");
    }
    clock.advance(60_000);
    assert_eq!(undelete(3).await.status, 404);
    server.call("DELETE", "/api/v1/jobs/1", "").await;
    server.post("/api/v1/jobs", r#"{"name":"mail","alias":"first"}"#).await;
    let taken = undelete(1).await;
    assert_eq!((taken.status, taken.code()), (409, "key_taken".to_owned()));
}

#[test]
fn a_deletion_can_be_undone_on_other_stores_too() {
    repeat_on(Kind::Sqlite, "triage::a_deletion_can_be_undone_for", "on_other_stores");
    repeat_on(Kind::Postgres, "triage::a_deletion_can_be_undone_for", "on_other_stores");
}

#[tokio::test]
async fn a_parent_does_not_come_back_without_its_children() {
    for bulk in [None, Some("[1]"), Some("[2,1]")] {
        let server = TestServer::open().await;
        let (id, token) = server.claimed(r#"{"name":"parent"}"#).await;
        let child = format!(r#"{{"name":"child","parent":{id}}}"#);
        assert_eq!(server.post("/api/v1/jobs", &child).await.status, 201);
        let finish = async |id: &Value, token: &Value| {
            let settle = json!({"settle": [{"id": id, "token": token, "outcome": "finish"}]}).to_string();
            server.post("/api/v1/settle", &settle).await;
        };
        finish(&json!(id), &json!(token)).await;
        for _ in ["child", "parent, once more"] {
            let job = server.post("/api/v1/claim", "{}").await.json()["jobs"][0].clone();
            finish(&job["id"], &job["token"]).await;
        }
        match bulk {
            None => {
                let gone = server.call("DELETE", "/api/v1/jobs/1", "").await.json();
                assert_eq!((&gone["state"], &gone["undo_until"]), (&json!("gone"), &Value::Null), "{gone}");
            }
            Some(ids) => {
                let ask = format!(r#"{{"action":"delete","ids":{ids}}}"#);
                let done = server.post("/api/v1/jobs/bulk", &ask).await.json();
                assert_eq!(done["refused"], 0, "{done}");
            }
        }
        assert_eq!(server.post("/api/v1/jobs/1/undelete", "").await.status, 404, "{bulk:?}");
    }
}

#[tokio::test]
async fn a_job_comes_back_without_a_key_that_it_held() {
    let server = TestServer::open().await;
    let push = r#"{"name":"a","unique":"k"}"#;
    server.post("/api/v1/jobs", push).await;
    server.call("DELETE", "/api/v1/jobs/1", "").await;
    assert_eq!(server.post("/api/v1/jobs", push).await.json()["id"], 2, "the key is free at once");
    let back = server.post("/api/v1/jobs/1/undelete", "").await.json();
    assert_eq!((&back["state"], &back["unique"]), (&json!("ready"), &Value::Null), "{back}");
    assert_eq!(server.post("/api/v1/jobs", push).await.json()["existing"], json!([2]));
}

#[tokio::test]
async fn a_token_for_some_names_counts_the_jobs_that_it_reaches() {
    let keys = Keys::for_tenants(&["acme"]);
    let server = TestServer::start(keys.options()).await;
    let ask = r#"{"role":"operator","tenant":"acme","queues":["*/mail"]}"#;
    let made = server.call_as(Some(keys.of("acme", Role::Admin)), "POST", "/api/v1/tokens", ask).await;
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let jobs = r#"{"jobs":[{"name":"mail"},{"name":"mail"},{"name":"sms"}]}"#;
    let pushed = server.call_as(Some(keys.of("acme", Role::Worker)), "POST", "/api/v1/jobs", jobs).await;
    assert_eq!(pushed.status, 201, "{}", pushed.text());
    let count = server.call_as(Some(&token), "GET", "/api/v1/jobs/count?search=state:ready", "").await.json();
    assert_eq!(count, json!({"count": 2, "at_least": false}));
}

#[tokio::test]
async fn a_job_is_not_moved_out_of_the_scope_of_a_token() {
    let keys = Keys::for_tenants(&["acme"]);
    let server = TestServer::start(keys.options()).await;
    let ask = r#"{"role":"operator","tenant":"acme","queues":["a"]}"#;
    let made = server.call_as(Some(keys.of("acme", Role::Admin)), "POST", "/api/v1/tokens", ask).await;
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let call =
        async |method: &str, path: &str, body: &str| server.call_as(Some(&token), method, path, body).await;
    assert_eq!(call("POST", "/api/v1/jobs", r#"{"name":"n","queue":"a"}"#).await.status, 201);
    assert_eq!(call("PATCH", "/api/v1/jobs/1", r#"{"queue":"b"}"#).await.status, 403);
    assert_eq!(call("POST", "/api/v1/jobs/1/clone", r#"{"queue":"b"}"#).await.status, 403);
    let moved = call("POST", "/api/v1/jobs/bulk", r#"{"action":"move","queue":"b","ids":[1]}"#).await.json();
    assert_eq!((&moved["done"], &moved["refused"]), (&json!(0), &json!(1)), "{moved}");
    assert_eq!(call("GET", "/api/v1/jobs/1", "").await.json()["queue"], "a");
}
