//! What is asked of a store, and what it answers.

use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::{Body, Job, JobId, JobSpec, NameMatch, Queue, Tenant, Timestamp};

/// One job from one version to the next. `before.version` is the guard.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Arc<Job>,
    /// `None`: the job is gone.
    pub after: Option<Arc<Job>>,
}

/// A job to be made; the store gives it its id and calls `windlass_core::created`.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub spec: Arc<JobSpec>,
    pub run_at: Timestamp,
    pub body: Option<Arc<Body>>,
    /// It has to wait for its parent's run to end before it starts.
    pub held_by_parent: bool,
}

/// All or nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub changes: SmallVec<[Change; 1]>,
    pub inserts: Vec<NewJob>,
}

impl Step {
    pub fn change(before: Arc<Job>, after: Option<Job>) -> Step {
        let mut step = Step::default();
        step.changes.push(Change { before, after: after.map(Arc::new) });
        step
    }

    pub fn insert(inserts: Vec<NewJob>) -> Step {
        Step { inserts, ..Step::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One answer per insert, in order.
    Done(Vec<Inserted>),
    /// One of the jobs has moved on or is gone; nothing of the step happened.
    Stale,
}

/// A unique key or an alias that is taken makes no second job; the other inserts of the step are made all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    New(JobId),
    Existing(JobId),
}

impl Inserted {
    pub fn id(self) -> JobId {
        match self {
            Inserted::New(id) | Inserted::Existing(id) => id,
        }
    }
}

/// Decides, as jobs are picked, whether their limits let them start.
pub trait Gate: Send + Sync {
    /// Takes what the job needs from all its limits, or nothing and says which holds it.
    fn admit(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Result<(), Held>;
    /// An admitted job was not given out after all.
    fn give_back(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: Arc<str>,
    /// When to try again; `None`: when `Store::reopen` names the key.
    pub until: Option<Timestamp>,
}

#[derive(Clone)]
pub struct ClaimAsk {
    pub tenant: Tenant,
    /// Empty: any queue of the tenant.
    pub queues: Vec<Queue>,
    pub names: NameMatch,
    /// Only jobs of exactly this priority.
    pub priority: Option<i32>,
    pub limit: usize,
    pub worker: Option<Arc<str>>,
    /// Overrides the length in each job's policy.
    pub lease_ms: Option<i64>,
    /// Chance for the tokens.
    pub seed: u64,
    pub gate: Option<Arc<dyn Gate>>,
}

impl ClaimAsk {
    /// The random part of one job's token.
    pub fn dice(&self, id: JobId) -> u16 {
        // SplitMix64's finisher: every bit of the seed and the id reaches every bit of the result.
        let mut x = self.seed ^ id.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as u16
    }
}

#[derive(Clone, Debug, Default)]
pub struct Due {
    pub jobs: Vec<Arc<Job>>,
    /// The next moment at which anything becomes due, claimable jobs included. `None`: nothing is planned.
    pub next: Option<Timestamp>,
}
