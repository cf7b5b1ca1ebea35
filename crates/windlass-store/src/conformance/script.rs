//! Random jobs, claims, events and filters. Few names of each kind, so that they meet often.

use super::chance::Chance;
use super::fixtures::{Draft, at, id, job, name, queue, tenant};
use crate::{ClaimAsk, Filter, Gate, NewJob};
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Failure, Finish, Patch, RetryWish, Suspend};
use windlass_core::job::AttemptError;
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::ports::{Ports, RawJson, Side};
use windlass_core::repeat::Repeat;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::steps::{NewStep, Wait};
use windlass_core::turn::CatchUp;
use windlass_core::unique::HeldUntil;
use windlass_core::{
    Body, Event, Extras, Format, Holder, Job, JobState, KeepFor, NameMatch, Outcome, Payload, StateName,
    Tenant, Timestamp, Token,
};

pub(super) const TENANTS: [&str; 2] = ["default", "other"];
pub(super) const QUEUES: [&str; 4] = ["default", "slow", "a:b", "ž"];
const NAMES: [&str; 6] = ["mail", "mail.out", "mail.in", "report", "report/daily", "m"];
const PATTERNS: [&str; 5] = ["mail*", "*", "report/*", "[m]*", "?"];
const TAGS: [&str; 3] = ["red", "blue", ""];
const KEYS: [&str; 6] = ["k1", "k2", "k3", "k4", "k5", "k\u{0}6"];
pub(super) const ALIASES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
pub(super) const LIMITS: [&str; 3] = ["l1", "l2", "l3"];
const PORTS: [&str; 2] = ["a", "b"];

pub(super) struct Script {
    pub(super) chance: Chance,
}

impl Script {
    pub(super) fn new(seed: u64) -> Script {
        Script { chance: Chance::new(seed) }
    }

    pub(super) fn tenant(&mut self) -> Tenant {
        // Mostly one value, so that the other does not dominate the work.
        tenant(if self.chance.percent(80) { TENANTS[0] } else { TENANTS[1] })
    }

    pub(super) fn new_job(&mut self, now: Timestamp, newest: u64) -> NewJob {
        let delay_ms = if self.chance.percent(60) { 0 } else { self.chance.between_ms(-20, 200) };
        let mut draft = job(self.chance.pick(&NAMES))
            .queue(self.chance.pick(&QUEUES))
            .priority(self.chance.between_ms(-1, 1) as i32)
            .run_at(now.plus_ms(delay_ms).as_millis())
            .payload(self.payload());
        draft.spec.tenant = self.tenant();
        draft.spec.created_at = now;
        draft = self.with_policy(draft);
        if self.chance.percent(15) {
            draft = draft.body(self.body());
        }
        let extras = self.extras();
        if extras != Extras::default() {
            draft.spec.extras = Some(Box::new(extras));
        }
        if newest > 0 && self.chance.percent(10) {
            let parent = id(1 + self.chance.below(newest));
            draft = draft.child_of(parent, self.chance.percent(40));
        }
        draft.new_job()
    }

    fn with_policy(&mut self, draft: Draft) -> Draft {
        if self.chance.percent(40) {
            return draft;
        }
        let chance = &mut self.chance;
        let keeps = [KeepFor::Drop, KeepFor::Ms(0), KeepFor::Ms(60), KeepFor::Ms(300), KeepFor::Ever];
        let keep = [chance.pick(&keeps), chance.pick(&keeps), chance.pick(&keeps)];
        let result_keep = chance.pick(&keeps);
        let lease = LeasePolicy {
            length_ms: chance.pick(&[None, Some(0), Some(15), Some(80), Some(400)]),
            on_lapse: chance.pick(&[
                OnLapse::RunAgain,
                OnLapse::AtLeaseEnd,
                OnLapse::BackInLine,
                OnLapse::Fail,
                OnLapse::GiveUp,
            ]),
            lapse_attempts: chance.pick(&[-1, 0, 0, 1]),
            accept_late: chance.percent(30),
        };
        let retry = RetryPolicy {
            max_attempts: chance.pick(&[None, Some(1), Some(2), Some(4)]),
            backoff: chance.pick(&[Backoff::None, Backoff::Fixed { delay_ms: 25 }]),
            give_up_after_ms: None,
        };
        let repeat = chance.percent(8).then(|| Repeat::parse("every 5s").expect("a good rule"));
        draft.policy(|policy| {
            (policy.lease, policy.retry, policy.repeat) = (lease, retry, repeat);
            [policy.keep.completed, policy.keep.failed, policy.keep.cancelled] = keep;
            policy.result.keep = result_keep;
        })
    }

    fn payload(&mut self) -> Payload {
        let format = self.chance.pick(&[Format::Json, Format::Msgpack, Format::Text, Format::Binary]);
        let len = self.chance.below(40);
        let bytes: Vec<u8> = (0..len).map(|_| self.chance.next() as u8).collect();
        Payload::new(format, bytes)
    }

