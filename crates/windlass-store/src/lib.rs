//! Where jobs live.
//!
//! A store keeps jobs and takes no decisions: the rules run in `windlass-core`, the same for all. Passing
//! [`conformance`] is what being a store means; [`memory`] is the plainest reading of the contract.
//!
//! The contract, in prose:
//!
//! * **Done means durable.** A verdict or a claimed job is given out only when it would survive the end of the process
//!   (and of the machine, unless the operator asked for less).
//! * **A step is all or nothing.** Its changes are guarded: if one of the jobs has another version by now, the step is
//!   [`Verdict::Stale`] and nothing of it happened. The same goes for a key that a step minds to find taken
//!   ([`Verdict::KeyTaken`], [`Verdict::Taken`]).
//! * **A claim is a commit.** The store picks the first jobs in the order (priority, run_at, id) among those that are
//!   due, asked for, not paused and let through by the gate, applies `Event::Claim` to each and commits that, before
//!   anyone else can be given the same job.
//! * **Ids are 1, 2, 3, …**, never reused, also after the job is gone and over restarts.
//! * **Readers never hold up writers**, and see everything that was acknowledged before they asked.

pub mod away;
pub mod blobs;
pub mod calendar;
pub mod change;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod copy;
pub mod error;
#[cfg(feature = "testing")]
pub mod faulty;
mod group;
mod keys;
pub mod memory;
pub mod meters;
pub mod open;
pub mod postgres;
pub mod query;
mod row;
pub mod sqlite;
pub mod steady;

pub use change::{
    Change, ClaimAsk, Due, Gate, Held, InTheWay, Inserted, KeyRule, LimitUse, NewJob, Rival, Step,
    UnderLimits, Verdict,
};
pub use error::StoreError;
pub use open::{Durability, OpenOptions, open};
pub use query::{Filter, Page, QueueCounts, WaitingName};

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use windlass_core::{Job, JobId, Name, NameMatch, Queue, StateName, Tenant, Timestamp};

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Hears that jobs of this address became claimable. Called after the commit, on the store's own thread: must be quick.
pub trait Listener: Send + Sync {
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name);
}

#[async_trait]
pub trait Store: Send + Sync {
    /// Carries out each step or nothing of it; one verdict per step, in order.
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>>;

    /// Gives out up to `ask.limit` jobs, best first.
    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>>;

    /// `None` where there is no such job.
    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>>;

    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>>;

