//! Unique keys and aliases: the jobs that claim them, and the check whether a step may take them. The check
//! runs before anything of the step is written, the same way for every store.

use crate::change::{Change, InTheWay, KeyRule, NewJob, Rival, Step, Verdict};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::{Job, JobId, JobSpec, Tenant};

/// Key that only one job at a time may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Unique(Tenant, Arc<str>),
    Alias(Tenant, Arc<str>),
}

type Keys = SmallVec<[Key; 2]>;

/// Keys of a job, the unique key first: if both are taken, its holder is reported.
pub(crate) fn keys_of(job: &Job) -> Keys {
    let mut keys = keys_of_spec(&job.spec);
    if !job.holds_unique_key() {
        keys.retain(|key| matches!(key, Key::Alias(..)));
    }
    keys
}

/// Keys of a job created from this specification. A new job is neither running nor settled, so it holds its
/// unique key under every `HeldUntil` rule.
pub(crate) fn keys_of_spec(spec: &JobSpec) -> Keys {
    let unique = spec.unique().map(|unique| Key::Unique(spec.tenant.clone(), unique.key.clone()));
    let alias = spec.alias().map(|alias| Key::Alias(spec.tenant.clone(), alias.into()));
    unique.into_iter().chain(alias).collect()
}

/// True if the step can be refused because of a key. Most steps cannot, and skip the check.
pub(crate) fn minds_keys(step: &Step) -> bool {
    let takes_one = |spec: &JobSpec| spec.unique().is_some() || spec.alias().is_some();
    let asks = |change: &Change| {
        change.keys == KeyRule::Ask && change.after.as_ref().is_some_and(|after| takes_one(&after.spec))
    };
    (step.all_new && step.inserts.iter().any(|new| takes_one(&new.spec))) || step.changes.iter().any(asks)
}

/// Verdict that refuses the step, if any. `claimants`: every job that currently claims the key.
pub(crate) fn refusal(step: &Step, claimants: impl Fn(&Key) -> Vec<JobId>) -> Option<Verdict> {
    let mut trial = Trial { stored: claimants, touched: FxHashMap::default() };
    let rivals: Vec<Rival> = step.changes.iter().filter_map(|change| trial.change(change)).collect();
    if !rivals.is_empty() {
        return Some(Verdict::KeyTaken(rivals));
    }
    if !step.all_new {
        return None;
    }
    let taken: Vec<_> =
        step.inserts.iter().enumerate().map(|(place, new)| trial.insert(place, new)).collect();
    taken.iter().any(Option::is_some).then_some(Verdict::Taken(taken))
}

/// Holders of the keys after a part of the step. A refused change is left out: the rest is checked as if it
/// had not been requested.
struct Trial<F> {
    stored: F,
    /// Jobs sort before inserts, as their ids will.
    touched: FxHashMap<Key, BTreeSet<InTheWay>>,
}

impl<F: Fn(&Key) -> Vec<JobId>> Trial<F> {
    fn change(&mut self, change: &Change) -> Option<Rival> {
        let job = change.before.id;
        let had = keys_of(&change.before);
        let has = change.after.as_ref().map(|after| keys_of(after)).unwrap_or_default();
        if change.keys == KeyRule::Ask {
            let mut others =
                |key: &Key| self.claimants(key).iter().find_map(|one| one.job().filter(|id| *id != job));
            if let Some(holder) = has.iter().filter(|key| !had.contains(key)).find_map(&mut others) {
                return Some(Rival { job, holder });
            }
        }
        for key in &had {
            self.claimants(key).remove(&InTheWay::Job(job));
        }
        for key in &has {
            self.claimants(key).insert(InTheWay::Job(job));
        }
        None
    }

    fn insert(&mut self, place: usize, new: &NewJob) -> Option<InTheWay> {
        let keys = keys_of_spec(&new.spec);
        let holder = keys.iter().find_map(|key| self.claimants(key).first().copied());
        if holder.is_none() {
            for key in &keys {
                self.claimants(key).insert(InTheWay::Insert(place));
            }
        }
        holder
    }

    fn claimants(&mut self, key: &Key) -> &mut BTreeSet<InTheWay> {
        if !self.touched.contains_key(key) {
            let stored = (self.stored)(key).into_iter().map(InTheWay::Job).collect();
            self.touched.insert(key.clone(), stored);
        }
        self.touched.entry(key.clone()).or_default()
    }
}
