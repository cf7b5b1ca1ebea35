//! Terminating and deleting.

use super::World;
use serde_json::{Value, json};

async fn delete(w: &World, job: u64) -> Value {
    w.call("DELETE", &format!("/jobs/{job}"), &Value::Null).await.json()
}

#[tokio::test]
async fn termination_is_a_last_run() {
    for status in ["queued", "suspended", "completed", "failed"] {
        let w = World::new().await;
        let job = match status {
            "queued" => w.create("W").await,
            other => w.idle("W", other).await,
        };
        let answer = w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
        assert_eq!(answer, json!({"job": job, "status": "terminating"}));
        let run = w.claimed().await;
        assert_eq!((run.kind(), run.job), ("shutdown", job));
        assert!(w.claim().await.is_none(), "one run, and no other");
        assert_eq!(w.finish(&run, "completed").await["status"], "terminated");
        assert!(w.claim().await.is_none());
    }
}

#[tokio::test]
async fn a_class_without_shutdown_needs_no_last_run() {
    let w = World::new().await;
    w.register("q", json!({"W": {"shutdown": false}})).await;
    let job = w.idle("W", "completed").await;
    let answer = w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    assert_eq!(answer["status"], "terminated");
    assert!(w.claim().await.is_none());
}

#[tokio::test]
async fn a_last_run_that_fails_is_the_last_all_the_same() {
    let w = World::new().await;
    let job = w.idle("W", "completed").await;
    w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    let run = w.claimed().await;
    assert_eq!(w.fail(&run, "no shutdown").await["status"], "terminated");
    assert_eq!(w.take_logs().await[0]["error"], "no shutdown");
}

#[tokio::test]
async fn a_run_that_goes_on_ends_before_its_job_is_terminated() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    assert_eq!(w.status(job).await, "terminating");
    assert!(w.claim().await.is_none(), "the current run ends first");
    w.finish(&run, "suspended").await;
    let last = w.claimed().await;
    assert_eq!(last.kind(), "shutdown");
    w.finish(&last, "completed").await;
    assert_eq!(w.status(job).await, "terminated");
}

#[tokio::test]
async fn termination_comes_to_its_end_though_every_worker_dies() {
    let w = World::new().await;
    let job = w.create("W").await;
    let _lost = w.claimed().await;
    w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    w.pass(60_000).await;
    let _lost_too = w.claimed().await;
    w.pass(60_000).await;
    let last = w.claimed().await;
    assert_eq!(last.kind(), "shutdown");
    assert_eq!(w.finish(&last, "completed").await["status"], "terminated");
}

#[tokio::test]
async fn terminating_again_is_nothing_new_and_a_schedule_does_not_keep_it() {
    let w = World::new().await;
    let job = w.create_with(json!({"queue": "q", "class": "W", "wait": 1_000})).await;
    let path = format!("/jobs/{job}/terminate");
    for _ in 0..3 {
        w.post(&path, json!({})).await;
    }
    let run = w.claimed().await;
    assert_eq!(run.kind(), "shutdown", "now, and not when it was to run");
    assert!(w.claim().await.is_none());
    w.finish(&run, "completed").await;
    assert_eq!(w.post(&path, json!({})).await["status"], "terminated");
    w.pass(1_000_000).await;
    assert!(w.claim().await.is_none());
}

#[tokio::test]
async fn descendants_are_terminated_only_when_asked_for() {
    let w = World::new().await;
    let top = w.idle("W", "suspended").await;
    let middle = w.child("W", top, "m").await;
    let low = w.child("W", middle, "l").await;
    w.drain().await;
    w.post(&format!("/jobs/{middle}/status"), json!({"status": "terminated"})).await;
    w.post(&format!("/jobs/{top}/terminate"), json!({})).await;
    assert_eq!(w.status(low).await, "completed");
    w.post(&format!("/jobs/{top}/terminate"), json!({"recursive": true})).await;
    let statuses = (w.status(top).await, w.status(middle).await, w.status(low).await);
    assert_eq!(
        (statuses.0.as_str(), statuses.1.as_str(), statuses.2.as_str()),
        ("terminating", "terminated", "terminating")
    );
}

