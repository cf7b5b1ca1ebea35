//! Effects between parents and children.

use super::*;

const WAITS: FamilyRule = FamilyRule::ParentWaits { failure_settles: true };
const WAITS_FOR_SUCCESS: FamilyRule = FamilyRule::ParentWaits { failure_settles: false };
const RUNS_AFTER: FamilyRule = FamilyRule::ParentRunsAfter;

fn child(rule: FamilyRule) -> Job {
    child_with(rule, false, |_| {})
}

fn told(job: &Job, event: Event) -> Option<ParentEffect> {
    effects(job, event, 100).parent
}

fn settled() -> Option<ParentEffect> {
    Some(ParentEffect::Settled(id(1)))
}

fn reopened() -> Option<ParentEffect> {
    Some(ParentEffect::Reopened(id(1)))
}

/// Running parent, with a child that waits for the end of that run.
fn parent() -> Job {
    after(&claimed(&job(), 0), Event::ChildAdded, 5)
}

#[test]
fn a_waiting_parent_hears_once_that_its_child_is_settled() {
    let ready = child(WAITS);
    let running = claimed(&ready, 0);
    let by = holder(&running);
    assert_eq!(told(&ready, claim_for(None)), None);
    assert_eq!(told(&running, fail(by, RetryWish::Policy)), None);
    assert_eq!(told(&running, finish(by)), settled());
    assert_eq!(told(&running, fail(by, RetryWish::Never)), settled());
    assert_eq!(told(&running, cancel(NOW)), settled());
    assert_eq!(told(&ready, cancel(ASK)), settled());
    assert_eq!(told(&ready, Event::Delete), settled());
    let completed = after(&running, finish(by), 10);
    assert_eq!(told(&completed, Event::Delete), None);
    let failed = after(&running, fail(by, RetryWish::Never), 10);
    assert_eq!(told(&failed, Event::Cancel { running: ASK, failed_too: true }), None);
}

#[test]
fn a_child_that_is_not_kept_tells_its_parent_too() {
    let child = child_with(WAITS, false, |policy| policy.keep.completed = KeepFor::Drop);
    let running = claimed(&child, 0);
    let end = outcome_of(&running, finish(holder(&running)), 10);
    assert_eq!((end.job, end.effects.parent), (None, settled()));
}

#[test]
fn where_failure_does_not_settle_the_parent_goes_on_waiting() {
    let running = claimed(&child(WAITS_FOR_SUCCESS), 0);
    let by = holder(&running);
    assert_eq!(told(&running, fail(by, RetryWish::Never)), Some(ParentEffect::Failed(id(1))));
    let failed = after(&running, fail(by, RetryWish::Never), 10);
    assert_eq!(told(&failed, update(|patch| patch.priority = Some(1))), None);
    assert_eq!(told(&failed, requeue(20)), reopened());
    let written_off = Some(ParentEffect::WrittenOff(id(1)));
    assert_eq!(told(&failed, Event::Delete), written_off);
    assert_eq!(told(&failed, Event::Cancel { running: ASK, failed_too: true }), written_off);
    assert_eq!(told(&failed, update(|patch| patch.family = Some(None))), written_off);
}

#[test]
fn a_failure_is_not_waited_for_but_does_not_make_the_parent_run() {
    let parent = after(&parent(), Event::ChildAdded, 6);
    let waiting = after(&parent, finish(holder(&parent)), 10);
    let one_failed = after(&waiting, Event::ChildFailed, 20);
    assert_eq!((state(&one_failed), one_failed.progress.pending_children), ("waiting", 1));
    assert_eq!(
        state(&after(&one_failed, Event::ChildSettled, 30)),
        "ready",
        "the other was the last pending one"
    );
    assert_eq!(state(&after(&one_failed, Event::ChildWrittenOff, 30)), "waiting", "the other is pending");
    let both_failed = after(&one_failed, Event::ChildFailed, 30);
    assert_eq!((state(&both_failed), both_failed.progress.pending_children), ("waiting", 0));
    assert_eq!(state(&after(&both_failed, Event::ChildWrittenOff, 40)), "ready");
    let reopened = after(&both_failed, Event::ChildAdded, 40);
    assert_eq!(state(&after(&reopened, Event::ChildSettled, 50)), "ready");
}

#[test]
fn a_settled_child_that_starts_over_reopens_the_count() {
    let running = claimed(&child(WAITS), 0);
    let completed = after(&running, finish(holder(&running)), 10);
    assert_eq!(told(&completed, requeue(20)), reopened());
    assert_eq!(told(&completed, run_it(20)), reopened());
    assert_eq!(told(&completed, Event::Terminate), reopened());
    let cancelled = after(&child(WAITS), cancel(NOW), 10);
    assert_eq!(told(&cancelled, force_it(20)), reopened());
}

