//! Freshly pushed jobs, so that the claim that follows reads nothing.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use windlass_core::{Job, JobId};

/// Bytes of jobs kept at most. Full means full: the oldest are claimed first, so the newest are the ones to leave out.
const BYTES_MAX: usize = 32 << 20;
/// What a job takes beside its payload, roughly.
const OVERHEAD_BYTES: usize = 512;

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
