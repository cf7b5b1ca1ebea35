use crate::world::*;
use serde_json::{Value, json};
use windlass_core::limits::Limit;
use windlass_core::{Format, Payload};
use windlass_engine::*;

/// Limit that applies to all jobs unless `value` has a matcher.
fn limit(id: &str, mut value: Value) -> Limit {
    value.as_object_mut().unwrap().entry("matcher").or_insert(json!({"all": []}));
    Limit::parse(id, &value).unwrap()
}

async fn set(world: &World, id: &str, value: Value) {
    world.engine.set_limit(&tenant(), limit(id, value)).await.unwrap();
}

fn about(name: &str, args: Value) -> Push {
    Push { payload: Payload::json(&args.to_string()), ..job(name) }
}

#[tokio::test]
async fn no_more_run_at_once_than_allowed() {
    let world = World::new().await;
    set(&world, "two", json!({"max_running": 2})).await;
    world.push_all((0..5).map(|_| job("a")).collect()).await;
    let running = world.claim(10).await;
    assert_eq!(running.len(), 2);
    assert!(world.claim(10).await.is_empty());
    assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 2);
    world.finish(&running[0]).await;
    assert_eq!(world.claim(10).await.len(), 1);
    world.settle(&running[1], fail("no")).await.unwrap();
    assert_eq!(world.claim(10).await.len(), 1);
    world.pass(30_000).await;
    assert_eq!(
        world.engine.limits(&tenant()).await.unwrap()[0].running,
        0,
        "leases that end free their places"
    );
    assert_eq!(world.claim(10).await.len(), 2);
}

#[tokio::test]
async fn a_waiter_is_woken_when_a_place_becomes_free() {
    let world = World::new().await;
    set(&world, "one", json!({"max_running": 1})).await;
    world.push_all(vec![job("a"), job("b")]).await;
    let first = world.claim_one().await;
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    rest().await;
    assert!(!waiting.is_finished());
    world.finish(&first).await;
    assert_eq!(names(&waiting.await.unwrap().unwrap().accept()), ["b"]);
}

#[tokio::test]
async fn a_rate_lets_a_burst_through_and_then_one_by_one() {
    let world = World::new().await;
    set(&world, "slow", json!({"rate": {"per_second": 1.0, "burst": 2}})).await;
    world.push_all((0..4).map(|_| job("a")).collect()).await;
    assert_eq!(world.claim(10).await.len(), 2);
    let engine = world.engine.clone();
    let waiting =
        tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, limit: 9, ..any() }).await });
    rest().await;
    world.pass(999).await;
    assert!(!waiting.is_finished());
    world.pass(1).await;
    assert_eq!(waiting.await.unwrap().unwrap().accept().len(), 1, "woken by time alone");
    world.pass(1_000).await;
    assert_eq!(world.claim(10).await.len(), 1);
}

#[tokio::test]
async fn groups_do_not_hold_each_other() {
    let world = World::new().await;
    set(&world, "per-user", json!({"max_running": 1, "group_by": [["user"]]})).await;
    let packed = Payload::new(Format::Msgpack, rmp_serde::to_vec_named(&json!({"user": "ann"})).unwrap());
    world
        .push_all(vec![
            about("a1", json!({"user": "ann"})),
            about("a2", json!({"user": "ann"})),
            about("b1", json!({"user": "bob"})),
            Push { payload: packed, ..job("a3") },
        ])
        .await;
    let running = world.claim(10).await;
    assert_eq!(names(&running), ["a1", "b1"], "the same user in another format is the same user");
    world.finish(&running[0]).await;
    assert_eq!(names(&world.claim(10).await), ["a2"]);
}