    /// Some job of this queue with exactly this name, in whatever state.
    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        self.find_named_among(tenant, queue, name, Vec::new()).await
    }

    /// The same by looking through the lists of these states, or of all.
    async fn find_named_among(
        &self,
        tenant: &Tenant,
        queue: &Queue,
        name: &Name,
        states: Vec<StateName>,
    ) -> Result<Option<JobId>> {
        let mut filter = Filter {
            tenant: Some(tenant.clone()),
            queue: Some(queue.clone()),
            names: NameMatch::Exact(name.as_str().into()),
            states,
            limit: 1,
            ..Filter::default()
        };
        loop {
            let page = self.list(filter.clone()).await?;
            match (page.jobs.first(), page.next) {
                (Some(job), _) => return Ok(Some(job.id)),
                (None, None) => return Ok(None),
                (None, next) => filter.before = next,
            }
        }
    }

    /// Ids only: the family of one parent, in the order of their ids. May run ahead of `load` by the commit that is under
    /// way.
    async fn children(&self, parent: JobId) -> Result<Vec<JobId>>;

    /// Jobs whose deadline has passed (a lease has ended, a keep time is over), at most `limit`, and when to ask next.
    /// Also lets jobs in whose time has come, so that the listener hears of them.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due>;

    /// Jobs that fit the filter, newest first, by keyset pages.
    async fn list(&self, filter: Filter) -> Result<Page>;

    /// The id that the next new job will have.
    async fn next_id(&self) -> Result<JobId> {
        Err(StoreError::Unsupported("it does not tell its next id".to_owned()))
    }

    /// Puts jobs in as they are, with their ids and versions; new jobs get ids from `next` on, or later ones if those
    /// are taken. All or nothing: refused as `Unsupported` if one of the ids is there already. For copies of a whole
    /// store, see [`copy`].
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId) -> Result<()> {
        let _ = (jobs, next);
        Err(StoreError::Unsupported("it takes no jobs as they are".to_owned()))
    }

    /// Bytes of the payloads of all jobs of a tenant, settled ones included, from a counter that is kept, not counted.
    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64>;

    /// Jobs by queue and state, from counters that are kept, not counted.
    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>>;

    /// The names in this queue of which jobs could be given out now, by tenant and name: those that are due, in queues that
    /// are not paused. Names that a limit holds back may be left out.
    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
        let states = vec![StateName::Ready, StateName::Terminating];
        let paused = self.counts(None, now).await?;
        let is_paused = |tenant: &Tenant| {
            paused.iter().any(|counts| counts.paused && counts.queue == *queue && counts.tenant == *tenant)
        };
        let mut names: BTreeMap<(Tenant, Name), u64> = BTreeMap::new();
        let mut filter =
            Filter { states, queue: Some(queue.clone()), limit: query::PAGE_MAX, ..Filter::default() };
        loop {
            let page = self.list(filter.clone()).await?;
            for job in &page.jobs {
                let is_due = job.state().claimable_at().is_some_and(|at| at <= now);
                if is_due && !is_paused(&job.spec.tenant) {
                    *names.entry((job.spec.tenant.clone(), job.spec.name.clone())).or_default() += 1;
                }
            }
            match page.next {
                Some(next) => filter.before = Some(next),
                None => break,
            }
        }
        let named = |((tenant, name), ready)| WaitingName { tenant, name, ready };
        Ok(names.into_iter().map(named).collect())
    }

    /// The tenant's due jobs that count against limits, by the keys of these, sorted by them; from what is kept for claims,
    /// not by a look at each.
    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>>;

    /// How much of the tenant's limits is in use under these keys, as claims would count it now. Only stores that are shared
    /// know; with others the engine does.
    async fn limit_use(&self, _tenant: &Tenant, _keys: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        Ok(Vec::new())
    }

    /// Returns what a run that never began has taken from the rates of its limits. Only stores that are shared are asked; with
    /// others the engine does it.
    async fn refund(&self, _tenant: &Tenant, _keys: &[Arc<str>], _gate: Arc<dyn Gate>) -> Result<()> {
        Ok(())
    }

    /// No job of a paused queue is given out.
    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()>;

    /// Small durable values by key: limits, tokens, and the like.
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()>;
    /// Puts a setting if it is still as expected (`None`: not there), in one step; answers whether it did. After an error it may
    /// have happened all the same. Only stores that are shared are asked; with others the engine sees to it.
    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        let _ = (key, expected, value);
        Err(StoreError::Unsupported("it swaps no settings".to_owned()))
    }
    /// All settings whose key begins so, sorted by key.
    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>>;
    /// Only their keys: values may be large.
    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>>;

    /// Jobs held back by this limit key may be tried again.
    fn reopen(&self, limit_key: &str);

    /// Bytes named by their hash, kept beside the jobs.
    fn blobs(&self) -> Arc<dyn blobs::BlobStore> {
        Arc::new(blobs::NoBlobs)
    }

    /// One listener per store: the engine.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// `Err` says why writes are not acknowledged at present.
    async fn health(&self) -> Result<()>;

    fn meters(&self) -> Arc<meters::Meters>;

    /// Whether other servers may be at work on the same jobs: then what happens there is not told here, but has to be
    /// looked for.
    fn is_shared(&self) -> bool {
        false
    }

    /// Jobs that came into a shared store past every server, at most `limit`: they wait until the engine has worked out
    /// their limits and written them.
    async fn unchecked(&self, limit: usize) -> Result<Vec<JobId>> {
        let _ = limit;
        Ok(Vec::new())
    }

    /// For stores that are the clock of all servers on them: how far that clock is ahead of this machine's, in ms, as it
    /// was last measured.
    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        None
    }

    /// For the same stores: how far the clock that dates are by is ahead of the timeline, and where it was set.
    fn calendar(&self) -> Option<calendar::Kept> {
        None
    }

    /// Writes what is pending and lets go of files and locks. Later calls fail with `Closed`.
    async fn close(&self) -> Result<()>;
}