#[test]
fn a_child_that_changes_its_parent_is_no_longer_waited_for() {
    let leave = || update(|patch| patch.extras = Some(Box::default()));
    assert_eq!(told(&child(WAITS), leave()), settled());
    assert_eq!(told(&child(RUNS_AFTER), leave()), None);
    assert_eq!(told(&after(&child(WAITS), cancel(NOW), 10), leave()), None);
    let extras = child(WAITS).spec.extras.clone();
    let join = || update(|patch| patch.extras.clone_from(&extras));
    assert_eq!(told(&job(), join()), reopened());
    assert_eq!(told(&child(WAITS), join()), None);
    // No event would ever tell it that its parent's run is over.
    assert_eq!(state(&after(&child_with(WAITS, true, |_| {}), leave(), 10)), "ready");
}

#[test]
fn a_parent_that_runs_after_hears_of_every_run_that_ended() {
    let run = Some(ParentEffect::Run(id(1)));
    let running = claimed(&child(RUNS_AFTER), 0);
    let by = holder(&running);
    for event in
        [finish(by), fail(by, RetryWish::Policy), fail(by, RetryWish::Never), suspend(by), cancel(NOW)]
    {
        assert_eq!(told(&running, event), run);
    }
    let with_children = after(&running, Event::ChildAdded, 10);
    assert_eq!(told(&with_children, finish(by)), run);
    let shutdown = claimed(&after(&running, take_away(10), 10), 10);
    let shutdown =
        claimed(&after(&after(&shutdown, Event::Terminate, 10), finish(holder(&shutdown)), 10), 10);
    assert_eq!(told(&shutdown, finish(holder(&shutdown))), run);
    for event in [release(by, 10, true), extend(by, 10), report(by)] {
        assert_eq!(told(&running, event), None);
    }
    assert_eq!(effects(&running, lapse(&running), 1_000).parent, None);
}

#[test]
fn a_parent_waits_for_its_children_and_runs_once_more() {
    let parent = after(&parent(), Event::ChildAdded, 6);
    let end = outcome_of(&parent, finish(holder(&parent)), 10);
    assert_eq!(end.effects.children, Some(ChildrenEffect::Release));
    let waiting = end.job.unwrap();
    assert_eq!(state(&waiting), "waiting");
    let one_left = after(&waiting, Event::ChildSettled, 20);
    assert_eq!(state(&one_left), "waiting");
    let again = after(&one_left, Event::ChildSettled, 30);
    assert_eq!((run_at(&again), again.progress.attempts), (0, 0), "as old as its last run");
    let last = claimed(&again, 30);
    let end = outcome_of(&last, finish(holder(&last)), 40);
    assert_eq!(end.effects.children, None, "its children keep to their own keep times");
    assert_eq!(state(&end.job.unwrap()), "completed");
}

#[test]
fn the_policy_of_a_parent_says_whether_its_settled_children_are_deleted() {
    let forget = Some(ChildrenEffect::ForgetSettled);
    let disband = Some(ChildrenEffect::Disband);
    let orphan = Some(ChildrenEffect::Orphan);
    for (forget_children, completed, repeats, expected) in [
        (None, KeepFor::Ever, false, None),
        (None, KeepFor::Ms(0), false, None),
        (None, KeepFor::Ever, true, None),
        (None, KeepFor::Drop, false, disband),
        (None, KeepFor::Drop, true, forget),
        (Some(true), KeepFor::Ever, false, forget),
        (Some(true), KeepFor::Ever, true, forget),
        (Some(false), KeepFor::Drop, false, orphan),
        (Some(false), KeepFor::Drop, true, None),
    ] {
        let job = claimed(
            &job_with(|policy| {
                policy.forget_children = forget_children;
                policy.keep.completed = completed;
                policy.repeat = repeats.then(|| Repeat::parse("every 1s").unwrap());
            }),
            0,
        );
        let got = effects(&job, finish(holder(&job)), 10).children;
        assert_eq!(got, expected, "{forget_children:?} {completed:?} {repeats}");
    }
}

#[test]
fn children_that_settle_while_the_parent_runs_need_no_further_run() {
    let parent = after(&parent(), Event::ChildSettled, 10);
    assert_eq!(state(&parent), "running");
    assert_eq!(state(&after(&parent, finish(holder(&parent)), 20)), "completed");
}

#[test]
fn a_child_held_by_its_parent_starts_at_its_own_time() {
    let held = child_with(WAITS, true, |_| {});
    let later = after(&held, update(|patch| patch.run_at = Some(at(500))), 10);
    assert_eq!(state(&later), "waiting");
    assert_eq!(run_at(&after(&later, Event::ParentPaused, 20)), 500);
}

