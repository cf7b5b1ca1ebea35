//! Ports.

use super::World;
use serde_json::{Value, json};

#[tokio::test]
async fn ports_have_names_of_letters_digits_and_underscores() {
    let w = World::new().await;
    let job = w.create_with(json!({"queue": "q", "class": "W", "inports": {"Port_1": {}}})).await;
    w.write(&format!("{job}/inports/Port_1"), json!(1)).await;
    for (name, path) in [("PORT.1", "PORT.1"), ("é", "%C3%A9"), ("*", "*"), ("ab\n!!", "ab%0A!!")] {
        let refusal = w.refused("POST", &format!("/jobs/{job}/inports/{path}/read"), json!({})).await;
        assert_eq!(refusal, (422, format!("Invalid port name: {name}")));
        let declared = json!({"inports": {name: {}}});
        if name != "*" {
            let refusal = w.refused("POST", &format!("/jobs/{job}/ports"), declared).await;
            assert_eq!(refusal, (422, format!("Invalid port name: {name}")), "declared");
        }
    }
    for (side, word) in [("inports", "inport"), ("outports", "outport")] {
        for what in ["read", "write", "entries", "default"] {
            let refusal = w.refused("POST", &format!("/jobs/{job}/{side}/nope/{what}"), json!({})).await;
            assert_eq!(refusal, (422, format!("Job {job} does not have {word} nope!")));
        }
    }
}

#[tokio::test]
async fn a_port_without_a_name_is_refused() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let empty = json!({"operations": [{"job": job, "inport": "", "read": true}]});
    assert_eq!(w.refused("POST", "/group", empty).await, (422, "Invalid port name: ".to_owned()));
}

#[tokio::test]
async fn case_and_side_tell_ports_apart() {
    let w = World::new().await;
    let ports = json!({"queue": "q", "class": "W", "inports": {"p": {}, "P": {}}, "outports": {"p": {}}});
    let job = w.create_with(ports).await;
    for (at, value) in [("inports/p", 1), ("inports/P", 2), ("outports/p", 3)] {
        w.write(&format!("{job}/{at}"), json!(value)).await;
    }
    for (at, value) in [("inports/p", 1), ("inports/P", 2), ("outports/p", 3)] {
        assert_eq!(w.read(&format!("{job}/{at}")).await, json!({"data": value}));
    }
}

#[tokio::test]
async fn ports_may_be_made_on_demand() {
    let w = World::new().await;
    let job = w.create("Dyn").await;
    assert_eq!(w.view(job).await["inports"], json!({}));
    assert_eq!(w.read(&format!("{job}/inports/zz")).await, json!({"data": 5}));
    assert_eq!(w.view(job).await["inports"], json!({"zz": {"size": 0, "default": 5}}));
    w.write(&format!("{job}/inports/yy"), json!(1)).await;
    assert_eq!(w.port(&format!("{job}/inports/yy")).await, json!({"size": 1, "default": 5}));
}

#[tokio::test]
async fn ports_given_at_the_start_go_before_those_of_the_class() {
    let w = World::new().await;
    let given = json!({"queue": "q", "class": "Add", "inports": {"b": {}, "c": {"default": 1}}, "outports": {"more": {}}});
    let view = w.view(w.create_with(given).await).await;
    assert_eq!(view["inports"], json!({"a": {"size": 0}, "b": {"size": 0}, "c": {"size": 0, "default": 1}}));
    assert_eq!(view["outports"], json!({"sum": {"size": 0}, "more": {"size": 0}}));
    let plain = w.view(w.create("Add").await).await;
    assert_eq!(plain["inports"], json!({"a": {"size": 0}, "b": {"size": 0, "default": 10}}));
}

