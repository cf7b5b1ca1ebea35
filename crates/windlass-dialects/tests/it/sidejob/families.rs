//! Parents and children.

use super::World;
use serde_json::json;

#[tokio::test]
async fn a_parent_is_run_after_each_run_of_a_child_unless_it_is_down() {
    for end in ["completed", "suspended", "failed", "terminated"] {
        for parent_is in ["suspended", "completed", "failed", "terminated"] {
            let w = World::new().await;
            let parent = w.idle("W", parent_is).await;
            let child = w.child("W", parent, "c").await;
            if end == "terminated" {
                w.post(&format!("/jobs/{child}/terminate"), json!({})).await;
            }
            let run = w.claimed().await;
            match end {
                "failed" => w.fail(&run, "oops").await,
                "suspended" => w.finish(&run, "suspended").await,
                _ => w.finish(&run, "completed").await,
            };
            assert_eq!(w.status(child).await, end);
            let goes_on = matches!(parent_is, "suspended" | "completed");
            let expected = if goes_on { "queued" } else { parent_is };
            assert_eq!(w.status(parent).await, expected, "{parent_is} parent of a child that {end}");
        }
    }
    let w = World::new().await;
    let parent = w.idle("W", "completed").await;
    let _child = w.child("W", parent, "c").await;
    let run = w.claimed().await;
    w.post(&format!("/jobs/{parent}/terminate"), json!({})).await;
    w.finish(&run, "completed").await;
    assert_eq!(w.status(parent).await, "terminating");
}

#[tokio::test]
async fn families_can_be_looked_up_both_ways() {
    let w = World::new().await;
    let parent = w.create("W").await;
    let (a, b) = (w.child("W", parent, "a").await, w.child("W", parent, "job b/ü").await);
    assert_eq!(w.get(&format!("/jobs/{parent}/children")).await, json!({"a": a, "job b/ü": b}));
    assert_eq!(w.view(parent).await["children"], json!({"a": a, "job b/ü": b}));
    assert_eq!(w.get(&format!("/jobs/{parent}/child/a")).await, json!({"job": a}));
    assert_eq!(w.get(&format!("/jobs/{parent}/child/nobody")).await, json!({}));
    assert_eq!(w.view(a).await["state"]["parent"], json!(parent));
    assert!(w.view(parent).await["state"].get("parent").is_none());
}

#[tokio::test]
async fn adoption_has_its_rules() {
    let w = World::new().await;
    let mut jobs = vec![];
    for _ in 0..4 {
        jobs.push(w.idle("W", "completed").await);
    }
    let adopt = |parent: u64| format!("/jobs/{parent}/adopt");
    assert_eq!(w.post(&adopt(1), json!({"child": 2, "name": "x"})).await, json!(null));
    for (parent, body, message) in [
        (3, json!({"child": 2, "name": "y"}), "Job 3 cannot adopt job 2 as it already has a parent"),
        (1, json!({"child": 1, "name": "y"}), "Job 1 cannot adopt itself as a child"),
        (1, json!({"child": 3}), "Job 1 cannot adopt job 3 as child name  is not unique"),
        (1, json!({"child": 3, "name": "x"}), "Job 1 cannot adopt job 3 as child name x is not unique"),
        (2, json!({"child": 1, "name": "y"}), "Job 2 cannot adopt job 1 as it is one of its ancestors"),
    ] {
        assert_eq!(w.refused("POST", &adopt(parent), body).await, (422, message.to_owned()));
    }
    w.post(&adopt(2), json!({"child": 3, "name": "x"})).await;
    let (_, message) = w.refused("POST", &adopt(3), json!({"child": 1, "name": "y"})).await;
    assert_eq!(message, "Job 3 cannot adopt job 1 as it is one of its ancestors");
    assert_eq!(w.get("/jobs/1/children").await, json!({"x": 2}));
    assert!(w.claim().await.is_none(), "nobody is run");
    for job in jobs {
        assert_eq!(w.status(job).await, "completed");
    }
    assert_eq!(w.refused("POST", &adopt(1), json!({"child": 99, "name": "z"})).await.0, 404);
}

#[tokio::test]
async fn adoptions_that_race_make_no_circle() {
    let w = World::new().await;
    for round in 0..20 {
        let (a, b) = (w.idle("W", "completed").await, w.idle("W", "completed").await);
        let one = json!({"child": b, "name": "x"});
        let other = json!({"child": a, "name": "x"});
        let (first, second) = (format!("/jobs/{a}/adopt"), format!("/jobs/{b}/adopt"));
        let (first, second) = tokio::join!(w.call("POST", &first, &one), w.call("POST", &second, &other));
        let adopted = [&first, &second].iter().filter(|reply| reply.status == 200).count();
        assert_eq!(adopted, 1, "round {round}: {} {}", first.text(), second.text());
    }
}

