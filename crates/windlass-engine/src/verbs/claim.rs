//! Claims: jobs are leased to workers.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::events::feed::FeedKind;
use crate::events::ready_notifier::Waiter;
use crate::shutdown::InFlight;
use crate::tables::waiting::LookAgain;
use crate::verbs::{Claim, JobEvent};
use std::sync::Arc;
use windlass_core::turn::comes_too_late;
use windlass_core::{Event, Holder, Job, StateWord, Tenant};
use windlass_store::ClaimAsk;

/// Most claims in a row that find only turns which come too late; each moves at least one job to a later time.
const LATE_ROUNDS_MAX: usize = 10_000;

/// Claimed jobs on their way to a worker. Unless accepted, they are returned on drop.
#[must_use = "jobs that are not accepted are released"]
pub struct Delivery {
    pub jobs: Vec<Arc<Job>>,
    engine: Option<Arc<Inner>>,
}

impl Delivery {
    fn empty() -> Delivery {
        Delivery { jobs: Vec::new(), engine: None }
    }

    pub fn accept(mut self) -> Vec<Arc<Job>> {
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take()
            && !self.jobs.is_empty()
        {
            let jobs = std::mem::take(&mut self.jobs);
            let in_flight = InFlight::new(&engine);
            engine.runtime.spawn(async move { give_back(&in_flight, jobs).await });
        }
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// Returns jobs as if they had not been claimed: the attempt does not count.
async fn give_back(engine: &Arc<Inner>, jobs: Vec<Arc<Job>>) {
    let ask = |job: &Arc<Job>| {
        let token = job.state().lease()?.token;
        Some(JobEvent { id: job.id, event: Event::Return { by: Holder::Token(token) } })
    };
    let asks: Vec<JobEvent> = jobs.iter().filter_map(ask).collect();
    let count = asks.len();
    if let Err(error) = engine.change(None, asks, jobs).await {
        // Their leases expire eventually: the jobs are late, not lost.
        tracing::warn!(%error, "cannot release {count} undelivered jobs; they run again when their leases expire");
    }
}

impl Engine {
    /// Makes all claims wait until [`Engine::release_claims`]: a server that is starting must hand out no
    /// jobs before workers can report on them.
    pub fn hold_claims(&self) {
        self.inner.claims_held.send_replace(true);
    }

    /// Ends [`Engine::hold_claims`].
    pub fn release_claims(&self) {
        self.inner.claims_held.send_replace(false);
    }

    /// Waits until claims are released or the engine closes. Does not yield if they are released already, so
    /// that claims made in sequence reach the store in order.
    async fn claims_released(&self) {
        if !*self.inner.claims_held.borrow() {
            return;
        }
        let mut held = self.inner.claims_held.subscribe();
        tokio::select! {
            // Cannot fail: the sender is part of the engine.
            _ = held.wait_for(|held| !held) => {}
            () = self.inner.shutdown.closed() => {}
        }
    }

    /// Claims up to `claim.limit` jobs, in claim order. Without claimable jobs it waits up to
    /// `claim.wait_ms`.
    pub async fn claim(&self, claim: Claim) -> Result<Delivery, EngineError> {
        self.inner.open()?;
        if claim.limit == 0 {
            return Ok(Delivery::empty());
        }
        self.check_claim(&claim)?;
        self.claims_released().await;
        let Claim { tenant, queues, names, priority, limit, wait_ms, lease_ms, worker } = claim;
        let ask = Arc::new(ClaimAsk {
            tenant,
            queues,
            names,
            scope: self.scope.clone(),
            priority,
            limit: limit.min(self.inner.options.batch_max),
            worker,
            lease_ms,
            seed: 0,
            gate: None,
        });
        if wait_ms == 0 {
            return self.look(&ask).await;
        }
        // Registered before the query, so that no job that becomes ready between the two is missed.
        let _waiting = self.begin_waiting(&ask.tenant)?;
        let waiter = self.inner.ready_notifier.enter(&ask, self.inner.options.waiters_max);
        self.wait_for_jobs(waiter.ok_or(EngineError::TooManyWaiters)?, &ask, wait_ms).await
    }

    /// Queries the store whenever jobs are announced, until it finds some or `wait_ms` is over.
    async fn wait_for_jobs(
        &self,
        mut waiter: Waiter,
        ask: &Arc<ClaimAsk>,
        wait_ms: u64,
    ) -> Result<Delivery, EngineError> {
        let mut timeout = self.inner.clock.sleep_ms(wait_ms);
        let mut is_last_look = false;
        loop {
            waiter.look();
            let delivery = match self.look(ask).await {
                Err(EngineError::ShuttingDown) => return Ok(Delivery::empty()),
                answer => answer?,
            };
            if !delivery.jobs.is_empty() {
                waiter.claimed(&delivery.jobs);
                return Ok(delivery);
            }
            if waiter.found_nothing() == LookAgain::Yes && !is_last_look {
                continue;
            }
            // The waiter sleeps before the shutdown is checked, because a shutdown wakes all sleeping
            // waiters.
            if is_last_look || self.inner.shutdown.is_closing() {
                return Ok(delivery);
            }
            tokio::select! {
                () = waiter.notified() => {}
                () = &mut timeout => is_last_look = true,
            }
        }
    }

    /// Queries the store once. Runs to completion even if the caller is gone, so that jobs it claimed are
    /// returned.
    async fn look(&self, ask: &Arc<ClaimAsk>) -> Result<Delivery, EngineError> {
        let (in_flight, ask) = (self.inner.enter()?, ask.clone());
        self.inner.detached(async move { in_flight.take(&ask).await }).await
    }
}

impl Inner {
    /// Claims jobs, and skips turns that come too late; in their place it claims others, so that fewer jobs
    /// than requested mean that there are no more.
    async fn take(self: &Arc<Self>, ask: &ClaimAsk) -> Result<Delivery, EngineError> {
        let mut delivery = Delivery { jobs: Vec::new(), engine: Some(self.clone()) };
        for _ in 0..LATE_ROUNDS_MAX {
            let limit = ask.limit - delivery.jobs.len();
            let jobs = self.claim_from_store(ask, limit).await?;
            self.record_leases(&jobs);
            let (late, in_time): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| comes_too_late(job));
            delivery.jobs.extend(in_time);
            if late.is_empty() {
                break;
            }
            self.skip(late).await?;
            if delivery.jobs.len() == ask.limit {
                break;
            }
        }
        self.count_and_publish(&delivery.jobs);
        Ok(delivery)
    }

    /// Moves jobs whose turn comes too late to their next scheduled time. A job for which this fails runs late,
    /// after its lease has expired.
    async fn skip(self: &Arc<Self>, late: Vec<Arc<Job>>) -> Result<(), EngineError> {
        let ask = |job: &Arc<Job>| {
            let token = job.state().lease()?.token;
            Some(JobEvent { id: job.id, event: Event::Skip { by: Holder::Token(token) } })
        };
        let asks = late.iter().filter_map(ask).collect();
        self.change(None, asks, late).await.map(drop)
    }

    async fn claim_from_store(&self, ask: &ClaimAsk, limit: usize) -> Result<Vec<Arc<Job>>, EngineError> {
        let now = self.now();
        let (seed, gate) = (self.random.next_u64(), self.limits.gate(&ask.tenant));
        let ask = ClaimAsk { seed, gate, limit, ..ask.clone() };
        let jobs = self.store.claim(ask, now).await.map_err(|error| self.query_due_if_unknown(error))?;
        if !jobs.is_empty() {
            self.calendar.note_claim();
        }
        Ok(jobs)
    }

    /// Enters claimed jobs into the lease table and plans the first expiry.
    fn record_leases(&self, jobs: &[Arc<Job>]) {
        let mut leases = self.leases();
        jobs.iter().for_each(|job| leases.record_grant(job));
        drop(leases);
        if let Some(until) = jobs.iter().filter_map(|job| job.deadline()).min() {
            self.timers.plan(until);
        }
    }

    fn count_and_publish(&self, jobs: &[Arc<Job>]) {
        self.meters.claimed.add(jobs.len());
        if let Some(first) = jobs.first() {
            // All jobs of a claim belong to one tenant.
            let queues = jobs.iter().map(|job| &job.spec.queue);
            self.meters.queues.count(&first.spec.tenant, queues, |traffic, count| traffic.claimed += count);
            self.count_claimed(&first.spec.tenant, jobs);
        }
        for job in jobs {
            let Some(lease) = job.state().lease() else { continue };
            self.feed.publish(FeedKind::Claimed, job, StateWord::Running, lease.granted_at);
        }
    }

    /// Counts claimed jobs of one tenant, and the time that they waited.
    fn count_claimed(&self, tenant: &Tenant, jobs: &[Arc<Job>]) {
        let mut by_name = self.meters.jobs.in_batch(tenant);
        for job in jobs {
            let series = by_name.of(&job.spec.queue, &job.spec.name);
            series.claimed.add(1);
            let Some(lease) = job.state().lease() else { continue };
            // A parent that runs again keeps the due time of its last run, so its waiting time is unknown.
            if job.progress.prior_start != Some(job.progress.due_at) {
                let waited_ms = lease.granted_at.since_ms(job.progress.due_at.max(job.spec.created_at));
                let waited_us = waited_ms.unsigned_abs().saturating_mul(1_000);
                self.meters.pickup_us.record(waited_us);
                series.wait_us.record(waited_us);
            }
        }
    }
}