#[tokio::test]
async fn ports_that_are_set_replace_all_but_those_of_the_class() {
    let w = World::new().await;
    let job = w
        .create_with(json!({"queue": "q", "class": "Dyn", "inports": {"kept": {"default": 1}, "lost": {}}}))
        .await;
    w.drain().await;
    for port in ["kept", "lost", "made"] {
        w.write(&format!("{job}/inports/{port}"), json!(port)).await;
    }
    w.drain().await;
    w.post(&format!("/jobs/{job}/ports"), json!({"inports": {"kept": {}, "new": {"default": null}}})).await;
    let view = w.view(job).await;
    assert_eq!(view["inports"], json!({"kept": {"size": 1}, "new": {"size": 0, "default": null}}));
    assert_eq!(view["outports"], json!({"o": {"size": 0, "default": null}}), "a side not given stays");
    assert_eq!(w.read(&format!("{job}/inports/made")).await, json!({"data": 5}), "made anew, empty");
    assert!(w.claim().await.is_none(), "the job is not run");
}

#[tokio::test]
async fn values_come_out_as_they_went_in() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let at = format!("{job}/inports/a");
    let values = [
        json!("abc"),
        json!(123),
        json!(true),
        json!(false),
        json!(null),
        json!({"abc": 123}),
        json!([1, {"foo": true}]),
    ];
    for value in &values {
        assert_eq!(w.write(&at, value.clone()).await, json!(null));
    }
    for value in &values {
        assert_eq!(w.read(&at).await, json!({"data": value}));
    }
    assert_eq!(w.read(&at).await, json!({}), "nothing is not null");
    w.post(&format!("/jobs/{at}/write"), json!({"list": [3, [4], 5]})).await;
    w.post(&format!("/jobs/{at}/write"), json!({})).await;
    assert_eq!(w.entries(&at).await, json!([3, [4], 5, null]));
}

#[tokio::test]
async fn key_order_long_numbers_and_every_letter_survive() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let value = "{\"z\":1,\"a\":123456789012345678901234567890,\"ü\":\"\\u0041 ☃\",\"f\":1.0e400}";
    let path = format!("/sidejob/jobs/{job}/inports/a");
    w.server.post(&format!("{path}/write"), &format!("{{\"data\":{value}}}")).await;
    let read = w.server.post(&format!("{path}/read"), "").await;
    assert_eq!(read.text(), format!("{{\"data\":{value}}}"));
}

#[tokio::test]
async fn a_default_is_read_when_nothing_waits_and_is_not_used_up() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let at = format!("{job}/inports/a");
    for default in [json!(7), json!(null), json!(false)] {
        w.post(&format!("/jobs/{at}/default"), json!({"default": default})).await;
        assert_eq!(w.port(&at).await, json!({"size": 0, "default": default}));
        w.write(&at, json!("first")).await;
        assert_eq!(w.port(&at).await["size"], json!(1), "defaults do not count");
        assert_eq!(w.read(&at).await, json!({"data": "first"}));
        for _ in 0..3 {
            assert_eq!(w.read(&at).await, json!({"data": default}));
        }
        assert_eq!(w.entries(&at).await, json!([]), "never the default");
    }
    w.post(&format!("/jobs/{at}/default"), json!({})).await;
    assert_eq!(w.port(&at).await, json!({"size": 0}));
    assert_eq!(w.read(&at).await, json!({}));
}

#[tokio::test]
async fn a_default_runs_and_logs_nothing() {
    let w = World::new().await;
    let parent = w.idle("W", "completed").await;
    let job = w.child("IO", parent, "c").await;
    w.drain().await;
    w.take_logs().await;
    for at in ["inports/a", "outports/x"] {
        w.post(&format!("/jobs/{job}/{at}/default"), json!({"default": 1})).await;
        w.post(&format!("/jobs/{job}/{at}/default"), json!({})).await;
    }
    assert!(w.claim().await.is_none());
    assert_eq!(w.take_logs().await, Vec::<Value>::new());
}

#[tokio::test]
async fn inputs_run_the_job_and_outputs_its_parent() {
    let w = World::new().await;
    let parent = w.idle("W", "completed").await;
    let job = w.child("IO", parent, "c").await;
    w.drain().await;
    w.write(&format!("{job}/inports/a"), json!(1)).await;
    assert_eq!(w.claimed().await.job, job);
    assert!(w.claim().await.is_none(), "and not the parent");
    let w = World::new().await;
    let parent = w.idle("W", "suspended").await;
    let job = w.child("IO", parent, "c").await;
    w.drain().await;
    w.write(&format!("{job}/outports/x"), json!(1)).await;
    assert_eq!(w.drain().await, [parent], "and not the job");
    let alone = w.idle("IO", "completed").await;
    w.write(&format!("{alone}/outports/x"), json!(1)).await;
    assert!(w.claim().await.is_none(), "no parent, nobody");
    assert_eq!(w.read(&format!("{alone}/outports/x")).await, json!({"data": 1}), "anyone may read");
}

