//! Creating jobs.

use super::World;
use serde_json::{Value, json};

#[tokio::test]
async fn ids_count_up_and_are_never_used_again() {
    let w = World::new().await;
    for id in 1..=3 {
        assert_eq!(w.create("W").await, id);
    }
    w.drain().await;
    w.post("/jobs/2/status", json!({"status": "terminated"})).await;
    let reply = w.call("DELETE", "/jobs/2", &Value::Null).await;
    assert_eq!(reply.json(), json!({"job": 2, "delete": true}));
    assert_eq!(w.create("W").await, 4);
}

#[tokio::test]
async fn a_new_job_is_queued_and_waits_for_one_run() {
    let w = World::new().await;
    let job = w.create("W").await;
    let view = w.view(job).await;
    let state = &view["state"];
    assert_eq!(
        (&state["status"], &state["queue"], &state["class"]),
        (&json!("queued"), &json!("q"), &json!("W"))
    );
    assert_eq!(state["created_at"], "2023-11-14T22:14:00.000Z");
    assert_eq!(state["created_by"], Value::Null);
    assert!(state.get("ran_at").is_none());
    assert_eq!(w.drain().await, [job]);
    let by = w.create_with(json!({"queue": "q", "class": "W", "by": "user:42"})).await;
    assert_eq!(w.view(by).await["state"]["created_by"], "user:42");
}

#[tokio::test]
async fn arguments_are_a_list_that_every_run_gets() {
    let w = World::new().await;
    let without = w.create("W").await;
    assert_eq!(w.view(without).await["state"]["args"], Value::Null);
    let run = w.claimed().await;
    assert_eq!(run.all["args"], json!([]));
    w.finish(&run, "completed").await;

    let args = json!([1, {"k": [true, null]}]);
    let job = w.create_with(json!({"queue": "q", "class": "W", "args": args})).await;
    for _ in 0..2 {
        let run = w.claimed().await;
        assert_eq!(run.all["args"], args);
        w.finish(&run, "completed").await;
        w.run(job).await;
    }
    let (status, message) =
        w.refused("POST", "/jobs", json!({"queue": "q", "class": "W", "args": {"a": 1}})).await;
    assert_eq!((status, message.as_str()), (422, "Job args must be an Array: {\"a\":1}"));
    assert_eq!(w.create("W").await, job + 1, "nothing was left behind");
}

#[tokio::test]
async fn a_child_that_a_run_makes_is_made_by_that_job() {
    let w = World::new().await;
    let parent = w.create("W").await;
    let run = w.claimed().await;
    let asked =
        json!({"queue": "q", "class": "W", "parent": parent, "name": "c", "by": "me", "token": run.token});
    let child = w.create_with(asked).await;
    assert_eq!(w.view(child).await["state"]["created_by"], format!("job:{parent}"));
    let guess = json!({"queue": "q", "class": "W", "parent": parent, "name": "d", "by": "me", "token": "7"});
    let other = w.create_with(guess).await;
    assert_eq!(w.view(other).await["state"]["created_by"], "me", "a wrong token makes it nobody else's");
}

#[tokio::test]
async fn a_job_may_be_made_for_later() {
    let w = World::new().await;
    let at = super::START / 1_000 + 1_000;
    let later = w.create_with(json!({"queue": "q", "class": "W", "at": at})).await;
    assert_eq!(w.status(later).await, "queued");
    assert!(w.claim().await.is_none());
    w.pass(999_999).await;
    assert!(w.claim().await.is_none());
    w.pass(1).await;
    assert_eq!(w.drain().await, [later]);
    let past = w.create_with(json!({"queue": "q", "class": "W", "at": "2001-01-01T00:00:00Z"})).await;
    assert_eq!(w.drain().await, [past]);
}

#[tokio::test]
async fn a_child_needs_a_parent_that_exists_and_a_name_of_its_own() {
    let w = World::new().await;
    let parent = w.create("W").await;
    let child = w.child("W", parent, "x").await;
    let of = |more: Value| {
        let mut body = json!({"queue": "q", "class": "W"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, refusal) in [
        (of(json!({"parent": parent})), (422, "Missing name option for job with a parent")),
        (
            of(json!({"parent": parent, "name": "x"})),
            (422, "Job 1 cannot adopt job 3 as child name x is not unique"),
        ),
        (of(json!({"parent": 99, "name": "y"})), (404, "Job 99 does not exist!")),
    ] {
        assert_eq!(w.refused("POST", "/jobs", body).await, (refusal.0, refusal.1.to_owned()));
    }
    let alone = w.create_with(of(json!({"name": "ignored"}))).await;
    assert_eq!(alone, child + 1, "nothing was left behind");
    assert!(w.view(alone).await["state"].get("parent").is_none());
    assert_eq!(w.get(&format!("/jobs/{parent}/children")).await, json!({"x": child}));
}

#[tokio::test]
async fn ids_are_whole_numbers() {
    let w = World::new().await;
    w.create("W").await;
    for id in ["2", "1abc", "1.9", "abc", "0", "-1", "+1", "18446744073709551616"] {
        let refusal = w.refused("GET", &format!("/jobs/{id}"), json!({})).await;
        assert_eq!(refusal, (404, format!("Job {id} does not exist!")));
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let w = World::new().await;
    assert_eq!(w.refused("POST", "/jobs", json!({"class": "W"})).await, (422, "Missing queue".to_owned()));
    assert_eq!(w.refused("POST", "/jobs", json!({"queue": "q"})).await, (422, "Missing class".to_owned()));
    let reply = w.server.post("/sidejob/jobs", "{\"queue\":").await;
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().starts_with("the body is not JSON"));
}

#[tokio::test]
async fn a_bad_port_makes_no_job() {
    let w = World::new().await;
    for name in ["PORT.1", "", "é", "ab\n!!"] {
        let body = json!({"queue": "q", "class": "W", "inports": {name: {}}});
        assert_eq!(w.refused("POST", "/jobs", body).await, (422, format!("Invalid port name: {name}")));
    }
    assert_eq!(w.create("W").await, 1);
}
