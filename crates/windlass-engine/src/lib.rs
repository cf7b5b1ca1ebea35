//! Engine: leases, timers, waiting claims, limits. All access to jobs goes through it.
//!
//! A call goes **decision → commit → wake**. [`Engine`] is the only way to change a job, and within it only
//! `transaction.rs` changes existing jobs: it reads the job (from the lease table or the store), applies the
//! rules of `windlass-core`, and commits the result guarded by the job's version. The scheduler is one more
//! caller.
//!
//! | folder | contents |
//! |---|---|
//! | `engine.rs` | [`Engine`]: the handle; startup, shutdown, and waiting for a job to settle |
//! | `verbs/` | calls: push, claim, reports on runs, actions, reads, import, blobs |
//! | `transaction/` | changes of existing jobs: [`Transaction`], and the loops that decide and commit |
//! | `tables/` | in-memory tables: waiting claims, leases, timers, family locks, callers waiting for a job to settle |
//! | `tenants/` | scopes of handles, limits, quotas |
//! | `events/` | effects of a commit: notifications of waiting claims, the event feed, metrics, spans |
//! | `time/` | clocks, and the scheduler |
//! | `random.rs` | the only source of random numbers |
//! | `shutdown.rs`, `detached.rs` | calls in flight during a shutdown; work that outlives its caller |

mod detached;
mod engine;
pub mod error;
mod events;
pub mod random;
mod shutdown;
mod tables;
mod tenants;
mod time;
mod transaction;
pub mod verbs;

pub use events::{feed, job_meters, meters, spans};
pub use tenants::quota;
pub use time::clock;

/// Types of queries and their results, for crates without access to the store.
pub mod query {
    pub use windlass_store::meters::Histogram;
    pub use windlass_store::query::{PAGE_BYTES_MAX, PageBuilder, job_bytes};
    pub use windlass_store::{Filter, Page, QueueCounts, WaitingName};
}

/// Entries of the audit log, and queries of it.
pub mod audit {
    pub use windlass_store::{AuditEntry, AuditFilter};
}

/// Addresses and metadata of blobs.
pub mod blob {
    pub use crate::verbs::blobs::{BlobDownload, BlobUpload, UnreferencedBlobs};
    pub use windlass_store::blobs::{AddrForm, BlobAddr, BlobInfo, Digests, ListedBlob, PutBlob};
}

/// Append-only log in front of a store that may be unavailable.
pub use windlass_store::journal;

pub use clock::{Clock, ManualClock, Sleep, StoreClock, SystemClock};
pub use engine::Engine;
pub use error::{EngineError, PushRefused, VerbError};
pub use feed::{FeedEvent, FeedKind};
pub use meters::Meters;
pub use quota::{InUse, Quota, RunTime};
pub use random::{Random, SeededRandom, SystemRandom};
pub use tables::lease_watch::LeaseEnd;
pub use tenants::queue_settings::{KeepSettings, QueueSettings};
pub use time::scheduler::Stepped;
pub use transaction::{Halt, Queued, Stop, Transaction};
pub use verbs::claim::Delivery;
pub use verbs::{
    Claim, Extend, Extended, HeldBy, Import, JobEvent, LimitView, LogEntry, Options, Push, Pushed, Renew,
    Report, RunAt, Settled, Waited,
};
