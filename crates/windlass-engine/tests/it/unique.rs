use crate::world::*;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{JobId, Payload, Refused, StateName, Tenant, Timestamp};
use windlass_engine::*;
use windlass_store::faulty::{Call, Kind};

fn unique(name: &str, key: &str, on_conflict: OnConflict, held_until: HeldUntil) -> Push {
    let mut push = job(name);
    push.extras.get_or_insert_default().unique = Some(Unique { key: key.into(), on_conflict, held_until });
    push
}

#[tokio::test]
async fn a_second_push_with_the_same_key_returns_the_first() {
    let world = World::new().await;
    let push = || unique("a", "k", OnConflict::Return, HeldUntil::Settled);
    let pushed = world.push_all(vec![push(), push(), job("b")]).await;
    let (first, b) = (pushed[0].id().unwrap(), pushed[2].id().unwrap());
    assert_eq!(pushed, [Pushed::New(first), Pushed::Existing(first), Pushed::New(b)]);
    assert_eq!(world.push_all(vec![push()]).await, [Pushed::Existing(first)]);
    let claimed = world.claim_one().await;
    assert_eq!(world.push_all(vec![push()]).await, [Pushed::Existing(first)], "held while it runs");
    world.finish(&claimed).await;
    assert!(matches!(world.push_all(vec![push()]).await[0], Pushed::New(_)), "free when it is settled");
}

#[tokio::test]
async fn a_second_push_is_refused_where_asked() {
    let world = World::new().await;
    let push = || unique("a", "k", OnConflict::Refuse, HeldUntil::Settled);
    let first = world.push(push()).await;
    let refused = world.push_all(vec![push()]).await[0];
    assert_eq!(refused, Pushed::Refused(PushRefused::Duplicate(first)));
    assert_eq!(PushRefused::Duplicate(first).code(), "duplicate");
    let elsewhere = world.engine.push(&Tenant::new("other").unwrap(), vec![push()]).await.unwrap();
    assert!(matches!(elsewhere[0], Pushed::New(_)), "keys are a tenant's own");
}

#[tokio::test]
async fn a_second_push_updates_the_first_where_asked() {
    let world = World::new().await;
    let push = |text: &str, priority| Push {
        payload: Payload::json(text),
        priority,
        ..unique("a", "k", OnConflict::Update, HeldUntil::Settled)
    };
    let first = world.push(push("1", 0)).await;
    assert_eq!(world.push_all(vec![push("2", -7)]).await, [Pushed::Existing(first)]);
    let job = world.job(first).await.unwrap();
    assert_eq!((&job.spec.payload, job.spec.priority), (&Payload::json("2"), -7));
    world.shows(&world.picture().await, "1 ready default/a p-7 a0 at 0");
}

#[tokio::test]
async fn a_key_held_until_started_lets_the_next_in_during_the_run() {
    let world = World::new().await;
    let push = || unique("a", "k", OnConflict::Return, HeldUntil::Started);
    world.push(push()).await;
    let claimed = world.claim_one().await;
    let second = world.push_all(vec![push()]).await[0];
    assert!(matches!(second, Pushed::New(_)));
    world.finish(&claimed).await;
    assert_eq!(world.push_all(vec![push()]).await[0], Pushed::Existing(second.id().unwrap()));
}

#[tokio::test]
async fn an_alias_finds_its_job_and_makes_no_second() {
    let world = World::new().await;
    let named = || {
        let mut push = job("a");
        push.extras.get_or_insert_default().alias = Some("uuid".into());
        push
    };
    let id = world.push(named()).await;
    assert_eq!(world.push_all(vec![named()]).await, [Pushed::Existing(id)]);
    assert_eq!(world.engine.find_alias(&tenant(), "uuid").await.unwrap(), Some(id));
    let other = Tenant::new("other").unwrap();
    assert_eq!(world.engine.find_alias(&other, "uuid").await.unwrap(), None);
}

#[tokio::test]
async fn of_many_pushes_at_once_one_makes_the_job() {
    let world = Arc::new(World::new().await);
    let pushing: Vec<_> = (0..50)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                world.push_all(vec![unique("a", "k", OnConflict::Return, HeldUntil::Settled)]).await[0]
            })
        })
        .collect();
    let mut new = 0;
    for push in pushing {
        new += usize::from(matches!(push.await.unwrap(), Pushed::New(_)));
    }
    assert_eq!(new, 1);
}

fn retry() -> Event {
    Event::Requeue { at: Timestamp::from_millis(START_MS), even_running: false }
}

/// Creates a settled job and an unsettled one with the same key.
async fn settled_and_living(world: &World, held_until: HeldUntil) -> (JobId, JobId) {
    let push = || unique("a", "k", OnConflict::Return, held_until);
    let first = world.push(push()).await;
    let claimed = world.claim_one().await;
    world.finish(&claimed).await;
    (first, world.push(push()).await)
}

