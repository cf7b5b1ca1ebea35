//! Lanes keep changes to one family from racing each other within this server.
//!
//! They are for speed alone: a hundred children that finish at the same moment go one after another instead of writing
//! a hundred drafts of which one wins. Correctness comes from the guard on every commit.

use tokio::sync::{Mutex, MutexGuard};
use windlass_core::JobId;

/// More lanes, fewer strangers in the same one. A lane is a few dozen bytes.
const LANES: usize = 64;

pub(crate) struct Lanes([Mutex<()>; LANES]);

impl Lanes {
    pub(crate) fn new() -> Lanes {
        Lanes(std::array::from_fn(|_| Mutex::new(())))
    }

    /// Waits for the lanes of these parents, in one order for all, so that no two wait for each other.
    pub(crate) async fn enter(&self, parents: impl Iterator<Item = JobId>) -> Vec<MutexGuard<'_, ()>> {
        let mut lanes: Vec<usize> = parents.map(|parent| (parent.get() % LANES as u64) as usize).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let mut entered = Vec::with_capacity(lanes.len());
        for lane in lanes {
            entered.push(self.0[lane].lock().await);
        }
        entered
    }
}
