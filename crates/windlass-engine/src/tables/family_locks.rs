//! Locks that keep changes to one family from racing each other within this server.
//!
//! They are for speed alone: a hundred children that finish at the same moment go one after another instead of writing
//! a hundred versions of their parent of which one wins. Correctness comes from the guard on every commit.

use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard};
use windlass_core::JobId;

/// The more locks, the fewer families share one. A lock is a few dozen bytes.
const LOCKS: usize = 64;

pub(crate) struct FamilyLocks([Arc<Mutex<()>>; LOCKS]);

/// The locks of some families, until it is dropped.
pub(crate) type FamiliesLocked = Vec<OwnedMutexGuard<()>>;

impl FamilyLocks {
    pub(crate) fn new() -> FamilyLocks {
        FamilyLocks(std::array::from_fn(|_| Arc::default()))
    }

    /// Waits for the locks of these parents, in one order for all, so that no two wait for each other.
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
