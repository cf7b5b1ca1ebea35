//! Subtle rules of a single job.

use super::*;

const POLICY: RetryWish = RetryWish::Policy;

fn failed_at(job: &Job, retry: RetryWish, ms: i64) -> Job {
    let running = claimed(job, ms);
    after(&running, fail(holder(&running), retry), ms)
}

fn finished_at(job: &Job, began: i64, ended: i64) -> Job {
    let running = claimed(job, began);
    after(&running, finish(holder(&running)), ended)
}

// --- attempts and time -------------------------------------------------------------------------------------

#[test]
fn the_bound_on_attempts_ends_a_job_that_keeps_failing() {
    let mut job = job();
    for attempt in 1..=2 {
        job = failed_at(&job, POLICY, 10);
        assert_eq!((state(&job), job.progress.attempts), ("ready", attempt));
    }
    let job = failed_at(&job, POLICY, 10);
    assert_eq!((state(&job), job.progress.attempts), ("failed", 3));
}

#[test]
fn a_time_the_worker_asks_for_is_within_the_bound_too() {
    let once = job_with(|policy| policy.retry.max_attempts = Some(1));
    assert_eq!(run_at(&failed_at(&job(), RetryWish::At(at(70)), 10)), 70);
    assert_eq!(state(&failed_at(&once, RetryWish::At(at(70)), 10)), "failed");
    assert_eq!(state(&failed_at(&job(), RetryWish::Never, 10)), "failed");
}

#[test]
fn no_way_to_try_again_passes_the_give_up_time() {
    let job = job_with(|policy| {
        policy.retry.give_up_after_ms = Some(5_000);
        policy.lease.accept_late = true;
    });
    assert_eq!(state(&failed_at(&job, POLICY, 5_000)), "ready");
    assert_eq!(state(&failed_at(&job, POLICY, 5_001)), "failed");
    assert_eq!(state(&failed_at(&job, RetryWish::At(at(5_000)), 10)), "ready");
    assert_eq!(state(&failed_at(&job, RetryWish::At(at(5_001)), 10)), "failed");
    assert_eq!(state(&lapsed_after(&job, 4_000)), "ready");
    assert_eq!(state(&lapsed_after(&job, 4_001)), "failed");
    // The code is the same for all clients, and is not set on a job that ran out of attempts or refused a
    // retry.
    let code = |job: &Job| job.body.as_ref().unwrap().outcome.as_ref().unwrap().code.clone();
    assert_eq!(code(&failed_at(&job, POLICY, 5_001)).as_deref(), Some("timeout"));
    assert_eq!(code(&failed_at(&job, RetryWish::At(at(5_001)), 10)).as_deref(), Some("timeout"));
    assert_eq!(code(&lapsed_after(&job, 4_001)).as_deref(), Some("timeout"));
    assert_eq!(code(&failed_at(&job, POLICY, 5_000)), None);
    assert_eq!(code(&failed_at(&job, RetryWish::Never, 5_001)), None);
    let running = claimed(&job, 10);
    assert_eq!(state(&after(&running, release(holder(&running), 5_000, true), 10)), "ready");
    assert_eq!(state(&after(&running, release(holder(&running), 5_001, true), 10)), "failed");
    // As if the job had not been claimed: there is no attempt to count.
    assert_eq!(state(&after(&running, release(holder(&running), 5_001, false), 10)), "ready");
}

#[test]
fn a_repeating_job_has_its_give_up_time_anew_each_turn() {
    let job = job_with(|policy| {
        policy.repeat = every("every 1h");
        policy.retry.give_up_after_ms = Some(60_000);
    });
    let third_hour = finished_at(&finished_at(&job, 0, 10), 3_600_000, 3_600_010);
    assert_eq!(run_at(&third_hour), 7_200_000);
    assert_eq!(state(&failed_at(&third_hour, POLICY, 7_260_000)), "ready");
    assert_eq!(state(&failed_at(&third_hour, POLICY, 7_260_001)), "failed");
}