#[tokio::test]
async fn a_child_can_be_disowned_by_name_or_by_itself() {
    let w = World::new().await;
    let parent = w.create("W").await;
    let a = w.child("W", parent, "a").await;
    let odd = w.child("W", parent, &format!("job:{a}")).await;
    let stranger = w.create("W").await;
    w.drain().await;
    let path = format!("/jobs/{parent}/disown");
    for (body, message) in [
        (json!({"name": "x"}), "Job 1 cannot disown non-existent child x".to_owned()),
        (json!({"child": stranger}), format!("Job 1 cannot disown job {stranger} as it is not a child")),
    ] {
        assert_eq!(w.refused("POST", &path, body).await, (422, message));
    }
    assert_eq!(w.post(&path, json!({"child": a})).await, json!(null));
    assert_eq!(w.get(&format!("/jobs/{parent}/children")).await, json!({format!("job:{a}"): odd}));
    assert!(w.view(a).await["state"].get("parent").is_none());
    w.post(&format!("/jobs/{stranger}/adopt"), json!({"child": a, "name": "a"})).await;
    assert_eq!(w.view(a).await["state"]["parent"], json!(stranger));
    w.post(&path, json!({"name": format!("job:{a}")})).await;
    assert_eq!(w.get(&format!("/jobs/{parent}/children")).await, json!({}));
    assert!(w.claim().await.is_none(), "nobody is run");
}

/// Run of a worker of class Fib, with the calls that a client library would make.
async fn fibonacci(w: &World, run: &super::Run) {
    let (job, token) = (run.job, &run.token);
    let n = run.all["args"][0].as_u64().unwrap();
    let children = w.get(&format!("/jobs/{job}/children")).await;
    if n <= 2 {
        w.write(&format!("{job}/outports/num"), json!(1)).await;
    } else if children == json!({}) {
        for less in [1, 2] {
            let body = json!({"queue": "f", "class": "Fib", "args": [n - less], "parent": job,
                "name": format!("less{less}"), "token": token});
            w.create_with(body).await;
        }
        w.finish(run, "suspended").await;
        return;
    } else {
        let mut numbers = vec![];
        for child in children.as_object().unwrap().values() {
            let at = format!("{child}/outports/num");
            if w.port(&at).await["size"] == json!(0) {
                w.finish(run, "suspended").await;
                return;
            }
            numbers.push(at);
        }
        let mut sum = 0;
        for at in numbers {
            sum += w.read(&at).await["data"].as_u64().unwrap();
        }
        w.write(&format!("{job}/outports/num"), json!(sum)).await;
    }
    w.finish(run, "completed").await;
}

#[tokio::test]
async fn fibonacci_by_recursive_children() {
    let w = World::new().await;
    w.register("f", json!({"Fib": {"outports": {"num": {}}}})).await;
    let top = w.create_with(json!({"queue": "f", "class": "Fib", "args": [6]})).await;
    while let Some(run) = w.claim_from("f").await {
        fibonacci(&w, &run).await;
    }
    assert_eq!(w.read(&format!("{top}/outports/num")).await, json!({"data": 8}));
    assert_eq!(w.status(top).await, "completed");
}

#[tokio::test]
async fn a_parent_suspends_until_its_inputs_are_there_and_its_child_has_summed() {
    let w = World::new().await;
    w.register(
        "q",
        json!({
            "Sum": {"inports": {"ready": {}}, "outports": {"out": {}}},
            "Add": {"inports": {"x": {}, "y": {}}, "outports": {"sum": {}}},
        }),
    )
    .await;
    let parent = w.create("Sum").await;
    let run = w.claimed().await;
    let child = w.child("Add", parent, "adder").await;
    w.finish(&run, "suspended").await;
    w.finish(&w.claimed().await, "suspended").await;
    w.finish(&w.claimed().await, "suspended").await;
    w.write(&format!("{child}/inports/x"), json!(5)).await;
    w.write(&format!("{child}/inports/y"), json!(6)).await;
    let run = w.claimed().await;
    assert_eq!(run.job, child);
    let step = json!({"inports": ["x", "y"], "token": run.token});
    let values = w.post(&format!("/jobs/{child}/for_inputs"), step).await;
    assert_eq!(values["values"], json!([5, 6]));
    let end = json!({"token": run.token, "writes": [{"outport": "sum", "data": 11}]});
    w.post(&format!("/jobs/{child}/finish"), end).await;
    w.write(&format!("{parent}/inports/ready"), json!(1)).await;
    let run = w.claimed().await;
    assert_eq!(run.job, parent);
    let to = json!({"to": {"job": parent, "outport": "out"}});
    w.post(&format!("/jobs/{child}/outports/sum/connect"), to).await;
    w.finish(&run, "completed").await;
    assert_eq!(w.read(&format!("{parent}/outports/out")).await, json!({"data": 11}));
}