#[tokio::test]
async fn only_a_family_that_is_all_terminated_can_be_deleted() {
    let w = World::new().await;
    let above = w.idle("W", "completed").await;
    let top = w.child("IO", above, "t").await;
    let low = w.child("IO", top, "l").await;
    w.drain().await;
    w.write(&format!("{low}/outports/x"), json!(1)).await;
    w.drain().await;
    assert_eq!(delete(&w, top).await, json!({"job": top, "delete": false}));
    w.post(&format!("/jobs/{top}/status"), json!({"status": "terminated"})).await;
    assert_eq!(delete(&w, top).await, json!({"job": top, "delete": false}), "its child is not");
    w.post(&format!("/jobs/{low}/status"), json!({"status": "terminated"})).await;
    assert_eq!(delete(&w, top).await, json!({"job": top, "delete": true}));
    assert_eq!(w.get(&format!("/jobs/{above}/children")).await, json!({}));
    for gone in [top, low] {
        let refusal = w.refused("DELETE", &format!("/jobs/{gone}"), json!({})).await;
        assert_eq!(refusal, (404, format!("Job {gone} does not exist!")));
    }
}

#[tokio::test]
async fn every_call_on_a_job_that_is_gone_says_so() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let run = w.claimed().await;
    w.pass(60_000).await;
    w.post(&format!("/jobs/{job}/status"), json!({"status": "terminated"})).await;
    assert_eq!(delete(&w, job).await["delete"], true);
    let gone = (404, format!("Job {job} does not exist!"));
    let end = json!({"token": run.token, "status": "completed"});
    assert_eq!(w.refused("POST", &format!("/jobs/{job}/finish"), end).await, gone, "its own run, too");
    for path in ["", "/state", "/children", "/child/x", "/inports/a"] {
        assert_eq!(w.refused("GET", &format!("/jobs/{job}{path}"), json!({})).await, gone, "{path}");
    }
    for (path, body) in [
        ("state", json!({"k": 1})),
        ("unset", json!({"keys": ["k"]})),
        ("run", json!({})),
        ("terminate", json!({})),
        ("status", json!({"status": "queued"})),
        ("inports/a/read", json!({})),
        ("inports/a/write", json!({"data": 1})),
        ("inports/a/entries", json!({})),
        ("inports/a/default", json!({})),
        ("inports/a/connect", json!({"to": {"outport": "x"}})),
        ("ports", json!({"inports": {}})),
        ("for_inputs", json!({"inports": ["a"]})),
        ("adopt", json!({"child": job, "name": "x"})),
        ("disown", json!({"name": "x"})),
        ("lock", json!({"ttl": 1})),
        ("refresh_lock", json!({"ttl": 1, "token": "x"})),
        ("unlock", json!({"token": "x"})),
    ] {
        assert_eq!(w.refused("POST", &format!("/jobs/{job}/{path}"), body).await, gone, "{path}");
    }
}

#[tokio::test]
async fn jobs_that_were_made_elsewhere_stay_as_they_are_unless_their_class_is_registered_here() {
    let w = World::new().await;
    let push = |name: &'static str| {
        let body = json!({"name": name, "queue": "q"}).to_string();
        let server = &w.server;
        async move { server.call("POST", "/api/v1/jobs", &body).await.json()["id"].as_u64().unwrap() }
    };
    let state = |job: u64| {
        let server = &w.server;
        async move {
            server.get(&format!("/api/v1/jobs/{job}")).await.json()["state"].as_str().unwrap().to_owned()
        }
    };
    let job = push("mail").await;
    let refused = format!(
        "Job {job} is not a SideJob job, and no worker is registered for mail in queue q; the job was not changed"
    );
    for (path, body) in
        [("run", json!({})), ("terminate", json!({})), ("status", json!({"status": "suspended"}))]
    {
        let answer = w.refused("POST", &format!("/jobs/{job}/{path}"), body).await;
        assert_eq!(answer, (422, refused.clone()), "{path}");
        assert_eq!(state(job).await, "ready", "{path}");
    }
    let known = push("W").await;
    w.post(&format!("/jobs/{known}/terminate"), json!({})).await;
    assert_eq!(w.status(known).await, "terminating");
}
