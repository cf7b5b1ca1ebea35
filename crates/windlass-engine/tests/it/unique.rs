use crate::world::*;
use std::sync::Arc;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Payload, Tenant};
use windlass_engine::*;

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