    fn body(&mut self) -> Body {
        let error = AttemptError { attempt: 1, at: at(3), message: "no luck".into(), ..Default::default() };
        Body {
            percent: self.chance.percent(50).then_some(7),
            note: self.chance.percent(50).then(|| "on its way".into()),
            errors: if self.chance.percent(50) { vec![error] } else { vec![] },
            ..Body::default()
        }
    }

    fn extras(&mut self) -> Extras {
        let mut draft = job("only for its extras").extras(|_| ());
        if self.chance.percent(25) {
            let held = self.chance.pick(&[HeldUntil::Settled, HeldUntil::Started, HeldUntil::Forgotten]);
            draft = draft.unique_until(self.chance.pick(&KEYS), held);
        }
        if self.chance.percent(15) {
            draft = draft.alias(self.chance.pick(&ALIASES));
        }
        if self.chance.percent(20) {
            draft = draft.tag(self.chance.pick(&TAGS));
        }
        if self.chance.percent(20) {
            draft = draft.limit(self.chance.pick(&LIMITS));
        }
        draft.spec.extras.map_or_else(Extras::default, |extras| *extras)
    }

    pub(super) fn names(&mut self) -> NameMatch {
        match self.chance.below(5) {
            0 => NameMatch::Any,
            3 => NameMatch::NoneOf((0..2).map(|_| self.chance.pick(&NAMES).into()).collect()),
            1 => NameMatch::Exact(self.chance.pick(&NAMES).into()),
            2 => NameMatch::OneOf((0..3).map(|_| self.chance.pick(&NAMES).into()).collect()),
            _ => NameMatch::glob(self.chance.pick(&PATTERNS)),
        }
    }

    pub(super) fn ask(&mut self, gate: Option<Arc<dyn Gate>>) -> ClaimAsk {
        let queues = if self.chance.percent(50) { 0 } else { self.chance.below(4) };
        ClaimAsk {
            scope: windlass_core::Scope::default(),
            tenant: self.tenant(),
            queues: (0..queues).map(|_| queue(self.chance.pick(&QUEUES))).collect(),
            names: if self.chance.percent(50) { NameMatch::Any } else { self.names() },
            priority: self.chance.percent(10).then(|| self.chance.between_ms(-1, 1) as i32),
            limit: self.chance.index(8),
            worker: self.chance.percent(50).then(|| "w".into()),
            lease_ms: self.chance.percent(20).then(|| self.chance.between_ms(0, 100)),
            seed: self.chance.next(),
            gate,
        }
    }

    /// Random event for the job; the rules may refuse it.
    pub(super) fn event(&mut self, job: &Job, now: Timestamp) -> Event {
        let by = self.holder(job);
        let run_at = now.plus_ms(if self.chance.percent(50) { 0 } else { self.chance.between_ms(-10, 150) });
        let force = self.chance.percent(30);
        match self.chance.below(36) {
            0..=4 => self.finish(by),
            5..=7 => self.failure(by, now),
            8..=9 => Event::Release { by, run_at, counts: self.chance.percent(50) },
            10 if force => Event::suspend(by),
            10 => self.suspend(by, run_at),
            11 if self.chance.percent(30) => self.steps(by),
            11 if self.chance.percent(30) => Event::Signal { name: "go".into(), payload: self.payload() },
            11 => Event::Extend { by, lease_ms: Some(self.chance.between_ms(0, 200)) },
            12 => Event::Report {
                by,
                percent: Some(self.chance.below(101) as u8),
                note: self.chance.percent(50).then(|| "half way".into()),
                payload: self.chance.percent(20).then(|| self.payload()),
            },
            13 => {
                let running = [CancelRunning::Ask, CancelRunning::Now, CancelRunning::Refuse];
                Event::Cancel { running: self.chance.pick(&running), failed_too: force }
            }
            14 => Event::Run { at: run_at, force },
            15 => Event::Requeue { at: run_at, even_running: force },
            16 => Event::Terminate,
            17..=18 => Event::Update(Box::new(self.patch(run_at))),
            19 => Event::ChildAdded,
            20 if force => Event::ChildFailed,
            20 => Event::ChildSettled,
            21 => Event::ParentPaused,
            22 => Event::Delete,
            23 => {
                Event::Renew { by, lease_ms: Some(self.chance.between_ms(0, 200)), worker: Some("r".into()) }
            }
            24 if force => Event::Skip { by },
            24 => Event::Return { by },
            25 => Event::TakeResult,
            26 => Event::Log {
                by: (!force).then_some(by),
                source: self.chance.percent(50).then(|| "stderr".into()),
                lines: (0..self.chance.below(4)).map(|_| "so far, so good".to_owned()).collect(),
            },
            27..=34 => Event::SetPorts(Arc::new(self.ports(job))),
            _ => self.deadline_event(job),
        }
    }

