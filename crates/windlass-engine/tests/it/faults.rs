use crate::world::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::limits::Limit;
use windlass_core::unique::{OnConflict, Unique};
use windlass_core::{Refused, StateName};
use windlass_engine::*;
use windlass_store::faulty::{Call, FaultyStore, Kind};
use windlass_store::memory::MemoryStore;

#[tokio::test]
async fn a_push_that_failed_made_no_job_and_says_so() {
    let (world, faults) = faulty_world().await;
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    let error = world.engine.push(&tenant(), vec![job("a")]).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    world.shows(&world.picture().await, "");
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    let error = world.engine.push(&tenant(), vec![job("b")]).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown");
    assert!(!error.is_retryable(), "trying again might make a second job");
    world.shows(&world.picture().await, "1 ready default/b p0 a0 at 0");
}

fn keyed(mut push: Push, on_conflict: OnConflict) -> Push {
    let unique = Unique { key: "k".into(), on_conflict, held_until: Default::default() };
    push.extras.get_or_insert_default().unique = Some(unique);
    push
}

#[tokio::test]
async fn a_child_that_was_not_made_was_never_counted() {
    let (world, faults) = faulty_world().await;
    let parent = world.push(job("parent")).await;
    world.claim_one().await;
    let holder = world.push(keyed(job("holder"), OnConflict::Return)).await;
    // Only the first commit succeeds; the store is then as after a crash.
    faults.fail_next_call(Call::Commit, 1, Kind::Delay(Duration::ZERO));
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    let child = keyed(child_of(parent, "child", PARENT_WAITS), OnConflict::Return);
    let pushed = world.engine.push(&tenant(), vec![child]).await;
    world.shows(
        &world.picture().await,
        "1 running default/parent p0 a1 until 30000
         2 ready default/holder p0 a0 at 0",
    );
    assert_eq!(pushed.unwrap(), [Pushed::Existing(holder)]);
}

#[tokio::test]
async fn a_child_that_was_not_there_yet_at_the_first_look_is_started_all_the_same() {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::shared()));
    let clock = Arc::new(ManualClock::default());
    let one = World::with(store.clone(), clock.clone(), Options::default()).await;
    let other = World::with(store, clock, Options::default()).await;
    // Its end looks for children even if none is pending.
    let parent = one.push(forgetful(job("parent"))).await;
    let running = one.claim_one().await;
    let beat = Extend { id: parent, by: holder(&running), lease_ms: None };
    one.engine.extend(&tenant(), vec![beat]).await.unwrap();
    // The first server does not notice this: its first commit is based on its lease table and is stale. The
    // list of children may be newer than the jobs that can be loaded.
    let child = other.push(child_of(parent, "child", PARENT_WAITS)).await;
    faults.hide(child);
    one.finish(&running).await;
    assert_eq!(faults.pending(), 0, "the child was looked for");
    one.shows(
        &one.picture().await,
        "1 waiting default/parent p0 a1 children 1
         2 ready default/child p0 a0 at 0 parent 1",
    );
}

#[tokio::test]
async fn a_batch_that_was_made_in_part_does_not_say_that_nothing_happened() {
    for (call, passing) in [(Call::Commit, 1), (Call::Read, 0)] {
        let (world, faults) = faulty_world().await;
        let update = || keyed(job("holder"), OnConflict::Update);
        world.push(update()).await;
        faults.fail_next_call(call, passing, Kind::Delay(Duration::ZERO));
        faults.fail_next_call(call, 1, Kind::BeforeDoing);
        let later = Push { run_at: RunAt::After(500), ..job("fresh") };
        let error = world.engine.push(&tenant(), vec![later, update()]).await.unwrap_err();
        assert_eq!(error.code(), "outcome_unknown", "trouble with {call:?}");
        assert!(!error.is_retryable(), "trying again makes a second job");
        assert!(world.picture().await.contains("default/fresh"), "the new job was made");
    }
}

#[tokio::test]
async fn an_update_that_failed_with_nothing_made_says_that_nothing_happened() {
    let (world, faults) = faulty_world().await;
    let update = |priority| Push { priority, ..keyed(job("holder"), OnConflict::Update) };
    world.push(update(0)).await;
    faults.fail_next_call(Call::Commit, 1, Kind::Delay(Duration::ZERO));
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    let error = world.engine.push(&tenant(), vec![update(5)]).await.unwrap_err();
    assert_eq!(error.code(), "store_unavailable");
    world.shows(&world.picture().await, "1 ready default/holder p0 a0 at 0");
}

#[tokio::test]
async fn a_finish_that_failed_can_be_repeated() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    let claimed = world.claim_one().await;
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    let entry = || vec![settle(claimed.id, holder(&claimed), finish())];
    assert!(world.engine.settle(&tenant(), entry()).await.unwrap_err().is_retryable());
    world.finish(&claimed).await;
    world.shows(&world.picture().await, "1 completed default/a p0 a1");
}

#[tokio::test]
async fn a_finish_of_unknown_outcome_is_found_done_when_it_is_repeated() {
    let (world, faults) = faulty_world().await;
    let id = world.push(job("a")).await;
    let claimed = world.claim_one().await;
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.wait_settled(&tenant(), id, 60_000).await });
    rest().await;
    faults.fail_next_call(Call::Commit, 1, Kind::AfterDoing);
    let entry = settle(id, holder(&claimed), finish());
    let error = world.engine.settle(&tenant(), vec![entry]).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown");
    assert_eq!(world.settle(&claimed, finish()).await, Err(VerbError::Refused(Refused::LeaseLost)));
    world.shows(&world.picture().await, "1 completed default/a p0 a1");
    let waited = waiting.await.unwrap().unwrap();
    assert!(matches!(waited, Waited::Settled(job) if job.state().name() == StateName::Completed));
}

