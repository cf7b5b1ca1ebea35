//! Who wants to hear that a lease is over, whatever ended it: a finish, its time, a cancellation, a deletion.

use crate::engine::Engine;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::UnboundedSender;
use windlass_core::{Job, JobId, Token};
use windlass_store::Change;

/// The lease of this job with this token is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEnd {
    pub id: JobId,
    pub token: Token,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    watched: Mutex<FxHashMap<JobId, Watched>>,
    /// As many as in the table; read without its lock after every commit.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Watched {
    token: Token,
    /// Without a bound of its own: there is one message per lease at most.
    tell: UnboundedSender<LeaseEnd>,
}

impl LeaseWatch {
    pub(crate) fn after_commit(&self, changes: &[Change]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for change in changes {
            self.moved(&change.before, change.after.as_deref());
        }
    }

    pub(crate) fn moved(&self, before: &Job, after: Option<&Job>) {
        let token = |job: &Job| job.state().lease().map(|lease| lease.token);
        if token(before).is_none() || after.and_then(token) == token(before) {
            return;
        }
        let mut watched = self.table();
        if watched.get(&before.id).is_some_and(|watched| Some(watched.token) == token(before))
            && let Some(Watched { token, tell }) = watched.remove(&before.id)
        {
            self.count.store(watched.len(), Ordering::SeqCst);
            // Fails only when nobody is left who wanted to know.
            let _ = tell.send(LeaseEnd { id: before.id, token });
        }
    }

    fn watch(&self, id: JobId, token: Token, tell: UnboundedSender<LeaseEnd>) {
        let mut watched = self.table();
        watched.insert(id, Watched { token, tell });
        self.count.store(watched.len(), Ordering::SeqCst);
    }

    fn table(&self) -> MutexGuard<'_, FxHashMap<JobId, Watched>> {
        self.watched.lock()
    }
}

impl Engine {
    /// `tell` hears once when the lease of this running job is over. Answers whether this server handed it out and has not
    /// heard of its end; if not, the caller has to look for itself, after this call.
    pub fn watch_lease(&self, job: &Arc<Job>, tell: &UnboundedSender<LeaseEnd>) -> bool {
        let Some(lease) = job.state().lease() else { return false };
        // In the table before looking: what ends after the look finds us there.
        self.inner.lease_watch.watch(job.id, lease.token, tell.clone());
        let known = self.inner.leases().get(job.id);
        known.and_then(|job| Some(job.state().lease()?.token)) == Some(lease.token)
    }
}
