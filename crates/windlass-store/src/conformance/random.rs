//! Comparison with [`MemoryStore`] over thousands of random calls, across restarts.

use super::fixtures::{id, ids, queue, tenant};
use super::script::{ALIASES, LIMITS, QUEUES, Script, TENANTS};
use crate::memory::MemoryStore;
use crate::query::PAGE_MAX;
use crate::{
    Change, Filter, Gate, Held, Inserted, KeyRule, Lookup, QueueCounts, Settings, Step, Store, Verdict,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::{Job, StateWord, Tenant, Timestamp, apply};

/// Operations between two comparisons of the whole contents.
const DUMP_EVERY: usize = 200;
/// Restarts per run, and operations between two restarts.
const RESTARTS: usize = 10;
const OPERATIONS_PER_LIFE: usize = 200;
const HOUR_MS: i64 = 3_600_000;
/// Time of the first call: far enough from 1970 that no clock set back gets before it.
const START_MS: i64 = 1_000 * HOUR_MS;
/// Old versions kept for stale commits; the older ones are replaced at random.
const OLD_JOBS_MAX: usize = 50;

/// Makes the same random calls to the store and to a [`MemoryStore`]; every answer has to be equal.
pub async fn compare(store: Arc<dyn Store>, seed: u64, operations: usize) {
    let mut world = World::new(store, seed);
    world.operate(operations).await;
    world.compare_all().await;
    world.subject.close().await.expect("close");
}

/// For persistent stores: after a restart the contents are the same, and later answers are as if there had
/// been no restart. `open` opens the same location each time; it is empty at first.
pub async fn restart_equivalence<F, Fut>(open: F, seed: u64)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    let mut world = World::new(open().await, seed);
    for restart in 1..=RESTARTS {
        Box::pin(world.operate(OPERATIONS_PER_LIFE)).await;
        let before = Dump::of(&*world.subject, world.now).await;
        world.subject.close().await.expect("close");
        world.subject = open().await;
        let after = Dump::of(&*world.subject, world.now).await;
        before.expect_same(&after, &format!("{}: after restart {restart}", world.context()));
        world.compare_all().await;
    }
    world.subject.close().await.expect("close");
}

/// After a random history in memory, a copy in a new store continues like the original, and so does a copy of
/// the copy.
pub async fn copy_equivalence<F, Fut>(new_store: F, seed: u64)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    let mut world = World::new(Arc::new(MemoryStore::new()), seed);
    let stores: [Arc<dyn Store>; 3] = [new_store().await, Arc::new(MemoryStore::new()), new_store().await];
    for next in stores {
        Box::pin(world.operate(OPERATIONS_PER_LIFE)).await;
        let copied = crate::copy::copy(&*world.subject, &*next, "a check", world.now, &|_, _, _| {}).await;
        copied.unwrap_or_else(|error| panic!("{}: copying: {error}", world.context()));
        world.subject.close().await.expect("close");
        world.subject = next;
        world.compare_all().await;
    }
    Box::pin(world.operate(OPERATIONS_PER_LIFE)).await;
    world.compare_all().await;
    world.subject.close().await.expect("close");
}

/// Complete readable contents of a store.
#[derive(Debug, PartialEq)]
pub struct Dump {
    pub jobs: Vec<Arc<Job>>,
    /// Includes pauses.
    pub counts: Vec<QueueCounts>,
    pub settings: Vec<(String, Vec<u8>)>,
}

impl Dump {
    pub async fn of(store: &dyn Store, now: Timestamp) -> Dump {
        let counts = store.counts(None, now).await.expect("counts");
        Dump {
            jobs: all_jobs(store).await,
            counts: counted(&counts),
            settings: store.settings("").await.expect("settings"),
        }
    }