#[test]
fn a_release_counts_the_attempt_or_not() {
    let running = claimed(&job(), 10);
    assert_eq!(after(&running, release(holder(&running), 20, true), 10).progress.attempts, 1);
    let back = after(&running, release(holder(&running), 20, false), 10);
    assert_eq!((back.progress.attempts, run_at(&back)), (0, 20));
    let once = claimed(&job_with(|policy| policy.retry.max_attempts = Some(1)), 10);
    assert_eq!(state(&after(&once, release(holder(&once), 20, true), 10)), "failed");
    assert_eq!(state(&after(&once, release(holder(&once), 20, false), 10)), "ready");
}

#[test]
fn requeue_counts_from_zero() {
    let job = failed_at(&failed_at(&job(), POLICY, 10), RetryWish::Never, 20);
    assert_eq!((state(&job), job.progress.attempts), ("failed", 2));
    let job = after(&job, requeue(500), 30);
    assert_eq!((run_at(&job), job.progress.attempts, job.progress.finished_at), (500, 0, None));
    assert_eq!(claimed(&job, 500).progress.attempts, 1);
}

#[test]
fn asking_for_a_run_gives_a_new_life_within_the_same_bound() {
    let once = job_with(|policy| policy.retry.max_attempts = Some(1));
    let running = claimed(&once, 10);
    let asked = after(&running, run_it(15), 15);
    let suspended = after(&running, suspend(holder(&running)), 20);
    for again in [
        after(&finished_at(&once, 10, 20), run_it(30), 30),
        after(&suspended, run_it(30), 30),
        after(&failed_at(&once, POLICY, 10), force_it(30), 30),
        after(&asked, finish(holder(&asked)), 30),
        after(&asked, fail(holder(&asked), POLICY), 30),
        after(&asked, suspend(holder(&asked)), 30),
    ] {
        assert_eq!((state(&again), claimed(&again, 30).progress.attempts), ("ready", 1));
    }
}

#[test]
fn the_last_ten_errors_are_kept() {
    let mut job = job_with(|policy| policy.retry.max_attempts = None);
    for moment in 1..=13 {
        job = failed_at(&job, POLICY, moment);
    }
    let errors = &job.body.as_ref().unwrap().errors;
    let attempts: Vec<u32> = errors.iter().map(|error| error.attempt).collect();
    assert_eq!(attempts, (4..=13).collect::<Vec<u32>>());
}

#[test]
fn versions_grow_by_one_and_tokens_with_them() {
    let ready = job();
    let first = claimed(&ready, 10);
    let back = after(&first, take_away(10), 10);
    let second = claimed(&back, 10);
    assert_eq!([ready.version, first.version, back.version, second.version], [1, 2, 3, 4]);
    assert!(token(&second) > token(&first));
    assert_eq!(refusal(&second, finish(holder(&first)), 11), Refused::LeaseLost);
}

#[test]
fn a_run_asked_for_is_not_put_off_by_a_release() {
    let running = claimed(&job_with(|policy| policy.retry.max_attempts = Some(1)), 0);
    let asked = after(&running, run_it(10), 10);
    assert_eq!(run_at(&after(&asked, release(holder(&asked), 90_000, true), 20)), 20);
}

// --- run, cancel, terminate --------------------------------------------------------------------------------

#[test]
fn asking_for_a_run_brings_it_forward_and_never_puts_it_off() {
    let due = job();
    let delayed = after(&due, update(|patch| patch.run_at = Some(at(9_000))), 0);
    assert_eq!(run_at(&after(&due, run_it(5_000), 10)), 0);
    assert_eq!(run_at(&after(&delayed, run_it(5_000), 10)), 5_000);
    assert_eq!(run_at(&after(&delayed, run_it(10_000), 10)), 9_000);
}

#[test]
fn a_job_asked_to_cancel_is_cancelled_however_its_run_ends_unless_it_finishes() {
    let running = after(&claimed(&job(), 0), cancel(ASK), 10);
    let by = holder(&running);
    assert!(lease(&running).cancel_asked);
    assert_eq!(state(&after(&running, finish(by), 20)), "completed");
    assert_eq!(state(&after(&running, fail(by, POLICY), 20)), "cancelled");
    assert_eq!(state(&after(&running, release(by, 20, true), 20)), "cancelled");
    assert_eq!(state(&after(&running, suspend(by), 20)), "cancelled");
    assert_eq!(state(&after(&running, lapse(&running), 1_000)), "cancelled");
}

