//! Plan of a group commit: verdicts, and rows to write. Pure code between the reads and the writes of one
//! transaction, which holds locks on the rows and keys involved.

use super::lanes::LaneId;
use crate::change::{Change, Inserted, NewJob, Step, Verdict};
use crate::change::{InTheWay, KeyRule};
use crate::keys::{Key, keys_of, keys_of_spec, minds_keys, refusal};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::{Job, JobId, created};

/// Provisional ids of new jobs start here: above every real id, in the order of insertion.
const PROVISIONAL: u64 = 1 << 62;

/// Job as found in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub version: u64,
    pub lane: LaneId,
    /// In the table of settled jobs.
    pub is_done: bool,
}

/// Rows and keys that have to be read and locked before planning.
#[derive(Default)]
pub(super) struct Needs {
    pub ids: BTreeSet<JobId>,
    pub keys: FxHashSet<Key>,
}

impl Needs {
    pub(super) fn of(steps: &[Step]) -> Needs {
        let mut needs = Needs::default();
        for step in steps {
            for change in &step.changes {
                needs.ids.insert(change.before.id);
                if change.keys == KeyRule::Ask
                    && let Some(after) = &change.after
                {
                    needs.keys.extend(keys_of(after));
                }
            }
            for new in &step.inserts {
                needs.keys.extend(keys_of_spec(&new.spec));
            }
        }
        needs
    }
}

/// Change of one row.
pub(super) struct Write {
    /// Version in the database.
    pub before: Arc<Job>,
    pub after: Option<Arc<Job>>,
    /// Lane of the row. The key of the job may lead to another lane: two servers may have created the same
    /// lane at once.
    pub lane: LaneId,
    pub was_done: bool,
}

#[derive(Default)]
pub(super) struct Plan {
    pub verdicts: Vec<Verdict>,
    pub writes: Vec<Write>,
    /// In the order in which they get their ids.
    pub inserts: Vec<Job>,
    /// New values; `None`: deleted.
    pub settings: BTreeMap<String, Option<Vec<u8>>>,
}

/// Applies the steps in order to the data found.
pub(super) fn plan(
    steps: &[Step],
    found: &FxHashMap<JobId, Found>,
    claimants: FxHashMap<Key, BTreeSet<JobId>>,
) -> Plan {
    let mut planner = Planner {
        found,
        versions: FxHashMap::default(),
        claimants,
        at: FxHashMap::default(),
        plan: Plan::default(),
    };
    for step in steps {
        let verdict = planner.plan_step(step);
        planner.plan.verdicts.push(verdict);
    }
    planner.plan
}

struct Planner<'a> {
    found: &'a FxHashMap<JobId, Found>,
    /// Versions of jobs changed by the plan; `None`: deleted.
    versions: FxHashMap<JobId, Option<u64>>,
    /// Claimants of the keys that a step asks for.
    claimants: FxHashMap<Key, BTreeSet<JobId>>,
    /// Index of a job in `plan.writes`.
    at: FxHashMap<JobId, usize>,
    plan: Plan,
}

impl Planner<'_> {
    fn plan_step(&mut self, step: &Step) -> Verdict {
        if !self.are_current(&step.changes) {
            return Verdict::Stale;
        }
        if minds_keys(step) {
            let claimants = |key: &Key| self.claimants.get(key).into_iter().flatten().copied().collect();
            if let Some(refused) = refusal(step, claimants) {
                return refused;
            }
        }
        for change in &step.changes {
            self.change(change);
        }
        self.plan.settings.extend(step.settings.iter().cloned());
        Verdict::Done(step.inserts.iter().map(|new| self.insert(new)).collect())
    }

    fn are_current(&self, changes: &[Change]) -> bool {
        let mut versions: FxHashMap<JobId, Option<u64>> = FxHashMap::default();
        changes.iter().all(|change| {
            let id = change.before.id;
            let planned = versions.get(&id).or_else(|| self.versions.get(&id)).copied();
            let version = planned.unwrap_or_else(|| self.found.get(&id).map(|found| found.version));
            versions.insert(id, change.after.as_ref().map(|after| after.version));
            version == Some(change.before.version)
        })
    }

    fn change(&mut self, change: &Change) {
        let id = change.before.id;
        self.versions.insert(id, change.after.as_ref().map(|after| after.version));
        self.move_keys(
            id,
            &keys_of(&change.before),
            change.after.as_deref().map(keys_of).unwrap_or_default().as_slice(),
        );
        if let Some(&place) = self.at.get(&id) {
            self.plan.writes[place].after = change.after.clone();
        } else if let Some(found) = self.found.get(&id) {
            self.at.insert(id, self.plan.writes.len());
            let (before, after) = (Arc::clone(&change.before), change.after.clone());
            self.plan.writes.push(Write { before, after, lane: found.lane, was_done: found.is_done });
        }
    }

    fn insert(&mut self, new: &NewJob) -> Inserted {
        let keys = keys_of_spec(&new.spec);
        let holder = keys.iter().find_map(|key| self.claimants.get(key)?.first().copied());
        if let Some(holder) = holder {
            return Inserted::Existing(holder);
        }
        let id = provisional(self.plan.inserts.len());
        self.move_keys(id, &[], &keys);
        let (spec, body) = (Arc::clone(&new.spec), new.body.clone());
        self.plan.inserts.push(created(id, spec, new.run_at, new.held_by_parent, body));
        Inserted::New(id)
    }

    /// Moves a job between keys. Keys that no step asks for are not tracked.
    fn move_keys(&mut self, id: JobId, had: &[Key], has: &[Key]) {
        if self.claimants.is_empty() {
            return;
        }
        for key in had {
            if let Some(claimants) = self.claimants.get_mut(key) {
                claimants.remove(&id);
            }
        }
        for key in has {
            if let Some(claimants) = self.claimants.get_mut(key) {
                claimants.insert(id);
            }
        }
    }
}

fn provisional(place: usize) -> JobId {
    JobId::new(PROVISIONAL + place as u64).expect("a number above another is not zero")
}

/// Replaces provisional ids by those that the database assigned.
pub(super) fn with_ids(verdicts: Vec<Verdict>, ids: &[JobId]) -> Vec<Verdict> {
    let real = |id: JobId| match id.get().checked_sub(PROVISIONAL) {
        Some(place) => ids.get(place as usize).copied().unwrap_or(id),
        None => id,
    };
    let each = |verdict: Verdict| match verdict {
        Verdict::Done(inserted) => Verdict::Done(
            inserted
                .into_iter()
                .map(|one| match one {
                    Inserted::New(id) => Inserted::New(real(id)),
                    Inserted::Existing(id) => Inserted::Existing(real(id)),
                })
                .collect(),
        ),
        Verdict::KeyTaken(mut rivals) => {
            rivals.iter_mut().for_each(|rival| rival.holder = real(rival.holder));
            Verdict::KeyTaken(rivals)
        }
        Verdict::Taken(taken) => Verdict::Taken(
            taken
                .into_iter()
                .map(|one| match one {
                    Some(InTheWay::Job(id)) => Some(InTheWay::Job(real(id))),
                    other => other,
                })
                .collect(),
        ),
        Verdict::Stale => Verdict::Stale,
    };
    verdicts.into_iter().map(each).collect()
}
