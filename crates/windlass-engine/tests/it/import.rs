use crate::world::*;
use windlass_core::event::{Standing, Stands};
use windlass_core::{StateName, Timestamp};
use windlass_engine::*;

fn moment(ms: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + ms)
}

fn import(alias: &str, mut push: Push, stands: Stands, due_ms: i64) -> Import {
    push.extras.get_or_insert_default().alias = Some(alias.into());
    let standing = Standing { stands, due_at: moment(due_ms), started_at: None };
    Import { push, created_at: moment(-5_000), standing }
}

async fn taken(world: &World, jobs: Vec<Import>) -> Vec<Pushed> {
    world.engine.import(&tenant(), jobs).await.unwrap()
}

#[tokio::test]
async fn jobs_stand_where_they_stood_with_their_times() {
    let world = World::new().await;
    let mut ready = import("1", job("ready"), Stands::Ready, -10);
    ready.standing.started_at = Some(moment(-700));
    let jobs = vec![
        ready,
        import("2", job("later"), Stands::Ready, 10),
        import("3", job("failed"), Stands::Failed, 0),
        import("4", job("done"), Stands::Completed, 0),
        import("5", job("cancelled"), Stands::Cancelled, 0),
    ];
    taken(&world, jobs).await;
    world.shows(
        &world.picture().await,
        "1 ready default/ready p0 a0 at -10
         2 ready default/later p0 a0 at 10
         3 failed default/failed p0 a0
         4 completed default/done p0 a0
         5 cancelled default/cancelled p0 a0",
    );
    let job = world.claim_one().await;
    assert_eq!(job.spec.created_at, moment(-5_000));
    assert_eq!(job.progress.prior_start, Some(moment(-700)));
    assert!(world.claim(5).await.is_empty());
    world.pass(10).await;
    assert_eq!(names(&world.claim(5).await), ["later"]);
}

#[tokio::test]
async fn a_waiting_claim_is_woken_by_a_job_that_is_taken_over() {
    let world = World::new().await;
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.claim(Claim { wait_ms: 60_000, ..any() }).await });
    rest().await;
    taken(&world, vec![import("1", job("a"), Stands::Ready, 0)]).await;
    assert_eq!(names(&waiting.await.unwrap().unwrap().accept()), ["a"]);
}

#[tokio::test]
async fn a_parent_goes_on_waiting_for_the_children_that_are_not_done() {
    let world = World::new().await;
    let parent = taken(&world, vec![import("p", job("parent"), Stands::Waiting, 0)]).await[0].id().unwrap();
    let child = |alias, name, stands| import(alias, child_of(parent, name, PARENT_WAITS), stands, 0);
    let children = vec![
        child("a", "done", Stands::Completed),
        child("b", "open", Stands::Ready),
        child("c", "cancelled", Stands::Cancelled),
    ];
    taken(&world, children).await;
    world.shows(
        &world.picture().await,
        "1 waiting default/parent p0 a0 children 1
         2 completed default/done p0 a0 parent 1
         3 ready default/open p0 a0 at 0 parent 1
         4 cancelled default/cancelled p0 a0 parent 1",
    );
    let open = world.claim_one().await;
    world.finish(&open).await;
    assert_eq!(names(&[world.claim_one().await]), ["parent"]);
}

#[tokio::test]
async fn a_parent_whose_children_are_all_done_runs_again() {
    let world = World::new().await;
    let parent = taken(&world, vec![import("p", job("parent"), Stands::Waiting, 0)]).await[0].id().unwrap();
    let done = import("a", child_of(parent, "done", PARENT_WAITS), Stands::Completed, 0);
    taken(&world, vec![done]).await;
    assert_eq!(names(&world.claim(5).await), ["parent"]);
}

#[tokio::test]
async fn taking_over_again_changes_nothing_and_ends_what_was_begun() {
    let world = World::new().await;
    let jobs = || {
        vec![
            import("1", job("a"), Stands::Ready, 0),
            import("2", job("b"), Stands::Failed, 0),
            import("3", job("c"), Stands::Failed, 0),
        ]
    };
    // State left by an earlier call that was interrupted here.
    let mut begun = import("3", job("c"), Stands::Failed, 0).push;
    begun.run_at = RunAt::At(Timestamp::MAX);
    let begun = world.push(begun).await;
    let first = taken(&world, jobs()).await;
    assert_eq!(first[2], Pushed::Existing(begun));
    assert_eq!(world.job(begun).await.unwrap().state().name(), StateName::Failed);
    world.claim_one().await;
    let before = world.picture().await;
    let again = taken(&world, jobs()).await;
    let existing = |pushed: &Pushed| matches!(pushed, Pushed::Existing(_));
    assert!(again.iter().all(existing), "{again:?}");
    assert_eq!(world.picture().await, before);
}
