//! Tests of the rules: every (state, event) pair in one text to proofread ([`table`]), the subtle rules one
//! by one ([`scenarios`], [`leases`], [`families`], [`steps`], [`turns`]), and invariants under random events ([`properties`]). [`stored`]
//! checks that jobs written by older versions can still be read.

mod families;
mod leases;
mod properties;
mod scenarios;
mod steps;
mod stored;
mod table;
mod turns;

use super::*;
use crate::event::{CancelRunning, Failure, Finish, Grant, Patch, Restart, RetryWish};
use crate::family::{Family, FamilyRule};
use crate::job::{AttemptError, KeepFor, Outcome, Payload};
use crate::lease::{Afterwards, Holder, Lease, LeasePolicy, OnLapse, Rest, RunKind, Token};
use crate::repeat::Repeat;
use crate::retry::{Backoff, RetryPolicy};
use crate::{Extras, Keep, Name, Policy, Queue, Tenant};

const ASK: CancelRunning = CancelRunning::Ask;
const NOW: CancelRunning = CancelRunning::Now;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn id(number: u64) -> JobId {
    JobId::new(number).unwrap()
}

/// Three attempts without backoff, a lease of one second, everything kept; each test changes the part it
/// tests.
fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy {
        lease: LeasePolicy { length_ms: Some(1_000), ..LeasePolicy::default() },
        retry: RetryPolicy { max_attempts: Some(3), backoff: Backoff::None, give_up_after_ms: None },
        keep: Keep { completed: KeepFor::Ever, failed: KeepFor::Ever, cancelled: KeepFor::Ever },
        ..Policy::default()
    };
    change(&mut policy);
    policy
}

fn spec(policy: Policy) -> JobSpec {
    JobSpec {
        tenant: Tenant::new("default").unwrap(),
        queue: Queue::new("default").unwrap(),
        name: Name::new("mail").unwrap(),
        payload: Payload::default(),
        priority: 0,
        created_at: at(0),
        policy: Arc::new(policy),
        extras: None,
    }
}

/// Job 1, due at 0.
fn job_with(change: impl FnOnce(&mut Policy)) -> Job {
    created(id(1), Arc::new(spec(policy(change))), at(0), false, None)
}

fn job() -> Job {
    job_with(|_| {})
}

fn on_lapse(on_lapse: OnLapse, lapse_attempts: i8) -> Job {
    job_with(|policy| {
        policy.lease.on_lapse = on_lapse;
        policy.lease.lapse_attempts = lapse_attempts;
    })
}

/// Job 2, child of job 1.
fn child_with(rule: FamilyRule, held_by_parent: bool, change: impl FnOnce(&mut Policy)) -> Job {
    let family = Some(Family { parent: id(1), child_name: None, rule });
    let extras = Some(Box::new(Extras { family, ..Extras::default() }));
    let spec = JobSpec { extras, ..spec(policy(change)) };
    created(id(2), Arc::new(spec), at(0), held_by_parent, None)
}

fn every(text: &str) -> Option<Repeat> {
    Some(Repeat::parse(text).unwrap())
}

// --- events applied to a job -------------------------------------------------------------------------------

fn outcome_of(job: &Job, event: Event, ms: i64) -> Transition {
    apply(job, event.clone(), at(ms)).unwrap_or_else(|refused| panic!("{event:?} at {ms}: {refused}"))
}

/// Returns the job after the event.
fn after(job: &Job, event: Event, ms: i64) -> Job {
    outcome_of(job, event, ms).job.expect("the job is gone")
}

fn effects(job: &Job, event: Event, ms: i64) -> Effects {
    outcome_of(job, event, ms).effects
}

fn refusal(job: &Job, event: Event, ms: i64) -> Refused {
    match apply(job, event.clone(), at(ms)) {
        Ok(transition) => panic!("{event:?} at {ms} was not refused: {transition:?}"),
        Err(refused) => refused,
    }
}

fn claimed(job: &Job, ms: i64) -> Job {
    after(job, claim_for(None), ms)
}

/// Claimed at `ms`, with its lease of one second expired and processed.
fn lapsed_after(job: &Job, ms: i64) -> Job {
    let running = claimed(job, ms);
    after(&running, lapse(&running), ms + 1_000)
}

fn holder(job: &Job) -> Holder {
    Holder::Token(token(job))
}

fn token(job: &Job) -> Token {
    match job.state() {
        JobState::Running(lease) => lease.token,
        JobState::Ready { lapsed: Some(token), .. } => *token,
        _ => Token::from_number(0),
    }
}

fn lease(job: &Job) -> &Lease {
    job.state().lease().expect("the job is not running")
}

fn run_at(job: &Job) -> i64 {
    job.state().claimable_at().expect("the job waits for no worker").as_millis()
}

fn state(job: &Job) -> &'static str {
    job.state().name().as_str()
}

// --- events ------------------------------------------------------------------------------------------------

fn claim_for(lease_ms: Option<i64>) -> Event {
    Event::Claim(Grant { worker: None, lease_ms, random: 9 })
}

fn finish(by: Holder) -> Event {
    Event::Finish(Finish { by, outcome: Outcome::default(), payload: None, ignore_repeat: false })
}

fn finish_with(by: Holder, json: &str) -> Event {
    let outcome = Outcome { result: Some(crate::Payload::json(json)), ..Outcome::default() };
    Event::Finish(Finish { by, outcome, payload: None, ignore_repeat: false })
}

fn fail(by: Holder, retry: RetryWish) -> Event {
    let outcome = Outcome { message: Some("oops".to_owned()), ..Outcome::default() };
    Event::Fail(Failure { by, outcome, retry, payload: None, chance: 0.0 })
}

fn release(by: Holder, ms: i64, counts: bool) -> Event {
    Event::Release { by, run_at: at(ms), counts }
}

fn restart(by: Holder, ms: i64) -> Event {
    let restart = Restart { by, run_at: at(ms), heed_repeat: true, patch: Patch::default() };
    Event::Restart(Box::new(restart))
}

fn suspend(by: Holder) -> Event {
    Event::suspend(by)
}

fn report(by: Holder) -> Event {
    Event::Report { by, percent: Some(50), note: None, payload: None }
}

fn log_line(by: Option<Holder>) -> Event {
    Event::Log { by, source: None, lines: vec!["so far".to_owned()] }
}

fn extend(by: Holder, lease_ms: i64) -> Event {
    Event::Extend { by, lease_ms: Some(lease_ms) }
}

fn renew(by: Holder, lease_ms: i64) -> Event {
    Event::Renew { by, lease_ms: Some(lease_ms), worker: None }
}

fn lapse(job: &Job) -> Event {
    Event::Lapse { token: token(job), chance: 0.0 }
}

fn cancel(running: CancelRunning) -> Event {
    Event::Cancel { running, failed_too: false }
}

fn run_it(ms: i64) -> Event {
    Event::Run { at: at(ms), force: false }
}

fn force_it(ms: i64) -> Event {
    Event::Run { at: at(ms), force: true }
}

fn requeue(ms: i64) -> Event {
    Event::Requeue { at: at(ms), even_running: false }
}

fn take_away(ms: i64) -> Event {
    Event::Requeue { at: at(ms), even_running: true }
}

fn update(change: impl FnOnce(&mut Patch)) -> Event {
    let mut patch = Patch::default();
    change(&mut patch);
    Event::Update(Box::new(patch))
}
