//! Batch: many events with one result each, in one commit. Groups of related jobs succeed or fail
//! independently; a group that lost to a concurrent change is computed and written again.

use super::jobs::{Author, Jobs, Moved, NoResult, Rules, asks_for_its_key};
use super::{LOADS_MAX, ROUNDS_MAX, too_deep};
use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::verbs::JobEvent;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Refused, Tenant, Timestamp};
use windlass_store::{Change, Rival, Step, Verdict};

type Answer = Result<Moved, VerbError>;

impl Engine {
    pub(super) fn by(&self) -> Author {
        Author { who: self.who.clone(), scope: self.scope.clone() }
    }

    /// Applies each event or returns its refusal. Runs to completion even if the caller is gone.
    pub(crate) async fn apply_each(
        &self,
        tenant: &Tenant,
        events: Vec<JobEvent>,
    ) -> Result<Vec<Answer>, EngineError> {
        self.apply_blocks(tenant, events, 1).await
    }

    /// The same in blocks of `together` events for one job: if an event is refused, none of its block is applied.
    pub(crate) async fn apply_blocks(
        &self,
        tenant: &Tenant,
        events: Vec<JobEvent>,
        together: usize,
    ) -> Result<Vec<Answer>, EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_count(events.len())?;
        let (tenant, by) = (tenant.clone(), self.by());
        let work = async move {
            let epoch = in_flight.limits.epoch();
            let answers = in_flight.change_for((by, together), Some(&tenant), events, Vec::new()).await?;
            let written = answers.iter().flatten().filter_map(|moved| moved.after.as_ref());
            in_flight.relimit_since(epoch, written.map(|job| job.id)).await?;
            Ok(answers)
        };
        self.inner.detached(work).await
    }
}

impl Inner {
    /// Applies each event or returns its refusal. `tenant`: required owner of the jobs; `None` for changes by
    /// the engine itself. `known`: jobs that the caller has read already.
    pub(crate) async fn change(
        self: &Arc<Self>,
        tenant: Option<&Tenant>,
        events: Vec<JobEvent>,
        known: Vec<Arc<Job>>,
    ) -> Result<Vec<Answer>, EngineError> {
        self.change_for((Author::default(), 1), tenant, events, known).await
    }

    /// [`Inner::change`] on behalf of a caller, in blocks of events.
    async fn change_for(
        self: &Arc<Self>,
        (by, together): (Author, usize),
        tenant: Option<&Tenant>,
        events: Vec<JobEvent>,
        known: Vec<Arc<Job>>,
    ) -> Result<Vec<Answer>, EngineError> {
        let mut batch = EventBatch { by, together, ..EventBatch::new(self, tenant, events, known) };
        let outcome = batch.run().await;
        let delete_later = std::mem::take(&mut batch.delete_later);
        let answers = match outcome {
            Ok(()) => Ok(batch.answers()),
            Err(error) if batch.wrote_something => Err(error.with_a_part_written()),
            Err(error) => Err(error),
        };
        self.delete_quietly(delete_later).await;
        answers
    }
}

/// Changes of related jobs, which succeed or fail together.
#[derive(Debug, Default)]
struct Group {
    jobs: SmallVec<[JobId; 1]>,
    /// Indexes of its events, and their results once the group is committed.
    answers: SmallVec<[(usize, Answer); 1]>,
    delete_later: Vec<JobId>,
}

/// State of one call.
struct EventBatch<'a> {
    engine: &'a Arc<Inner>,
    by: Author,
    tenant: Option<&'a Tenant>,
    events: Vec<JobEvent>,
    /// Events of a block, which are applied all or not at all.
    together: usize,
    answers: Vec<Option<Answer>>,
    /// Indexes of the events without a result.
    open: Vec<usize>,
    jobs: Jobs,
    groups: Vec<Group>,
    delete_later: Vec<JobId>,
    wrote_something: bool,
    /// Time of the last commit.
    committed_at: Timestamp,
}

