//! Races: results that arrive out of order, and outdated entries of the lease table.

use crate::world::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::family::FamilyRule;
use windlass_core::limits::Limit;
use windlass_core::{Extras, Job, JobId, StateName};
use windlass_engine::*;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

fn limit(id: &str, mut value: Value) -> Limit {
    value.as_object_mut().unwrap().entry("matcher").or_insert(json!({"all": []}));
    Limit::parse(id, &value).unwrap()
}

async fn running_under_limits(world: &World) -> u64 {
    world.engine.limits(&tenant()).await.unwrap()[0].running
}

fn tagged(tag: &str) -> Event {
    let extras = Extras { tags: vec![tag.into()], ..Extras::default() };
    update(Patch { extras: Some(Box::new(extras)), ..Patch::default() })
}

async fn tags(world: &World, id: JobId) -> Vec<String> {
    let job = world.job(id).await.expect("it is there");
    let extras = job.spec.extras.as_deref();
    extras.map(|extras| extras.tags.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

#[tokio::test]
async fn who_asks_what_is_due_and_goes_away_takes_nothing_along() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    world.claim_one().await;
    rest().await;
    faults.fail_next_call(Call::Due, 1, Kind::Hold);
    // No other task queries the store before this call: tests run on one thread.
    world.clock.advance(30_000);
    let asked = tokio::time::timeout(Duration::ZERO, world.engine.catch_up()).await;
    assert!(asked.is_err(), "it was held up");
    faults.until_held(1).await;
    faults.release();
    rest().await;
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 30000");
}

#[tokio::test]
async fn who_asks_what_is_due_and_hears_of_trouble_leaves_it_to_the_scheduler() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    world.claim_one().await;
    rest().await;
    faults.fail_next_call(Call::Due, 1, Kind::BeforeDoing);
    world.clock.advance(30_000);
    assert!(world.engine.catch_up().await.is_err());
    world.pass(1_000).await;
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 31000");
}

/// Claims a job; the reply arrives only after the job was cancelled in this way.
async fn cancelled_before_its_claim_is_answered(running: CancelRunning) -> (World, Arc<Job>) {
    let (world, faults) = faulty_world().await;
    let id = world.push(job("a")).await;
    faults.fail_next_call(Call::Claim, 1, Kind::HoldAnswer);
    let engine = world.engine.clone();
    let claiming = tokio::spawn(async move { engine.claim(any()).await.unwrap().accept() });
    faults.until_held(1).await;
    world.apply(id, Event::Cancel { running, failed_too: false }).await.unwrap();
    faults.release();
    let mut claimed = claiming.await.unwrap();
    assert_eq!(claimed.len(), 1, "what has become of it is told by the next report");
    (world, claimed.remove(0))
}

#[tokio::test]
async fn a_job_that_is_taken_back_before_its_claim_is_answered_is_not_held() {
    let (world, claimed) = cancelled_before_its_claim_is_answered(CancelRunning::Now).await;
    assert_eq!(world.engine.leases_held(), 0);
    assert_eq!(world.engine.running(&tenant(), claimed.id), None);
    let (tell, _told) = tokio::sync::mpsc::unbounded_channel();
    assert!(!world.engine.watch_lease(&claimed, &tell), "nobody would tell of its end any more");
}

#[tokio::test]
async fn a_claim_that_is_answered_late_does_not_undo_what_was_asked_of_its_run() {
    let (world, claimed) = cancelled_before_its_claim_is_answered(CancelRunning::Ask).await;
    // The lease table may have no entry, but no outdated one.
    let asked = |job: &Arc<Job>| job.state().lease().unwrap().cancel_asked;
    assert!(world.engine.running(&tenant(), claimed.id).is_none_or(|job| asked(&job)));
    let beat = Extend { id: claimed.id, by: holder(&claimed), lease_ms: None };
    let beaten = world.engine.extend(&tenant(), vec![beat]).await.unwrap().remove(0).unwrap();
    assert!(beaten.cancel_asked);
}

