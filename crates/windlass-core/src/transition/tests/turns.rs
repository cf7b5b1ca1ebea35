//! Turns of a repeating job: outcomes, requested runs, and turns that come too late.

use super::*;
use crate::turn::{CatchUp, TURNS_KEPT, Turn, TurnOutcome};

const HOUR: i64 = 3_600_000;

fn repeating(rule: &str, change: impl FnOnce(&mut Policy)) -> Job {
    job_with(|policy| {
        policy.repeat = Some(Repeat::parse(rule).unwrap());
        policy.repeat_after_failure = true;
        policy.retry.max_attempts = Some(2);
        change(policy);
    })
}

fn hourly() -> Job {
    repeating("every 1h", |_| {})
}

fn last_turn(job: &Job) -> &Turn {
    job.turns().last().expect("a turn has ended")
}

/// Outcome and number of attempts of each kept turn.
fn outcomes(job: &Job) -> Vec<(&'static str, u32)> {
    job.turns().iter().map(|turn| (turn.outcome.as_str(), turn.attempts)).collect()
}

#[test]
fn each_turn_has_one_outcome_however_many_attempts_it_took() {
    let one = claimed(&hourly(), 5);
    let retrying = after(&one, fail(holder(&one), RetryWish::Policy), 10);
    assert_eq!(outcomes(&retrying), [], "the turn goes on");
    let two = claimed(&retrying, 20);
    let done = after(&two, finish(holder(&two)), 30);
    let given_up = after(&two, fail(holder(&two), RetryWish::Policy), 40);
    let expected = |outcome, ended: i64| Turn {
        due_at: at(0),
        started_at: Some(at(20)),
        ended_at: at(ended),
        outcome,
        attempts: 2,
        missed: 0,
        requested: false,
        class: None,
        code: None,
        message: None,
        worker: None,
    };
    assert_eq!(*last_turn(&done), expected(TurnOutcome::Completed, 30));
    let failed = Turn { message: Some("oops".to_owned()), ..expected(TurnOutcome::Failed, 40) };
    assert_eq!(*last_turn(&given_up), failed);
    assert_eq!((run_at(&given_up), given_up.progress.attempts), (HOUR, 0));
}

#[test]
fn every_end_of_a_turn_is_recorded_once() {
    let running = claimed(&hourly(), 0);
    let (by, asked) = (holder(&running), after(&running, cancel(ASK), 1));
    let to_run_again = after(&running, run_it(1), 1);
    let to_rest = after(&running, Event::PutToRest(Rest::Suspended), 1);
    let parent = after(&running, Event::ChildAdded, 1);
    let one_attempt = claimed(&repeating("every 1h", |policy| policy.retry.max_attempts = Some(1)), 0);
    let ending = Finish { by, outcome: Outcome::default(), payload: None, ignore_repeat: true };
    for (what, job, event, ms, expected) in [
        ("finish", &running, finish(by), 10, Some("completed")),
        ("last finish", &running, Event::Finish(ending), 10, Some("completed")),
        ("finish, children pending", &parent, finish(by), 10, None),
        ("finish, asked to cancel", &asked, finish(by), 10, Some("completed")),
        ("finish, to run again", &to_run_again, finish(by), 10, Some("completed")),
        ("finish, to be suspended", &to_rest, finish(by), 10, Some("completed")),
        ("fail", &running, fail(by, RetryWish::Policy), 10, None),
        ("fail for good", &running, fail(by, RetryWish::Never), 10, Some("failed")),
        ("fail, asked to cancel", &asked, fail(by, RetryWish::Policy), 10, Some("cancelled")),
        ("fail, to run again", &to_run_again, fail(by, RetryWish::Policy), 10, Some("failed")),
        ("fail, to be suspended", &to_rest, fail(by, RetryWish::Policy), 10, Some("failed")),
        ("cancel", &running, cancel(NOW), 10, Some("cancelled")),
        ("release", &running, release(by, 10, true), 10, None),
        ("release, asked to cancel", &asked, release(by, 10, true), 10, Some("cancelled")),
        ("lapse", &running, lapse(&running), 1_000, None),
        ("lapse of the last attempt", &one_attempt, lapse(&one_attempt), 1_000, Some("failed")),
        ("lapse, asked to cancel", &asked, lapse(&asked), 1_000, Some("cancelled")),
        ("return", &running, Event::Return { by }, 10, None),
        ("suspend", &running, suspend(by), 10, None),
    ] {
        let next = after(job, event, ms);
        let got: Vec<&str> = next.turns().iter().map(|turn| turn.outcome.as_str()).collect();
        assert_eq!(got, expected.into_iter().collect::<Vec<_>>(), "{what}");
    }
    let once = claimed(&job(), 0);
    assert_eq!(after(&once, finish(holder(&once)), 10).body, None, "a job that does not repeat has none");
}

