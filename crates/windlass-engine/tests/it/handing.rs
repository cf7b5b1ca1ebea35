//! Claimed jobs: renewed leases, returned runs, results that are delivered once.

use crate::world::*;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use windlass_core::event::CancelRunning;
use windlass_core::limits::Limit;
use windlass_core::{Job, JobId, KeepFor, ResultPolicy, StateName};
use windlass_engine::*;

async fn renew(world: &World, job: &Job, lease_ms: i64) -> Result<Extended, VerbError> {
    let entry =
        Renew { id: job.id, by: holder(job), lease_ms: Some(lease_ms), worker: Some("the other".into()) };
    world.engine.renew(&tenant(), vec![entry]).await.unwrap().remove(0)
}

async fn worker_of(world: &World, id: JobId) -> Option<String> {
    world.job(id).await?.state().lease()?.worker.as_deref().map(str::to_owned)
}

#[tokio::test]
async fn a_renewed_lease_ends_when_it_says_even_if_that_is_sooner() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let claimed = world.claim_one().await;
    world.pass(100).await;
    renew(&world, &claimed, 1_000).await.unwrap();
    assert_eq!(worker_of(&world, id).await.as_deref(), Some("the other"));
    world.pass(999).await;
    assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Running);
    world.pass(1).await;
    assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Ready);
    assert!(renew(&world, &claimed, 1_000).await.is_err());
}

#[tokio::test]
async fn a_lease_that_is_renewed_for_no_time_is_over() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let claimed = world.claim_one().await;
    renew(&world, &claimed, 0).await.unwrap();
    world.engine.catch_up().await.unwrap();
    assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Ready);
}

#[tokio::test]
async fn a_returned_job_is_next_again_and_has_used_up_nothing() {
    let world = World::new().await;
    let limit = json!({"matcher": {"all": []}, "rate": {"per_second": 0.001, "burst": 1}});
    world.engine.set_limit(&tenant(), Limit::parse("slow", &limit).unwrap()).await.unwrap();
    let first = world.push(job("first")).await;
    world.pass(5).await;
    let second = world.push(job("second")).await;
    for _ in 0..3 {
        let claimed = world.claim_one().await;
        assert_eq!((claimed.id, claimed.progress.attempts), (first, 1));
        assert_eq!(
            world.engine.held_by(&world.job(second).await.unwrap()).await.unwrap().unwrap().limit,
            "slow".into()
        );
        world.pass(5).await;
        world.settle(&claimed, RETURN).await.unwrap();
        assert_eq!(world.engine.held_by(&world.job(second).await.unwrap()).await.unwrap(), None);
    }
    let claimed = world.claim_one().await;
    world.finish(&claimed).await;
    assert!(world.claim(1).await.is_empty(), "what ended has used up its token");
}

#[tokio::test]
async fn a_result_that_is_handed_out_once_goes_to_one_of_all_who_ask() {
    let world = World::new().await;
    let once = |policy: &mut windlass_core::Policy| {
        policy.result = ResultPolicy { keep: KeepFor::Ever, once: true };
    };
    let id = world.push(with_policy(job("a"), once)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, finish_with("42")).await.unwrap();
    let whose = tenant();
    let ask = || world.engine.take_result(&whose, id);
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    let got = [one, two, three].map(|job| job.unwrap().unwrap().result().is_some());
    assert_eq!(got.iter().filter(|got| **got).count(), 1);
    assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Completed);
    assert!(world.engine.take_result(&tenant(), JobId::new(99).unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_result_that_may_be_read_often_is_not_taken() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, finish_with("42")).await.unwrap();
    for _ in 0..2 {
        assert!(world.engine.take_result(&tenant(), id).await.unwrap().unwrap().result().is_some());
    }
}

#[tokio::test]
async fn a_result_goes_when_its_time_is_over_and_the_job_stays() {
    let world = World::new().await;
    let brief = |policy: &mut windlass_core::Policy| {
        policy.result = ResultPolicy { keep: KeepFor::Ms(500), once: true };
    };
    let id = world.push(with_policy(job("a"), brief)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, finish_with("42")).await.unwrap();
    world.pass(499).await;
    assert!(world.job(id).await.unwrap().result().is_some());
    world.pass(1).await;
    assert!(world.job(id).await.unwrap().result().is_none(), "by time alone");
    assert!(world.engine.take_result(&tenant(), id).await.unwrap().unwrap().result().is_none());
}

