//! Metrics by tenant, queue and name of the jobs. Their number is bounded: further names share the series `other`.

use super::meters::Counter;
use crate::transaction::Moved;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use windlass_core::{Event, Name, Queue, StateName, Tenant};
use windlass_store::meters::Histogram;

/// Tenant, queue and name of the series for everything beyond the bound.
pub const OTHER: &str = "other";

/// Way in which a run, or a job without one, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Completed,
    /// No attempt is left.
    Failed,
    /// The attempt failed, and another one follows.
    Retried,
    /// The lease expired.
    Lapsed,
    /// Returned by the worker without a result.
    Released,
    Cancelled,
}

impl JobOutcome {
    pub const ALL: [JobOutcome; 6] = [
        JobOutcome::Completed,
        JobOutcome::Failed,
        JobOutcome::Retried,
        JobOutcome::Lapsed,
        JobOutcome::Released,
        JobOutcome::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            JobOutcome::Completed => "completed",
            JobOutcome::Failed => "failed",
            JobOutcome::Retried => "retried",
            JobOutcome::Lapsed => "lapsed",
            JobOutcome::Released => "released",
            JobOutcome::Cancelled => "cancelled",
        }
    }

    /// Outcome of a committed event; `None` if nothing ended.
    pub(crate) fn of(event: &Event, moved: &Moved) -> Option<JobOutcome> {
        let after = moved.after.as_ref();
        match event {
            Event::Finish(_) => Some(JobOutcome::Completed),
            Event::Fail(_) => Some(match after.map(|job| (job.state().name(), job.progress.attempts)) {
                // A repeating job that waits for its next turn counts its attempts from zero.
                Some((StateName::Ready, attempts)) if attempts > 0 => JobOutcome::Retried,
                Some((StateName::Cancelled, _)) => JobOutcome::Cancelled,
                _ => JobOutcome::Failed,
            }),
            Event::Lapse { .. } | Event::LapseInOutage { .. } => Some(JobOutcome::Lapsed),
            Event::Release { .. } | Event::Return { .. } | Event::Restart(_) => Some(JobOutcome::Released),
            Event::Cancel { .. } if after.is_none_or(|job| job.state().lease().is_none()) => {
                Some(JobOutcome::Cancelled)
            }
            _ => None,
        }
    }
}

/// Counters and histograms of the jobs with one name in one queue.
#[derive(Debug)]
pub struct JobSeries {
    pub pushed: Counter,
    pub claimed: Counter,
    outcomes: [Counter; JobOutcome::ALL.len()],
    /// Time from when a job could run until it was claimed.
    pub wait_us: Histogram,
    /// Time from the claim to the worker's report.
    pub run_us: Histogram,
}

impl JobSeries {
    pub fn outcome(&self, outcome: JobOutcome) -> &Counter {
        &self.outcomes[outcome as usize]
    }
}

impl Default for JobSeries {
    fn default() -> Self {
        JobSeries {
            pushed: Counter::default(),
            claimed: Counter::default(),
            outcomes: Default::default(),
            wait_us: Histogram::of_coarse_times(),
            run_us: Histogram::of_coarse_times(),
        }
    }
}

/// Tenant, queue and name of a series.
pub type JobKey = (Tenant, Queue, Name);

#[derive(Debug)]
pub struct JobMeters {
    max: usize,
    /// Written only when a name appears for the first time.
    known: RwLock<FxHashMap<JobKey, Arc<JobSeries>>>,
    other: Arc<JobSeries>,
}

impl JobMeters {
    pub(crate) fn new(max: usize) -> JobMeters {
        JobMeters { max, known: RwLock::default(), other: Arc::default() }
    }

    /// Series of these jobs, made if there is room.
    pub(crate) fn of(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Arc<JobSeries> {
        let key = (tenant.clone(), queue.clone(), name.clone());
        let is_full = {
            let known = self.known.read();
            if let Some(series) = known.get(&key) {
                return Arc::clone(series);
            }
            known.len() >= self.max
        };
        let is_other = [tenant.as_str(), queue.as_str(), name.as_str()] == [OTHER; 3];
        if is_full || is_other {
            return Arc::clone(&self.other);
        }
        let mut known = self.known.write();
        if known.len() >= self.max && !known.contains_key(&key) {
            return Arc::clone(&self.other);
        }
        Arc::clone(known.entry(key).or_default())
    }

    /// Looks up the series of a batch of one tenant: once for consecutive jobs of one name.
    pub(crate) fn in_batch(&self, tenant: &Tenant) -> BatchSeries<'_> {
        BatchSeries { meters: self, tenant: tenant.clone(), last: None }
    }

    /// Series by key, in order; then the one of everything beyond the bound.
    pub fn all(&self) -> (Vec<(JobKey, Arc<JobSeries>)>, Arc<JobSeries>) {
        let known = self.known.read();
        let mut all: Vec<_> = known.iter().map(|(key, series)| (key.clone(), Arc::clone(series))).collect();
        drop(known);
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        (all, Arc::clone(&self.other))
    }
}

/// Series of the jobs of a batch, one after the other.
pub(crate) struct BatchSeries<'a> {
    meters: &'a JobMeters,
    tenant: Tenant,
    last: Option<(Queue, Name, Arc<JobSeries>)>,
}

impl BatchSeries<'_> {
    pub(crate) fn of(&mut self, queue: &Queue, name: &Name) -> &JobSeries {
        let is_same = matches!(&self.last, Some((last_queue, last_name, _)) if last_queue == queue && last_name == name);
        if !is_same {
            self.last = None;
        }
        let look_up = || (queue.clone(), name.clone(), self.meters.of(&self.tenant, queue, name));
        &self.last.get_or_insert_with(look_up).2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn names_beyond_the_bound_share_a_series() {
        let meters = JobMeters::new(2);
        let (tenant, queue) = (Tenant::default(), Queue::default());
        for text in ["a", "b", "c", "d", "a", "c"] {
            meters.of(&tenant, &queue, &name(text)).pushed.add(1);
        }
        let (all, other) = meters.all();
        let counted: Vec<(&str, u64)> =
            all.iter().map(|((.., name), one)| (&**name, one.pushed.get())).collect();
        assert_eq!((counted, other.pushed.get()), (vec![("a", 2), ("b", 1)], 3));
    }

    #[test]
    fn jobs_that_are_called_like_the_rest_are_counted_with_it() {
        let meters = JobMeters::new(2);
        let (tenant, queue) = (Tenant::new(OTHER).unwrap(), Queue::new(OTHER).unwrap());
        meters.of(&tenant, &queue, &name(OTHER)).pushed.add(1);
        let (all, other) = meters.all();
        assert_eq!((all.len(), other.pushed.get()), (0, 1));
    }

    #[test]
    fn a_batch_is_counted_by_name() {
        let meters = JobMeters::new(10);
        let (tenant, queue) = (Tenant::default(), Queue::default());
        let mut series = meters.in_batch(&tenant);
        for text in ["a", "a", "b", "a"] {
            series.of(&queue, &name(text)).claimed.add(1);
        }
        let claimed = |text| meters.of(&tenant, &queue, &name(text)).claimed.get();
        assert_eq!((claimed("a"), claimed("b")), (3, 1));
    }
}
