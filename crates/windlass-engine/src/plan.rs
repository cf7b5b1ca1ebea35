//! One round of changes, worked out in memory before anything is written.
//!
//! The tables here answer: what is known of each job, what would it become, and which jobs have to move together. Jobs
//! that touch each other (the same job twice in a batch, children with their parent) end up in one [`Draft`], which
//! becomes one all-or-nothing step.

use crate::effects;
use crate::error::VerbError;
use crate::limits::LimitTables;
use crate::settle::{Ask, By, Moved};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant, Timestamp, apply_for};
use windlass_store::{Change, KeyRule, Step};

/// A job in this round.
#[derive(Debug)]
struct Known {
    /// As the store has it, to our knowledge; `None`: there is no such job.
    base: Option<Arc<Job>>,
    /// Loaded in this call, not remembered from earlier: a refusal can be believed.
    is_fresh: bool,
    /// What it would be, and in which draft; `None`: untouched.
    drafted: Option<(Option<Arc<Job>>, usize)>,
    keys: KeyRule,
}

impl Known {
    fn current(&self) -> Option<&Arc<Job>> {
        match &self.drafted {
            Some((now, _)) => now.as_ref(),
            None => self.base.as_ref(),
        }
    }
}

/// What this round knows.
#[derive(Debug, Default)]
pub(crate) struct View {
    jobs: FxHashMap<JobId, Known>,
    children: FxHashMap<JobId, Vec<JobId>>,
}

impl View {
    pub(crate) fn with_capacity(jobs: usize) -> View {
        View { jobs: FxHashMap::with_capacity_and_hasher(jobs, Default::default()), ..View::default() }
    }

    pub(crate) fn knows(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)?.current()
    }

    pub(crate) fn remember(&mut self, job: Arc<Job>) {
        self.jobs
            .insert(job.id, Known { base: Some(job), is_fresh: false, drafted: None, keys: KeyRule::Yield });
    }

    pub(crate) fn loaded(&mut self, id: JobId, job: Option<Arc<Job>>) {
        self.jobs.insert(id, Known { base: job, is_fresh: true, drafted: None, keys: KeyRule::Yield });
    }

    pub(crate) fn children(&self, parent: JobId) -> Option<&[JobId]> {
        self.children.get(&parent).map(Vec::as_slice)
    }

    pub(crate) fn loaded_children(&mut self, parent: JobId, children: Vec<JobId>) {
        self.children.insert(parent, children);
    }

    /// With its children: the list of them may run ahead of what can be read, so one that was not found, and therefore is
    /// in no draft of its own, may be there at the next look.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
        for child in self.children.remove(&id).unwrap_or_default() {
            self.forget(child);
        }
    }
}

/// What a round cannot be worked out without.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) jobs: FxHashSet<JobId>,
    pub(crate) children_of: FxHashSet<JobId>,
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.children_of.is_empty()
    }
}

/// Changes that happen together or not at all.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) jobs: SmallVec<[JobId; 1]>,
    /// Which asks it answers, and how, once it is written.
    pub(crate) answers: SmallVec<[(usize, Result<Moved, VerbError>); 1]>,
}

/// Answers that hold whatever becomes of the drafts.
pub(crate) type Verdicts = Vec<(usize, Result<Moved, VerbError>)>;

/// A plan that is ready to be written: one step per draft.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) drafts: Vec<Draft>,
    pub(crate) steps: Vec<Step>,
    pub(crate) verdicts: Verdicts,
    /// Settled children beyond what one step forgets, each with the parent whose step is about them.
    pub(crate) forget_later: Vec<(JobId, JobId)>,
}

