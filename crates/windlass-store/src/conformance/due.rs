//! Deadlines, the next due time, and notifications of the listener.

use super::fixtures::{Draft, Rig, at, finish, id, ids, job, queue};
use crate::Due;
use std::collections::BTreeSet;
use windlass_core::event::{CancelRunning, Patch, Suspend};
use windlass_core::{Event, Holder, KeepFor, StateName, Tenant, Timestamp};

async fn due(rig: &Rig, now: Timestamp) -> Due {
    rig.store.due(now, 100).await.expect("due")
}

async fn expect_due(rig: &Rig, now: i64, expected: &[u64]) {
    let mut found = ids(&due(rig, at(now)).await.jobs);
    found.sort_unstable();
    assert_eq!(found, expected, "jobs that are due at {now}");
}

async fn expect_next(rig: &Rig, now: i64, expected: Option<i64>, why: &str) {
    let due = due(rig, at(now)).await;
    assert!(due.jobs.is_empty(), "nothing is due at {now} yet: {:?}", ids(&due.jobs));
    assert_eq!(due.next, expected.map(at), "the next moment after {now}: {why}");
}

fn cancel() -> Event {
    Event::Cancel { running: CancelRunning::Now, failed_too: false }
}

pub(super) async fn an_ended_lease_is_due_then_and_not_before(rig: &Rig) {
    rig.insert(vec![job("a").lease_ms(Some(100)), job("b").lease_ms(Some(200)), job("c").lease_ms(None)])
        .await;
    rig.claim(super::fixtures::ask(), at(0)).await;
    expect_next(rig, 99, Some(100), "the first lease ends").await;
    expect_due(rig, 100, &[1]).await;
    expect_due(rig, 100, &[1]).await;
    expect_due(rig, 250, &[1, 2]).await;

    let lapsing = rig.get(id(1)).await;
    assert_eq!(due(rig, at(100)).await.jobs[0], lapsing, "the job comes as it stands");
    let token = lapsing.state().lease().expect("it is running").token;
    rig.happen(id(1), Event::Lapse { token, chance: 0.0 }, at(250)).await;
    expect_due(rig, 250, &[2]).await;
    rig.happen(id(2), Event::Requeue { at: at(250), even_running: true }, at(250)).await;
    expect_due(rig, 99_999, &[]).await;
}

pub(super) async fn a_suspended_job_is_due_at_its_time(rig: &Rig) {
    rig.insert(vec![job("a"), job("b"), job("c")]).await;
    rig.claim(super::fixtures::ask(), at(0)).await;
    for (number, until) in [(1, Some(at(100))), (2, Some(at(200))), (3, None)] {
        let suspend = Suspend { by: Holder::Anyone, until, wait: None };
        rig.happen(id(number), Event::Suspend(suspend), at(10)).await;
    }
    expect_next(rig, 99, Some(100), "the first job wakes").await;
    expect_due(rig, 100, &[1]).await;
    expect_due(rig, 250, &[1, 2]).await;
    assert_eq!(due(rig, at(100)).await.jobs[0], rig.get(id(1)).await, "the job comes as it stands");
    rig.happen(id(1), Event::Wake, at(100)).await;
    expect_due(rig, 250, &[2]).await;
    rig.happen(id(2), Event::Run { at: at(150), force: false }, at(150)).await;
    expect_due(rig, 99_999, &[]).await;
}

pub(super) async fn a_lease_made_longer_is_due_later(rig: &Rig) {
    rig.insert(vec![job("a").lease_ms(Some(100)), job("b").lease_ms(Some(100)).keep_all(KeepFor::Ever)])
        .await;
    rig.claim(super::fixtures::ask(), at(0)).await;
    rig.happen(id(1), Event::Extend { by: Holder::Anyone, lease_ms: Some(100) }, at(60)).await;
    rig.happen(id(2), finish(), at(60)).await;
    expect_next(rig, 100, Some(160), "one lease was extended, the other is over").await;
    expect_due(rig, 160, &[1]).await;
}

pub(super) async fn a_settled_job_is_due_when_its_keep_time_is_over(rig: &Rig) {
    let settled = [StateName::Completed, StateName::Failed, StateName::Cancelled];
    for (keep_ms, state) in [10, 20, 30].into_iter().zip(settled) {
        rig.job_in(state, job("a").keep_all(KeepFor::Ms(keep_ms))).await;
        rig.job_in(state, job("b").keep_all(KeepFor::Ever)).await;
    }
    expect_next(rig, 9, Some(10), "the first keep time is over").await;
    expect_due(rig, 10, &[1]).await;
    expect_due(rig, 30, &[1, 3, 5]).await;
    rig.happen(id(1), Event::Expire, at(30)).await;
    rig.happen(id(3), Event::Requeue { at: at(0), even_running: false }, at(30)).await;
    expect_due(rig, 99_999, &[5]).await;
    rig.happen(id(5), Event::Expire, at(99_999)).await;
    expect_next(rig, 99_999, None, "the rest is kept for ever").await;
}

