//! Fixtures of the checks: job drafts, claims, and a store wrapper whose failures explain themselves.

use crate::{ClaimAsk, Inserted, Listener, NewJob, Step, Store, Verdict};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::family::{Family, FamilyRule};
use windlass_core::lease::LeasePolicy;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{
    Body, Event, Extras, Holder, Job, JobId, JobSpec, Keep, KeepFor, Name, NameMatch, Payload, Policy, Queue,
    StateName, Tenant, Timestamp, apply,
};

/// Time limit for the listener, which may be called from another thread: far beyond any healthy delay.
const HEARING_MAX: Duration = Duration::from_secs(10);

pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub(super) fn id(number: u64) -> JobId {
    JobId::new(number).expect("checks number jobs from 1")
}

pub(super) fn tenant(text: &str) -> Tenant {
    Tenant::new(text).expect("checks use good names")
}

pub(super) fn queue(text: &str) -> Queue {
    Queue::new(text).expect("checks use good names")
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("checks use good names")
}

/// Job draft: `job("mail").queue("out").run_at(5).new_job()`.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) spec: JobSpec,
    run_at: Timestamp,
    body: Option<Arc<Body>>,
    held_by_parent: bool,
}

pub(super) fn job(text: &str) -> Draft {
    let spec = JobSpec {
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: name(text),
        payload: Payload::default(),
        priority: 0,
        created_at: at(0),
        policy: Arc::new(Policy::default()),
        extras: None,
    };
    Draft { spec, run_at: at(0), body: None, held_by_parent: false }
}

impl Draft {
    pub(super) fn new_job(self) -> NewJob {
        NewJob {
            spec: Arc::new(self.spec),
            run_at: self.run_at,
            body: self.body,
            held_by_parent: self.held_by_parent,
        }
    }

    pub(super) fn tenant(mut self, text: &str) -> Draft {
        self.spec.tenant = tenant(text);
        self
    }

    pub(super) fn queue(mut self, text: &str) -> Draft {
        self.spec.queue = queue(text);
        self
    }

    pub(super) fn priority(mut self, priority: i32) -> Draft {
        self.spec.priority = priority;
        self
    }

    pub(super) fn run_at(mut self, ms: i64) -> Draft {
        self.run_at = at(ms);
        self
    }

    pub(super) fn payload(mut self, payload: Payload) -> Draft {
        self.spec.payload = payload;
        self
    }

    pub(super) fn body(mut self, body: Body) -> Draft {
        self.body = Some(Arc::new(body));
        self
    }

    pub(super) fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Draft {
        change(Arc::make_mut(&mut self.spec.policy));
        self
    }

    pub(super) fn lease_ms(self, ms: Option<i64>) -> Draft {
        self.policy(|policy| policy.lease = LeasePolicy { length_ms: ms, ..policy.lease })
    }

    pub(super) fn keep_all(self, keep: KeepFor) -> Draft {
        self.policy(|policy| policy.keep = Keep { completed: keep, failed: keep, cancelled: keep })
    }

    pub(super) fn extras(mut self, change: impl FnOnce(&mut Extras)) -> Draft {
        change(self.spec.extras.get_or_insert_default());
        self
    }

    pub(super) fn unique(self, key: &str) -> Draft {
        self.unique_until(key, HeldUntil::Settled)
    }

    pub(super) fn unique_until(self, key: &str, held_until: HeldUntil) -> Draft {
        let unique = Unique { key: key.into(), on_conflict: OnConflict::Return, held_until };
        self.extras(|extras| extras.unique = Some(unique))
    }

    pub(super) fn alias(self, alias: &str) -> Draft {
        self.extras(|extras| extras.alias = Some(alias.into()))
    }

    pub(super) fn tag(self, tag: &str) -> Draft {
        self.extras(|extras| extras.tags.push(tag.into()))
    }

    pub(super) fn limit(self, key: &str) -> Draft {
        self.extras(|extras| extras.limit_keys.push(key.into()))
    }

