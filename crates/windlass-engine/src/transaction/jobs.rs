//! Jobs of a transaction: stored versions, drafts, and jobs that have to be loaded.

use super::family;
use crate::error::VerbError;
use crate::random::Random;
use crate::tenants::limits::LimitTables;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::event::{Failure, RetryWish};
use windlass_core::{Event, Job, JobId, Scope, Tenant, Timestamp, apply_for};
use windlass_store::{Change, KeyRule};

/// Job before and after an event; `None`: deleted.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) before: Arc<Job>,
    pub(crate) after: Option<Arc<Job>>,
    /// True if no other job changed with it.
    pub(crate) alone: bool,
}

/// Changed jobs and their new versions; the job of the event comes first.
pub(super) type Moves = SmallVec<[(JobId, Option<Arc<Job>>); 1]>;

/// Effect of an event on a job and its family.
pub(super) struct Computed {
    pub(super) before: Arc<Job>,
    pub(super) moves: Moves,
    /// Settled children beyond the number that one step deletes.
    pub(super) delete_later: Vec<JobId>,
}

/// Reason why an event has no result.
pub(super) enum NoResult {
    /// A job has to be loaded first, see [`Jobs::missing`].
    Missing,
    Refused(VerbError),
}

/// Inputs of a decision besides the jobs.
pub(super) struct Rules<'a> {
    pub(super) limits: &'a LimitTables,
    pub(super) now: Timestamp,
    pub(super) random: &'a dyn Random,
    pub(super) by: Author,
}

/// Author of a change; by default the engine itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Author {
    /// Recorded with the jobs.
    pub(crate) who: Option<Arc<str>>,
    /// Jobs outside of it are reported as not found.
    pub(crate) scope: Scope,
}

impl Author {
    pub(super) fn reaches(&self, tenant: Option<&Tenant>, job: &Job) -> bool {
        tenant.is_none_or(|tenant| *tenant == job.spec.tenant)
            && self.scope.allows(&job.spec.queue, &job.spec.name)
    }
}

impl Rules<'_> {
    /// Completes an event with the limit keys and the random number for the jitter.
    fn completed(&self, job: &Job, mut event: Event) -> Event {
        if let Event::Fail(Failure { retry: RetryWish::Policy, chance, .. }) = &mut event {
            *chance = self.random.next_fraction();
        }
        self.limits.complete_event(job, event)
    }

    /// Result of a transition, with the keys of the current limits.
    pub(super) fn limited(&self, before: &Job, after: Option<Job>) -> Option<Arc<Job>> {
        after.map(|mut after| {
            self.limits.refresh_keys_on_restart(before, &mut after);
            Arc::new(after)
        })
    }
}

#[derive(Debug)]
struct Known {
    /// Stored version, as far as known; `None`: there is no such job.
    base: Option<Arc<Job>>,
    /// True if loaded for this transaction: a decision by it needs no version guard. False if taken from the
    /// lease table.
    is_fresh: bool,
    was_read: bool,
    /// New version and its group; `None`: unchanged.
    drafted: Drafted,
    keys: KeyRule,
}

/// New version of a job (`None`: deleted), and its group of changes.
pub(super) type Drafted = Option<(Option<Arc<Job>>, usize)>;

impl Known {
    fn new(base: Option<Arc<Job>>, is_fresh: bool) -> Known {
        Known { base, is_fresh, was_read: false, drafted: None, keys: KeyRule::Yield }
    }

    fn current(&self) -> Option<&Arc<Job>> {
        match &self.drafted {
            Some((now, _)) => now.as_ref(),
            None => self.base.as_ref(),
        }
    }
}

/// Jobs and lists of children to be loaded.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) jobs: FxHashSet<JobId>,
    pub(super) children_of: FxHashSet<JobId>,
}

impl Missing {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.children_of.is_empty()
    }
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    known: FxHashMap<JobId, Known>,
    children: FxHashMap<JobId, Vec<JobId>>,
    pub(super) missing: Missing,
}

impl Jobs {
    pub(super) fn with_capacity(jobs: usize) -> Jobs {
        Jobs { known: FxHashMap::with_capacity_and_hasher(jobs, Default::default()), ..Jobs::default() }
    }

