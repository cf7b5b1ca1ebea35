//! Limits of each tenant: what a job has to pass before it may start, and what it frees when its run has ended.
//!
//! A job carries the keys of its limits with it (`extras.limit_keys`), worked out when it is made and anew when limits
//! change. So a claim never looks at a payload, and a job held back is not looked at again before its key opens.

use crate::args::decoded;
use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::settle::Ask;
use crate::timers::Timers;
use crate::verbs::{HeldBy, LimitView};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::event::Patch;
use windlass_core::limits::{Limit, Limits, Subject, Tokens};
use windlass_core::{Event, Extras, Job, JobId, JobSpec, StateName, Tenant, Timestamp};
use windlass_store::{Filter, Gate, Held, LimitUse, Store, StoreError};

/// Where limits are kept among the store's settings: `limit/{tenant}/{id}`.
const PREFIX: &str = "limit/";
/// Jobs looked at between two breaths when limits change.
const RELIMIT_PAGE: usize = 1_000;
/// When to look again for a place among jobs that may run at once, if other servers may free one.
const LOOK_AGAIN_MS: i64 = 100;
/// What ends the limit's id in a key and begins the group.
const KEY_SEPARATOR: char = '\u{1f}';

pub(crate) struct LimitTables {
    tenants: Mutex<FxHashMap<Tenant, Table>>,
    /// Tenants that have limits; read without the lock, so that without limits nobody pays for them.
    count: AtomicUsize,
    /// Grows with every change: who worked out keys before has to do so again.
    epoch: AtomicU64,
    timers: Arc<Timers>,
    /// Other servers start jobs under the same limits.
    is_shared: bool,
}

#[derive(Default)]
struct Table {
    limits: Limits,
    /// Jobs that run under each limit, whatever their group.
    running: FxHashMap<Box<str>, u64>,
}

impl Table {
    fn count(&mut self, keys: &[Arc<str>], change: i64) {
        for key in keys {
            let id = limit_of(key);
            if self.limits.get(id).is_some() {
                let running = self.running.entry(id.into()).or_default();
                *running = running.saturating_add_signed(change);
            }
        }
    }
}

fn limit_of(key: &str) -> &str {
    key.split(KEY_SEPARATOR).next().unwrap_or(key)
}

impl LimitTables {
    /// Reads the limits and charges them with what runs. Their buckets start empty: what was started just before a
    /// restart still counts.
    pub(crate) async fn load(
        store: &dyn Store,
        timers: Arc<Timers>,
        now: Timestamp,
    ) -> Result<LimitTables, EngineError> {
        let mut tenants: FxHashMap<Tenant, Table> = FxHashMap::default();
        for (tenant, limit) in stored_limits(store).await? {
            let table = tenants.entry(tenant).or_default();
            table.limits.load(limit, now).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        }
        for (tenant, table) in &mut tenants {
            let mut filter = Filter {
                tenant: Some(tenant.clone()),
                states: vec![StateName::Running],
                limit: RELIMIT_PAGE,
                ..Filter::default()
            };
            loop {
                let page = store.list(filter.clone()).await?;
                for job in page.jobs {
                    table.limits.charge_running(job.spec.limit_keys());
                    table.count(job.spec.limit_keys(), 1);
                }
                filter.before = page.next;
                if filter.before.is_none() {
                    break;
                }
            }
        }
        let count = AtomicUsize::new(tenants.len());
        let (tenants, epoch, is_shared) = (Mutex::new(tenants), AtomicU64::new(0), store.is_shared());
        Ok(LimitTables { tenants, count, epoch, timers, is_shared })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn has_any(&self, tenant: &Tenant) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.tables().contains_key(tenant)
    }

    /// `None`: the tenant has no limits, and its jobs need not be asked.
    pub(crate) fn gate(self: &Arc<Self>, tenant: &Tenant) -> Option<Arc<dyn Gate>> {
        self.has_any(tenant).then(|| self.clone() as Arc<dyn Gate>)
    }

    /// The keys of the limits that are about this job. The payload is decoded only if one of them looks at it.
    pub(crate) fn keys(&self, spec: &JobSpec) -> Vec<Arc<str>> {
        if !self.has_any(&spec.tenant) {
            return Vec::new();
        }
        let unseen = serde_json::Value::Null;
        let mut subject =
            Subject { queue: &spec.queue, name: &spec.name, priority: spec.priority, args: &unseen };
        let needs_args = match self.tables().get(&spec.tenant) {
            Some(table) => table.limits.needs_args(&subject),
            None => return Vec::new(),
        };
        // Decoded without the lock: payloads may be large.
        let args = if needs_args { decoded(&spec.payload) } else { serde_json::Value::Null };
        subject.args = &args;
        self.tables().get(&spec.tenant).map_or(Vec::new(), |table| table.limits.keys_for(&subject))
    }