    /// Panics with the first difference instead of the whole contents.
    pub fn expect_same(&self, other: &Dump, context: &str) {
        assert_eq!(ids(&self.jobs), ids(&other.jobs), "{context}: the jobs there are");
        for (one, two) in self.jobs.iter().zip(&other.jobs) {
            assert_eq!(one, two, "{context}: job {}", one.id);
        }
        assert_eq!(self.counts, other.counts, "{context}: counts");
        assert_eq!(self.settings, other.settings, "{context}: settings");
    }
}

/// Every job, newest first.
pub async fn all_jobs(store: &dyn Store) -> Vec<Arc<Job>> {
    all_pages(store, Filter { limit: PAGE_MAX, ..Filter::default() }).await
}

async fn all_pages(store: &dyn Store, mut filter: Filter) -> Vec<Arc<Job>> {
    let mut jobs = Vec::new();
    loop {
        let page = store.list(filter.clone()).await.expect("list");
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return jobs,
        }
    }
}

/// Counts to compare, by tenant and queue, without empty ones.
pub(super) fn counted(counts: &[QueueCounts]) -> Vec<QueueCounts> {
    let says_something = |counts: &&QueueCounts| counts.paused || counts.by_state.iter().any(|n| *n > 0);
    let mut counts: Vec<QueueCounts> = counts.iter().filter(says_something).cloned().collect();
    counts.sort_by_key(|counts| (counts.tenant.clone(), counts.queue.clone()));
    counts
}

/// Expected counters, computed from the rows; only the paused queues are taken from `kept`.
pub(super) fn count(jobs: &[Arc<Job>], kept: &[QueueCounts], now: Timestamp) -> Vec<QueueCounts> {
    let mut queues = BTreeMap::new();
    for counts in kept {
        let address = (counts.tenant.clone(), counts.queue.clone());
        let nothing =
            QueueCounts { by_state: [0; 9], delayed: 0, retrying: 0, oldest_due: None, ..counts.clone() };
        assert!(queues.insert(address, nothing).is_none(), "queue {} is counted twice", counts.queue);
    }
    for job in jobs {
        let address = (job.spec.tenant.clone(), job.spec.queue.clone());
        let Some(counts) = queues.get_mut(&address) else {
            panic!("queue {} of tenant {} has jobs but no counts", address.1, address.0);
        };
        counts.by_state[job.state().name() as usize] += 1;
        if let Some(run_at) = job.state().claimable_at().filter(|run_at| *run_at <= now) {
            counts.oldest_due = counts.oldest_due.into_iter().chain([run_at]).min();
        }
        match job.state_word(now) {
            StateWord::Delayed => counts.delayed += 1,
            StateWord::Retrying => counts.retrying += 1,
            _ => {}
        }
    }
    queues.into_values().collect()
}

/// Limits that are either open or closed and give the same answer however often they are asked. They use the
/// time of the script, because a shared store passes the time of its own clock.
#[derive(Default)]
struct Doors {
    shut: Mutex<BTreeMap<Arc<str>, Option<Timestamp>>>,
    now: Mutex<Timestamp>,
}

impl Gate for Doors {
    fn admit(&self, _: &Tenant, keys: &[Arc<str>], _: Timestamp) -> Result<(), Held> {
        let now = *self.now.lock();
        let shut = self.shut.lock();
        for key in keys {
            match shut.get(key) {
                Some(Some(until)) if *until <= now => {}
                Some(until) => return Err(Held { key: key.clone(), until: *until }),
                None => {}
            }
        }
        Ok(())
    }

    fn give_back(&self, _: &Tenant, _: &[Arc<str>], _: Timestamp) {}
}

/// Store under test and reference, which have received the same calls so far.
struct World {
    subject: Arc<dyn Store>,
    reference: MemoryStore,
    script: Script,
    seed: u64,
    operation: usize,
    now: Timestamp,
    newest: u64,
    /// Earlier versions, for stale commits.
    old: Vec<Arc<Job>>,
    doors: Arc<Doors>,
}

