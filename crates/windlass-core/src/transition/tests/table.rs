//! The state machine as a text: for each state, the result of every event. Words after a result are events; a
//! result with an exclamation mark is a refusal and leaves the job unchanged.

use super::*;
use crate::event::Suspend;
use crate::steps::Wait;

const MOMENT: i64 = 2_000;

/// State, reached by ordinary events.
fn states() -> Vec<(&'static str, Job)> {
    let short_keep = |policy: &mut Policy| {
        let soon = KeepFor::Ms(100);
        policy.keep = Keep { completed: soon, failed: soon, cancelled: soon };
    };
    let late = |policy: &mut Policy| {
        short_keep(policy);
        policy.lease.accept_late = true;
    };
    let brief_result = |policy: &mut Policy| policy.result.keep = KeepFor::Ms(100);
    let ready = job_with(short_keep);
    let running = claimed(&ready, 1_500);
    let parent = after(&running, Event::ChildAdded, 1_500);
    let held = child_with(FamilyRule::ParentWaits { failure_settles: true }, true, short_keep);
    let terminating = after(&ready, Event::Terminate, 1_500);
    let shutdown = claimed(&terminating, 1_500);
    vec![
        ("ready, due", ready.clone()),
        ("ready, delayed", after(&ready, update(|patch| patch.run_at = Some(at(9_000))), 0)),
        ("ready, its lease lapsed", lapsed_after(&ready, 0)),
        ("ready, its lease lapsed, late reports accepted", lapsed_after(&job_with(late), 0)),
        ("running", running.clone()),
        ("running, asked to cancel", after(&running, cancel(ASK), 1_500)),
        ("running, to run again", after(&running, run_it(1_500), 1_500)),
        ("running, to run again later", after(&running, run_it(9_000), 1_500)),
        ("running, to be terminated", after(&running, Event::Terminate, 1_500)),
        ("running, to be suspended", after(&running, Event::PutToRest(Rest::Suspended), 1_500)),
        (
            "running, to be terminated without a last run",
            after(&running, Event::PutToRest(Rest::Terminated), 1_500),
        ),
        ("running, a child pending", parent.clone()),
        ("running, lease over, unnoticed", claimed(&ready, 0)),
        ("running, lease over, unnoticed, late reports accepted", claimed(&job_with(late), 0)),
        ("running its shutdown", shutdown.clone()),
        ("running its shutdown, forced to run again", after(&shutdown, force_it(1_500), 1_500)),
        ("waiting for its parent", held),
        ("waiting for a child", after(&parent, finish(holder(&parent)), 1_500)),
        ("suspended", after(&running, suspend(holder(&running)), 1_500)),
        ("suspended, for a signal", after(&running, suspend_for("go", holder(&running), 9_000), 1_500)),
        (
            "suspended, its time over, unnoticed",
            after(&running, suspend_for("other", holder(&running), MOMENT), 1_500),
        ),
        ("completed", after(&running, finish(holder(&running)), 1_500)),
        ("completed, its result kept shorter", with_result(&job_with(brief_result), 1_500)),
        ("failed", after(&running, fail(holder(&running), RetryWish::Never), 1_500)),
        ("cancelled", after(&ready, cancel(NOW), 1_500)),
        ("terminating", terminating),
        ("terminated", after(&shutdown, finish(holder(&shutdown)), 1_500)),
    ]
}

fn with_result(job: &Job, ms: i64) -> Job {
    let running = claimed(job, ms);
    after(&running, finish_with(holder(&running), "7"), ms)
}

