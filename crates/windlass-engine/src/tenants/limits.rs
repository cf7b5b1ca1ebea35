//! Limits of each tenant: admission of a job before its run, and release of its slots after the run.
//!
//! A job stores the keys of its limits (`extras.limit_keys`), computed at its creation and again whenever
//! limits change. So a claim never decodes a payload, and a blocked job is not checked again before its key
//! opens.

use crate::error::EngineError;
use crate::tables::timers::Timers;
use crate::tenants::args::decode_payload;
use crate::verbs::{HeldBy, LimitView};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use windlass_core::event::Patch;
use windlass_core::limits::{Limit, Limits, Subject, Tokens};
use windlass_core::{Event, Extras, Job, JobSpec, StateName, Tenant, Timestamp};
use windlass_store::query::Pages;
use windlass_store::{Filter, Gate, Held, LimitUse, Store, StoreError};

mod calls;

/// Prefix of limits among the store's settings: `limit/{tenant}/{id}`.
const PREFIX: &str = "limit/";
/// Jobs per page when limits change.
const RELIMIT_PAGE: usize = 1_000;
/// Interval of checking for a free slot, if other servers may free one.
const LOOK_AGAIN_MS: i64 = 100;
/// Separator between the limit's id and the group in a key.
const KEY_SEPARATOR: char = '\u{1f}';

pub(crate) struct LimitTables {
    tenants: Mutex<FxHashMap<Tenant, Table>>,
    /// Tenants with limits; read without the lock, so that servers without limits pay nothing for them.
    count: AtomicUsize,
    /// Incremented by every change of limits: keys computed before have to be computed again.
    epoch: AtomicU64,
    timers: Arc<Timers>,
    /// True if other servers start jobs under the same limits.
    is_shared: bool,
}

#[derive(Default)]
struct Table {
    limits: Limits,
    /// Running jobs by limit id, of all groups.
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
    /// Loads the limits and charges them with the running jobs. Buckets start empty, because jobs started
    /// just before the restart still count.
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
            each_running(store, tenant, |job| {
                table.limits.charge_running(job.spec.limit_keys());
                table.count(job.spec.limit_keys(), 1);
            })
            .await?;
        }
        let count = AtomicUsize::new(tenants.len());
        let (tenants, epoch, is_shared) = (Mutex::new(tenants), AtomicU64::new(0), store.shared().is_some());
        Ok(LimitTables { tenants, count, epoch, timers, is_shared })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn has_any(&self, tenant: &Tenant) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.tables().contains_key(tenant)
    }

    /// `None`: the tenant has no limits, so its jobs need no check.
    pub(crate) fn gate(self: &Arc<Self>, tenant: &Tenant) -> Option<Arc<dyn Gate>> {
        self.has_any(tenant).then(|| self.clone() as Arc<dyn Gate>)
    }

    /// Keys of the limits that apply to this job. Decodes the payload only if a limit reads it.
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
        // Decoded without the lock, because payloads may be large.
        let args = if needs_args { decode_payload(&spec.payload) } else { serde_json::Value::Null };
        subject.args = &args;
        self.tables().get(&spec.tenant).map_or(Vec::new(), |table| table.limits.keys_for(&subject))
    }

    /// Completes an event with the fields that the engine computes for this job.
    pub(crate) fn complete_event(&self, job: &Job, event: Event) -> Event {
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

    /// Sets the limit keys for the patched job, and keeps its family, which a patch cannot change.
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

    /// Computes the keys of a restarted job: limits set while it was settled were not recorded in it.
    pub(crate) fn refresh_keys_on_restart(&self, before: &Job, after: &mut Job) {
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

    /// Frees the keys that a written job no longer holds, and charges the keys that it holds in addition.
    pub(crate) fn apply_change(&self, store: &dyn Store, before: &Job, after: Option<&Job>) {
        let held = held_keys(Some(before));
        let holds = held_keys(after);
        if held == holds || self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let freed: Vec<Arc<str>> = held.iter().filter(|key| !holds.contains(key)).cloned().collect();
        let gained: Vec<Arc<str>> = holds.iter().filter(|key| !held.contains(key)).cloned().collect();
        // On a shared store the store counts, and a claim may have adopted its count already.
        if !self.is_shared
            && let Some(table) = self.tables().get_mut(&before.spec.tenant)
        {
            table.limits.end(&freed);
            table.count(&freed, -1);
            table.limits.charge_running(&gained);
            table.count(&gained, 1);
        }
        freed.iter().for_each(|key| store.reopen(key));
    }

    /// Returns the tokens of a run that counts as never started; another job may start instead.
    pub(crate) fn refund(&self, store: &dyn Store, job: &Job, now: Timestamp) {
        let keys = job.spec.limit_keys();
        if keys.is_empty() {
            return;
        }
        if !self.is_shared
            && let Some(table) = self.tables().get_mut(&job.spec.tenant)
        {
            table.limits.refund(keys, now);
        }
        keys.iter().for_each(|key| store.reopen(key));
    }

    /// Refund on a shared store, which holds the buckets; `refund` then reopens the keys.
    pub(crate) async fn refund_shared(
        self: &Arc<Self>,
        store: &dyn Store,
        job: &Job,
    ) -> Result<(), StoreError> {
        let (tenant, keys) = (&job.spec.tenant, job.spec.limit_keys());
        let Some(shared) = store.shared().filter(|_| !keys.is_empty()) else { return Ok(()) };
        let Some(gate) = self.gate(tenant) else { return Ok(()) };
        shared.refund(tenant, keys, gate).await.inspect_err(|error| {
            tracing::warn!(%error, job.id = %job.id, "cannot return the rate-limit tokens of runs that were not started");
        })
    }

    fn held_by(&self, tenant: &Tenant, keys: &[Arc<str>], now: Timestamp) -> Option<HeldBy> {
        self.tables().get_mut(tenant).and_then(|table| held_by(&mut table.limits, keys, now))
    }

    /// Copy of the tenant's limits with the given use. Claims do not need it: they adopt the use while they
    /// hold the lock of the keys.
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

    /// Loads the limits that other servers have set, changed or removed. Returns the tenants whose limits
    /// changed.
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
        self.tenants.lock()
    }
}

