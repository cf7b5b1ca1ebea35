//! Fault-injecting store, to test the code above it.
//!
//! ```
//! # use std::sync::Arc;
//! # use windlass_store::faulty::{Call, FaultyStore, Kind};
//! # use windlass_store::memory::MemoryStore;
//! let (store, faults) = FaultyStore::new(Arc::new(MemoryStore::new()));
//! faults.fail_next_call(Call::Commit, 2, Kind::AfterDoing);
//! # let _ = store;
//! ```

use crate::meters::Meters;
use crate::{
    AuditBounds, AuditEntry, AuditFilter, AuditLog, ClaimAsk, Due, Filter, Gate, KeyRule, LimitUse, Listener,
    Lookup, Page, QueueCounts, Restore, Result, Settings, SharedStore, Step, Store, StoreError, UnderLimits,
    Verdict, WaitingName,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::{Job, JobId, Name, Queue, Tenant, Timestamp};

/// Fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call is not made and returns `Unavailable`.
    BeforeDoing,
    /// The call is made but returns `Unknown`.
    AfterDoing,
    /// The call is not made and returns `Unknown`.
    Lost,
    /// The call is made after this delay.
    Delay(Duration),
    /// The call is made after `Faults::release`.
    Hold,
    /// The call is made, but its answer is held until `Faults::release`.
    HoldAnswer,
}

/// Kind of call that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Commit,
    Claim,
    Due,
    /// `load`, `find_alias`, `find_aliases`, `find_named`, `children`, `list`, `counts`, `waiting`, `next_id` and
    /// `settings`.
    Read,
    /// `put_setting`, `swap_setting`, `refund`, `set_paused` and `restore`.
    Set,
    Health,
}

/// Handle by which a test injects faults. Clones control the same store.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    /// Faults in order; a call takes the first that applies to it. `None` applies to any call.
    script: Mutex<VecDeque<(Option<Call>, Kind)>>,
    /// Jobs that their next load does not find.
    hidden: Mutex<Vec<JobId>>,
    /// Claims so far.
    claims: AtomicUsize,
    /// Calls held since the last release.
    held: watch::Sender<usize>,
    /// Number of releases; a held call waits until it exceeds the number at its arrival.
    releases: watch::Sender<usize>,
}

impl Faults {
    fn new() -> Faults {
        let (held, releases) = (watch::Sender::new(0), watch::Sender::new(0));
        let claims = AtomicUsize::new(0);
        let shared = Shared { script: Mutex::default(), hidden: Mutex::default(), claims, held, releases };
        Faults { shared: Arc::new(shared) }
    }

    /// Injects a fault into the next `count` calls of any kind.
    pub fn fail_next(&self, count: usize, kind: Kind) {
        self.script().extend(std::iter::repeat_n((None, kind), count));
    }

    /// Injects a fault into the next `count` calls of this kind; other calls pass.
    pub fn fail_next_call(&self, call: Call, count: usize, kind: Kind) {
        self.script().extend(std::iter::repeat_n((Some(call), kind), count));
    }

    /// Makes the next load miss this job, as if it had read just before the commit that created the job.
    pub fn hide(&self, id: JobId) {
        self.hidden().push(id);
    }

    /// Number of faults that have not happened yet.
    pub fn pending(&self) -> usize {
        self.script().len() + self.hidden().len()
    }

    /// Number of claims that the store was asked for.
    pub fn claims(&self) -> usize {
        self.shared.claims.load(Ordering::SeqCst)
    }

    /// Removes all faults and releases held calls.
    pub fn clear(&self) {
        self.script().clear();
        self.hidden().clear();
        self.release();
    }

    /// Waits until this many calls are held.
    pub async fn until_held(&self, count: usize) {
        let mut held = self.shared.held.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = held.wait_for(|held| *held >= count).await;
    }

    /// Releases all held calls.
    pub fn release(&self) {
        self.shared.held.send_replace(0);
        self.shared.releases.send_modify(|releases| *releases += 1);
    }

