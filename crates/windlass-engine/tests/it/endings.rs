use crate::world::*;
use windlass_core::event::CancelRunning;
use windlass_core::{JobId, Payload, StateName};
use windlass_engine::*;

fn dropped(name: &str) -> Push {
    tries(with_policy(job(name), |policy| policy.keep = keep_nothing()), 1)
}

async fn awaiting(world: &World, id: JobId) -> tokio::task::JoinHandle<Waited> {
    let engine = world.engine.clone();
    let task = tokio::spawn(async move { engine.wait_settled(&tenant(), id, 60_000).await.unwrap() });
    rest().await;
    task
}

fn settled(waited: Waited) -> std::sync::Arc<windlass_core::Job> {
    match waited {
        Waited::Settled(job) => job,
        other => panic!("not settled: {other:?}"),
    }
}

#[tokio::test]
async fn the_end_of_a_job_is_told_to_all_who_wait_for_it() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let (one, two) = (awaiting(&world, id).await, awaiting(&world, id).await);
    let claimed = world.claim_one().await;
    world.settle(&claimed, finish_with("1")).await.unwrap();
    for waiter in [one, two] {
        let job = settled(waiter.await.unwrap());
        assert_eq!(job.state().name(), StateName::Completed);
    }
    let at_once = world.engine.wait_settled(&tenant(), id, 0).await.unwrap();
    assert_eq!(settled(at_once).id, id);
}

#[tokio::test]
async fn the_result_of_a_job_that_is_dropped_at_its_end_reaches_who_waits() {
    let world = World::new().await;
    let id = world.push(dropped("a")).await;
    let waiter = awaiting(&world, id).await;
    let claimed = world.claim_one().await;
    let answer = world.settle(&claimed, finish_with("\"gold\"")).await.unwrap();
    assert_eq!(answer.state, None);
    let job = settled(waiter.await.unwrap());
    assert_eq!(job.state().name(), StateName::Completed);
    assert_eq!(job.spec.policy.keep, keep_nothing(), "its policy is its own");
    let outcome = job.body.as_ref().unwrap().outcome.as_ref().unwrap();
    assert_eq!(outcome.result, Some(Payload::json("\"gold\"")));
    world.shows(&world.picture().await, "");
    assert!(matches!(world.engine.wait_settled(&tenant(), id, 0).await.unwrap(), Waited::Unknown));
}

#[tokio::test]
async fn failures_lapses_and_cancels_of_dropped_jobs_are_told_too() {
    let world = World::new().await;
    let mut waiting = Vec::new();
    for name in ["failed", "lapsed", "cancelled"] {
        let id = world.push(dropped(name)).await;
        waiting.push(awaiting(&world, id).await);
    }
    let claimed = world.claim(2).await;
    world.settle(&claimed[0], fail("no")).await.unwrap();
    world.pass(30_000).await;
    let last = JobId::new(3).unwrap();
    world.apply(last, Event::Cancel { running: CancelRunning::Now, failed_too: false }).await.unwrap();
    let mut states = Vec::new();
    for waiter in waiting {
        states.push(settled(waiter.await.unwrap()).state().name());
    }
    assert_eq!(states, [StateName::Failed, StateName::Failed, StateName::Cancelled]);
}

#[tokio::test]
async fn waiting_for_an_end_ends_with_patience_or_deletion() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let waiter = awaiting(&world, id).await;
    world.pass(60_000).await;
    assert!(matches!(waiter.await.unwrap(), Waited::NotYet(job) if job.id == id));
    let waiter = awaiting(&world, id).await;
    world.apply(id, Event::Delete).await.unwrap();
    assert!(matches!(waiter.await.unwrap(), Waited::Unknown));
}

#[tokio::test]
async fn at_the_end_waiting_claims_come_back_empty_and_new_calls_are_refused() {
    let world = World::new().await;
    let id = world.push(Push { run_at: RunAt::After(5), ..job("a") }).await;
    let engine = world.engine.clone();
    let claiming = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    let engine = world.engine.clone();
    let ending = tokio::spawn(async move { engine.wait_settled(&tenant(), id, 60_000).await });
    rest().await;
    world.engine.shutdown().await;
    assert!(claiming.await.unwrap().unwrap().accept().is_empty());
    assert!(matches!(ending.await.unwrap(), Err(EngineError::ShuttingDown)));
    let error = world.engine.push(&tenant(), vec![job("b")]).await.unwrap_err();
    assert_eq!(error.code(), "shutting_down");
    assert!(world.engine.claim(any()).await.is_err());
    assert!(world.engine.health().await.is_err());
    world.pass(10).await;
    world.engine.shutdown().await;
}

/// Queries in flight during a shutdown must not fall asleep after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_sleeps_on_when_the_door_closes() {
    for _ in 0..200 {
        let world = World::new().await;
        let waiting: Vec<_> = (0..16)
            .map(|_| {
                let engine = world.engine.clone();
                tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await })
            })
            .collect();
        tokio::task::yield_now().await;
        world.engine.shutdown().await;
        for claim in waiting {
            if let Ok(delivery) = claim.await.unwrap() {
                assert!(delivery.accept().is_empty());
            }
        }
    }
}
