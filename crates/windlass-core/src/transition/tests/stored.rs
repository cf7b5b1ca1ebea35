//! Stored formats: jobs written by this version and by older versions can be read.

use super::*;
use crate::Format;
use crate::event::Suspend;
use crate::history::{Log, LogLine, Mark, MarkKind};
use crate::ports::Ports;
use crate::repeat::Span;
use crate::steps::{NewStep, Steps, Wait};
use crate::turn::{CatchUp, Turn, TurnOutcome};
use crate::unique::{HeldUntil, OnConflict, Unique};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let packed = rmp_serde::to_vec_named(value).unwrap();
    assert_eq!(rmp_serde::from_slice::<T>(&packed).unwrap(), *value);
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value, "{text}");
}

/// `json` as MessagePack and as JSON.
fn reads_as<T: DeserializeOwned + PartialEq + Debug>(json: &str, expected: &T) {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(rmp_serde::from_slice::<T>(&rmp_serde::to_vec_named(&value).unwrap()).unwrap(), *expected);
    assert_eq!(serde_json::from_str::<T>(json).unwrap(), *expected);
}

fn full_policy(repeat: &str) -> Policy {
    Policy {
        lease: LeasePolicy {
            length_ms: None,
            on_lapse: OnLapse::GiveUp,
            lapse_attempts: -1,
            accept_late: true,
        },
        lease_span: Some(Span::parse("+1 MONTH").unwrap()),
        retry: RetryPolicy {
            max_attempts: None,
            backoff: Backoff::Exponential { base_ms: 5, cap_ms: 9, jitter_percent: 3 },
            give_up_after_ms: Some(77),
        },
        keep: Keep { completed: KeepFor::Drop, failed: KeepFor::Ms(5), cancelled: KeepFor::Ever },
        result: crate::ResultPolicy { keep: KeepFor::Ms(900), once: true },
        repeat: every(repeat),
        runs_per_minute: Some(600),
        repeat_after_failure: true,
        retry_moves_slot: true,
        catch_up: CatchUp::None,
        forget_children: Some(false),
    }
}

fn full_extras() -> Extras {
    Extras {
        origin: Some("jq".into()),
        alias: Some("a-1".into()),
        tags: vec!["red".into(), "blue".into()],
        unique: Some(Unique {
            key: "k".into(),
            on_conflict: OnConflict::Refuse,
            held_until: HeldUntil::Started,
        }),
        family: Some(Family {
            parent: id(7),
            child_name: Some("left".into()),
            rule: FamilyRule::ParentWaits { failure_settles: true },
        }),
        limit_keys: vec!["mail:7".into()],
        dated: true,
        facts: [("typed".into(), "tomorrow".into())].into(),
    }
}

#[test]
fn policies_survive_being_stored() {
    survives(&Policy::default());
    for rule in ["every 5m", "TZ=Europe/Berlin 0 4 * * MON-FRI", "FINISHED, +1 DAY, START OF DAY, +4 HOURS"] {
        survives(&full_policy(rule));
    }
    for backoff in [Backoff::None, Backoff::Fixed { delay_ms: 1 }] {
        survives(&policy(|policy| policy.retry.backoff = backoff));
    }
}

#[test]
fn extras_survive_being_stored() {
    survives(&Extras::default());
    survives(&full_extras());
    let family = Some(Family { parent: id(7), child_name: None, rule: FamilyRule::ParentRunsAfter });
    survives(&Extras { family, ..Extras::default() });
}

/// Steps of a job that waits.
fn full_steps() -> Arc<Steps> {
    let step = |name: &str, result| NewStep { name: name.into(), result, started_at: Some(at(1)) };
    let running = claimed(&job(), 0);
    let steps = vec![step("a", Some(Payload::json("1"))), step("b", None)];
    let running = after(&running, Event::KeepSteps { by: holder(&running), steps }, 10);
    let signal = |name: &str| Event::Signal { name: name.into(), payload: Payload::json("2") };
    let running = after(&running, signal("early"), 20);
    let wait = |signal: Option<&str>| Wait {
        step: Some("wait".into()),
        signal: signal.map(Into::into),
        children: signal.is_none(),
        ..Wait::default()
    };
    let suspend = |job: &Job, until: i64, wait: Wait| {
        let (by, wait) = (holder(job), Some(Box::new(wait)));
        Event::Suspend(Suspend { by, until: Some(at(until)), wait })
    };
    let late = after(&after(&running, suspend(&running, 900, wait(Some("never"))), 30), Event::Wake, 900);
    let running = claimed(&after(&late, Event::ChildAdded, 901), 902);
    after(&running, suspend(&running, 2_000, wait(None)), 903).steps().expect("it has steps").clone()
}