    fn take(&self, call: Call) -> Option<Kind> {
        let mut script = self.script();
        let place = script.iter().position(|(meant, _)| meant.is_none_or(|meant| meant == call))?;
        script.remove(place).map(|(_, kind)| kind)
    }

    /// True once if the next load is to miss this job.
    fn hides(&self, id: JobId) -> bool {
        let mut hidden = self.hidden();
        let place = hidden.iter().position(|other| *other == id);
        place.map(|place| hidden.swap_remove(place)).is_some()
    }

    fn hidden(&self) -> parking_lot::MutexGuard<'_, Vec<JobId>> {
        self.shared.hidden.lock()
    }

    fn script(&self) -> parking_lot::MutexGuard<'_, VecDeque<(Option<Call>, Kind)>> {
        self.shared.script.lock()
    }

    /// Makes the call with the fault that applies to it, if any.
    async fn play<T>(&self, call: Call, doing: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.take(call) {
            None => doing.await,
            Some(Kind::BeforeDoing) => {
                Err(StoreError::Unavailable(format!("a fault before {call:?}, as the test asked")))
            }
            Some(Kind::AfterDoing) => {
                doing.await?;
                Err(StoreError::Unknown(format!("a fault after {call:?}, as the test asked")))
            }
            Some(Kind::Lost) => {
                Err(StoreError::Unknown(format!("a fault instead of {call:?}, as the test asked")))
            }
            Some(Kind::Delay(time)) => {
                tokio::time::sleep(time).await;
                doing.await
            }
            Some(Kind::Hold) => {
                self.held().await;
                doing.await
            }
            Some(Kind::HoldAnswer) => {
                let answer = doing.await;
                self.held().await;
                answer
            }
        }
    }

    /// Waits for the next release.
    async fn held(&self) {
        let mut releases = self.shared.releases.subscribe();
        let before = *releases.borrow();
        self.shared.held.send_modify(|held| *held += 1);
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = releases.wait_for(|releases| *releases > before).await;
    }
}

pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Faults,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn Store>) -> (Arc<FaultyStore>, Faults) {
        let faults = Faults::new();
        (Arc::new(FaultyStore { inner, faults: faults.clone() }), faults)
    }

    fn shared_inner(&self) -> &dyn SharedStore {
        self.inner.shared().expect("`shared` is the only way to a call of a shared store")
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn commit(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Verdict>> {
        self.faults.play(Call::Commit, self.inner.commit(steps, now)).await
    }

    async fn claim(&self, ask: ClaimAsk, now: Timestamp) -> Result<Vec<Arc<Job>>> {
        self.faults.shared.claims.fetch_add(1, Ordering::SeqCst);
        self.faults.play(Call::Claim, self.inner.claim(ask, now)).await
    }

    async fn load(&self, ids: Vec<JobId>) -> Result<Vec<Option<Arc<Job>>>> {
        let jobs = self.faults.play(Call::Read, self.inner.load(ids.clone())).await?;
        let found = |(id, job): (JobId, Option<Arc<Job>>)| job.filter(|_| !self.faults.hides(id));
        Ok(ids.into_iter().zip(jobs).map(found).collect())
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due> {
        self.faults.play(Call::Due, self.inner.due(now, limit)).await
    }

    async fn set_paused(&self, tenant: &Tenant, queue: &Queue, paused: bool) -> Result<()> {
        self.faults.play(Call::Set, self.inner.set_paused(tenant, queue, paused)).await
    }

    fn reopen(&self, limit_key: &str) {
        self.inner.reopen(limit_key);
    }

    fn blobs(&self) -> Arc<dyn crate::blobs::BlobStore> {
        self.inner.blobs()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.inner.listen(listener);
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        self.inner.shared().map(|_| self as &dyn SharedStore)
    }

    async fn health(&self) -> Result<()> {
        self.faults.play(Call::Health, self.inner.health()).await
    }

    fn meters(&self) -> Arc<Meters> {
        self.inner.meters()
    }

    /// Never fails, so that a test can end.
    async fn close(&self) -> Result<()> {
        self.faults.clear();
        self.inner.close().await
    }
}

#[async_trait]
impl Lookup for FaultyStore {
    async fn find_alias(&self, tenant: &Tenant, alias: &str) -> Result<Option<JobId>> {
        self.faults.play(Call::Read, self.inner.find_alias(tenant, alias)).await
    }

    async fn find_aliases(&self, tenants: &[Tenant], alias: &str) -> Result<Vec<JobId>> {
        self.faults.play(Call::Read, self.inner.find_aliases(tenants, alias)).await
    }

    async fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Result<Option<JobId>> {
        self.faults.play(Call::Read, self.inner.find_named(tenant, queue, name)).await
    }

    async fn children(&self, parent: JobId) -> Result<Vec<JobId>> {
        self.faults.play(Call::Read, self.inner.children(parent)).await
    }

    async fn list(&self, filter: Filter) -> Result<Page> {
        self.faults.play(Call::Read, self.inner.list(filter)).await
    }

    async fn next_id(&self) -> Result<JobId> {
        self.faults.play(Call::Read, self.inner.next_id()).await
    }

    async fn payload_bytes(&self, tenant: &Tenant) -> Result<u64> {
        self.faults.play(Call::Read, self.inner.payload_bytes(tenant)).await
    }

    async fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Result<Vec<QueueCounts>> {
        self.faults.play(Call::Read, self.inner.counts(tenant, now)).await
    }

    async fn waiting(&self, queue: &Queue, now: Timestamp) -> Result<Vec<WaitingName>> {
        self.faults.play(Call::Read, self.inner.waiting(queue, now)).await
    }

    async fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Result<Vec<UnderLimits>> {
        self.faults.play(Call::Read, self.inner.under_limits(tenant, now)).await
    }
}

#[async_trait]
impl AuditLog for FaultyStore {
    async fn append_audit(&self, entries: Vec<AuditEntry>, bounds: AuditBounds) -> Result<()> {
        self.faults.play(Call::Set, self.inner.append_audit(entries, bounds)).await
    }

    async fn list_audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>> {
        self.faults.play(Call::Read, self.inner.list_audit(filter)).await
    }
}

#[async_trait]
impl Settings for FaultyStore {
    async fn put_setting(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        self.faults.play(Call::Set, self.inner.put_setting(key, value)).await
    }

    async fn settings(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        self.faults.play(Call::Read, self.inner.settings(prefix)).await
    }

    async fn setting_keys(&self, prefix: &str) -> Result<Vec<String>> {
        self.faults.play(Call::Read, self.inner.setting_keys(prefix)).await
    }
}

#[async_trait]
impl Restore for FaultyStore {
    async fn restore(&self, jobs: Vec<Arc<Job>>, next: JobId, keys: KeyRule) -> Result<()> {
        self.faults.play(Call::Set, self.inner.restore(jobs, next, keys)).await
    }
}

#[async_trait]
impl SharedStore for FaultyStore {
    async fn limit_use(&self, tenant: &Tenant, keys: &[Arc<str>]) -> Result<Vec<LimitUse>> {
        self.faults.play(Call::Read, self.shared_inner().limit_use(tenant, keys)).await
    }

    async fn refund(&self, tenant: &Tenant, keys: &[Arc<str>], gate: Arc<dyn Gate>) -> Result<()> {
        self.faults.play(Call::Set, self.shared_inner().refund(tenant, keys, gate)).await
    }

    async fn swap_setting(&self, key: &str, expected: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        self.faults.play(Call::Set, self.shared_inner().swap_setting(key, expected, value)).await
    }

    async fn unchecked(&self, limit: usize) -> Result<Vec<JobId>> {
        self.faults.play(Call::Read, self.shared_inner().unchecked(limit)).await
    }

    fn clock_ahead_ms(&self) -> Option<Arc<AtomicI64>> {
        self.shared_inner().clock_ahead_ms()
    }

    fn seen_before(&self) -> Option<Timestamp> {
        self.shared_inner().seen_before()
    }

    fn calendar(&self) -> Option<crate::calendar::Kept> {
        self.shared_inner().calendar()
    }
}
