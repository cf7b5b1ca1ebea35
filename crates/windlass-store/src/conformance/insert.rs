//! Ids, reading back, unique keys and aliases.

use super::fixtures::{Rig, after, at, done, existing, finish, id, inserted, job, new_id, step, tenant};
use crate::{Step, Verdict};
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Body, Event, Extras, KeepFor, StateName, Tenant, created};

pub(super) async fn ids_are_consecutive_and_never_reused(rig: &Rig) {
    let first = rig.insert(vec![job("a"), job("b"), job("c")]).await;
    assert_eq!(first, [new_id(1), new_id(2), new_id(3)], "the first ids of a new store");

    rig.happen(id(3), Event::Delete, at(0)).await;
    assert_eq!(rig.insert(vec![job("d")]).await, [new_id(4)], "the id of a deleted job is not used again");

    let old = rig.get(id(1)).await;
    rig.happen(id(1), Event::Terminate, at(0)).await;
    let mut stale = step(&old, Event::Delete, at(0));
    stale.inserts.push(job("never").new_job());
    assert_eq!(rig.commit_one(stale, at(0)).await, Verdict::Stale);
    assert_eq!(rig.insert(vec![job("e")]).await, [new_id(5)], "a stale step uses up no id");

    let answers = rig.insert(vec![job("f").unique("k"), job("g").unique("k"), job("h")]).await;
    assert_eq!(answers, [new_id(6), existing(6), new_id(7)], "an existing job uses up no id");
}

pub(super) async fn a_new_job_reads_back_as_it_was_made(rig: &Rig) {
    let body = Body { percent: Some(1), note: Some("begun".into()), ..Body::default() };
    let drafts = [
        job("plain"),
        job("later").run_at(500).priority(-3).queue("q").tenant("t"),
        job("with body").body(body),
        job("with extras").tag("x").alias("y").unique("z").limit("l"),
        job("child").child_of(id(1), false),
        job("waiting child").child_of(id(1), true),
    ];
    for (number, draft) in (1..).zip(drafts) {
        let new = draft.clone().new_job();
        assert_eq!(rig.insert(vec![draft]).await, [new_id(number)]);
        let expected = created(id(number), new.spec, new.run_at, new.held_by_parent, new.body);
        assert_eq!(*rig.get(id(number)).await, expected, "what was inserted is what is loaded");
    }
}

pub(super) async fn a_held_unique_key_makes_no_second_job(rig: &Rig) {
    assert_eq!(rig.insert(vec![job("a").unique("k")]).await, [new_id(1)]);
    let again = rig.insert(vec![job("b").unique("k"), job("c"), job("d").unique("k2")]).await;
    assert_eq!(
        again,
        [existing(1), new_id(2), new_id(3)],
        "the other inserts of the step are made all the same"
    );
    assert_eq!(&*rig.get(id(1)).await.spec.name, "a", "the holder is left alone");

    let other_tenant = rig.insert(vec![job("a").unique("k").tenant("other")]).await;
    assert_eq!(other_tenant, [new_id(4)], "keys of different tenants have nothing to do with each other");

    let other_queue = rig.insert(vec![job("a").unique("k").queue("other")]).await;
    assert_eq!(other_queue, [existing(1)], "a key holds in all queues of its tenant");

    let two_steps = vec![
        Step::insert(vec![job("x").unique("new").new_job()]),
        Step::insert(vec![job("y").unique("new").new_job()]),
    ];
    let verdicts = rig.commit(two_steps, at(0)).await;
    assert_eq!(inserted(&verdicts[0]), [new_id(5)]);
    assert_eq!(inserted(&verdicts[1]), [existing(5)], "a step sees the keys that earlier steps took");
}

pub(super) async fn a_key_is_held_exactly_as_long_as_its_rule_says(rig: &Rig) {
    for held_until in [HeldUntil::Settled, HeldUntil::Started, HeldUntil::Forgotten] {
        for state in StateName::ALL {
            let key = format!("{held_until:?} {state}");
            let holder = rig.job_in(state, job("holder").unique_until(&key, held_until)).await;
            let held = rig.get(holder).await.holds_unique_key();
            let answer = rig.insert(vec![job("second").unique(&key)]).await[0];
            let is_existing = answer == existing(holder.get());
            assert_eq!(is_existing, held, "key held until {held_until:?} by a {state} job: {answer:?}");
        }
    }
}

pub(super) async fn a_key_is_free_once_its_job_is_gone(rig: &Rig) {
    let forgotten = |key: &str| job("a").unique_until(key, HeldUntil::Forgotten);

    let deleted = rig.push(forgotten("deleted")).await.id;
    rig.happen(deleted, Event::Delete, at(0)).await;
    rig.push(forgotten("deleted")).await;

    let dropped = rig.push(forgotten("dropped").keep_all(KeepFor::Drop)).await.id;
    rig.happen(dropped, Event::Cancel { running: CancelRunning::Now, failed_too: false }, at(0)).await;
    assert!(rig.find(dropped).await.is_none(), "a job that is not kept is gone once it is settled");
    rig.push(forgotten("dropped")).await;

    let expired = rig.job_in(StateName::Completed, forgotten("expired").keep_all(KeepFor::Ms(5))).await;
    rig.happen(expired, Event::Expire, at(5)).await;
    rig.push(forgotten("expired")).await;
}

