//! Several engines on one store.

use crate::world::*;
use serde_json::json;
use std::sync::Arc;
use windlass_core::KeepFor;
use windlass_core::limits::Limit;
use windlass_engine::*;
use windlass_store::memory::MemoryStore;

/// Two servers that share a store and a clock.
async fn two() -> (World, World) {
    let store = Arc::new(MemoryStore::shared());
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store.clone(), clock.clone(), Options::default()).await;
    let other = World::with(store, clock, Options::default()).await;
    // The polling tasks have begun their first wait.
    rest().await;
    (one, other)
}

fn at_most(id: &str, max_running: u32) -> Limit {
    Limit::parse(id, &json!({ "matcher": { "name": "a" }, "max_running": max_running })).unwrap()
}

async fn known(world: &World) -> Vec<(String, Option<u32>)> {
    let views = world.engine.limits(&tenant()).await.unwrap();
    views.iter().map(|view| (view.limit.id.to_string(), view.limit.max_running)).collect()
}

#[tokio::test]
async fn a_limit_set_at_one_server_is_known_at_the_other_a_second_later() {
    let (one, other) = two().await;
    one.engine.set_limit(&tenant(), at_most("few", 2)).await.unwrap();
    // Pushed at a server that does not know the limit yet.
    other.push_all((0..4).map(|_| job("a")).collect()).await;
    other.pass(1_000).await;
    assert_eq!(known(&other).await, [("few".to_owned(), Some(2))]);
    let page = other.store.list(windlass_store::Filter::default()).await.unwrap();
    assert!(page.jobs.iter().all(|job| job.spec.limit_keys().len() == 1), "jobs made meanwhile are under it");

    other.engine.set_limit(&tenant(), at_most("few", 3)).await.unwrap();
    one.pass(1_000).await;
    assert_eq!(known(&one).await, [("few".to_owned(), Some(3))], "changed");
    one.engine.remove_limit(&tenant(), "few").await.unwrap();
    other.pass(1_000).await;
    assert_eq!(known(&other).await, [], "removed");
    assert_eq!(other.claim(10).await.len(), 4, "and holds nothing");
}

#[tokio::test]
async fn settings_of_a_queue_set_at_one_server_are_known_at_the_other_a_second_later() {
    let (one, other) = two().await;
    let known = |world: &World| world.engine.queue_settings(&tenant(), &queue("q")).keep.completed;
    for completed in [Some(KeepFor::Ms(5)), Some(KeepFor::Ever), None] {
        let keep = KeepSettings { completed, ..KeepSettings::default() };
        one.engine.set_queue_settings(&tenant(), &queue("q"), QueueSettings { keep }).await.unwrap();
        assert_eq!(known(&one), completed);
        other.pass(1_000).await;
        assert_eq!(known(&other), completed);
    }
}

#[tokio::test]
async fn what_runs_at_another_server_is_counted() {
    let (one, other) = two().await;
    one.engine.set_limit(&tenant(), at_most("few", 9)).await.unwrap();
    one.push_all((0..3).map(|_| job("a")).collect()).await;
    other.pass(1_000).await;
    one.claim(2).await;
    other.claim(1).await;
    for world in [&one, &other] {
        assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 3);
    }
}

#[tokio::test]
async fn who_waits_for_an_end_hears_of_one_at_another_server() {
    let (one, other) = two().await;
    let id = one.push(job("a")).await;
    let claimed = other.claim_one().await;
    let engine = one.engine.clone();
    let waiting = tokio::spawn(async move { engine.wait_settled(&tenant(), id, 60_000).await.unwrap() });
    rest().await;
    other.finish(&claimed).await;
    one.pass(100).await;
    assert!(matches!(waiting.await.unwrap(), Waited::Settled(job) if job.id == id));
}
