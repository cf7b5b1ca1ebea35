//! Callers that wait for a job to settle.

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;
use windlass_core::{Job, JobId};

/// Final version of the job; `None`: it was deleted, and its final version is unknown here.
pub(crate) type Ending = Option<Arc<Job>>;

#[derive(Debug, Default)]
pub(crate) struct SettleWaiters {
    jobs: Mutex<FxHashMap<JobId, Watched>>,
    /// Number of entries; read without the lock at every end of a run.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Watched {
    ending: watch::Sender<Option<Ending>>,
    watchers: usize,
}

impl SettleWaiters {
    pub(crate) fn watch(self: &Arc<Self>, id: JobId) -> Watcher {
        let mut jobs = self.table();
        let watched =
            jobs.entry(id).or_insert_with(|| Watched { ending: watch::Sender::new(None), watchers: 0 });
        watched.watchers += 1;
        let ending = watched.ending.subscribe();
        self.count.store(jobs.len(), Ordering::SeqCst);
        drop(jobs);
        Watcher { waiters: self.clone(), id, ending }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn is_watched(&self, id: JobId) -> bool {
        !self.is_empty() && self.table().contains_key(&id)
    }

    pub(crate) fn settled(&self, id: JobId, ending: Ending) {
        if let Some(watched) = self.table().get(&id) {
            // The first end counts; a requeued job may settle again.
            watched.ending.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert(ending);
                is_first
            });
        }
    }

    fn table(&self) -> MutexGuard<'_, FxHashMap<JobId, Watched>> {
        self.jobs.lock()
    }
}

/// Waiting caller. Removes itself from the table on drop.
#[derive(Debug)]
pub(crate) struct Watcher {
    waiters: Arc<SettleWaiters>,
    id: JobId,
    ending: watch::Receiver<Option<Ending>>,
}

impl Watcher {
    pub(crate) async fn ended(&mut self) -> Ending {
        // The sender stays in the table as long as this watcher is counted there.
        match self.ending.wait_for(Option::is_some).await {
            Ok(ending) => ending.clone().flatten(),
            Err(_) => None,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut jobs = self.waiters.table();
        if let Some(watched) = jobs.get_mut(&self.id) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                jobs.remove(&self.id);
            }
        }
        self.waiters.count.store(jobs.len(), Ordering::SeqCst);
    }
}
