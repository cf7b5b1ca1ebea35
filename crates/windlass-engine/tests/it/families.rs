use crate::world::*;
use std::sync::Arc;
use windlass_core::family::FamilyRule;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{JobId, Refused, StateName};
use windlass_engine::*;

const STRICT: FamilyRule = FamilyRule::ParentWaits { failure_settles: false };

#[tokio::test]
async fn children_start_when_the_parents_run_ends_and_it_runs_again_when_they_are_done() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.shows(
        &world.picture().await,
        "1 running default/parent p0 a1 until 30000 children 2
         2 waiting default/a p0 a0 parent 1
         3 waiting default/b p0 a0 parent 1",
    );
    assert!(world.claim(5).await.is_empty(), "children wait for the parent's run to end");
    world.finish(&running).await;
    world.shows(
        &world.picture().await,
        "1 waiting default/parent p0 a1 children 2
         2 ready default/a p0 a0 at 0 parent 1
         3 ready default/b p0 a0 at 0 parent 1",
    );
    let children = world.claim(5).await;
    world.finish(&children[0]).await;
    assert_eq!(world.job(parent).await.unwrap().state().name(), StateName::Waiting);
    world.settle(&children[1], fail_for_good()).await.unwrap();
    world.shows(
        &world.picture().await,
        "1 ready default/parent p0 a0 at 0
         2 completed default/a p0 a1 parent 1
         3 failed default/b p0 a1 parent 1",
    );
    let again = world.claim_one().await;
    world.finish(&again).await;
    world.shows(
        &world.picture().await,
        "1 completed default/parent p0 a1
         2 completed default/a p0 a1 parent 1
         3 failed default/b p0 a1 parent 1",
    );
}

#[tokio::test]
async fn a_parent_whose_policy_forgets_its_children_deletes_those_it_has_seen() {
    let world = World::new().await;
    let parent = world.push(forgetful(job("parent"))).await;
    let running = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.finish(&running).await;
    let children = world.claim(5).await;
    world.finish(&children[0]).await;
    world.settle(&children[1], fail_for_good()).await.unwrap();
    let again = world.claim_one().await;
    world.finish(&again).await;
    world.shows(
        &world.picture().await,
        "1 completed default/parent p0 a1
         3 failed default/b p0 a1 parent 1",
    );
}

#[tokio::test]
async fn children_outlive_a_parent_that_is_gone_and_go_when_their_own_time_is_over() {
    let world = World::new().await;
    let parent = with_policy(job("parent"), |policy| {
        policy.keep = keep_nothing();
        policy.forget_children = Some(false);
    });
    let parent = world.push(parent).await;
    let running = world.claim_one().await;
    let child = with_policy(child_of(parent, "a", PARENT_WAITS), |policy| {
        policy.keep.completed = windlass_core::KeepFor::Ms(5_000);
    });
    world.push(child).await;
    world.finish(&running).await;
    let child = world.claim_one().await;
    world.finish(&child).await;
    let again = world.claim_one().await;
    world.finish(&again).await;
    world.shows(&world.picture().await, "2 completed default/a p0 a1");
    world.pass(5_001).await;
    world.shows(&world.picture().await, "");
}

#[tokio::test]
async fn a_parent_that_is_gone_takes_its_settled_children_along_and_leaves_the_others() {
    let world = World::new().await;
    let parent = world.push(with_policy(job("parent"), |policy| policy.keep = keep_nothing())).await;
    let running = world.claim_one().await;
    world
        .push_all(vec![
            child_of(parent, "seen", PARENT_WAITS),
            child_of(parent, "free", FamilyRule::ParentRunsAfter),
        ])
        .await;
    let free = world.claim_one().await;
    world.finish(&running).await;
    let seen = world.claim_one().await;
    world.finish(&seen).await;
    let again = world.claim_one().await;
    world.finish(&again).await;
    world.shows(&world.picture().await, "3 running default/free p0 a1 until 30000");
    world.finish(&free).await;
}

#[tokio::test]
async fn a_parent_waits_for_a_failed_child_where_failure_does_not_settle() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    let child = world.push(tries(child_of(parent, "a", STRICT), 1)).await;
    world.finish(&running).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, fail("no")).await.unwrap();
    world.shows(
        &world.picture().await,
        "1 waiting default/parent p0 a1
         2 failed default/a p0 a1 parent 1",
    );
    world.apply(child, Event::Run { at: world.after(0), force: true }).await.unwrap();
    let claimed = world.claim_one().await;
    world.finish(&claimed).await;
    assert_eq!(world.job(parent).await.unwrap().state().name(), StateName::Ready);
}

