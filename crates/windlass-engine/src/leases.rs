//! Jobs claimed through this server, as they were last written, so that a report on one needs no load.
//!
//! The table may be behind (another server may have touched the job) and nothing breaks: every commit is guarded,
//! and a stale one loads the job and tries again.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use windlass_core::{Job, JobId};

/// Jobs remembered. Beyond that, reports load their job first; a million running jobs is not a common sight.
const LEASES_MAX: usize = 1_000_000;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    jobs: FxHashMap<JobId, Arc<Job>>,
}

impl Leases {
    pub(crate) fn get(&self, id: JobId) -> Option<Arc<Job>> {
        self.jobs.get(&id).cloned()
    }

    pub(crate) fn granted(&mut self, job: &Arc<Job>) {
        let has_room = self.jobs.len() < LEASES_MAX;
        match self.jobs.get_mut(&job.id) {
            Some(known) => newer_of(known, job),
            None if has_room => {
                self.jobs.insert(job.id, job.clone());
            }
            None => {}
        }
    }

    /// The job was changed: kept if it still runs, dropped if not. Answers may arrive out of order, so the version
    /// decides.
    pub(crate) fn changed(&mut self, before: &Arc<Job>, after: Option<&Arc<Job>>) {
        match after {
            Some(after) if after.state().lease().is_some() => {
                if let Some(known) = self.jobs.get_mut(&after.id) {
                    newer_of(known, after);
                }
            }
            _ => {
                if self.jobs.get(&before.id).is_some_and(|known| known.version <= before.version) {
                    self.jobs.remove(&before.id);
                }
            }
        }
    }

    /// What we know of it is in doubt.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }
}

fn newer_of(known: &mut Arc<Job>, other: &Arc<Job>) {
    if known.version < other.version {
        *known = other.clone();
    }
}
