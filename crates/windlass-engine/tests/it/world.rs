//! Test environment: an engine on a memory store with a manual clock.

use std::fmt::Write;
use std::sync::Arc;
pub use windlass_core::Event;
use windlass_core::event::{Patch, RetryWish, Suspend};
use windlass_core::family::{Family, FamilyRule};
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::{
    Holder, Job, JobId, JobState, Keep, KeepFor, Name, NameMatch, Outcome, Payload, Policy, Queue, Tenant,
    Timestamp,
};
use windlass_engine::*;
use windlass_store::faulty::{Faults, FaultyStore};
use windlass_store::memory::MemoryStore;
use windlass_store::{Filter, Store};

pub struct World {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    pub store: Arc<dyn Store>,
}

/// Start of the clock; pictures show times relative to it.
pub const START_MS: i64 = 1_000_000;

impl World {
    pub async fn new() -> World {
        World::on(Arc::new(MemoryStore::new())).await
    }

    pub async fn on(store: Arc<dyn Store>) -> World {
        World::with(store, Arc::new(ManualClock::default()), Options::default()).await
    }

    pub async fn with(store: Arc<dyn Store>, clock: Arc<ManualClock>, options: Options) -> World {
        let random = Arc::new(SeededRandom::new(7));
        let engine = Engine::start(store.clone(), clock.clone(), random, options).await.unwrap();
        World { engine, clock, store }
    }

    /// Ends the process without a shutdown, and starts another on the same store.
    pub async fn crash(self) -> World {
        let World { engine, clock, store } = self;
        drop(engine);
        World::with(store, clock, Options::default()).await
    }

    /// Advances the clock and lets all tasks react.
    pub async fn pass(&self, ms: i64) {
        self.clock.advance(ms);
        rest().await;
    }

    pub async fn push(&self, job: Push) -> JobId {
        self.push_all(vec![job]).await[0].id().expect("it is made")
    }

    pub async fn push_all(&self, jobs: Vec<Push>) -> Vec<Pushed> {
        self.engine.push(&tenant(), jobs).await.unwrap()
    }

    /// Claims the jobs that are ready now, up to `limit`.
    pub async fn claim(&self, limit: usize) -> Vec<Arc<Job>> {
        self.engine.claim(Claim { limit, ..any() }).await.unwrap().accept()
    }

    pub async fn claim_one(&self) -> Arc<Job> {
        self.claim(1).await.pop().expect("a job is there")
    }

    pub async fn settle(&self, job: &Job, end: Event) -> Result<Settled, VerbError> {
        self.settle_all(vec![(job, end)]).await.remove(0)
    }

    pub async fn settle_all(&self, ends: Vec<(&Job, Event)>) -> Vec<Result<Settled, VerbError>> {
        let ends = ends.into_iter().map(|(job, end)| settle(job.id, holder(job), end)).collect();
        self.engine.settle(&tenant(), ends).await.unwrap()
    }

    /// Time `ms` milliseconds from now.
    pub fn after(&self, ms: i64) -> Timestamp {
        self.engine.now().plus_ms(ms)
    }

    pub async fn finish(&self, job: &Job) {
        self.settle(job, finish()).await.expect("it is ours to finish");
    }

    pub async fn apply(&self, id: JobId, event: Event) -> Result<Option<Arc<Job>>, VerbError> {
        self.engine.apply(&tenant(), vec![id], event).await.unwrap().remove(0)
    }

    pub async fn job(&self, id: JobId) -> Option<Arc<Job>> {
        self.engine.get(&tenant(), vec![id]).await.unwrap().remove(0)
    }

    pub async fn picture(&self) -> String {
        picture(&self.engine).await
    }

    #[track_caller]
    pub fn shows(&self, picture: &str, expected: &str) {
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(picture.trim_end().lines().collect::<Vec<_>>(), expected);
    }
}

