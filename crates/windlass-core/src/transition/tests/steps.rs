//! Durable steps: kept results, waits, signals, and what a retry keeps of them.

use super::*;
use crate::event::Suspend;
use crate::steps::{NewStep, SIGNALS_MAX, STEPS_BYTES_MAX, STEPS_MAX, StepKind, Wait};

fn step(name: &str, result: &str) -> NewStep {
    NewStep { name: name.into(), result: Some(Payload::json(result)), started_at: None }
}

fn keep(job: &Job, steps: Vec<NewStep>) -> Event {
    Event::KeepSteps { by: holder(job), steps }
}

fn wait(job: &Job, until: Option<i64>, change: impl FnOnce(&mut Wait)) -> Event {
    let mut wait = Wait { step: Some("wait".into()), ..Wait::default() };
    change(&mut wait);
    Event::Suspend(Suspend { by: holder(job), until: until.map(at), wait: Some(Box::new(wait)) })
}

fn signal(name: &str, payload: &str) -> Event {
    Event::Signal { name: name.into(), payload: Payload::json(payload) }
}

fn for_go(wait: &mut Wait) {
    wait.signal = Some("go".into());
}

fn for_children(wait: &mut Wait) {
    wait.children = true;
}

/// Steps as `name=result`, with the kind of a wait and whether it timed out.
fn steps(job: &Job) -> String {
    let text = |payload: &Payload| String::from_utf8_lossy(&payload.bytes).into_owned();
    let kept = job.steps().map_or(&[][..], |steps| steps.kept());
    let word = |step: &Arc<crate::steps::StepRecord>| {
        let result = step.result.as_ref().map_or("-".to_owned(), text);
        let kind = if step.kind == StepKind::Run { "" } else { step.kind.as_str() };
        let late = if step.timed_out { " late" } else { "" };
        format!("{}={result} {kind}{late}", step.name).trim_end().to_owned()
    };
    kept.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_first_result_of_a_step_counts() {
    let running = claimed(&job(), 10);
    let kept = after(&running, keep(&running, vec![step("a", "1"), step("b", "2"), step("a", "3")]), 20);
    let kept = after(&kept, keep(&kept, vec![step("b", "9"), step("c", "4")]), 30);
    assert_eq!(steps(&kept), "a=1, b=2, c=4");
    assert_eq!(kept.state(), running.state(), "the run goes on");
}

#[test]
fn only_the_holder_of_a_live_lease_keeps_steps() {
    let running = claimed(&job(), 0);
    let stranger = Event::KeepSteps { by: Holder::Token(Token::from_number(1)), steps: vec![step("a", "1")] };
    assert_eq!(refusal(&running, stranger, 10), Refused::LeaseLost);
    assert_eq!(refusal(&running, keep(&running, vec![step("a", "1")]), 1_000), Refused::LeaseLost);
}

#[test]
fn steps_are_bounded_by_number_and_by_size_and_kept_together_or_not_at_all() {
    let running = claimed(&job(), 0);
    let many: Vec<NewStep> = (0..STEPS_MAX).map(|n| step(&n.to_string(), "1")).collect();
    let full = after(&running, keep(&running, many), 10);
    assert_eq!(refusal(&full, keep(&full, vec![step("one more", "1")]), 20), Refused::StepsFull);
    after(&full, keep(&full, vec![step("7", "1")]), 20);

    let large = format!("\"{}\"", "x".repeat(STEPS_BYTES_MAX / 2));
    let both = vec![step("a", &large), step("b", &large)];
    assert_eq!(refusal(&running, keep(&running, both), 10), Refused::StepsFull);
    after(&running, keep(&running, vec![step("a", &large)]), 10);
}

#[test]
fn a_wait_ends_with_whichever_comes_first() {
    let running = claimed(&job(), 0);
    let with_child = after(&running, Event::ChildAdded, 10);
    for (suspended, events, expected) in [
        (after(&running, wait(&running, Some(500), |_| {}), 20), vec![(Event::Wake, 500)], "wait=- sleep"),
        (after(&running, wait(&running, None, for_go), 20), vec![(signal("go", "7"), 30)], "wait=7 signal"),
        (
            after(&running, wait(&running, Some(500), for_go), 20),
            vec![(signal("other", "1"), 30), (signal("go", "8"), 40)],
            "wait=8 signal",
        ),
        (
            after(&running, wait(&running, Some(500), for_go), 20),
            vec![(Event::Wake, 500)],
            "wait=- signal late",
        ),
        (
            after(&with_child, wait(&with_child, None, for_children), 20),
            vec![(Event::ChildSettled, 30)],
            "wait=- children",
        ),
        (
            after(&with_child, wait(&with_child, Some(500), for_children), 20),
            vec![(Event::Wake, 600)],
            "wait=- children late",
        ),
    ] {
        assert_eq!((state(&suspended), suspended.progress.attempts), ("suspended", 1));
        let mut woken = suspended;
        let mut last = 0;
        for (event, ms) in events {
            woken = after(&woken, event, ms);
            last = ms;
        }
        assert_eq!((state(&woken), run_at(&woken), woken.progress.attempts), ("ready", last, 0));
        assert_eq!(steps(&woken), expected);
        assert!(woken.steps().unwrap().wait().is_none(), "{expected}: the wait is over");
    }
}

#[test]
fn a_time_wakes_not_before_it_has_come() {
    let running = claimed(&job(), 0);
    let suspended = after(&running, wait(&running, Some(500), |_| {}), 20);
    assert_eq!(suspended.deadline(), Some(at(500)));
    assert_eq!(refusal(&suspended, Event::Wake, 499), Refused::NotDue);
    let for_ever = after(&running, wait(&running, None, for_go), 20);
    assert_eq!(for_ever.deadline(), None);
    assert_eq!(refusal(&for_ever, Event::Wake, 99_999), Refused::NotDue);
}

#[test]
fn a_signal_that_came_early_ends_the_wait_at_once() {
    let running = claimed(&job(), 0);
    let told = after(&running, signal("go", "1"), 10);
    let told = after(&told, signal("go", "2"), 11);
    assert_eq!(told.state(), running.state());
    let woken = after(&told, wait(&told, Some(500), for_go), 20);
    assert_eq!((state(&woken), run_at(&woken), steps(&woken)), ("ready", 20, "wait=1 signal".to_owned()));
    assert_eq!(woken.steps().unwrap().signals().len(), 1, "the second one stays for the next wait");
}

#[test]
fn a_wait_that_is_over_already_is_not_begun() {
    let running = claimed(&job(), 0);
    let no_child = after(&running, wait(&running, None, for_children), 20);
    assert_eq!((state(&no_child), steps(&no_child)), ("ready", "wait=- children".to_owned()));
    let past = after(&running, wait(&running, Some(20), for_go), 20);
    assert_eq!((state(&past), steps(&past)), ("ready", "wait=- signal late".to_owned()));
}

#[test]
fn a_requested_run_ends_a_sleep_and_no_other_wait() {
    let running = claimed(&job(), 0);
    for sleep in [None, Some(500)] {
        let asleep = after(&running, wait(&running, sleep, |_| {}), 20);
        let woken = after(&asleep, run_it(30), 30);
        assert_eq!((state(&woken), steps(&woken)), ("ready", "wait=- sleep".to_owned()));
    }
    for waiting in [wait(&running, Some(500), for_go), wait(&running, None, for_go)] {
        let woken = after(&after(&running, waiting, 20), run_it(30), 30);
        assert_eq!((state(&woken), steps(&woken)), ("ready", String::new()));
    }
}

#[test]
fn signals_are_bounded_and_a_settled_job_takes_none() {
    let mut told = job();
    for _ in 0..SIGNALS_MAX {
        told = after(&told, signal("go", "1"), 10);
    }
    assert_eq!(refusal(&told, signal("go", "1"), 10), Refused::SignalsFull);
    let done = after(&job(), cancel(NOW), 10);
    assert_eq!(refusal(&done, signal("go", "1"), 20), Refused::Settled(crate::StateName::Cancelled));
}

#[test]
fn a_retry_keeps_the_steps_of_a_job_that_failed_and_not_of_one_that_completed() {
    let running = claimed(&job(), 0);
    let running = after(&running, keep(&running, vec![step("a", "1"), step("b", "2")]), 10);
    let failed = after(&running, fail(holder(&running), RetryWish::Never), 20);
    assert_eq!(steps(&after(&failed, requeue(30), 30)), "a=1, b=2");
    assert_eq!(steps(&after(&failed, force_it(30), 30)), "a=1, b=2");
    let retried = after(&running, fail(holder(&running), RetryWish::Policy), 20);
    assert_eq!((state(&retried), steps(&retried)), ("ready", "a=1, b=2".to_owned()));
    let cancelled = after(&running, cancel(NOW), 20);
    assert_eq!(steps(&after(&cancelled, requeue(30), 30)), "a=1, b=2");
    let completed = after(&running, finish(holder(&running)), 20);
    assert_eq!(steps(&completed), "a=1, b=2", "kept for people to look at");
    let anew = after(&completed, requeue(30), 30);
    assert_eq!((steps(&anew), anew.steps().unwrap().generation()), (String::new(), 1));
    assert_eq!(after(&failed, requeue(30), 30).steps().unwrap().generation(), 0);
    let lapsed = after(&running, lapse(&running), 1_000);
    assert_eq!(steps(&lapsed), "a=1, b=2");
}

#[test]
fn a_retry_from_a_step_drops_it_and_the_later_ones() {
    let from = |name: &str| Event::RequeueFrom { at: at(30), step: name.into() };
    let running = claimed(&job(), 0);
    let running = after(&running, keep(&running, vec![step("a", "1"), step("b", "2"), step("c", "3")]), 10);
    assert_eq!(refusal(&running, from("b"), 20), Refused::Running);
    for ended in [
        after(&running, finish(holder(&running)), 20),
        after(&running, fail(holder(&running), RetryWish::Never), 20),
        after(&running, wait(&running, Some(900), |_| {}), 20),
    ] {
        let again = after(&ended, from("b"), 30);
        assert_eq!((state(&again), steps(&again)), ("ready", "a=1".to_owned()));
        assert_eq!(again.steps().unwrap().generation(), 1);
        assert!(again.steps().unwrap().wait().is_none());
        assert_eq!(refusal(&ended, from("d"), 30), Refused::NoStep);
    }
}

#[test]
fn the_next_turn_of_a_repeating_job_begins_without_steps() {
    let job = job_with(|policy| policy.repeat = every("every 1m"));
    let running = claimed(&job, 0);
    let running = after(&running, keep(&running, vec![step("a", "1")]), 10);
    let next = after(&running, finish(holder(&running)), 20);
    assert_eq!((state(&next), steps(&next)), ("ready", String::new()));
}

#[test]
fn a_cancelled_wait_is_over() {
    let running = claimed(&job(), 0);
    let suspended = after(&running, wait(&running, Some(500), for_go), 20);
    let cancelled = after(&suspended, cancel(ASK), 30);
    assert_eq!(state(&cancelled), "cancelled");
    let again = after(&cancelled, requeue(40), 40);
    assert!(again.steps().is_none_or(|steps| steps.wait().is_none()));
    let asked = after(&running, cancel(ASK), 10);
    assert_eq!(state(&after(&asked, wait(&asked, None, for_go), 20)), "cancelled");
}

fn hourly(change: impl FnOnce(&mut Policy)) -> Job {
    job_with(|policy| {
        policy.repeat = every("every 1h");
        policy.repeat_after_failure = true;
        change(policy);
    })
}

/// Run with the step `a` kept.
fn with_step(job: &Job) -> Job {
    let running = claimed(job, 0);
    after(&running, keep(&running, vec![step("a", "1")]), 10)
}

#[test]
fn a_finished_run_leaves_no_steps_to_the_next_however_it_comes() {
    let running = with_step(&job());
    let again = after(&running, run_it(15), 15);
    assert_eq!(steps(&after(&again, finish(holder(&again)), 20)), "", "a run was requested meanwhile");
    let running = with_step(&hourly(|_| {}));
    let paused = after(&running, Event::PutToRest(Rest::Suspended), 15);
    for end in [finish(holder(&paused)), fail(holder(&paused), RetryWish::Policy)] {
        let ended = after(&paused, end, 20);
        assert_eq!(
            (state(&ended), steps(&ended)),
            ("suspended", String::new()),
            "its schedule was paused meanwhile"
        );
    }
}

#[test]
fn a_turn_that_waited_is_not_late() {
    let running = with_step(&hourly(|policy| policy.catch_up = crate::turn::CatchUp::None));
    let suspended = after(&running, wait(&running, Some(3 * 3_600_000), |_| {}), 20);
    let woken = after(&suspended, Event::Wake, 3 * 3_600_000);
    let running = claimed(&woken, 3 * 3_600_000);
    assert!(!crate::turn::comes_too_late(&running));
    assert_eq!(steps(&running), "a=1, wait=- sleep");
}

#[test]
fn a_turn_that_waits_is_paused_and_run_without_moving_its_schedule() {
    let running = with_step(&hourly(|_| {}));
    let suspended = after(&running, wait(&running, Some(900_000), for_go), 20);
    let paused = after(&suspended, Event::PutToRest(Rest::Suspended), 30);
    assert_eq!((paused.deadline(), steps(&paused)), (None, "a=1".to_owned()));
    assert!(paused.steps().unwrap().wait().is_none());
    assert_eq!(
        refusal(&paused, Event::PutToRest(Rest::Suspended), 40),
        Refused::Settled(crate::StateName::Suspended)
    );
    let asleep = after(&running, wait(&running, Some(900_000), |_| {}), 20);
    let run = after(&asleep, run_it(600_000), 600_000);
    assert_eq!((run.progress.due_at, run_at(&run)), (at(0), 600_000), "the slot of the turn stays");
}

#[test]
fn waits_count_towards_the_bound_of_steps() {
    let running = claimed(&job(), 0);
    let large = format!("\"{}\"", "x".repeat(STEPS_BYTES_MAX - 1_000));
    let running = after(&running, keep(&running, vec![step("a", &large)]), 10);
    assert_eq!(refusal(&running, wait(&running, None, for_go), 20), Refused::StepsFull);
}

#[test]
fn a_turn_with_children_leaves_a_generation_behind() {
    let running = claimed(&hourly(|policy| policy.retry.max_attempts = Some(1)), 0);
    let parent = after(&running, Event::ChildAdded, 10);
    let next = after(&parent, fail(holder(&parent), RetryWish::Policy), 20);
    assert_eq!(next.steps().unwrap().generation(), 1);
}