#[test]
fn the_oldest_turns_make_room() {
    let mut job = hourly();
    for turn in 0..25 {
        let running = claimed(&job, turn * HOUR);
        job = after(&running, finish(holder(&running)), turn * HOUR + 10);
    }
    assert_eq!(job.turns().len(), TURNS_KEPT);
    assert_eq!((job.turns()[0].due_at, last_turn(&job).due_at), (at(5 * HOUR), at(24 * HOUR)));
}

#[test]
fn a_turn_counts_the_times_that_passed_meanwhile() {
    let late = claimed(&hourly(), 3 * HOUR + 5);
    let done = after(&late, finish(holder(&late)), 3 * HOUR + 10);
    assert_eq!((last_turn(&done).due_at, last_turn(&done).missed), (at(0), 3));
    assert_eq!(run_at(&done), 4 * HOUR);
}

#[test]
fn a_requested_run_leaves_the_schedule_as_it_is() {
    for rule in ["every 1h", "FINISHED, +1 HOUR", "0 * * * *"] {
        let job = after(&repeating(rule, |_| {}), update(|patch| patch.run_at = Some(at(HOUR))), 0);
        let asked = after(&job, run_it(1_000), 1_000);
        assert_eq!((run_at(&asked), asked.progress.due_at), (1_000, at(HOUR)), "{rule}");
        let extra = claimed(&asked, 1_000);
        assert!(lease(&extra).ahead);
        let retrying = after(&extra, fail(holder(&extra), RetryWish::Policy), 1_500);
        let given_up = claimed(&retrying, 1_500);
        for (end, outcome) in [
            (after(&extra, finish(holder(&extra)), 1_900), "completed"),
            (after(&given_up, fail(holder(&given_up), RetryWish::Policy), 1_900), "failed"),
        ] {
            assert_eq!((state(&end), run_at(&end)), ("ready", HOUR), "{rule}, {outcome}");
            let turn = last_turn(&end);
            assert_eq!((turn.outcome.as_str(), turn.requested, turn.missed), (outcome, true, 0));
            assert_eq!(Some(turn.due_at), turn.started_at);
            assert!(!lease(&claimed(&end, HOUR)).ahead, "the next turn is the scheduled one");
        }
    }
    // A requested run that lasts beyond the scheduled time takes its place.
    let job = after(&hourly(), update(|patch| patch.run_at = Some(at(HOUR))), 0);
    let extra = after(&claimed(&after(&job, run_it(10), 10), 10), renew(Holder::Anyone, 9 * HOUR), 20);
    assert_eq!(run_at(&after(&extra, finish(holder(&extra)), HOUR + 5)), 2 * HOUR);
    // A retry of the scheduled run is none ahead of it.
    let first = claimed(&hourly(), 0);
    let later = RetryWish::At(at(500));
    let retry = after(&after(&first, fail(holder(&first), later), 10), run_it(20), 20);
    assert!(!lease(&claimed(&retry, 20)).ahead);
}

#[test]
fn a_turn_that_comes_too_late_is_skipped_only_where_the_policy_says_so() {
    let none = |policy: &mut Policy| policy.catch_up = CatchUp::None;
    for (rule, change, claimed_at, skips) in [
        ("every 1h", false, 3 * HOUR, false),
        ("every 1h", true, HOUR - 1, false),
        ("every 1h", true, HOUR, true),
        ("every 1h", true, 3 * HOUR + 7, true),
        ("0 * * * *", true, 3 * HOUR + 7, true),
        ("FINISHED, +1 HOUR", true, 3 * HOUR + 7, false),
    ] {
        let job = repeating(rule, |policy| {
            if change {
                none(policy)
            }
        });
        let running = claimed(&job, claimed_at);
        let skip = Event::Skip { by: holder(&running) };
        if !skips {
            assert_eq!(refusal(&running, skip, claimed_at), Refused::NotDue, "{rule} at {claimed_at}");
            continue;
        }
        let next = after(&running, skip, claimed_at);
        let turn = last_turn(&next);
        assert_eq!((turn.outcome, turn.due_at, turn.started_at), (TurnOutcome::Missed, at(0), None));
        assert_eq!(i64::from(turn.missed), claimed_at / HOUR, "{rule} at {claimed_at}");
        assert_eq!(run_at(&next), (claimed_at / HOUR + 1) * HOUR);
        assert_eq!((next.progress.attempts, next.progress.started_at), (0, None));
    }
    let tried = claimed(&lapsed_after(&repeating("every 1h", none), 0), 2 * HOUR);
    let skip = Event::Skip { by: holder(&tried) };
    assert_eq!(refusal(&tried, skip, 2 * HOUR), Refused::NotDue, "its first attempt was in time");
    let late = claimed(&repeating("every 1h", none), 2 * HOUR);
    let stranger = Holder::Token(Token::from_number(1));
    assert_eq!(refusal(&late, Event::Skip { by: stranger }, 2 * HOUR), Refused::LeaseLost);
    let asked = after(&late, cancel(ASK), 2 * HOUR);
    assert_eq!(state(&after(&asked, Event::Skip { by: holder(&asked) }, 2 * HOUR)), "cancelled");
}
