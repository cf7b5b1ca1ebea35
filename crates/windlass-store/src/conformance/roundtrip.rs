//! Round trip: every state, policy, extra and byte is read back as written.

use super::fixtures::{Draft, Rig, at, done, id, job, name, queue, tenant};
use crate::Step;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::history::{Log, LogLine, Mark, MarkKind};
use windlass_core::job::{AttemptError, MinuteRuns, ResultPolicy};
use windlass_core::lease::{Afterwards, LeasePolicy, OnLapse, Rest, RunKind};
use windlass_core::repeat::{Repeat, Span};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::turn::{CatchUp, Turn, TurnOutcome};
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{
    Body, Event, Extras, Format, Job, JobState, Keep, KeepFor, Lease, Outcome, Payload, Policy, Progress,
    Timestamp, Token,
};

const FORMATS: [Format; 4] = [Format::Json, Format::Msgpack, Format::Text, Format::Binary];

/// Creates a job from the draft, then changes it with `rewrite`; both versions have to be read back as
/// written, alone, in a list and by a claim.
async fn check(
    rig: &Rig,
    draft: Draft,
    rewrite: impl FnOnce(&mut Progress, &mut Option<Arc<Body>>) -> JobState,
) {
    let spec = Arc::new(draft.spec.clone());
    let before = rig.push(draft).await;
    assert_eq!(before.spec, spec, "the spec of a new job");
    let (mut progress, mut body) = (before.progress.clone(), before.body.clone());
    let state = rewrite(&mut progress, &mut body);
    let written = Job::from_parts(before.id, before.version + 1, spec, progress, body, state);
    let verdict = rig.commit_one(Step::change(before, Some(written.clone())), at(0)).await;
    assert_eq!(verdict, done());
    assert_eq!(*rig.get(written.id).await, written, "load gives what was committed");
    let page = rig.store.list(crate::Filter { limit: 1, ..Default::default() }).await.expect("list");
    assert_eq!(*page.jobs[0], written, "list gives what was committed");
}

pub(super) async fn payloads_come_back_byte_for_byte(rig: &Rig) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..1_usize << 20).map(|n| (n * 31 % 251) as u8).collect();
    let contents = [vec![], vec![0], every_byte, b"{\"a\": 1}\n".to_vec(), "žluťoučký".into(), large];
    for format in FORMATS {
        for bytes in &contents {
            let payload = Payload::new(format, bytes.clone());
            let made = rig.push(job("a").payload(payload.clone())).await;
            assert!(made.spec.payload == payload, "a payload of {} bytes as {format:?}", bytes.len());
            let claimed = rig.claim_one(at(0)).await;
            assert!(claimed.spec.payload == payload, "the same by a claim");

            let swapped = Payload::new(format, bytes.iter().rev().copied().collect::<Vec<_>>());
            let patch = Patch { payload: Some(swapped.clone()), ..Patch::default() };
            rig.happen(made.id, Event::Update(Box::new(patch)), at(0)).await;
            assert!(rig.get(made.id).await.spec.payload == swapped, "the same after an update");
        }
    }
}

pub(super) async fn every_state_comes_back(rig: &Rig) {
    let token = Token::from_number(0x0123_4567_89ab_cdef);
    let mut states = vec![
        JobState::ready(at(-5)),
        JobState::Ready { run_at: at(77), lapsed: Some(token) },
        JobState::Waiting,
        JobState::SUSPENDED,
        JobState::Suspended { until: Some(at(5_000)) },
        JobState::Completed { at: at(1) },
        JobState::Failed { at: at(2) },
        JobState::Cancelled { at: at(3) },
        JobState::Terminating { run_at: at(4) },
        JobState::Terminated { at: at(5) },
    ];
    for kind in [RunKind::Perform, RunKind::Shutdown] {
        let rests = Rest::ALL.map(Afterwards::Rest);
        let afterwards =
            [Afterwards::Settle, Afterwards::RunAgain { at: at(77) }, Afterwards::Terminate].into_iter();
        for afterwards in afterwards.chain(rests) {
            for (cancel_asked, worker, until) in
                [(false, None, None), (true, Some("w"), Some(at(9))), (true, Some(""), Some(Timestamp::MAX))]
            {
                let worker = worker.map(Arc::from);
                let granted_at = at(8);
                states.push(JobState::Running(Lease {
                    token,
                    worker,
                    granted_at,
                    until,
                    kind,
                    afterwards,
                    cancel_asked,
                    ahead: cancel_asked && kind == RunKind::Perform,
                }));
            }
        }
    }
    for state in states {
        check(rig, job("a"), |_, _| state).await;
    }
}

