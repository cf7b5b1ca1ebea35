//! Invariants: random jobs, random events, a clock that only goes forward.

use super::*;
use crate::event::Suspend;
use crate::repeat::Span;
use crate::steps::Wait;
use crate::turn::CatchUp;
use proptest::prelude::*;

/// Random event; its exact form depends on the job it is applied to.
#[derive(Clone, Debug)]
struct Happening {
    what: u8,
    who: u8,
    /// Time that passes before the event.
    pause_ms: i64,
    later_ms: i64,
    flag: bool,
    chance: f64,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = (0..25_u8, 0..8_u8, 0..900_i64, -500..3_000_i64, any::<bool>(), 0.0..1.0).prop_map(
        |(what, who, pause_ms, later_ms, flag, chance)| Happening {
            what,
            who,
            pause_ms,
            later_ms,
            flag,
            chance,
        },
    );
    proptest::collection::vec(one, 1..60)
}

fn policies() -> impl Strategy<Value = Policy> {
    let lease = (
        proptest::option::weighted(0.9, 0..2_000_i64),
        prop_oneof![
            Just(OnLapse::RunAgain),
            Just(OnLapse::AtLeaseEnd),
            Just(OnLapse::BackInLine),
            Just(OnLapse::Fail),
            Just(OnLapse::GiveUp)
        ],
        -1..=1_i8,
        any::<bool>(),
        any::<bool>(),
    );
    let retry = (
        proptest::option::weighted(0.8, 1..5_u32),
        prop_oneof![
            Just(Backoff::None),
            Just(Backoff::Fixed { delay_ms: 300 }),
            Just(Backoff::Exponential { base_ms: 100, cap_ms: 1_000, jitter_percent: 10 }),
        ],
        proptest::option::of(0..20_000_i64),
    );
    let keep = || prop_oneof![Just(KeepFor::Drop), Just(KeepFor::Ms(500)), Just(KeepFor::Ever)];
    let rules = ["every 1s", "* * * * *", "FINISHED, +2 SECONDS", "SCHEDULED, +1 SECOND"];
    let repeat = proptest::option::of((0..rules.len()).prop_map(move |index| rules[index]));
    (lease, retry, (keep(), keep(), keep()), repeat, any::<bool>()).prop_map(
        |(lease, retry, keep, repeat, repeat_after_failure)| Policy {
            runs_per_minute: None,
            lease: LeasePolicy {
                length_ms: lease.0,
                on_lapse: lease.1,
                lapse_attempts: lease.2,
                accept_late: lease.3,
            },
            lease_span: lease.4.then(|| Span::parse("+1 SECOND").unwrap()),
            retry: RetryPolicy { max_attempts: retry.0, backoff: retry.1, give_up_after_ms: retry.2 },
            keep: Keep { completed: keep.0, failed: keep.1, cancelled: keep.2 },
            result: crate::ResultPolicy::default(),
            repeat: repeat.map(|text| Repeat::parse(text).unwrap()),
            repeat_after_failure,
            retry_moves_slot: lease.4,
            catch_up: if lease.3 { CatchUp::None } else { CatchUp::One },
            forget_children: None,
        },
    )
}

fn jobs() -> impl Strategy<Value = Job> {
    let rule = prop_oneof![
        Just(None),
        Just(Some(FamilyRule::ParentRunsAfter)),
        any::<bool>().prop_map(|failure_settles| Some(FamilyRule::ParentWaits { failure_settles })),
    ];
    (policies(), rule, any::<bool>(), 0..1_000_i64).prop_map(|(policy, rule, held, run_at)| {
        let family = rule.map(|rule| Family { parent: id(1), child_name: None, rule });
        let held = held && family.as_ref().is_some_and(Family::parent_waits);
        let extras = family.map(|family| Box::new(Extras { family: Some(family), ..Extras::default() }));
        let spec = JobSpec { extras, ..spec(policy) };
        created(id(2), Arc::new(spec), at(run_at), held, None)
    })
}