    pub(super) fn child_of(mut self, parent: JobId, held: bool) -> Draft {
        self.held_by_parent = held;
        let rule = FamilyRule::ParentWaits { failure_settles: true };
        self.extras(|extras| extras.family = Some(Family { parent, child_name: None, rule }))
    }
}

/// Claim of any ten jobs of the default tenant.
pub(super) fn ask() -> ClaimAsk {
    ClaimAsk {
        tenant: Tenant::default(),
        queues: Vec::new(),
        names: NameMatch::Any,
        scope: windlass_core::Scope::default(),
        priority: None,
        limit: 10,
        worker: Some("worker-1".into()),
        lease_ms: None,
        seed: 42,
        gate: None,
    }
}

pub(super) fn scope(parts: &[&str]) -> windlass_core::Scope {
    windlass_core::Scope::parse(parts).expect("a scope")
}

pub(super) fn ids(jobs: &[Arc<Job>]) -> Vec<u64> {
    jobs.iter().map(|job| job.id.get()).collect()
}

pub(super) fn inserted(verdict: &Verdict) -> &[Inserted] {
    match verdict {
        Verdict::Done(inserted) => inserted,
        other => panic!("an insert without changes was refused: {other:?}"),
    }
}

pub(super) fn new_id(number: u64) -> Inserted {
    Inserted::New(id(number))
}

pub(super) fn existing(number: u64) -> Inserted {
    Inserted::Existing(id(number))
}

pub(super) fn done() -> Verdict {
    Verdict::Done(Vec::new())
}

/// Job after one event, which has to be allowed.
pub(super) fn after(before: &Job, event: Event, now: Timestamp) -> Option<Job> {
    match apply(before, event, now) {
        Ok(transition) => transition.job,
        Err(refused) => panic!("the check's event was refused for job {before:?}: {refused}"),
    }
}

pub(super) fn step(before: &Arc<Job>, event: Event, now: Timestamp) -> Step {
    Step::change(before.clone(), after(before, event, now))
}

pub(super) fn finish() -> Event {
    Event::Finish(windlass_core::event::Finish {
        by: Holder::Anyone,
        outcome: Default::default(),
        payload: None,
        ignore_repeat: false,
    })
}

/// Store under test, with the operations of the checks.
pub(super) struct Rig {
    pub(super) store: Arc<dyn Store>,
}

impl Rig {
    pub(super) fn new(store: Arc<dyn Store>) -> Rig {
        Rig { store }
    }

    pub(super) async fn close(&self, check: &str) {
        match self.store.close().await {
            Ok(()) | Err(crate::StoreError::Closed) => {}
            Err(error) => panic!("closing the store after {check}: {error}"),
        }
    }

    pub(super) async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Vec<Verdict> {
        let count = steps.len();
        let verdicts = self.store.commit(steps, now).await.expect("commit");
        assert_eq!(verdicts.len(), count, "one verdict per step");
        verdicts
    }

    pub(super) async fn commit_one(&self, step: Step, now: Timestamp) -> Verdict {
        self.commit(vec![step], now).await.remove(0)
    }

    /// Commits one step of inserts, at time zero.
    pub(super) async fn insert(&self, drafts: Vec<Draft>) -> Vec<Inserted> {
        let count = drafts.len();
        let step = Step::insert(drafts.into_iter().map(Draft::new_job).collect());
        let answers = inserted(&self.commit_one(step, at(0)).await).to_vec();
        assert_eq!(answers.len(), count, "one answer per insert");
        answers
    }

    /// Inserts a job that has to be new.
    pub(super) async fn push(&self, draft: Draft) -> Arc<Job> {
        match self.insert(vec![draft]).await[0] {
            Inserted::New(id) => self.get(id).await,
            Inserted::Existing(id) => panic!("job {id} was in the way of a new one"),
        }
    }

    pub(super) async fn find(&self, id: JobId) -> Option<Arc<Job>> {
        let mut jobs = self.store.load(vec![id]).await.expect("load");
        assert_eq!(jobs.len(), 1, "load answers once per id");
        jobs.remove(0)
    }

