//! Version guards, atomic steps, and the visibility of steps to each other.

use super::fixtures::{Rig, after, ask, at, done, existing, id, inserted, job, new_id, step};
use crate::{Change, KeyRule, Step, Verdict};
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::{Event, JobId};

fn reprioritise(priority: i32) -> Event {
    Event::Update(Box::new(Patch { priority: Some(priority), ..Patch::default() }))
}

fn cancel() -> Event {
    Event::Cancel { running: CancelRunning::Now, failed_too: false }
}

async fn priority_of(rig: &Rig, id: JobId) -> i32 {
    rig.get(id).await.spec.priority
}

pub(super) async fn a_stale_step_writes_nothing(rig: &Rig) {
    let first = rig.push(job("a")).await;
    rig.happen(first.id, reprioritise(1), at(1)).await;
    let current = rig.get(first.id).await;

    let mut stale = step(&first, reprioritise(2), at(2));
    stale.inserts.push(job("never").new_job());
    assert_eq!(rig.commit_one(stale, at(2)).await, Verdict::Stale, "the job has another version by now");
    assert_eq!(rig.get(first.id).await, current);
    assert!(rig.find(id(2)).await.is_none(), "the insert of a stale step is not made");

    let deletion = step(&first, Event::Delete, at(2));
    assert_eq!(rig.commit_one(deletion, at(2)).await, Verdict::Stale, "deletions are guarded, too");
    assert_eq!(rig.get(first.id).await, current);
    assert_eq!(rig.claim(ask(), at(2)).await.len(), 1, "the job can be claimed as before");
}

pub(super) async fn a_step_of_several_changes_is_atomic(rig: &Rig) {
    let a = rig.push(job("a")).await;
    let b = rig.push(job("b")).await;
    let c = rig.push(job("c")).await;
    rig.happen(c.id, reprioritise(1), at(1)).await;

    // The stale change comes last, after the others could have been written.
    let changes = [&a, &b, &c].map(|before| change(before, reprioritise(9)));
    let verdict =
        rig.commit_one(Step { changes: changes.into_iter().collect(), ..Step::default() }, at(1)).await;
    assert_eq!(verdict, Verdict::Stale);
    assert_eq!(rig.get(a.id).await, a, "nothing of a stale step happened");
    assert_eq!(rig.get(b.id).await, b, "nothing of a stale step happened");

    let changes = [&a, &b].map(|before| change(before, reprioritise(9)));
    let all =
        Step { changes: changes.into_iter().collect(), inserts: vec![job("d").new_job()], ..Step::default() };
    assert_eq!(rig.commit_one(all, at(1)).await, Verdict::Done(vec![new_id(4)]));
    assert_eq!(priority_of(rig, a.id).await, 9);
    assert_eq!(priority_of(rig, b.id).await, 9);
}

pub(super) async fn settings_of_a_step_come_with_it_or_not_at_all(rig: &Rig) {
    let settings = || async { rig.store.settings("k/").await.expect("settings") };
    let put = |key: &str, value: &str| (key.to_owned(), Some(value.as_bytes().to_vec()));
    let a = rig.push(job("a")).await;
    let mut good = step(&a, reprioritise(1), at(1));
    good.settings = vec![put("k/1", "one"), put("k/2", "two"), put("k/1", "one again")];
    assert_eq!(rig.commit_one(good, at(1)).await, done());
    let both = [("k/1".to_owned(), b"one again".to_vec()), ("k/2".to_owned(), b"two".to_vec())];
    assert_eq!(settings().await, both);

    let mut stale = step(&a, reprioritise(2), at(1));
    stale.settings = vec![put("k/3", "three"), ("k/1".to_owned(), None)];
    assert_eq!(rig.commit_one(stale, at(1)).await, Verdict::Stale);
    assert_eq!(settings().await, both, "nothing of a stale step happened");

    let forget = |key: &str| (key.to_owned(), None);
    let alone = Step { settings: vec![forget("k/1"), forget("k/9")], ..Step::default() };
    assert_eq!(rig.commit_one(alone, at(1)).await, done());
    assert_eq!(settings().await, both[1..]);
}

pub(super) async fn steps_stand_for_themselves(rig: &Rig) {
    let a = rig.push(job("a")).await;
    let b = rig.push(job("b")).await;
    rig.happen(a.id, reprioritise(1), at(1)).await;
    let steps = vec![
        step(&b, reprioritise(5), at(1)),
        step(&a, reprioritise(5), at(1)),
        Step::insert(vec![job("c").new_job()]),
    ];
    let verdicts = rig.commit(steps, at(1)).await;
    assert_eq!(verdicts, [done(), Verdict::Stale, Verdict::Done(vec![new_id(3)])]);
    assert_eq!(priority_of(rig, a.id).await, 1);
    assert_eq!(priority_of(rig, b.id).await, 5);
}