pub(super) async fn every_policy_comes_back(rig: &Rig) {
    let keeps = [KeepFor::Drop, KeepFor::Ms(0), KeepFor::Ms(i64::MAX), KeepFor::Ever];
    let backoffs = [
        Backoff::None,
        Backoff::Fixed { delay_ms: 12 },
        Backoff::Exponential { base_ms: 3, cap_ms: 5, jitter_percent: 7 },
    ];
    let repeats = ["every 5m", "0 4 * * MON-FRI", "FINISHED, +1 DAY, START OF DAY, +4 HOURS", "HOURLY"];
    let mut policies = vec![Policy::default()];
    for (number, keep) in keeps.into_iter().enumerate() {
        let next = keeps[(number + 1) % keeps.len()];
        let keep = Keep { completed: keep, failed: next, cancelled: keep };
        let result = ResultPolicy { keep: keep.completed, once: keep.failed == KeepFor::Ever };
        policies.push(Policy { keep, result, ..Policy::default() });
    }
    for (backoff, on_lapse) in backoffs.into_iter().zip([OnLapse::AtLeaseEnd, OnLapse::Fail, OnLapse::GiveUp])
    {
        let retry = RetryPolicy { max_attempts: Some(3), backoff, give_up_after_ms: Some(99) };
        let lease = LeasePolicy { length_ms: Some(1), on_lapse, lapse_attempts: -1, accept_late: true };
        policies.push(Policy { retry, lease, repeat_after_failure: true, ..Policy::default() });
    }
    let endless = RetryPolicy { max_attempts: None, give_up_after_ms: None, ..RetryPolicy::default() };
    let held = LeasePolicy { length_ms: None, ..LeasePolicy::default() };
    policies.push(Policy { retry: endless, lease: held, ..Policy::default() });
    let lease_span = Some(Span::parse("+1 MONTH, START OF DAY").expect("a good span"));
    policies.push(Policy { lease_span, retry_moves_slot: true, ..Policy::default() });
    policies.push(Policy { runs_per_minute: Some(600), forget_children: Some(true), ..Policy::default() });
    for text in repeats {
        let repeat = Some(Repeat::parse(text).expect("a good rule"));
        policies.push(Policy { repeat, catch_up: CatchUp::None, ..Policy::default() });
    }
    for policy in policies {
        check(rig, job("a").policy(|slot| *slot = policy), |_, _| JobState::ready(at(1))).await;
    }
}

pub(super) async fn all_extras_come_back(rig: &Rig) {
    let mut all = vec![
        Extras { origin: Some("native".into()), ..Extras::default() },
        Extras { alias: Some("alone".into()), ..Extras::default() },
        Extras { tags: vec!["x".into(), "".into(), "x".into()], ..Extras::default() },
        Extras { limit_keys: vec!["l1".into(), "l2".into()], ..Extras::default() },
    ];
    let rules = [
        FamilyRule::ParentWaits { failure_settles: true },
        FamilyRule::ParentWaits { failure_settles: false },
        FamilyRule::ParentRunsAfter,
    ];
    let untils = [HeldUntil::Settled, HeldUntil::Started, HeldUntil::Forgotten];
    let conflicts = [OnConflict::Return, OnConflict::Update, OnConflict::Refuse];
    for (number, rule) in rules.into_iter().enumerate() {
        let text: Arc<str> = format!("extra {number}").into();
        let (held_until, on_conflict) = (untils[number], conflicts[number]);
        let child_name = (number > 0).then(|| text.clone());
        all.push(Extras {
            origin: Some("faktory".into()),
            alias: Some(text.clone()),
            tags: vec![text.clone()],
            unique: Some(Unique { key: text.clone(), on_conflict, held_until }),
            family: Some(Family { parent: id(1), child_name, rule }),
            limit_keys: vec![text.clone()],
            dated: number == 1,
            facts: [("typed".into(), text), ("empty".into(), "".into())].into(),
        });
    }
    for extras in all {
        let drafted = job("a").extras(|slot| *slot = extras.clone());
        check(rig, drafted, |_, _| JobState::Waiting).await;
        let plain = rig.push(job("b")).await;
        // The `dated` flag is set together with the date.
        let freed = Extras { alias: None, unique: None, dated: false, ..extras };
        let patch = Patch { extras: Some(Box::new(freed.clone())), ..Patch::default() };
        rig.happen(plain.id, Event::Update(Box::new(patch)), at(0)).await;
        let expected = (freed != Extras::default()).then_some(Box::new(freed));
        assert_eq!(rig.get(plain.id).await.spec.extras, expected, "extras that came with an update");
    }
}

