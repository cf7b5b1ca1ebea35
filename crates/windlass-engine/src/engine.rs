//! [`Engine`]: the only way to change a job. What is not here cannot be done to a job.
//!
//! The longer verbs have files of their own: `push.rs`, `claim.rs`, `runs.rs` (settle, extend, report), `act.rs`,
//! `limits.rs`.

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
use crate::tables::settle_waiters::Registry;
use crate::tables::timers::Timers;
use crate::tenants::limits::LimitTables;
use crate::tenants::quota::Quotas;
use crate::time::clock::Clock;
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

/// Where notes are kept among the store's settings.
pub(crate) const NOTES: &str = "note/";
/// How long verbs on their way may take to end before the store is closed under them.
const FAREWELL_MS: u64 = 10_000;

/// A cheap handle; clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    /// Whose acts these are, where that is to be remembered.
    pub(crate) who: Option<Arc<str>>,
    /// Pushes what was admitted before.
    pub(crate) is_exempt: bool,
    /// Which jobs it reaches.
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
    pub(crate) registry: Arc<Registry>,
    pub(crate) lease_watch: LeaseWatch,
    pub(crate) family_locks: FamilyLocks,
    pub(crate) job_queues: JobQueues,
    pub(crate) feed: Feed,
    pub(crate) meters: Meters,
    pub(crate) shutdown: Shutdown,
    /// Held while what is due is handled.
    pub(crate) stepping: tokio::sync::Mutex<()>,
    /// Held while a note is compared and written, on stores that nobody else works on.
    pub(crate) swapping: tokio::sync::Mutex<()>,
    /// Whether claims wait for the server to have started.
    pub(crate) claims_held: watch::Sender<bool>,
    leases: Mutex<Leases>,
    /// The latest moment that was seen: time must not run twice, whatever a clock says.
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
        let limits = LimitTables::load(&*store, timers.clone(), clock.now()).await?;
        let inner = Arc::new(Inner {
            clock,
            random,
            runtime: Handle::current(),
            ready_notifier: Arc::default(),
            timers,
            limits: Arc::new(limits),
            quotas: Quotas::new(&options),
            options,
            registry: Arc::default(),
            lease_watch: LeaseWatch::default(),
            family_locks: FamilyLocks::new(),
            job_queues: JobQueues::default(),
            feed: Feed::new(),
            meters: Meters::default(),
            shutdown: Shutdown::default(),
            stepping: tokio::sync::Mutex::default(),
            swapping: tokio::sync::Mutex::default(),
            claims_held: watch::Sender::new(false),
            leases: Mutex::default(),
            latest: AtomicI64::new(i64::MIN),
            calendar,
            store,
        });
        inner.store.listen(inner.ready_notifier.clone());
        if inner.store.is_shared() {
            tokio::spawn(other_servers::run(inner.clock.clone(), Arc::downgrade(&inner)));
        }
        tokio::spawn(wall_clock::watch(inner.clock.clone(), Arc::downgrade(&inner)));
        tokio::spawn(scheduler::run(inner.timers.clone(), inner.clock.clone(), Arc::downgrade(&inner)));
        let engine = Engine { inner, who: None, is_exempt: false, scope: Scope::default() };
        engine.load_quotas().await?;
        Ok(engine)
    }

    /// A handle whose acts are remembered with the jobs as done by `who`.
    pub fn on_behalf_of(&self, who: &str) -> Engine {
        Engine { who: Some(who.into()), ..self.clone() }
    }

    /// A handle that reaches the jobs in `scope` and no others, whatever this one reaches: see `scope.rs`.
    pub fn within(&self, scope: &Scope) -> Engine {
        Engine { scope: scope.clone(), ..self.clone() }
    }

    /// A handle that pushes jobs whatever the quota of their tenant: they were acknowledged, and admitted, before.
    pub fn exempt(&self) -> Engine {
        Engine { is_exempt: true, ..self.clone() }
    }

    /// Never goes back while the server runs.
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// Until the engine's clock shows `at` or later.
    pub async fn sleep_until(&self, at: Timestamp) {
        self.inner.clock.sleep_until(at).await;
    }

    /// The bounds on what callers may ask.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Whether other servers may be at work on the same jobs. If not, whoever held one for a server is gone with it.
    pub fn is_shared(&self) -> bool {
        self.inner.store.is_shared()
    }

    /// In `0.0..1.0`, from the engine's random.
    pub fn chance(&self) -> f64 {
        self.inner.random.chance()
    }

    /// For names that nobody should guess or meet twice.
    pub fn roll(&self) -> u64 {
        self.inner.random.roll()
    }

    /// `None` where there is no such job, or it is another tenant's.
    pub async fn get(&self, tenant: &Tenant, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>, EngineError> {
        self.inner.open()?;
        self.check_count(ids.len())?;
        let jobs = self.inner.store.load(ids).await?;
        Ok(jobs.into_iter().map(|job| job.filter(|job| self.reaches_job(tenant, job))).collect())
    }

    /// A running job, without asking the store. `None`: it is not known here, or others may have changed it since.
    pub fn running(&self, tenant: &Tenant, id: JobId) -> Option<Arc<Job>> {
        if self.inner.store.is_shared() {
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

    /// Some job of this queue with exactly this name, in whatever state.
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

    /// The id that the next new job will have, as far as can be told: others make jobs too.
    pub async fn next_id(&self) -> Result<JobId, EngineError> {
        self.inner.open()?;
        Ok(self.inner.store.next_id().await?)
    }

    /// In the order of their ids.
    pub async fn children(&self, tenant: &Tenant, parent: JobId) -> Result<Vec<Arc<Job>>, EngineError> {
        self.inner.open()?;
        let ids = self.inner.store.children(parent).await?;
        let jobs = self.inner.store.load(ids).await?;
        Ok(jobs.into_iter().flatten().filter(|job| self.reaches_job(tenant, job)).collect())
    }

    /// The first `limit` of its children, and how many it has in all.
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

    /// Waits for the end of a job. What it was when it ended is given even if its keep policy drops it at once.
    pub async fn wait_settled(
        &self,
        tenant: &Tenant,
        id: JobId,
        wait_ms: u64,
    ) -> Result<Waited, EngineError> {
        // In the register before looking: what settles after the look finds us there.
        let mut watcher = self.inner.registry.watch(id);
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

    /// `filter.tenant` is the caller's to fill in: `None` shows all tenants.
    pub async fn list(&self, filter: Filter) -> Result<Page, EngineError> {
        self.inner.open()?;
        Ok(self.inner.store.list(Filter { scope: self.scope.clone(), ..filter }).await?)
    }

    /// By queue and state; `None`: of all tenants. Queues of which this handle reaches a part only are left out: their figures
    /// would tell of the rest.
    pub async fn counts(&self, tenant: Option<&Tenant>) -> Result<Vec<QueueCounts>, EngineError> {
        self.inner.open()?;
        let mut counts = self.inner.store.counts(tenant, self.now()).await?;
        counts.retain(|counts| self.scope.allows_queue(&counts.queue));
        Ok(counts)
    }

    /// The names in this queue of which jobs could be handed out now, of all tenants.
    pub async fn waiting(&self, queue: &Queue) -> Result<Vec<WaitingName>, EngineError> {
        self.inner.open()?;
        let mut waiting = self.inner.store.waiting(queue, self.now()).await?;
        waiting.retain(|waiting| self.reaches(queue, &waiting.name));
        Ok(waiting)
    }

    /// Notified whenever jobs of this queue become ready, whoever's they are: for those who hand them out themselves.
    /// Ask once and look after that, so that nothing falls between.
    pub fn ready_news(&self, queue: &Queue) -> Arc<Notify> {
        self.inner.ready_notifier.news_of(queue)
    }

    /// No job of a paused queue is handed out; what runs goes on.
    pub async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<(), EngineError> {
        let visit = self.inner.enter()?;
        self.check_queue(queue)?;
        Ok(visit.store.set_paused(tenant, queue, paused).await?)
    }

    /// A small durable value that belongs to no job, such as who has registered; `None` forgets it. `key` begins with the
    /// name of whoever keeps it.
    pub async fn put_note(&self, key: &str, value: Option<Vec<u8>>) -> Result<(), EngineError> {
        let visit = self.inner.enter()?;
        Ok(visit.store.put_setting(&format!("{NOTES}{key}"), value).await?)
    }

    /// Writes a note if it is still as expected (`None`: not there), and answers whether it did. Of several who try at once, on
    /// all servers of a store, one does. After an error it may have happened all the same.
    pub async fn swap_note(
        &self,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<bool, EngineError> {
        let visit = self.inner.enter()?;
        let key = format!("{NOTES}{key}");
        if visit.store.is_shared() {
            return Ok(visit.store.swap_setting(&key, expected, value).await?);
        }
        let _turn = visit.swapping.lock().await;
        let found = visit.store.settings(&key).await?;
        let is_expected =
            found.into_iter().find(|(known, _)| *known == key).map(|(_, value)| value) == expected;
        if is_expected {
            visit.store.put_setting(&key, Some(value)).await?;
        }
        Ok(is_expected)
    }

    /// All notes whose key begins so, sorted by key.
    pub async fn notes(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.settings(&format!("{NOTES}{prefix}")).await?;
        Ok(found.into_iter().map(|(key, value)| (key[NOTES.len()..].to_owned(), value)).collect())
    }

    /// Only their keys: values may be large.
    pub async fn note_keys(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        self.inner.open()?;
        let found = self.inner.store.setting_keys(&format!("{NOTES}{prefix}")).await?;
        Ok(found.into_iter().map(|key| key[NOTES.len()..].to_owned()).collect())
    }

    /// What happens from here on, of all tenants and queues: [`Engine::reaches`] says what may be told of it.
    pub fn events(&self) -> broadcast::Receiver<Arc<FeedEvent>> {
        self.inner.feed.listen()
    }

    pub fn meters(&self) -> &Meters {
        &self.inner.meters
    }

    /// Claims that wait now.
    pub fn waiters(&self) -> usize {
        self.inner.ready_notifier.waiters()
    }

    /// Workers that wait for jobs now, of those that said their name, and how many claims of theirs wait.
    pub fn waiting_workers(&self) -> BTreeMap<(Tenant, Arc<str>), usize> {
        self.inner.ready_notifier.waiting_workers()
    }

    /// Running jobs that were claimed through this server.
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

    /// Waiting claims come back empty, new calls are refused, what is on its way ends, the store is closed.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        if !inner.shutdown.close() {
            return;
        }
        inner.ready_notifier.wake_all();
        inner.timers.close();
        tokio::select! {
            () = inner.shutdown.emptied() => {}
            () = inner.clock.sleep_ms(FAREWELL_MS) => tracing::warn!("closing the store while calls are on their way"),
        }
        inner.note_time().await;
        if let Err(error) = inner.store.close().await {
            tracing::error!(%error, "closing the store");
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

    /// In first, then a look at the sign: whoever shuts down waits for those inside.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<InFlight, EngineError> {
        let visit = InFlight::new(self);
        self.open()?;
        Ok(visit)
    }

    pub(crate) async fn commit(
        &self,
        mut steps: Vec<Step>,
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        if let Some(step) = steps.first_mut() {
            step.settings.extend(self.calendar.note_time(now));
        }
        self.store.commit(steps, now).await.map_err(|error| self.unsure(error))
    }

    /// What may have been written may have deadlines that nobody told us of: the scheduler asks the store.
    pub(crate) fn unsure(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Unknown(_)) {
            self.timers.plan(self.now());
        }
        error
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock()
    }

    /// Runs to its end even if the caller stops waiting.
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