impl World {
    fn new(subject: Arc<dyn Store>, seed: u64) -> World {
        World {
            subject,
            reference: MemoryStore::new(),
            script: Script::new(seed),
            seed,
            operation: 0,
            now: Timestamp::from_millis(START_MS),
            newest: 0,
            old: Vec::new(),
            doors: Arc::default(),
        }
    }

    fn context(&self) -> String {
        format!("seed {}, operation {}, now {}", self.seed, self.operation, self.now.as_millis())
    }

    async fn operate(&mut self, operations: usize) {
        for _ in 0..operations {
            self.operation += 1;
            match self.script.chance.below(100) {
                0..=34 => self.commit().await,
                35..=54 => self.claim().await,
                55..=74 => self.tick().await,
                75..=79 => self.pause().await,
                80..=83 => self.turn_a_door(),
                84..=86 => self.put_setting().await,
                87..=91 => self.compare_loads().await,
                92..=95 => self.compare_lists().await,
                _ => self.compare_counts().await,
            }
            if self.operation.is_multiple_of(DUMP_EVERY) {
                self.compare_all().await;
            }
        }
    }

    /// A few steps: inserts, changes, several changes at once, from current and old versions.
    async fn commit(&mut self) {
        let mut steps = Vec::new();
        for _ in 0..[1, 1, 1, 2, 4][self.script.chance.index(5)] {
            let mut step = Step::default();
            let kind = self.script.chance.below(100);
            let changes = if kind < 35 { 0 } else { [1, 1, 1, 2, 3][self.script.chance.index(5)] };
            for _ in 0..changes {
                step.changes.extend(self.change().await);
            }
            if kind < 42 {
                let inserts = 1 + self.script.chance.below(3);
                step.inserts = (0..inserts).map(|_| self.script.new_job(self.now, self.newest)).collect();
                step.all_new = self.script.chance.percent(30);
            }
            steps.push(step);
        }
        let expected = self.commit_both(steps).await;
        for verdict in expected {
            if let Verdict::Done(inserted) = verdict {
                let news = inserted.iter().filter(|one| matches!(one, Inserted::New(_)));
                self.newest = news.map(|one| one.id().get()).max().unwrap_or(0).max(self.newest);
            }
        }
    }

    async fn commit_both(&mut self, steps: Vec<Step>) -> Vec<Verdict> {
        let expected = self.reference.commit(steps.clone(), self.now).await.expect("commit");
        let actual = self.subject.commit(steps.clone(), self.now).await.expect("commit");
        assert_eq!(actual, expected, "{}: verdicts on {steps:#?}", self.context());
        expected
    }

    /// Event that the rules allow, for the current or sometimes an old version of a job.
    async fn change(&mut self) -> Option<Change> {
        let before = if !self.old.is_empty() && self.script.chance.percent(12) {
            self.old[self.script.chance.index(self.old.len())].clone()
        } else {
            self.some_job().await?
        };
        for _ in 0..6 {
            let event = self.script.event(&before, self.now);
            if let Ok(transition) = apply(&before, event, self.now) {
                let keys = self.script.chance.pick(&[KeyRule::Yield, KeyRule::Ask]);
                return Some(Change { before, after: transition.job.map(Arc::new), keys });
            }
        }
        None
    }

    /// Mostly one of the newer jobs, because most old ones are deleted.
    async fn some_job(&mut self) -> Option<Arc<Job>> {
        for _ in 0..10 {
            let span = if self.script.chance.percent(70) { self.newest.min(60) } else { self.newest };
            let number = self.newest.checked_sub(self.script.chance.below(span.max(1)))?;
            let wanted = vec![windlass_core::JobId::new(number)?];
            if let Some(job) = self.reference.load(wanted).await.expect("load").remove(0) {
                self.remember(&job);
                return Some(job);
            }
        }
        None
    }

    fn remember(&mut self, job: &Arc<Job>) {
        if self.old.len() < OLD_JOBS_MAX {
            self.old.push(job.clone());
        } else {
            let slot = self.script.chance.index(OLD_JOBS_MAX);
            self.old[slot] = job.clone();
        }
    }

