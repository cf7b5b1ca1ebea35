//! Leases: their length, their end, and the reports that come late.

use super::*;

/// Number of times a job is handed out to workers that die, and the attempts it then shows.
fn hand_outs(lapse_attempts: i8) -> (usize, u32) {
    let mut job = on_lapse(OnLapse::RunAgain, lapse_attempts);
    for count in 1..20 {
        job = lapsed_after(&job, 10_000 * count as i64);
        if state(&job) == "failed" {
            return (count, job.progress.attempts);
        }
    }
    (20, job.progress.attempts)
}

#[test]
fn a_lease_that_ends_in_an_outage_does_not_cost_the_last_attempt() {
    let last = job_with(|policy| policy.retry.max_attempts = Some(1));
    let running = claimed(&last, 0);
    let Event::Lapse { token, chance } = lapse(&running) else { panic!("no lapse") };
    assert_eq!(state(&after(&running, lapse(&running), 1_000)), "failed");
    let spared = after(&running, Event::LapseInOutage { token, chance }, 1_000);
    assert_eq!((state(&spared), spared.progress.attempts), ("ready", 0));
    assert_eq!(spared.body.as_ref().unwrap().errors[0].attempt, 1, "the attempt that was spared");
    assert_eq!(spared.version, running.version + 1);
    assert_eq!(refusal(&running, Event::LapseInOutage { token, chance }, 999), Refused::LeaseLive);
    let early = claimed(&job(), 0);
    let Event::Lapse { token, chance } = lapse(&early) else { panic!("no lapse") };
    let counted = after(&early, Event::LapseInOutage { token, chance }, 1_000);
    assert_eq!((state(&counted), counted.progress.attempts), ("ready", 1), "attempts are left");
    let strict = job_with(|policy| {
        policy.retry.max_attempts = Some(1);
        policy.lease.on_lapse = OnLapse::Fail;
    });
    let running = claimed(&strict, 0);
    let Event::Lapse { token, chance } = lapse(&running) else { panic!("no lapse") };
    assert_eq!(state(&after(&running, Event::LapseInOutage { token, chance }, 1_000)), "failed");
}

#[test]
fn what_a_lapse_means_is_the_policys_choice() {
    let with_backoff = job_with(|policy| {
        policy.lease.on_lapse = OnLapse::Fail;
        policy.retry.backoff = Backoff::Fixed { delay_ms: 700 };
    });
    assert_eq!(run_at(&lapsed_after(&on_lapse(OnLapse::RunAgain, 0), 10)), 1_010);
    assert_eq!(run_at(&lapsed_after(&with_backoff, 10)), 1_710);
    let running = claimed(&on_lapse(OnLapse::AtLeaseEnd, 0), 10);
    assert_eq!(run_at(&after(&running, lapse(&running), 7_000)), 1_010, "when the lease ended");
    let in_line = lapsed_after(&on_lapse(OnLapse::BackInLine, 0), 10);
    assert_eq!((run_at(&in_line), in_line.progress.updated_at), (0, at(1_010)));
    assert_eq!(run_at(&lapsed_after(&in_line, 2_000)), 0);
    assert_eq!(state(&lapsed_after(&on_lapse(OnLapse::BackInLine, 2), 10)), "failed");
    assert_eq!(state(&lapsed_after(&on_lapse(OnLapse::GiveUp, 0), 10)), "failed");
}

#[test]
fn a_lapse_is_counted_once_twice_or_not_at_all() {
    assert_eq!(hand_outs(0), (3, 3));
    assert_eq!(hand_outs(1), (2, 4));
    assert_eq!(hand_outs(-1), (20, 0));
}

#[test]
fn the_error_of_a_lapse_names_the_attempt_that_lapsed() {
    for lapse_attempts in [-1, 0, 1] {
        let job = lapsed_after(&on_lapse(OnLapse::RunAgain, lapse_attempts), 10);
        assert_eq!(job.body.as_ref().unwrap().errors[0].attempt, 1);
    }
}

