//! Jobs claimed through this server, at their last written version, so that a report needs no query.
//!
//! The table may be outdated (another server may have changed the job), which is safe: every commit is
//! guarded, and a stale one loads the job and tries again. But it never goes back to an older version:
//! results of the store may arrive out of order, and a late one must not restore a lease that has ended.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use windlass_core::{Job, JobId};

/// Most jobs in the table. Reports on further jobs need a query; a million running jobs is rare.
const LEASES_MAX: usize = 1_000_000;

/// Most entries of [`VersionsSeen`]. Late results arrive within milliseconds.
const VERSIONS_SEEN_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    jobs: FxHashMap<JobId, Arc<Job>>,
    versions_seen: VersionsSeen,
}

impl Leases {
    pub(crate) fn get(&self, id: JobId) -> Option<Arc<Job>> {
        self.jobs.get(&id).cloned()
    }

    pub(crate) fn record_grant(&mut self, job: &Arc<Job>) {
        if self.versions_seen.has_reached(job.id, job.version + 1) {
            return;
        }
        let has_room = self.jobs.len() < LEASES_MAX;
        match self.jobs.get_mut(&job.id) {
            Some(known) => newer_of(known, job),
            None if has_room => {
                self.jobs.insert(job.id, job.clone());
            }
            None => {}
        }
    }

    /// Records a change: updates the entry if the job still holds a lease, else removes it. Returns the
    /// previous entry (or `before`); `None`: a later version is already recorded, which includes this change.
    pub(crate) fn changed(&mut self, before: &Arc<Job>, after: Option<&Arc<Job>>) -> Option<Arc<Job>> {
        let version = before.version + 1;
        match self.jobs.entry(before.id) {
            Entry::Occupied(known) if known.get().version >= version => None,
            Entry::Occupied(mut known) => {
                let was = match after.filter(|after| after.state().lease().is_some()) {
                    Some(after) => known.insert(after.clone()),
                    None => known.remove(),
                };
                if was.version < before.version {
                    self.versions_seen.record(before.id, version);
                }
                Some(was)
            }
            Entry::Vacant(_) if self.versions_seen.has_reached(before.id, version) => None,
            Entry::Vacant(_) => {
                // The grant of the lease may arrive after this change.
                if before.state().lease().is_some() {
                    self.versions_seen.record(before.id, version);
                }
                Some(before.clone())
            }
        }
    }

    /// True if a later change of this job was recorded since [`Leases::forget`].
    pub(crate) fn has_later_version(&self, before: &Job) -> bool {
        self.versions_seen.has_reached(before.id, before.version + 1)
    }

    /// Removes a job whose last commit has an unknown outcome.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }
}

/// Highest version seen per job, for jobs whose earlier versions may still arrive. The oldest entries are
/// dropped first.
#[derive(Debug, Default)]
struct VersionsSeen {
    versions: FxHashMap<JobId, u64>,
    order: VecDeque<JobId>,
}

impl VersionsSeen {
    fn record(&mut self, id: JobId, version: u64) {
        if let Some(known) = self.versions.get_mut(&id) {
            *known = version.max(*known);
            return;
        }
        if self.order.len() == VERSIONS_SEEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
        self.order.push_back(id);
        self.versions.insert(id, version);
    }

    fn has_reached(&self, id: JobId, version: u64) -> bool {
        self.versions.get(&id).is_some_and(|known| *known >= version)
    }
}

fn newer_of(known: &mut Arc<Job>, other: &Arc<Job>) {
    if known.version < other.version {
        *known = other.clone();
    }
}