fn event(job: &Job, happening: &Happening, now: Timestamp) -> Event {
    let Happening { who, later_ms, flag, chance, .. } = *happening;
    let by = match who {
        0 => Holder::Token(Token::from_number(3)),
        1..=4 => holder(job),
        _ => Holder::Anyone,
    };
    let later = now.plus_ms(later_ms);
    let outcome = Outcome::default();
    match happening.what {
        0..=5 => Event::Claim(Grant { worker: None, lease_ms: flag.then_some(later_ms), random: who.into() }),
        6 if who % 3 == 0 => Event::Renew { by, lease_ms: flag.then_some(later_ms), worker: None },
        6 => Event::Extend { by, lease_ms: flag.then_some(later_ms) },
        7 if flag => log_line((who > 2).then_some(by)),
        7 => Event::Report { by, percent: Some(who), note: None, payload: None },
        8 | 9 => Event::Finish(Finish { by, outcome, payload: None, ignore_repeat: flag }),
        10 | 11 => {
            let retry = [RetryWish::Policy, RetryWish::At(later), RetryWish::Never][usize::from(who % 3)];
            Event::Fail(Failure { by, outcome, retry, payload: None, chance })
        }
        12 if who % 3 == 0 => Event::Return { by },
        12 if who % 3 == 1 => Event::Skip { by },
        12 => Event::Release { by, run_at: later, counts: flag },
        13 if flag => Event::suspend(by),
        13 => {
            let wait = Wait { signal: Some("go".into()), children: who % 2 == 0, ..Wait::default() };
            let until = (who % 3 > 0).then_some(later);
            Event::Suspend(Suspend { by, until, wait: Some(Box::new(wait)) })
        }
        14 | 15 => Event::Lapse { token: token(job), chance },
        16 => {
            let running = [ASK, NOW, CancelRunning::Refuse][usize::from(who % 3)];
            Event::Cancel { running, failed_too: flag }
        }
        17 => Event::Run { at: later, force: flag },
        18 => Event::Requeue { at: later, even_running: flag },
        19 => Event::Terminate,
        20 => update(|patch| patch.run_at = flag.then_some(later)),
        21 if flag => Event::ChildAdded,
        21 if happening.chance < 0.3 => Event::ChildFailed,
        21 if happening.chance < 0.5 => Event::ChildWrittenOff,
        21 => Event::ChildSettled,
        22 if who == 0 => Event::KeepSteps { by, steps: Vec::new() },
        22 if who == 1 => Event::Signal { name: "go".into(), payload: Payload::default() },
        22 if who < 5 => Event::Wake,
        22 => Event::ParentPaused,
        23 => {
            let patch = Patch { priority: Some(who.into()), ..Patch::default() };
            Event::Restart(Box::new(Restart { by, run_at: later, heed_repeat: flag, patch }))
        }
        _ if flag => Event::Expire,
        _ => Event::Delete,
    }
}

/// Checks the job against its history.
#[derive(Default)]
struct Past {
    last_token: Option<Token>,
}

fn claims_are_sound(before: &Job, after: &Job, now: Timestamp, past: &mut Past) {
    assert!(before.state().lease().is_none(), "claimed while leased");
    assert!(before.state().claimable_at().is_some_and(|run_at| run_at <= now), "claimed before its time");
    assert!(Some(token(after)) > past.last_token, "a token came again");
    past.last_token = Some(token(after));
    assert_eq!(after.progress.started_at, Some(now));
}

/// Events that may leave a settled state without deleting the job.
fn may_revive(before: &Job, event: &Event) -> bool {
    match event {
        Event::Run { force, .. } => *force || before.state().name().as_str() == "completed",
        Event::Requeue { .. } => true,
        // To the shutdown run only.
        Event::Terminate => true,
        _ => false,
    }
}

