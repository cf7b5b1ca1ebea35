//! What one tenant may take, so that none takes it from the others.
//!
//! Nothing is counted on the way of a request: what is known is what was counted last, what was added since and what is on its
//! way. It is counted anew when a hundredth of the quota was added, or the quota is reached: so a tenant gets at most a hundredth too
//! much, after a restart, and a small quota is exact.

mod bound;

pub(crate) use bound::Reserved;

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::verbs::{Options, Push, Pushed};
use bound::Bound;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use windlass_core::{Name, Queue, StateName, Tenant};

/// Notes of the store: `quota/<tenant>` holds a [`Quota`] as JSON.
const NOTES: &str = "quota/";
/// Requests that may come at once after a quiet time: those of one second.
const BURST_US: i64 = 1_000_000;

/// The most that one tenant may have. The defaults are far from what an honest tenant needs, and keep one from taking all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Jobs that have not ended.
    pub jobs: u64,
    /// Bytes of the payloads of all jobs that are kept, ended ones included.
    pub payload_bytes: u64,
    /// Bytes of blobs.
    pub blob_bytes: u64,
    /// Kinds of jobs with a handler.
    pub handlers: u64,
    /// Requests that are being answered, waiting ones included.
    pub requests_in_flight: u64,
    pub requests_per_second: u64,
    /// Claims that wait for a job.
    pub waiting_claims: u64,
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
        }
    }
}

impl Quota {
    /// The defaults of a server with these bounds: one tenant gets four fifths of the places that it has.
    fn of_server(options: &Options) -> Quota {
        let quota = Quota::default();
        let places = options.waiters_max as u64 / 5 * 4;
        Quota {
            waiting_claims: quota.waiting_claims.max(places),
            requests_in_flight: quota.requests_in_flight.max(places),
            ..quota
        }
    }
}

/// What a tenant takes now, as far as it is known without counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub jobs: u64,
    pub payload_bytes: u64,
    pub blob_bytes: u64,
    pub requests_in_flight: u64,
    pub waiting_claims: u64,
}

/// Tenants and what they take.
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
    rate: Rate,
}

/// Requests per second: the moment at which the requests so far would have been spread evenly.
#[derive(Debug, Default)]
struct Rate {
    spread_until_us: AtomicI64,
}

impl Rate {
    /// `false`: too soon.
    fn take(&self, per_second: u64, now_us: i64) -> bool {
        let each_us = 1_000_000 / i64::try_from(per_second.clamp(1, 1_000_000)).unwrap_or(1);
        let take = |until: i64| {
            let next = until.max(now_us) + each_us;
            (next - now_us <= BURST_US.max(each_us)).then_some(next)
        };
        self.spread_until_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// One of a bounded number; given back when dropped.
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
            rate: Rate::default(),
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
    /// A request of this tenant begins; it ends when the share is dropped.
    pub fn begin_request(&self, tenant: &Tenant) -> Result<Share, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let quota = usage.quota();
        let share = Share::take(&usage.in_flight, quota.requests_in_flight)
            .ok_or_else(|| exceeded("requests at a time", quota.requests_in_flight))?;
        self.count_request(tenant)?;
        Ok(share)
    }

