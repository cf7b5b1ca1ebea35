//! State.

use super::World;
use serde_json::{Value, json};

#[tokio::test]
async fn state_is_merged_and_unset_by_key() {
    let w = World::new().await;
    let job = w.create("W").await;
    let path = format!("/jobs/{job}/state");
    w.post(&path, json!({"a": 1, "b": [1, [2]], "c": null})).await;
    let state = w.get(&path).await;
    assert_eq!((&state["a"], &state["b"]), (&json!(1), &json!([1, [2]])));
    assert_eq!(state.get("c"), Some(&Value::Null), "null is a value");
    assert_eq!(state.get("d"), None);
    w.post(&path, json!({"a": 2})).await;
    w.post(&path, json!({})).await;
    w.post(&format!("/jobs/{job}/unset"), json!({"keys": ["b", "never"]})).await;
    let state = w.get(&path).await;
    assert_eq!((&state["a"], state.get("b"), state.get("c")), (&json!(2), None, Some(&Value::Null)));
}

#[tokio::test]
async fn a_job_that_is_not_there_has_no_state() {
    let w = World::new().await;
    for body in [json!({"a": 1}), json!({})] {
        let refusal = w.refused("POST", "/jobs/7/state", body).await;
        assert_eq!(refusal, (404, "Job 7 does not exist!".to_owned()));
    }
}

#[tokio::test]
async fn what_the_server_keeps_cannot_be_set() {
    let w = World::new().await;
    let job = w.create("W").await;
    let before = w.view(job).await;
    for key in ["status", "queue", "class", "args", "parent", "created_by", "created_at", "ran_at"] {
        let (status, message) =
            w.refused("POST", &format!("/jobs/{job}/state"), json!({key: "x", "fine": 1})).await;
        assert_eq!(status, 422);
        assert!(message.contains(key), "{message}");
    }
    assert_eq!(w.view(job).await, before, "nothing of it was set");
}

#[tokio::test]
async fn state_survives_runs() {
    let w = World::new().await;
    let job = w.create("W").await;
    w.post(&format!("/jobs/{job}/state"), json!({"n": {"z": 1, "a": 2}})).await;
    for _ in 0..3 {
        let run = w.claimed().await;
        assert_eq!(run.all["state"]["n"], json!({"z": 1, "a": 2}), "the worker is told");
        w.finish(&run, "completed").await;
        w.run(job).await;
    }
    assert_eq!(w.view(job).await["state"]["n"], json!({"z": 1, "a": 2}));
}
