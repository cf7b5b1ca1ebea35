//! Invariants over random histories: workers that come and go, late reports, expired leases, stale commits.
//! They are checked from the outside, by the answers of the store, not by comparison with another store.
//!
//! * At most one live lease per job; its tokens strictly increase; only the current token is accepted, and
//!   only before the lease expires.
//! * No job is claimed before its time, from a paused queue, or after it was settled, unless it was requeued.
//! * Attempts stay within `max_attempts`.
//! * At most one job holds a unique key; a refused duplicate names that job.
//! * Counters equal rows, and rows equal acknowledged jobs: none is lost, none appears.
//! * After the faults end, every job settles.

use super::fixtures::{Draft, Rig, ask, at, done, job, queue};
use super::random::{all_jobs, count, counted};
use super::script::{QUEUES, Script};
use crate::{ClaimAsk, Inserted, KeyRule, Rival, Step, Store, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::event::CancelRunning;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::{Event, Holder, Job, JobId, KeepFor, StateName, Tenant, Timestamp, Token, apply};

/// Operations between two comparisons of all rows.
const LOOK_EVERY: usize = 20;
/// Most rounds of one second until every job is settled: retries and leases are far shorter.
const QUIET_ROUNDS_MAX: usize = 100;

/// Runs random workers against the store, checks the answers, and finally lets all jobs settle.
pub async fn check_invariants(store: Arc<dyn Store>, seed: u64, operations: usize) {
    let mut model = Model::new(store, seed);
    for _ in 0..operations {
        model.operation += 1;
        match model.script.chance.below(100) {
            0..=19 => model.push().await,
            20..=39 => {
                let limit = 1 + model.script.chance.index(4);
                model.claim(limit).await;
            }
            40..=69 => model.work().await,
            70..=84 => model.tick().await,
            85..=89 => model.pause().await,
            90..=94 => model.cancel().await,
            _ => model.requeue().await,
        }
        if model.operation.is_multiple_of(LOOK_EVERY) {
            model.look().await;
        }
    }
    model.come_to_an_end().await;
    model.rig.close("the model").await;
}

/// A worker's view of one run. Kept after the end of the run: workers presumed dead come back.
#[derive(Clone)]
struct Grant {
    /// Version at the claim; a later commit from it is stale if the job changed since.
    job: Arc<Job>,
    token: Token,
    /// Lease as last acknowledged.
    until: Timestamp,
}

struct Model {
    rig: Rig,
    script: Script,
    seed: u64,
    operation: usize,
    now: Timestamp,
    /// Every job that should exist, as last acknowledged.
    jobs: BTreeMap<JobId, Arc<Job>>,
    last_token: BTreeMap<JobId, Token>,
    grants: Vec<Grant>,
    paused: BTreeSet<&'static str>,
}

impl Model {
    fn new(store: Arc<dyn Store>, seed: u64) -> Model {
        Model {
            rig: Rig::new(store),
            script: Script::new(seed),
            seed,
            operation: 0,
            now: at(1_000_000),
            jobs: BTreeMap::new(),
            last_token: BTreeMap::new(),
            grants: Vec::new(),
            paused: BTreeSet::new(),
        }
    }

    fn context(&self) -> String {
        format!("seed {}, operation {} of the model, now {}", self.seed, self.operation, self.now.as_millis())
    }

    fn draft(&mut self) -> Draft {
        let chance = &mut self.script.chance;
        let delay_ms = if chance.percent(60) { 0 } else { chance.between_ms(1, 100) };
        let retry = RetryPolicy {
            max_attempts: Some(chance.pick(&[1, 2, 5])),
            backoff: chance.pick(&[Backoff::None, Backoff::Fixed { delay_ms: 20 }]),
            give_up_after_ms: None,
        };
        let keep = chance.pick(&[KeepFor::Drop, KeepFor::Ms(100), KeepFor::Ever]);
        let mut draft = job("work")
            .queue(chance.pick(&QUEUES))
            .run_at(self.now.plus_ms(delay_ms).as_millis())
            .lease_ms(Some(chance.pick(&[1, 30, 90])))
            .keep_all(keep)
            .policy(|policy| policy.retry = retry);
        draft.spec.created_at = self.now;
        let key = chance.below(12);
        if key < 4 { draft.unique(&format!("key {key}")) } else { draft }
    }

    async fn push(&mut self) {
        let draft = self.draft();
        let key = draft.spec.unique().map(|unique| unique.key.clone());
        let verdict = self.rig.commit_one(Step::insert(vec![draft.new_job()]), self.now).await;
        let Verdict::Done(answers) = verdict else { panic!("{}: an insert is never stale", self.context()) };
        let holder = key.and_then(|key| self.holder_of(&key));
        match answers[0] {
            Inserted::Existing(id) => {
                assert_eq!(holder, Some(id), "{}: the holder of the key", self.context())
            }
            Inserted::New(id) => {
                assert_eq!(holder, None, "{}: job {id} got a key that is held", self.context());
                assert!(self.jobs.keys().all(|known| *known < id), "{}: id {id} grows", self.context());
                let job = self.rig.get(id).await;
                self.jobs.insert(id, job);
            }
        }
    }

    fn holder_of(&self, key: &str) -> Option<JobId> {
        let holds = |job: &&Arc<Job>| {
            job.holds_unique_key() && job.spec.unique().is_some_and(|unique| *unique.key == *key)
        };
        self.jobs.values().find(holds).map(|job| job.id)
    }

    async fn claim(&mut self, limit: usize) {
        let claimed =
            self.rig.claim(ClaimAsk { limit, seed: self.script.chance.next(), ..ask() }, self.now).await;
        assert!(claimed.len() <= limit, "{}: more than were asked for", self.context());
        for job in claimed {
            self.check_grant(&job);
            let lease = job.state().lease().expect("a claimed job has a lease");
            let (token, until) = (lease.token, lease.until.expect("these leases end"));
            self.last_token.insert(job.id, token);
            self.grants.push(Grant { job: job.clone(), token, until });
            self.jobs.insert(job.id, job);
        }
    }

    fn check_grant(&self, job: &Job) {
        let context = format!("{}: job {} was given out", self.context(), job.id);
        let Some(before) = self.jobs.get(&job.id) else { panic!("{context}, but there is no such job") };
        let state = before.state().name();
        assert_eq!(state, StateName::Ready, "{context}, but it is {state}");
        assert!(before.state().claimable_at() <= Some(self.now), "{context} too early");
        assert!(!self.paused.contains(&*job.spec.queue), "{context} from a paused queue");
        let lease = job.state().lease();
        let lease = lease.unwrap_or_else(|| panic!("{context} without a lease"));
        let newer = self.last_token.get(&job.id).is_none_or(|last| *last < lease.token);
        assert!(newer, "{context} with a token that is not newer than its last");
        let max = job.spec.policy.retry.max_attempts.unwrap_or(u32::MAX);
        assert!(job.progress.attempts <= max, "{context} more often than {max} times");
    }

    /// Reports on a current or past run of a worker, from the current or an old version.
    async fn work(&mut self) {
        if self.grants.is_empty() {
            return;
        }
        let recent = self.grants.len().min(15);
        let number = self.grants.len() - 1 - self.script.chance.index(recent);
        let grant = self.grants[number].clone();
        let by = Holder::Token(grant.token);
        let event = match self.script.chance.below(8) {
            0..=3 => self.script.finish(by),
            4..=5 => self.script.failure(by, self.now),
            6 => Event::Release { by, run_at: self.now.plus_ms(10), counts: true },
            _ => Event::Extend { by, lease_ms: Some(40) },
        };
        let current = self.jobs.get(&grant.job.id).cloned();
        let from_memory = self.script.chance.percent(25);
        let Some(before) = (if from_memory { Some(grant.job.clone()) } else { current.clone() }) else {
            return;
        };
        let Ok(transition) = apply(&before, event, self.now) else { return };

        let is_current = current.as_ref().is_some_and(|current| current.version == before.version);
        let holds = current.as_ref().and_then(|job| job.state().lease()).map(|lease| lease.token);
        let step = Step::change(before.clone(), transition.job.clone());
        let verdict = self.rig.commit_one(step, self.now).await;
        let expected = if is_current { done() } else { Verdict::Stale };
        assert_eq!(verdict, expected, "{}: a worker's word on job {}", self.context(), before.id);
        if is_current {
            assert_eq!(holds, Some(grant.token), "{}: an old token was accepted", self.context());
            self.note_extension(number, transition.job.as_ref());
            self.note(before.id, transition.job);
        }
    }

    /// A heartbeat never shortens a lease.
    fn note_extension(&mut self, number: usize, after: Option<&Job>) {
        if let Some(until) = after.and_then(|job| job.state().lease()).and_then(|lease| lease.until) {
            assert!(until >= self.grants[number].until, "{}: a lease was shortened", self.context());
            self.grants[number].until = until;
        }
    }

    fn note(&mut self, id: JobId, after: Option<Job>) {
        match after {
            Some(job) => self.jobs.insert(id, Arc::new(job)),
            None => self.jobs.remove(&id),
        };
    }

    /// Advances the time and handles deadlines: expired leases, ended keep times.
    async fn tick(&mut self) {
        let step_ms = self.script.chance.between_ms(0, 40);
        self.now = self.now.plus_ms(step_ms);
        let due = self.rig.store.due(self.now, 1_000).await.expect("due").jobs;
        let mut expected: Vec<JobId> =
            self.jobs.values().filter(|job| self.is_due(job)).map(|job| job.id).collect();
        let mut found: Vec<JobId> = due.iter().map(|job| job.id).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{}: jobs that are due", self.context());
        for job in due {
            let event = self.script.deadline_event(&job);
            let transition = match apply(&job, event, self.now) {
                Ok(transition) => transition,
                Err(refused) => panic!("{}: job {} is due, yet {refused}", self.context(), job.id),
            };
            self.change(&job, transition.job).await;
        }
    }

    fn is_due(&self, job: &Job) -> bool {
        job.deadline().is_some_and(|deadline| deadline <= self.now)
    }

    async fn change(&mut self, before: &Arc<Job>, after: Option<Job>) {
        let verdict = self.rig.commit_one(Step::change(before.clone(), after.clone()), self.now).await;
        assert_eq!(verdict, done(), "{}: job {} stands as it was read", self.context(), before.id);
        self.note(before.id, after);
    }

    async fn pause(&mut self) {
        let text = self.script.chance.pick(&QUEUES);
        let paused = self.script.chance.percent(40);
        self.set_paused(text, paused).await;
    }

    async fn set_paused(&mut self, text: &'static str, paused: bool) {
        self.rig.store.set_paused(&Tenant::default(), &queue(text), paused).await.expect("set_paused");
        if paused {
            self.paused.insert(text)
        } else {
            self.paused.remove(text)
        };
    }

    async fn cancel(&mut self) {
        let event = Event::Cancel { running: CancelRunning::Now, failed_too: true };
        if let Some(job) = self.some_job()
            && let Ok(transition) = apply(&job, event, self.now)
        {
            self.change(&job, transition.job).await;
        }
    }

    /// Requeues a job, unless another job holds its key by now.
    async fn requeue(&mut self) {
        let event = Event::Requeue { at: self.now, even_running: true };
        let Some(job) = self.some_job() else { return };
        let Ok(transition) = apply(&job, event, self.now) else { return };
        let holder = job.spec.unique().and_then(|unique| self.holder_of(&unique.key));
        let mut step = Step::change(job.clone(), transition.job.clone());
        step.changes[0].keys = KeyRule::Ask;
        let verdict = self.rig.commit_one(step, self.now).await;
        match holder.filter(|holder| *holder != job.id) {
            Some(holder) => {
                let expected = Verdict::KeyTaken(vec![Rival { job: job.id, holder }]);
                assert_eq!(verdict, expected, "{}: job {} started over", self.context(), job.id);
            }
            None => {
                assert_eq!(verdict, done(), "{}: job {} started over", self.context(), job.id);
                self.note(job.id, transition.job);
            }
        }
    }

    fn some_job(&mut self) -> Option<Arc<Job>> {
        let skipped = self.script.chance.index(self.jobs.len());
        self.jobs.values().nth(skipped).cloned()
    }

    /// Checks that rows equal acknowledged jobs, counters equal rows, and each key has one holder.
    async fn look(&self) {
        let rows = all_jobs(&*self.rig.store).await;
        let acknowledged: Vec<Arc<Job>> = self.jobs.values().rev().cloned().collect();
        assert_eq!(rows, acknowledged, "{}: rows and what was acknowledged", self.context());
        let kept = self.rig.store.counts(None, self.now).await.expect("counts");
        let by_rows = count(&rows, &kept, self.now);
        assert_eq!(counted(&kept), counted(&by_rows), "{}: counts and rows", self.context());
        let mut keys = BTreeSet::new();
        for job in rows.iter().filter(|job| job.holds_unique_key()) {
            let key = job.spec.unique().map(|unique| unique.key.clone());
            assert!(keys.insert(key), "{}: job {} holds a key that another holds", self.context(), job.id);
        }
    }

    /// Lets all workers finish without faults: all jobs have to settle.
    async fn come_to_an_end(&mut self) {
        for text in QUEUES {
            self.set_paused(text, false).await;
        }
        for _ in 0..QUIET_ROUNDS_MAX {
            self.operation += 1;
            self.now = self.now.plus_ms(1_000);
            self.tick().await;
            self.claim(1_000).await;
            let running = self.jobs.values().filter(|job| job.state().lease().is_some());
            for job in running.cloned().collect::<Vec<_>>() {
                let event = self.script.finish(Holder::Anyone);
                match apply(&job, event, self.now) {
                    Ok(transition) => self.change(&job, transition.job).await,
                    Err(refused) => panic!("{}: finishing job {}: {refused}", self.context(), job.id),
                }
            }
            self.look().await;
        }
        let open: Vec<&Arc<Job>> = self.jobs.values().filter(|job| !job.state().is_settled()).collect();
        assert!(open.is_empty(), "{}: these never came to an end: {open:#?}", self.context());
    }
}
