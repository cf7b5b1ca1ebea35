//! Calls that set, remove and list limits, and the update of existing jobs.

use super::{PREFIX, RELIMIT_PAGE, each_running, held_by, limit_of};
use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::verbs::{HeldBy, JobEvent, LimitView};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::limits::Limit;
use windlass_core::{Event, Job, JobId, StateName, Tenant};
use windlass_store::query::Pages;
use windlass_store::{Filter, StoreError};

impl Engine {
    /// Adds or changes a limit. It applies to all waiting and running jobs before this returns.
    pub async fn set_limit(&self, tenant: &Tenant, limit: Limit) -> Result<(), EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_all()?;
        let tenant = tenant.clone();
        let work = async move {
            let key = format!("{PREFIX}{tenant}/{}", limit.id);
            let value =
                serde_json::to_vec(&limit).map_err(|error| StoreError::Unsupported(error.to_string()))?;
            // In the table first, because it may refuse. A crash before the next line loses a limit that was
            // not acknowledged.
            in_flight.limits.set(&tenant, limit, in_flight.now())?;
            in_flight.store.put_setting(&key, Some(value)).await?;
            in_flight.relimit_all(&tenant).await
        };
        self.inner.detached(work).await
    }

    /// Returns false if there was no such limit.
    pub async fn remove_limit(&self, tenant: &Tenant, id: &str) -> Result<bool, EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_all()?;
        let (tenant, id) = (tenant.clone(), id.to_owned());
        let work = async move {
            in_flight.store.put_setting(&format!("{PREFIX}{tenant}/{id}"), None).await?;
            let removed = in_flight.limits.remove(&tenant, &id);
            if removed {
                in_flight.relimit_all(&tenant).await?;
            }
            Ok(removed)
        };
        self.inner.detached(work).await
    }

    /// Limit that blocks this job now; `None` also if the job is not due.
    pub async fn held_by(&self, job: &Job) -> Result<Option<HeldBy>, EngineError> {
        let (tenant, keys, now) = (&job.spec.tenant, job.spec.limit_keys(), self.now());
        if keys.is_empty() || job.state().claimable_at().is_none_or(|at| at > now) {
            return Ok(None);
        }
        let Some(shared) = self.inner.store.shared() else {
            return Ok(self.inner.limits.held_by(tenant, keys, now));
        };
        let used = shared.limit_use(tenant, keys).await?;
        Ok(held_by(&mut self.inner.limits.charged_with(tenant, used, now), keys, now))
    }

    /// Limits ordered by id.
    pub async fn limits(&self, tenant: &Tenant) -> Result<Vec<LimitView>, EngineError> {
        self.inner.open()?;
        self.check_all()?;
        let mut views = self.inner.limits.views(tenant);
        // Jobs running at other servers count too, but are not in the local table.
        if self.is_shared() && !views.is_empty() {
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
    /// Applies changes of limits by other servers, also to jobs created here meanwhile.
    pub(crate) async fn follow_limits(self: &Arc<Self>) -> Result<(), EngineError> {
        for tenant in self.limits.reload(&*self.store, self.now()).await? {
            self.relimit_all(&tenant).await?;
        }
        let Some(shared) = self.store.shared() else { return Ok(()) };
        loop {
            let unchecked = shared.unchecked(RELIMIT_PAGE).await?;
            let count = unchecked.len();
            self.relimit_new(unchecked).await?;
            if count < RELIMIT_PAGE {
                return Ok(());
            }
        }
    }

    /// Counts the due jobs under each limit, and those that it blocks. If several limits block a job, the
    /// first counts, as in a claim.
    async fn count_waiting(&self, tenant: &Tenant, views: &mut [LimitView]) -> Result<(), EngineError> {
        let now = self.now();
        let groups = self.store.under_limits(tenant, now).await?;
        let mut counts: FxHashMap<Box<str>, (u64, u64)> = FxHashMap::default();
        // With several servers only the store knows the total use.
        let mut charged = None;
        if let Some(shared) = self.store.shared() {
            let keys: BTreeSet<&Arc<str>> = groups.iter().flat_map(|group| &group.keys).collect();
            let keys: Vec<Arc<str>> = keys.into_iter().cloned().collect();
            let used = shared.limit_use(tenant, &keys).await?;
            charged = Some(self.limits.charged_with(tenant, used, now));
        }
        for groups in groups.chunks(RELIMIT_PAGE) {
            // The lock is released between two pages.
            let mut tables = self.limits.tables();
            let Some(table) = tables.get_mut(tenant) else { break };
            let limits = charged.as_mut().unwrap_or(&mut table.limits);
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
        each_running(&*self.store, tenant, |job| {
            for key in job.spec.limit_keys() {
                *running.entry(limit_of(key).into()).or_default() += 1;
            }
        })
        .await?;
        Ok(running)
    }

    /// Recomputes the keys of all unsettled jobs of the tenant, page by page.
    async fn relimit_all(self: &Arc<Self>, tenant: &Tenant) -> Result<(), EngineError> {
        let living = StateName::ALL.into_iter().filter(|state| !state.is_settled());
        let mut pages = Pages::new(Filter {
            tenant: Some(tenant.clone()),
            states: living.collect(),
            limit: RELIMIT_PAGE,
            ..Filter::default()
        });
        while let Some(jobs) = pages.next(&*self.store).await? {
            self.relimit(jobs).await?;
        }
        Ok(())
    }

    /// Recomputes the keys of jobs that were created or changed while limits changed.
    pub(crate) async fn relimit_new(self: &Arc<Self>, ids: Vec<JobId>) -> Result<(), EngineError> {
        let jobs = self.store.load(ids).await?;
        self.relimit(jobs.into_iter().flatten().collect()).await
    }

    /// Recomputes the keys of the written jobs if limits changed since `epoch`.
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
            // Every update recomputes the keys, from the current version of the job.
            asks.push(JobEvent { id: job.id, event: Event::Update(Box::default()) });
        }
        // The limit itself may have been raised, so the jobs it blocked are tried again.
        reopened.sort_unstable();
        reopened.dedup();
        if !asks.is_empty() {
            self.change(None, asks, jobs).await?;
        }
        reopened.iter().for_each(|key| self.store.reopen(key));
        Ok(())
    }
}