    /// What is asked with what follows from it, for the job as it is.
    pub(crate) fn completed(&self, job: &Job, event: Event) -> Event {
        match event {
            Event::Update(mut patch) => {
                self.complete(job, &mut patch);
                Event::Update(patch)
            }
            Event::Restart(mut restart) => {
                self.complete(job, &mut restart.patch);
                Event::Restart(restart)
            }
            other => other,
        }
    }

    /// The keys of its limits change with what they look at, and the tie to the family is not the patch's to change.
    fn complete(&self, job: &Job, patch: &mut Patch) {
        let keys_now = job.spec.limit_keys();
        if patch.extras.is_none() && keys_now.is_empty() && !self.has_any(&job.spec.tenant) {
            return;
        }
        let mut spec = JobSpec::clone(&job.spec);
        spec.payload = patch.payload.clone().unwrap_or(spec.payload);
        spec.name = patch.name.clone().unwrap_or(spec.name);
        spec.queue = patch.queue.clone().unwrap_or(spec.queue);
        spec.priority = patch.priority.unwrap_or(spec.priority);
        let keys = self.keys(&spec);
        if patch.extras.is_none() && keys == keys_now {
            return;
        }
        let mut extras = patch.extras.take().or_else(|| job.spec.extras.clone()).unwrap_or_default();
        extras.family = job.spec.family().cloned();
        extras.limit_keys = keys;
        patch.extras = Some(extras);
    }

    /// Limits that were set while a job was settled are not written into it; one that is started over comes under them.
    pub(crate) fn started_over(&self, before: &Job, after: &mut Job) {
        if !before.state().is_settled() || after.state().is_settled() {
            return;
        }
        let keys = self.keys(&after.spec);
        if keys != after.spec.limit_keys() {
            let spec = Arc::make_mut(&mut after.spec);
            spec.extras.get_or_insert_default().limit_keys = keys;
            spec.extras.take_if(|extras| **extras == Extras::default());
        }
    }

    /// A job was written: what it does not hold any more is freed, what it holds besides is charged.
    pub(crate) fn moved(&self, store: &dyn Store, before: &Job, after: Option<&Job>) {
        let held = held_keys(Some(before));
        let holds = held_keys(after);
        if held == holds || self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let freed: Vec<Arc<str>> = held.iter().filter(|key| !holds.contains(key)).cloned().collect();
        let gained: Vec<Arc<str>> = holds.iter().filter(|key| !held.contains(key)).cloned().collect();
        // With several servers the store counts, and a claim may have been told of this already.
        if !store.is_shared()
            && let Some(table) = self.tables().get_mut(&before.spec.tenant)
        {
            table.limits.end(&freed);
            table.count(&freed, -1);
            table.limits.charge_running(&gained);
            table.count(&gained, 1);
        }
        freed.iter().for_each(|key| store.reopen(key));
    }

    /// A run that was given back as if it had never been: its tokens return, and may let another start.
    pub(crate) fn refund(&self, store: &dyn Store, job: &Job, now: Timestamp) {
        let keys = job.spec.limit_keys();
        if keys.is_empty() {
            return;
        }
        if !store.is_shared()
            && let Some(table) = self.tables().get_mut(&job.spec.tenant)
        {
            table.limits.refund(keys, now);
        }
        keys.iter().for_each(|key| store.reopen(key));
    }

