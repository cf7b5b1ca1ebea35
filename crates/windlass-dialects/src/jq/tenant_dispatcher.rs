//! Workers of one tenant that this server serves, and their jobs. `delivery.rs` claims and delivers jobs.

use super::notes::Notes;
use super::worker_connection::WorkerConnection;
use super::workers::{Held, RemovedWorker, WorkerId, Workers};
use super::{QUEUE, commands};
use crate::query::Filter;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use windlass_core::{Holder, Job, JobId, Queue, StateName, Tenant, Timestamp, Token};
use windlass_engine::{Engine, EngineError, JobEvent, LeaseEnd};

/// Worker name in the lease of a job that is claimed but not assigned yet.
pub(super) const DISPATCHER_NAME: &str = "jq dispatcher";
/// Most jobs per read or commit.
const BATCH_MAX: usize = 1_000;
/// Interval of the checks for jobs that ended at another server. The checks take at most a tenth of the time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_SHARE: u32 = 10;
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) struct TenantDispatcher {
    pub tenant: Tenant,
    pub(super) engine: Engine,
    pub(super) notes: Notes,
    /// Id of this server on a shared store.
    server: Option<String>,
    table: Mutex<Workers<Arc<WorkerConnection>>>,
    /// A change in the table may allow another claim.
    pub(super) changed: Notify,
    /// A change in the table may have an earlier deadline.
    pub(super) sooner: Notify,
    pub(super) restarts: Mutex<Vec<TimeoutRestart>>,
    pub(super) collect: Notify,
    in_delivery: AtomicUsize,
    arrived: Notify,
    pub(super) ends: UnboundedSender<LeaseEnd>,
    stop: watch::Receiver<bool>,
}

/// Accepted job whose timeout starts again, to be committed.
pub(super) struct TimeoutRestart {
    pub id: JobId,
    pub token: Token,
    pub until: Timestamp,
}

/// Job between its claim and the worker's answer. A stop waits until there is none.
pub(super) struct InDelivery(Arc<TenantDispatcher>);

impl InDelivery {
    pub(super) fn new(dispatcher: &Arc<TenantDispatcher>) -> InDelivery {
        dispatcher.in_delivery.fetch_add(1, Ordering::SeqCst);
        InDelivery(Arc::clone(dispatcher))
    }
}

impl Drop for InDelivery {
    fn drop(&mut self) {
        self.0.in_delivery.fetch_sub(1, Ordering::SeqCst);
        self.0.arrived.notify_waiters();
    }
}

