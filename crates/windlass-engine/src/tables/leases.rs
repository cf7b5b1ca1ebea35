//! Jobs claimed through this server, as they were last written, so that a report on one needs no load.
//!
//! The table may be behind (another server may have touched the job) and nothing breaks: every commit is guarded,
//! and a stale one loads the job and tries again. But it never goes back: answers of the store may be heard of in another
//! order than they were given, and one that comes late must not bring back a lease that has ended.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use windlass_core::{Job, JobId};

/// Jobs remembered. Beyond that, reports load their job first; a million running jobs is not a common sight.
const LEASES_MAX: usize = 1_000_000;

/// Jobs of which it is remembered how far they have come although they are not in the table. What is waited for comes within
/// milliseconds.
const OVERTAKEN_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    jobs: FxHashMap<JobId, Arc<Job>>,
    versions_seen: VersionsSeen,
}

impl Leases {
    pub(crate) fn get(&self, id: JobId) -> Option<Arc<Job>> {
        self.jobs.get(&id).cloned()
    }

    pub(crate) fn granted(&mut self, job: &Arc<Job>) {
        if self.versions_seen.has_come_to(job.id, job.version + 1) {
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

    /// The job was changed: kept if it still runs, dropped if not. Answers with the job as it was when we last heard of it;
    /// `None`: we have heard of a later version already, and what this change did is in that.
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
            Entry::Vacant(_) if self.versions_seen.has_come_to(before.id, version) => None,
            Entry::Vacant(_) => {
                // Handed out a moment ago, perhaps, which we are yet to hear of.
                if before.state().lease().is_some() {
                    self.versions_seen.record(before.id, version);
                }
                Some(before.clone())
            }
        }
    }

    /// Whether somebody has seen to the end of this lease since what we know of it came in doubt.
    pub(crate) fn is_seen_to(&self, before: &Job) -> bool {
        self.versions_seen.has_come_to(before.id, before.version + 1)
    }

    /// What we know of it is in doubt.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }
}

/// How far jobs have come that may still be spoken of as they were before. The oldest are forgotten first.
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
        if self.order.len() == OVERTAKEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
        self.order.push_back(id);
        self.versions.insert(id, version);
    }

    fn has_come_to(&self, id: JobId, version: u64) -> bool {
        self.versions.get(&id).is_some_and(|known| *known >= version)
    }
}

fn newer_of(known: &mut Arc<Job>, other: &Arc<Job>) {
    if known.version < other.version {
        *known = other.clone();
    }
}
