use crate::world::*;
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::{Holder, Job, JobId, Refused};
use windlass_engine::*;

async fn deed(world: &World, id: JobId, action: Action) -> Deed {
    Deed { job: world.job(id).await.unwrap(), action }
}

async fn together(world: &World, deeds: Vec<Deed>) -> Together {
    world.engine.act_together(&tenant(), deeds).await.unwrap()
}

fn priority(priority: i32) -> Action {
    Action::Update(Patch { priority: Some(priority), ..Patch::default() })
}

#[tokio::test]
async fn several_deeds_of_several_kinds_happen_in_one_commit() {
    let world = World::new().await;
    let first = world.push(job("a")).await;
    let claimed = world.claim_one().await;
    world.push_all(vec![job("b"), job("c"), job("d")]).await;
    let id = |number| JobId::new(number).unwrap();
    let deeds = vec![
        Deed { job: claimed, action: Action::Settle { by: Holder::Anyone, how: finish() } },
        deed(&world, id(2), Action::Delete).await,
        deed(&world, id(3), priority(7)).await,
        deed(&world, id(3), Action::Requeue { at: RunAt::After(50), even_running: true }).await,
        deed(&world, id(4), Action::Cancel { running: CancelRunning::Now, failed_too: true }).await,
    ];
    let commits = world.job(first).await.unwrap().version;
    assert_eq!(together(&world, deeds).await, Together::Done);
    world.shows(
        &world.picture().await,
        "1 completed default/a p0 a1
         3 ready default/c p7 a0 at 50
         4 cancelled default/d p0 a0",
    );
    assert_eq!(world.job(first).await.unwrap().version, commits + 1);
    assert_eq!(world.job(id(3)).await.unwrap().version, 2, "two deeds on one job are one version");
}

#[tokio::test]
async fn if_one_deed_may_not_happen_none_does() {
    let world = World::new().await;
    let busy = world.push(job("busy")).await;
    world.claim_one().await;
    let idle = world.push(job("idle")).await;
    let before = world.picture().await;
    let deeds = vec![
        deed(&world, idle, Action::Delete).await,
        deed(&world, busy, Action::Delete).await,
        deed(&world, idle, priority(3)).await,
    ];
    let refused = vec![(busy, Refused::Running.into()), (idle, VerbError::NotFound)];
    let Together::Refused(mut named) = together(&world, deeds).await else { panic!("it is refused") };
    named.sort_by_key(|(id, _)| *id);
    assert_eq!(named, refused);
    assert_eq!(world.picture().await, before);
}

#[tokio::test]
async fn a_job_that_moved_on_since_the_caller_saw_it_makes_all_of_it_stale() {
    let world = World::new().await;
    world.push_all(vec![job("a"), job("b")]).await;
    let id = |number| JobId::new(number).unwrap();
    let deeds = vec![deed(&world, id(1), priority(1)).await, deed(&world, id(2), priority(1)).await];
    world.claim_one().await;
    let before = world.picture().await;
    assert_eq!(together(&world, deeds.clone()).await, Together::Stale);
    assert_eq!(world.picture().await, before);
    world.act(id(2), Action::Delete).await.unwrap();
    assert_eq!(together(&world, deeds[1..].to_vec()).await, Together::Stale, "also when it is gone");
}

#[tokio::test]
async fn children_and_then_their_parent_can_go_in_one_step() {
    let world = World::new().await;
    let parent = world.push(job("parent")).await;
    let running = world.claim_one().await;
    world.push_all(vec![child_of(parent, "a", PARENT_WAITS), child_of(parent, "b", PARENT_WAITS)]).await;
    world.finish(&running).await;
    let mut deeds = Vec::new();
    for number in [3, 2, 1] {
        deeds.push(deed(&world, JobId::new(number).unwrap(), Action::Delete).await);
    }
    let parent_first: Vec<Deed> = deeds.iter().rev().cloned().collect();
    let refused = Together::Refused(vec![(parent, Refused::HasChildren.into())]);
    assert_eq!(together(&world, parent_first).await, refused);
    assert_eq!(together(&world, deeds).await, Together::Done);
    assert_eq!(world.picture().await, "");
}

#[tokio::test]
async fn another_tenants_job_is_not_touched() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    let job: Arc<Job> = world.job(id).await.unwrap();
    let stranger = windlass_core::Tenant::new("stranger").unwrap();
    let deeds = vec![Deed { job, action: Action::Delete }];
    let outcome = world.engine.act_together(&stranger, deeds).await.unwrap();
    assert_eq!(outcome, Together::Refused(vec![(id, VerbError::NotFound)]));
    assert!(world.job(id).await.is_some());
}
