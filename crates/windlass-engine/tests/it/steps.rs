//! Steps, waits and signals through the engine; outages that fail no job.

use crate::world::*;
use std::sync::Arc;
use windlass_core::event::Suspend;
use windlass_core::steps::{NewStep, Wait};
use windlass_core::{Job, JobId, Payload, Refused};
use windlass_engine::*;
use windlass_store::faulty::{Call, Kind};

fn step(name: &str, result: &str) -> NewStep {
    NewStep { name: name.into(), result: Some(Payload::json(result)), started_at: None }
}

async fn keep(world: &World, run: &Job, steps: Vec<NewStep>) -> Result<Vec<bool>, VerbError> {
    let kept = world.engine.keep_steps(&tenant(), run.id, holder(run), steps).await.unwrap();
    kept.map(|before| before.iter().map(Option::is_none).collect())
}

fn wait(until: Option<windlass_core::Timestamp>, signal: Option<&str>, children: bool) -> Event {
    let wait =
        Wait { step: Some("wait".into()), signal: signal.map(Into::into), children, ..Wait::default() };
    Event::Suspend(Suspend { by: windlass_core::Holder::Anyone, until, wait: Some(Box::new(wait)) })
}

async fn signal(world: &World, id: JobId, name: &str) -> Result<bool, VerbError> {
    world.engine.signal(&tenant(), id, name.into(), Payload::json("1")).await.unwrap()
}

fn step_names(job: &Arc<Job>) -> Vec<String> {
    let kept = job.steps().map_or(&[][..], |steps| steps.kept());
    kept.iter().map(|step| step.name.to_string()).collect()
}

#[tokio::test]
async fn kept_steps_survive_a_lapsed_lease_and_a_crash_of_the_server() {
    let world = World::new().await;
    world.push(job("order")).await;
    let run = world.claim_one().await;
    assert_eq!(keep(&world, &run, vec![step("a", "1"), step("b", "2")]).await, Ok(vec![true, true]));
    assert_eq!(keep(&world, &run, vec![step("a", "9"), step("c", "3")]).await, Ok(vec![false, true]));
    world.pass(30_000).await;
    let world = world.crash().await;
    let again = world.claim_one().await;
    assert_eq!(step_names(&again), ["a", "b", "c"]);
    assert_eq!(keep(&world, &run, vec![step("d", "4")]).await, Err(VerbError::Refused(Refused::LeaseLost)));
}

#[tokio::test]
async fn a_sleeping_job_wakes_at_its_time_also_after_a_crash_and_holds_no_worker() {
    let world = World::new().await;
    world.push(job("order")).await;
    let run = world.claim_one().await;
    world.settle(&run, wait(Some(world.after(60_000)), None, false)).await.unwrap();
    world.pass(30_000).await;
    let world = world.crash().await;
    world.pass(29_999).await;
    assert!(world.claim(1).await.is_empty());
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    rest().await;
    world.pass(1).await;
    let woken = waiting.await.unwrap().unwrap().accept();
    assert_eq!(step_names(&woken[0]), ["wait"]);
}

#[tokio::test]
async fn a_signal_wakes_a_waiting_claim_once() {
    let world = World::new().await;
    let id = world.push(job("order")).await;
    let run = world.claim_one().await;
    world.settle(&run, wait(None, Some("go"), false)).await.unwrap();
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    rest().await;
    assert_eq!(signal(&world, id, "other").await, Ok(false));
    assert_eq!(signal(&world, id, "go").await, Ok(true));
    assert_eq!(signal(&world, id, "go").await, Ok(false), "the second one is kept for a later wait");
    assert_eq!(step_names(&waiting.await.unwrap().unwrap().accept()[0]), ["wait"]);
    let unknown = JobId::new(99).unwrap();
    assert_eq!(signal(&world, unknown, "go").await, Err(VerbError::NotFound));
}

#[tokio::test]
async fn a_parent_sleeps_until_its_children_are_settled() {
    let world = World::new().await;
    let parent = world.push(job("order")).await;
    let run = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.settle(&run, wait(None, None, true)).await.unwrap();
    let children = world.claim(5).await;
    assert_eq!(children.len(), 2, "they start with the suspension");
    world.finish(&children[0]).await;
    assert!(world.claim(1).await.is_empty());
    world.finish(&children[1]).await;
    assert_eq!(step_names(&world.claim_one().await), ["wait"]);
}

#[tokio::test]
async fn an_outage_of_the_server_fails_no_job() {
    let world = World::new().await;
    let id = world.push(tries(job("a"), 1)).await;
    world.claim_one().await;
    let World { engine, clock, store } = world;
    drop(engine);
    rest().await;
    clock.advance(120_000);
    let world = World::with(store, clock, Options::default()).await;
    world.pass(1).await;
    world.shows(&world.picture().await, "1 ready default/a p0 a0 at 120001");
    world.claim_one().await;
    world.pass(30_000).await;
    assert_eq!(world.job(id).await.unwrap().state().name().as_str(), "failed", "a dead worker does");
}

#[tokio::test]
async fn an_outage_of_the_store_fails_no_job() {
    let (world, faults) = faulty_world().await;
    world.push(tries(job("a"), 1)).await;
    world.claim_one().await;
    faults.fail_next_call(Call::Due, 3, Kind::BeforeDoing);
    for ms in [30_000, 1_000, 1_000, 1_000] {
        world.pass(ms).await;
    }
    assert_eq!(faults.pending(), 0, "the store has failed as often as it was told to");
    let picture = world.picture().await;
    assert!(picture.starts_with("1 ready default/a p0 a0"), "{picture}");
}
