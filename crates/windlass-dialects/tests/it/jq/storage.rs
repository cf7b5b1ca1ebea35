use super::world::*;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::{NameMatch, Queue, Tenant};
use windlass_dialects::jq::Settings;
use windlass_engine::Claim;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn a_restart_loses_neither_jobs_nor_workers_nor_answers() {
    let world = World::new().await;
    let mut worker = world.worker(4).await;
    let running = world.enqueue(json!({"keep_result": true, "timeout": 60})).await;
    let timing_out = world.enqueue(json!({"timeout": 5, "max_retry": 0})).await;
    let failing = world.enqueue(json!({})).await;
    worker.next_ids(3).await;
    world.fail(&worker.id, &failing, true).await;
    world.until_written(&running, &worker.id).await;
    world.until_written(&timing_out, &worker.id).await;

    let world = world.crash().await;
    assert_eq!(world.status(&running).await, "running");
    assert_eq!(world.job(&running).await["worker_id"], json!(worker.id));
    assert_eq!(world.status(&failing).await, "retrying");
    let ids: Vec<String> = {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(world.enqueue(json!({})).await);
        }
        ids
    };
    let mut given = worker.next_ids(2).await;
    given.sort_unstable();
    assert_eq!(given, ids[..2], "two of its four places are taken from before");
    worker.is_left_alone().await;
    world.succeed(&worker.id, &running, json!("from before")).await;
    assert_eq!(world.job(&running).await["result"], "from before");
    assert_eq!(worker.next_id().await, ids[2]);
    world.pass(5_000);
    assert_eq!(world.until(&timing_out, "error").await["reason"], "timeout");
    assert_eq!(worker.next_id().await, failing, "its wait is over and a place is free");
}

/// The worker's name is committed to the lease before the job is sent.
#[tokio::test]
async fn what_a_worker_has_just_been_sent_counts_after_a_crash_and_its_answer_is_accepted() {
    let world = World::new().await;
    let mut worker = world.worker(2).await;
    let has = [world.enqueue(json!({})).await, world.enqueue(json!({})).await];
    worker.next_ids(2).await;
    let world = world.crash().await;
    for id in &has {
        assert_eq!(world.job(id).await["worker_id"], json!(worker.id));
    }
    let next = world.enqueue(json!({})).await;
    worker.is_left_alone().await;
    world.succeed(&worker.id, &has[0], Value::Null).await;
    assert_eq!(world.status(&has[0]).await, "done");
    assert_eq!(worker.next_id().await, next);
    worker.is_left_alone().await;
}

/// A server ends between the claim of a job and its assignment.
#[tokio::test]
async fn a_job_that_was_claimed_and_sent_to_nobody_waits_for_no_timeout() {
    let world = World::new().await;
    let id = world.enqueue(json!({"timeout": 3_600, "max_retry": 0})).await;
    let claim = Claim {
        tenant: Tenant::default(),
        queues: vec![Queue::new("jq").unwrap()],
        names: NameMatch::Any,
        priority: None,
        limit: 1,
        wait_ms: 0,
        lease_ms: None,
        worker: Some("jq dispatcher".into()),
    };
    assert_eq!(world.server.engine.claim(claim).await.unwrap().accept().len(), 1);
    let mut worker = world.worker(1).await;
    world.pass(3_000);
    let world = world.crash().await;
    let given = worker.next().await;
    assert_eq!((given.id(), &given.value["attempt"]), (id.as_str(), &json!(1)));
    world.succeed(&worker.id, &id, Value::Null).await;
}

#[tokio::test]
async fn who_had_pinged_is_expected_to_ping_after_a_restart() {
    let world = World::new().await;
    let worker = world.worker(1).await;
    let ping = async |world: &World| {
        world.call_as(Some(&worker.id), "POST", "/worker/ping", &Value::Null).await.status()
    };
    assert_eq!(ping(&world).await, 204);
    let world = world.crash().await;
    assert_eq!(ping(&world).await, 204);
    world.until_served().await;
    world.pass(10_000);
    while !world.server.engine.notes("jq/worker/").await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let world = world.crash().await;
    assert_eq!(ping(&world).await, 404, "forgotten for good");
}

#[tokio::test]
async fn who_drains_gets_nothing_after_a_restart_and_ends_what_it_has() {
    let world = World::new().await;
    let mut worker = world.worker(2).await;
    let has = world.enqueue(json!({})).await;
    worker.next_id().await;
    world.until_written(&has, &worker.id).await;
    let answer = world.call_as(Some(&worker.id), "DELETE", "/worker?drain=true", &Value::Null).await;
    assert_eq!(answer.status(), 204);
    let world = world.crash().await;
    let next = world.enqueue(json!({})).await;
    worker.is_left_alone().await;
    assert_eq!(world.status(&next).await, "queued");
    world.succeed(&worker.id, &has, Value::Null).await;
    while !world.server.engine.notes("jq/worker/").await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn while_the_store_is_away_nothing_is_promised() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let world = World::on(store, Settings::default(), Arc::default()).await;
    let mut worker = world.worker(2).await;
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    let answer = world.call("POST", "/job", &job(json!({}))).await;
    assert_eq!((answer.status(), answer.error().as_str()), (503, "store_unavailable"));
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    assert_eq!(
        world.call("POST", "/job", &job(json!({}))).await.status(),
        503,
        "whether it was kept is not known"
    );
    faults.fail_next_call(Call::Set, 1, Kind::BeforeDoing);
    let body = json!({"name": "w", "max_jobs": 1, "url": worker.url()});
    assert_eq!(world.call("POST", "/worker", &body).await.status(), 503);
    faults.fail_next_call(Call::Claim, 2, Kind::BeforeDoing);
    let id = world.enqueue(json!({})).await;
    loop {
        let given = worker.next_id().await;
        world.succeed(&worker.id, &given, Value::Null).await;
        if given == id {
            break;
        }
    }
    assert_eq!(world.status(&id).await, "done");
}

#[tokio::test]
async fn the_list_of_jobs_shows_what_people_look_for() {
    let world = World::new().await;
    let mut worker = world.worker(1).await;
    let id = world.enqueue(json!({"name": "mail", "priority": 3, "max_retry": 0})).await;
    worker.next_id().await;
    world.fail(&worker.id, &id, true).await;
    world.enqueue(json!({"name": "other"})).await;
    worker.next_id().await;
    world.enqueue(json!({"name": "third"})).await;
    let jobs = world.server.get("/api/v1/jobs?queue=jq").await.json()["jobs"].clone();
    let seen: Vec<Value> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|job| json!([job["name"], job["state"], job["priority"], job["attempts"], job["message"]]))
        .collect();
    let expected = [
        json!(["third", "ready", 0, 0, null]),
        json!(["other", "running", 0, 1, null]),
        json!(["mail", "failed", 3, 1, "no luck"]),
    ];
    assert_eq!(seen, expected);
}