#[test]
fn a_finish_of_a_job_asked_to_cancel_does_not_start_it_again() {
    let repeating = claimed(&job_with(|policy| policy.repeat = every("every 1h")), 0);
    let to_run_again = after(&claimed(&job(), 0), run_it(5), 5);
    let parent = after(&claimed(&job(), 0), Event::ChildAdded, 5);
    for running in [repeating, to_run_again, parent] {
        let asked = after(&running, cancel(ASK), 10);
        assert_eq!(state(&after(&asked, finish(holder(&asked)), 20)), "cancelled");
    }
}

#[test]
fn a_terminated_job_has_one_more_run_to_tidy_up() {
    let running = after(&claimed(&job(), 0), Event::Terminate, 10);
    let by = holder(&running);
    for (event, ms) in [
        (finish(by), 20),
        (fail(by, POLICY), 20),
        (release(by, 90_000, true), 20),
        (suspend(by), 20),
        (lapse(&running), 1_000),
        (cancel(NOW), 20),
    ] {
        let terminating = after(&running, event.clone(), ms);
        assert_eq!((state(&terminating), run_at(&terminating)), ("terminating", ms), "{event:?}");
    }
    let shutdown = claimed(&after(&running, finish(by), 20), 20);
    assert_eq!((lease(&shutdown).kind, shutdown.progress.attempts), (RunKind::Shutdown, 1));
    for event in [finish(holder(&shutdown)), fail(holder(&shutdown), POLICY), suspend(holder(&shutdown))] {
        assert_eq!(state(&after(&shutdown, event, 30)), "terminated");
    }
}

#[test]
fn a_shutdown_that_was_cut_short_is_given_again_and_counts_no_attempts() {
    let mut job = after(&on_lapse(OnLapse::GiveUp, 1), Event::Terminate, 0);
    for round in 0..5 {
        job = lapsed_after(&job, 2_000 * round);
        assert_eq!((state(&job), job.progress.attempts), ("terminating", 0));
    }
    let ran_once = after(&claimed(&on_lapse(OnLapse::GiveUp, 1), 0), Event::Terminate, 10);
    let shutdown = claimed(&after(&ran_once, finish(holder(&ran_once)), 20), 30);
    let again = after(&shutdown, release(holder(&shutdown), 0, false), 40);
    assert_eq!((state(&again), again.progress.attempts), ("terminating", 1));
}

#[test]
fn only_force_takes_a_termination_back() {
    let terminating = after(&job(), Event::Terminate, 0);
    let shutdown = claimed(&terminating, 10);
    let running = after(&claimed(&job(), 0), Event::Terminate, 10);
    for job in [&terminating, &shutdown, &running] {
        assert_eq!(refusal(job, run_it(20), 20), Refused::Terminating);
    }
    assert_eq!(state(&after(&terminating, force_it(20), 20)), "ready");
    for job in [&shutdown, &running] {
        let forced = after(job, force_it(20), 20);
        let again = after(&forced, finish(holder(&forced)), 30);
        assert_eq!((state(&again), again.progress.attempts), ("ready", 0));
    }
}

#[test]
fn a_termination_after_a_forced_run_is_the_last_word() {
    let shutdown = claimed(&after(&job(), Event::Terminate, 0), 10);
    let forced = after(&shutdown, force_it(20), 20);
    let ended = after(&forced, Event::Terminate, 30);
    assert_eq!(state(&after(&ended, finish(holder(&ended)), 40)), "terminated");
}

// --- repeating ---------------------------------------------------------------------------------------------