/// Every event; worker events as the holder of the lease, as a stranger, and without a token.
fn events(job: &Job) -> Vec<(String, Event)> {
    let mut events = vec![("claim".to_owned(), claim_for(None))];
    let stranger = Holder::Token(Token::from_number(1));
    for (who, by) in [("holder", holder(job)), ("stranger", stranger), ("anyone", Holder::Anyone)] {
        let of_worker = [
            ("extend", extend(by, 5_000)),
            ("renew", renew(by, 5_000)),
            ("report", report(by)),
            ("log", log_line(Some(by))),
            ("finish", finish(by)),
            ("fail", fail(by, RetryWish::Policy)),
            ("fail for good", fail(by, RetryWish::Never)),
            ("release", release(by, MOMENT, true)),
            ("return", Event::Return { by }),
            ("restart", restart(by, MOMENT)),
            ("suspend", suspend(by)),
            ("keep steps", keep_step(by)),
        ];
        events.extend(of_worker.map(|(what, event)| (format!("{what} ({who})"), event)));
    }
    let others = [
        ("finish (overseer)", finish(Holder::Overseer)),
        ("restart (overseer)", restart(Holder::Overseer, MOMENT)),
        ("lapse", lapse(job)),
        ("lapse (stranger)", Event::Lapse { token: Token::from_number(1), chance: 0.0 }),
        ("cancel: ask", cancel(ASK)),
        ("cancel: now", cancel(NOW)),
        ("cancel: unless running", cancel(CancelRunning::Refuse)),
        ("cancel: failed too", Event::Cancel { running: ASK, failed_too: true }),
        ("run", run_it(MOMENT)),
        ("run: force", force_it(MOMENT)),
        ("requeue", requeue(MOMENT)),
        ("requeue: even running", take_away(MOMENT)),
        ("requeue: from a step", Event::RequeueFrom { at: at(MOMENT), step: "a".into() }),
        ("terminate", Event::Terminate),
        ("log: from outside", log_line(None)),
        ("put to rest: suspended", Event::PutToRest(Rest::Suspended)),
        ("put to rest: completed", Event::PutToRest(Rest::Completed)),
        ("put to rest: failed", Event::PutToRest(Rest::Failed)),
        ("put to rest: terminated", Event::PutToRest(Rest::Terminated)),
        ("set ports", Event::SetPorts(Arc::default())),
        ("update", update(|patch| patch.priority = Some(5))),
        ("update: run at", update(|patch| patch.run_at = Some(at(9_000)))),
        ("take over as waiting", take_over(Stands::Waiting)),
        ("take over as failed", take_over(Stands::Failed)),
        ("child added", Event::ChildAdded),
        ("child settled", Event::ChildSettled),
        ("child failed", Event::ChildFailed),
        ("child written off", Event::ChildWrittenOff),
        ("parent paused", Event::ParentPaused),
        ("delete", Event::Delete),
        ("take result", Event::TakeResult),
        ("expire", Event::Expire),
        ("skip", Event::Skip { by: Holder::Anyone }),
        ("signal", Event::Signal { name: "go".into(), payload: Payload::default() }),
        ("wake", Event::Wake),
    ];
    events.extend(others.map(|(what, event)| (what.to_owned(), event)));
    events
}

fn keep_step(by: Holder) -> Event {
    Event::KeepSteps { by, steps: Vec::new() }
}

fn suspend_for(signal: &str, by: Holder, until: i64) -> Event {
    let wait = Wait { signal: Some(signal.into()), ..Wait::default() };
    Event::Suspend(Suspend { by, until: Some(at(until)), wait: Some(Box::new(wait)) })
}

fn take_over(stands: Stands) -> Event {
    Event::TakeOver(Standing { stands, due_at: at(MOMENT), started_at: None })
}