pub(crate) struct Plan<'a> {
    pub(crate) view: &'a mut View,
    limits: &'a LimitTables,
    pub(crate) missing: Missing,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) verdicts: Verdicts,
    pub(crate) forget_later: Vec<(JobId, JobId)>,
    pub(crate) now: Timestamp,
    /// Whose doing this is.
    pub(crate) by: By,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(view: &'a mut View, limits: &'a LimitTables, now: Timestamp) -> Plan<'a> {
        for known in view.jobs.values_mut() {
            known.drafted = None;
            known.keys = KeyRule::Yield;
        }
        Plan {
            view,
            limits,
            missing: Missing::default(),
            drafts: Vec::new(),
            verdicts: Vec::new(),
            forget_later: Vec::new(),
            now,
            by: By::default(),
        }
    }

    /// Works out one ask with all that follows from it.
    pub(crate) fn add(&mut self, index: usize, ask: &Ask, tenant: Option<&Tenant>) {
        let Some(known) = self.view.jobs.get(&ask.id) else {
            self.missing.jobs.insert(ask.id);
            return;
        };
        let belongs = |job: &&Arc<Job>| {
            let is_reached = self.by.scope.allows(&job.spec.queue, &job.spec.name);
            is_reached && tenant.is_none_or(|tenant| *tenant == job.spec.tenant)
        };
        let Some(before) = known.current().filter(belongs).cloned() else {
            return self.answer(index, ask.id, Err(VerbError::NotFound));
        };
        let event = self.limits.completed(&before, ask.event.clone());
        match apply_for(self.by.who.as_ref(), &before, event, self.now) {
            Err(refused) => self.answer(index, ask.id, Err(refused.into())),
            Ok(transition) => {
                let Some(moves) = effects::follow(self, &before, transition) else { return };
                let after = moves[0].1.clone();
                let draft = self.draft(moves);
                if let Some(known) = self.view.jobs.get_mut(&ask.id)
                    && asks_for_its_key(&ask.event)
                {
                    known.keys = KeyRule::Ask;
                }
                self.drafts[draft].answers.push((index, Ok(Moved { before, after })));
            }
        }
    }

    /// The job that a transition leaves, under the limits that are in force.
    pub(crate) fn limited(&self, before: &Job, after: Option<Job>) -> Option<Arc<Job>> {
        after.map(|mut after| {
            self.limits.started_over(before, &mut after);
            Arc::new(after)
        })
    }

    /// A refusal stands if what it was judged by does.
    fn answer(&mut self, index: usize, id: JobId, answer: Result<Moved, VerbError>) {
        match self.view.jobs.get(&id) {
            Some(Known { drafted: Some((_, draft)), .. }) => {
                self.drafts[*draft].answers.push((index, answer))
            }
            Some(Known { is_fresh: true, .. }) => self.verdicts.push((index, answer)),
            _ => {
                self.view.forget(id);
                self.missing.jobs.insert(id);
            }
        }
    }

    /// Enters the moves into one draft, together with every draft that has one of their jobs already.
    fn draft(&mut self, moves: Moves) -> usize {
        let mut mine: Option<usize> = None;
        for (id, _) in &moves {
            let theirs =
                self.view.jobs.get(id).and_then(|known| known.drafted.as_ref()).map(|(_, draft)| *draft);
            mine = match (mine, theirs) {
                (Some(a), Some(b)) if a != b => Some(self.merge(a, b)),
                (mine, theirs) => mine.or(theirs),
            };
        }
        let draft = mine.unwrap_or_else(|| {
            self.drafts.push(Draft::default());
            self.drafts.len() - 1
        });
        for (id, after) in moves {
            let Some(known) = self.view.jobs.get_mut(&id) else { continue };
            if known.drafted.is_none() {
                self.drafts[draft].jobs.push(id);
            }
            known.drafted = Some((after, draft));
        }
        draft
    }

    fn merge(&mut self, a: usize, b: usize) -> usize {
        let (large, small) =
            if self.drafts[a].jobs.len() >= self.drafts[b].jobs.len() { (a, b) } else { (b, a) };
        let moved = std::mem::take(&mut self.drafts[small]);
        for id in &moved.jobs {
            if let Some(Known { drafted: Some((_, draft)), .. }) = self.view.jobs.get_mut(id) {
                *draft = large;
            }
        }
        self.drafts[large].jobs.extend(moved.jobs);
        self.drafts[large].answers.extend(moved.answers);
        large
    }

    /// The drafts as steps, each job from the version the store has to the one after it.
    pub(crate) fn into_round(mut self) -> Round {
        let mut drafts = std::mem::take(&mut self.drafts);
        drafts.retain(|draft| !draft.jobs.is_empty());
        let steps = drafts.iter().map(|draft| self.step(draft)).collect();
        Round { drafts, steps, verdicts: self.verdicts, forget_later: self.forget_later }
    }

    fn step(&self, draft: &Draft) -> Step {
        let change = |id: &JobId| {
            let known = self.view.jobs.get(id)?;
            let before = known.base.clone()?;
            let (after, _) = known.drafted.as_ref()?;
            let after = after.clone().map(|after| one_version_later(after, &before));
            Some(Change { before, after, keys: known.keys })
        };
        Step { changes: draft.jobs.iter().filter_map(change).collect(), ..Step::default() }
    }
}

/// Each job that moves and what it becomes; the one that was asked for comes first.
pub(crate) type Moves = SmallVec<[(JobId, Option<Arc<Job>>); 1]>;

/// What people ask for is refused if another job has the key by now. What a job goes through by itself is not: it must
/// never be stuck because of a key.
fn asks_for_its_key(event: &Event) -> bool {
    matches!(event, Event::Requeue { .. } | Event::Run { .. } | Event::Update(_))
}

/// Several events in one step are one version.
fn one_version_later(mut after: Arc<Job>, before: &Job) -> Arc<Job> {
    if after.version != before.version + 1 {
        Arc::make_mut(&mut after).version = before.version + 1;
    }
    after
}