#[tokio::test]
async fn of_two_children_that_end_at_once_no_failure_goes_unseen() {
    for _ in 0..10 {
        let world = World::new().await;
        let parent = world.push(job("parent")).await;
        let running = world.claim_one().await;
        world.push_all(vec![child_of(parent, "a", STRICT), child_of(parent, "b", STRICT)]).await;
        world.finish(&running).await;
        let children = world.claim(5).await;
        let never = fail_for_good();
        let (failed, ()) = tokio::join!(world.settle(&children[0], never), world.finish(&children[1]));
        failed.unwrap();
        let after = world.job(parent).await.unwrap();
        assert_eq!(after.progress.pending_children, 0);
        // Either the failure came last, or the parent runs already.
        assert!([StateName::Waiting, StateName::Ready].contains(&after.state().name()));
        world.apply(children[0].id, Event::Delete).await.unwrap();
        assert_eq!(world.job(parent).await.unwrap().state().name(), StateName::Ready);
    }
}

#[tokio::test]
async fn only_a_running_or_waiting_job_takes_children_to_wait_for() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let unknown = JobId::new(77).unwrap();
    let pushed = world
        .push_all(vec![
            child_of(parent, "a", PARENT_WAITS),
            job("free"),
            child_of(unknown, "b", PARENT_WAITS),
        ])
        .await;
    assert_eq!(pushed[0], Pushed::Refused(PushRefused::ParentNotActive(StateName::Ready)));
    assert!(matches!(pushed[1], Pushed::New(_)));
    assert_eq!(pushed[2], Pushed::Refused(PushRefused::NoParent(unknown)));
    let other = windlass_core::Tenant::new("other").unwrap();
    let foreign = world.engine.push(&other, vec![child_of(parent, "c", FamilyRule::ParentRunsAfter)]).await;
    assert_eq!(foreign.unwrap()[0], Pushed::Refused(PushRefused::NoParent(parent)));
}

#[tokio::test]
async fn a_parent_is_run_after_each_run_of_its_child() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.settle(&running, SUSPEND).await.unwrap();
    world.push(child_of(parent, "child", FamilyRule::ParentRunsAfter)).await;
    for _ in 0..2 {
        let child = world.claim_one().await;
        assert_eq!(child.spec.name.as_str(), "child");
        assert_eq!(world.job(parent).await.unwrap().state().name(), StateName::Suspended);
        world.settle(&child, SUSPEND).await.unwrap();
        let run = world.claim_one().await;
        assert_eq!(run.id, parent);
        world.settle(&run, SUSPEND).await.unwrap();
        world.apply(child.id, Event::Run { at: world.after(0), force: false }).await.unwrap();
    }
}

#[tokio::test]
async fn children_of_a_deleted_parent_go_on_without_it() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.push(child_of(parent, "a", PARENT_WAITS)).await;
    world.push(child_of(parent, "b", FamilyRule::ParentRunsAfter)).await;
    let refused = world.apply(parent, Event::Delete).await.unwrap_err();
    assert_eq!(refused, VerbError::Refused(Refused::Running));
    let drop_it = Event::Cancel { running: windlass_core::event::CancelRunning::Now, failed_too: false };
    world.apply(parent, drop_it).await.unwrap();
    world.apply(parent, Event::Delete).await.unwrap();
    world.shows(
        &world.picture().await,
        "2 ready default/a p0 a0 at 0
         3 ready default/b p0 a0 at 0",
    );
    assert!(world.settle(&running, finish()).await.is_err());
    for child in world.claim(2).await {
        world.finish(&child).await;
    }
}

#[tokio::test]
async fn siblings_finished_in_one_batch_resume_the_parent_once() {
    let world = World::new().await;
    let parent = world.push(forgetful(job("parent"))).await;
    let running = world.claim_one().await;
    world.push_all((0..200).map(|_| child_of(parent, "c", PARENT_WAITS)).collect()).await;
    world.finish(&running).await;
    let children = world.claim(200).await;
    assert_eq!(children.len(), 200);
    let answers = world.settle_all(children.iter().map(|child| (&**child, finish())).collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    let again = world.claim(5).await;
    assert_eq!(names(&again), ["parent"]);
    world.finish(&again[0]).await;
    world.shows(&world.picture().await, "1 completed default/parent p0 a1");
}

#[tokio::test]
async fn a_child_that_was_not_made_is_not_waited_for() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    let unique = || {
        let mut push = child_of(parent, "a", PARENT_WAITS);
        let extras = push.extras.get_or_insert_default();
        let (on_conflict, held_until) = (OnConflict::Return, HeldUntil::Settled);
        extras.unique = Some(Unique { key: "k".into(), on_conflict, held_until });
        push
    };
    world.push_all(vec![unique(), unique()]).await;
    assert_eq!(world.job(parent).await.unwrap().progress.pending_children, 1);
    world.finish(&running).await;
    let child = world.claim_one().await;
    world.finish(&child).await;
    assert_eq!(world.claim_one().await.id, parent);
}