impl<'a> EventBatch<'a> {
    fn new(
        engine: &'a Arc<Inner>,
        tenant: Option<&'a Tenant>,
        events: Vec<JobEvent>,
        known: Vec<Arc<Job>>,
    ) -> EventBatch<'a> {
        let mut jobs = Jobs::with_capacity(events.len());
        engine.remember_leased(&mut jobs, events.iter().map(|event| event.id));
        for job in known {
            jobs.remember(job);
        }
        EventBatch {
            engine,
            by: Author::default(),
            tenant,
            answers: events.iter().map(|_| None).collect(),
            open: (0..events.len()).collect(),
            events,
            together: 1,
            jobs,
            groups: Vec::new(),
            delete_later: Vec::new(),
            wrote_something: false,
            committed_at: engine.now(),
        }
    }

    async fn run(&mut self) -> Result<(), EngineError> {
        self.load_first().await?;
        // Siblings that finish at once would otherwise compete for the next version of their parent, round
        // after round.
        let parent_of = |event: &JobEvent| Some(self.jobs.get(event.id)?.spec.family()?.parent);
        let _locked = self.engine.family_locks.lock(self.events.iter().filter_map(parent_of)).await;
        for _ in 0..ROUNDS_MAX {
            if self.open.is_empty() {
                return Ok(());
            }
            self.plan().await?;
            self.write().await?;
        }
        Err(EngineError::Contended)
    }

    /// Loads the jobs and their parents, which most events affect.
    async fn load_first(&mut self) -> Result<(), EngineError> {
        for event in &self.events {
            let needed = match self.jobs.get(event.id) {
                None => Some(event.id),
                Some(job) => job.spec.family().map(|family| family.parent),
            };
            if let Some(id) = needed.filter(|id| !self.jobs.knows(*id)) {
                self.jobs.missing.jobs.insert(id);
            }
        }
        self.engine.load_missing(&mut self.jobs).await
    }

    /// Computes the pending events, and loads the jobs they need.
    async fn plan(&mut self) -> Result<(), EngineError> {
        for _ in 0..LOADS_MAX {
            self.jobs.undraft_all();
            self.groups.clear();
            let rules = self.engine.rules(self.by.clone());
            let mut refusals = Vec::new();
            for place in 0..self.open.len() {
                let index = self.open[place];
                refusals.extend(self.add(&rules, index).map(|error| (index, error)));
            }
            if self.jobs.missing.is_empty() {
                let must_repeat = self.together > 1 && !refusals.is_empty();
                for (index, error) in refusals {
                    self.refuse_block(index, error);
                }
                if must_repeat {
                    // The rest is computed again without the blocks that were refused.
                    self.open.retain(|index| self.answers[*index].is_none());
                    continue;
                }
                return Ok(());
            }
            self.engine.load_missing(&mut self.jobs).await?;
        }
        Err(too_deep())
    }

    /// Gives all events of a block this result.
    fn refuse_block(&mut self, index: usize, error: VerbError) {
        let first = index - index % self.together;
        for answer in self.answers.iter_mut().skip(first).take(self.together) {
            *answer = Some(Err(error));
        }
    }

    /// Computes one event. Returns a refusal that does not depend on the commit of a group.
    fn add(&mut self, rules: &Rules<'_>, index: usize) -> Option<VerbError> {
        let JobEvent { id, event } = &self.events[index];
        let id = *id;
        match self.jobs.compute(rules, self.tenant, id, event.clone()) {
            Err(NoResult::Missing) => {}
            Err(NoResult::Refused(error)) => return self.refuse(index, id, error),
            Ok(worked) => {
                let after = worked.moves[0].1.clone();
                // An earlier event of the batch may have changed its children already.
                let has_children = self.jobs.children(id).is_some_and(|children| !children.is_empty());
                let alone = worked.moves.len() == 1 && !has_children;
                let asks = asks_for_its_key(event);
                let group = self.group_of(&worked.moves);
                for (id, after) in worked.moves {
                    if self.jobs.draft(id, Some((after, group)), None).0.is_none() {
                        self.groups[group].jobs.push(id);
                    }
                }
                if asks {
                    self.jobs.ask_for_keys(id);
                }
                let group = &mut self.groups[group];
                group.answers.push((index, Ok(Moved { before: worked.before, after, alone })));
                group.delete_later.extend(worked.delete_later);
            }
        }
        None
    }

    /// A refusal is final only if it was decided by a current version.
    fn refuse(&mut self, index: usize, id: JobId, error: VerbError) -> Option<VerbError> {
        if self.together == 1
            && let Some((_, group)) = self.jobs.drafted(id)
        {
            self.groups[*group].answers.push((index, Err(error)));
            return None;
        }
        if self.jobs.is_fresh(id) {
            return Some(error);
        }
        self.jobs.forget(id);
        self.jobs.missing.jobs.insert(id);
        None
    }

    /// Group of these jobs; merges all groups that contain one of them.
    fn group_of(&mut self, moves: &[(JobId, Option<Arc<Job>>)]) -> usize {
        let mut mine: Option<usize> = None;
        for (id, _) in moves {
            let theirs = self.jobs.drafted(*id).map(|(_, group)| *group);
            mine = match (mine, theirs) {
                (Some(a), Some(b)) if a != b => Some(self.merge(a, b)),
                (mine, theirs) => mine.or(theirs),
            };
        }
        mine.unwrap_or_else(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        })
    }

    fn merge(&mut self, a: usize, b: usize) -> usize {
        let (large, small) =
            if self.groups[a].jobs.len() >= self.groups[b].jobs.len() { (a, b) } else { (b, a) };
        let moved = std::mem::take(&mut self.groups[small]);
        moved.jobs.iter().for_each(|id| self.jobs.set_group(*id, large));
        self.groups[large].jobs.extend(moved.jobs);
        self.groups[large].answers.extend(moved.answers);
        self.groups[large].delete_later.extend(moved.delete_later);
        large
    }

    /// Commits one step per group, all at once.
    async fn write(&mut self) -> Result<(), EngineError> {
        let mut groups = std::mem::take(&mut self.groups);
        groups.retain(|group| !group.jobs.is_empty());
        if !groups.is_empty() {
            let step = |group: &Group| Step {
                changes: group.jobs.iter().filter_map(|id| self.jobs.change(*id)).collect(),
                ..Step::default()
            };
            let steps: Vec<Step> = groups.iter().map(step).collect();
            self.committed_at = self.engine.now();
            let verdicts = match self.engine.commit(steps.clone(), self.committed_at).await {
                Ok(verdicts) => verdicts,
                Err(error) => {
                    return Err(self.engine.commit_error(error, steps.into_iter().flat_map(|s| s.changes)));
                }
            };
            let mut done = Vec::with_capacity(steps.len());
            let mut written = Vec::with_capacity(groups.len());
            for ((group, step), verdict) in groups.into_iter().zip(steps).zip(verdicts) {
                match verdict {
                    Verdict::Done(_) => {
                        done.extend(step.changes);
                        written.push(group);
                    }
                    Verdict::KeyTaken(rivals) => self.refuse_keys(&group, &rivals),
                    // `Taken` answers inserts only, and there are none here.
                    Verdict::Stale | Verdict::Taken(_) => self.engine.meters.stale.add(1),
                }
            }
            self.refund(&written).await;
            self.report_written(written, &done);
            // A stale round was computed from outdated jobs, and not only those that it would have changed.
            self.jobs = Jobs::default();
        }
        self.open.retain(|index| self.answers[*index].is_none());
        Ok(())
    }

    /// Refunds before the notification on a shared store, so that a notified claim finds the token.
    async fn refund(&self, groups: &[Group]) {
        for (index, answer) in groups.iter().flat_map(|group| &group.answers) {
            if let (Ok(moved), Event::Return { .. } | Event::Skip { .. }) =
                (answer, &self.events[*index].event)
            {
                let refunded = self.engine.limits.refund_shared(&*self.engine.store, &moved.before).await;
                if refunded.is_err() {
                    // The remaining refunds would fail too, each after a timeout.
                    return;
                }
            }
        }
    }

    /// Refuses the events of these jobs; the other events of the group are tried again without them.
    fn refuse_keys(&mut self, group: &Group, rivals: &[Rival]) {
        let rivals: FxHashMap<JobId, JobId> = rivals.iter().map(|rival| (rival.job, rival.holder)).collect();
        for (index, _) in &group.answers {
            if let Some(holder) = rivals.get(&self.events[*index].id) {
                self.answers[*index] = Some(Err(Refused::KeyTaken(*holder).into()));
            }
        }
    }

    /// Updates the tables and sets the results of the committed groups.
    fn report_written(&mut self, groups: Vec<Group>, changes: &[Change]) {
        self.wrote_something |= !changes.is_empty();
        self.engine.after_commit(changes, self.committed_at);
        if self.engine.feed.has_listeners() {
            let asked: FxHashSet<JobId> = self.events.iter().map(|event| event.id).collect();
            self.engine.report_family_changes(changes, &asked);
        }
        for group in groups {
            self.delete_later.extend(group.delete_later);
            for (index, answer) in group.answers {
                if let Ok(moved) = &answer {
                    self.engine.report_event(&self.events[index].event, moved);
                }
                self.answers[index] = Some(answer);
            }
        }
    }

    fn answers(&mut self) -> Vec<Answer> {
        let answers = std::mem::take(&mut self.answers);
        // After a successful run every event has a result.
        answers.into_iter().map(|answer| answer.unwrap_or(Err(VerbError::NotFound))).collect()
    }
}