fn step_is_sound(before: &Job, event: &Event, after: &Job, now: Timestamp) {
    assert_eq!(after.version, before.version + 1);
    assert_eq!(after.progress.updated_at, now);
    assert!(after.progress.updated_at >= before.progress.updated_at);
    if before.state().is_settled() && !after.state().is_settled() {
        assert!(may_revive(before, event), "{event:?} revived a settled job");
        let last_run = matches!(after.state(), JobState::Terminating { .. });
        assert_eq!(last_run, matches!(event, Event::Terminate));
    }
    let policy = &before.spec.policy;
    if let Some(max) = policy.retry.max_attempts {
        let attempts = after.progress.attempts;
        assert!(attempts <= max.saturating_add_signed(policy.lease.lapse_attempts.max(0).into()));
        if after.state().lease().is_some_and(|lease| lease.kind == RunKind::Perform) {
            assert!(attempts <= max, "attempt {attempts} of {max}");
        }
        if after.state().name().as_str() == "ready" {
            assert!(attempts < max, "ready for attempt {} of {max}", attempts + 1);
        }
    }
    if let (JobState::Running(old), JobState::Running(new)) = (before.state(), after.state()) {
        assert_eq!(old.token, new.token);
        let is_anew = matches!(event, Event::Renew { .. });
        assert!(is_anew || new.until.is_none() || new.until >= old.until, "a lease was shortened");
    }
    assert!(after.body.as_ref().is_none_or(|body| body.errors.len() <= crate::job::ERRORS_KEPT));
    assert!(after.turns().len() <= crate::turn::TURNS_KEPT);
    let (children, pending) = (before.progress.pending_children, after.progress.pending_children);
    match event {
        Event::ChildAdded => assert_eq!(pending, children + 1),
        Event::ChildSettled | Event::ChildFailed => assert_eq!(pending, children.saturating_sub(1)),
        _ => assert_eq!(pending, children),
    }
}

/// The parent's count follows the child's effects, and never falls below zero.
fn count_for_parent(count: &mut i32, effects: &Effects) {
    match effects.parent {
        Some(ParentEffect::Settled(_) | ParentEffect::Failed(_)) => *count -= 1,
        Some(ParentEffect::Reopened(_)) => *count += 1,
        Some(ParentEffect::WrittenOff(_) | ParentEffect::Run(_)) | None => {}
    }
    assert!((0..=1).contains(count), "a parent counts one child {count} times");
}

/// Next event that ordinary workers, time and family would cause.
fn usual_next(job: &Job, now: &mut Timestamp) -> Event {
    match job.state() {
        JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => {
            *now = (*now).max(*run_at);
            claim_for(Some(1_000))
        }
        JobState::Running(lease) if lease.has_ended(*now) => lapse(job),
        JobState::Running(lease) => Event::Finish(Finish {
            by: Holder::Token(lease.token),
            outcome: Outcome::default(),
            payload: None,
            ignore_repeat: true,
        }),
        JobState::Waiting if is_held_by_parent(job) => Event::ParentPaused,
        JobState::Waiting => Event::ChildSettled,
        JobState::Suspended { .. } => Event::Run { at: *now, force: false },
        other => panic!("nothing is usual for a {} job", other.name()),
    }
}

fn ends_in_the_usual_way(mut job: Job, mut now: Timestamp) {
    let steps_enough = 12 + job.progress.pending_children;
    for _ in 0..steps_enough {
        if job.state().is_settled() {
            return;
        }
        let event = usual_next(&job, &mut now);
        let transition = apply(&job, event.clone(), now);
        let transition = transition.unwrap_or_else(|refused| panic!("{event:?} on {job:?}: {refused}"));
        let Some(next) = transition.job else { return };
        job = next;
    }
    panic!("still {} after {steps_enough} steps: {job:?}", job.state().name());
}

/// State of the job after all events, if it still exists.
fn live(mut job: Job, happenings: &[Happening]) -> (Option<Job>, Timestamp) {
    let mut now = at(0);
    let mut past = Past::default();
    let mut counted = i32::from(waiting_parent(&job).is_some());
    for happening in happenings {
        now = now.plus_ms(happening.pause_ms);
        let event = event(&job, happening, now);
        let before = job.clone();
        let transition = apply(&job, event.clone(), now);
        assert_eq!(job, before, "the job that was asked about was changed");
        let Ok(Transition { job: next, effects }) = transition else { continue };
        count_for_parent(&mut counted, &effects);
        let Some(next) = next else { return (None, now) };
        step_is_sound(&job, &event, &next, now);
        assert_eq!(counted == 1, waiting_parent(&next).is_some());
        if matches!(event, Event::Claim(_)) {
            claims_are_sound(&job, &next, now, &mut past);
        }
        job = next;
    }
    (Some(job), now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_of_every_life_is_sound(job in jobs(), happenings in happenings()) {
        live(job, &happenings);
    }

    #[test]
    fn nothing_is_stuck_for_ever(job in jobs(), happenings in happenings()) {
        let (job, now) = live(job, &happenings);
        if let Some(job) = job {
            ends_in_the_usual_way(job, now);
        }
    }
}