#[tokio::test]
async fn a_claim_of_unknown_outcome_comes_back_with_its_lease() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    faults.fail_next_call(Call::Claim, 1, Kind::AfterDoing);
    assert!(world.engine.claim(any()).await.is_err());
    assert!(world.claim(1).await.is_empty());
    world.pass(30_000).await;
    assert_eq!(names(&world.claim(1).await), ["a"]);
}

#[tokio::test]
async fn places_under_a_limit_do_not_leak_through_faults() {
    let (world, faults) = faulty_world().await;
    let limit = Limit::parse("one", &json!({"matcher": {"all": []}, "max_running": 1})).unwrap();
    world.engine.set_limit(&tenant(), limit).await.unwrap();
    for kind in [Kind::BeforeDoing, Kind::AfterDoing, Kind::BeforeDoing, Kind::AfterDoing] {
        world.push(job("a")).await;
        let claimed = world.claim_one().await;
        faults.fail_next_call(Call::Commit, 1, kind);
        let entry = settle(claimed.id, holder(&claimed), finish());
        assert!(world.engine.settle(&tenant(), vec![entry]).await.is_err());
        // The slot is free after the lease expires, whether or not the commit was written.
        world.pass(30_000).await;
        if let Some(again) = world.claim(1).await.pop() {
            world.finish(&again).await;
        }
        assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 0, "{kind:?}");
    }
    for kind in [Kind::AfterDoing, Kind::BeforeDoing] {
        world.push(job("b")).await;
        faults.fail_next_call(Call::Claim, 1, kind);
        assert!(world.engine.claim(any()).await.is_err());
        world.pass(30_000).await;
        let again = world.claim_one().await;
        world.finish(&again).await;
        assert_eq!(world.engine.limits(&tenant()).await.unwrap()[0].running, 0, "{kind:?}");
    }
}

#[tokio::test]
async fn a_waiting_claim_that_meets_trouble_passes_its_wake_up_on() {
    let (world, faults) = faulty_world().await;
    let waits = || {
        let engine = world.engine.clone();
        tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await })
    };
    let first = waits();
    rest().await;
    let second = waits();
    rest().await;
    faults.fail_next_call(Call::Claim, 1, Kind::BeforeDoing);
    world.push(job("a")).await;
    assert!(first.await.unwrap().is_err());
    assert_eq!(names(&second.await.unwrap().unwrap().accept()), ["a"]);
}

#[tokio::test]
async fn the_scheduler_goes_on_after_trouble() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    world.claim_one().await;
    faults.fail_next_call(Call::Due, 1, Kind::BeforeDoing);
    world.pass(30_000).await;
    assert!(world.picture().await.contains("running"), "the store was not there");
    world.pass(1_000).await;
    world.shows(&world.picture().await, "1 ready default/a p0 a1 at 31000");
    let again = world.claim_one().await;
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    world.pass(30_000).await;
    assert!(world.picture().await.contains("running"));
    world.pass(1_000).await;
    assert!(world.settle(&again, finish()).await.is_err());
    world.shows(&world.picture().await, "1 ready default/a p0 a2 at 62000");
}

#[tokio::test]
async fn a_caller_that_hangs_up_during_a_commit_leaves_nothing_half_done() {
    let (world, faults) = faulty_world().await;
    let limit = Limit::parse("one", &json!({"matcher": {"all": []}, "max_running": 1})).unwrap();
    world.engine.set_limit(&tenant(), limit).await.unwrap();
    world.push_all(vec![job("a"), job("b")]).await;
    let claimed = world.claim_one().await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = world.engine.clone();
    let entry = settle(claimed.id, holder(&claimed), finish());
    let finishing = tokio::spawn(async move { engine.settle(&tenant(), vec![entry]).await });
    faults.until_held(1).await;
    finishing.abort();
    rest().await;
    faults.release();
    rest().await;
    assert!(world.picture().await.starts_with("1 completed"));
    assert_eq!(names(&world.claim(1).await), ["b"], "its place under the limit is free");
}

#[tokio::test]
async fn a_claim_that_hangs_up_while_the_store_works_gives_its_jobs_back() {
    let (world, faults) = faulty_world().await;
    world.push(job("a")).await;
    faults.fail_next_call(Call::Claim, 1, Kind::Hold);
    let engine = world.engine.clone();
    let claiming = tokio::spawn(async move { engine.claim(any()).await.map(Delivery::accept) });
    faults.until_held(1).await;
    claiming.abort();
    rest().await;
    faults.release();
    rest().await;
    world.shows(&world.picture().await, "1 ready default/a p0 a0 at 0");
}

#[tokio::test]
async fn shutdown_waits_for_what_is_on_its_way() {
    let (world, faults) = faulty_world().await;
    faults.fail_next_call(Call::Commit, 1, Kind::Hold);
    let engine = world.engine.clone();
    let pushing = tokio::spawn(async move { engine.push(&tenant(), vec![job("a")]).await });
    faults.until_held(1).await;
    let engine = world.engine.clone();
    let stopping = tokio::spawn(async move { engine.shutdown().await });
    rest().await;
    assert!(!stopping.is_finished());
    faults.release();
    assert!(matches!(pushing.await.unwrap().unwrap()[0], Pushed::New(_)));
    stopping.await.unwrap();
}