#[tokio::test]
async fn of_a_batch_of_children_those_with_a_free_key_are_made_and_counted() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    world.claim_one().await;
    let with_key = |mut push: Push, key: &str| {
        let (on_conflict, held_until) = (OnConflict::Return, HeldUntil::Settled);
        let unique = Unique { key: key.into(), on_conflict, held_until };
        push.extras.get_or_insert_default().unique = Some(unique);
        push
    };
    let child = |name: &str| child_of(parent, name, PARENT_WAITS);
    let holder = world.push(with_key(job("holder"), "taken")).await;
    let nobody = JobId::new(99).unwrap();
    let pushed = world
        .push_all(vec![
            with_key(child("a"), "taken"),
            with_key(child_of(nobody, "b", PARENT_WAITS), "mine"),
            with_key(child("c"), "mine"),
            with_key(child("d"), "mine"),
            child("e"),
        ])
        .await;
    let (c, e) = (JobId::new(3).unwrap(), JobId::new(4).unwrap());
    let expected = [
        Pushed::Existing(holder),
        Pushed::Refused(PushRefused::NoParent(nobody)),
        Pushed::New(c),
        Pushed::Existing(c),
        Pushed::New(e),
    ];
    assert_eq!(pushed, expected);
    assert_eq!(world.job(parent).await.unwrap().progress.pending_children, 2);
}

#[tokio::test]
async fn terminating_a_family_reaches_everyone_once() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let child = world.push(child_of(parent, "child", FamilyRule::ParentRunsAfter)).await;
    let grandchild = world.push(child_of(child, "grandchild", FamilyRule::ParentRunsAfter)).await;
    let bystander = world.push(job("bystander")).await;
    let answers = world.engine.terminate_families(&tenant(), vec![parent]).await.unwrap();
    assert_eq!(answers.len(), 1);
    for id in [parent, child, grandchild] {
        assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Terminating);
    }
    assert_eq!(world.job(bystander).await.unwrap().state().name(), StateName::Ready);
    while let Some(run) = world.claim(1).await.pop() {
        world.finish(&run).await;
    }
    for id in [parent, child, grandchild] {
        assert_eq!(world.job(id).await.unwrap().state().name(), StateName::Terminated);
    }
}

/// Many tasks on several threads end the last children at once: the parent runs exactly once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fan_in_happens_exactly_once_whoever_finishes_last() {
    let world = Arc::new(World::new().await);
    for round in 0..20 {
        let parent = world.push(job("parent")).await;
        let running = world.claim_one().await;
        let count = 1 + round * 3;
        world.push_all((0..count).map(|_| child_of(parent, "c", PARENT_WAITS)).collect()).await;
        world.finish(&running).await;
        let finishing: Vec<_> = world
            .claim(count)
            .await
            .into_iter()
            .map(|child| {
                let world = world.clone();
                tokio::spawn(async move { world.finish(&child).await })
            })
            .collect();
        for task in finishing {
            task.await.unwrap();
        }
        let resumed = world.claim(10).await;
        assert_eq!(names(&resumed), ["parent"], "round {round}");
        assert_eq!(resumed[0].progress.pending_children, 0);
        world.finish(&resumed[0]).await;
        assert!(world.claim(10).await.is_empty(), "round {round}");
    }
}

/// Two servers on one store do not share the family locks; the version guard alone has to suffice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fan_in_happens_exactly_once_between_two_servers() {
    let one = Arc::new(World::new().await);
    let two = Arc::new(World::with(one.store.clone(), one.clock.clone(), Options::default()).await);
    for round in 0..20 {
        let parent = one.push(job("parent")).await;
        let running = one.claim_one().await;
        one.push_all((0..16).map(|_| child_of(parent, "c", PARENT_WAITS)).collect()).await;
        two.finish(&running).await;
        let children = one.claim(16).await;
        let finishing: Vec<_> = children
            .into_iter()
            .enumerate()
            .map(|(index, child)| {
                let world = if index % 2 == 0 { one.clone() } else { two.clone() };
                tokio::spawn(async move { world.finish(&child).await })
            })
            .collect();
        for task in finishing {
            task.await.unwrap();
        }
        let resumed = one.claim(10).await;
        assert_eq!(names(&resumed), ["parent"], "round {round}");
        one.finish(&resumed[0]).await;
        assert!(two.claim(10).await.is_empty(), "round {round}");
    }
}
