//! Steps that check whether a key is taken.

use super::fixtures::{Rig, after, at, done, id, job, new_id};
use crate::{Change, InTheWay, KeyRule, Rival, Step, Verdict};
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::unique::HeldUntil;
use windlass_core::{Event, Extras, Holder, Job, StateName};

fn requeue() -> Event {
    Event::Requeue { at: at(0), even_running: false }
}

fn cancel() -> Event {
    Event::Cancel { running: CancelRunning::Now, failed_too: false }
}

fn asking(before: &Arc<Job>, event: Event) -> Change {
    let after = after(before, event, at(0)).map(Arc::new);
    Change { before: before.clone(), after, keys: KeyRule::Ask }
}

fn step_of(changes: impl IntoIterator<Item = Change>) -> Step {
    Step { changes: changes.into_iter().collect(), ..Step::default() }
}

fn taken(job: u64, holder: u64) -> Verdict {
    Verdict::KeyTaken(vec![Rival { job: id(job), holder: id(holder) }])
}

pub(super) async fn inserts_that_must_be_new_are_all_made_or_none(rig: &Rig) {
    let parent = rig.push(job("parent")).await;
    rig.push(job("holder").unique("k").alias("n")).await;
    let step = |drafts: Vec<super::fixtures::Draft>| Step {
        changes: step_of([asking(&parent, Event::ChildAdded)]).changes,
        inserts: drafts.into_iter().map(|draft| draft.new_job()).collect(),
        all_new: true,
        ..Step::default()
    };

    let drafts = vec![
        job("free").unique("mine"),
        job("key taken").unique("k"),
        job("twice").unique("mine"),
        job("alias taken").alias("n"),
        job("plain"),
    ];
    let verdict = rig.commit_one(step(drafts.clone()), at(0)).await;
    let (holder, first) = (Some(InTheWay::Job(id(2))), Some(InTheWay::Insert(0)));
    assert_eq!(verdict, Verdict::Taken(vec![None, holder, first, holder, None]));
    assert_eq!(rig.get(parent.id).await, parent, "the change does not happen without its inserts");
    assert!(rig.find(id(3)).await.is_none(), "nor do the inserts in whose way nobody is");

    let free = vec![drafts[0].clone(), drafts[4].clone()];
    let verdict = rig.commit_one(step(free.clone()), at(0)).await;
    assert_eq!(verdict, Verdict::Done(vec![new_id(3), new_id(4)]), "the refused step used up no id");
    assert_eq!(rig.get(parent.id).await.progress.pending_children, 1);
    let verdict = rig.commit_one(step(free), at(0)).await;
    assert_eq!(verdict, Verdict::Stale, "a stale step says nothing about keys");
}

pub(super) async fn inserts_that_must_be_new_see_the_changes_of_their_step(rig: &Rig) {
    let holder = rig.push(job("a").unique("k").alias("n")).await;
    let swap = Step {
        changes: step_of([asking(&holder, Event::Delete)]).changes,
        inserts: vec![job("b").unique("k").alias("n").new_job()],
        all_new: true,
        ..Step::default()
    };
    assert_eq!(rig.commit_one(swap, at(0)).await, Verdict::Done(vec![new_id(2)]));
}

pub(super) async fn a_change_that_asks_gets_no_key_that_another_has(rig: &Rig) {
    let first = rig.job_in(StateName::Completed, job("first").unique("k")).await;
    let first = rig.get(first).await;
    let second = rig.push(job("second").unique("k")).await;
    let bystander = rig.push(job("bystander")).await;
    let both = || step_of([asking(&bystander, cancel()), asking(&first, requeue())]);
    assert_eq!(rig.commit_one(both(), at(0)).await, taken(1, 2));
    assert_eq!(rig.get(first.id).await, first, "nothing of the step happened");
    assert_eq!(rig.get(bystander.id).await, bystander, "nothing of the step happened");

    let update = Event::Update(Box::new(Patch { priority: Some(5), ..Patch::default() }));
    assert_eq!(rig.commit_one(step_of([asking(&first, update)]), at(0)).await, done(), "it takes no key");
    assert_eq!(rig.commit_one(both(), at(0)).await, Verdict::Stale, "a stale step says nothing about keys");

    let first = rig.get(first.id).await;
    rig.happen(second.id, cancel(), at(0)).await;
    let verdict = rig.commit_one(step_of([asking(&first, requeue())]), at(0)).await;
    assert_eq!(verdict, done(), "the key is free");
    assert_eq!(rig.insert(vec![job("third").unique("k")]).await[0].id(), first.id);
}

pub(super) async fn a_change_that_asks_gets_no_alias_that_another_has(rig: &Rig) {
    rig.push(job("holder").alias("n")).await;
    let other = rig.push(job("other").alias("own")).await;
    let rename = |alias: &str| {
        let extras = Extras { alias: Some(alias.into()), ..Extras::default() };
        Event::Update(Box::new(Patch { extras: Some(Box::new(extras)), ..Patch::default() }))
    };
    assert_eq!(rig.commit_one(step_of([asking(&other, rename("n"))]), at(0)).await, taken(2, 1));
    assert_eq!(rig.commit_one(step_of([asking(&other, rename("own"))]), at(0)).await, done(), "it has that");
    let other = rig.get(other.id).await;
    assert_eq!(rig.commit_one(step_of([asking(&other, rename("new"))]), at(0)).await, done());
}

pub(super) async fn changes_of_one_step_that_ask_see_each_other(rig: &Rig) {
    let mut settled = Vec::new();
    for name in ["a", "b"] {
        let settled_id = rig.job_in(StateName::Completed, job(name).unique("k")).await;
        settled.push(rig.get(settled_id).await);
    }
    let both = settled.iter().map(|job| asking(job, requeue()));
    assert_eq!(rig.commit_one(step_of(both), at(0)).await, taken(2, 1), "the first would have it");
    let steps = settled.iter().map(|job| step_of([asking(job, requeue())])).collect();
    assert_eq!(rig.commit(steps, at(0)).await, [done(), taken(2, 1)], "steps see each other, too");

    let first = rig.get(settled[0].id).await;
    let handed_over = [asking(&first, cancel()), asking(&settled[1], requeue())];
    assert_eq!(rig.commit_one(step_of(handed_over), at(0)).await, done(), "the first lets go of it");
}

pub(super) async fn a_change_that_yields_happens_although_its_key_is_taken(rig: &Rig) {
    rig.push(job("first").unique_until("k", HeldUntil::Started)).await;
    let running = rig.claim_one(at(0)).await;
    let second = rig.push(job("second").unique_until("k", HeldUntil::Started)).await;
    let release = Event::Release { by: Holder::Anyone, run_at: at(0), counts: false };
    let verdict = rig.commit_one(step_of([asking(&running, release.clone())]), at(0)).await;
    assert_eq!(verdict, taken(1, 2), "asking is refused");
    rig.happen(running.id, release, at(0)).await;
    assert_eq!(rig.get(running.id).await.state().name(), StateName::Ready);

    // Both jobs claim the key now: a change that does not take it anew is not refused.
    let update = || Event::Update(Box::new(Patch { priority: Some(5), ..Patch::default() }));
    for job in [running.id, second.id] {
        let job = rig.get(job).await;
        assert_eq!(rig.commit_one(step_of([asking(&job, update())]), at(0)).await, done());
    }
}