    pub(super) fn knows(&self, id: JobId) -> bool {
        self.known.contains_key(&id)
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Arc<Job>> {
        self.known.get(&id)?.current()
    }

    /// Stored version, as far as known.
    pub(super) fn base(&self, id: JobId) -> Option<&Arc<Job>> {
        self.known.get(&id)?.base.as_ref()
    }

    /// Like [`Jobs::get`]; the job counts as read, so the decision depends on it.
    pub(super) fn read(&mut self, id: JobId) -> Option<&Arc<Job>> {
        let known = self.known.get_mut(&id)?;
        known.was_read = true;
        known.current()
    }

    /// Existing jobs, as changed so far.
    pub(super) fn present(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.known.values().filter_map(Known::current)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.known.keys().copied()
    }

    pub(super) fn remember(&mut self, job: Arc<Job>) {
        self.known.insert(job.id, Known::new(Some(job), false));
    }

    pub(super) fn loaded(&mut self, id: JobId, job: Option<Arc<Job>>) {
        self.known.insert(id, Known::new(job, true));
    }

    pub(super) fn children(&self, parent: JobId) -> Option<&[JobId]> {
        self.children.get(&parent).map(Vec::as_slice)
    }

    pub(super) fn loaded_children(&mut self, parent: JobId, children: Vec<JobId>) {
        self.children.insert(parent, children);
    }

    /// Forgets a job and its children: the list of children may be ahead of the jobs that can be loaded, so a
    /// child that was not found may exist at the next load.
    pub(super) fn forget(&mut self, id: JobId) {
        self.known.remove(&id);
        for child in self.children.remove(&id).unwrap_or_default() {
            self.forget(child);
        }
    }

    /// Discards all drafts.
    pub(super) fn undraft_all(&mut self) {
        for known in self.known.values_mut() {
            known.drafted = None;
            known.keys = KeyRule::Yield;
        }
    }

    pub(super) fn drafted(&self, id: JobId) -> Option<&(Option<Arc<Job>>, usize)> {
        self.known.get(&id)?.drafted.as_ref()
    }

    /// Sets the draft. Returns the previous draft and key rule.
    pub(super) fn draft(&mut self, id: JobId, draft: Drafted, keys: Option<KeyRule>) -> (Drafted, KeyRule) {
        let Some(known) = self.known.get_mut(&id) else { return (None, KeyRule::Yield) };
        let keys_before = known.keys;
        known.keys = keys.unwrap_or(keys_before);
        (std::mem::replace(&mut known.drafted, draft), keys_before)
    }

    pub(super) fn set_group(&mut self, id: JobId, group: usize) {
        if let Some(Known { drafted: Some((_, known)), .. }) = self.known.get_mut(&id) {
            *known = group;
        }
    }

    pub(super) fn ask_for_keys(&mut self, id: JobId) {
        if let Some(known) = self.known.get_mut(&id) {
            known.keys = KeyRule::Ask;
        }
    }

    pub(super) fn is_fresh(&self, id: JobId) -> bool {
        self.known.get(&id).is_some_and(|known| known.is_fresh)
    }

    /// Jobs from the lease table that a decision depends on, and that no version guard covers.
    pub(super) fn in_doubt(&self) -> Vec<JobId> {
        let doubtful = |known: &Known| known.was_read && !known.is_fresh && known.drafted.is_none();
        self.known.iter().filter(|(_, known)| doubtful(known)).map(|(id, _)| *id).collect()
    }

    /// Change from the stored version to the next.
    pub(super) fn change(&self, id: JobId) -> Option<Change> {
        let known = self.known.get(&id)?;
        let before = known.base.clone()?;
        let (after, _) = known.drafted.as_ref()?;
        let after = after.clone().map(|after| one_version_later(after, &before));
        Some(Change { before, after, keys: known.keys })
    }

    /// Computes an event and all its effects. Records no draft.
    pub(super) fn compute(
        &mut self,
        rules: &Rules<'_>,
        tenant: Option<&Tenant>,
        id: JobId,
        event: Event,
    ) -> Result<Computed, NoResult> {
        let Some(known) = self.known.get(&id) else {
            self.missing.jobs.insert(id);
            return Err(NoResult::Missing);
        };
        let is_reached = |job: &&Arc<Job>| rules.by.reaches(tenant, job);
        let Some(before) = known.current().filter(is_reached).cloned() else {
            return Err(NoResult::Refused(VerbError::NotFound));
        };
        let event = rules.completed(&before, event);
        match apply_for(rules.by.who.as_ref(), &before, event, rules.now) {
            Err(refused) => Err(NoResult::Refused(refused.into())),
            // A job does not leave the scope of the caller who changes it.
            Ok(transition)
                if transition.job.as_ref().is_some_and(|after| !rules.by.reaches(tenant, after)) =>
            {
                Err(NoResult::Refused(VerbError::NotFound))
            }
            Ok(transition) => family::follow(self, rules, before, transition).ok_or(NoResult::Missing),
        }
    }
}

/// True if the event is refused when another job has taken the key: events requested by clients. Other events
/// must not fail because of a key, or the job would be stuck.
pub(super) fn asks_for_its_key(event: &Event) -> bool {
    matches!(event, Event::Requeue { .. } | Event::RequeueFrom { .. } | Event::Run { .. } | Event::Update(_))
}

/// All events of one step result in one new version.
fn one_version_later(mut after: Arc<Job>, before: &Job) -> Arc<Job> {
    if after.version != before.version + 1 {
        Arc::make_mut(&mut after).version = before.version + 1;
    }
    after
}