#[tokio::test]
async fn limits_survive_a_restart_and_count_what_runs() {
    let world = World::new().await;
    set(&world, "two", json!({"max_running": 2})).await;
    world.push_all((0..4).map(|_| job("a")).collect()).await;
    let running = world.claim(1).await;
    let world = world.crash().await;
    let views = world.engine.limits(&tenant()).await.unwrap();
    assert_eq!((views.len(), &*views[0].limit.id, views[0].running), (1, "two", 1));
    assert_eq!(world.claim(10).await.len(), 1, "one place is taken by a job from before");
    world.finish(&running[0]).await;
    assert_eq!(world.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_new_limit_holds_for_what_waits_and_runs_already() {
    let world = World::new().await;
    world.push_all((0..4).map(|_| job("a")).collect()).await;
    let running = world.claim(1).await;
    set(&world, "two", json!({"max_running": 2})).await;
    assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 1);
    assert_eq!(world.claim(10).await.len(), 1);
    world.finish(&running[0]).await;
    assert_eq!(world.claim(10).await.len(), 1);
    set(&world, "two", json!({"max_running": 3})).await;
    assert_eq!(world.claim(10).await.len(), 1, "a raised bound lets more in");
}

#[tokio::test]
async fn a_limit_that_is_removed_holds_nothing() {
    let world = World::new().await;
    set(&world, "one", json!({"max_running": 1})).await;
    world.push_all((0..3).map(|_| job("a")).collect()).await;
    assert_eq!(world.claim(10).await.len(), 1);
    assert!(world.engine.remove_limit(&tenant(), "one").await.unwrap());
    assert!(!world.engine.remove_limit(&tenant(), "one").await.unwrap());
    assert_eq!(world.claim(10).await.len(), 2);
    let world = world.crash().await;
    assert!(world.engine.limits(&tenant()).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_update_moves_a_job_from_one_group_to_another() {
    let world = World::new().await;
    set(&world, "per-user", json!({"max_running": 1, "group_by": [["user"]]})).await;
    world.push_all(vec![about("a1", json!({"user": "ann"})), about("a2", json!({"user": "ann"}))]).await;
    world.claim(1).await;
    assert!(world.claim(1).await.is_empty());
    let payload = Some(Payload::json(r#"{"user":"bob"}"#));
    let patch = windlass_core::event::Patch { payload, ..Default::default() };
    world.apply(windlass_core::JobId::new(2).unwrap(), update(patch)).await.unwrap();
    assert_eq!(names(&world.claim(1).await), ["a2"]);
}

#[tokio::test]
async fn undelivered_jobs_give_their_places_back() {
    let world = World::new().await;
    set(&world, "one", json!({"max_running": 1})).await;
    world.push(job("a")).await;
    for _ in 0..5 {
        let delivery = world.engine.claim(any()).await.unwrap();
        assert_eq!(delivery.jobs.len(), 1);
        drop(delivery);
        rest().await;
    }
    assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 0);
}

#[tokio::test]
async fn a_limit_tells_how_many_wait_under_it_and_how_many_it_holds_back() {
    let world = World::new().await;
    world
        .engine
        .set_limit(&tenant(), limit("two", json!({"matcher": {"name": "a"}, "max_running": 2})))
        .await
        .unwrap();
    world
        .engine
        .set_limit(&tenant(), limit("slow", json!({"matcher": {"queue": "default"}, "max_running": 9})))
        .await
        .unwrap();
    let figures = async || {
        let views = world.engine.limits(&tenant()).await.unwrap();
        views
            .iter()
            .map(|view| (view.limit.id.to_string(), view.running, view.waiting, view.held))
            .collect::<Vec<_>>()
    };
    world.push_all(vec![job("a"), job("a"), job("a"), job("a"), job("b")]).await;
    assert_eq!(figures().await, [("slow".into(), 0, 5, 0), ("two".into(), 0, 4, 0)]);
    let held = world.claim(2).await;
    // No claim was made since the limit was reached; the counts are correct nevertheless.
    assert_eq!(figures().await, [("slow".into(), 2, 3, 0), ("two".into(), 2, 2, 2)]);
    assert_eq!(names(&world.claim(5).await), ["b"]);
    assert_eq!(figures().await, [("slow".into(), 3, 2, 0), ("two".into(), 2, 2, 2)]);
    world.finish(&held[0]).await;
    assert_eq!(figures().await, [("slow".into(), 2, 2, 0), ("two".into(), 1, 2, 0)]);
}
