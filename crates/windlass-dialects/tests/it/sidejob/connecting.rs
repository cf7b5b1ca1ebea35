//! Connections between ports, and reading several inports together.

use super::{Run, World};
use serde_json::{Value, json};

async fn connect(w: &World, from: &str, to: Value) -> Value {
    w.post(&format!("/jobs/{from}/connect"), json!({"to": to})).await["data"].clone()
}

#[tokio::test]
async fn all_values_go_to_every_destination_in_order() {
    let w = World::new().await;
    let (source, first, second) =
        (w.idle("IO", "completed").await, w.idle("IO", "suspended").await, w.idle("IO", "failed").await);
    let child = w.child("IO", first, "c").await;
    w.drain().await;
    w.post(&format!("/jobs/{source}/outports/x/write"), json!({"list": [1, [2, 3]]})).await;
    w.take_logs().await;
    let to = json!([{"job": first, "inport": "a"}, {"job": second, "inport": "b"}, {"job": child, "outport": "y"}]);
    assert_eq!(connect(&w, &format!("{source}/outports/x"), to).await, json!([1, [2, 3]]));
    let logs = w.take_logs().await;
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0]["read"], json!([{"job": source, "data": [1, [2, 3]], "outport": "x"}]));
    assert_eq!(logs[0]["write"].as_array().unwrap().len(), 3);
    assert_eq!(w.port(&format!("{source}/outports/x")).await["size"], json!(0));
    assert_eq!(w.status(second).await, "failed", "it has the data and is not run");
    assert_eq!(w.drain().await, [first], "once: for its own input and as the parent; the source is not run");
    for at in [format!("{first}/inports/a"), format!("{second}/inports/b"), format!("{child}/outports/y")] {
        assert_eq!(w.entries(&at).await, json!([1, [2, 3]]));
    }
}

#[tokio::test]
async fn a_default_goes_along_and_is_news_only_once() {
    let w = World::new().await;
    let (source, to) = (w.idle("IO", "completed").await, w.idle("IO", "completed").await);
    w.take_logs().await;
    let (from, at) = (format!("{source}/outports/x"), json!({"job": to, "inport": "a"}));
    assert_eq!(connect(&w, &from, at.clone()).await, json!([]));
    assert!(w.claim().await.is_none());
    w.post(&format!("/jobs/{from}/default"), json!({"default": null})).await;
    assert_eq!(connect(&w, &from, at.clone()).await, json!([]));
    assert_eq!(w.port(&format!("{to}/inports/a")).await, json!({"size": 0, "default": null}));
    assert_eq!(w.drain().await, [to]);
    assert_eq!(connect(&w, &from, at).await, json!([]));
    assert!(w.claim().await.is_none(), "nothing new");
    assert_eq!(w.take_logs().await, Vec::<Value>::new(), "no data moved");
}

#[tokio::test]
async fn a_connection_moves_everything_or_nothing() {
    let w = World::new().await;
    let (source, to) = (w.idle("IO", "completed").await, w.idle("IO", "completed").await);
    let from = format!("{source}/outports/x");
    w.write(&from, json!(1)).await;
    let path = format!("/jobs/{from}/connect");
    for (to, message) in [
        (json!([]), "Nothing to connect to: name at least one port".to_owned()),
        (
            json!([{"job": to, "inport": "a"}, {"job": to, "inport": "zz"}]),
            format!("Job {to} does not have inport zz!"),
        ),
        (
            json!([{"job": to, "inport": "a"}, {"job": 99, "inport": "a"}]),
            "Job 99 does not exist!".to_owned(),
        ),
    ] {
        assert_eq!(w.refused("POST", &path, json!({"to": to})).await.1, message);
    }
    assert_eq!(w.refused("POST", &path, json!({})).await.0, 422);
    assert_eq!(w.entries(&format!("{to}/inports/a")).await, json!([]));
    assert_eq!(w.entries(&from).await, json!([1]));
    assert!(w.claim().await.is_none());
}

#[tokio::test]
async fn ports_of_one_job_can_be_connected() {
    let w = World::new().await;
    let job = w.idle("IO", "completed").await;
    w.post(&format!("/jobs/{job}/outports/x/write"), json!({"list": [1, 2]})).await;
    assert_eq!(connect(&w, &format!("{job}/outports/x"), json!({"inport": "a"})).await, json!([1, 2]));
    assert_eq!(w.drain().await, [job]);
    assert_eq!(w.entries(&format!("{job}/inports/a")).await, json!([1, 2]));
}