#[tokio::test]
async fn a_run_that_ends_while_it_comes_under_a_limit_does_not_count_for_ever() {
    for others in [0, 1] {
        let (world, faults) = faulty_world().await;
        let id = world.push(job("a")).await;
        let running = world.claim_one().await;
        for _ in 0..others {
            world.push(job("a")).await;
            world.claim_one().await;
        }
        // The job is under the limit, but the caller that set it has no reply yet when the run ends.
        faults.fail_next_call(Call::Commit, 1, Kind::HoldAnswer);
        let engine = world.engine.clone();
        let setting = tokio::spawn(async move {
            engine.set_limit(&tenant(), limit("two", json!({"max_running": 2}))).await.unwrap();
        });
        faults.until_held(1).await;
        world.finish(&running).await;
        faults.release();
        setting.await.unwrap();
        assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Completed);
        assert_eq!(running_under_limits(&world).await, others);
        world.push_all((0..5).map(|_| job("a")).collect()).await;
        assert_eq!(world.claim(5).await.len() as u64, 2 - others, "as many as the limit has room for");
    }
}

#[tokio::test]
async fn a_place_under_a_limit_becomes_free_once_however_often_the_end_is_told() {
    let (world, faults) = faulty_world().await;
    world.engine.set_limit(&tenant(), limit("one", json!({"max_running": 1}))).await.unwrap();
    world.push_all(vec![job("a"), job("b"), job("c")]).await;
    let running = world.claim_one().await;
    // Nothing is written, but the outcome is unknown, and the store does not respond for a while.
    faults.fail_next_call(Call::Commit, 1, Kind::Lost);
    faults.fail_next_call(Call::Read, 1, Kind::BeforeDoing);
    let settle = settle(running.id, holder(&running), finish());
    let error = world.engine.settle(&tenant(), vec![settle]).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown");
    rest().await;
    assert_eq!(faults.pending(), 0, "the store was asked what became of it");
    world.finish(&running).await;
    assert_eq!(world.claim(5).await.len(), 1);
    world.pass(1_000).await;
    assert_eq!(running_under_limits(&world).await, 1);
    assert!(world.claim(5).await.is_empty(), "one runs");
}

#[tokio::test]
async fn a_new_limit_takes_back_nothing_that_others_have_just_written() {
    let (world, faults) = faulty_world().await;
    let id = world.push(job("a")).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = world.engine.clone();
    let setting = tokio::spawn(async move {
        engine.set_limit(&tenant(), limit("one", json!({"max_running": 1}))).await.unwrap();
    });
    faults.until_held(1).await;
    world.apply(id, tagged("urgent")).await.unwrap();
    faults.release();
    setting.await.unwrap();
    assert_eq!(tags(&world, id).await, ["urgent"]);
    assert_eq!(world.job(id).await.unwrap().spec.limit_keys().len(), 1);
}

