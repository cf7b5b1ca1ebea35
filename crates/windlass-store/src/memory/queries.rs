//! Queries of the reference implementation: every one looks through all jobs.

use super::Inner;
use crate::UnderLimits;
use crate::change::summed;
use crate::query::{Filter, PAGE_MAX, Page, PageBuilder, QueueCounts, WaitingName};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::{Job, JobId, Name, Queue, StateWord, Tenant, Timestamp};

impl Inner {
    pub(super) fn list(&self, filter: &Filter) -> Page {
        let mut page = PageBuilder::new(filter.limit.clamp(1, PAGE_MAX));
        let earlier = |job: &&Arc<Job>| filter.before.is_none_or(|before| job.id < before);
        for job in self.jobs.values().rev().filter(earlier).filter(|job| filter.fits(job)) {
            if page.is_full() {
                return page.end_here();
            }
            page.push(Arc::clone(job));
        }
        page.end_at(None)
    }

    pub(super) fn find_named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Option<JobId> {
        let is_named = |job: &&Arc<Job>| {
            job.spec.tenant == *tenant && job.spec.queue == *queue && job.spec.name == *name
        };
        self.jobs.values().rev().find(is_named).map(|job| job.id)
    }

    pub(super) fn waiting(&self, queue: &Queue, now: Timestamp) -> Vec<WaitingName> {
        let mut names: BTreeMap<(Tenant, Name), u64> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.spec.queue == *queue && !self.is_paused(job)) {
            if job.state().claimable_at().is_some_and(|run_at| run_at <= now) {
                *names.entry((job.spec.tenant.clone(), job.spec.name.clone())).or_default() += 1;
            }
        }
        let counted = |((tenant, name), ready)| WaitingName { tenant, name, ready };
        names.into_iter().map(counted).collect()
    }

    /// Counts of queues that have a job or are paused, by tenant and name.
    pub(super) fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Vec<QueueCounts> {
        let mut queues: BTreeMap<(Tenant, Queue), QueueCounts> = BTreeMap::new();
        for address in &self.paused {
            queues.insert(address.clone(), no_jobs(address, true));
        }
        for job in self.jobs.values() {
            let address = (job.spec.tenant.clone(), job.spec.queue.clone());
            let counts = queues.entry(address).or_insert_with_key(|address| no_jobs(address, false));
            counts.by_state[job.state().name() as usize] += 1;
            if let Some(run_at) = job.state().claimable_at().filter(|run_at| *run_at <= now) {
                counts.oldest_due = Some(counts.oldest_due.map_or(run_at, |oldest| oldest.min(run_at)));
            }
            match job.state_word(now) {
                StateWord::Delayed => counts.delayed += 1,
                StateWord::Retrying => counts.retrying += 1,
                _ => {}
            }
        }
        queues.into_values().filter(|counts| tenant.is_none_or(|tenant| *tenant == counts.tenant)).collect()
    }

    pub(super) fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Vec<UnderLimits> {
        let is_due = |job: &&Arc<Job>| job.state().claimable_at().is_some_and(|run_at| run_at <= now);
        let is_limited = |job: &&Arc<Job>| job.spec.tenant == *tenant && !job.spec.limit_keys().is_empty();
        summed(self.jobs.values().filter(is_limited).filter(is_due).map(|job| UnderLimits {
            keys: job.spec.limit_keys().to_vec(),
            due: 1,
            held: self.held_by(job.id, now),
        }))
    }

    fn held_by(&self, id: JobId, now: Timestamp) -> Option<Arc<str>> {
        let held = self.held.get(&id).filter(|held| held.until.is_none_or(|until| until > now));
        held.map(|held| held.key.clone())
    }
}

fn no_jobs((tenant, queue): &(Tenant, Queue), paused: bool) -> QueueCounts {
    QueueCounts {
        tenant: tenant.clone(),
        queue: queue.clone(),
        paused,
        by_state: [0; 9],
        delayed: 0,
        retrying: 0,
        oldest_due: None,
    }
}