#[tokio::test]
async fn whoever_watches_a_lease_hears_of_every_way_it_can_end() {
    let world = World::new().await;
    let (tell, mut told) = unbounded_channel();
    // `None`: cancelled.
    let ends = [Some(finish()), Some(fail("no")), Some(RETURN), None];
    for end in ends {
        world.push(tries(job("a"), 1)).await;
        let claimed = world.claim_one().await;
        assert!(world.engine.watch_lease(&claimed, &tell));
        renew(&world, &claimed, 60_000).await.unwrap();
        assert!(told.try_recv().is_err(), "a renewal is no end");
        match end {
            Some(how) => drop(world.settle(&claimed, how).await.unwrap()),
            None => {
                let now = Event::Cancel { running: CancelRunning::Now, failed_too: false };
                world.apply(claimed.id, now).await.unwrap();
            }
        }
        let token = claimed.state().lease().unwrap().token;
        assert_eq!(told.try_recv(), Ok(LeaseEnd { id: claimed.id, token }));
        assert!(!world.engine.watch_lease(&claimed, &tell), "who comes too late is told so");
        let cancel = Event::Cancel { running: CancelRunning::Now, failed_too: true };
        let _ = world.apply(claimed.id, cancel).await;
    }
    world.push(tries(job("lapses"), 1)).await;
    let claimed = world.claim_one().await;
    assert!(world.engine.watch_lease(&claimed, &tell));
    world.pass(30_000).await;
    assert_eq!(told.try_recv().unwrap().id, claimed.id);
}

#[tokio::test]
async fn notes_are_kept_over_a_restart() {
    let world = World::new().await;
    world.engine.put_note("w/1", Some(b"one".to_vec())).await.unwrap();
    world.engine.put_note("w/2", Some(b"two".to_vec())).await.unwrap();
    world.engine.put_note("w/1", None).await.unwrap();
    let world = world.crash().await;
    assert_eq!(world.engine.notes("w/").await.unwrap(), [("w/2".to_owned(), b"two".to_vec())]);
    assert!(world.engine.notes("v/").await.unwrap().is_empty());
}

/// A server that is starting hands out no jobs before it can accept reports.
#[tokio::test]
async fn claims_that_are_held_find_nothing_until_they_are_released() {
    let world = World::new().await;
    world.engine.hold_claims();
    let id = world.push(job("a")).await;
    for wait_ms in [0, 60_000] {
        let (engine, claim) = (world.engine.clone(), Claim { wait_ms, ..any() });
        let mut claiming = tokio::spawn(async move { engine.claim(claim).await.unwrap().accept() });
        rest().await;
        assert!(!claiming.is_finished());
        assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Ready);
        world.engine.release_claims();
        let claimed = (&mut claiming).await.unwrap();
        assert_eq!(claimed[0].id, id);
        world.settle(&claimed[0], RETURN).await.unwrap();
        world.engine.hold_claims();
    }
    let engine = world.engine.clone();
    let claiming = tokio::spawn(async move { engine.claim(any()).await });
    rest().await;
    world.engine.shutdown().await;
    assert!(
        !matches!(claiming.await.unwrap(), Ok(delivery) if !delivery.jobs.is_empty()),
        "a stop ends the wait"
    );
}

#[tokio::test]
async fn a_note_is_swapped_only_if_it_is_as_expected() {
    let world = World::new().await;
    let swap = async |before: Option<&str>, to: &str| {
        let before = before.map(|before| before.as_bytes().to_vec());
        world.engine.swap_note("key", before, to.as_bytes().to_vec()).await.unwrap()
    };
    world.engine.put_note("key of another", Some(b"x".to_vec())).await.unwrap();
    assert!(!swap(Some("a"), "b").await, "it is not there");
    assert!(swap(None, "a").await);
    assert!(!swap(None, "b").await);
    assert!(swap(Some("a"), "b").await);
    assert!(!swap(Some("a"), "c").await);
    assert_eq!(world.engine.notes("key").await.unwrap()[0].1, b"b");
}