/// Prints one job per line, oldest first.
pub async fn picture(engine: &Engine) -> String {
    let mut jobs = Vec::new();
    let mut filter = Filter { limit: 1_000, ..Filter::default() };
    loop {
        let page = engine.list(filter.clone()).await.unwrap();
        jobs.extend(page.jobs);
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    jobs.reverse();
    let mut text = String::new();
    for job in jobs {
        let spec = &job.spec;
        let state = job.state().name();
        write!(text, "{} {state} {}/{}", job.id, spec.queue, spec.name).unwrap();
        write!(text, " p{} a{}", spec.priority, job.progress.attempts).unwrap();
        let since = |at: windlass_core::Timestamp| at.as_millis() - START_MS;
        match job.state() {
            JobState::Ready { run_at, .. } | JobState::Terminating { run_at } => {
                write!(text, " at {}", since(*run_at)).unwrap();
            }
            JobState::Running(lease) => match lease.until {
                Some(until) => write!(text, " until {}", since(until)).unwrap(),
                None => text.push_str(" until settled"),
            },
            _ => {}
        }
        if job.progress.pending_children > 0 {
            write!(text, " children {}", job.progress.pending_children).unwrap();
        }
        if let Some(family) = spec.family() {
            write!(text, " parent {}", family.parent).unwrap();
        }
        text.push('\n');
    }
    text
}

/// Environment with a store that fails on command.
pub async fn faulty_world() -> (World, Faults) {
    let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
    let world = World::on(store).await;
    rest().await;
    (world, faults)
}

/// Lets every task run until it waits for time or for another task. Tests run on one thread, so yielding is
/// enough.
pub async fn rest() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub fn tenant() -> Tenant {
    Tenant::default()
}

pub fn queue(text: &str) -> Queue {
    Queue::new(text).unwrap()
}

pub fn job(name: &str) -> Push {
    Push {
        queue: Queue::default(),
        name: Name::new(name).unwrap(),
        payload: Payload::json("{}"),
        priority: 0,
        run_at: RunAt::Now,
        policy: Arc::new(Policy { keep: keep_ever(), ..Policy::default() }),
        extras: None,
        body: None,
    }
}

pub fn keep_ever() -> Keep {
    Keep { completed: KeepFor::Ever, failed: KeepFor::Ever, cancelled: KeepFor::Ever }
}

pub fn keep_nothing() -> Keep {
    Keep { completed: KeepFor::Drop, failed: KeepFor::Drop, cancelled: KeepFor::Drop }
}

pub fn with_policy(mut push: Push, change: impl FnOnce(&mut Policy)) -> Push {
    change(Arc::make_mut(&mut push.policy));
    push
}

/// Parent whose end deletes its settled children.
pub fn forgetful(push: Push) -> Push {
    with_policy(push, |policy| policy.forget_children = Some(true))
}

pub fn tries(push: Push, max: u32) -> Push {
    let retry = RetryPolicy { max_attempts: Some(max), backoff: Backoff::None, give_up_after_ms: None };
    with_policy(push, |policy| policy.retry = retry)
}

pub fn child_of(parent: JobId, name: &str, rule: FamilyRule) -> Push {
    let mut push = job(name);
    push.extras.get_or_insert_default().family = Some(Family { parent, child_name: None, rule });
    push
}

pub const PARENT_WAITS: FamilyRule = FamilyRule::ParentWaits { failure_settles: true };

pub fn any() -> Claim {
    Claim {
        tenant: tenant(),
        queues: vec![],
        names: NameMatch::Any,
        priority: None,
        limit: 1,
        wait_ms: 0,
        lease_ms: None,
        worker: Some("w".into()),
    }
}

pub fn holder(job: &Job) -> Holder {
    Holder::Token(job.state().lease().expect("it was claimed").token)
}

/// End of a run, with its holder set to `holder`.
pub fn settle(id: JobId, holder: Holder, mut event: Event) -> JobEvent {
    match &mut event {
        Event::Finish(finish) => finish.by = holder,
        Event::Fail(failure) => failure.by = holder,
        Event::Release { by, .. } | Event::Return { by } => *by = holder,
        Event::Suspend(suspend) => suspend.by = holder,
        other => panic!("{other:?} is no end of a run"),
    }
    JobEvent { id, event }
}

pub fn finish() -> Event {
    Event::finish(Holder::Anyone, Outcome::default())
}

pub fn finish_with(result: &str) -> Event {
    Event::finish(Holder::Anyone, Outcome { result: Some(Payload::json(result)), ..Outcome::default() })
}

pub fn fail(message: &str) -> Event {
    let outcome = Outcome { message: Some(message.to_owned()), ..Outcome::default() };
    Event::fail(Holder::Anyone, outcome, RetryWish::Policy)
}

pub fn fail_for_good() -> Event {
    Event::fail(Holder::Anyone, Outcome::default(), RetryWish::Never)
}

pub fn release(run_at: Timestamp) -> Event {
    Event::Release { by: Holder::Anyone, run_at, counts: true }
}

pub const RETURN: Event = Event::Return { by: Holder::Anyone };
pub const SUSPEND: Event = Event::Suspend(Suspend { by: Holder::Anyone, until: None, wait: None });

pub fn update(patch: Patch) -> Event {
    Event::Update(Box::new(patch))
}

pub fn names(jobs: &[Arc<Job>]) -> Vec<&str> {
    jobs.iter().map(|job| job.spec.name.as_str()).collect()
}
