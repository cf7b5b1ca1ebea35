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
//!
//! The contract is split by use: [`Store`] has the life of a job, [`Lookup`] finds and counts jobs, [`Settings`]
//! keeps small values by key, [`Restore`] fills a copy, [`AuditLog`] has the actions of operators. Every store
//! implements these five. [`SharedStore`], for several servers on one database, is reached by [`Store::shared`].
//! No method has a default, except [`Lookup::find_aliases`], which calls `find_alias` for each tenant: a store
//! that cannot do something says so in its own code.

pub mod audit;
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

pub use audit::{AuditBounds, AuditEntry, AuditFilter};
pub use change::{
    Change, ClaimAsk, Due, Gate, Held, InTheWay, Inserted, KeyRule, LimitUse, NewJob, Rival, Step,
    UnderLimits, Verdict,
};
pub use error::StoreError;
pub use open::{Durability, OpenOptions, StoreUrl, open};
pub use query::{Filter, Page, QueueCounts, WaitingName};

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Receives notice that jobs with this tenant, queue and name (an address) became claimable. Only the store
/// gives it: once per address and commit, after the commit, on the thread that wrote. Must return quickly.
pub trait Listener: Send + Sync {
    /// `count`: number of the jobs, or more if some of them were claimed meanwhile; `None`: any number.
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name, count: Option<usize>);
}

/// Life of a job, from its insertion to its deletion.
#[async_trait]
pub trait Store: Lookup + Settings + Restore + AuditLog {
    /// Applies each step atomically; returns one verdict per step, in order.
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>>;

    /// Claims up to `ask.limit` jobs, in claim order.
    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>>;

    /// Loads jobs; `None` for an id that does not exist.
    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>>;

    /// At most `limit` jobs whose deadline has passed (an expired lease, an ended keep time), and the time of
    /// the next call. Also makes jobs claimable whose `run_at` has come, and notifies the listener.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due>;

    /// Pauses or resumes a queue. A claim returns no job of a paused queue.
    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()>;

    /// Retries jobs blocked by this limit key.
    fn reopen(&self, limit_key: &str);

    /// Content-addressed blobs, stored beside the jobs.
    fn blobs(&self) -> Arc<dyn blobs::BlobStore>;

    /// Sets the listener, one per store: the engine.
    fn listen(&self, listener: Arc<dyn Listener>);

    /// Calls for a store that other servers may work on at the same time; `None` if this process has the jobs to
    /// itself. The changes of other servers are not notified here and have to be polled.
    fn shared(&self) -> Option<&dyn SharedStore>;

    /// Returns the reason if writes are not acknowledged at present.
    async fn health(&self) -> Result<()>;

    fn meters(&self) -> Arc<meters::Meters>;

    /// Writes pending data and releases files and locks. Later calls fail with `Closed`.
    async fn close(&self) -> Result<()>;
}

/// Queries that find and count jobs without changing them.
#[async_trait]
pub trait Lookup: Send + Sync {
    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>>;

    /// Ids of the jobs of these tenants with this alias, at most one per tenant, in no particular order. A store that
    /// is asked over a network answers in one round trip.
    async fn find_aliases(&self, tenants: &[Tenant], alias: &str) -> Result<Vec<JobId>> {
        let mut found = Vec::new();
        for tenant in tenants {
            found.extend(self.find_alias(tenant, alias).await?);
        }
        Ok(found)
    }

    /// Finds a job of this queue with exactly this name, in any state.
    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>>;

    /// Ids of the children of a parent, in ascending order. May include the effect of a commit in progress
    /// that `load` does not show yet.
    async fn children(&self, parent: JobId) -> Result<Vec<JobId>>;

    /// Jobs that match the filter, newest first, with keyset pagination. A page ends by the number of its jobs or by
    /// their bytes; see [`query::PageBuilder`].
    async fn list(&self, filter: Filter) -> Result<Page>;

    /// Id of the next new job.
    async fn next_id(&self) -> Result<JobId>;

    /// Bytes of the payloads of all jobs of a tenant, settled ones included, from a counter that is kept, not counted.
    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64>;

    /// Job counts per queue and state, from maintained counters.
    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>>;

    /// Names of this queue with claimable jobs, by tenant and name: due jobs in queues that are not paused.
    /// Names blocked by a limit may be left out.
    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>>;

    /// Due jobs of the tenant that count against limits, grouped and sorted by their limit keys; read from
    /// the claim index, not job by job.
    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>>;
}

/// Small durable values by key, such as a limit or an access token.
#[async_trait]
pub trait Settings: Send + Sync {
    /// Puts or deletes a setting.
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()>;

    /// Settings with this key prefix, sorted by key.
    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>>;

    /// Keys of the settings only, because values may be large.
    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>>;
}

/// Target of a copy of a whole store, see [`copy`].
#[async_trait]
pub trait Restore: Send + Sync {
    /// Inserts jobs unchanged, with their ids and versions; new jobs get ids from `next` on, or higher if
    /// those are taken. Atomic: refused as `Unsupported` if an id exists, or with `KeyRule::Ask` if another job
    /// claims one of their keys.
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()>;
}

/// Log of the actions of operators and admins.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends entries in order, and deletes the oldest beyond the bounds.
    async fn append_audit(&self, entries: Vec<AuditEntry>, bounds: AuditBounds) -> Result<()>;

    /// Entries that match the filter, newest first.
    async fn list_audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>>;
}

/// Calls for several servers on one database. With one server the engine does the same in memory.
#[async_trait]
pub trait SharedStore: Send + Sync {
    /// Use of the tenant's limits under these keys, as a claim would count it now.
    async fn limit_use(&self, tenant: &Tenant, keys: &[Arc<str>]) -> Result<Vec<LimitUse>>;

    /// Returns the rate tokens of a run that never started.
    async fn refund(&self, tenant: &Tenant, keys: &[Arc<str>], gate: Arc<dyn Gate>) -> Result<()>;

    /// Compare-and-swap of a setting (`expected: None`: must not exist); returns whether it was set. After an
    /// error it may have been set.
    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool>;

    /// At most `limit` jobs that were inserted by SQL, bypassing the servers. They wait until the engine has
    /// computed and written their limit keys.
    async fn unchecked(&self, limit: usize) -> Result<Vec<JobId>>;

    /// Offset of the clock that all servers follow from this machine's clock, in ms, as last measured; `None` if
    /// the store has no clock.
    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>>;

    /// Last sign of life of any server before this one opened the store; `None`: unknown.
    fn seen_before(&self) -> Option<Timestamp>;

    /// Offset of the wall clock from the timeline of that clock, and the steps in which it was set.
    fn calendar(&self) -> Option<calendar::Kept>;
}