#[test]
fn a_job_that_waits_for_its_own_children_is_not_started_by_its_parent() {
    let running = after(&claimed(&child(WAITS), 0), Event::ChildAdded, 5);
    let waiting = after(&running, finish(holder(&running)), 10);
    assert_eq!(refusal(&waiting, Event::ParentPaused, 20), Refused::HasChildren);
    let beside_a_failed_one = after(&waiting, Event::ChildFailed, 20);
    assert_eq!(state(&beside_a_failed_one), "waiting");
    assert_eq!(refusal(&beside_a_failed_one, Event::ParentPaused, 30), Refused::HasChildren);
}

#[test]
fn children_are_let_go_however_the_parents_run_ends() {
    let parent = parent();
    let asked = after(&parent, cancel(ASK), 6);
    let ready = after(&parent, release(holder(&parent), 10, true), 10);
    let doomed = after(&parent, Event::Terminate, 6);
    for (job, event) in [
        (&parent, finish(holder(&parent))),
        (&parent, fail(holder(&parent), RetryWish::Never)),
        (&parent, suspend(holder(&parent))),
        (&parent, cancel(NOW)),
        (&asked, finish(holder(&parent))),
        (&asked, fail(holder(&parent), RetryWish::Policy)),
        (&ready, cancel(ASK)),
        (&ready, Event::Terminate),
        (&doomed, finish(holder(&parent))),
    ] {
        let children = effects(job, event.clone(), 20).children;
        assert_eq!(children, Some(ChildrenEffect::Release), "{event:?}");
    }
    // The parent runs again, and the children wait for the end of that run.
    for event in [fail(holder(&parent), RetryWish::Policy), release(holder(&parent), 10, true)] {
        assert_eq!(effects(&parent, event, 20).children, None);
    }
}

#[test]
fn children_of_a_job_that_is_gone_are_orphans() {
    let orphan = Some(ChildrenEffect::Orphan);
    let not_kept = job_with(|policy| {
        policy.keep = Keep { completed: KeepFor::Ms(50), failed: KeepFor::Drop, cancelled: KeepFor::Drop };
    });
    let parent = after(&claimed(&not_kept, 0), Event::ChildAdded, 5);
    assert_eq!(effects(&parent, fail(holder(&parent), RetryWish::Never), 10).children, orphan);
    assert_eq!(effects(&parent, cancel(NOW), 10).children, orphan);
    assert_eq!(effects(&not_kept, Event::Delete, 10).children, orphan);
    let running = claimed(&not_kept, 0);
    let completed = after(&running, finish(holder(&running)), 10);
    assert_eq!(effects(&completed, Event::Expire, 60).children, orphan);
}

#[test]
fn a_parent_with_pending_children_is_neither_cancelled_nor_deleted_by_accident() {
    let waiting = after(&parent(), finish(holder(&parent())), 10);
    assert_eq!(refusal(&waiting, cancel(NOW), 20), Refused::HasChildren);
    assert_eq!(refusal(&waiting, Event::Delete, 20), Refused::HasChildren);
    assert_eq!(refusal(&waiting, requeue(20), 20), Refused::HasChildren);
    assert_eq!(state(&after(&waiting, take_away(20), 20)), "ready");
}

#[test]
fn a_child_may_be_given_to_another_parent_and_to_none() {
    let waits = FamilyRule::ParentWaits { failure_settles: true };
    let child = child_with(waits, false, |_| {});
    let freed = outcome_of(&child, update(|patch| patch.family = Some(None)), 0);
    assert_eq!(freed.effects.parent, Some(ParentEffect::Settled(id(1))), "the parent need not wait for it");
    let freed = freed.job.unwrap();
    assert_eq!(freed.spec.family(), None);
    let family = Family { parent: id(9), child_name: Some("c".into()), rule: waits };
    let adopted = outcome_of(&freed, update(|patch| patch.family = Some(Some(family.clone()))), 0);
    assert_eq!(adopted.effects.parent, Some(ParentEffect::Reopened(id(9))));
    assert_eq!(adopted.job.unwrap().spec.family(), Some(&family));
}

#[test]
fn a_change_that_is_meant_for_one_version_leaves_another_alone() {
    let job = job_with(|_| {});
    let update = |version: u64| {
        let patch = Patch { run_at: Some(at(9)), if_version: Some(version), ..Patch::default() };
        apply(&job, Event::Update(Box::new(patch)), at(1))
    };
    assert!(update(job.version).is_ok());
    assert!(matches!(update(job.version + 1), Err(Refused::NotDue)));
}