    /// Ports after a few random calls: mostly a write at one end or a read at the other.
    fn ports(&mut self, job: &Job) -> Ports {
        let mut ports = job.ports().map(|ports| Ports::clone(ports)).unwrap_or_default();
        if ports.iter(Side::In).next().is_none() {
            let declared = PORTS.map(|port| (port.to_owned(), None));
            ports.set_ports(Side::In, declared.clone().into()).expect("good names");
            ports.set_ports(Side::Out, declared.into()).expect("good names");
        }
        for _ in 0..1 + self.chance.below(3) {
            let at = (self.chance.pick(&[Side::In, Side::Out]), self.chance.pick(&PORTS));
            let done = match self.chance.below(20) {
                0..=9 => {
                    let values = (0..self.chance.below(4)).map(|_| self.value()).collect();
                    ports.write(at, values)
                }
                10..=14 => ports.read(at).map(drop),
                15 => ports.entries(at).map(drop),
                16 => ports.set_default(at, self.chance.percent(70).then(|| self.value())),
                17 => ports.set_state([("seen".to_owned(), self.value())].into()),
                18 => ports.connect_within(at, &[(Side::Out, PORTS[0])]).map(drop),
                _ => ports.hand_out(&[PORTS[0]], self.chance.percent(50)).map(drop),
            };
            // A refused write is ignored.
            let _ = done;
        }
        ports
    }

    fn value(&mut self) -> RawJson {
        let text = match self.chance.below(12) {
            0 => format!("\"{}\"", "long ".repeat(self.chance.index(400))),
            1 => "null".to_owned(),
            _ => self.chance.below(1_000).to_string(),
        };
        RawJson::new(&text).expect("it is JSON")
    }

    /// Event for a job whose deadline has passed.
    pub(super) fn deadline_event(&mut self, job: &Job) -> Event {
        match job.state() {
            JobState::Running(lease) => Event::Lapse { token: lease.token, chance: self.chance.fraction() },
            JobState::Suspended { .. } => Event::Wake,
            _ => Event::Expire,
        }
    }

    fn suspend(&mut self, by: Holder, until: Timestamp) -> Event {
        let signal = self.chance.percent(50).then(|| "go".into());
        let wait =
            Wait { step: Some("wait".into()), signal, children: self.chance.percent(30), ..Wait::default() };
        let until = self.chance.percent(70).then_some(until);
        Event::Suspend(Suspend { by, until, wait: Some(Box::new(wait)) })
    }

    fn steps(&mut self, by: Holder) -> Event {
        let name = format!("step {}", self.chance.below(5)).into();
        let result = self.chance.percent(70).then(|| self.payload());
        Event::KeepSteps { by, steps: vec![NewStep { name, result, started_at: None }] }
    }

    pub(super) fn finish(&mut self, by: Holder) -> Event {
        let result = self.chance.percent(30).then(|| self.payload());
        Event::Finish(Finish {
            by,
            outcome: Outcome { result, ..Outcome::default() },
            payload: self.chance.percent(10).then(|| self.payload()),
            ignore_repeat: self.chance.percent(50),
        })
    }

    pub(super) fn failure(&mut self, by: Holder, now: Timestamp) -> Event {
        let retries = [RetryWish::Policy, RetryWish::Never, RetryWish::At(now.plus_ms(30))];
        Event::Fail(Failure {
            by,
            outcome: Outcome { message: Some("no luck".into()), ..Outcome::default() },
            retry: self.chance.pick(&retries),
            payload: None,
            chance: self.chance.fraction(),
        })
    }

    fn holder(&mut self, job: &Job) -> Holder {
        match job.state().lease() {
            Some(lease) if self.chance.percent(80) => Holder::Token(lease.token),
            _ if self.chance.percent(50) => Holder::Anyone,
            _ => Holder::Token(Token::from_number(self.chance.next())),
        }
    }

    fn patch(&mut self, run_at: Timestamp) -> Patch {
        let chance = &mut self.chance;
        Patch {
            payload: None,
            priority: chance.percent(30).then(|| chance.between_ms(-1, 1) as i32),
            name: chance.percent(30).then(|| name(chance.pick(&NAMES))),
            queue: chance.percent(30).then(|| queue(chance.pick(&QUEUES))),
            run_at: chance.percent(30).then_some(run_at),
            repeat: chance.percent(10).then_some(None),
            catch_up: chance.percent(10).then(|| chance.pick(&[CatchUp::One, CatchUp::None])),
            lease: None,
            attempts: chance.percent(10).then_some(1),
            extras: self.chance.percent(40).then(|| Box::new(self.extras())),
            family: None,
            facts: Vec::from_iter(
                self.chance.percent(20).then(|| ("typed".into(), Some("as it was".into()))),
            ),
            if_version: None,
        }
    }

    pub(super) fn filter(&mut self) -> Filter {
        let chance = &mut self.chance;
        let states = if chance.percent(50) { 0 } else { chance.below(4) };
        Filter {
            scope: windlass_core::Scope::default(),
            tenant: chance.percent(50).then(|| tenant(chance.pick(&TENANTS))),
            states: (0..states).map(|_| chance.pick(&StateName::ALL)).collect(),
            retried: chance.percent(20),
            queue: chance.percent(30).then(|| queue(chance.pick(&QUEUES))),
            tag: chance.percent(20).then(|| chance.pick(&TAGS).into()),
            text: chance.percent(20).then(|| "a".into()),
            repeating: chance.percent(20),
            before: None,
            limit: 1 + chance.index(60),
            names: self.names(),
        }
    }
}
