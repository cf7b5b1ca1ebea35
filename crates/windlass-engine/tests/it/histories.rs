//! Random histories, checked against the invariants of jobs.

use crate::world::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::event::CancelRunning;
use windlass_core::unique::{HeldUntil, OnConflict, Unique};
use windlass_core::{Job, JobId, JobState, StateName, Timestamp};
use windlass_engine::*;
use windlass_store::Filter;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Lease as known by a worker.
struct Held {
    job: Arc<Job>,
    until: Timestamp,
}

struct History {
    world: World,
    chance: Chance,
    held: Vec<Held>,
    /// Acknowledged pushes.
    pushed: BTreeSet<JobId>,
    children: BTreeSet<JobId>,
    last_token: BTreeMap<JobId, u64>,
    /// Settled and started again: these jobs had to give up their unique keys.
    revived: BTreeSet<JobId>,
    seed: u64,
}

const MAX_ATTEMPTS: u32 = 4;

impl History {
    async fn new(seed: u64) -> History {
        let world = World::new().await;
        let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (pushed, children, last_token, revived) = Default::default();
        History { world, chance, held: vec![], pushed, children, last_token, revived, seed }
    }

    async fn step(&mut self) {
        match self.chance.below(12) {
            0..=2 => self.push().await,
            3..=5 => self.claim().await,
            6..=8 => self.settle().await,
            9 => self.beat().await,
            10 => self.act().await,
            _ => {
                let ms = [1, 50, 1_000, 31_000][self.chance.below(4) as usize];
                self.world.pass(ms).await;
            }
        }
    }

    async fn push(&mut self) {
        let count = 1 + self.chance.below(4);
        let mut jobs = Vec::new();
        for _ in 0..count {
            let mut push = tries(job(["a", "b"][self.chance.below(2) as usize]), MAX_ATTEMPTS);
            push.priority = self.chance.below(3) as i32;
            push.run_at = RunAt::After(self.chance.below(3) as i64 * 700);
            if self.chance.below(4) == 0 {
                let key = ["k1", "k2"][self.chance.below(2) as usize].into();
                push.extras.get_or_insert_default().unique =
                    Some(Unique { key, on_conflict: OnConflict::Return, held_until: HeldUntil::Settled });
            } else if self.chance.below(3) == 0
                && let Some(held) = self.held.last()
            {
                let family = child_of(held.job.id, "c", PARENT_WAITS).extras;
                push.extras = family;
            }
            jobs.push(push);
        }
        let are_children: Vec<bool> = jobs.iter().map(is_child).collect();
        for (pushed, is_child) in self.world.push_all(jobs).await.into_iter().zip(are_children) {
            if let Pushed::New(id) = pushed {
                assert!(self.pushed.insert(id), "seed {}: id {id} was used twice", self.seed);
                if is_child {
                    self.children.insert(id);
                }
            }
        }
    }