pub(super) async fn steps_see_what_earlier_ones_did(rig: &Rig) {
    let v1 = rig.push(job("a").unique("k")).await;
    let v2 = Arc::new(after(&v1, reprioritise(1), at(1)).expect("an update keeps the job"));
    let steps = vec![
        step(&v1, reprioritise(1), at(1)),
        step(&v1, reprioritise(2), at(1)),
        step(&v2, cancel(), at(1)),
        Step::insert(vec![job("b").unique("k").new_job()]),
        Step::insert(vec![job("c").unique("k").new_job()]),
    ];
    let verdicts = rig.commit(steps, at(1)).await;
    assert_eq!(
        verdicts[..3],
        [done(), Verdict::Stale, done()],
        "each step sees the versions earlier ones left"
    );
    assert_eq!(inserted(&verdicts[3]), [new_id(2)], "the cancelled job had let go of its key");
    assert_eq!(inserted(&verdicts[4]), [existing(2)]);
}

pub(super) async fn inserts_see_the_changes_of_their_step(rig: &Rig) {
    let holder = rig.push(job("a").unique("k").alias("n")).await;
    let mut swap = step(&holder, Event::Delete, at(0));
    swap.inserts.push(job("b").unique("k").alias("n").new_job());
    assert_eq!(rig.commit_one(swap, at(0)).await, Verdict::Done(vec![new_id(2)]));
    assert!(rig.find(holder.id).await.is_none());
}

pub(super) async fn changes_of_one_step_may_follow_each_other(rig: &Rig) {
    let v1 = rig.push(job("a")).await;
    let v2 = Arc::new(after(&v1, reprioritise(1), at(1)).expect("an update keeps the job"));
    let twice = [change(&v1, reprioritise(1)), change(&v2, reprioritise(2))];
    let verdict =
        rig.commit_one(Step { changes: twice.into_iter().collect(), ..Step::default() }, at(1)).await;
    assert_eq!(verdict, done());
    assert_eq!(priority_of(rig, v1.id).await, 2);

    let v3 = rig.get(v1.id).await;
    let rivals = [change(&v3, reprioritise(3)), change(&v3, reprioritise(4))];
    let verdict =
        rig.commit_one(Step { changes: rivals.into_iter().collect(), ..Step::default() }, at(1)).await;
    assert_eq!(verdict, Verdict::Stale, "the second change starts from a version that the first replaces");
    assert_eq!(rig.get(v1.id).await, v3);
}

pub(super) async fn a_job_that_is_gone_stays_gone(rig: &Rig) {
    let a = rig.push(job("a")).await;
    assert_eq!(rig.commit_one(step(&a, Event::Delete, at(0)), at(0)).await, done());
    assert!(rig.find(a.id).await.is_none());
    let late = [step(&a, Event::Delete, at(1)), step(&a, reprioritise(3), at(1)), step(&a, cancel(), at(1))];
    assert_eq!(rig.commit(late.into(), at(1)).await, [Verdict::Stale, Verdict::Stale, Verdict::Stale]);
    assert!(rig.find(a.id).await.is_none());
    assert!(rig.claim(ask(), at(1)).await.is_empty());
}

pub(super) async fn empty_requests_are_answered(rig: &Rig) {
    assert_eq!(rig.commit(vec![], at(0)).await, []);
    assert_eq!(rig.commit(vec![Step::default(), Step::default()], at(0)).await, [done(), done()]);
    assert_eq!(rig.store.load(vec![]).await.expect("load"), []);
    let due = rig.store.due(at(0), 10).await.expect("due");
    assert!(due.jobs.is_empty() && due.next.is_none(), "nothing is planned in an empty store: {due:?}");
}

pub(super) async fn of_rival_commits_one_wins(rig: &Rig) {
    let a = rig.push(job("a")).await;
    let rivals = (0..20).map(|priority| {
        let (store, step) = (rig.store.clone(), step(&a, reprioritise(priority), at(1)));
        tokio::spawn(async move { store.commit(vec![step], at(1)).await })
    });
    let mut winners = Vec::new();
    for (priority, rival) in rivals.collect::<Vec<_>>().into_iter().enumerate() {
        let verdicts = rival.await.expect("the task ran").expect("commit");
        if verdicts == [done()] {
            winners.push(priority as i32);
        }
    }
    assert_eq!(
        winners,
        [priority_of(rig, a.id).await],
        "one of twenty commits from the same version is done"
    );
}

fn change(before: &Arc<windlass_core::Job>, event: Event) -> Change {
    Change { before: before.clone(), after: after(before, event, at(1)).map(Arc::new), keys: KeyRule::Yield }
}