/// Running job of class IO with these values and defaults on its inports.
async fn running(w: &World, values: Value, defaults: Value) -> Run {
    let job = w.create("IO").await;
    for (port, list) in values.as_object().unwrap() {
        w.post(&format!("/jobs/{job}/inports/{port}/write"), json!({"list": list})).await;
    }
    for (port, default) in defaults.as_object().unwrap() {
        w.post(&format!("/jobs/{job}/inports/{port}/default"), json!({"default": default})).await;
    }
    w.claimed().await
}

async fn next(w: &World, run: &Run, writes: Value) -> Value {
    let ask = json!({"inports": ["a", "b"], "token": run.token, "writes": writes});
    w.post(&format!("/jobs/{}/for_inputs", run.job), ask).await
}

fn call(values: Value) -> Value {
    json!({"next": "call", "values": values, "defaults": false})
}

#[tokio::test]
async fn inputs_are_read_together_as_long_as_there_are_some() {
    let w = World::new().await;
    let run = running(&w, json!({"a": [1, "a"], "b": [[2, 3], {"foo": 123}]}), json!({})).await;
    let none = json!({"inports": [], "token": run.token});
    assert_eq!(w.post(&format!("/jobs/{}/for_inputs", run.job), none).await, json!({"next": "return"}));
    assert_eq!(next(&w, &run, json!([])).await, call(json!([1, [2, 3]])));
    assert_eq!(next(&w, &run, json!([])).await, call(json!(["a", {"foo": 123}])));
    assert_eq!(next(&w, &run, json!([])).await, json!({"next": "return"}));
}

#[tokio::test]
async fn with_an_input_missing_the_job_suspends_and_keeps_the_others() {
    let w = World::new().await;
    let run = running(&w, json!({"a": [1], "b": [[2, 3], 3]}), json!({})).await;
    assert_eq!(next(&w, &run, json!([])).await, call(json!([1, [2, 3]])));
    assert_eq!(next(&w, &run, json!([])).await, json!({"next": "suspend"}));
    w.finish(&run, "suspended").await;
    assert_eq!(w.entries(&format!("{}/inports/b", run.job)).await, json!([3]));
}

#[tokio::test]
async fn defaults_stand_in_for_missing_values() {
    let w = World::new().await;
    let run = running(&w, json!({"a": [1, 2]}), json!({"b": null})).await;
    assert_eq!(next(&w, &run, json!([])).await, call(json!([1, null])));
    assert_eq!(next(&w, &run, json!([])).await, call(json!([2, null])));
    assert_eq!(
        next(&w, &run, json!([])).await,
        json!({"next": "return"}),
        "only some have defaults, none a value"
    );
}

#[tokio::test]
async fn all_defaults_are_handed_out_once_until_one_changes() {
    let w = World::new().await;
    let run = running(&w, json!({"a": [7]}), json!({"a": 1, "b": 2})).await;
    assert_eq!(next(&w, &run, json!([])).await, call(json!([7, 2])));
    let defaults = |values: Value| json!({"next": "call", "values": values, "defaults": true});
    assert_eq!(next(&w, &run, json!([{"outport": "x", "data": 9}])).await, defaults(json!([1, 2])));
    let write = json!([{"outport": "x", "data": 3}]);
    assert_eq!(next(&w, &run, write).await, json!({"next": "return"}));
    let job = run.job;
    assert_eq!(w.port(&format!("{job}/outports/x")).await, json!({"size": 1, "default": 3}));
    w.finish(&run, "completed").await;
    w.run(job).await;
    let run = w.claimed().await;
    assert_eq!(next(&w, &run, json!([])).await, json!({"next": "return"}), "remembered across runs");
    w.post(&format!("/jobs/{job}/inports/b/default"), json!({"default": 5})).await;
    assert_eq!(next(&w, &run, json!([])).await, defaults(json!([1, 5])));
    w.pass(60_000).await;
    let again = w.claimed().await;
    assert_eq!(next(&w, &again, json!([])).await, defaults(json!([1, 5])), "the run that had them died");
}

#[tokio::test]
async fn only_the_run_itself_is_handed_inputs_by_its_token() {
    let w = World::new().await;
    let run = running(&w, json!({"a": [1], "b": [2]}), json!({})).await;
    let ask = json!({"inports": ["a", "b"], "token": "12345"});
    let refusal = w.refused("POST", &format!("/jobs/{}/for_inputs", run.job), ask).await;
    assert_eq!(refusal.0, 409);
    assert_eq!(next(&w, &run, json!([])).await, call(json!([1, 2])));
}
