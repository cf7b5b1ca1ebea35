//! Workers and registration.

use super::{World, fixture};
use serde_json::json;

#[tokio::test]
async fn only_registered_classes_become_jobs() {
    let w = World::new().await;
    let (status, message) = w.refused("POST", "/jobs", json!({"queue": "q", "class": "Nobody"})).await;
    assert_eq!((status, message.as_str()), (422, "No worker registered for Nobody in queue q"));
    let (_, message) = w.refused("POST", "/jobs", json!({"queue": "other", "class": "W"})).await;
    assert_eq!(message, "No worker registered for W in queue other");
    assert_eq!(w.create("W").await, 1, "nothing used up a number");
}

#[tokio::test]
async fn registering_replaces_all_classes_of_the_queue_and_keeps_what_was_written() {
    let w = World::new().await;
    w.register("other", json!({"W": {}})).await;
    let config = json!({"Dyn": {"inports": {"*": {"default": 5}}, "colour": ["red", {"x": null}]}});
    w.register("q", config.clone()).await;
    assert_eq!(w.get("/workers/q").await, config);
    let (_, message) = w.refused("POST", "/jobs", json!({"queue": "q", "class": "W"})).await;
    assert_eq!(message, "No worker registered for W in queue q");
    w.create_with(json!({"queue": "other", "class": "W"})).await;
    w.register("q", json!({})).await;
    assert_eq!(w.get("/workers/q").await, json!({}));
    w.refused("POST", "/jobs", json!({"queue": "q", "class": "Dyn"})).await;
    assert_eq!(w.get("/workers/nobody").await, json!({}));
}

#[tokio::test]
async fn a_worker_gets_jobs_of_its_queue_only() {
    let w = World::new().await;
    w.register("other", json!({"W": {}})).await;
    let there = w.create_with(json!({"queue": "other", "class": "W"})).await;
    let here = w.create("W").await;
    assert_eq!(w.claimed().await.job, here);
    assert!(w.claim().await.is_none());
    assert_eq!(w.claim_from("other").await.unwrap().job, there);
}

#[tokio::test]
async fn a_job_whose_class_is_gone_ends_when_it_should_run() {
    for call in ["run", "terminate"] {
        let w = World::new().await;
        let job = w.idle("W", "completed").await;
        w.register("q", json!({})).await;
        let (status, message) = w.refused("POST", &format!("/jobs/{job}/{call}"), json!({})).await;
        assert_eq!((status, message.as_str()), (422, "Worker no longer registered for W in queue q"));
        assert_eq!(w.status(job).await, "terminated");
        assert!(w.claim().await.is_none(), "no last run");
    }
}

#[tokio::test]
async fn a_write_to_a_job_whose_class_is_gone_is_kept_and_reported() {
    let w = World::new().await;
    let job = w.idle("IO", "completed").await;
    w.register("q", json!({})).await;
    let (_, message) = w.refused("POST", &format!("/jobs/{job}/inports/a/write"), json!({"data": 1})).await;
    assert_eq!(message, "Worker no longer registered for IO in queue q");
    assert_eq!(w.port(&format!("{job}/inports/a")).await, json!({"size": 1}));
    assert_eq!(w.status(job).await, "terminated");
}

#[tokio::test]
async fn a_run_that_waits_already_needs_no_class() {
    let w = World::new().await;
    let job = w.create("W").await;
    w.register("q", json!({})).await;
    assert_eq!(w.run(job).await, json!(job));
    assert_eq!(w.drain().await, [job], "once");
}

#[tokio::test]
async fn a_child_ends_well_though_its_parents_class_is_gone() {
    let w = World::new().await;
    let parent = w.idle("W", "suspended").await;
    let child = w.child("IO", parent, "c").await;
    let run = w.claimed().await;
    let mut classes = fixture();
    classes.as_object_mut().unwrap().remove("W");
    w.register("q", classes).await;
    assert_eq!(w.finish(&run, "completed").await, json!({"job": child, "status": "completed"}));
    assert_eq!(w.status(child).await, "completed");
    assert_eq!(w.status(parent).await, "terminated");
}

#[tokio::test]
async fn a_configuration_that_makes_no_sense_is_refused() {
    let w = World::new().await;
    for (classes, message) in [
        (json!({"W": 5}), "the configuration of class W must be an object"),
        (json!({"W": {"inports": {"a b": {}}}}), "Invalid port name: a b"),
        (json!({"W": {"inports": {"a": 5}}}), "the options of port a must be an object"),
    ] {
        assert_eq!(w.refused("PUT", "/workers/q", classes).await, (422, message.to_owned()));
    }
    assert_eq!(w.get("/workers/q").await, fixture());
}

#[tokio::test]
async fn classes_are_unregistered_by_saying_so_and_not_by_saying_nothing() {
    let world = World::new().await;
    for nothing in ["", " \n"] {
        let reply = world.server.call("PUT", "/sidejob/workers/q", nothing).await;
        assert_eq!(reply.status, 400);
        let message = "Missing classes: send all classes of the queue; {} unregisters all";
        assert_eq!(reply.json(), json!({"error": message}));
    }
    assert_eq!(world.get("/workers/q").await, fixture());
    world.register("q", json!({})).await;
    assert_eq!(world.get("/workers/q").await, json!({}));
}
