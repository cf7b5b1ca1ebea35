//! Requests to a store and its answers.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Body, Job, JobId, JobSpec, Name, NameMatch, Queue, Scope, Tenant, Timestamp};

/// Change of one job from one version to the next. `before.version` is the optimistic lock.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Arc<Job>,
    /// `None`: deletes the job.
    pub after: Option<Arc<Job>>,
    pub keys: KeyRule,
}

/// Handling of a unique key or an alias that the change would take and the job did not hold before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyRule {
    /// The change is made anyway; if several jobs claim a key, the job with the smallest id is the holder.
    /// For transitions that a job makes without a request: no job is ever stuck because of a key.
    #[default]
    Yield,
    /// The change is refused with [`Verdict::KeyTaken`] if another job claims the key. For requests of
    /// clients.
    Ask,
}

/// Job to be created; the store assigns the id and calls `windlass_core::created`.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub spec: Arc<JobSpec>,
    pub run_at: Timestamp,
    pub body: Option<Arc<Body>>,
    /// The job waits for the end of its parent's run before it starts.
    pub held_by_parent: bool,
}

/// Atomic unit of a commit.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub changes: SmallVec<[Change; 1]>,
    pub inserts: Vec<NewJob>,
    /// The step requires every insert to create a job: if a key or alias of one is taken, the verdict is
    /// [`Verdict::Taken`].
    pub all_new: bool,
    /// Settings to put, or with `None` to delete, in the same transaction.
    pub settings: Vec<(String, Option<Vec<u8>>)>,
}

impl Step {
    pub fn change(before: Arc<Job>, after: Option<Job>) -> Step {
        let mut step = Step::default();
        step.changes.push(Change { before, after: after.map(Arc::new), keys: KeyRule::Yield });
        step
    }

    pub fn insert(inserts: Vec<NewJob>) -> Step {
        Step { inserts, ..Step::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Results of the inserts, in order.
    Done(Vec<Inserted>),
    /// A job has a newer version or was deleted; the step was not applied. Checked first: a stale step says
    /// nothing about keys.
    Stale,
    /// Changes with [`KeyRule::Ask`] for a key or an alias that another job holds, in the order of the step;
    /// the step was not applied. Each change is checked against the result of the earlier changes, without
    /// the refused ones.
    KeyTaken(Vec<Rival>),
    /// Some inserts of an `all_new` step would create no job; the step was not applied. For each insert the
    /// holder of its key; `None`: the key is free.
    Taken(Vec<Option<InTheWay>>),
}

/// Job that may not take its key, and the job that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    pub job: JobId,
    pub holder: JobId,
}

/// Holder of the key or alias of a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InTheWay {
    Job(JobId),
    /// Earlier insert of the same step, by its index, whose own keys are free.
    Insert(usize),
}

impl InTheWay {
    pub fn job(self) -> Option<JobId> {
        match self {
            InTheWay::Job(id) => Some(id),
            InTheWay::Insert(_) => None,
        }
    }
}

/// Result of an insert. A unique key or alias that is taken creates no second job; the other inserts of the
/// step are still made, unless the step is `all_new`.
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

/// Admission check: decides, as jobs are picked, whether their limits allow a start. `now` is the time used
/// for the limits: the time of the claim, or in a shared store the time at which the store locked the limits.
pub trait Gate: Send + Sync {
    /// Takes a token and a slot from all limits of the job, or takes none and returns the limit that blocks
    /// it.
    fn admit(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Result<(), Held>;
    /// Returns tokens and slots of an admitted job that was not handed out.
    fn give_back(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp);
    /// Shared stores call this before `admit`: sets the number of jobs running under this key on all servers,
    /// and the bucket as the last server wrote it; `None`: full.
    fn adopt(
        &self,
        _tenant: &Tenant,
        _key: &Arc<str>,
        _running: u32,
        _bucket: Option<&[u8]>,
        _now: Timestamp,
    ) {
    }
    /// Shared stores call this after `admit`: returns the bucket, to be written with the claims, and the time
    /// from which it need not be stored. `None`: the bucket is full, or there is none. Drops the local gauge
    /// of the key: the next claim adopts it again.
    fn bucket(&self, _tenant: &Tenant, _key: &str, _now: Timestamp) -> Option<(Vec<u8>, Timestamp)> {
        None
    }
    /// Shared stores call this when a run was given back: returns the bucket with one token returned, and the
    /// time from which it need not be stored. `None`: the bucket is then full, or there is none. Changes no
    /// local state.
    fn refunded(
        &self,
        _tenant: &Tenant,
        _key: &Arc<str>,
        _bucket: &[u8],
        _now: Timestamp,
    ) -> Option<(Vec<u8>, Timestamp)> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub key: Arc<str>,
    /// Time of the next try; `None`: when `Store::reopen` names the key.
    pub until: Option<Timestamp>,
}

/// Due jobs that count against the same limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLimits {
    pub keys: Vec<Arc<str>>,
    pub due: u64,
    /// Key that blocked them at the last try, where the store remembers it.
    pub held: Option<Arc<str>>,
}

/// Use of a limit under one of its keys, on all servers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub key: Arc<str>,
    pub running: u32,
    /// Remaining rate, as written by [`Gate::bucket`]; `None`: the bucket is full.
    pub bucket: Option<Vec<u8>>,
}

/// Jobs that a claim asks for: tenant, queues, names, scope and priority.
pub type Wanted<'a> = (&'a Tenant, &'a [Queue], &'a NameMatch, &'a Scope, Option<i32>);

#[derive(Clone)]
pub struct ClaimAsk {
    pub tenant: Tenant,
    /// Empty: any queue of the tenant.
    pub queues: Vec<Queue>,
    pub names: NameMatch,
    /// Of these, what the caller may reach.
    pub scope: Scope,
    /// Only jobs of exactly this priority.
    pub priority: Option<i32>,
    pub limit: usize,
    pub worker: Option<Arc<str>>,
    /// Overrides the lease length of each job's policy.
    pub lease_ms: Option<i64>,
    /// Random seed of the lease tokens.
    pub seed: u64,
    pub gate: Option<Arc<dyn Gate>>,
}

impl ClaimAsk {
    pub fn wanted(&self) -> Wanted<'_> {
        (&self.tenant, &self.queues, &self.names, &self.scope, self.priority)
    }

    /// True if the claim asks for jobs of this queue and name.
    pub fn fits(&self, queue: &Queue, name: &Name) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && self.names.matches(name)
            && self.scope.allows(queue, name)
    }

    /// Random part of one job's token.
    pub fn random(&self, id: JobId) -> u16 {
        // SplitMix64's finalizer: every bit of the seed and the id affects every bit of the result.
        let mut x = self.seed ^ id.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as u16
    }
}

/// Merges groups with the same keys, and sorts them.
pub(crate) fn summed(groups: impl IntoIterator<Item = UnderLimits>) -> Vec<UnderLimits> {
    let mut by_keys: BTreeMap<Vec<Arc<str>>, UnderLimits> = BTreeMap::new();
    for group in groups {
        match by_keys.get_mut(&group.keys) {
            Some(sum) => {
                sum.due += group.due;
                sum.held = sum.held.take().or(group.held);
            }
            None => drop(by_keys.insert(group.keys.clone(), group)),
        }
    }
    by_keys.into_values().collect()
}

#[derive(Clone, Debug, Default)]
pub struct Due {
    pub jobs: Vec<Arc<Job>>,
    /// Next time at which anything becomes due, including claimable jobs. `None`: nothing is scheduled.
    pub next: Option<Timestamp>,
}
