//! Storage of jobs.
//!
//! A store keeps jobs and takes no decisions: the rules run in `windlass-core` and are the same for all
//! stores. Every store passes [`conformance`]; [`memory`] is the reference implementation.
//!
//! The contract:
//!
//! * **Acknowledged means durable.** A verdict or a claimed job is returned only when it would survive the
//!   end of the process (and of the machine, unless the operator chose relaxed durability).
//! * **A step is atomic.** Its changes are guarded by versions: if a job has a newer version, the verdict is
//!   [`Verdict::Stale`] and nothing of the step was applied. The same holds for a step that is refused
//!   because a key is taken ([`Verdict::KeyTaken`], [`Verdict::Taken`]).
//! * **A claim is a commit.** The store picks the first jobs in the order (priority, run_at, id) among the
//!   due jobs that match, are not paused and pass the gate, applies `Event::Claim` to each and commits,
//!   before any other claim can return the same job.
//! * **Ids are 1, 2, 3, …**, never reused, not even after the job is deleted or after a restart.
//! * **Readers never block writers**, and see everything that was acknowledged before they started.

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
pub mod journal;
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

/// Receives notice that jobs with this tenant, queue and name became claimable. Called after the commit on
/// the store's own thread: must return quickly.
pub trait Listener: Send + Sync {
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name);
}

#[async_trait]
pub trait Store: Send + Sync {
    /// Applies each step atomically; returns one verdict per step, in order.
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>>;

    /// Claims up to `ask.limit` jobs, in claim order.
    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>>;

    /// Loads jobs; `None` for an id that does not exist.
    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>>;

    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>>;

    /// Finds a job of this queue with exactly this name, in any state.
    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        self.find_named_among(tenant, queue, name, Vec::new()).await
    }

    /// Same, by listing the jobs in these states, or in all states if none is given.
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

    /// Ids of the children of a parent, in ascending order. May include the effect of a commit in progress
    /// that `load` does not show yet.
    async fn children(&self, parent: JobId) -> Result<Vec<JobId>>;

    /// At most `limit` jobs whose deadline has passed (an expired lease, an ended keep time), and the time of
    /// the next call. Also makes jobs claimable whose `run_at` has come, and notifies the listener.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due>;

    /// Jobs that match the filter, newest first, with keyset pagination.
    async fn list(&self, filter: Filter) -> Result<Page>;

    /// Id of the next new job.
    async fn next_id(&self) -> Result<JobId> {
        Err(StoreError::Unsupported("it does not tell its next id".to_owned()))
    }

    /// Inserts jobs unchanged, with their ids and versions; new jobs get ids from `next` on, or higher if
    /// those are taken. Atomic: refused as `Unsupported` if an id exists. For copies of a whole store, see
    /// [`copy`].
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId) -> Result<()> {
        let _ = (jobs, next);
        Err(StoreError::Unsupported("it takes no jobs as they are".to_owned()))
    }

    /// Bytes of the payloads of all jobs of a tenant, settled ones included, from a counter that is kept, not counted.
    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64>;

    /// Job counts per queue and state, from maintained counters.
    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>>;

    /// Names of this queue with claimable jobs, by tenant and name: due jobs in queues that are not paused.
    /// Names blocked by a limit may be left out.
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

    /// Due jobs of the tenant that count against limits, grouped and sorted by their limit keys; read from
    /// the claim index, not job by job.
    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>>;

    /// Use of the tenant's limits under these keys, as a claim would count it now. Implemented by shared
    /// stores only; otherwise the engine counts.
    async fn limit_use(&self, _tenant: &Tenant, _keys: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        Ok(Vec::new())
    }

    /// Returns the rate tokens of a run that never started. Called for shared stores only; otherwise the
    /// engine does it.
    async fn refund(&self, _tenant: &Tenant, _keys: &[Arc<str>], _gate: Arc<dyn Gate>) -> Result<()> {
        Ok(())
    }

    /// Pauses or resumes a queue. A claim returns no job of a paused queue.
    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()>;

    /// Puts or deletes a setting: a small durable value by key, such as a limit or an access token.
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()>;
    /// Compare-and-swap of a setting (`expected: None`: must not exist); returns whether it was set. After an
    /// error it may have been set. Called for shared stores only; otherwise the engine serialises writes.
    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        let _ = (key, expected, value);
        Err(StoreError::Unsupported("it swaps no settings".to_owned()))
    }
    /// Settings with this key prefix, sorted by key.
    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>>;
    /// Keys of the settings only, because values may be large.
    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>>;

    /// Retries jobs blocked by this limit key.
    fn reopen(&self, limit_key: &str);

    /// Content-addressed blobs, stored beside the jobs.
    fn blobs(&self) -> Arc<dyn blobs::BlobStore> {
        Arc::new(blobs::NoBlobs)
    }

    /// Sets the listener, one per store: the engine.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Returns the reason if writes are not acknowledged at present.
    async fn health(&self) -> Result<()>;

    fn meters(&self) -> Arc<meters::Meters>;

    /// True if other servers may work on the same jobs. Their changes are not notified here and have to be
    /// polled.
    fn is_shared(&self) -> bool {
        false
    }

    /// At most `limit` jobs that were inserted into a shared store by SQL, bypassing the servers. They wait
    /// until the engine has computed and written their limit keys.
    async fn unchecked(&self, limit: usize) -> Result<Vec<JobId>> {
        let _ = limit;
        Ok(Vec::new())
    }

    /// For stores whose clock all servers follow: offset of that clock from this machine's clock, in ms, as
    /// last measured.
    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        None
    }

    /// For the same stores: offset of the wall clock from the timeline, and the steps in which it was set.
    fn calendar(&self) -> Option<calendar::Kept> {
        None
    }

    /// Writes pending data and releases files and locks. Later calls fail with `Closed`.
    async fn close(&self) -> Result<()>;
}