#[test]
fn bodies_survive_being_stored() {
    survives(&Body::default());
    let bytes: Vec<u8> = (0..=255).collect();
    survives(&Body {
        percent: Some(100),
        note: Some("übrig: 0".to_owned()),
        errors: vec![AttemptError {
            attempt: 1,
            at: at(-5),
            message: "oops".to_owned(),
            class: Some("Oops".to_owned()),
            error: Some(Payload::json("[1]")),
            backtrace: Some("a\nb".to_owned()),
            started_at: Some(at(-9)),
            worker: Some("w1".into()),
        }],
        outcome: Some(Outcome {
            result: Some(Payload::new(Format::Binary, bytes)),
            error: Some(Payload::json("{\"a\":1}")),
            message: Some("m".to_owned()),
            class: Some("Oops".to_owned()),
            backtrace: Some("a\nb".to_owned()),
            code: Some("E1".to_owned()),
            worker: Some("w1".into()),
            ended_at: Some(at(77)),
            exit_code: Some(-9),
        }),
        ports: Some(Arc::new(Ports::default())),
        steps: Some(full_steps()),
        log: Some(Box::new(Log {
            lines: [LogLine { at: at(3), attempt: 2, source: Some("stderr".into()), text: "ü".to_owned() }]
                .into(),
            dropped: 7,
        })),
        marks: vec![Mark { at: at(4), what: MarkKind::CancelAsked, who: "ann".into() }],
        turns: vec![Turn {
            due_at: at(1),
            started_at: Some(at(2)),
            ended_at: at(3),
            outcome: TurnOutcome::Failed,
            attempts: 4,
            missed: 5,
            requested: true,
            class: Some("E".to_owned()),
            code: Some("e".to_owned()),
            message: Some("m".to_owned()),
            worker: Some("w".into()),
        }],
    });
}

#[test]
fn nothing_written_means_the_defaults() {
    assert_eq!(serde_json::to_string(&Policy::default()).unwrap(), "{}");
    assert_eq!(serde_json::to_string(&Extras::default()).unwrap(), "{}");
    assert_eq!(serde_json::to_string(&Body::default()).unwrap(), "{}");
    reads_as("{}", &Policy::default());
    reads_as("{}", &Extras::default());
    reads_as("{}", &Body::default());
}

#[test]
fn fields_that_are_missing_have_their_defaults() {
    let retry = RetryPolicy { max_attempts: Some(2), ..RetryPolicy::default() };
    reads_as(r#"{"retry":{"max_attempts":2},"lease":{},"keep":{}}"#, &Policy { retry, ..Policy::default() });
    let repeat = every("every 5m");
    reads_as(r#"{"repeat":{"text":"every 5m"}}"#, &Policy { repeat, ..Policy::default() });
    let unique = Unique { key: "k".into(), on_conflict: OnConflict::Return, held_until: HeldUntil::Settled };
    let family = Family { parent: id(3), child_name: None, rule: FamilyRule::ParentRunsAfter };
    let extras = Extras { unique: Some(unique), family: Some(family), ..Extras::default() };
    reads_as(r#"{"unique":{"key":"k"},"family":{"parent":3,"rule":"parent_runs_after"}}"#, &extras);
    let outcome = Some(Outcome { exit_code: Some(1), ..Outcome::default() });
    reads_as(r#"{"outcome":{"exit_code":1}}"#, &Body { outcome, ..Body::default() });
}

#[test]
fn fields_of_a_later_version_are_passed_over() {
    let lease = LeasePolicy { length_ms: Some(5), ..LeasePolicy::default() };
    reads_as(
        r#"{"lease":{"length_ms":5,"colour":"red"},"moons":[1]}"#,
        &Policy { lease, ..Policy::default() },
    );
    reads_as(r#"{"moons":{"io":1}}"#, &Extras::default());
    let error = AttemptError { attempt: 1, at: at(2), message: "m".to_owned(), ..AttemptError::default() };
    let body = Body { errors: vec![error], ..Body::default() };
    reads_as(r#"{"errors":[{"attempt":1,"at":2,"message":"m","trace":"…"}],"moons":null}"#, &body);
}
