//! Status and runs.

use super::World;
use serde_json::{Value, json};

#[tokio::test]
async fn a_run_ends_completed_suspended_or_failed() {
    let w = World::new().await;
    let job = w.create("W").await;
    w.pass(5_000).await;
    let run = w.claimed().await;
    let state = w.view(job).await["state"].clone();
    assert_eq!((&state["status"], &state["ran_at"]), (&json!("running"), &json!("2023-11-14T22:14:05.000Z")));
    assert_eq!(w.finish(&run, "completed").await, json!({"job": job, "status": "completed"}));
    w.run(job).await;
    w.finish(&w.claimed().await, "suspended").await;
    assert_eq!(w.status(job).await, "suspended");
    w.run(job).await;
    w.take_logs().await;
    w.fail(&w.claimed().await, "oops").await;
    assert_eq!(w.status(job).await, "failed");
    let logs = w.take_logs().await;
    let expected =
        json!({"job": job, "timestamp": "2023-11-14T22:14:05.000Z", "error": "oops", "backtrace": "a\nb"});
    assert_eq!(logs, [expected]);
    w.pass(86_400_000).await;
    assert_eq!(w.status(job).await, "failed", "it is not tried again by itself");
    assert!(w.claim().await.is_none());
}

#[tokio::test]
async fn run_works_from_where_a_job_may_go_on_and_force_from_everywhere() {
    let w = World::new().await;
    for status in ["completed", "suspended"] {
        let job = w.idle("W", status).await;
        for _ in 0..10 {
            assert_eq!(w.run(job).await, json!(job));
        }
        assert_eq!(w.status(job).await, "queued");
        assert_eq!(w.drain().await, [job], "one run, however often it was asked for");
    }
    for status in ["failed", "terminated"] {
        let job = w.idle("W", status).await;
        assert_eq!(w.run(job).await, Value::Null);
        assert_eq!(w.status(job).await, status);
        assert!(w.claim().await.is_none());
        assert_eq!(w.post(&format!("/jobs/{job}/run"), json!({"force": true})).await, json!({"run": job}));
        assert_eq!(w.drain().await, [job]);
    }
    let job = w.idle("W", "completed").await;
    w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    assert_eq!(w.run(job).await, Value::Null);
    w.post(&format!("/jobs/{job}/run"), json!({"force": true})).await;
    assert_eq!(w.claimed().await.kind(), "perform", "the termination is called off");
}

#[tokio::test]
async fn a_run_asked_for_during_a_run_follows_it_however_it_ends() {
    for end in ["completed", "suspended", "failed"] {
        let w = World::new().await;
        let job = w.create("W").await;
        let run = w.claimed().await;
        assert_eq!(w.run(job).await, json!(job));
        assert_eq!(w.status(job).await, "queued");
        assert!(w.claim().await.is_none(), "not before the first has ended");
        match end {
            "failed" => w.fail(&run, "oops").await,
            other => w.finish(&run, other).await,
        };
        assert_eq!(w.status(job).await, "queued", "after {end}");
        assert_eq!(w.take_logs().await.len(), usize::from(end == "failed"), "the error is logged");
        assert_eq!(w.drain().await, [job], "once more");
        assert_eq!(w.status(job).await, "completed");
    }
}

#[tokio::test]
async fn a_run_asked_for_during_a_run_keeps_its_time() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    w.post(&format!("/jobs/{job}/run"), json!({"wait": 100})).await;
    w.finish(&run, "completed").await;
    assert_eq!(w.status(job).await, "queued");
    w.pass(99_999).await;
    assert!(w.claim().await.is_none());
    w.pass(1).await;
    assert_eq!(w.drain().await, [job]);
}

#[tokio::test]
async fn a_run_that_fails_while_its_job_is_terminated_changes_nothing_about_that() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    w.post(&format!("/jobs/{job}/terminate"), json!({})).await;
    w.fail(&run, "oops").await;
    assert_eq!(w.status(job).await, "terminating");
    assert_eq!(w.take_logs().await[0]["error"], "oops");
}

#[tokio::test]
async fn a_status_that_was_set_stays() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    let path = format!("/jobs/{job}/status");
    w.post(&path, json!({"status": "suspended"})).await;
    assert_eq!(w.finish(&run, "completed").await, json!({"job": job, "status": "suspended"}));
    for status in ["completed", "suspended", "failed", "terminated"] {
        w.post(&format!("/jobs/{job}/run"), json!({"force": true})).await;
        assert_eq!(w.post(&path, json!({"status": status})).await, json!({"job": job, "status": status}));
        assert!(w.claim().await.is_none(), "what is {status} is not run");
        assert_eq!(w.status(job).await, status);
    }
    for bad in ["done", "RUNNING", "", "running"] {
        w.refused("POST", &path, json!({"status": bad})).await;
    }
    assert_eq!(w.post(&path, json!({"status": "queued"})).await["status"], "queued");
    assert_eq!(w.post(&path, json!({"status": "terminating"})).await["status"], "terminating");
    assert_eq!(w.claimed().await.kind(), "shutdown");
}

