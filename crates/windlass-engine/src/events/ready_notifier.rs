//! Notification of waiting claims when the store reports claimable jobs.

use crate::tables::waiting::{Duty, LookAgain, Place, ReadyJobs, Waiting, WaitingClaim};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use windlass_core::{Job, Name, Queue, Tenant};
use windlass_store::{ClaimAsk, Listener};

#[derive(Default)]
pub(crate) struct ReadyNotifier {
    waiting: Mutex<Waiting>,
    /// Number of waiting claims; read without the lock, so that a push without waiting claims costs one
    /// atomic load.
    count: AtomicUsize,
    /// Subscribers to all jobs of a queue. Entries are never removed: there is one per queue with its own
    /// dispatcher.
    subscribers: RwLock<Vec<(Queue, Arc<Notify>)>>,
}

impl ReadyNotifier {
    /// `None`: too many claims are waiting.
    pub(crate) fn enter(self: &Arc<Self>, ask: &Arc<ClaimAsk>, max: usize) -> Option<Waiter> {
        let claim = WaitingClaim(ask.clone());
        let mut table = self.table();
        if table.len() >= max {
            return None;
        }
        let place = table.enter(&claim);
        self.count.store(table.len(), Ordering::SeqCst);
        drop(table);
        Some(Waiter { ready_notifier: self.clone(), claim, place, notify: Arc::default(), duty: Duty::new() })
    }

    pub(crate) fn wake_all(&self) {
        self.table().wake_all();
        self.notify_subscribers(|_| true);
    }

    pub(crate) fn subscribe(&self, queue: &Queue) -> Arc<Notify> {
        let mut subscribers = self.subscribers.write();
        let known =
            subscribers.iter().find(|(known, _)| known == queue).map(|(_, notify)| Arc::clone(notify));
        known.unwrap_or_else(|| {
            let notify = Arc::<Notify>::default();
            subscribers.push((queue.clone(), Arc::clone(&notify)));
            notify
        })
    }

    fn notify_subscribers(&self, is_meant: impl Fn(&Queue) -> bool) {
        let subscribers = self.subscribers.read();
        subscribers.iter().filter(|(queue, _)| is_meant(queue)).for_each(|(_, notify)| notify.notify_one());
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
    fn became_ready(&self, tenant: &Tenant, queue: &Queue, name: &Name, count: Option<usize>) {
        if self.waiters() > 0 {
            let ready = ReadyJobs { queue: queue.clone(), name: name.clone(), count };
            self.table().announce(tenant, ready);
        }
        self.notify_subscribers(|wanted| wanted == queue);
    }
}

/// Waiting claim. On drop it leaves the table and passes its duty on.
pub(crate) struct Waiter {
    ready_notifier: Arc<ReadyNotifier>,
    claim: WaitingClaim,
    place: Place,
    notify: Arc<Notify>,
    /// Announced jobs that the current query has to cover.
    duty: Duty,
}

impl Waiter {
    /// Called before each query of the store.
    pub(crate) fn look(&mut self) {
        let duty = self.ready_notifier.table().look(&self.claim, self.place);
        self.duty.extend(duty);
    }

    /// The query left no claimable jobs. Returns whether to query again at once; otherwise wait for
    /// `notified`.
    pub(crate) fn found_nothing(&mut self) -> LookAgain {
        self.duty.clear();
        self.ready_notifier.table().found_nothing(&self.claim, self.place, &self.notify)
    }

    /// The query returned these jobs. If they are fewer than its limit, there are no others.
    pub(crate) fn claimed(&mut self, jobs: &[Arc<Job>]) {
        self.duty.retain(|ready| jobs.len() >= self.claim.0.limit && ready.outlast(jobs));
    }

    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut table = self.ready_notifier.table();
        let left = table.leave(&self.claim, self.place);
        self.ready_notifier.count.store(table.len(), Ordering::SeqCst);
        for ready in self.duty.drain(..).chain(left) {
            table.announce(&self.claim.0.tenant, ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::waiting::tests::{claim, job};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use windlass_core::NameMatch;

    async fn is_woken(waiter: &Waiter) -> bool {
        let mut notified = pin!(waiter.notified());
        poll_fn(|context| Poll::Ready(notified.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn without_a_number_the_claims_are_woken_one_after_the_other() {
        let notifier = Arc::new(ReadyNotifier::default());
        let ask = claim(NameMatch::Any, None, 1).0;
        let mut waiters: Vec<Waiter> = (0..3).filter_map(|_| notifier.enter(&ask, 10)).collect();
        for waiter in &mut waiters {
            waiter.look();
            assert_eq!(waiter.found_nothing(), LookAgain::No);
        }
        notifier.became_ready(&ask.tenant, &Queue::default(), &Name::new("a").unwrap(), None);
        for _ in 0..3 {
            for later in &waiters[1..] {
                assert!(!is_woken(later).await);
            }
            let mut first = waiters.remove(0);
            assert!(is_woken(&first).await);
            first.look();
            // It takes as many jobs as it may and leaves.
            first.claimed(&[job("a")]);
        }
    }
}