#[tokio::test]
async fn an_update_under_limits_takes_back_nothing_that_others_have_just_written() {
    let (world, faults) = faulty_world().await;
    let by_user = json!({"max_running": 1, "group_by": [["user"]]});
    world.engine.set_limit(&tenant(), limit("per-user", by_user)).await.unwrap();
    let id = world.push(job("a")).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = world.engine.clone();
    let updating = tokio::spawn(async move {
        let payload = Some(windlass_core::Payload::json(r#"{"user":"bob"}"#));
        let update = update(Patch { payload, ..Patch::default() });
        engine.apply(&tenant(), vec![id], update).await.unwrap().remove(0).unwrap();
    });
    faults.until_held(1).await;
    world.apply(id, tagged("urgent")).await.unwrap();
    faults.release();
    updating.await.unwrap();
    assert_eq!(tags(&world, id).await, ["urgent"]);
    let keys = world.job(id).await.unwrap().spec.limit_keys().to_vec();
    assert!(keys.len() == 1 && keys[0].contains("bob"), "{keys:?}");
}

#[tokio::test]
async fn an_update_that_is_under_way_when_a_limit_is_set_comes_under_it() {
    let (world, faults) = faulty_world().await;
    let id = world.push(job("a")).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = world.engine.clone();
    let updating = tokio::spawn(async move {
        let update = update(Patch { queue: Some(queue("slow")), ..Patch::default() });
        engine.apply(&tenant(), vec![id], update).await.unwrap().remove(0).unwrap();
    });
    faults.until_held(1).await;
    let slow = limit("slow", json!({"matcher": {"queue": "slow"}, "max_running": 1}));
    world.engine.set_limit(&tenant(), slow).await.unwrap();
    faults.release();
    updating.await.unwrap();
    assert_eq!(world.job(id).await.unwrap().spec.limit_keys().len(), 1);
}

#[tokio::test]
async fn a_job_that_is_started_over_is_under_the_limits_of_today() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let running = world.claim_one().await;
    world.finish(&running).await;
    world.engine.set_limit(&tenant(), limit("one", json!({"max_running": 1}))).await.unwrap();
    world.push(job("a")).await;
    assert_eq!(world.claim(5).await.len(), 1);
    world.apply(id, Event::Requeue { at: world.after(0), even_running: false }).await.unwrap();
    assert!(world.claim(5).await.is_empty(), "the other one runs");
}

#[tokio::test]
async fn a_parent_that_came_back_while_its_child_finished_runs_after_it() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::shared()));
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store.clone(), clock.clone(), Options::default()).await;
    let other = World::with(store, clock, Options::default()).await;
    rest().await;
    let parent = one.push(tries(job("parent"), 1)).await;
    let run = one.claim_one().await;
    one.settle(&run, fail("no luck")).await.unwrap();
    let child = one.push(child_of(parent, "child", FamilyRule::ParentRunsAfter)).await;
    let running = one.claim_one().await;
    // The first commit is based on a failed parent, which is not run again, and on a child that has changed
    // meanwhile.
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = one.engine.clone();
    let settle = settle(child, holder(&running), finish());
    let finishing = tokio::spawn(async move { engine.settle(&tenant(), vec![settle]).await });
    faults.until_held(1).await;
    let beat = Extend { id: child, by: holder(&running), lease_ms: None };
    other.engine.extend(&tenant(), vec![beat]).await.unwrap().remove(0).unwrap();
    other.apply(parent, Event::Requeue { at: other.after(0), even_running: false }).await.unwrap();
    let again = other.claim_one().await;
    other.finish(&again).await;
    faults.release();
    finishing.await.unwrap().unwrap().remove(0).unwrap();
    one.shows(
        &one.picture().await,
        "1 ready default/parent p0 a0 at 0
         2 completed default/child p0 a1 parent 1",
    );
}

#[tokio::test]
async fn a_child_whose_parent_others_change_again_and_again_is_not_pushed() {
    let inner = Arc::new(MemoryStore::shared());
    let (store, faults) = FaultyStore::new(inner.clone());
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store, clock.clone(), Options::default()).await;
    let other = World::with(inner, clock, Options::default()).await;
    let parent = one.push(job("parent")).await;
    one.claim_one().await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = one.engine.clone();
    let child = child_of(parent, "child", PARENT_WAITS);
    let pushing = tokio::spawn(async move { engine.push(&tenant(), vec![child]).await });
    let overtaking = async {
        for _ in 0..1_000 {
            faults.until_held(1).await;
            other.apply(parent, tagged("changed")).await.unwrap();
            faults.fail_next_call(Call::Commit, 1, Kind::Hold);
            faults.release();
        }
    };
    let pushed = tokio::select! {
        pushed = pushing => pushed.unwrap(),
        () = overtaking => panic!("the push does not stop"),
    };
    assert!(matches!(pushed, Err(EngineError::Contended)), "{pushed:?}");
    assert_eq!(one.engine.children(&tenant(), parent).await.unwrap().len(), 0);
    faults.clear();
}

#[tokio::test]
async fn many_settled_children_are_forgotten_also_if_another_end_of_the_batch_has_to_be_tried_again() {
    const CHILDREN: usize = 1_003;
    let store = Arc::new(MemoryStore::shared());
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store.clone(), clock.clone(), Options::default()).await;
    let other = World::with(store, clock, Options::default()).await;
    let parent = one.push(forgetful(job("parent"))).await;
    let running = one.claim_one().await;
    one.push_all((0..CHILDREN).map(|_| child_of(parent, "child", PARENT_WAITS)).collect()).await;
    one.finish(&running).await;
    let children = one.claim(CHILDREN).await;
    one.settle_all(children.iter().map(|child| (&**child, finish())).collect()).await;
    let last_run = one.claim_one().await;
    one.push(job("stranger")).await;
    let stranger = one.claim_one().await;
    // The first server does not notice this, so its first commit for the stranger is stale.
    let beat = Extend { id: stranger.id, by: holder(&stranger), lease_ms: None };
    other.engine.extend(&tenant(), vec![beat]).await.unwrap().remove(0).unwrap();
    let ended = one.settle_all(vec![(&last_run, finish()), (&stranger, finish())]).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(one.store.children(parent).await.unwrap(), []);
}
