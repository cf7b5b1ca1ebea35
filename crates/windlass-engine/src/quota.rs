//! What one tenant may take, so that none takes it from the others.
//!
//! Nothing is counted on the way of a request: what is known is what was counted last and what was added since. It is counted
//! anew when a hundredth of the quota was added, or the quota is reached: so a tenant gets at most a hundredth too much, after
//! a restart, and a small quota is exact.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use windlass_core::{Name, Queue, StateName, Tenant, Timestamp};

/// Notes of the store: `quota/<tenant>` holds a [`Quota`] as JSON.
const NOTES: &str = "quota/";
/// A count is not repeated sooner.
const COUNT_EVERY_MS: i64 = 200;
/// On a store with other servers a count is worth no more after this.
const COUNT_LASTS_MS: i64 = 5_000;
/// Requests that may come at once after a quiet time: those of one second.
const BURST_US: i64 = 1_000_000;
/// Of a quota: what may be added before it is counted.
const HUNDREDTH: u64 = 100;

/// The most that one tenant may have. The defaults are far from what an honest tenant needs, and keep one from taking all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Jobs that have not ended.
    pub jobs: u64,
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
            blob_bytes: 1 << 40,
            handlers: 10_000,
            requests_in_flight: 8_000,
            requests_per_second: 200_000,
            waiting_claims: 8_000,
        }
    }
}

/// What a tenant takes now, as far as it is known without counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub jobs: u64,
    pub blob_bytes: u64,
    pub requests_in_flight: u64,
    pub waiting_claims: u64,
}

/// Tenants and what they take.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    tenants: RwLock<FxHashMap<Tenant, Arc<TenantUse>>>,
}

#[derive(Debug)]
struct TenantUse {
    quota: RwLock<Quota>,
    jobs: Mutex<Bound>,
    blob_bytes: Mutex<Bound>,
    in_flight: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
    rate: Rate,
}

/// An upper bound of a number that only grows by what we add, and shrinks unseen.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    counted: u64,
    counted_at: Option<Timestamp>,
    added: u64,
}

impl Bound {
    fn at_most(self) -> u64 {
        self.counted.saturating_add(self.added)
    }

    /// Whether there is room for `more` by what is known.
    fn has_room(self, more: u64, max: u64) -> bool {
        self.at_most().saturating_add(more) <= max
    }

    /// Whether it is time to count.
    fn must_count(self, more: u64, max: u64, is_shared: bool, now: Timestamp) -> bool {
        let age_ms = self.counted_at.map(|at| now.as_millis() - at.as_millis());
        let is_worth_it = self.added.saturating_add(more) > max / HUNDREDTH;
        match age_ms {
            None => is_worth_it,
            Some(age_ms) if !self.has_room(more, max) => age_ms >= COUNT_EVERY_MS,
            // Others add to it unseen.
            Some(age_ms) => is_shared && is_worth_it && age_ms >= COUNT_LASTS_MS,
        }
    }
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
    fn of(&self, tenant: &Tenant) -> Arc<TenantUse> {
        if let Some(known) = self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(tenant) {
            return Arc::clone(known);
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(TenantUse::new())))
    }

    fn set(&self, tenant: &Tenant, quota: Quota) {
        *self.of(tenant).quota.write().unwrap_or_else(PoisonError::into_inner) = quota;
    }
}

impl TenantUse {
    fn new() -> TenantUse {
        TenantUse {
            quota: RwLock::default(),
            jobs: Mutex::default(),
            blob_bytes: Mutex::default(),
            in_flight: Arc::default(),
            waiting: Arc::default(),
            rate: Rate::default(),
        }
    }

    fn quota(&self) -> Quota {
        *self.quota.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn locked(bound: &Mutex<Bound>) -> std::sync::MutexGuard<'_, Bound> {
    bound.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether the tenant may have so many jobs more; they count from now on. For those who acknowledge jobs before they push
    /// them.
    pub async fn admit_jobs<'a>(
        &self,
        tenant: &Tenant,
        jobs: impl Iterator<Item = (&'a Queue, &'a Name)>,
    ) -> Result<(), EngineError> {
        let mut more = 0;
        for (queue, name) in jobs {
            self.check_reach(queue, name)?;
            more += 1;
        }
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().jobs;
        if self.must_count(&usage.jobs, more, max) {
            match self.inner.count_jobs(tenant).await {
                Ok(counted) => {
                    *locked(&usage.jobs) = Bound { counted, counted_at: Some(self.now()), added: 0 }
                }
                // While the store is away what is known has to do: a journal takes jobs all the same.
                Err(error) if error.is_retryable() && locked(&usage.jobs).has_room(more, max) => {}
                Err(error) => return Err(error),
            }
        }
        admit(&usage.jobs, more, max, "jobs that have not ended")
    }

    /// The same for bytes of blobs; `add` says whether they count from now on.
    pub(crate) async fn admit_blob(&self, tenant: &Tenant, bytes: u64) -> Result<(), EngineError> {
        let usage = self.inner.quotas.of(tenant);
        let max = usage.quota().blob_bytes;
        if self.must_count(&usage.blob_bytes, bytes, max) {
            let counted = self.inner.count_blob_bytes(tenant).await?;
            *locked(&usage.blob_bytes) = Bound { counted, counted_at: Some(self.now()), added: 0 };
        }
        match locked(&usage.blob_bytes).has_room(bytes, max) {
            true => Ok(()),
            false => Err(exceeded("bytes of blobs", max)),
        }
    }

    pub(crate) fn add_blob(&self, tenant: &Tenant, bytes: u64) {
        locked(&self.inner.quotas.of(tenant).blob_bytes).added += bytes;
    }

    fn must_count(&self, bound: &Mutex<Bound>, more: u64, max: u64) -> bool {
        locked(bound).must_count(more, max, self.is_shared(), self.now())
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

fn admit(bound: &Mutex<Bound>, more: u64, max: u64, what: &'static str) -> Result<(), EngineError> {
    let mut bound = locked(bound);
    if !bound.has_room(more, max) {
        return Err(exceeded(what, max));
    }
    bound.added += more;
    Ok(())
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
    fn a_number_is_counted_when_it_matters_and_not_more_often() {
        let at = Timestamp::from_millis;
        let bound = |counted, at_ms: Option<i64>, added| Bound { counted, counted_at: at_ms.map(at), added };
        let check = |bound: Bound, more: u64, is_shared: bool, now: i64, expected: bool| {
            assert_eq!(bound.must_count(more, 1_000, is_shared, at(now)), expected, "{bound:?} {more} {now}");
        };
        check(bound(0, None, 0), 10, false, 0, false);
        check(bound(0, None, 0), 11, false, 0, true);
        check(bound(900, Some(0), 90), 10, false, 9_000, false);
        check(bound(900, Some(0), 90), 11, false, 199, false);
        check(bound(900, Some(0), 90), 11, false, 200, true);
        check(bound(100, Some(0), 50), 1, true, 4_999, false);
        check(bound(100, Some(0), 50), 1, true, 5_000, true);
        check(bound(100, Some(0), 5), 1, true, 5_000, false);
    }
}