pub(super) async fn of_several_with_a_claim_the_oldest_job_holds_the_key(rig: &Rig) {
    let first = rig.job_in(StateName::Completed, job("first").unique("k")).await;
    let second = rig.push(job("second").unique("k")).await.id;
    let requeue = || Event::Requeue { at: at(0), even_running: false };
    rig.happen(first, requeue(), at(0)).await;
    let answer = rig.insert(vec![job("third").unique("k")]).await;
    assert_eq!(answer, [existing(first.get())], "of two jobs with one key the older is named");

    let cancel = || Event::Cancel { running: CancelRunning::Now, failed_too: false };
    rig.happen(first, cancel(), at(0)).await;
    let answer = rig.insert(vec![job("third").unique("k")]).await;
    assert_eq!(answer, [existing(second.get())], "then the other");
    rig.happen(second, cancel(), at(0)).await;
    assert_eq!(rig.push(job("third").unique("k")).await.id, id(3), "and at last it is free");
}

pub(super) async fn a_key_and_an_alias_follow_an_update(rig: &Rig) {
    let moved = rig.push(job("a").unique("old").alias("old")).await.id;
    let other = rig.push(job("b").unique("other").alias("other")).await.id;
    let rename = |text: &str| {
        let unique =
            Unique { key: text.into(), on_conflict: OnConflict::Return, held_until: HeldUntil::Settled };
        let extras = Extras { alias: Some(text.into()), unique: Some(unique), ..Extras::default() };
        Event::Update(Box::new(Patch { extras: Some(Box::new(extras)), ..Patch::default() }))
    };
    rig.happen(moved, rename("new"), at(0)).await;
    assert_eq!(alias_of(rig, "old").await, None);
    assert_eq!(alias_of(rig, "new").await, Some(moved.get()));
    assert_eq!(rig.insert(vec![job("c").unique("old")]).await, [new_id(3)], "the old key is free");
    assert_eq!(rig.insert(vec![job("c").unique("new")]).await, [existing(1)], "the new key is held");

    rig.happen(other, rename("new"), at(0)).await;
    assert_eq!(alias_of(rig, "other").await, None);
    assert_eq!(alias_of(rig, "new").await, Some(moved.get()), "of two with one alias the older is found");
    rig.happen(moved, Event::Delete, at(0)).await;
    assert_eq!(alias_of(rig, "new").await, Some(other.get()));
}

pub(super) async fn an_alias_is_taken_as_long_as_its_job_exists(rig: &Rig) {
    for (number, state) in (1..).zip(StateName::ALL) {
        let alias = format!("alias {state}");
        let holder = rig.job_in(state, job("a").alias(&alias)).await;
        assert_eq!(holder.get(), number);
        assert_eq!(alias_of(rig, &alias).await, Some(number), "the alias of a {state} job");
        let answer = rig.insert(vec![job("b").alias(&alias)]).await;
        assert_eq!(answer, [existing(number)], "the alias of a {state} job is taken");
    }
    let elsewhere = rig.store.find_alias(&tenant("other"), "alias ready").await.expect("find_alias");
    assert_eq!(elsewhere, None, "the alias of another tenant's job");
    rig.push(job("a").alias("alias ready").tenant("other")).await;

    rig.happen(id(1), Event::Delete, at(0)).await;
    assert_eq!(alias_of(rig, "alias ready").await, None, "the alias goes with its job");
    rig.push(job("a").alias("alias ready")).await;
    let twice = rig.insert(vec![job("a").alias("new"), job("b").alias("new")]).await;
    assert_eq!(twice[1], existing(twice[0].id().get()), "the same alias twice in one step");
}

pub(super) async fn the_holder_of_the_key_is_named_before_that_of_the_alias(rig: &Rig) {
    rig.push(job("a").alias("both")).await;
    rig.push(job("b").unique("both")).await;
    let answer = rig.insert(vec![job("c").alias("both").unique("both")]).await;
    assert_eq!(answer, [existing(2)]);
}

pub(super) async fn odd_keys_are_told_apart(rig: &Rig) {
    let odd =
        ["", " ", "a", "A", "a ", "a\0", "a\0b", "ä", "a\u{308}", "%", "_", "'", "\n", "1", "01", "1.0"];
    let drafts = odd.iter().map(|key| job("a").unique(key).alias(key)).collect();
    let answers = rig.insert(drafts).await;
    let expected: Vec<_> = (1..=odd.len() as u64).map(new_id).collect();
    assert_eq!(answers, expected, "keys and aliases are compared byte for byte");
    for (number, alias) in (1..).zip(odd) {
        assert_eq!(alias_of(rig, alias).await, Some(number), "alias {alias:?}");
    }
}

pub(super) async fn a_large_batch_is_one_step(rig: &Rig) {
    let policy = job("a").spec.policy;
    let drafts = (0..2_000).map(|n| {
        let mut draft = job("bulk").priority(n % 7);
        draft.spec.policy = Arc::clone(&policy);
        draft
    });
    let answers = rig.insert(drafts.collect()).await;
    let expected: Vec<_> = (1..=2_000).map(new_id).collect();
    assert_eq!(answers, expected);
    let last = rig.get(id(2_000)).await;
    let verdict = rig.commit_one(Step::change(last.clone(), after(&last, Event::Delete, at(0))), at(0)).await;
    assert_eq!(verdict, done());
    rig.claim_one(at(0)).await;
    rig.happen(id(1), finish(), at(0)).await;
}

async fn alias_of(rig: &Rig, alias: &str) -> Option<u64> {
    let found = rig.store.find_alias(&Tenant::default(), alias).await.expect("find_alias");
    found.map(|id| id.get())
}
