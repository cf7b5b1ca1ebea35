//! Quotas: bounds on the resources of one tenant, so that it cannot starve the others.
//!
//! A request does not count the store: it uses the last count, the amounts added since, and the reservations
//! in flight. The store is counted when the uncounted part exceeds a hundredth of the quota, or the quota is
//! reached. So after a restart a tenant may exceed its quota by at most a hundredth, and a small quota is
//! exact.

mod bound;
mod run_time;

pub(crate) use bound::Reserved;
pub use run_time::RunTime;

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::verbs::{Options, Push, Pushed};
use bound::Bound;
use parking_lot::RwLock;
use run_time::RunTimes;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use windlass_core::{Name, Queue, StateName, Tenant};

/// Prefix of the notes: `quota/<tenant>` contains a [`Quota`] as JSON.
const NOTES: &str = "quota/";
/// Burst of requests after an idle period: one second's worth.
const BURST_US: i64 = 1_000_000;

/// Bounds of one tenant. The defaults are far above normal use, and keep a tenant from taking all resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Unsettled jobs.
    pub jobs: u64,
    /// Bytes of the payloads of all stored jobs, settled ones included.
    pub payload_bytes: u64,
    pub blob_bytes: u64,
    /// Job types with a handler.
    pub handlers: u64,
    /// Requests in flight, waiting ones included.
    pub requests_in_flight: u64,
    pub requests_per_second: u64,
    /// Waiting claims.
    pub waiting_claims: u64,
    /// Open connections whose last request was authenticated as this tenant.
    pub connections: u64,
    /// Seconds per minute that handlers and guests run on this server, all runs added up.
    pub handler_seconds_per_minute: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Quota {
            jobs: 100_000_000,
            payload_bytes: 1 << 40,
            blob_bytes: 1 << 40,
            handlers: 10_000,
            requests_in_flight: 8_000,
            requests_per_second: 200_000,
            waiting_claims: 8_000,
            connections: 8_000,
            handler_seconds_per_minute: 1_000_000,
        }
    }
}

impl Quota {
    /// Defaults of a server with these options: at least four fifths of `waiters_max` for one tenant.
    fn of_server(options: &Options) -> Quota {
        let quota = Quota::default();
        let places = options.waiters_max as u64 / 5 * 4;
        let connections = options.connections_max as u64;
        Quota {
            waiting_claims: quota.waiting_claims.max(places),
            requests_in_flight: quota.requests_in_flight.max(places),
            connections: connections - connections / 5,
            ..quota
        }
    }
}

/// Current use of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub jobs: u64,
    pub payload_bytes: u64,
    pub blob_bytes: u64,
    pub requests_in_flight: u64,
    pub waiting_claims: u64,
    pub connections: u64,
    pub handler_seconds_per_minute: u64,
}

/// Use of this server by one tenant, as counted continuously.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveUse {
    pub tenant: Tenant,
    pub connections: u64,
    /// Run time of handlers and guests since the start of the server.
    pub handler_ms: u64,
}

/// Quotas and use of all tenants.
#[derive(Debug)]
pub(crate) struct Quotas {
    default: Quota,
    tenants: RwLock<FxHashMap<Tenant, Arc<TenantUse>>>,
}

#[derive(Debug)]
struct TenantUse {
    quota: RwLock<Quota>,
    jobs: Arc<Bound>,
    payload_bytes: Arc<Bound>,
    blob_bytes: Arc<Bound>,
    in_flight: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    rate: Rate,
    run_time: RunTimes,
}

/// Rate limiter: the time until which the requests so far would last if spread evenly.
#[derive(Debug, Default)]
struct Rate {
    spread_until_us: AtomicI64,
}

