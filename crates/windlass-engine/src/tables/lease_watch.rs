//! Notification of the end of a lease, for any reason: finish, expiry, cancellation, deletion.

use crate::engine::Engine;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::UnboundedSender;
use windlass_core::{Job, JobId, Token};
use windlass_store::Change;

/// End of the lease with this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEnd {
    pub id: JobId,
    pub token: Token,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    watched: Mutex<FxHashMap<JobId, Watched>>,
    /// Number of entries; read without the lock after every commit.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Watched {
    token: Token,
    /// Unbounded channel: there is at most one message per lease.
    tell: UnboundedSender<LeaseEnd>,
}

impl LeaseWatch {
    pub(crate) fn after_commit(&self, changes: &[Change]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for change in changes {
            self.notify_if_ended(&change.before, change.after.as_deref());
        }
    }

    pub(crate) fn notify_if_ended(&self, before: &Job, after: Option<&Job>) {
        let token = |job: &Job| job.state().lease().map(|lease| lease.token);
        if token(before).is_none() || after.and_then(token) == token(before) {
            return;
        }
        let mut watched = self.table();
        if watched.get(&before.id).is_some_and(|watched| Some(watched.token) == token(before))
            && let Some(Watched { token, tell }) = watched.remove(&before.id)
        {
            self.count.store(watched.len(), Ordering::SeqCst);
            // Fails only if the receiver was dropped.
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
    /// Sends to `tell` once when the lease of this running job ends. Returns true if this server granted the
    /// lease and knows of no end; otherwise the caller has to query the job, after this call.
    pub fn watch_lease(&self, job: &Arc<Job>, tell: &UnboundedSender<LeaseEnd>) -> bool {
        let Some(lease) = job.state().lease() else { return false };
        // Registered before the lookup, so that no end between the two is missed.
        self.inner.lease_watch.watch(job.id, lease.token, tell.clone());
        let known = self.inner.leases().get(job.id);
        known.and_then(|job| Some(job.state().lease()?.token)) == Some(lease.token)
    }
}
