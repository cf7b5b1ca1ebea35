//! Jobs that were deleted a moment ago, kept in memory so that the deletion can be undone. See
//! docs/adr/0019.

use crate::query::job_bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant, Timestamp};

/// Jobs kept; beyond it the oldest are forgotten before their time.
const JOBS_MAX: usize = 10_000;
/// Bytes of their payloads, results, errors and logs together.
const BYTES_MAX: usize = 64 << 20;

pub(super) struct Deleted {
    /// 0: nothing is kept.
    keep_ms: i64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// In the order of their deletion.
    jobs: VecDeque<(Timestamp, Arc<Job>)>,
    bytes: usize,
}

impl Deleted {
    pub(super) fn new(keep_ms: i64) -> Deleted {
        Deleted { keep_ms, kept: Mutex::default() }
    }

    /// Number of jobs kept at most; 0: none are.
    pub(super) fn jobs_max(&self) -> usize {
        if self.keep_ms == 0 { 0 } else { JOBS_MAX }
    }

    /// Keeps a job as it was when it was deleted; until when, or `None` if its deletion cannot be undone.
    pub(super) fn keep(&self, job: Arc<Job>, now: Timestamp) -> Option<Timestamp> {
        let bytes = job_bytes(&job);
        if self.keep_ms == 0 || !can_come_back(&job) || bytes > BYTES_MAX {
            return None;
        }
        let until = now.plus_ms(self.keep_ms);
        let mut kept = self.kept.lock();
        kept.bytes += bytes;
        kept.jobs.push_back((until, job));
        kept.forget(now);
        Some(until)
    }

    /// Hands out a job that is still kept, once, with the end of its time.
    pub(super) fn take(
        &self,
        tenant: Option<&Tenant>,
        id: JobId,
        now: Timestamp,
    ) -> Option<(Timestamp, Arc<Job>)> {
        let mut kept = self.kept.lock();
        kept.forget(now);
        let is_meant = |job: &Job| job.id == id && tenant.is_none_or(|tenant| *tenant == job.spec.tenant);
        let place = kept.jobs.iter().position(|(until, job)| *until > now && is_meant(job))?;
        let (until, job) = kept.jobs.remove(place)?;
        kept.bytes -= job_bytes(&job);
        Some((until, job))
    }

    /// Forgets jobs whose time is over.
    pub(super) fn sweep(&self, now: Timestamp) {
        self.kept.lock().forget(now);
    }

    /// Takes back a job that was handed out and did not come back.
    pub(super) fn return_taken(&self, (until, job): (Timestamp, Arc<Job>)) {
        let mut kept = self.kept.lock();
        kept.bytes += job_bytes(&job);
        kept.jobs.push_front((until, job));
    }
}

impl Kept {
    /// Forgets jobs whose time is over, and the oldest beyond the bounds.
    fn forget(&mut self, now: Timestamp) {
        while let Some((until, _)) = self.jobs.front() {
            if *until > now && self.jobs.len() <= JOBS_MAX && self.bytes <= BYTES_MAX {
                return;
            }
            if let Some((_, job)) = self.jobs.pop_front() {
                self.bytes -= job_bytes(&job);
            }
        }
    }
}

/// A member of a family does not come back: its relatives went on without it. Nor does a job with ports, whose
/// neighbours did.
fn can_come_back(job: &Job) -> bool {
    job.spec.family().is_none() && job.progress.pending_children == 0 && job.ports().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::family::{Family, FamilyRule};
    use windlass_core::{Extras, Format, JobSpec, JobState, Name, Payload, Policy, Progress, Queue};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn job(id: u64, tenant: &str, bytes: usize, extras: Option<Box<Extras>>) -> Arc<Job> {
        let spec = JobSpec {
            tenant: Tenant::new(tenant).unwrap(),
            queue: Queue::default(),
            name: Name::new("a").unwrap(),
            payload: Payload::new(Format::Binary, vec![0; bytes]),
            priority: 0,
            created_at: at(0),
            policy: Arc::new(Policy::default()),
            extras,
        };
        let state = JobState::ready(at(0));
        Arc::new(Job::from_parts(
            JobId::new(id).unwrap(),
            1,
            Arc::new(spec),
            Progress::default(),
            None,
            state,
        ))
    }

    fn id(number: u64) -> JobId {
        JobId::new(number).unwrap()
    }

    #[test]
    fn a_job_is_handed_out_once_within_its_time_and_tenant() {
        let deleted = Deleted::new(1_000);
        assert_eq!(deleted.keep(job(1, "a", 10, None), at(0)), Some(at(1_000)));
        deleted.keep(job(2, "b", 10, None), at(500));
        let (a, b) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        assert!(deleted.take(Some(&b), id(1), at(999)).is_none());
        assert!(deleted.take(Some(&a), id(1), at(999)).is_some());
        assert!(deleted.take(Some(&a), id(1), at(999)).is_none());
        assert!(deleted.take(None, id(2), at(1_499)).is_some());
        deleted.keep(job(3, "a", 10, None), at(2_000));
        assert!(deleted.take(None, id(3), at(3_000)).is_none());
        assert_eq!(deleted.kept.lock().bytes, 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let deleted = Deleted::new(1_000);
        for number in 1..=5 {
            deleted.keep(job(number, "a", BYTES_MAX / 4, None), at(0));
        }
        assert!(deleted.take(None, id(1), at(1)).is_none() && deleted.take(None, id(2), at(1)).is_some());
        assert_eq!(deleted.keep(job(6, "a", BYTES_MAX + 1, None), at(0)), None);
        for number in 10..10 + JOBS_MAX as u64 + 5 {
            deleted.keep(job(number, "a", 0, None), at(0));
        }
        assert_eq!(deleted.kept.lock().jobs.len(), JOBS_MAX);
    }

    #[test]
    fn some_deletions_cannot_be_undone() {
        let family = Family { parent: id(9), child_name: None, rule: FamilyRule::ParentRunsAfter };
        let extras = Extras { family: Some(family), ..Extras::default() };
        assert_eq!(Deleted::new(1_000).keep(job(1, "a", 1, Some(Box::new(extras))), at(0)), None);
        assert_eq!(Deleted::new(0).keep(job(1, "a", 1, None), at(0)), None);
    }
}