impl Rate {
    /// `false`: the rate is exceeded.
    fn take(&self, per_second: u64, now_us: i64) -> bool {
        let each_us = 1_000_000 / i64::try_from(per_second.clamp(1, 1_000_000)).unwrap_or(1);
        let take = |until: i64| {
            let next = until.max(now_us) + each_us;
            (next - now_us <= BURST_US.max(each_us)).then_some(next)
        };
        self.spread_until_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Slot of a bounded number; freed on drop.
#[derive(Debug)]
pub struct Share(Arc<AtomicU64>);

impl Share {
    fn take(of: &Arc<AtomicU64>, max: u64) -> Option<Share> {
        let one_more = |count: u64| (count < max).then_some(count + 1);
        of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Share(Arc::clone(of)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Quotas {
    pub(crate) fn new(options: &Options) -> Quotas {
        Quotas { default: Quota::of_server(options), tenants: RwLock::default() }
    }

    fn of(&self, tenant: &Tenant) -> Arc<TenantUse> {
        if let Some(known) = self.tenants.read().get(tenant) {
            return Arc::clone(known);
        }
        let mut tenants = self.tenants.write();
        Arc::clone(tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(TenantUse::new(self.default))))
    }

    fn set(&self, tenant: &Tenant, quota: Quota) {
        *self.of(tenant).quota.write() = quota;
    }
}

impl TenantUse {
    fn new(quota: Quota) -> TenantUse {
        TenantUse {
            quota: RwLock::new(quota),
            jobs: Arc::default(),
            payload_bytes: Arc::default(),
            blob_bytes: Arc::default(),
            in_flight: Arc::default(),
            waiting: Arc::default(),
            connections: Arc::default(),
            rate: Rate::default(),
            run_time: RunTimes::default(),
        }
    }

    fn quota(&self) -> Quota {
        *self.quota.read()
    }
}

fn exceeded(what: &'static str, max: u64) -> EngineError {
    EngineError::Quota { what, max }
}

impl Engine {
    /// Counts a request; it ends when the share is dropped.
    pub fn begin_request(&self, tenant: &Tenant) -> Result<Share, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let quota = usage.quota();
        let share = Share::take(&usage.in_flight, quota.requests_in_flight)
            .ok_or_else(|| exceeded("concurrent requests", quota.requests_in_flight))?;
        self.count_request(tenant)?;
        Ok(share)
    }

    /// Counts a request of a protocol without concurrent requests.
    pub fn count_request(&self, tenant: &Tenant) -> Result<(), EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let per_second = usage.quota().requests_per_second;
        let now_us = self.now().as_millis().saturating_mul(1_000);
        match usage.rate.take(per_second, now_us) {
            true => Ok(()),
            false => Err(exceeded("requests per second", per_second)),
        }
    }

    /// Counts a connection of the tenant until the share is dropped.
    pub fn bind_connection(&self, tenant: &Tenant) -> Result<Share, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().connections;
        Share::take(&usage.connections, max).ok_or_else(|| exceeded("connections", max))
    }

    /// The same without the quota: for admins, and for servers without tokens.
    pub fn count_connection(&self, tenant: &Tenant) -> Share {
        let count = &self.inner.quotas.of(tenant).connections;
        count.fetch_add(1, Ordering::Relaxed);
        Share(Arc::clone(count))
    }

    /// Counts a waiting claim until the share is dropped.
    pub(crate) fn begin_waiting(&self, tenant: &Tenant) -> Result<Share, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().waiting_claims;
        Share::take(&usage.waiting, max).ok_or_else(|| exceeded("waiting claims", max))
    }