#[test]
fn a_repeating_job_waits_for_its_next_turn_with_fresh_attempts() {
    let turn = |rule: &str, ended: i64| {
        let job = job_with(|policy| policy.repeat = every(rule));
        let next = finished_at(&failed_at(&job, POLICY, 5), 10, ended);
        (state(&next), run_at(&next), next.progress.attempts)
    };
    assert_eq!(turn("every 1h", 20), ("ready", 3_600_000, 0));
    assert_eq!(turn("0 4 * * *", 20), ("ready", 4 * 3_600_000, 0));
    // Bedrock's rules count whole seconds.
    assert_eq!(turn("FINISHED, +1 HOUR", 1_000), ("ready", 3_601_000, 0));
    assert_eq!(turn("SCHEDULED, +1 HOUR", 1_000), ("ready", 3_600_000, 0));
}

#[test]
fn a_retry_moves_the_slots_of_a_repeating_job_where_the_policy_says_so() {
    let job = job_with(|policy| {
        policy.repeat = every("SCHEDULED, +1 HOUR");
        policy.lease.on_lapse = OnLapse::AtLeaseEnd;
        policy.retry_moves_slot = true;
    });
    let lapsed = lapsed_after(&job, 0);
    assert_eq!(lapsed.progress.due_at, at(0), "nobody has begun the retry");
    let again = claimed(&lapsed, 1_500);
    assert_eq!(again.progress.due_at, at(1_000));
    assert_eq!(run_at(&after(&again, finish(holder(&again)), 2_000)), 3_601_000);
}

#[test]
fn trying_again_does_not_move_the_slots_of_a_repeating_job() {
    let job = job_with(|policy| {
        policy.repeat = every("every 1h");
        policy.retry.backoff = Backoff::Fixed { delay_ms: 700 };
    });
    let lapsed = lapsed_after(&job, 100);
    let failed = failed_at(&job, POLICY, 100);
    let running = claimed(&job, 100);
    let released = after(&running, release(holder(&running), 900, true), 100);
    for tried in [lapsed, failed, released] {
        assert_eq!(run_at(&finished_at(&tried, 1_500, 1_600)), 3_600_000);
    }
}

#[test]
fn a_job_that_does_not_repeat_was_due_when_its_retry_was() {
    let job = job_with(|policy| policy.retry.backoff = Backoff::Fixed { delay_ms: 700 });
    assert_eq!(failed_at(&job, POLICY, 100).progress.due_at, at(800));
}

#[test]
fn a_repetition_ends_when_told_to_or_when_no_day_is_left() {
    let running = claimed(&job_with(|policy| policy.repeat = every("every 1h")), 0);
    let last =
        Finish { by: holder(&running), outcome: Outcome::default(), payload: None, ignore_repeat: true };
    assert_eq!(state(&after(&running, Event::Finish(last), 10)), "completed");
    let patched = after(&running, update(|patch| patch.repeat = Some(None)), 5);
    assert_eq!(state(&after(&patched, finish(holder(&running)), 10)), "completed");
    let never = job_with(|policy| policy.repeat = every("0 0 30 2 *"));
    assert_eq!(state(&finished_at(&never, 0, 10)), "completed");
}

#[test]
fn a_failure_ends_a_repetition_unless_the_policy_carries_on() {
    let repeating = |carry_on: bool| {
        job_with(|policy| {
            policy.repeat = every("every 1h");
            policy.repeat_after_failure = carry_on;
            policy.lease.on_lapse = OnLapse::GiveUp;
        })
    };
    assert_eq!(state(&failed_at(&repeating(false), RetryWish::Never, 10)), "failed");
    for next in [failed_at(&repeating(true), RetryWish::Never, 10), lapsed_after(&repeating(true), 10)] {
        assert_eq!((run_at(&next), next.progress.attempts), (3_600_000, 0));
        assert_eq!(next.body.as_ref().unwrap().errors.len(), 1);
    }
}

