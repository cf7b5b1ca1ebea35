//! [`Engine`]: the only way from a dialect or a runner to a job. Existing jobs are changed in transactions
//! (`transaction.rs`), with two exceptions: a claim, which the store commits, and the push of children.
//!
//! Longer calls are in `verbs/`, calls on limits and quotas in `tenants/`.

use crate::detached::Detached;
use crate::error::EngineError;
use crate::events::feed::{Feed, FeedEvent};
use crate::events::meters::Meters;
use crate::events::other_servers;
use crate::events::ready_notifier::ReadyNotifier;
use crate::random::Random;
use crate::shutdown::{InFlight, Shutdown};
use crate::tables::family_locks::FamilyLocks;
use crate::tables::lease_watch::LeaseWatch;
use crate::tables::leases::Leases;
use crate::tables::settle_waiters::SettleWaiters;
use crate::tables::timers::Timers;
use crate::tenants::limits::LimitTables;
use crate::tenants::queue_settings::QueueTable;
use crate::tenants::quota::Quotas;
use crate::time::clock::Clock;
use crate::time::outage::Outages;
use crate::time::scheduler;
use crate::time::wall_clock::{self, Calendar};
use crate::transaction::queue::JobQueues;
use crate::verbs::{Options, Waited};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use windlass_core::{Job, JobId, Name, Payload, Queue, Scope, Tenant, Timestamp};
use windlass_store::{Filter, Page, QueueCounts, Step, Store, StoreError, Verdict, WaitingName};

/// Prefix of notes among the store's settings.
pub(crate) const NOTES: &str = "note/";
/// Time that calls in flight have to complete before a shutdown closes the store.
const SHUTDOWN_WAIT_MS: u64 = 10_000;

/// Handle on an engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    /// Author of the changes, recorded with the jobs.
    pub(crate) who: Option<Arc<str>>,
    /// True if pushes bypass the quotas, because the jobs were admitted before.
    pub(crate) is_exempt: bool,
    /// Jobs that this handle may access.
    pub(crate) scope: Scope,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) options: Options,
    pub(crate) runtime: Handle,
    pub(crate) ready_notifier: Arc<ReadyNotifier>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) limits: Arc<LimitTables>,
    pub(crate) quotas: Quotas,
    pub(crate) queues: QueueTable,
    pub(crate) settle_waiters: Arc<SettleWaiters>,
    pub(crate) lease_watch: LeaseWatch,
    pub(crate) family_locks: FamilyLocks,
    pub(crate) job_queues: JobQueues,
    pub(crate) feed: Feed,
    pub(crate) meters: Meters,
    pub(crate) shutdown: Shutdown,
    /// Locked while due jobs are processed.
    pub(crate) stepping: tokio::sync::Mutex<()>,
    /// Locked during a compare-and-swap of a note, on stores with a single server.
    pub(crate) swapping: tokio::sync::Mutex<()>,
    /// True while claims wait for the server to complete its startup.
    pub(crate) claims_held: watch::Sender<bool>,
    leases: Mutex<Leases>,
    pub(crate) outages: Outages,
    /// Latest time returned by `now`, which never goes back even if the clock does.
    latest: AtomicI64,
    pub(crate) calendar: Calendar,
}