#[tokio::test]
async fn a_settled_job_is_not_started_over_while_another_holds_its_key() {
    for action in [retry(), Event::Run { at: Timestamp::from_millis(START_MS), force: true }] {
        let world = World::new().await;
        let (first, second) = settled_and_living(&world, HeldUntil::Settled).await;
        let refused = world.apply(first, action.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "key_taken", "{refused}");
        assert!(refused.to_string().contains(&format!("job {second} ")), "{refused}");
        world.shows(
            &world.picture().await,
            "1 completed default/a p0 a1
             2 ready default/a p0 a0 at 0",
        );
        let claimed = world.claim_one().await;
        world.finish(&claimed).await;
        assert!(world.apply(first, action).await.is_ok(), "the key is free");
    }
}

#[tokio::test]
async fn each_job_that_is_started_over_is_answered_by_itself() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    let with_key = |name: &str, key: &str| {
        let mut push = child_of(parent, name, PARENT_WAITS);
        push.extras.get_or_insert_default().unique =
            unique(name, key, OnConflict::Return, HeldUntil::Settled).extras.unwrap().unique;
        push
    };
    let children = world.push_all(vec![with_key("a", "taken"), with_key("b", "free")]).await;
    let ids: Vec<JobId> = children.iter().filter_map(|pushed| pushed.id()).collect();
    for id in &ids {
        let cancel = Event::Cancel { running: windlass_core::event::CancelRunning::Now, failed_too: false };
        world.apply(*id, cancel).await.unwrap();
    }
    let other = world.push(unique("other", "taken", OnConflict::Return, HeldUntil::Settled)).await;
    // Siblings change in one step with their parent; a refusal of one does not affect the other.
    let answers = world.engine.apply(&tenant(), ids.clone(), retry()).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().code(), "key_taken");
    assert_eq!(answers[1].as_ref().unwrap().as_ref().map(|job| job.id), Some(ids[1]));
    assert_eq!(world.job(parent).await.unwrap().progress.pending_children, 1);
    assert_eq!(world.job(other).await.unwrap().state().name(), StateName::Ready);
    world.finish(&running).await;
}

#[tokio::test]
async fn a_job_is_not_renamed_to_a_key_or_an_alias_that_is_taken() {
    let world = World::new().await;
    let mut holder = unique("holder", "k", OnConflict::Return, HeldUntil::Settled);
    holder.extras.get_or_insert_default().alias = Some("alias".into());
    let extras = holder.extras.clone().unwrap();
    world.push(holder).await;
    let other = world.push(job("other")).await;
    let renames = [
        windlass_core::Extras { unique: extras.unique.clone(), ..Default::default() },
        windlass_core::Extras { alias: extras.alias.clone(), ..Default::default() },
    ];
    for extras in renames {
        let patch = Patch { extras: Some(Box::new(extras)), ..Patch::default() };
        let refused = world.apply(other, update(patch)).await.unwrap_err();
        assert_eq!(refused.code(), "key_taken");
        assert!(world.job(other).await.unwrap().spec.extras.is_none());
    }
}

#[tokio::test]
async fn a_run_that_ends_is_not_held_up_by_its_key() {
    let world = World::new().await;
    let push = || unique("a", "k", OnConflict::Return, HeldUntil::Started);
    let first = world.push(push()).await;
    let claimed = world.claim_one().await;
    let second = world.push(Push { run_at: RunAt::After(60_000), ..push() }).await;
    assert_ne!(first, second, "the first let go of its key when it started");
    world.settle(&claimed, release(world.after(0))).await.unwrap();
    world.claim_one().await;
    world.pass(30_000).await;
    assert_eq!(world.job(first).await.unwrap().state().name(), StateName::Ready, "the lease is over");
    let claimed = world.claim_one().await;
    world.settle(&claimed, fail("again")).await.unwrap();
    assert_eq!(world.job(first).await.unwrap().state().name(), StateName::Ready);
}

#[tokio::test]
async fn an_alias_that_is_taken_while_its_job_comes_back_stays_with_the_new_one() {
    let (world, faults) = faulty_world().await;
    let named = |name: &str| {
        let mut push = job(name);
        push.extras.get_or_insert_default().alias = Some("one".into());
        push
    };
    let first = world.push(named("a")).await;
    let deleted = world.engine.delete(&tenant(), &[first]).await.unwrap().remove(0).unwrap().unwrap();
    faults.fail_next_call(Call::Set, 1, Kind::Hold);
    let engine = world.engine.clone();
    let back = tokio::spawn(async move { engine.undelete(&tenant(), &deleted).await });
    faults.until_held(1).await;
    let second = world.push(named("b")).await;
    faults.release();
    let refused = back.await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused, VerbError::Refused(Refused::KeyTaken(second)));
    assert!(world.job(first).await.is_none());
}
