//! Leases, timers, waiting claims, limits: the one door to the jobs.
//!
//! A verb goes **decision → commit → wake**. [`Engine`] is the only way to change a job, and within it `transaction.rs`
//! is the only place that does: it knows the job (from the lease table or the store), applies the rules of
//! `windlass-core`, and writes the result guarded by the job's version. The scheduler is one more caller.
//!
//! | file | holds |
//! |---|---|
//! | `engine.rs` | [`Engine`]: the handle; reading, waiting for an end, starting and stopping |
//! | `verbs.rs` | what can be asked, and the answers |
//! | `push.rs`, `claim.rs`, `runs.rs`, `act.rs`, `limits.rs` | the verbs that change something |
//! | `blobs.rs` | bytes by their hash, beside the jobs |
//! | `transaction.rs` | how jobs that exist are changed: [`Transaction`], and under it the loops that decide and commit |
//! | `aftermath.rs` | what follows a commit |
//! | `waiting.rs`, `leases.rs`, `timers.rs`, `registry.rs` | plain tables: waiting claims, held jobs, the next deadline, who waits for an end |
//! | `ends.rs` | who wants to hear that a lease is over |
//! | `scope.rs` | which jobs a handle reaches |
//! | `args.rs` | a payload as a limit looks at it |
//! | `bell.rs` | between the store's "became ready" and the waiting claims |
//! | `scheduler.rs` | sleeps until something is due, then handles it |
//! | `follow.rs` | looks for what other servers on the same store have done |
//! | `feed.rs`, `meters.rs` | what is told and counted |
//! | `family_locks.rs`, `door.rs` | families one after another; who is inside while the server stops |
//! | `clock.rs`, `dice.rs` | the only places that read time and chance |

mod act;
mod adopt;
mod aftermath;
mod args;
mod bell;
mod blobs;
mod claim;
pub mod clock;
pub mod dice;
mod door;
mod ends;
mod engine;
pub mod error;
mod family_locks;
pub mod feed;
mod follow;
mod import;
mod leases;
mod limits;
pub mod meters;
mod push;
pub mod quota;
mod reading;
mod registry;
mod runs;
mod scheduler;
mod scope;
mod timers;
mod transaction;
mod unstoppable;
pub mod verbs;
mod waiting;
mod wall;

/// What a look at the jobs is made of. Data only, for those who may not see a store.
pub mod query {
    pub use windlass_store::meters::Histogram;
    pub use windlass_store::{Filter, Page, QueueCounts, WaitingName};
}

/// Addresses of blobs and what is known of one.
pub mod blob {
    pub use crate::blobs::{BlobDownload, BlobUpload, Unnamed};
    pub use windlass_store::blobs::{AddrForm, BlobAddr, BlobInfo, Digests, ListedBlob, PutBlob};
}

pub use claim::Delivery;
pub use clock::{Clock, ManualClock, Sleep, StoreClock, SystemClock};
pub use dice::{Dice, FixedDice, SystemDice};
pub use ends::LeaseEnd;
pub use engine::Engine;
pub use error::{EngineError, PushRefused, VerbError};
pub use feed::{FeedEvent, FeedKind};
pub use meters::Meters;
pub use quota::{InUse, Quota};
pub use scheduler::Stepped;
pub use transaction::{Halt, Queued, Stop, Transaction};
pub use verbs::{
    Claim, Extend, Extended, HeldBy, Import, JobEvent, LimitView, LogEntry, Options, Push, Pushed, Renew,
    Report, RunAt, Settled, Waited,
};