impl Engine {
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: Options,
    ) -> Result<Engine, EngineError> {
        let timers = Arc::new(Timers::new());
        let (clock, calendar) = Calendar::open(&*store, clock).await?;
        let now = clock.now();
        let limits = LimitTables::load(&*store, timers.clone(), now).await?;
        let meters = Meters::new(options.metric_names_max);
        let inner = Arc::new(Inner {
            clock,
            random,
            runtime: Handle::current(),
            ready_notifier: Arc::default(),
            timers,
            limits: Arc::new(limits),
            quotas: Quotas::new(&options),
            queues: QueueTable::default(),
            options,
            settle_waiters: Arc::default(),
            lease_watch: LeaseWatch::default(),
            family_locks: FamilyLocks::new(),
            job_queues: JobQueues::default(),
            feed: Feed::new(),
            meters,
            shutdown: Shutdown::default(),
            stepping: tokio::sync::Mutex::default(),
            swapping: tokio::sync::Mutex::default(),
            claims_held: watch::Sender::new(false),
            leases: Mutex::default(),
            outages: Outages::at_start(now, Outages::before(&*store)),
            latest: AtomicI64::new(i64::MIN),
            calendar,
            store,
        });
        inner.store.listen(inner.ready_notifier.clone());
        if inner.store.shared().is_some() {
            tokio::spawn(other_servers::run(inner.clock.clone(), Arc::downgrade(&inner)));
        }
        tokio::spawn(wall_clock::watch(inner.clock.clone(), Arc::downgrade(&inner)));
        tokio::spawn(scheduler::run(inner.timers.clone(), inner.clock.clone(), Arc::downgrade(&inner)));
        let engine = Engine { inner, who: None, is_exempt: false, scope: Scope::default() };
        engine.load_quotas().await?;
        engine.load_queue_settings().await?;
        Ok(engine)
    }

    /// Handle whose changes are recorded with the jobs as made by `who`.
    pub fn on_behalf_of(&self, who: &str) -> Engine {
        Engine { who: Some(who.into()), ..self.clone() }
    }

    /// Handle that may access the jobs in `scope` and no others, whatever the scope of this one: see
    /// `tenants/scope.rs`.
    pub fn within(&self, scope: &Scope) -> Engine {
        Engine { scope: scope.clone(), ..self.clone() }
    }

    /// Handle whose pushes bypass the quota of their tenant, for jobs that were admitted and acknowledged
    /// before.
    pub fn exempt(&self) -> Engine {
        Engine { is_exempt: true, ..self.clone() }
    }

    /// Current time on the engine's timeline; never goes back while the server runs.
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Waits until the engine's clock shows `at` or later.
    pub async fn sleep_until(&self, at: Timestamp) {
        self.inner.clock.sleep_until(at).await;
    }

    /// Size limits of calls.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// True if other servers may use the same store. If not, jobs that a previous server process ran itself have
    /// no holder any more.
    pub fn is_shared(&self) -> bool {
        self.inner.store.shared().is_some()
    }

    /// `None`: there is no such job, or it belongs to another tenant.
    pub async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>, EngineError> {
        self.inner.open()?;
        self.check_count(ids.len())?;
        let jobs = self.inner.store.load(ids).await?;
        Ok(jobs.into_iter().map(|job| job.filter(|job| self.reaches_job(tenant, job))).collect())
    }

    /// Running job from the lease table, without a query. `None`: it was not claimed here, or the store is
    /// shared and another server may have changed it.
    pub fn running(&self, tenant: &Tenant, id: JobId) -> Option<Arc<Job>> {
        if self.is_shared() {
            return None;
        }
        self.inner.leases().get(id).filter(|job| self.reaches_job(tenant, job))
    }

    pub async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.find_alias(tenant, alias).await?;
        if self.scope.is_everything() {
            return Ok(found);
        }
        Ok(self.get(tenant, found.into_iter().collect()).await?.pop().flatten().map(|job| job.id))
    }

    /// Any job of this queue with exactly this name, in any state.
    pub async fn find_named(
        &self,
        tenant: &Tenant,
        queue: &Queue,
        name: &Name,
    ) -> Result<Option<JobId>, EngineError> {
        self.inner.open()?;
        if !self.reaches(queue, name) {
            return Ok(None);
        }
        Ok(self.inner.store.find_named(tenant, queue, name).await?)
    }

    /// Estimated id of the next new job; concurrent pushes may take it.
    pub async fn next_id(&self) -> Result<JobId, EngineError> {
        self.inner.open()?;
        Ok(self.inner.store.next_id().await?)
    }

    /// Children ordered by id.
    pub async fn children(&self, tenant: &Tenant, parent: JobId) -> Result<Vec<Arc<Job>>, EngineError> {
        self.inner.open()?;
        let ids = self.inner.store.children(parent).await?;
        let jobs = self.inner.store.load(ids).await?;
        Ok(jobs.into_iter().flatten().filter(|job| self.reaches_job(tenant, job)).collect())
    }

    /// First `limit` children, and the total number of children.
    pub async fn some_children(
        &self,
        tenant: &Tenant,
        parent: JobId,
        limit: usize,
    ) -> Result<(Vec<Arc<Job>>, usize), EngineError> {
        self.inner.open()?;
        let mut ids = self.inner.store.children(parent).await?;
        let count = ids.len();
        ids.truncate(limit);
        let jobs = self.inner.store.load(ids).await?;
        Ok((jobs.into_iter().flatten().filter(|job| self.reaches_job(tenant, job)).collect(), count))
    }

    /// Waits until a job settles. Returns its final version even if the keep policy deletes it at once.
    pub async fn wait_settled(
        &self,
        tenant: &Tenant,
        id: JobId,
        wait_ms: u64,
    ) -> Result<Waited, EngineError> {
        // Registered before the query, so that no end between the two is missed.
        let mut watcher = self.inner.settle_waiters.watch(id);
        let Some(job) = self.get(tenant, vec![id]).await?.pop().flatten() else { return Ok(Waited::Unknown) };
        if job.state().is_settled() {
            return Ok(Waited::Settled(job));
        }
        tokio::select! {
            biased;
            ending = watcher.ended() => Ok(ending.map_or(Waited::Unknown, Waited::Settled)),
            ending = self.inner.settled_elsewhere(tenant, id) => ending,
            () = self.inner.clock.sleep_ms(wait_ms) => {
                let job = self.get(tenant, vec![id]).await?.pop().flatten();
                Ok(match job {
                    Some(job) if job.state().is_settled() => Waited::Settled(job),
                    Some(job) => Waited::NotYet(job),
                    None => Waited::Unknown,
                })
            }
            () = self.inner.shutdown.closed() => Err(EngineError::ShuttingDown),
        }
    }

    /// Lists jobs. The caller sets `filter.tenant`; `None` lists all tenants.
    pub async fn list(&self, filter: Filter) -> Result<Page, EngineError> {
        self.inner.open()?;
        Ok(self.inner.store.list(Filter { scope: self.scope.clone(), ..filter }).await?)
    }

    /// Job counts by queue and state; `None`: of all tenants. Queues that the scope of this handle covers
    /// only in part are left out, because their counts would reveal other jobs.
    pub async fn counts(&self, tenant: Option<&Tenant>) -> Result<Vec<QueueCounts>, EngineError> {
        self.inner.open()?;
        let mut counts = self.inner.store.counts(tenant, self.now()).await?;
        counts.retain(|counts| self.scope.allows_queue(&counts.queue));
        Ok(counts)
    }

    /// True if [`Engine::counts`] leaves out no job that this handle reaches.
    pub fn counts_are_whole(&self) -> bool {
        self.scope.has_whole_queues()
    }

    /// Names in this queue with claimable jobs, of all tenants.
    pub async fn waiting(&self, queue: &Queue) -> Result<Vec<WaitingName>, EngineError> {
        self.inner.open()?;
        let mut waiting = self.inner.store.waiting(queue, self.now()).await?;
        waiting.retain(|waiting| self.reaches(queue, &waiting.name));
        Ok(waiting)
    }

    /// Notification of claimable jobs in this queue, of any tenant, for dispatchers that claim without
    /// waiting. Subscribe before the first query, so that no notification is missed.
    pub fn subscribe_ready(&self, queue: &Queue) -> Arc<Notify> {
        self.inner.ready_notifier.subscribe(queue)
    }

    /// Pauses or resumes a queue. A paused queue hands out no jobs; running jobs continue.
    pub async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<(), EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_queue(queue)?;
        Ok(in_flight.store.set_paused(tenant, queue, paused).await?)
    }

    /// Writes a small durable value that belongs to no job, such as a registration; `None` deletes it. `key`
    /// begins with the name of its owner.
    pub async fn put_note(&self, key: &str, value: Option<Vec<u8>>) -> Result<(), EngineError> {
        let in_flight = self.inner.enter()?;
        Ok(in_flight.store.put_setting(&format!("{NOTES}{key}"), value).await?)
    }

    /// Deletes these notes in one commit.
    pub async fn drop_notes(&self, keys: &[String]) -> Result<(), EngineError> {
        let in_flight = self.inner.enter()?;
        let settings = keys.iter().map(|key| (format!("{NOTES}{key}"), None)).collect();
        in_flight.commit(vec![Step { settings, ..Step::default() }], in_flight.now()).await?;
        Ok(())
    }

    /// Compare-and-swap of a note: writes `value` if the note equals `expected` (`None`: absent), else
    /// returns `false`. Atomic across all servers of a store. After an error the note may have been written.
    pub async fn swap_note(
        &self,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<bool, EngineError> {
        let in_flight = self.inner.enter()?;
        let key = format!("{NOTES}{key}");
        if let Some(shared) = in_flight.store.shared() {
            return Ok(shared.swap_setting(&key, expected, value).await?);
        }
        let _swapping = in_flight.swapping.lock().await;
        let found = in_flight.store.settings(&key).await?;
        let is_expected =
            found.into_iter().find(|(known, _)| *known == key).map(|(_, value)| value) == expected;
        if is_expected {
            in_flight.store.put_setting(&key, Some(value)).await?;
        }
        Ok(is_expected)
    }

    /// Notes whose key begins with `prefix`, ordered by key.
    pub async fn notes(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.settings(&format!("{NOTES}{prefix}")).await?;
        Ok(found.into_iter().map(|(key, value)| (key[NOTES.len()..].to_owned(), value)).collect())
    }

    /// Keys of the notes that begin with `prefix`, without the values, which may be large.
    pub async fn note_keys(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.setting_keys(&format!("{NOTES}{prefix}")).await?;
        Ok(found.into_iter().map(|key| key[NOTES.len()..].to_owned()).collect())
    }

    /// Subscribes to the events of all tenants and queues; check [`Engine::reaches`] before passing one on.
    pub fn events(&self) -> broadcast::Receiver<Arc<FeedEvent>> {
        self.inner.feed.listen()
    }

    pub fn meters(&self) -> &Meters {
        &self.inner.meters
    }

    /// Number of waiting claims.
    pub fn waiters(&self) -> usize {
        self.inner.ready_notifier.waiters()
    }

    /// Workers with waiting claims, by name, and the number of their claims. Claims without a worker name are
    /// left out.
    pub fn waiting_workers(&self) -> BTreeMap<(Tenant, Arc<str>), usize> {
        self.inner.ready_notifier.waiting_workers()
    }

    /// Number of running jobs that were claimed through this server.
    pub fn leases_held(&self) -> usize {
        self.inner.leases().len()
    }

    pub fn store_meters(&self) -> Arc<windlass_store::meters::Meters> {
        self.inner.store.meters()
    }

    pub async fn health(&self) -> Result<(), EngineError> {
        self.inner.open()?;
        Ok(self.inner.store.health().await?)
    }

    /// Stops the engine: waiting claims return empty, new calls are refused, calls in flight complete, and
    /// the store is closed.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        if !inner.shutdown.close() {
            return;
        }
        inner.ready_notifier.wake_all();
        inner.timers.close();
        tokio::select! {
            () = inner.shutdown.emptied() => {}
            () = inner.clock.sleep_ms(SHUTDOWN_WAIT_MS) => tracing::warn!("closing the store although some calls have not ended"),
        }
        inner.note_time().await;
        if let Err(error) = inner.store.close().await {
            tracing::error!(%error, "cannot close the store");
        }
    }

    pub(crate) fn check_count(&self, count: usize) -> Result<(), EngineError> {
        let max = self.inner.options.batch_max;
        if count > max { Err(EngineError::TooMany { count, max }) } else { Ok(()) }
    }

    pub(crate) fn check_payloads<'a>(
        &self,
        payloads: impl Iterator<Item = Option<&'a Payload>>,
    ) -> Result<(), EngineError> {
        let max = self.inner.options.payload_bytes_max;
        match payloads.flatten().map(|payload| payload.bytes.len()).find(|bytes| *bytes > max) {
            Some(bytes) => Err(EngineError::TooLarge { bytes, max }),
            None => Ok(()),
        }
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Timestamp {
        let seen = self.clock.now().as_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if seen <= latest {
            return Timestamp::from_millis(latest);
        }
        Timestamp::from_millis(self.latest.fetch_max(seen, Ordering::Relaxed).max(seen))
    }

    pub(crate) fn open(&self) -> Result<(), EngineError> {
        if self.shutdown.is_closing() { Err(EngineError::ShuttingDown) } else { Ok(()) }
    }

    /// Counts the call before checking for a shutdown, because a shutdown waits for all counted calls.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<InFlight, EngineError> {
        let in_flight = InFlight::new(self);
        self.open()?;
        Ok(in_flight)
    }

    pub(crate) async fn commit(
        &self,
        mut steps: Vec<Step>,
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        if let Some(step) = steps.first_mut() {
            step.settings.extend(self.calendar.note_time(now));
        }
        self.store.commit(steps, now).await.map_err(|error| self.query_due_if_unknown(error))
    }

    /// After an unknown outcome the store may contain deadlines that are not planned here: the scheduler has
    /// to query it.
    pub(crate) fn query_due_if_unknown(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Unknown(_)) {
            self.timers.plan(self.now());
        }
        error
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock()
    }

    /// Runs to completion even if the caller stops waiting.
    pub(crate) fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Detached<Result<T, EngineError>> {
        Detached::new(self.runtime.clone(), work)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timers.close();
    }
}