fn in_words(job: &Job) -> String {
    let mut words = state(job).to_owned();
    match job.state() {
        JobState::Ready { run_at, lapsed } => {
            words += if *run_at > at(MOMENT) { ", delayed" } else { "" };
            words += if lapsed.is_some() { ", lapsed" } else { "" };
        }
        JobState::Running(lease) => {
            words += if lease.kind == RunKind::Shutdown { " its shutdown" } else { "" };
            words += if lease.cancel_asked { ", asked to cancel" } else { "" };
            words += match lease.afterwards {
                Afterwards::Settle => "",
                Afterwards::RunAgain { at: then } if then > at(MOMENT) => ", to run again later",
                Afterwards::RunAgain { .. } => ", to run again",
                Afterwards::Terminate => ", to be terminated",
                Afterwards::Rest(Rest::Suspended) => ", to be suspended",
                Afterwards::Rest(Rest::Completed) => ", to be completed",
                Afterwards::Rest(Rest::Failed) => ", to be failed",
                Afterwards::Rest(Rest::Terminated) => ", to be terminated without a last run",
            };
        }
        JobState::Terminating { run_at } => words += if *run_at > at(MOMENT) { ", delayed" } else { "" },
        JobState::Waiting
        | JobState::Suspended { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => {}
    }
    words
}

fn cell(job: &Job, event: Event) -> String {
    match apply(job, event, at(MOMENT)) {
        Ok(Transition { job: Some(after), .. }) => in_words(&after),
        Ok(Transition { job: None, .. }) => "gone".to_owned(),
        Err(refused) => format!("!{}", refused.code()),
    }
}

const VERBS: [&str; 12] = [
    "extend",
    "renew",
    "report",
    "log",
    "finish",
    "fail",
    "fail for good",
    "release",
    "return",
    "restart",
    "suspend",
    "keep steps",
];

/// Replaces the names of a group's events by the name of the group, if all of them are present.
fn fold(events: &mut Vec<String>, parts: &[String], whole: &str) {
    if parts.iter().all(|part| events.contains(part)) {
        let place = events.iter().position(|event| *event == parts[0]).unwrap();
        events[place] = whole.to_owned();
        events.retain(|event| !parts.contains(event));
    }
}

fn shared(mut events: Vec<String>) -> String {
    for verb in VERBS {
        fold(&mut events, &["holder", "anyone"].map(|who| format!("{verb} ({who})")), verb);
    }
    fold(&mut events, &VERBS.map(str::to_owned), "every verb");
    for who in ["holder", "stranger", "anyone"] {
        fold(&mut events, &VERBS.map(|verb| format!("{verb} ({who})")), &format!("every verb ({who})"));
    }
    let ends = ["finish", "fail", "fail for good", "release", "return", "restart", "suspend"];
    fold(&mut events, &ends.map(str::to_owned), "every end");
    let cancels = ["ask", "now", "unless running", "failed too"].map(|how| format!("cancel: {how}"));
    fold(&mut events, &cancels, "every cancel");
    events.join(", ")
}

fn table() -> String {
    let mut text = String::new();
    for (name, job) in states() {
        text += &format!("{name}\n");
        let mut outcomes: Vec<(String, Vec<String>)> = Vec::new();
        for (event, happening) in events(&job) {
            let outcome = cell(&job, happening);
            match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, events)) => events.push(event),
                None => outcomes.push((outcome, vec![event])),
            }
        }
        outcomes.sort_by_key(|(outcome, _)| outcome.starts_with('!'));
        for (outcome, events) in outcomes {
            text += &format!("  {outcome} <- {}\n", shared(events));
        }
    }
    text
}

#[test]
fn every_event_does_this_in_every_state() {
    let actual = table();
    let expected = EXPECTED.trim_start();
    assert!(actual == expected, "the machine is now:\n{actual}");
}

/// A verb alone stands for the holder of the lease and for a report without a token; strangers have the wrong
/// token. "Every end" is finish, fail, fail for good, release, return, restart and suspend; "every verb" is
/// these, extend, renew, report, log and keep steps. An overseer ends runs of jobs that are not running.
const EXPECTED: &str = "
ready, due
  running <- claim
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run, run: force, requeue, requeue: even running, log: from outside, set ports, update, child added, child settled, child failed, child written off, signal
  cancelled <- every cancel
  terminating <- terminate
  suspended <- put to rest: suspended
  failed <- put to rest: failed, take over as failed
  terminated <- put to rest: terminated
  ready, delayed <- update: run at
  waiting <- take over as waiting
  gone <- delete
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_claimable <- parent paused, wake
  !not_due <- take result, skip
  !still_kept <- expire