    /// The same for protocols whose requests are one after the other.
    pub fn count_request(&self, tenant: &Tenant) -> Result<(), EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let per_second = usage.quota().requests_per_second;
        let now_us = self.now().as_millis().saturating_mul(1_000);
        match usage.rate.take(per_second, now_us) {
            true => Ok(()),
            false => Err(exceeded("requests per second", per_second)),
        }
    }

    /// A claim of this tenant waits as long as the share lives.
    pub(crate) fn begin_waiting(&self, tenant: &Tenant) -> Result<Share, EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().waiting_claims;
        Share::take(&usage.waiting, max).ok_or_else(|| exceeded("waiting claims", max))
    }

    /// Whether the tenant may have these jobs; they count from now on. For those who acknowledge jobs before they push them, with
    /// [`Engine::exempt`].
    pub async fn admit_jobs<'a>(
        &self,
        tenant: &Tenant,
        coming: impl Iterator<Item = Coming<'a>>,
    ) -> Result<(), EngineError> {
        let Admitted { jobs, payload_bytes } = self.reserve_jobs(tenant, coming).await?;
        jobs.leave_under_way();
        payload_bytes.leave_under_way();
        Ok(())
    }

    /// Room for jobs that are about to be pushed.
    pub(crate) async fn reserve_jobs<'a>(
        &self,
        tenant: &Tenant,
        coming: impl Iterator<Item = Coming<'a>>,
    ) -> Result<Admitted, EngineError> {
        let (mut jobs, mut bytes) = (0, 0);
        for (queue, name, payload_bytes) in coming {
            self.check_reach(queue, name)?;
            jobs += 1;
            bytes += payload_bytes as u64;
        }
        let usage = self.inner.quotas.of(tenant);
        let quota = usage.quota();
        self.count_if_due(&usage.jobs, jobs, quota.jobs, self.inner.count_jobs(tenant)).await?;
        let count = async { Ok(self.inner.store.payload_bytes(tenant).await?) };
        self.count_if_due(&usage.payload_bytes, bytes, quota.payload_bytes, count).await?;
        let no_jobs = || exceeded("jobs that have not ended", quota.jobs);
        let no_bytes = || exceeded("bytes of payloads", quota.payload_bytes);
        Ok(Admitted {
            jobs: usage.jobs.reserve(jobs, quota.jobs).ok_or_else(no_jobs)?,
            payload_bytes: usage.payload_bytes.reserve(bytes, quota.payload_bytes).ok_or_else(no_bytes)?,
        })
    }

    /// Jobs that were admitted before are in the store.
    pub(crate) fn have_arrived(&self, tenant: &Tenant, jobs: u64, payload_bytes: u64) {
        let usage = self.inner.quotas.of(tenant);
        usage.jobs.arrived(jobs);
        usage.payload_bytes.arrived(payload_bytes);
    }

    /// Room for so many bytes of a blob in all.
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
        if has_room { Ok(()) } else { Err(exceeded("bytes of blobs", max)) }
    }

    /// While the store is away what is known has to do: a journal takes jobs all the same.
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

    /// Counted now.
    pub async fn in_use(&self, tenant: &Tenant) -> Result<InUse, EngineError> {
        self.check_all()?;
        let usage = self.inner.quotas.of(tenant);
        Ok(InUse {
            jobs: self.inner.count_jobs(tenant).await?,
            payload_bytes: self.inner.store.payload_bytes(tenant).await?,
            blob_bytes: self.inner.count_blob_bytes(tenant).await?,
            requests_in_flight: usage.in_flight.load(Ordering::Relaxed),
            waiting_claims: usage.waiting.load(Ordering::Relaxed),
        })
    }

    /// Kept in the store, so that it holds for all servers on it.
    pub async fn set_quota(&self, tenant: &Tenant, quota: Quota) -> Result<(), EngineError> {
        let value = serde_json::to_vec(&quota).unwrap_or_default();
        self.put_note(&format!("{NOTES}{tenant}"), Some(value)).await?;
        self.inner.quotas.set(tenant, quota);
        Ok(())
    }

    /// Reads what was set here before, or by another server.
    pub async fn load_quotas(&self) -> Result<(), EngineError> {
        for (key, value) in self.notes(NOTES).await? {
            let tenant = key.strip_prefix(NOTES).and_then(|tenant| Tenant::new(tenant).ok());
            match (tenant, serde_json::from_slice(&value)) {
                (Some(tenant), Ok(quota)) => self.inner.quotas.set(&tenant, quota),
                _ => tracing::warn!("the quota {key} in the store cannot be read; the defaults hold"),
            }
        }
        Ok(())
    }
}

/// Where a job goes, and how many bytes its payload has.
pub type Coming<'a> = (&'a Queue, &'a Name, usize);

/// Room for jobs that are about to be pushed; given back when dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    jobs: Reserved,
    payload_bytes: Reserved,
}

impl Admitted {
    /// What became of them. Where nobody can tell, they may be there.
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
}

/// What a push brings, for the quota.
pub(crate) fn coming(push: &Push) -> Coming<'_> {
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
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_a_second_of_requests_through_at_once_and_then_as_many_as_it_says() {
        let rate = Rate::default();
        let taken = |now_us: i64| (0..1_000).filter(|_| rate.take(10, now_us)).count();
        assert_eq!(taken(5_000_000), 10);
        assert_eq!(taken(5_050_000), 0);
        assert_eq!(taken(5_100_000), 1);
        assert_eq!(taken(5_500_000), 4);
        assert_eq!(taken(60_000_000), 10);
    }

    #[test]
    fn a_rate_of_one_lets_one_through() {
        let rate = Rate::default();
        assert!(rate.take(1, 0));
        assert!(!rate.take(1, 999_999));
        assert!(rate.take(1, 1_000_000));
    }

    #[test]
    fn shares_come_back() {
        let count = Arc::default();
        let (one, two) = (Share::take(&count, 2), Share::take(&count, 2));
        assert!(one.is_some() && two.is_some() && Share::take(&count, 2).is_none());
        drop(one);
        assert!(Share::take(&count, 2).is_some());
    }

    #[test]
    fn a_server_with_more_places_gives_one_tenant_more_of_them() {
        let of = |waiters_max| Quota::of_server(&Options { waiters_max, ..Options::default() });
        assert_eq!(of(10_000), Quota::default());
        assert_eq!((of(50_000).waiting_claims, of(50_000).requests_in_flight), (40_000, 40_000));
        assert_eq!(of(10), Quota::default());
    }
}