pub(super) async fn next_is_the_earliest_moment_planned(rig: &Rig) {
    expect_next(rig, 0, None, "the store is empty").await;
    rig.push(job("a").run_at(500)).await;
    expect_next(rig, 0, Some(500), "a delayed job").await;
    rig.push(job("b").lease_ms(Some(300))).await;
    rig.claim_one(at(0)).await;
    expect_next(rig, 0, Some(300), "a lease").await;
    rig.job_in(StateName::Completed, job("c").keep_all(KeepFor::Ms(200))).await;
    expect_next(rig, 0, Some(200), "a keep time").await;
    rig.push(job("d").run_at(100)).await;
    expect_next(rig, 0, Some(100), "another delayed job").await;

    rig.happen(id(4), Event::Delete, at(0)).await;
    rig.happen(id(3), Event::Delete, at(0)).await;
    rig.happen(id(2), Event::Extend { by: Holder::Anyone, lease_ms: Some(900) }, at(0)).await;
    let sooner = Patch { run_at: Some(at(400)), ..Patch::default() };
    rig.happen(id(1), Event::Update(Box::new(sooner)), at(0)).await;
    let next = due(rig, at(0)).await.next.expect("a delayed job and a lease are planned");
    assert!(next > at(0) && next <= at(400), "the job at 400 must not be missed: {next}");
    let next = due(rig, at(400)).await.next.expect("a lease is planned");
    assert!(next > at(400) && next <= at(900), "the lease that ends at 900 must not be missed: {next}");
    expect_due(rig, 900, &[2]).await;
}

pub(super) async fn what_the_limit_cuts_off_comes_with_the_next_call(rig: &Rig) {
    rig.insert((0..10).map(|n| job("a").lease_ms(Some(10 + n))).collect()).await;
    rig.claim(super::fixtures::ask(), at(0)).await;
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let part = rig.store.due(at(50), 3).await.expect("due");
        assert!(part.jobs.len() <= 3, "at most as many as asked for");
        assert!(seen.len() == 10 || !part.jobs.is_empty(), "there are more");
        for job in part.jobs {
            assert!(seen.insert(job.id), "job {} was dealt with", job.id);
            let token = job.state().lease().expect("it is running").token;
            rig.happen(job.id, Event::Lapse { token, chance: 0.0 }, at(50)).await;
        }
    }
    assert_eq!(seen.len(), 10, "all have come by now");
}

pub(super) async fn the_listener_hears_of_jobs_that_can_be_claimed_at_once(rig: &Rig) {
    let ears = rig.listen();
    rig.push(job("new")).await;
    ears.hear("new", "it was inserted and is due").await;
    rig.claim_one(at(0)).await;
    rig.happen(id(1), Event::Release { by: Holder::Anyone, run_at: at(0), counts: false }, at(0)).await;
    ears.hear("new", "it was given back").await;
    rig.happen(id(1), cancel(), at(0)).await;
    rig.happen(id(1), Event::Requeue { at: at(0), even_running: false }, at(0)).await;
    ears.hear("new", "it was requeued").await;

    rig.job_in(StateName::Suspended, job("suspended")).await;
    ears.hear("suspended", "it was inserted and is due").await;
    rig.happen(id(2), Event::Terminate, at(0)).await;
    ears.hear("suspended", "it waits for its last run").await;

    rig.job_in(StateName::Waiting, job("waiting")).await;
    rig.happen(id(3), Event::ParentPaused, at(0)).await;
    ears.hear("waiting", "it need not wait any longer").await;

    rig.push(job("put off").run_at(1_000)).await;
    rig.happen(id(4), Event::Run { at: at(5), force: false }, at(5)).await;
    ears.hear("put off", "it is to run now").await;
}

pub(super) async fn the_listener_hears_once_of_all_jobs_of_a_commit(rig: &Rig) {
    let ears = rig.listen();
    let (many, few) = (|| job("many"), || job("few"));
    rig.insert(vec![many(), few(), many(), many().run_at(1_000), few(), many().priority(3)]).await;
    let is_right = |heard: Option<usize>, count: usize| match heard {
        Some(heard) => heard == count,
        // A poll for the jobs of other servers came between.
        None => rig.store.shared().is_some(),
    };
    assert!(is_right(ears.hear("many", "three of four are due").await, 3));
    assert!(is_right(ears.hear("few", "they were inserted and are due").await, 2));
    rig.insert(vec![many()]).await;
    assert!(is_right(ears.hear("many", "one more was inserted").await, 1));
}

pub(super) async fn the_listener_hears_of_delayed_jobs_at_their_time(rig: &Rig) {
    let ears = rig.listen();
    rig.insert(vec![job("a").run_at(100), job("b").run_at(101), job("c").run_at(101)]).await;
    due(rig, at(100)).await;
    ears.hear("a", "its time came, to the millisecond").await;
    due(rig, at(101)).await;
    ears.hear("b", "its time came").await;
    ears.hear("c", "its time came").await;
    // A call that read its clock earlier may be executed later.
    due(rig, at(250)).await;
    rig.insert(vec![job("late").run_at(230)]).await;
    due(rig, at(251)).await;
    ears.hear("late", "it was put where the last look had been already").await;

    let hour_ms = 3_600_000;
    due(rig, at(2 * hour_ms)).await;
    rig.insert(vec![job("again").run_at(hour_ms)]).await;
    due(rig, at(0)).await;
    ears.forget();
    due(rig, at(hour_ms)).await;
    ears.hear("again", "its time came after the clock was set back").await;
}

pub(super) async fn the_listener_hears_when_a_queue_goes_on(rig: &Rig) {
    let ears = rig.listen();
    let pause = async |paused| {
        rig.store.set_paused(&Tenant::default(), &queue("default"), paused).await.expect("set_paused");
    };
    let insert = async |draft: Draft| rig.push(draft).await;
    pause(true).await;
    insert(job("a")).await;
    insert(job("b").run_at(100)).await;
    due(rig, at(100)).await;
    pause(false).await;
    ears.hear("a", "its queue goes on").await;
    ears.hear("b", "its queue goes on, and its time came during the pause").await;
}