ready, delayed
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run, run: force, requeue, requeue: even running
  cancelled <- every cancel
  terminating <- terminate
  ready, delayed <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  suspended <- put to rest: suspended
  failed <- put to rest: failed, take over as failed
  terminated <- put to rest: terminated
  waiting <- take over as waiting
  gone <- delete
  !not_due <- claim, take result, skip
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_claimable <- parent paused, wake
  !still_kept <- expire
ready, its lease lapsed
  running <- claim
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), requeue, requeue: even running
  cancelled <- every cancel
  ready, lapsed <- run, run: force, log: from outside, set ports, update, child added, child settled, child failed, child written off, signal
  terminating <- terminate
  suspended <- put to rest: suspended
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  ready, delayed, lapsed <- update: run at
  gone <- delete
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_claimable <- take over as waiting, take over as failed, parent paused, wake
  !not_due <- take result, skip
  !still_kept <- expire
ready, its lease lapsed, late reports accepted
  running <- claim
  completed <- finish, finish (overseer), put to rest: completed
  ready <- fail, release, return, restart, restart (overseer), requeue, requeue: even running
  failed <- fail for good, put to rest: failed
  suspended <- suspend, put to rest: suspended
  cancelled <- every cancel
  ready, lapsed <- run, run: force, log: from outside, set ports, update, child added, child settled, child failed, child written off, signal
  terminating <- terminate
  terminated <- put to rest: terminated
  ready, delayed, lapsed <- update: run at
  gone <- delete
  !lease_lost <- extend (holder), renew (holder), report (holder), log (holder), keep steps (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- extend (anyone), renew (anyone), report (anyone), log (anyone), keep steps (anyone)
  !no_step <- requeue: from a step
  !not_claimable <- take over as waiting, take over as failed, parent paused, wake
  !not_due <- take result, skip
  !still_kept <- expire
running
  running <- extend, renew, report, log, keep steps, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  completed <- finish, finish (overseer)
  ready <- fail, release, return, restart, restart (overseer), requeue: even running
  failed <- fail for good
  suspended <- suspend
  running, asked to cancel <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to run again <- run, run: force
  running, to be terminated <- terminate
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, asked to cancel
  running, asked to cancel <- extend, renew, report, log, keep steps, cancel: ask, cancel: failed too, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  completed <- finish, finish (overseer)
  cancelled <- fail, fail for good, release, return, restart, suspend, restart (overseer), cancel: now
  running, asked to cancel, to run again <- run, run: force
  ready <- requeue: even running
  running, asked to cancel, to be terminated <- terminate
  running, asked to cancel, to be suspended <- put to rest: suspended
  running, asked to cancel, to be completed <- put to rest: completed
  running, asked to cancel, to be failed <- put to rest: failed
  running, asked to cancel, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, to run again
  running, to run again <- extend, renew, report, log, keep steps, run, run: force, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  ready <- every end, finish (overseer), restart (overseer), requeue: even running
  running, asked to cancel, to run again <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to be terminated <- terminate
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, to run again later
  running, to run again later <- extend, renew, report, log, keep steps, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  ready, delayed <- finish, fail, fail for good, release, return, suspend, finish (overseer)
  ready <- restart, restart (overseer), requeue: even running
  running, asked to cancel, to run again later <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to run again <- run, run: force
  running, to be terminated <- terminate
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, to be terminated
  running, to be terminated <- extend, renew, report, log, keep steps, terminate, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  terminating <- every end, finish (overseer), restart (overseer), cancel: now
  running, asked to cancel, to be terminated <- cancel: ask, cancel: failed too
  running, to run again <- run: force
  ready <- requeue: even running
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !terminating <- run
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, to be suspended
  running, to be suspended <- extend, renew, report, log, keep steps, log: from outside, put to rest: suspended, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  suspended <- every end, finish (overseer), restart (overseer), cancel: now
  running, asked to cancel, to be suspended <- cancel: ask, cancel: failed too
  running, to run again <- run, run: force
  ready <- requeue: even running
  running, to be terminated <- terminate
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, to be terminated without a last run
  running, to be terminated without a last run <- extend, renew, report, log, keep steps, log: from outside, put to rest: terminated, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  terminated <- every end, finish (overseer), restart (overseer), cancel: now
  running, asked to cancel, to be terminated without a last run <- cancel: ask, cancel: failed too
  running, to run again <- run: force
  ready <- requeue: even running
  running, to be terminated <- terminate
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !settled <- run
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, a child pending
  running <- extend, renew, report, log, keep steps, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  waiting <- finish, finish (overseer)
  ready <- fail, release, return, restart, restart (overseer), requeue: even running
  failed <- fail for good
  suspended <- suspend
  running, asked to cancel <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to run again <- run, run: force
  running, to be terminated <- terminate
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, lease over, unnoticed
  completed <- finish (overseer)
  ready <- restart (overseer), requeue: even running
  ready, lapsed <- lapse
  running, asked to cancel <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to run again <- run, run: force
  running, to be terminated <- terminate
  running <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb, every verb (stranger), lapse (stranger)
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running, lease over, unnoticed, late reports accepted
  completed <- finish, finish (overseer)
  ready <- fail, release, return, restart, restart (overseer), requeue: even running
  failed <- fail for good
  suspended <- suspend
  ready, lapsed <- lapse
  running, asked to cancel <- cancel: ask, cancel: failed too
  cancelled <- cancel: now
  running, to run again <- run, run: force
  running, to be terminated <- terminate
  running <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  running, to be suspended <- put to rest: suspended
  running, to be completed <- put to rest: completed
  running, to be failed <- put to rest: failed
  running, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- extend, renew, report, log, keep steps, every verb (stranger), lapse (stranger)
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running its shutdown
  running its shutdown <- extend, renew, report, log, keep steps, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  terminated <- finish, fail, fail for good, restart, suspend, finish (overseer), restart (overseer)
  terminating <- release, return
  running its shutdown, to run again <- run: force
  ready <- requeue: even running
  running its shutdown, to be terminated <- terminate
  running its shutdown, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !terminating <- cancel: ask, cancel: now, cancel: failed too, run, put to rest: suspended, put to rest: completed, put to rest: failed
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
running its shutdown, forced to run again
  running its shutdown, to run again <- extend, renew, report, log, keep steps, run: force, log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  ready <- every end, finish (overseer), restart (overseer), requeue: even running
  running its shutdown, to be terminated <- terminate
  running its shutdown, to be terminated without a last run <- put to rest: terminated
  !running <- claim, cancel: unless running, requeue, take over as waiting, take over as failed, delete, wake
  !lease_lost <- every verb (stranger), lapse (stranger)
  !lease_live <- lapse
  !terminating <- cancel: ask, cancel: now, cancel: failed too, run, put to rest: suspended, put to rest: completed, put to rest: failed
  !no_step <- requeue: from a step
  !not_claimable <- parent paused
  !not_due <- take result, skip
  !still_kept <- expire
waiting for its parent
  completed <- finish (overseer)
  ready <- restart (overseer), requeue, requeue: even running, parent paused
  cancelled <- every cancel
  terminating <- terminate
  waiting <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  gone <- delete
  !waiting <- claim, run, run: force, put to rest: suspended, put to rest: completed, put to rest: failed, put to rest: terminated, take over as waiting, take over as failed, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_due <- take result, skip
  !still_kept <- expire
waiting for a child
  waiting <- finish (overseer), log: from outside, set ports, update, update: run at, child added, child failed, child written off, signal
  ready <- restart (overseer), requeue: even running, child settled
  terminating <- terminate
  !waiting <- claim, run, run: force, put to rest: suspended, put to rest: completed, put to rest: failed, put to rest: terminated, take over as waiting, take over as failed, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !has_children <- every cancel, requeue, parent paused, delete
  !no_step <- requeue: from a step
  !not_due <- take result, skip
  !still_kept <- expire
suspended
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run, run: force, requeue, requeue: even running
  cancelled <- every cancel
  terminating <- terminate
  suspended <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !settled <- put to rest: suspended
  !not_due <- take result, skip, wake
  !still_kept <- expire
suspended, for a signal
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run, run: force, requeue, requeue: even running, signal
  cancelled <- every cancel
  terminating <- terminate
  suspended <- log: from outside, put to rest: suspended, set ports, update, update: run at, child added, child settled, child failed, child written off
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_due <- take result, skip, wake
  !still_kept <- expire
suspended, its time over, unnoticed
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run, run: force, requeue, requeue: even running, wake
  cancelled <- every cancel
  terminating <- terminate
  suspended <- log: from outside, put to rest: suspended, set ports, update, update: run at, child added, child settled, child failed, child written off, signal
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !no_step <- requeue: from a step
  !not_due <- take result, skip
  !still_kept <- expire
completed
  completed <- finish (overseer), log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off
  ready <- restart (overseer), run, run: force, requeue, requeue: even running
  terminating <- terminate
  suspended <- put to rest: suspended
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete, expire
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !settled <- every cancel, put to rest: completed, take result, signal
  !no_step <- requeue: from a step
  !not_due <- skip
completed, its result kept shorter
  completed <- finish (overseer), log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off, take result, expire
  ready <- restart (overseer), run, run: force, requeue, requeue: even running
  terminating <- terminate
  suspended <- put to rest: suspended
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !settled <- every cancel, put to rest: completed, signal
  !no_step <- requeue: from a step
  !not_due <- skip
failed
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run: force, requeue, requeue: even running
  cancelled <- cancel: failed too
  terminating <- terminate
  failed <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off
  suspended <- put to rest: suspended
  terminated <- put to rest: terminated
  gone <- delete, expire
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !settled <- cancel: ask, cancel: now, cancel: unless running, run, put to rest: failed, take result, signal
  !no_step <- requeue: from a step
  !not_due <- skip
cancelled
  completed <- finish (overseer), put to rest: completed
  ready <- restart (overseer), run: force, requeue, requeue: even running
  terminating <- terminate
  cancelled <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off
  suspended <- put to rest: suspended
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  gone <- delete, expire
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone)
  !settled <- every cancel, run, take result, signal
  !no_step <- requeue: from a step
  !not_due <- skip