    pub(super) async fn get(&self, id: JobId) -> Arc<Job> {
        self.find(id).await.unwrap_or_else(|| panic!("job {id} should be there"))
    }

    /// Applies the event to the current version of the job and commits it.
    pub(super) async fn happen(&self, id: JobId, event: Event, now: Timestamp) {
        let before = self.get(id).await;
        let what = format!("{event:?}");
        let verdict = self.commit_one(step(&before, event, now), now).await;
        assert_eq!(verdict, done(), "{what} on job {id}, which nobody else touched");
    }

    pub(super) async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Vec<Arc<Job>> {
        self.store.claim(ask, now).await.expect("claim")
    }

    pub(super) async fn claim_one(&self, now: Timestamp) -> Arc<Job> {
        let mut jobs = self.claim(ClaimAsk { limit: 1, ..ask() }, now).await;
        assert_eq!(jobs.len(), 1, "a job was waiting to be claimed");
        jobs.remove(0)
    }

    pub(super) fn listen(&self) -> Arc<Ears> {
        let ears = Arc::new(Ears::default());
        self.store.listen(ears.clone());
        ears
    }

    /// Creates a job in the given state, by events on a draft with the given name.
    pub(super) async fn job_in(&self, state: StateName, draft: Draft) -> JobId {
        use windlass_core::event::CancelRunning;
        let held = state == StateName::Waiting;
        let id = self.push(Draft { held_by_parent: held, ..draft }).await.id;
        let claim = || Event::Claim(windlass_core::event::Grant { worker: None, lease_ms: None, random: 7 });
        let cancel = Event::Cancel { running: CancelRunning::Now, failed_too: false };
        let fail = Event::Fail(windlass_core::event::Failure {
            by: Holder::Anyone,
            outcome: Default::default(),
            retry: windlass_core::event::RetryWish::Never,
            payload: None,
            chance: 0.0,
        });
        let events = match state {
            StateName::Ready | StateName::Waiting => vec![],
            StateName::Running => vec![claim()],
            StateName::Suspended => vec![claim(), Event::suspend(Holder::Anyone)],
            StateName::Completed => vec![claim(), finish()],
            StateName::Failed => vec![claim(), fail],
            StateName::Cancelled => vec![cancel],
            StateName::Terminating => vec![Event::Terminate],
            StateName::Terminated => vec![Event::Terminate, claim(), finish()],
        };
        for event in events {
            self.happen(id, event, at(0)).await;
        }
        assert_eq!(self.get(id).await.state().name(), state, "the check's way into that state");
        id
    }
}

/// Records notifications. A store may notify from another thread, after it has answered.
#[derive(Default)]
pub(super) struct Ears {
    /// Number of jobs by address; `None`: any number.
    heard: Mutex<BTreeMap<(Tenant, Queue, Name), Option<usize>>>,
    news: Notify,
}

impl Listener for Ears {
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name, count: Option<usize>) {
        let mut heard = self.heard.lock();
        let known = heard.entry((tenant.clone(), queue.clone(), name.clone())).or_insert(Some(0));
        *known = known.zip(count).map(|(known, count)| known + count);
        drop(heard);
        self.news.notify_one();
    }
}

impl Ears {
    /// Discards the notifications so far.
    pub(super) fn forget(&self) {
        self.heard.lock().clear();
    }

    /// Waits for a notification of jobs with this name in the default tenant and queue; returns their number.
    pub(super) async fn hear(&self, text: &str, why: &str) -> Option<usize> {
        let address = (Tenant::default(), Queue::default(), name(text));
        let heard = async {
            loop {
                if let Some(count) = self.heard.lock().remove(&address) {
                    return count;
                }
                self.news.notified().await;
            }
        };
        let in_time = tokio::time::timeout(HEARING_MAX, heard).await;
        in_time.unwrap_or_else(|_| panic!("the listener did not hear of {text:?}: {why}"))
    }
}
