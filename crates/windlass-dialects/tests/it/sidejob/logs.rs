//! Logs.

use super::World;
use serde_json::{Value, json};

const NOW: &str = "2023-11-14T22:14:00.000Z";

#[tokio::test]
async fn what_goes_through_ports_is_logged() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let at = format!("{job}/inports/a");
    w.read(&at).await;
    assert_eq!(w.take_logs().await, Vec::<Value>::new(), "nothing was read");
    w.write(&at, json!({"k": 1})).await;
    w.read(&at).await;
    let flow = json!([{"job": job, "data": [{"k": 1}], "inport": "a"}]);
    let expected = [
        json!({"timestamp": NOW, "read": [], "write": flow}),
        json!({"timestamp": NOW, "read": flow, "write": []}),
    ];
    assert_eq!(w.take_logs().await, expected);
    w.post(&format!("/jobs/{at}/default"), json!({"default": 3})).await;
    w.read(&at).await;
    let read = json!([{"job": job, "data": [3], "inport": "a"}]);
    assert_eq!(
        w.take_logs().await,
        [json!({"timestamp": NOW, "read": read, "write": []})],
        "a default is read, too"
    );
    let _run = w.claimed().await;
    let body = json!({"data": 1, "log_context": {"job": job}});
    w.post(&format!("/jobs/{job}/outports/x/write"), body).await;
    assert_eq!(w.take_logs().await[0]["job"], json!(job), "in a run the library says whose");
}

#[tokio::test]
async fn one_iteration_over_inputs_is_one_entry() {
    let w = World::new().await;
    let job = w.create("IO").await;
    for port in ["a", "b"] {
        w.post(&format!("/jobs/{job}/inports/{port}/write"), json!({"list": [1, 2]})).await;
    }
    w.take_logs().await;
    let run = w.claimed().await;
    let path = format!("/jobs/{job}/for_inputs");
    w.post(&path, json!({"inports": ["a", "b"], "token": run.token})).await;
    assert_eq!(w.take_logs().await, Vec::<Value>::new(), "not before it is over");
    let writes =
        json!([{"outport": "x", "data": 5}, {"outport": "y", "list": [7]}, {"outport": "x", "data": 6}]);
    w.post(&path, json!({"inports": ["a", "b"], "token": run.token, "writes": writes})).await;
    let entry = json!({"job": job, "timestamp": NOW,
        "read": [{"job": job, "data": [1], "inport": "a"}, {"job": job, "data": [1], "inport": "b"}],
        "write": [{"job": job, "data": [5, 6], "outport": "x"}, {"job": job, "data": [7], "outport": "y"}]});
    assert_eq!(w.take_logs().await, [entry]);
    w.finish(&run, "completed").await;
    let last = w.take_logs().await;
    assert_eq!((last.len(), &last[0]["write"]), (1, &json!([])), "the last one ends with the run");
}

#[tokio::test]
async fn a_group_is_one_entry_and_one_step() {
    let w = World::new().await;
    let (one, two) = (w.create("IO").await, w.create("IO").await);
    assert_eq!(w.post("/group", json!({"operations": []})).await, json!({"results": []}));
    assert_eq!(w.take_logs().await, Vec::<Value>::new());
    let operations = json!([
        {"job": one, "outport": "x", "write": {"deep": [1]}},
        {"job": two, "inport": "a", "list": [1, 2, 3]},
        {"job": two, "inport": "a", "read": true},
        {"job": two, "inport": "a", "entries": true},
        {"job": one, "outport": "x", "write": 2},
    ]);
    let results = w.post("/group", json!({"operations": operations, "log_context": {"g": 1}})).await;
    assert_eq!(results, json!({"results": [null, null, {"data": 1}, {"entries": [2, 3]}, null]}));
    let logs = w.take_logs().await;
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0]["g"], json!(1));
    assert_eq!(logs[0]["read"], json!([{"job": two, "data": [1, 2, 3], "inport": "a"}]));
    assert_eq!(logs[0]["write"][0], json!({"job": one, "data": [{"deep": [1]}, 2], "outport": "x"}));
    let bad = json!({"operations": [{"job": one, "outport": "x", "entries": true}, {"job": two, "inport": "zz", "read": true}]});
    w.refused("POST", "/group", bad).await;
    assert_eq!(w.port(&format!("{one}/outports/x")).await["size"], json!(2), "nothing of it happened");
    assert_eq!(w.take_logs().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_context_is_merged_into_the_entries_of_its_call_alone() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let path = format!("/jobs/{job}/inports/a/write");
    w.post(&path, json!({"data": 1, "log_context": {"user": "x", "deep": {"z": 1, "a": 2}}})).await;
    w.refused("POST", &format!("/jobs/{job}/inports/zz/write"), json!({"log_context": {"user": "lost"}}))
        .await;
    w.post(&path, json!({"data": 2})).await;
    let logs = w.take_logs().await;
    assert_eq!((&logs[0]["user"], &logs[0]["deep"]), (&json!("x"), &json!({"z": 1, "a": 2})));
    assert_eq!((logs.len(), logs[1].get("user")), (2, None));
    let kept =
        w.post("/logs", json!({"a": 1, "user": "entry", "log_context": {"user": "context", "c": 2}})).await;
    assert_eq!(kept, json!(1));
    w.post("/logs", json!({"timestamp": "mine"})).await;
    let expected = [json!({"a": 1, "user": "entry", "c": 2, "timestamp": NOW}), json!({"timestamp": "mine"})];
    assert_eq!(w.take_logs().await, expected);
    assert_eq!(w.refused("POST", &path, json!({"log_context": 5})).await.0, 422);
}

#[tokio::test]
async fn the_log_is_read_in_pages_oldest_first_and_cleared_when_asked() {
    let w = World::new().await;
    for number in 0..25 {
        w.post("/logs", json!({"n": number})).await;
        w.pass(1).await;
    }
    let numbers = |entries: &Value| {
        entries.as_array().unwrap().iter().map(|entry| entry["n"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&w.get("/logs").await), (0..25).collect::<Vec<_>>());
    assert_eq!(numbers(&w.get("/logs?limit=3&after=10").await), [10, 11, 12]);
    assert_eq!(w.refused("GET", "/logs?clear=true", json!({})).await.0, 422, "reading changes nothing");
    assert_eq!(w.take_logs().await.len(), 25);
    w.post("/logs", json!({"n": 99})).await;
    assert_eq!(numbers(&w.get("/logs").await), [99]);
}

#[tokio::test]
async fn an_entry_may_stand_in_a_member_of_that_name() {
    let w = World::new().await;
    let context = json!({"user": "context", "c": 2});
    for (body, stored) in [
        (json!({"entry": {"a": 1}}), json!({"a": 1, "timestamp": NOW})),
        (
            json!({"entry": {"a": 1, "user": "entry"}, "log_context": context}),
            json!({"a": 1, "user": "entry", "c": 2, "timestamp": NOW}),
        ),
        (
            json!({"entry": {"log_context": 5, "entry": {}}}),
            json!({"log_context": 5, "entry": {}, "timestamp": NOW}),
        ),
        (json!({"entry": {"a": 1}, "b": 2}), json!({"entry": {"a": 1}, "b": 2, "timestamp": NOW})),
    ] {
        w.post("/logs", body).await;
        assert_eq!(w.take_logs().await, [stored]);
    }
    let refused = w.refused("POST", "/logs", json!({"entry": "text"})).await;
    assert_eq!(refused, (422, "entry must be an object".to_owned()));
}