impl TenantDispatcher {
    /// Starts the loops of a tenant without workers, so that nothing is claimed yet.
    pub(super) fn open(
        tenant: Tenant,
        engine: Engine,
        server: Option<String>,
        stop: watch::Receiver<bool>,
    ) -> Arc<TenantDispatcher> {
        let (ends, ended) = unbounded_channel();
        let dispatcher = Arc::new(TenantDispatcher {
            tenant,
            notes: Notes::new(engine.clone()),
            engine,
            server,
            table: Mutex::default(),
            changed: Notify::new(),
            sooner: Notify::new(),
            restarts: Mutex::default(),
            collect: Notify::new(),
            in_delivery: AtomicUsize::new(0),
            arrived: Notify::new(),
            ends,
            stop,
        });
        tokio::spawn(Arc::clone(&dispatcher).claim_loop());
        tokio::spawn(Arc::clone(&dispatcher).free_slots_loop(ended));
        tokio::spawn(Arc::clone(&dispatcher).timer_loop());
        tokio::spawn(Arc::clone(&dispatcher).restart_timeouts_loop());
        if dispatcher.engine.is_shared() {
            tokio::spawn(Arc::clone(&dispatcher).poll_ends_loop());
        }
        dispatcher
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Workers<Arc<WorkerConnection>>> {
        self.table.lock()
    }

    pub(super) fn register(
        &self,
        id: WorkerId,
        max_jobs: u32,
        connection: Arc<WorkerConnection>,
        is_fixed: bool,
    ) {
        self.table().register(id, max_jobs, connection, is_fixed);
        self.changed.notify_one();
    }

    /// Records a ping. `None`: unknown worker; `true`: its first ping.
    pub(super) fn pinged(&self, id: &str, at: Timestamp) -> Option<bool> {
        let first = self.table().pinged(id, at)?;
        if first {
            self.sooner.notify_one();
        }
        Some(first)
    }

    /// Pauses or resumes a worker. Returns false if it is unknown.
    pub(super) fn set_quiet(&self, id: &str, quiet: bool) -> bool {
        let knows = self.table().set_quiet(id, quiet);
        self.changed.notify_one();
        knows
    }

    /// Removes a worker and fails its jobs. Returns false if it is unknown.
    pub(super) async fn dismiss(&self, id: &str, why: &str) -> bool {
        let Some(removed) = self.table().remove(id) else { return false };
        self.fail_jobs_of(removed, why).await;
        true
    }

    /// Removes a worker without failing its jobs: another server serves it now.
    pub(super) fn release(&self, id: &str) {
        self.table().release(id);
        self.changed.notify_one();
    }

    /// Drains a worker: it gets no more jobs, and is removed after its last one. Returns false if it is
    /// unknown.
    pub(super) async fn leaving(&self, id: &str) -> bool {
        let is_known = self.table().leaving(id);
        self.forget_left().await;
        is_known
    }

    /// Waits until no job is in delivery. The caller has stopped the claims.
    pub(super) async fn drained(&self) {
        loop {
            let arrived = self.arrived.notified();
            if self.in_delivery.load(Ordering::SeqCst) == 0 {
                return;
            }
            arrived.await;
        }
    }

    // --- jobs sent by another process
    // -----------------------------------------------------------------------------------

    /// Loads the running jobs of workers before they are registered here. Leases are watched first and
    /// checked again afterwards, so that no end in between is missed.
    pub(super) async fn adopt(
        &self,
        jobs: &[Arc<Job>],
        workers: &HashSet<WorkerId>,
    ) -> Result<(), EngineError> {
        let is_theirs = |job: &&Arc<Job>| worker_of(job).is_some_and(|worker| workers.contains(worker));
        let theirs: Vec<&Arc<Job>> = jobs.iter().filter(is_theirs).collect();
        for job in &theirs {
            self.adopt_one(job);
        }
        let held = theirs.iter().filter_map(|job| Some((job.id, token_of(job)?))).collect();
        self.look_at(held).await
    }

    fn adopt_one(&self, job: &Arc<Job>) {
        let (Some(lease), Some(worker)) = (job.state().lease(), worker_of(job)) else { return };
        // The caller checks afterwards whether the lease is still live.
        self.engine.watch_lease(job, &self.ends);
        self.table().adopt(job.id, Held::new(job, lease, worker.clone(), true));
        self.sooner.notify_one();
    }

    /// Frees the slots of leases that are over.
    async fn look_at(&self, held: Vec<(JobId, Token)>) -> Result<(), EngineError> {
        for some in held.chunks(self.batch_max()) {
            let ids = some.iter().map(|(id, _)| *id).collect();
            let now = self.engine.get(&self.tenant, ids).await?;
            for ((id, token), now) in some.iter().zip(now) {
                if now.and_then(|job| token_of(&job)) != Some(*token) {
                    self.ended(*id, *token).await;
                }
            }
        }
        Ok(())
    }

    pub(super) fn batch_max(&self) -> usize {
        BATCH_MAX.min(self.engine.options().batch_max).max(1)
    }

    /// Polls for jobs that ended at other servers, which send no notification.
    async fn poll_ends_loop(self: Arc<Self>) {
        let mut pause = LOOK_EVERY;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stopping() => return,
            }
            let held = self.table().accepted_jobs();
            let began = Instant::now();
            if let Err(error) = self.look_at(held).await {
                tracing::debug!(%error, "cannot look for jobs that ended on another server");
            }
            pause = (began.elapsed() * (LOOK_SHARE - 1)).clamp(LOOK_EVERY, LOOK_PAUSE_MAX);
        }
    }

    // --- ends
    // -----------------------------------------------------------------------------------------------------------

    /// Frees slots when leases end, for whatever reason.
    async fn free_slots_loop(self: Arc<Self>, mut ended: UnboundedReceiver<LeaseEnd>) {
        loop {
            let end = tokio::select! {
                end = ended.recv() => end,
                () = self.stopping() => None,
            };
            let Some(LeaseEnd { id, token }) = end else { return };
            self.ended(id, token).await;
        }
    }

    /// Frees the slot of an ended lease, and removes a drained worker.
    pub(super) async fn ended(&self, id: JobId, token: Token) {
        if self.table().ended(id, token) {
            self.changed.notify_one();
        }
        self.forget_left().await;
    }

    async fn forget_left(&self) {
        let left = self.table().take_left();
        for worker in left {
            tracing::info!(worker = %worker, "worker {worker} finished its jobs and is removed");
            self.forget(&worker).await;
        }
    }

    /// Ends pauses and removes workers without heartbeat, at their deadlines.
    async fn timer_loop(self: Arc<Self>) {
        while !self.is_stopping() {
            let next = self.table().plan();
            let waiting = async {
                match next {
                    Some(at) => self.engine.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiting => self.time_passed().await,
                () = self.sooner.notified() => {}
                () = self.stopping() => return,
            }
        }
    }

    async fn time_passed(&self) {
        let passed = self.table().pass(self.engine.now());
        self.changed.notify_one();
        for removed in passed.removed {
            if self.is_served_elsewhere(&removed.worker).await {
                continue;
            }
            self.forget(&removed.worker).await;
            self.fail_jobs_of(removed, "it sent no heartbeat in time").await;
        }
        if let Err(error) = self.look_at(passed.overdue).await {
            tracing::debug!(%error, "cannot look for jobs that should have ended");
        }
        self.changed.notify_one();
    }

    /// True if another server has taken over the worker and its jobs: while this process was suspended, pings
    /// went there.
    async fn is_served_elsewhere(&self, worker: &str) -> bool {
        let Some(me) = &self.server else { return false };
        match self.notes.find(&self.tenant, worker).await {
            Ok(noted) => noted.is_some_and(|noted| noted.note.server.as_ref() != Some(me)),
            // With the store out of reach, nothing can be written for the worker either.
            Err(_) => false,
        }
    }

    /// Fails the running jobs of a removed worker.
    pub(super) async fn fail_jobs_of(&self, removed: RemovedWorker, why: &str) {
        let RemovedWorker { worker, jobs } = removed;
        tracing::warn!(worker = %worker, jobs = jobs.len(), "worker {worker} removed: {why}");
        self.fail(&worker, &jobs, why).await;
        self.changed.notify_one();
    }

    async fn fail(&self, worker: &str, jobs: &[(JobId, Token)], why: &str) {
        let message = format!("worker {worker} was lost: {why}");
        for some in jobs.chunks(self.batch_max()) {
            let settle = |(id, token): &(JobId, Token)| JobEvent {
                id: *id,
                event: commands::worker_lost(Holder::Token(*token), worker, &message),
            };
            if let Err(error) = self.engine.settle(&self.tenant, some.iter().map(settle).collect()).await {
                // Their leases expire later; the jobs are late, not lost.
                tracing::warn!(%error, "cannot fail the jobs of a lost worker; they end with their timeouts");
            }
        }
    }

    /// Fails the jobs of a worker that this server does not serve.
    pub(super) async fn fail_all_of(&self, worker: &str, why: &str) -> Result<(), EngineError> {
        let jobs = running(&self.engine, Some(&self.tenant)).await?;
        let theirs = jobs.iter().filter(|job| worker_of(job).is_some_and(|theirs| **theirs == *worker));
        let theirs: Vec<_> = theirs.filter_map(|job| Some((job.id, token_of(job)?))).collect();
        self.fail(worker, &theirs, why).await;
        Ok(())
    }

    /// Deletes the worker's notes, so that it is not loaded after a restart.
    pub(super) async fn forget(&self, worker: &WorkerId) {
        if let Err(error) = self.notes.forget(&self.tenant, worker).await {
            tracing::warn!(%error, worker = %worker, "cannot delete the record of a lost worker");
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        // The sender is dropped with the server.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    pub(super) async fn stopping(&self) {
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }
}

/// All running JQ jobs, of one tenant or of all.
pub(super) async fn running(engine: &Engine, tenant: Option<&Tenant>) -> Result<Vec<Arc<Job>>, EngineError> {
    let filter = Filter {
        tenant: tenant.cloned(),
        states: vec![StateName::Running],
        queue: Some(queue()),
        limit: BATCH_MAX,
        ..Filter::default()
    };
    engine.pages(filter).collect().await
}

pub(super) fn worker_of(job: &Job) -> Option<&WorkerId> {
    job.state().lease().and_then(|lease| lease.worker.as_ref())
}

pub(super) fn token_of(job: &Job) -> Option<Token> {
    job.state().lease().map(|lease| lease.token)
}

pub(super) fn queue() -> Queue {
    static QUEUE_NAME: std::sync::OnceLock<Queue> = std::sync::OnceLock::new();
    QUEUE_NAME.get_or_init(|| Queue::new(QUEUE).unwrap_or_default()).clone()
}