    fn held_by(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Option<HeldBy> {
        self.tables().get_mut(tenant).and_then(|table| held_by(&mut table.limits, keys, now))
    }

    /// The tenant's limits, charged with this; claims have their own, which they charge while they hold the keys.
    fn charged_with(&self, tenant: &Tenant, used: Vec<LimitUse>, now: Timestamp) -> Limits {
        let mut limits = self.tables().get(tenant).map(|table| table.limits.clone()).unwrap_or_default();
        for LimitUse { key, running, bucket } in used {
            limits.adopt(&key, running, bucket.as_deref().and_then(Tokens::from_bytes), now);
        }
        limits
    }

    fn set(&self, tenant: &Tenant, limit: Limit, now: Timestamp) -> Result<(), EngineError> {
        let mut tables = self.tables();
        let table = tables.entry(tenant.clone()).or_default();
        let max = windlass_core::limits::LIMITS_MAX;
        let set = table.limits.set(limit, now);
        self.changed(&mut tables);
        set.map_err(|_| EngineError::TooMany { count: max + 1, max })
    }

    fn remove(&self, tenant: &Tenant, id: &str) -> bool {
        let mut tables = self.tables();
        let Some(table) = tables.get_mut(tenant) else { return false };
        let removed = table.limits.remove(id).is_some();
        table.running.remove(id);
        self.changed(&mut tables);
        removed
    }

    fn changed(&self, tables: &mut FxHashMap<Tenant, Table>) {
        tables.retain(|_, table| !table.limits.is_empty());
        self.count.store(tables.len(), Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes over the limits that other servers have set, changed and removed. Gives the tenants whose limits are not what
    /// they were.
    pub(crate) async fn reload(
        &self,
        store: &dyn Store,
        now: Timestamp,
    ) -> Result<BTreeSet<Tenant>, EngineError> {
        let mut stored: FxHashMap<Tenant, Vec<Limit>> = FxHashMap::default();
        for (tenant, limit) in stored_limits(store).await? {
            stored.entry(tenant).or_default().push(limit);
        }
        let mut changed = BTreeSet::new();
        let mut tables = self.tables();
        for tenant in
            tables.keys().filter(|tenant| !stored.contains_key(*tenant)).cloned().collect::<Vec<_>>()
        {
            stored.insert(tenant, Vec::new());
        }
        for (tenant, limits) in stored {
            let table = tables.entry(tenant.clone()).or_default();
            let is_stored = |id: &str| limits.iter().any(|limit| *limit.id == *id);
            let gone = table.limits.iter().map(|limit| limit.id.clone()).filter(|id| !is_stored(id));
            for id in gone.collect::<Vec<_>>() {
                table.limits.remove(&id);
                table.running.remove(&id);
                changed.insert(tenant.clone());
            }
            for limit in limits {
                if table.limits.get(&limit.id) != Some(&limit) && table.limits.load(limit, now).is_ok() {
                    changed.insert(tenant.clone());
                }
            }
        }
        if changed.is_empty() {
            tables.retain(|_, table| !table.limits.is_empty());
        } else {
            self.changed(&mut tables);
        }
        Ok(changed)
    }

    fn views(&self, tenant: &Tenant) -> Vec<LimitView> {
        let tables = self.tables();
        let Some(table) = tables.get(tenant) else { return Vec::new() };
        let view = |limit: &Limit| LimitView {
            limit: limit.clone(),
            running: table.running.get(&limit.id).copied().unwrap_or_default(),
            waiting: 0,
            held: 0,
        };
        table.limits.iter().map(view).collect()
    }

    fn tables(&self) -> MutexGuard<'_, FxHashMap<Tenant, Table>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held_by(limits: &mut Limits, keys: &[Arc<str>], now: Timestamp) -> Option<HeldBy> {
    let held = limits.held(keys, now)?;
    Some(HeldBy { limit: limit_of(&held.key).into(), until: held.until })
}

async fn stored_limits(store: &dyn Store) -> Result<Vec<(Tenant, Limit)>, StoreError> {
    let settings = store.settings(PREFIX).await?.into_iter();
    let read = |(key, value): (String, Vec<u8>)| {
        let damaged = |why: String| StoreError::Corrupt(format!("the setting {key:?} is no limit: {why}"));
        let (tenant, _) = key[PREFIX.len()..].split_once('/').unwrap_or_default();
        let tenant = Tenant::new(tenant).map_err(|error| damaged(error.to_string()))?;
        let limit = serde_json::from_slice(&value).map_err(|error| damaged(error.to_string()))?;
        Ok((tenant, limit))
    };
    settings.map(read).collect()
}

fn held_keys(job: Option<&Job>) -> &[Arc<str>] {
    match job {
        Some(job) if job.state().lease().is_some() => job.spec.limit_keys(),
        _ => &[],
    }
}

impl Gate for LimitTables {
    fn admit(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Result<(), Held> {
        let mut tables = self.tables();
        let Some(table) = tables.get_mut(tenant) else { return Ok(()) };
        match table.limits.admit(keys, now) {
            Ok(()) => {
                table.count(keys, 1);
                Ok(())
            }
            Err(held) => {
                // A place that becomes free at another server is not told of here.
                let look_again = self.is_shared.then(|| now.plus_ms(LOOK_AGAIN_MS));
                let until = held.until.or(look_again);
                if let Some(until) = until {
                    self.timers.plan(until);
                }
                Err(Held { key: held.key, until })
            }
        }
    }

    fn give_back(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) {
        if let Some(table) = self.tables().get_mut(tenant) {
            table.limits.give_back(keys, now);
            table.count(keys, -1);
        }
    }

    fn adopt(&self, tenant: &Tenant, key: &Arc<str>, running: u32, bucket: Option<&[u8]>, now: Timestamp) {
        if let Some(table) = self.tables().get_mut(tenant) {
            table.limits.adopt(key, running, bucket.and_then(Tokens::from_bytes), now);
        }
    }

    fn bucket(&self, tenant: &Tenant, key: &str, now: Timestamp) -> Option<(Vec<u8>, Timestamp)> {
        let mut tables = self.tables();
        let limits = &mut tables.get_mut(tenant)?.limits;
        let found = limits.tokens(key, now);
        limits.forget(key);
        found.map(|(tokens, full_at)| (tokens.to_bytes().to_vec(), full_at))
    }
}

impl Engine {
    /// Adds a limit or changes one. Jobs that wait and run are brought under it before this returns.
    pub async fn set_limit(&self, tenant: &Tenant, limit: Limit) -> Result<(), EngineError> {
        let visit = self.inner.enter()?;
        let tenant = tenant.clone();
        let work = async move {
            let key = format!("{PREFIX}{tenant}/{}", limit.id);
            let value =
                serde_json::to_vec(&limit).map_err(|error| StoreError::Unsupported(error.to_string()))?;
            // In the table first: it may refuse. A crash before the next line forgets a limit nobody was promised.
            visit.limits.set(&tenant, limit, visit.now())?;
            visit.store.put_setting(&key, Some(value)).await?;
            visit.relimit_all(&tenant).await
        };
        self.inner.unstoppable(work).await
    }

    /// Answers whether there was one.
    pub async fn remove_limit(&self, tenant: &Tenant, id: &str) -> Result<bool, EngineError> {
        let visit = self.inner.enter()?;
        let (tenant, id) = (tenant.clone(), id.to_owned());
        let work = async move {
            visit.store.put_setting(&format!("{PREFIX}{tenant}/{id}"), None).await?;
            let removed = visit.limits.remove(&tenant, &id);
            if removed {
                visit.relimit_all(&tenant).await?;
            }
            Ok(removed)
        };
        self.inner.unstoppable(work).await
    }

    /// The limit that would not let this job start now; `None` also for one that is not due.
    pub async fn held_by(&self, job: &Job) -> Result<Option<HeldBy>, EngineError> {
        let (tenant, keys, now) = (&job.spec.tenant, job.spec.limit_keys(), self.now());
        if keys.is_empty() || job.state().claimable_at().is_none_or(|at| at > now) {
            return Ok(None);
        }
        if !self.inner.store.is_shared() {
            return Ok(self.inner.limits.held_by(tenant, keys, now));
        }
        let used = self.inner.store.limit_use(tenant, keys).await?;
        Ok(held_by(&mut self.inner.limits.charged_with(tenant, used, now), keys, now))
    }

    /// By id.
    pub async fn limits(&self, tenant: &Tenant) -> Result<Vec<LimitView>, EngineError> {
        self.inner.open()?;
        let mut views = self.inner.limits.views(tenant);
        if self.inner.store.is_shared() && !views.is_empty() {
            // What runs at other servers counts too, and is not told here.
            let running = self.inner.running_by_limit(tenant).await?;
            for view in &mut views {
                view.running = running.get(&view.limit.id).copied().unwrap_or_default();
            }
        }
        if !views.is_empty() {
            self.inner.count_waiting(tenant, &mut views).await?;
        }
        Ok(views)
    }
}

impl Inner {
    /// What other servers have done to the limits holds here too, also for jobs that were made here meanwhile.
    pub(crate) async fn follow_limits(self: &Arc<Self>) -> Result<(), EngineError> {
        for tenant in self.limits.reload(&*self.store, self.now()).await? {
            self.relimit_all(&tenant).await?;
        }
        loop {
            let unchecked = self.store.unchecked(RELIMIT_PAGE).await?;
            let count = unchecked.len();
            self.relimit_new(unchecked).await?;
            if count < RELIMIT_PAGE {
                return Ok(());
            }
        }
    }

    /// Due jobs under each limit, and those it holds back. Of several limits that would, the first is named, as claims do.
    async fn count_waiting(&self, tenant: &Tenant, views: &mut [LimitView]) -> Result<(), EngineError> {
        let now = self.now();
        let groups = self.store.under_limits(tenant, now).await?;
        let mut counts: FxHashMap<Box<str>, (u64, u64)> = FxHashMap::default();
        // With several servers none of them knows by itself.
        let mut shared = None;
        if self.store.is_shared() {
            let keys: BTreeSet<&Arc<str>> = groups.iter().flat_map(|group| &group.keys).collect();
            let keys: Vec<Arc<str>> = keys.into_iter().cloned().collect();
            let used = self.store.limit_use(tenant, &keys).await?;
            shared = Some(self.limits.charged_with(tenant, used, now));
        }
        for groups in groups.chunks(RELIMIT_PAGE) {
            // Between two pages others may have the table.
            let mut tables = self.limits.tables();
            let Some(table) = tables.get_mut(tenant) else { break };
            let limits = shared.as_mut().unwrap_or(&mut table.limits);
            for group in groups {
                let held = group.held.clone().or_else(|| Some(limits.held(&group.keys, now)?.key));
                for key in &group.keys {
                    counts.entry(limit_of(key).into()).or_default().0 += group.due;
                }
                if let Some(key) = held {
                    counts.entry(limit_of(&key).into()).or_default().1 += group.due;
                }
            }
        }
        for view in views {
            (view.waiting, view.held) = counts.get(&view.limit.id).copied().unwrap_or_default();
        }
        Ok(())
    }

    async fn running_by_limit(&self, tenant: &Tenant) -> Result<FxHashMap<Box<str>, u64>, EngineError> {
        let mut running: FxHashMap<Box<str>, u64> = FxHashMap::default();
        let mut filter = Filter {
            tenant: Some(tenant.clone()),
            states: vec![StateName::Running],
            limit: RELIMIT_PAGE,
            ..Filter::default()
        };
        loop {
            let page = self.store.list(filter.clone()).await?;
            for key in page.jobs.iter().flat_map(|job| job.spec.limit_keys()) {
                *running.entry(limit_of(key).into()).or_default() += 1;
            }
            filter.before = page.next;
            if filter.before.is_none() {
                return Ok(running);
            }
        }
    }

    /// Works out the keys of every living job of the tenant anew, a page at a time.
    async fn relimit_all(self: &Arc<Self>, tenant: &Tenant) -> Result<(), EngineError> {
        let living = StateName::ALL.into_iter().filter(|state| !state.is_settled());
        let mut filter = Filter {
            tenant: Some(tenant.clone()),
            states: living.collect(),
            limit: RELIMIT_PAGE,
            ..Filter::default()
        };
        loop {
            let page = self.store.list(filter.clone()).await?;
            self.relimit(page.jobs).await?;
            filter.before = page.next;
            if filter.before.is_none() {
                return Ok(());
            }
        }
    }

    /// For jobs that were made or changed while limits changed.
    pub(crate) async fn relimit_new(self: &Arc<Self>, ids: Vec<JobId>) -> Result<(), EngineError> {
        let jobs = self.store.load(ids).await?;
        self.relimit(jobs.into_iter().flatten().collect()).await
    }

    /// What was written by limits that are no longer those is worked out anew.
    pub(crate) async fn relimit_since(
        self: &Arc<Self>,
        epoch: u64,
        written: impl Iterator<Item = JobId>,
    ) -> Result<(), EngineError> {
        if self.limits.epoch() == epoch {
            return Ok(());
        }
        self.relimit_new(written.collect()).await.map_err(EngineError::with_a_part_written)
    }

    async fn relimit(self: &Arc<Self>, jobs: Vec<Arc<Job>>) -> Result<(), EngineError> {
        let mut asks = Vec::new();
        let mut reopened: Vec<Arc<str>> = Vec::new();
        for job in &jobs {
            let keys = self.limits.keys(&job.spec);
            if keys == job.spec.limit_keys() {
                reopened.extend(keys);
                continue;
            }
            // Every update works out the keys anew, of the job as it is by then.
            asks.push(Ask { id: job.id, event: Event::Update(Box::default()) });
        }
        // The bound itself may have been raised, so what it held is tried again.
        reopened.sort_unstable();
        reopened.dedup();
        if !asks.is_empty() {
            self.change(None, asks, jobs).await?;
        }
        reopened.iter().for_each(|key| self.store.reopen(key));
        Ok(())
    }
}