    /// Reserves quota for jobs, which count from now on. For callers that acknowledge jobs before they push
    /// them with [`Engine::exempt`], or return the reservations.
    pub async fn admit_jobs<'a>(
        &self,
        tenant: &Tenant,
        coming: impl Iterator<Item = JobSize<'a>>,
    ) -> Result<(), EngineError> {
        let Admitted { jobs, payload_bytes } = self.reserve_jobs(tenant, coming).await?;
        jobs.leave_under_way();
        payload_bytes.leave_under_way();
        Ok(())
    }

    /// Reserves quota for jobs that are about to be pushed.
    pub(crate) async fn reserve_jobs<'a>(
        &self,
        tenant: &Tenant,
        coming: impl Iterator<Item = JobSize<'a>>,
    ) -> Result<Admitted, EngineError> {
        let (mut jobs, mut bytes) = (0, 0);
        for (queue, name, payload_bytes) in coming {
            self.check_reach(queue, name)?;
            jobs += 1;
            bytes += payload_bytes as u64;
        }
        self.reserve(tenant, jobs, bytes).await
    }

    /// Reserves quota for so many unfinished jobs and bytes of payloads.
    pub(crate) async fn reserve(
        &self,
        tenant: &Tenant,
        jobs: u64,
        bytes: u64,
    ) -> Result<Admitted, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let quota = usage.quota();
        self.count_if_due(&usage.jobs, jobs, quota.jobs, self.inner.count_jobs(tenant)).await?;
        let count = async { Ok(self.inner.store.payload_bytes(tenant).await?) };
        self.count_if_due(&usage.payload_bytes, bytes, quota.payload_bytes, count).await?;
        let no_jobs = || exceeded("unfinished jobs", quota.jobs);
        let no_bytes = || exceeded("payload bytes", quota.payload_bytes);
        // No unfinished job fits however many there are.
        let jobs_max = if jobs == 0 { u64::MAX } else { quota.jobs };
        Ok(Admitted {
            jobs: usage.jobs.reserve(jobs, jobs_max).ok_or_else(no_jobs)?,
            payload_bytes: usage.payload_bytes.reserve(bytes, quota.payload_bytes).ok_or_else(no_bytes)?,
        })
    }

    /// Turns the reservations of admitted jobs into use: they are in the store now.
    pub fn convert_reservations(&self, tenant: &Tenant, jobs: u64, payload_bytes: u64) {
        let usage = self.inner.quotas.of(tenant);
        usage.jobs.arrived(jobs);
        usage.payload_bytes.arrived(payload_bytes);
    }

    /// Returns the reservations of admitted jobs that will not be pushed.
    pub fn return_reservations(&self, tenant: &Tenant, jobs: u64, payload_bytes: u64) {
        let usage = self.inner.quotas.of(tenant);
        usage.jobs.give_back(jobs);
        usage.payload_bytes.give_back(payload_bytes);
    }

    /// Extends a reservation to `bytes` of a blob in total.
    pub(crate) async fn reserve_blob(
        &self,
        tenant: &Tenant,
        reserved: &mut Option<Reserved>,
        bytes: u64,
    ) -> Result<(), EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().blob_bytes;
        let more = bytes.saturating_sub(reserved.as_ref().map_or(0, Reserved::amount));
        self.count_if_due(&usage.blob_bytes, more, max, self.inner.count_blob_bytes(tenant)).await?;
        let has_room = match reserved {
            Some(reserved) => reserved.grow(more, max),
            None => {
                *reserved = usage.blob_bytes.reserve(more, max);
                reserved.is_some()
            }
        };
        if has_room { Ok(()) } else { Err(exceeded("blob bytes", max)) }
    }

    /// Counts the store if needed. While the store is unavailable the last count is used, because a journal
    /// accepts jobs all the same.
    async fn count_if_due(
        &self,
        bound: &Bound,
        more: u64,
        max: u64,
        count: impl Future<Output = Result<u64, EngineError>>,
    ) -> Result<(), EngineError> {
        let Some(begun) = bound.begin_count(more, max, self.is_shared(), self.now()) else { return Ok(()) };
        match count.await {
            Ok(counted) => bound.end_count(begun, counted, self.now()),
            Err(error) if error.is_retryable() && bound.has_room(more, max) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn quota(&self, tenant: &Tenant) -> Quota {
        self.inner.quotas.of(tenant).quota()
    }

    /// Current use, counted now.
    pub async fn in_use(&self, tenant: &Tenant) -> Result<InUse, EngineError> {
        self.check_all()?;
        let usage = self.inner.quotas.of(tenant);
        Ok(InUse {
            jobs: self.inner.count_jobs(tenant).await?,
            payload_bytes: self.inner.store.payload_bytes(tenant).await?,
            blob_bytes: self.inner.count_blob_bytes(tenant).await?,
            requests_in_flight: usage.in_flight.load(Ordering::Relaxed),
            waiting_claims: usage.waiting.load(Ordering::Relaxed),
            connections: usage.connections.load(Ordering::Relaxed),
            handler_seconds_per_minute: usage.run_time_used(self.now()).0,
        })
    }

    /// Connections and run time of one tenant or, for `None`, of all, sorted by tenant; at most `limit` tenants. Empty
    /// for a caller whose token is limited to some queues.
    pub fn live_use(&self, tenant: Option<&Tenant>, limit: usize) -> Vec<LiveUse> {
        if self.check_all().is_err() {
            return Vec::new();
        }
        let of_one = |(tenant, usage): (&Tenant, &Arc<TenantUse>)| LiveUse {
            tenant: tenant.clone(),
            connections: usage.connections.load(Ordering::Relaxed),
            handler_ms: usage.run_time_used(self.now()).1,
        };
        let tenants = self.inner.quotas.tenants.read();
        let mut asked: Vec<LiveUse> = tenants
            .iter()
            .filter(|(own, _)| tenant.is_none_or(|tenant| tenant == *own))
            .map(of_one)
            .collect();
        drop(tenants);
        asked.sort_unstable_by(|one, other| one.tenant.cmp(&other.tenant));
        asked.truncate(limit);
        asked
    }

    /// Sets a quota. It is stored, and applies to all servers of the store.
    pub async fn set_quota(&self, tenant: &Tenant, quota: Quota) -> Result<(), EngineError> {
        let value = serde_json::to_vec(&quota).unwrap_or_default();
        self.put_note(&format!("{NOTES}{tenant}"), Some(value)).await?;
        self.inner.quotas.set(tenant, quota);
        Ok(())
    }

    /// Loads the quotas that were set here before, or by another server.
    pub async fn load_quotas(&self) -> Result<(), EngineError> {
        for (key, value) in self.notes(NOTES).await? {
            let tenant = key.strip_prefix(NOTES).and_then(|tenant| Tenant::new(tenant).ok());
            match (tenant, stored_quota(&value, &self.inner.quotas.default)) {
                (Some(tenant), Ok(quota)) => self.inner.quotas.set(&tenant, quota),
                _ => tracing::warn!("cannot read the stored quota {key}; the defaults apply"),
            }
        }
        Ok(())
    }
}

/// Decodes a stored quota. Bounds that the version which stored it did not have are the server's defaults.
fn stored_quota(value: &[u8], default: &Quota) -> serde_json::Result<Quota> {
    let stored: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(value)?;
    let mut quota = serde_json::to_value(default)?;
    if let Some(bounds) = quota.as_object_mut() {
        bounds.extend(stored);
    }
    serde_json::from_value(quota)
}

/// Queue, name and payload size of a job to be pushed.
pub type JobSize<'a> = (&'a Queue, &'a Name, usize);

/// Reservations of jobs that are about to be pushed; returned on drop.
#[derive(Debug)]
pub(crate) struct Admitted {
    jobs: Reserved,
    payload_bytes: Reserved,
}

impl Admitted {
    /// Converts the reservations by the result of the push. With an unknown outcome the jobs count as
    /// created.
    pub(crate) fn conclude(self, bytes: &[usize], pushed: &Result<Vec<Pushed>, EngineError>) {
        let new: Vec<usize> = match pushed {
            Ok(pushed) => {
                let is_new = |pushed: &Pushed| matches!(pushed, Pushed::New(_));
                pushed
                    .iter()
                    .zip(bytes)
                    .filter(|(pushed, _)| is_new(pushed))
                    .map(|(_, bytes)| *bytes)
                    .collect()
            }
            Err(error) if error.code() == "outcome_unknown" => bytes.to_vec(),
            Err(_) => return,
        };
        self.jobs.keep(new.len() as u64);
        self.payload_bytes.keep(new.iter().map(|bytes| *bytes as u64).sum());
    }

    /// Turns all of the reservations into use.
    pub(crate) fn keep(self) {
        let (jobs, bytes) = (self.jobs.amount(), self.payload_bytes.amount());
        self.jobs.keep(jobs);
        self.payload_bytes.keep(bytes);
    }
}

pub(crate) fn size_of_push(push: &Push) -> JobSize<'_> {
    (&push.queue, &push.name, push.payload.bytes.len())
}

impl Inner {
    async fn count_blob_bytes(&self, tenant: &Tenant) -> Result<u64, EngineError> {
        Ok(self.store.blobs().list(Some(tenant)).await?.iter().map(|blob| blob.info.bytes).sum())
    }

    async fn count_jobs(&self, tenant: &Tenant) -> Result<u64, EngineError> {
        let counts = self.store.counts(Some(tenant), self.now()).await?;
        let live = StateName::ALL.into_iter().filter(|state| !state.is_settled());
        Ok(live.map(|state| counts.iter().map(|counts| counts.of(state)).sum::<u64>()).sum())
    }
}

#[cfg(test)]
mod tests;