    async fn claim(&mut self) {
        *self.doors.now.lock() = self.now;
        let ask = self.script.ask(Some(self.doors.clone()));
        let expected = self.reference.claim(ask.clone(), self.now).await.expect("claim");
        let actual = self.subject.claim(ask.clone(), self.now).await.expect("claim");
        let asked =
            format!("{:?} {:?} {:?} {:?} {}", ask.tenant, ask.queues, ask.names, ask.priority, ask.limit);
        assert_eq!(ids(&actual), ids(&expected), "{}: claimed by {asked}", self.context());
        assert_eq!(actual, expected, "{}: claimed by {asked}", self.context());
        for job in &expected {
            self.remember(job);
        }
    }

    /// Usually advances the time and handles most of the passed deadlines; sometimes sets the clock.
    async fn tick(&mut self) {
        let step_ms = match self.script.chance.below(60) {
            0 => -HOUR_MS,
            1..=2 => HOUR_MS,
            3..=4 => 2_000,
            5..=25 => 0,
            _ => self.script.chance.between_ms(1, 40),
        };
        self.now = self.now.plus_ms(step_ms);
        let limit = if self.script.chance.percent(15) { 2 } else { 10_000 };
        let expected = self.reference.due(self.now, limit).await.expect("due");
        let actual = self.subject.due(self.now, limit).await.expect("due");
        assert_eq!(actual.jobs.len(), expected.jobs.len(), "{}: how many are due", self.context());
        if expected.jobs.len() < limit {
            let by_id =
                |jobs: &[Arc<Job>]| jobs.iter().map(|job| (job.id, job.clone())).collect::<BTreeMap<_, _>>();
            assert_eq!(by_id(&actual.jobs), by_id(&expected.jobs), "{}: jobs that are due", self.context());
        }
        for job in &actual.jobs {
            let passed = job.deadline().is_some_and(|deadline| deadline <= self.now);
            assert!(passed, "{}: job {} is not due", self.context(), job.id);
        }
        if expected.jobs.is_empty() {
            self.check_next(actual.next).await;
        } else if self.script.chance.percent(80) {
            self.keep_deadlines(&expected.jobs).await;
        }
    }

    /// The next due time must not be later than any scheduled time, nor so early that callers poll in vain
    /// forever.
    async fn check_next(&self, next: Option<Timestamp>) {
        let paused = self.paused().await;
        let mut planned = Vec::new();
        for job in all_jobs(&self.reference).await {
            planned.extend(job.deadline());
            if !paused.contains(&(job.spec.tenant.clone(), job.spec.queue.to_string())) {
                planned.extend(job.state().claimable_at());
            }
        }
        let latest = planned.into_iter().filter(|moment| *moment > self.now).min();
        if let Some(latest) = latest {
            let in_time = next.is_some_and(|next| next <= latest);
            assert!(in_time, "{}: the next moment is {latest}, not {next:?}", self.context());
        }
        assert!(next.is_none_or(|next| next > self.now), "{}: {next:?} is not ahead", self.context());
    }

    async fn paused(&self) -> BTreeSet<(Tenant, String)> {
        let counts = self.reference.counts(None, self.now).await.expect("counts");
        let paused = counts.into_iter().filter(|counts| counts.paused);
        paused.map(|counts| (counts.tenant, counts.queue.to_string())).collect()
    }

    async fn keep_deadlines(&mut self, due: &[Arc<Job>]) {
        let mut steps = Vec::new();
        for job in due {
            let event = self.script.deadline_event(job);
            if let Ok(transition) = apply(job, event, self.now) {
                steps.push(Step::change(job.clone(), transition.job));
            }
        }
        self.commit_both(steps).await;
    }

    async fn pause(&mut self) {
        let (tenant, queue) = (self.script.tenant(), queue(self.script.chance.pick(&QUEUES)));
        let paused = self.script.chance.percent(35);
        self.reference.set_paused(&tenant, &queue, paused).await.expect("set_paused");
        self.subject.set_paused(&tenant, &queue, paused).await.expect("set_paused");
    }