#[test]
fn the_next_turn_starts_with_the_payload_given_and_no_progress() {
    let job = job_with(|policy| policy.repeat = every("every 1h"));
    let running = claimed(&job, 0);
    let halfway = after(&running, report(holder(&running)), 5);
    assert_eq!(halfway.body.as_ref().unwrap().percent, Some(50));
    let payload = Some(Payload::json("{\"page\":2}"));
    let end = Finish {
        by: holder(&running),
        outcome: Outcome::default(),
        payload: payload.clone(),
        ignore_repeat: false,
    };
    let next = after(&halfway, Event::Finish(end), 10);
    assert_eq!(Some(&next.spec.payload), payload.as_ref());
    assert_eq!(next.body.as_ref().unwrap().percent, None);
    // A retry continues where the previous attempt stopped, so its progress stays visible.
    let retry = after(&halfway, fail(holder(&running), POLICY), 10);
    assert_eq!(retry.body.as_ref().unwrap().percent, Some(50));
}

// --- keeping -----------------------------------------------------------------------------------------------

#[test]
fn a_settled_job_is_kept_as_long_as_its_policy_says() {
    let keeping = |keep: KeepFor| {
        job_with(|policy| policy.keep = Keep { completed: keep, failed: keep, cancelled: keep })
    };
    let ends = |keep: KeepFor| {
        let running = claimed(&keeping(keep), 0);
        let asked = after(&running, cancel(ASK), 5);
        [
            outcome_of(&running, finish(holder(&running)), 10),
            outcome_of(&running, fail(holder(&running), RetryWish::Never), 10),
            outcome_of(&running, cancel(NOW), 10),
            outcome_of(&asked, fail(holder(&asked), POLICY), 10),
        ]
    };
    for end in ends(KeepFor::Drop) {
        assert_eq!(end.job, None);
    }
    for end in ends(KeepFor::Ms(50)) {
        let job = end.job.unwrap();
        assert_eq!(job.deadline(), Some(at(60)));
        assert_eq!(refusal(&job, Event::Expire, 59), Refused::StillKept);
        assert_eq!(outcome_of(&job, Event::Expire, 60).job, None);
    }
    for end in ends(KeepFor::Ever) {
        let job = end.job.unwrap();
        assert_eq!((job.deadline(), job.progress.finished_at), (None, Some(at(10))));
        assert_eq!(refusal(&job, Event::Expire, 999_999_999), Refused::StillKept);
    }
    assert_eq!(refusal(&keeping(KeepFor::Drop), Event::Expire, 10), Refused::StillKept);
}

// --- facts -------------------------------------------------------------------------------------------------

#[test]
fn facts_are_set_and_forgotten_one_by_one() {
    let update = |job: &Job, facts: &[(&str, Option<&str>)]| {
        let facts = facts.iter().map(|(key, text)| ((*key).into(), text.map(Into::into))).collect();
        after(job, Event::Update(Box::new(Patch { facts, ..Patch::default() })), 10)
    };
    let told = update(&job(), &[("typed", Some("tomorrow")), ("by", Some("hand"))]);
    assert_eq!((told.spec.fact("typed"), told.spec.fact("by")), (Some("tomorrow"), Some("hand")));
    let changed = update(&told, &[("by", None), ("typed", Some("today"))]);
    assert_eq!((changed.spec.fact("typed"), changed.spec.fact("by")), (Some("today"), None));
    assert_eq!(update(&changed, &[("typed", None), ("never", None)]).spec.extras, None);
}

// --- runs ended without a lease ----------------------------------------------------------------------------

#[test]
fn a_returned_job_has_its_old_place_and_all_its_attempts() {
    let job = job();
    let returned = after(&claimed(&job, 700), Event::Return { by: Holder::Anyone }, 900);
    assert_eq!(run_at(&returned), run_at(&job));
    assert_eq!(returned.progress.attempts, 0);
}

// --- results -----------------------------------------------------------------------------------------------

fn finished_with_result(result: crate::ResultPolicy) -> Job {
    let running = claimed(&job_with(|policy| policy.result = result), 0);
    after(&running, finish_with(holder(&running), "7"), 10)
}

#[test]
fn a_result_goes_before_its_job_when_its_own_time_is_over() {
    let done = finished_with_result(crate::ResultPolicy { keep: KeepFor::Ms(100), once: true });
    assert_eq!(done.deadline(), Some(at(110)));
    assert_eq!(refusal(&done, Event::Expire, 109), Refused::StillKept);
    let later = after(&done, Event::Expire, 110);
    assert_eq!((state(&later), later.result()), ("completed", None));
    assert_eq!(later.deadline(), later.expires_at(), "only the job itself is left to go");
}

