//! Job caches: recently pushed jobs, for the claim that follows, and long-lived jobs, for the calls that read
//! them again and again.

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use windlass_core::{Body, Job, JobId};

#[cfg(test)]
mod tests;

/// Most bytes of cached jobs. A full cache takes no new jobs: the oldest jobs are claimed first, so the
/// newest are left out.
const BYTES_MAX: usize = 32 << 20;
/// Approximate size of a job beside its payload.
const OVERHEAD_BYTES: usize = 512;

#[derive(Default)]
pub(super) struct FreshJobs {
    jobs: FxHashMap<JobId, Arc<Job>>,
    bytes: usize,
}

impl FreshJobs {
    pub(super) fn remember(&mut self, job: Arc<Job>) {
        let bytes = cost(&job);
        if self.bytes + bytes <= BYTES_MAX && self.jobs.insert(job.id, job).is_none() {
            self.bytes += bytes;
        }
    }

    pub(super) fn take(&mut self, id: JobId) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&id)?;
        self.bytes -= cost(&job);
        Some(job)
    }

    /// Drops an outdated version of a job.
    pub(super) fn forget(&mut self, id: JobId) {
        self.take(id);
    }
}

fn cost(job: &Job) -> usize {
    job.spec.payload.bytes.len() + OVERHEAD_BYTES
}

/// Most long-lived jobs cached: half of them in each generation.
const RECENT_JOBS_MAX: usize = 8_192;
/// Most bytes of long-lived jobs, half in each generation. A job larger than half of this is read each time.
const RECENT_BYTES_MAX: usize = 64 << 20;

/// Committed versions of jobs with ports: each call on such a job reads it and writes a new version.
///
/// The cache is never behind an acknowledged commit and never ahead of the disk: the writer removes a job
/// when it writes it, and inserts the new version after the commit, before any reply is sent. Readers insert
/// nothing, so a version read before a commit cannot come back after it.
#[derive(Default)]
pub(super) struct RecentJobs {
    inner: Mutex<Recent>,
}

/// Two generations: an entry not used while a whole generation filled is dropped with the older one.
#[derive(Default)]
struct Recent {
    young: Generation,
    old: Generation,
    /// Written by the open transaction, in this order; `None`: the job was deleted, or has no ports any more.
    written: Vec<(JobId, Option<Arc<Job>>)>,
}

#[derive(Default)]
struct Generation {
    jobs: FxHashMap<JobId, (Arc<Job>, usize)>,
    bytes: usize,
}

impl RecentJobs {
    pub(super) fn get(&self, id: JobId) -> Option<Arc<Job>> {
        let mut recent = self.inner();
        if let Some((job, _)) = recent.young.jobs.get(&id) {
            return Some(Arc::clone(job));
        }
        let (job, bytes) = recent.old.remove(id)?;
        recent.put(Arc::clone(&job), bytes);
        Some(job)
    }

    /// Records a write of the open transaction. `None`: the job did not exist before, or was deleted.
    pub(super) fn wrote(&self, before: Option<&Job>, after: Option<&Arc<Job>>) {
        let after = after.filter(|job| job.ports().is_some());
        let had_ports = before.filter(|job| job.ports().is_some());
        let Some(id) = after.map(|job| job.id).or(had_ports.map(|job| job.id)) else { return };
        let mut recent = self.inner();
        recent.remove(id);
        recent.written.push((id, after.map(Arc::clone)));
    }

    /// The transaction is durable: its versions become visible.
    pub(super) fn committed(&self) {
        let mut recent = self.inner();
        for (id, job) in std::mem::take(&mut recent.written) {
            recent.remove(id);
            if let Some(job) = job {
                let bytes = cost(&job) + job.body.as_deref().map_or(0, Body::bytes);
                recent.put(job, bytes);
            }
        }
    }

    /// The transaction was rolled back. Removed entries stay removed.
    pub(super) fn taken_back(&self) {
        self.inner().written.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Recent> {
        self.inner.lock()
    }
}

impl Recent {
    fn put(&mut self, job: Arc<Job>, bytes: usize) {
        let is_full = |generation: &Generation| {
            generation.jobs.len() >= RECENT_JOBS_MAX / 2 || generation.bytes + bytes > RECENT_BYTES_MAX / 2
        };
        if bytes > RECENT_BYTES_MAX / 2 {
            return;
        }
        if is_full(&self.young) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        self.young.jobs.insert(job.id, (job, bytes));
    }

    fn remove(&mut self, id: JobId) {
        if self.young.remove(id).is_none() {
            self.old.remove(id);
        }
    }
}

impl Generation {
    fn remove(&mut self, id: JobId) -> Option<(Arc<Job>, usize)> {
        let (job, bytes) = self.jobs.remove(&id)?;
        self.bytes -= bytes;
        Some((job, bytes))
    }
}