pub(super) async fn bodies_come_back(rig: &Rig) {
    let error = |attempt| AttemptError {
        attempt,
        at: at(5),
        message: "no\0 \"luck\"\n".into(),
        class: Some("Net::\"Luck\"".into()),
        error: Some(Payload::new(Format::Msgpack, vec![0xc0])),
        backtrace: Some("a.rs:1\nb.rs:2\n".into()),
        started_at: Some(at(4)),
        worker: Some("w-7".into()),
    };
    let line =
        |text: &str| LogLine { at: at(6), attempt: 2, source: Some("stderr".into()), text: text.into() };
    let log = Log { lines: [line(""), line("\0 \u{1b}[1m"), line(&"x".repeat(9_000))].into(), dropped: 3 };
    let turn = |outcome| Turn {
        due_at: at(1),
        started_at: (outcome != TurnOutcome::Missed).then(|| at(2)),
        ended_at: at(3),
        outcome,
        attempts: 4,
        missed: u32::MAX,
        requested: outcome == TurnOutcome::Cancelled,
        class: Some("Net::Luck".into()),
        code: Some("E1".into()),
        message: Some("no\0 luck".into()),
        worker: Some("w-7".into()),
    };
    let mark = Mark { at: at(7), what: MarkKind::Retried, who: "ann".into() };
    let outcome = Outcome {
        result: Some(Payload::new(Format::Msgpack, vec![0xc0, 0xff])),
        error: Some(Payload::new(Format::Binary, vec![])),
        message: Some(String::new()),
        class: Some(String::new()),
        backtrace: Some("a\0b".into()),
        code: Some("E1".into()),
        exit_code: Some(i32::MIN),
        worker: Some("w-7".into()),
        ended_at: Some(at(-3)),
    };
    let bodies = [
        None,
        Some(Body::default()),
        Some(Body { percent: Some(0), note: Some(String::new()), ..Body::default() }),
        Some(Body { errors: (1..=10).map(error).collect(), ..Body::default() }),
        Some(Body { outcome: Some(Outcome::default()), ..Body::default() }),
        Some(Body { outcome: Some(outcome.clone()), percent: Some(255), ..Body::default() }),
        Some(Body { ports: Some(Default::default()), ..Body::default() }),
        Some(Body { log: Some(Box::new(log)), ..Body::default() }),
        Some(Body { marks: vec![mark.clone(), mark], ..Body::default() }),
        Some(Body { turns: TurnOutcome::ALL.map(turn).into(), ..Body::default() }),
    ];
    let full =
        Body { note: Some("n".into()), errors: vec![error(1)], outcome: Some(outcome), ..Body::default() };
    for body in bodies {
        let body = body.map(Arc::new);
        for draft in [job("without"), job("with").body(full.clone())] {
            let rewritten = body.clone();
            check(rig, draft, |_, slot| {
                *slot = rewritten;
                JobState::SUSPENDED
            })
            .await;
        }
    }
}

pub(super) async fn odd_names_and_extreme_numbers_come_back(rig: &Rig) {
    let longest = "n".repeat(255);
    let odd = ["'", "\"; DROP TABLE job; --", "a}{b", "a:b", "*", "[", "?", "%", "ß", "\u{fffd}", &longest];
    for text in odd {
        let mut draft = job(text).queue(text);
        draft.spec.tenant = tenant("a.b-c_D9");
        check(rig, draft, |_, _| JobState::ready(at(0))).await;
        let counts = rig.store.counts(Some(&tenant("a.b-c_D9")), at(0)).await.expect("counts");
        assert!(counts.iter().any(|counts| counts.queue == queue(text)), "queue {text:?} is counted");
    }
    let mut named = job("a");
    named.spec.name = name("line\nbreak\tand \u{1} control");
    check(rig, named, |_, _| JobState::Waiting).await;

    let earliest = Timestamp::from_millis(i64::MIN);
    for (priority, moment, number) in
        [(i32::MIN, earliest, 0), (i32::MAX, Timestamp::MAX, u32::MAX), (0, Timestamp::EPOCH, 1)]
    {
        let mut draft = job("a").priority(priority);
        draft.spec.created_at = moment;
        let rewritten = Progress {
            attempts: number,
            due_at: moment,
            updated_at: moment,
            started_at: Some(moment),
            prior_start: Some(moment),
            finished_at: Some(moment),
            pending_children: number,
            minute_runs: MinuteRuns { minute: number >> 1, count: number },
        };
        check(rig, draft, |progress, _| {
            *progress = rewritten;
            JobState::Ready { run_at: moment, lapsed: Some(Token::from_number(u64::MAX)) }
        })
        .await;
    }
}
