//! Locks that serialise changes of one family within this server.
//!
//! They only improve speed: a hundred children that finish at once take turns, instead of competing for the
//! next version of their parent. Correctness comes from the version guard of every commit.

use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard};
use windlass_core::JobId;

/// More locks mean fewer families per lock. A lock takes a few dozen bytes.
const LOCKS: usize = 64;

pub(crate) struct FamilyLocks([Arc<Mutex<()>>; LOCKS]);

/// Guards of some family locks.
pub(crate) type FamiliesLocked = Vec<OwnedMutexGuard<()>>;

impl FamilyLocks {
    pub(crate) fn new() -> FamilyLocks {
        FamilyLocks(std::array::from_fn(|_| Arc::default()))
    }

    /// Locks the families of these parents. A fixed order of locking prevents deadlocks.
    pub(crate) async fn lock(&self, parents: impl Iterator<Item = JobId>) -> FamiliesLocked {
        let mut places: Vec<usize> = parents.map(|parent| (parent.get() % LOCKS as u64) as usize).collect();
        places.sort_unstable();
        places.dedup();
        let mut locked = Vec::with_capacity(places.len());
        for place in places {
            locked.push(self.0[place].clone().lock_owned().await);
        }
        locked
    }
}
