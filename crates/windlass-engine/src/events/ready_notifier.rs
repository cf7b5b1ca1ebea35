//! Notification of waiting claims when the store reports claimable jobs.

use crate::tables::waiting::{Duty, LookAgain, Place, Waiting, Wanted};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use windlass_core::{Name, Queue, Tenant};
use windlass_store::Listener;

#[derive(Debug, Default)]
pub(crate) struct ReadyNotifier {
    waiting: Mutex<Waiting>,
    /// Number of waiting claims; read without the lock, so that a push without waiting claims costs one
    /// atomic load.
    count: AtomicUsize,
    /// Subscribers to all jobs of a queue. Entries are never removed: there is one per queue with its own
    /// dispatcher.
    news: RwLock<Vec<(Queue, Arc<Notify>)>>,
}

impl ReadyNotifier {
    /// `None`: too many claims are waiting.
    pub(crate) fn enter(
        self: &Arc<Self>,
        tenant: &Tenant,
        wanted: Wanted,
        worker: Option<&Arc<str>>,
        max: usize,
    ) -> Option<Waiter> {
        let mut table = self.table();
        if table.len() >= max {
            return None;
        }
        let place = table.enter(tenant, &wanted);
        if let Some(worker) = worker {
            table.name(place, tenant, worker);
        }
        self.count.store(table.len(), Ordering::SeqCst);
        drop(table);
        Some(Waiter {
            ready_notifier: self.clone(),
            tenant: tenant.clone(),
            wanted,
            place,
            ring: Arc::default(),
            duty: Duty::new(),
        })
    }

    /// `count` jobs at one address became ready.
    pub(crate) fn announce(&self, tenant: &Tenant, queue: &Queue, name: &Name, count: usize) {
        if self.waiters() > 0 {
            self.table().announce(tenant, queue, name, count);
        }
    }

    pub(crate) fn wake_all(&self) {
        self.table().wake_all();
        self.tell(|_| true);
    }

    pub(crate) fn subscribe(&self, queue: &Queue) -> Arc<Notify> {
        let mut news = self.news.write();
        let known = news.iter().find(|(known, _)| known == queue).map(|(_, notify)| Arc::clone(notify));
        known.unwrap_or_else(|| {
            let notify = Arc::<Notify>::default();
            news.push((queue.clone(), Arc::clone(&notify)));
            notify
        })
    }

    fn tell(&self, is_meant: impl Fn(&Queue) -> bool) {
        let news = self.news.read();
        news.iter().filter(|(queue, _)| is_meant(queue)).for_each(|(_, notify)| notify.notify_one());
    }

    pub(crate) fn waiters(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Named workers and the number of their waiting claims.
    pub(crate) fn waiting_workers(&self) -> BTreeMap<(Tenant, Arc<str>), usize> {
        let mut workers = BTreeMap::new();
        for name in self.table().names() {
            *workers.entry(name.clone()).or_default() += 1;
        }
        workers
    }

    fn table(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl Listener for ReadyNotifier {
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name) {
        self.announce(tenant, queue, name, 1);
        self.tell(|wanted| wanted == queue);
    }
}

/// Waiting claim. On drop it leaves the table and passes its duty on.
#[derive(Debug)]
pub(crate) struct Waiter {
    ready_notifier: Arc<ReadyNotifier>,
    tenant: Tenant,
    wanted: Wanted,
    place: Place,
    ring: Arc<Notify>,
    /// Announcements that the current query has to cover.
    duty: Duty,
}

impl Waiter {
    /// Called before each query of the store.
    pub(crate) fn look(&mut self) {
        let duty = self.ready_notifier.table().look(&self.tenant, &self.wanted, self.place);
        self.duty.extend(duty);
    }

    /// The query left no claimable jobs. Returns whether to query again at once; otherwise wait for
    /// `notified`.
    pub(crate) fn found_nothing(&mut self) -> LookAgain {
        self.duty.clear();
        self.ready_notifier.table().found_nothing(&self.tenant, &self.wanted, self.place, &self.ring)
    }

    /// The query returned fewer jobs than its limit, which completes the duty.
    pub(crate) fn complete_duty(&mut self) {
        self.duty.clear();
    }

    pub(crate) async fn notified(&self) {
        self.ring.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut table = self.ready_notifier.table();
        let left = table.leave(&self.tenant, &self.wanted, self.place);
        self.ready_notifier.count.store(table.len(), Ordering::SeqCst);
        for address in self.duty.iter().chain(&left) {
            table.announce(&self.tenant, &address.queue, &address.name, 1);
        }
    }
}