#[test]
fn a_lapse_before_the_leases_end_or_of_another_lease_is_refused() {
    let running = claimed(&job(), 0);
    assert_eq!(refusal(&running, lapse(&running), 999), Refused::LeaseLive);
    let stranger = Event::Lapse { token: Token::from_number(1), chance: 0.0 };
    assert_eq!(refusal(&running, stranger, 5_000), Refused::LeaseLost);
    let for_ever = claimed(&job_with(|policy| policy.lease.length_ms = None), 0);
    assert_eq!(refusal(&for_ever, lapse(&for_ever), 5_000_000), Refused::LeaseLive);
}

#[test]
fn extending_never_shortens() {
    let running = claimed(&job(), 0);
    let until = |job: &Job| lease(job).until.map(Timestamp::as_millis);
    assert_eq!(until(&after(&running, extend(holder(&running), 300), 100)), Some(1_000));
    assert_eq!(until(&after(&running, extend(holder(&running), -5), 100)), Some(1_000));
    assert_eq!(until(&after(&running, extend(holder(&running), 3_000), 100)), Some(3_100));
    let by_policy = Event::Extend { by: holder(&running), lease_ms: None };
    assert_eq!(until(&after(&running, by_policy, 100)), Some(1_100));
    let for_ever = claimed(&job_with(|policy| policy.lease.length_ms = None), 0);
    assert_eq!(until(&after(&for_ever, extend(holder(&for_ever), 300), 100)), None);
}

#[test]
fn once_the_lease_is_over_its_holder_has_no_say_noticed_or_not() {
    let running = claimed(&job(), 0);
    let noticed = lapsed_after(&job(), 0);
    let by = holder(&running);
    for event in [
        extend(by, 10),
        report(by),
        finish(by),
        fail(by, RetryWish::Policy),
        release(by, 0, false),
        suspend(by),
    ] {
        assert!(apply(&running, event.clone(), at(999)).is_ok(), "{event:?}");
        assert_eq!(refusal(&running, event.clone(), 1_000), Refused::LeaseLost, "{event:?}");
        assert_eq!(refusal(&noticed, event.clone(), 1_000), Refused::LeaseLost, "{event:?}");
    }
}

#[test]
fn a_late_end_counts_where_the_policy_accepts_it_until_someone_else_has_the_job() {
    let job = job_with(|policy| policy.lease.accept_late = true);
    let unnoticed = claimed(&job, 0);
    let noticed = lapsed_after(&job, 0);
    let by = holder(&unnoticed);
    for late in [&unnoticed, &noticed] {
        assert_eq!(state(&after(late, finish(by), 9_000)), "completed");
        assert_eq!(state(&after(late, fail(by, RetryWish::Never), 9_000)), "failed");
        assert_eq!(state(&after(late, suspend(by), 9_000)), "suspended");
        assert_eq!(run_at(&after(late, release(by, 9_500, true), 9_000)), 9_500);
        assert_eq!(refusal(late, extend(by, 10), 9_000), Refused::LeaseLost);
        assert_eq!(refusal(late, report(by), 9_000), Refused::LeaseLost);
    }
    let given_on = claimed(&noticed, 2_000);
    assert_eq!(refusal(&given_on, finish(by), 2_001), Refused::LeaseLost);
    assert_eq!(refusal(&after(&noticed, requeue(2_000), 2_000), finish(by), 2_001), Refused::LeaseLost);
}

#[test]
fn a_run_asked_for_during_a_run_that_lapsed_is_not_lost() {
    let job = job_with(|policy| {
        policy.lease.accept_late = true;
        policy.lease.on_lapse = OnLapse::GiveUp;
    });
    let running = claimed(&job, 0);
    let asked = after(&running, run_it(10), 10);
    let again = after(&asked, lapse(&asked), 1_000);
    assert_eq!(run_at(&again), 1_000);
    assert_eq!(refusal(&again, finish(holder(&running)), 1_001), Refused::LeaseLost);
}

#[test]
fn a_renewed_lease_runs_from_now_be_it_shorter_and_in_other_hands() {
    let running = claimed(&job(), 0);
    let event = Event::Renew { by: holder(&running), lease_ms: Some(50), worker: Some("w2".into()) };
    let renewed = after(&running, event, 400);
    assert_eq!(lease(&renewed).until, Some(at(450)));
    assert_eq!(lease(&renewed).worker.as_deref(), Some("w2"));
    assert_eq!(lease(&renewed).token, lease(&running).token);
    assert_eq!(refusal(&renewed, renew(holder(&renewed), 50), 450), Refused::LeaseLost);
}
