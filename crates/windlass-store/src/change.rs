//! What is asked of a store, and what it answers.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Body, Job, JobId, JobSpec, NameMatch, Queue, Scope, Tenant, Timestamp};

/// One job from one version to the next. `before.version` is the guard.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Arc<Job>,
    /// `None`: the job is gone.
    pub after: Option<Arc<Job>>,
    pub keys: KeyRule,
}

/// What a change does about a unique key or an alias that it would take and did not have before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyRule {
    /// Happens all the same; of several jobs with a claim the one with the smallest id is the holder. For what a job
    /// goes through by itself: no job is ever stuck because of a key.
    #[default]
    Yield,
    /// Is refused with [`Verdict::KeyTaken`] if another job has a claim to it. For what people ask for.
    Ask,
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
    /// The changes hold only if every insert makes a job: if one finds its key or alias taken, the step is
    /// [`Verdict::Taken`].
    pub all_new: bool,
    /// Settings that are put, or with `None` forgotten, with it.
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
    /// One answer per insert, in order.
    Done(Vec<Inserted>),
    /// One of the jobs has moved on or is gone; nothing of the step happened.
    /// This is looked at first: a step that is stale says nothing about keys.
    Stale,
    /// Changes that ask for a key or an alias that another job has, in the order of the step; nothing of it happened.
    /// Each change sees what the earlier ones would do, without those that are named here.
    KeyTaken(Vec<Rival>),
    /// Some inserts of a step that wants them all new would make none; nothing of it happened. For each insert who is
    /// in its way; `None`: nobody.
    Taken(Vec<Option<InTheWay>>),
}

/// A job that may not have its key, because of the one that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    pub job: JobId,
    pub holder: JobId,
}

/// Who has the key or the alias of a job that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InTheWay {
    Job(JobId),
    /// An earlier insert of the same step, by its place, in whose own way nobody is.
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

/// A unique key or an alias that is taken makes no second job; the other inserts of the step are made all the same,
/// unless the step says `all_new`.
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

/// Decides, as jobs are picked, whether their limits let them start. `now` is the time by which the limits go: that of the claim
/// or, of a store that several servers share, the time at which the store took the limits to itself.
pub trait Gate: Send + Sync {
    /// Takes what the job needs from all its limits, or nothing and says which holds it.
    fn admit(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Result<(), Held>;
    /// An admitted job was not given out after all.
    fn give_back(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp);
    /// For stores that several servers share, before they ask: how many jobs run under this key on all servers, and its
    /// bucket as the last of them wrote it; `None`: full.
    fn adopt(
        &self,
        _tenant: &Tenant,
        _key: &Arc<str>,
        _running: u32,
        _bucket: Option<&[u8]>,
        _now: Timestamp,
    ) {
    }
    /// For the same, afterwards: the bucket, to be written with the claims, and when it need not be remembered any more.
    /// `None`: it is full, or there is none. What is known of the key here is forgotten: the next claim adopts it anew.
    fn bucket(&self, _tenant: &Tenant, _key: &str, _now: Timestamp) -> Option<(Vec<u8>, Timestamp)> {
        None
    }
    /// For the same, when a run was given back: what the bucket of this key becomes when a token returns to it, and when it need
    /// not be remembered any more. `None`: it is full then, or there is none. Nothing that is known here changes.
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
    /// When to try again; `None`: when `Store::reopen` names the key.
    pub until: Option<Timestamp>,
}

/// Jobs that are due and count against the same limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLimits {
    pub keys: Vec<Arc<str>>,
    pub due: u64,
    /// The key that held them back when they were last tried, where that is remembered.
    pub held: Option<Arc<str>>,
}

/// How much of a limit is in use under one of its keys, by all servers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub key: Arc<str>,
    pub running: u32,
    /// What its rate has left, as [`Gate::bucket`] gave it; `None`: all.
    pub bucket: Option<Vec<u8>>,
}

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

/// Sums up groups with the same keys, and sorts them.
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
    /// The next moment at which anything becomes due, claimable jobs included. `None`: nothing is planned.
    pub next: Option<Timestamp>,
}
