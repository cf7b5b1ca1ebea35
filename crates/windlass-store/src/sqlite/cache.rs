//! Jobs that need not be read: freshly pushed ones, for the claim that follows, and long-lived ones, for the calls that
//! look at them again and again.

use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::{Body, Job, JobId};

#[cfg(test)]
mod tests;

/// Bytes of jobs kept at most. Full means full: the oldest are claimed first, so the newest are the ones to leave out.
const BYTES_MAX: usize = 32 << 20;
/// What a job takes beside its payload, roughly.
const OVERHEAD_BYTES: usize = 512;
/// What a line of a job's log takes beside its text, roughly.
const LINE_OVERHEAD_BYTES: usize = 64;

#[derive(Default)]
pub struct FreshJobs {
    jobs: FxHashMap<JobId, Arc<Job>>,
    bytes: usize,
}

impl FreshJobs {
    pub fn remember(&mut self, job: Arc<Job>) {
        let bytes = cost(&job);
        if self.bytes + bytes <= BYTES_MAX && self.jobs.insert(job.id, job).is_none() {
            self.bytes += bytes;
        }
    }

    pub fn take(&mut self, id: JobId) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&id)?;
        self.bytes -= cost(&job);
        Some(job)
    }

    /// The job has moved on; what we remember of it is out of date.
    pub fn forget(&mut self, id: JobId) {
        self.take(id);
    }
}

fn cost(job: &Job) -> usize {
    job.spec.payload.bytes.len() + OVERHEAD_BYTES
}

/// Long-lived jobs remembered at most: half of it in each generation.
const RECENT_JOBS_MAX: usize = 8_192;
/// Bytes of them at most, likewise. A job with fuller ports than half of this is read each time.
const RECENT_BYTES_MAX: usize = 64 << 20;

/// Jobs with ports as the last commit left them: each call on one begins with a look at it and ends with a new version.
///
/// Never behind what was acknowledged and never ahead of the disk: the writer takes a job out when it writes it, and puts
/// the new version in when that is committed, before anyone is told. Readers put nothing in, so what they read before a
/// commit cannot come back after it.
#[derive(Default)]
pub struct RecentJobs {
    inner: Mutex<Recent>,
}

/// What was not asked for while a whole generation came in goes with the older one.
#[derive(Default)]
struct Recent {
    young: Generation,
    old: Generation,
    /// By the transaction that is open, in this order; `None`: it is gone, or has no ports any more.
    written: Vec<(JobId, Option<Arc<Job>>)>,
}

#[derive(Default)]
struct Generation {
    jobs: FxHashMap<JobId, (Arc<Job>, usize)>,
    bytes: usize,
}

impl RecentJobs {
    pub fn get(&self, id: JobId) -> Option<Arc<Job>> {
        let mut recent = self.inner();
        if let Some((job, _)) = recent.young.jobs.get(&id) {
            return Some(Arc::clone(job));
        }
        let (job, bytes) = recent.old.remove(id)?;
        recent.put(Arc::clone(&job), bytes);
        Some(job)
    }

    /// In the transaction that is open. `None`: it was not there before, or is not there any more.
    pub fn wrote(&self, before: Option<&Job>, after: Option<&Arc<Job>>) {
        let after = after.filter(|job| job.ports().is_some());
        let had_ports = before.filter(|job| job.ports().is_some());
        let Some(id) = after.map(|job| job.id).or(had_ports.map(|job| job.id)) else { return };
        let mut recent = self.inner();
        recent.remove(id);
        recent.written.push((id, after.map(Arc::clone)));
    }

    /// It is on disk: from here on the new versions are the ones to see.
    pub fn committed(&self) {
        let mut recent = self.inner();
        for (id, job) in std::mem::take(&mut recent.written) {
            recent.remove(id);
            if let Some(job) = job {
                let bytes = cost(&job) + job.body.as_deref().map_or(0, body_bytes);
                recent.put(job, bytes);
            }
        }
    }

    /// Nothing of it happened. What was taken out stays out.
    pub fn taken_back(&self) {
        self.inner().written.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Recent> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Roughly: what can be large.
fn body_bytes(body: &Body) -> usize {
    let ports = body.ports.as_ref().map_or(0, |ports| ports.bytes());
    let outcome = body.outcome.iter().flat_map(|outcome| outcome.result.iter().chain(&outcome.error));
    let outcome: usize = outcome.map(|payload| payload.bytes.len()).sum();
    let lines = body.log.iter().flat_map(|log| &log.lines);
    let lines: usize = lines.map(|line| line.text.len() + LINE_OVERHEAD_BYTES).sum();
    let errors: usize = body.errors.iter().map(|error| error.message.len()).sum();
    ports + outcome + lines + errors
}