    fn turn_a_door(&mut self) {
        let key = self.script.chance.pick(&LIMITS);
        let until = self.script.chance.percent(40).then(|| self.now.plus_ms(25));
        let open = self.script.chance.percent(60);
        {
            let mut shut = self.doors.shut.lock();
            match open {
                true => shut.remove(key),
                false => shut.insert(key.into(), until),
            };
        }
        // Also when one wait replaces another: a store may have recorded the longer one.
        self.reference.reopen(key);
        self.subject.reopen(key);
    }

    async fn put_setting(&mut self) {
        let key = format!("setting/{}", self.script.chance.below(6));
        let value = self.script.chance.percent(70).then(|| vec![self.script.chance.next() as u8; 3]);
        self.reference.put_setting(&key, value.clone()).await.expect("put_setting");
        self.subject.put_setting(&key, value).await.expect("put_setting");
    }

    async fn compare_loads(&mut self) {
        let wanted: Vec<_> = (0..10).map(|_| id(1 + self.script.chance.below(self.newest + 3))).collect();
        let expected = self.reference.load(wanted.clone()).await.expect("load");
        let actual = self.subject.load(wanted.clone()).await.expect("load");
        assert_eq!(actual, expected, "{}: load {wanted:?}", self.context());
        for parent in wanted {
            let expected = self.reference.children(parent).await.expect("children");
            let actual = self.subject.children(parent).await.expect("children");
            assert_eq!(actual, expected, "{}: children of {parent}", self.context());
        }
    }

    async fn compare_lists(&mut self) {
        let filter = self.script.filter();
        let expected = all_pages(&self.reference, filter.clone()).await;
        let actual = all_pages(&*self.subject, filter.clone()).await;
        assert_eq!(ids(&actual), ids(&expected), "{}: list {filter:?}", self.context());
        assert_eq!(actual, expected, "{}: list {filter:?}", self.context());
    }

    async fn compare_counts(&self) {
        for tenant in TENANTS.map(tenant) {
            let expected = self.reference.counts(Some(&tenant), self.now).await.expect("counts");
            let actual = self.subject.counts(Some(&tenant), self.now).await.expect("counts");
            assert_eq!(counted(&actual), counted(&expected), "{}: counts of {tenant}", self.context());
            self.compare_bytes(&tenant).await;
        }
    }

    async fn compare_bytes(&self, tenant: &Tenant) {
        let expected = self.reference.payload_bytes(tenant).await.expect("bytes");
        let actual = self.subject.payload_bytes(tenant).await.expect("bytes");
        assert_eq!(actual, expected, "{}: bytes of payloads of {tenant}", self.context());
    }

    async fn compare_all(&self) {
        let expected = Dump::of(&self.reference, self.now).await;
        let actual = Dump::of(&*self.subject, self.now).await;
        expected.expect_same(&actual, &self.context());
        assert_eq!(
            counted(&count(&actual.jobs, &actual.counts, self.now)),
            actual.counts,
            "{}: counts and rows",
            self.context()
        );
        for alias in ALIASES {
            let tenants = TENANTS.map(tenant);
            let mut expected = self.reference.find_aliases(&tenants, alias).await.expect("find_aliases");
            let mut actual = self.subject.find_aliases(&tenants, alias).await.expect("find_aliases");
            expected.sort_unstable();
            actual.sort_unstable();
            assert_eq!(actual, expected, "{}: alias {alias} of all tenants", self.context());
        }
        for tenant in TENANTS.map(tenant) {
            self.compare_bytes(&tenant).await;
            for alias in ALIASES {
                let expected = self.reference.find_alias(&tenant, alias).await.expect("find_alias");
                let actual = self.subject.find_alias(&tenant, alias).await.expect("find_alias");
                assert_eq!(actual, expected, "{}: alias {alias} of {tenant}", self.context());
            }
        }
    }
}
