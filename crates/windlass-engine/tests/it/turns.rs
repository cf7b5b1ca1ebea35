//! Turns of repeating jobs: counted, told to the feed, and skipped if they come too late.

use crate::world::*;
use serde_json::json;
use windlass_core::limits::Limit;
use windlass_core::repeat::Repeat;
use windlass_core::turn::{CatchUp, TurnOutcome};
use windlass_engine::*;

fn every(rule: &str, name: &str, catch_up: CatchUp) -> Push {
    with_policy(tries(job(name), 1), |policy| {
        policy.repeat = Some(Repeat::parse(rule).unwrap());
        policy.repeat_after_failure = true;
        policy.catch_up = catch_up;
    })
}

fn counts(world: &World) -> [u64; 4] {
    TurnOutcome::ALL.map(|outcome| world.engine.meters().turns.of(outcome).get())
}

#[tokio::test]
async fn turns_are_counted_by_outcome_and_failures_are_told() {
    let world = World::new().await;
    let mut feed = world.engine.events();
    let id = world.push(every("every 10s", "a", CatchUp::One)).await;
    for end in [finish(), fail("no"), fail_for_good()] {
        let running = world.claim_one().await;
        world.settle(&running, end).await.unwrap();
        world.pass(10_000).await;
    }
    let running = world.claim_one().await;
    world.engine.apply(&tenant(), vec![id], cancel_now()).await.unwrap();
    drop(running);
    assert_eq!(counts(&world), [1, 2, 1, 0]);
    let mut kinds = Vec::new();
    while let Ok(event) = feed.try_recv() {
        kinds.push(event.kind.as_str());
    }
    let told: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "claimed").collect();
    assert_eq!(told, ["pushed", "repeating", "turn_failed", "turn_failed", "cancelled"]);
}

fn cancel_now() -> Event {
    Event::Cancel { running: windlass_core::event::CancelRunning::Now, failed_too: false }
}

#[tokio::test]
async fn a_claim_skips_turns_that_come_too_late_and_goes_on_to_the_next_job() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.push(every("every 10s", name, CatchUp::None)).await;
    }
    world.push(every("every 10s", "late", CatchUp::One)).await;
    world.pass(25_000).await;
    assert_eq!(names(&world.claim(1).await), ["late"]);
    assert!(world.claim(9).await.is_empty());
    assert_eq!(counts(&world), [0, 0, 0, 3]);
    world.shows(
        &world.picture().await,
        "1 ready default/a p0 a0 at 30000
         2 ready default/b p0 a0 at 30000
         3 ready default/c p0 a0 at 30000
         4 running default/late p0 a1 until 55000",
    );
    world.pass(5_000).await;
    assert_eq!(names(&world.claim(9).await), ["a", "b", "c"], "in time");
    assert_eq!(world.engine.leases_held(), 4);
}

#[tokio::test]
async fn a_worker_that_waits_gets_the_next_turn_after_one_that_came_too_late() {
    let world = World::new().await;
    world.push(every("every 10s", "a", CatchUp::None)).await;
    world.pass(12_000).await;
    let engine = world.engine.clone();
    let waiting =
        tokio::spawn(
            async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await.map(Delivery::accept) },
        );
    rest().await;
    assert!(!waiting.is_finished());
    world.pass(8_000).await;
    let jobs = waiting.await.unwrap().unwrap();
    assert_eq!((names(&jobs), jobs[0].progress.due_at), (vec!["a"], world.engine.now()));
}

#[tokio::test]
async fn a_skipped_turn_takes_nothing_of_a_limit() {
    let world = World::new().await;
    let limit = json!({"max_running": 1, "matcher": {"all": []}});
    world.engine.set_limit(&tenant(), Limit::parse("one", &limit).unwrap()).await.unwrap();
    world.push(every("every 10s", "a", CatchUp::None)).await;
    world.push(every("every 10s", "b", CatchUp::None)).await;
    world.pass(15_000).await;
    assert!(world.claim(9).await.is_empty());
    world.pass(5_000).await;
    assert_eq!(names(&world.claim(9).await), ["a"], "one at a time");
}