#[test]
fn a_result_is_taken_once_and_the_job_stays() {
    let done = finished_with_result(crate::ResultPolicy { keep: KeepFor::Ever, once: true });
    assert!(done.result().is_some());
    let taken = after(&done, Event::TakeResult, 20);
    assert_eq!((state(&taken), taken.result()), ("completed", None));
    assert_eq!(refusal(&taken, Event::TakeResult, 30), Refused::Settled(taken.state().name()));
}

#[test]
fn a_result_nobody_wants_is_not_kept_at_all() {
    let done = finished_with_result(crate::ResultPolicy { keep: KeepFor::Drop, once: false });
    assert_eq!((state(&done), done.result()), ("completed", None));
}

#[test]
fn of_several_runs_asked_for_during_a_run_the_first_comes() {
    let running = claimed(&job(), 0);
    let later = after(&running, run_it(5_000), 10);
    let sooner = after(&later, run_it(3_000), 20);
    let unmoved = after(&sooner, run_it(9_000), 30);
    assert_eq!(run_at(&after(&unmoved, finish(holder(&unmoved)), 100)), 3_000);
    assert_eq!(run_at(&after(&unmoved, lapse(&unmoved), 1_000)), 3_000, "also when its worker is gone");
    let past = after(&running, run_it(50), 10);
    assert_eq!(run_at(&after(&past, suspend(holder(&past)), 100)), 100, "never before the run has ended");
}

#[test]
fn one_run_too_many_in_a_minute_is_the_last() {
    let mut job = job_with(|policy| policy.runs_per_minute = Some(2));
    for ms in [1_000, 59_999, 60_000, 61_000] {
        let running = claimed(&job, ms);
        assert_eq!(lease(&running).kind, RunKind::Perform, "at {ms}");
        assert!(!running.runs_too_often());
        let done = after(&running, finish(holder(&running)), ms);
        job = after(&done, run_it(ms), ms);
    }
    let last = claimed(&job, 62_000);
    assert_eq!(lease(&last).kind, RunKind::Shutdown);
    assert!(last.runs_too_often());
    assert_eq!(state(&after(&last, finish(holder(&last)), 62_000)), "terminated");
    let cut_short = after(&last, lapse(&last), 63_000);
    assert_eq!(state(&cut_short), "terminating");
    assert!(!claimed(&cut_short, 63_000).runs_too_often(), "that was said once");
    let given_back = after(&claimed(&job, 62_000 + 60_000), release(Holder::Anyone, 122_001, false), 122_001);
    assert_eq!(given_back.progress.minute_runs.count, 0, "what was given back did not count");
}

#[test]
fn inputs_in_hand_are_used_by_a_good_end_and_come_back_after_any_other() {
    use crate::ports::{Ports, RawJson, Side};
    let mut ports = Ports::new([("a".to_owned(), None)].into(), Default::default()).unwrap();
    ports.write((Side::In, "a"), vec![RawJson::new("1").unwrap(), RawJson::new("2").unwrap()]).unwrap();
    ports.hand_out(&["a"], true).unwrap();
    let running = after(&claimed(&job(), 0), Event::SetPorts(Arc::new(ports)), 0);
    let left = |job: &Job| {
        let ports = job.ports().unwrap();
        assert!(ports.in_hand().is_none(), "nobody has them in hand any more");
        ports.port((Side::In, "a")).unwrap().size()
    };
    let by = holder(&running);
    for used in [finish(by), suspend(by), restart(by, 10)] {
        assert_eq!(left(&after(&running, used, 10)), 1);
    }
    let comes_back =
        [fail(by, RetryWish::Never), release(by, 10, true), Event::Return { by }, cancel(NOW), take_away(10)];
    for event in comes_back {
        assert_eq!(left(&after(&running, event, 10)), 2);
    }
    assert_eq!(left(&after(&running, lapse(&running), 1_000)), 2);
}