terminating
  running its shutdown <- claim
  ready <- run: force, requeue, requeue: even running
  terminating <- terminate, log: from outside, set ports, update, child added, child settled, child failed, child written off, signal
  suspended <- put to rest: suspended
  completed <- put to rest: completed
  failed <- put to rest: failed
  terminated <- put to rest: terminated
  terminating, delayed <- update: run at
  gone <- delete
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone), finish (overseer), restart (overseer)
  !terminating <- every cancel, run
  !no_step <- requeue: from a step
  !not_claimable <- take over as waiting, take over as failed, parent paused, wake
  !not_due <- take result, skip
  !still_kept <- expire
terminated
  ready <- run: force, requeue, requeue: even running
  terminated <- log: from outside, set ports, update, update: run at, child added, child settled, child failed, child written off
  suspended <- put to rest: suspended
  completed <- put to rest: completed
  failed <- put to rest: failed
  gone <- delete
  !not_claimable <- claim, take over as waiting, take over as failed, parent paused, wake
  !lease_lost <- every verb (holder), every verb (stranger), lapse, lapse (stranger)
  !not_running <- every verb (anyone), finish (overseer), restart (overseer)
  !settled <- every cancel, run, terminate, put to rest: terminated, take result, signal
  !no_step <- requeue: from a step
  !still_kept <- expire
  !not_due <- skip
";
