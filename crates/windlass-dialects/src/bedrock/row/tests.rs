use super::*;
use windlass_core::event::{Finish, Grant, Patch};
use windlass_core::repeat::{Repeat, Span};
use windlass_core::{
    Event, Extras, Holder, JobId, JobSpec, Name, Outcome, Policy, Queue, Tenant, apply, created,
};

const MADE: i64 = 1_706_702_400_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(MADE + ms)
}

fn job(policy: Policy, run_at: Timestamp, extras: Option<Box<Extras>>) -> Job {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new("mail").unwrap(),
        payload: Payload::json(r#"{"to": "ada"}"#),
        priority: engine_priority(850),
        created_at: at(0),
        policy: Arc::new(policy),
        extras,
    };
    created(JobId::new(7).unwrap(), Arc::new(spec), run_at, false, None)
}

fn after(job: &Job, event: Event, ms: i64) -> Job {
    apply(job, event, at(ms)).unwrap().job.unwrap()
}

fn claim() -> Event {
    Event::Claim(Grant { worker: None, lease_ms: None, random: 1 })
}

fn retrying(span: &str) -> Policy {
    let mut policy = Policy { lease_span: Some(Span::parse(span).unwrap()), ..Policy::default() };
    policy.lease.accept_late = true;
    policy.retry.max_attempts = None;
    policy
}

#[test]
fn a_new_job_has_every_column() {
    let repeat = Some(Repeat::parse("finished, +1 day").unwrap());
    let job = job(Policy { repeat, ..Policy::default() }, at(0), None);
    let expected = Row {
        created: "2024-01-31 12:00:00".to_owned(),
        job_id: 7,
        state: RowState::Queued,
        name: "mail",
        next_run: "2024-01-31 12:00:00.000".into(),
        last_run: None,
        repeat: "finished, +1 day",
        data: r#"{"to": "ada"}"#.into(),
        priority: 850,
        parent_job_id: 0,
        retry_after: "",
    };
    assert_eq!(Row::of(&job), expected);
}

#[test]
fn a_next_run_is_shown_as_it_was_written_until_it_is_about_another_moment() {
    let text = "2024-02-01";
    let when = times::moment_of(text);
    let fact = next_run_fact(text, when, at(0)).unwrap();
    let facts = [(NEXT_RUN.into(), fact)].into();
    let job = job(Policy::default(), when, Some(Box::new(Extras { facts, ..Extras::default() })));
    assert_eq!(Row::of(&job).next_run, text);
    let patch = Patch { run_at: Some(at(86_400_000)), ..Patch::default() };
    let moved = after(&job, Event::Update(Box::new(patch)), 1);
    assert_eq!(Row::of(&moved).next_run, "2024-02-01 12:00:00");
    assert_eq!(next_run_fact("2030-01-01 00:00:00", times::moment_of("2030-01-01 00:00:00"), at(0)), None);
}

#[test]
fn a_job_with_retry_after_counts_its_hand_outs_in_its_data() {
    let job = job(retrying("+10 MINUTES"), at(0), None);
    let first = after(&job, claim(), 1_500);
    let row = Row::of(&first);
    assert_eq!((row.state, &*row.next_run), (RowState::Runqueued, "2024-01-31 12:10:01"));
    assert_eq!(row.data, r#"{"to":"ada","retryAfterCount":1}"#);
    let before = Row::before_run(&first);
    assert_eq!((&*before.data, before.last_run), (r#"{"to": "ada"}"#, None));

    let token = first.state().lease().unwrap().token;
    let late = after(&first, Event::Lapse { token, chance: 0.0 }, 700_000);
    assert_eq!(Row::of(&late).state, RowState::Runqueued);
    let second = after(&late, claim(), 800_000);
    assert_eq!(Row::of(&second).data, r#"{"to":"ada","retryAfterCount":2}"#);
    let before = Row::before_run(&second);
    assert_eq!(before.data, r#"{"to":"ada","retryAfterCount":1}"#);
    assert_eq!(before.last_run.as_deref(), Some("2024-01-31 12:00:01"));
}

#[test]
fn a_paused_parent_shows_its_last_run() {
    let mut policy = Policy::default();
    policy.lease.length_ms = None;
    let running = after(&job(policy, at(0), None), claim(), 60_000);
    assert_eq!(Row::of(&running).state, RowState::Running);
    let parent = after(&running, Event::ChildAdded, 60_000);
    let finish =
        Finish { by: Holder::Anyone, outcome: Outcome::default(), payload: None, ignore_repeat: false };
    let paused = after(&parent, Event::Finish(finish), 90_000);
    let row = Row::of(&paused);
    assert_eq!((row.state, &*row.next_run), (RowState::Paused, "2024-01-31 12:01:00"));
    assert_eq!(row.last_run.as_deref(), Some("2024-01-31 12:01:00"));
}

#[test]
fn priorities_are_turned_round() {
    assert_eq!(engine_priority(500), 0);
    assert!(engine_priority(1_000) < engine_priority(0));
    assert_eq!(bedrock_priority(engine_priority(250)), 250);
    assert_eq!(engine_priority(i64::MIN), i32::MAX);
    assert_eq!(engine_priority(i64::MAX), i32::MIN);
}

#[test]
fn payloads_of_other_dialects_are_json_here() {
    assert_eq!(payload_text(&Payload::default()), "{}");
    assert_eq!(payload_text(&Payload::new(Format::Text, &b"hi"[..])), r#"{"payload":"hi","format":"text"}"#);
}