    async fn claim(&mut self) {
        let now = self.world.engine.now();
        let claimed = self.world.claim(1 + self.chance.below(3) as usize).await;
        let key = |job: &Arc<Job>| (job.spec.priority, job.progress.due_at, job.id);
        assert!(claimed.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])), "seed {}: order", self.seed);
        for job in claimed {
            let lease = job.state().lease().unwrap();
            assert!(job.progress.due_at <= now, "seed {}: job {} came early", self.seed, job.id);
            assert!(job.progress.attempts <= MAX_ATTEMPTS, "seed {}: attempts of job {}", self.seed, job.id);
            let alive = self.held.iter().any(|held| held.job.id == job.id && held.until > now);
            assert!(!alive, "seed {}: job {} has two live leases", self.seed, job.id);
            let token = lease.token.number();
            let before = self.last_token.insert(job.id, token);
            assert!(
                before.is_none_or(|before| before < token),
                "seed {}: tokens of job {}",
                self.seed,
                job.id
            );
            assert!(self.pushed.contains(&job.id), "seed {}: job {} out of nowhere", self.seed, job.id);
            self.held.push(Held { until: lease.until.unwrap(), job });
        }
    }

    async fn settle(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..=self.chance.below(3) {
            if !self.held.is_empty() {
                let index = self.chance.below(self.held.len() as u64) as usize;
                batch.push(self.held.swap_remove(index));
            }
        }
        let now = self.world.engine.now();
        let mut hows = Vec::new();
        for _ in &batch {
            hows.push(match self.chance.below(5) {
                0..=2 => finish(),
                3 => fail("no"),
                _ => release(self.world.after(5)),
            });
        }
        let entries = batch.iter().zip(hows).map(|(held, how)| (&*held.job, how)).collect();
        let answers = self.world.settle_all(entries).await;
        for (held, answer) in batch.iter().zip(answers) {
            if held.until <= now {
                assert!(answer.is_err(), "seed {}: a late report of job {} counted", self.seed, held.job.id);
            }
        }
    }

    async fn beat(&mut self) {
        let now = self.world.engine.now();
        let entry = |held: &Held| Extend { id: held.job.id, by: holder(&held.job), lease_ms: None };
        let answers =
            self.world.engine.extend(&tenant(), self.held.iter().map(entry).collect()).await.unwrap();
        let mut kept = Vec::new();
        for (mut held, answer) in self.held.drain(..).zip(answers) {
            if let Ok(extended) = answer {
                let until = extended.until.unwrap();
                assert!(until >= held.until && held.until > now, "seed {}: heartbeat", self.seed);
                held.until = until;
                kept.push(held);
            }
        }
        self.held = kept;
    }

    async fn act(&mut self) {
        let Some(most) = self.pushed.last().map(|id| id.get()) else { return };
        let id = JobId::new(1 + self.chance.below(most)).unwrap();
        let action = match self.chance.below(4) {
            0 => Event::Cancel { running: CancelRunning::Now, failed_too: false },
            1 => Event::Run { at: self.world.after(0), force: false },
            2 => Event::Requeue { at: self.world.after(0), even_running: true },
            _ => Event::Cancel { running: CancelRunning::Ask, failed_too: false },
        };
        let was_settled = self.world.job(id).await.is_some_and(|job| job.state().is_settled());
        // An action that takes a job from its worker ends the lease.
        if self.world.apply(id, action).await.is_ok()
            && let Some(job) = self.world.job(id).await
            && job.state().lease().is_none()
        {
            self.held.retain(|held| held.job.id != id);
            if was_settled {
                self.revived.insert(id);
            }
        }
    }

    async fn check(&self) {
        let (seed, engine) = (self.seed, &self.world.engine);
        let filter = Filter { limit: 1_000, ..Filter::default() };
        let jobs = engine.list(filter).await.unwrap().jobs;
        let by_id: BTreeMap<JobId, &Arc<Job>> = jobs.iter().map(|job| (job.id, job)).collect();
        for id in self.pushed.iter().filter(|id| !by_id.contains_key(id)) {
            // Settled children are deleted when their parent runs again; no other job may disappear.
            assert!(self.children.contains(id), "seed {seed}: job {id} is lost");
        }
        let mut counts: BTreeMap<StateName, u64> = BTreeMap::new();
        for job in &jobs {
            *counts.entry(job.state().name()).or_default() += 1;
            let pending = jobs.iter().filter(|child| {
                child.spec.family().is_some_and(|family| family.parent == job.id)
                    && !child.state().is_settled()
            });
            let pending = pending.count();
            assert_eq!(
                job.progress.pending_children as usize, pending,
                "seed {seed}: children of {}",
                job.id
            );
            // A child waits while its parent runs, or while the parent is to run again after a failed run.
            let parent = job.spec.family().and_then(|family| by_id.get(&family.parent));
            let is_stuck = matches!(job.state(), JobState::Waiting)
                && pending == 0
                && !parent.is_some_and(|parent| {
                    matches!(parent.state(), JobState::Running(_) | JobState::Ready { .. })
                });
            assert!(!is_stuck, "seed {seed}: job {} waits for nobody", job.id);
        }
        for queue in engine.counts(None).await.unwrap() {
            for state in StateName::ALL {
                let counted = counts.get(&state).copied().unwrap_or_default();
                assert_eq!(queue.of(state), counted, "seed {seed}: {state}");
            }
        }
        for key in ["k1", "k2"] {
            let holds = |job: &&Arc<Job>| job.spec.unique().is_some_and(|unique| &*unique.key == key);
            let lives = |job: &&Arc<Job>| !job.state().is_settled() && !self.revived.contains(&job.id);
            let live = jobs.iter().filter(holds).filter(lives).count();
            assert!(live <= 1, "seed {seed}: {live} jobs hold {key}");
        }
    }

    /// Workers continue to claim and finish until no job is left that can end.
    async fn drain(&mut self) {
        self.held.clear();
        for _ in 0..2_000 {
            self.world.pass(31_000).await;
            let jobs = self.world.claim(100).await;
            if jobs.is_empty() {
                break;
            }
            self.world.settle_all(jobs.iter().map(|job| (&**job, finish())).collect()).await;
        }
        let left = self.world.engine.list(Filter { limit: 1_000, ..Filter::default() }).await.unwrap().jobs;
        let stuck: Vec<&Arc<Job>> = left.iter().filter(|job| !job.state().is_settled()).collect();
        assert!(stuck.is_empty(), "seed {}: stuck:\n{}", self.seed, self.world.picture().await);
    }
}

fn is_child(push: &Push) -> bool {
    push.extras.as_ref().is_some_and(|extras| extras.family.is_some())
}

#[tokio::test]
async fn random_histories_keep_what_must_always_hold() {
    for seed in 1..=60 {
        let mut history = History::new(seed).await;
        for step in 0..150 {
            history.step().await;
            if step % 10 == 0 {
                history.check().await;
            }
        }
        history.check().await;
        history.drain().await;
    }
}