#[tokio::test]
async fn a_job_that_is_down_keeps_what_is_written_to_it() {
    let w = World::new().await;
    for status in ["failed", "terminated"] {
        let job = w.idle("IO", status).await;
        w.write(&format!("{job}/inports/a"), json!("wait")).await;
        assert_eq!(w.status(job).await, status);
        w.post(&format!("/jobs/{job}/run"), json!({"force": true})).await;
        let run = w.claimed().await;
        assert_eq!(w.read(&format!("{job}/inports/a")).await, json!({"data": "wait"}));
        w.finish(&run, "completed").await;
    }
}

#[tokio::test]
async fn what_for_inputs_handed_out_comes_back_when_the_run_dies_or_fails_and_single_reads_do_not() {
    for end in ["dies", "fails", "gives back"] {
        let w = World::new().await;
        let job = w.create("IO").await;
        for (port, value) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
            w.write(&format!("{job}/inports/{port}"), json!(value)).await;
        }
        let run = w.claimed().await;
        let ask = json!({"inports": ["a", "b"], "token": run.token});
        let step = w.post(&format!("/jobs/{job}/for_inputs"), ask).await;
        assert_eq!(step, json!({"next": "call", "values": [1, 3], "defaults": false}));
        assert_eq!(w.port(&format!("{job}/inports/a")).await["size"], json!(1));
        match end {
            "dies" => w.pass(60_000).await,
            "fails" => drop(w.fail(&run, "oops").await),
            _ => drop(w.finish(&run, "queued").await),
        }
        assert_eq!(w.entries(&format!("{job}/inports/a")).await, json!([1, 2]), "{end}");
        assert_eq!(w.entries(&format!("{job}/inports/b")).await, json!([3, 4]), "{end}");
    }
    let w = World::new().await;
    let job = w.create("IO").await;
    w.write(&format!("{job}/inports/a"), json!(1)).await;
    let _run = w.claimed().await;
    w.read(&format!("{job}/inports/a")).await;
    w.pass(60_000).await;
    assert_eq!(w.port(&format!("{job}/inports/a")).await, json!({"size": 0}), "a single read is final");
}

#[tokio::test]
async fn sizes_are_bounded_with_clear_words() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let path = format!("/jobs/{job}/inports/a/write");
    let many: Vec<u32> = (0..10_001).collect();
    let (status, message) = w.refused("POST", &path, json!({"list": many})).await;
    assert_eq!(status, 413);
    assert_eq!(message, "Job 1: inport a would contain 10001 values; the maximum is 10000");
    let (status, message) = w.refused("POST", &path, json!({"data": "x".repeat(1 << 20)})).await;
    assert_eq!((status, message.contains("bytes long; the maximum is 1048576")), (413, true), "{message}");
    assert_eq!(w.port(&format!("{job}/inports/a")).await, json!({"size": 0}));
}

#[tokio::test]
async fn whoever_reads_inputs_beside_a_run_takes_nothing_out_of_its_hand() {
    let w = World::new().await;
    let job = w.create("IO").await;
    let run = w.claimed().await;
    for value in [1, 2, 3] {
        w.write(&format!("{job}/inports/a"), json!(value)).await;
    }
    let path = format!("/jobs/{job}/for_inputs");
    let handed = w.post(&path, json!({"inports": ["a"], "token": run.token})).await;
    assert_eq!(handed["values"], json!([1]));
    assert_eq!(w.post(&path, json!({"inports": ["a"]})).await["values"], json!([2]));
    w.fail(&run, "no").await;
    assert_eq!(w.entries(&format!("{job}/inports/a")).await, json!([1, 3]));
}