fn held_by(limits: &mut Limits, keys: &[Arc<str>], now: Timestamp) -> Option<HeldBy> {
    let held = limits.held(keys, now)?;
    Some(HeldBy { limit: limit_of(&held.key).into(), until: held.until })
}

async fn stored_limits(store: &dyn Store) -> Result<Vec<(Tenant, Limit)>, StoreError> {
    let settings = store.settings(PREFIX).await?.into_iter();
    let read = |(key, value): (String, Vec<u8>)| {
        let damaged =
            |why: String| StoreError::Corrupt(format!("the stored limit {key:?} is invalid: {why}"));
        let (tenant, _) = key[PREFIX.len()..].split_once('/').unwrap_or_default();
        let tenant = Tenant::new(tenant).map_err(|error| damaged(error.to_string()))?;
        let limit = serde_json::from_slice(&value).map_err(|error| damaged(error.to_string()))?;
        Ok((tenant, limit))
    };
    settings.map(read).collect()
}

async fn each_running(
    store: &dyn Store,
    tenant: &Tenant,
    mut with: impl FnMut(&Job),
) -> Result<(), StoreError> {
    let mut pages = Pages::new(Filter {
        tenant: Some(tenant.clone()),
        states: vec![StateName::Running],
        limit: RELIMIT_PAGE,
        ..Filter::default()
    });
    while let Some(jobs) = pages.next(store).await? {
        jobs.iter().for_each(|job| with(job));
    }
    Ok(())
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
                // A slot freed at another server is not reported here.
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

    fn refunded(
        &self,
        tenant: &Tenant,
        key: &Arc<str>,
        bucket: &[u8],
        now: Timestamp,
    ) -> Option<(Vec<u8>, Timestamp)> {
        let used = LimitUse { key: Arc::clone(key), running: 0, bucket: Some(bucket.to_vec()) };
        let mut limits = self.charged_with(tenant, vec![used], now);
        limits.refund(std::slice::from_ref(key), now);
        limits.tokens(key, now).map(|(tokens, full_at)| (tokens.to_bytes().to_vec(), full_at))
    }
}
