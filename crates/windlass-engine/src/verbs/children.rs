//! Push of children: the children and the changes of their parents are one step.
//!
//! A parent counts the children it waits for, so a child that is not created, because its key is in use, must
//! not be counted: the step requires all inserts to be new. If the store reports keys in use, it has written
//! nothing, and the step is repeated without those jobs.
//!
//! The loop is not that of `Engine::transact`: see `docs/adr/0016-children-are-pushed-by-a-loop-of-their-own.md`.

use crate::engine::Inner;
use crate::error::{EngineError, PushRefused};
use crate::transaction::ROUNDS_MAX;
use crate::verbs::Pushed;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::family::Family;
use windlass_core::{Event, Job, JobId, JobState, Scope, Timestamp, apply};
use windlass_store::{Change, InTheWay, Inserted, KeyRule, NewJob, Step, Verdict};

impl Inner {
    /// Inserts the batch; returns one result per job, in order.
    pub(crate) async fn insert_with_parents(
        self: &Arc<Self>,
        batch: Vec<NewJob>,
        scope: &Scope,
        now: Timestamp,
    ) -> Result<Vec<Pushed>, EngineError> {
        let parents = || batch.iter().filter_map(|new| Some(new.spec.family()?.parent));
        let _locked = self.family_locks.lock(parents()).await;
        let mut ids: Vec<JobId> = parents().collect();
        ids.sort_unstable();
        ids.dedup();
        // By index in the batch, as are the inserts that it refers to.
        let mut in_the_way = vec![None; batch.len()];
        for _ in 0..ROUNDS_MAX {
            let loaded = self.store.load(ids.clone()).await?.into_iter().flatten();
            let loaded = loaded.filter(|job| scope.allows(&job.spec.queue, &job.spec.name));
            let parents = loaded.map(|job| (job.id, Parent::of(job))).collect();
            let Round { fates, step } = plan(&batch, &in_the_way, parents, now);
            if step.inserts.is_empty() {
                return Ok(answers(fates, &[]));
            }
            let changes = step.changes.clone();
            match self.commit(vec![step], now).await?.pop() {
                Some(Verdict::Done(inserted)) => {
                    self.after_commit(&changes, now);
                    return Ok(answers(fates, &inserted));
                }
                Some(Verdict::Taken(taken)) => note_taken(&mut in_the_way, &fates, &taken),
                Some(Verdict::Stale | Verdict::KeyTaken(_)) | None => self.meters.stale.add(1),
            }
        }
        Err(EngineError::Contended)
    }
}

/// Result of one job of the batch if the step of its round is committed.
enum Fate {
    /// Insert at this index of the step.
    Made(usize),
    /// Same key as the insert at this index.
    Doubles(usize),
    Existing(JobId),
    Refused(PushRefused),
}

struct Round {
    fates: Vec<Fate>,
    step: Step,
}

fn plan(batch: &[NewJob], in_the_way: &[Option<InTheWay>], mut parents: Parents, now: Timestamp) -> Round {
    let mut fates: Vec<Fate> = Vec::with_capacity(batch.len());
    let mut inserts = Vec::with_capacity(batch.len());
    for (new, in_the_way) in batch.iter().zip(in_the_way) {
        let doubled = match in_the_way {
            Some(InTheWay::Insert(first)) => fates.get(*first),
            Some(InTheWay::Job(_)) | None => None,
        };
        let fate = match (in_the_way, doubled) {
            (Some(InTheWay::Job(holder)), _) => Fate::Existing(*holder),
            (_, Some(Fate::Made(place))) => Fate::Doubles(*place),
            // Its key is free, or in use only by a job of the batch that is not created after all.
            _ => match adopt(new, &mut parents, now) {
                Ok(held_by_parent) => {
                    inserts.push(NewJob { held_by_parent, ..new.clone() });
                    Fate::Made(inserts.len() - 1)
                }
                Err(refused) => Fate::Refused(refused),
            },
        };
        fates.push(fate);
    }
    let changes: SmallVec<[Change; 1]> = parents.into_values().filter_map(Parent::change).collect();
    Round { fates, step: Step { changes, inserts, all_new: true, ..Step::default() } }
}

/// Translates indexes of the step into indexes of the batch.
fn note_taken(in_the_way: &mut [Option<InTheWay>], fates: &[Fate], taken: &[Option<InTheWay>]) {
    let made = |(place, fate): (usize, &Fate)| matches!(fate, Fate::Made(_)).then_some(place);
    let places: Vec<usize> = fates.iter().enumerate().filter_map(made).collect();
    for (place, taken) in places.iter().zip(taken) {
        in_the_way[*place] = match taken {
            Some(InTheWay::Insert(first)) => places.get(*first).copied().map(InTheWay::Insert),
            other => *other,
        };
    }
}

fn answers(fates: Vec<Fate>, inserted: &[Inserted]) -> Vec<Pushed> {
    let answer = |fate: Fate| match fate {
        Fate::Made(place) => inserted.get(place).copied().map(Pushed::from),
        Fate::Doubles(place) => inserted.get(place).map(|first| Pushed::Existing(first.id())),
        Fate::Existing(id) => Some(Pushed::Existing(id)),
        Fate::Refused(refused) => Some(Pushed::Refused(refused)),
    };
    fates.into_iter().filter_map(answer).collect()
}

type Parents = FxHashMap<JobId, Parent>;

/// Parent, with the children added so far.
struct Parent {
    base: Arc<Job>,
    now: Option<Job>,
}

impl Parent {
    fn of(base: Arc<Job>) -> Parent {
        Parent { base, now: None }
    }

    fn happen(&mut self, event: Event, now: Timestamp) {
        let job = self.now.as_ref().unwrap_or(&self.base);
        // No state refuses a new child or an empty update.
        if let Ok(transition) = apply(job, event, now) {
            self.now = transition.job;
        }
    }

    /// All events of one step result in one new version.
    fn change(self) -> Option<Change> {
        let mut after = self.now?;
        after.version = self.base.version + 1;
        Some(Change { before: self.base, after: Some(Arc::new(after)), keys: KeyRule::Yield })
    }
}

/// Adds the child to its parent. Returns true if the child has to wait until the parent's run ends.
fn adopt(new: &NewJob, parents: &mut Parents, now: Timestamp) -> Result<bool, PushRefused> {
    let Some(Family { parent: id, .. }) = new.spec.family() else { return Ok(false) };
    let parent = parents.get_mut(id).filter(|parent| parent.base.spec.tenant == new.spec.tenant);
    let parent = parent.ok_or(PushRefused::NoParent(*id))?;
    if !new.spec.family().is_some_and(Family::parent_waits) {
        // An empty update changes only the version: the step fails if the parent is deleted concurrently, and
        // a parent at one of its first versions is known to have no children.
        parent.happen(Event::Update(Box::default()), now);
        return Ok(false);
    }
    let is_running = match parent.base.state() {
        JobState::Running(_) => true,
        // The lease has expired, but the worker may still finish: until another claim the run goes on.
        JobState::Ready { lapsed: Some(_), .. } if parent.base.spec.policy.lease.accept_late => true,
        // A job that waits for its own parent has not started; only a run adds children.
        JobState::Waiting if parent.base.progress.started_at.is_some() => false,
        other => return Err(PushRefused::ParentNotActive(other.name())),
    };
    parent.happen(Event::ChildAdded, now);
    Ok(is_running)
}