#[tokio::test]
async fn a_job_is_never_with_two_workers() {
    let w = World::new().await;
    let job = w.create("W").await;
    let _run = w.claimed().await;
    w.run(job).await;
    for _ in 0..3 {
        assert!(w.claim().await.is_none());
    }
}

#[tokio::test]
async fn a_worker_that_waits_gets_the_rerun_at_once() {
    let w = World::new().await;
    let job = w.create("W").await;
    let run = w.claimed().await;
    w.run(job).await;
    let waiting = w.server.post("/sidejob/queues/q/claim", "{\"wait\":300}");
    let finishing = async {
        while w.server.engine.waiters() == 0 {
            tokio::task::yield_now().await;
        }
        w.finish(&run, "completed").await
    };
    // The manual clock stands still, so the claim is answered without a wait.
    let (claimed, _) = tokio::join!(waiting, finishing);
    assert_eq!(claimed.json()["job"], json!(job));
}

#[tokio::test]
async fn a_job_that_is_gone_is_not_run() {
    let w = World::new().await;
    let job = w.idle("W", "terminated").await;
    w.call("DELETE", &format!("/jobs/{job}"), &Value::Null).await;
    assert!(w.claim().await.is_none());
    let refusal = w.refused("POST", &format!("/jobs/{job}/run"), json!({})).await;
    assert_eq!(refusal, (404, format!("Job {job} does not exist!")));
}

#[tokio::test]
async fn a_run_may_be_put_off() {
    let w = World::new().await;
    let job = w.idle("W", "completed").await;
    let path = format!("/jobs/{job}/run");
    w.post(&path, json!({"wait": 100})).await;
    assert_eq!(w.status(job).await, "queued");
    assert!(w.claim().await.is_none());
    w.pass(100_000).await;
    assert_eq!(w.drain().await, [job]);
    let at = (super::START + 100_000) / 1_000 + 10;
    w.post(&path, json!({"at": at, "wait": 500})).await;
    w.pass(10_000).await;
    assert_eq!(w.drain().await, [job], "the moment goes before the span");
    w.post(&path, json!({"wait": 0})).await;
    assert_eq!(w.drain().await, [job]);
}

#[tokio::test]
async fn the_sooner_run_is_the_one_that_comes() {
    let w = World::new().await;
    let job = w.idle("IO", "completed").await;
    w.post(&format!("/jobs/{job}/run"), json!({"wait": 100})).await;
    w.write(&format!("{job}/inports/a"), json!(1)).await;
    assert_eq!(w.drain().await, [job], "at once");
    w.pass(100_000).await;
    assert!(w.claim().await.is_none(), "the later one is off");
    w.run(job).await;
    w.post(&format!("/jobs/{job}/run"), json!({"wait": 100})).await;
    assert_eq!(w.drain().await, [job]);
    w.pass(100_000).await;
    assert!(w.claim().await.is_none());
}

#[tokio::test]
async fn the_parent_may_be_run_instead() {
    let w = World::new().await;
    let parent = w.idle("W", "failed").await;
    let child = w.child("W", parent, "c").await;
    w.drain().await;
    let path = format!("/jobs/{child}/run");
    assert_eq!(w.post(&path, json!({"parent": true})).await, json!({"run": null}));
    assert_eq!(w.post(&path, json!({"parent": true, "force": true})).await, json!({"run": parent}));
    assert_eq!(
        (w.status(parent).await, w.status(child).await),
        ("queued".to_owned(), "completed".to_owned())
    );
    let alone = format!("/jobs/{parent}/run");
    assert_eq!(w.post(&alone, json!({"parent": true})).await, json!({"run": null}));
}

#[tokio::test]
async fn first_in_first_out() {
    let w = World::new().await;
    let mut jobs = vec![];
    for _ in 0..5 {
        jobs.push(w.create("W").await);
        w.pass(1).await;
    }
    assert_eq!(w.drain().await, jobs);
    for job in [3, 1, 5] {
        w.run(job).await;
        w.pass(1).await;
    }
    assert_eq!(w.drain().await, [3, 1, 5]);
}
