//! Effects on the family: parent and children change in the same step as the job.

use super::jobs::{Computed, Jobs, Moves, Rules};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::transition::{ChildrenEffect, ParentEffect};
use windlass_core::{Effects, Event, Job, JobId, JobState, Transition, apply};

/// Most settled children deleted in one step. The rest follows in later steps, for which no caller waits.
pub(super) const DELETED_PER_STEP_MAX: usize = 1_000;

/// Follows the effects of a transition to the end. `None`: a job has to be loaded first.
pub(super) fn follow(
    jobs: &mut Jobs,
    rules: &Rules<'_>,
    before: Arc<Job>,
    transition: Transition,
) -> Option<Computed> {
    let Transition { job, effects } = transition;
    let after = rules.limited(&before, job);
    let effects = without_children(&before, effects);
    let mut moves = Moves::new();
    moves.push((before.id, after));
    if effects == Effects::default() {
        return Some(Computed { before, moves, delete_later: Vec::new() });
    }
    let at = FxHashMap::from_iter([(before.id, 0)]);
    let (work, delete_later) = (VecDeque::new(), Vec::new());
    let mut family = Cascade { jobs, rules, moves, at, work, delete_later, is_whole: true };
    family.react(&before, effects);
    while let Some((id, event)) = family.work.pop_front() {
        family.happen(id, event);
    }
    let Cascade { moves, delete_later, is_whole, .. } = family;
    is_whole.then_some(Computed { before, moves, delete_later })
}

/// Drops the effect on children for a job that never had any.
fn without_children(before: &Job, effects: Effects) -> Effects {
    if never_had_children(before) { Effects { children: None, ..effects } } else { effects }
}

struct Cascade<'a> {
    jobs: &'a mut Jobs,
    rules: &'a Rules<'a>,
    moves: Moves,
    /// Index of a job in `moves`.
    at: FxHashMap<JobId, usize>,
    work: VecDeque<(JobId, Event)>,
    delete_later: Vec<JobId>,
    is_whole: bool,
}

impl Cascade<'_> {
    fn happen(&mut self, id: JobId, event: Event) {
        let Some(job) = self.current(id) else { return };
        // A refusal is correct: the parent is running, has ended or is deleted, and the event does not
        // concern it.
        let Ok(transition) = apply(&job, event, self.rules.now) else { return };
        let after = self.rules.limited(&job, transition.job);
        let effects = without_children(&job, transition.effects);
        match self.at.get(&id) {
            Some(&index) => self.moves[index].1 = after,
            None => {
                self.at.insert(id, self.moves.len());
                self.moves.push((id, after));
            }
        }
        self.react(&job, effects);
    }

    fn current(&mut self, id: JobId) -> Option<Arc<Job>> {
        if let Some(&index) = self.at.get(&id) {
            return self.moves[index].1.clone();
        }
        if !self.jobs.knows(id) {
            self.jobs.missing.jobs.insert(id);
            self.is_whole = false;
        }
        self.jobs.get(id).cloned()
    }

    fn react(&mut self, before: &Arc<Job>, effects: Effects) {
        match effects.parent {
            Some(ParentEffect::Settled(parent)) => self.work.push_back((parent, Event::ChildSettled)),
            Some(ParentEffect::Failed(parent)) => self.work.push_back((parent, Event::ChildFailed)),
            Some(ParentEffect::WrittenOff(parent)) => self.work.push_back((parent, Event::ChildWrittenOff)),
            Some(ParentEffect::Reopened(parent)) => self.work.push_back((parent, Event::ChildAdded)),
            Some(ParentEffect::Run(parent)) => {
                self.work.push_back((parent, Event::Run { at: self.rules.now, force: false }));
            }
            None => {}
        }
        if let Some(effect) = effects.children {
            self.tell_children(before.id, effect);
        }
    }

    fn tell_children(&mut self, parent: JobId, effect: ChildrenEffect) {
        let Some(children) = self.jobs.children(parent).map(<[JobId]>::to_vec) else {
            self.jobs.missing.children_of.insert(parent);
            self.is_whole = false;
            return;
        };
        let mut deleted = 0;
        for id in children {
            let Some(child) = self.current(id) else { continue };
            match effect {
                // A child that waits for its own children refuses, which is correct.
                ChildrenEffect::Release if is_held_by_parent(&child) => {
                    self.work.push_back((id, Event::ParentPaused));
                }
                ChildrenEffect::ForgetSettled | ChildrenEffect::Disband if is_done_for_parent(&child) => {
                    deleted += 1;
                    if deleted <= DELETED_PER_STEP_MAX {
                        self.work.push_back((id, Event::Delete));
                    } else {
                        self.delete_later.push(id);
                    }
                }
                // A child held by its parent also starts when it loses the parent.
                ChildrenEffect::Orphan | ChildrenEffect::Disband => {
                    self.work.push_back((id, Event::Update(Box::new(without_parent(&child)))));
                }
                ChildrenEffect::Release | ChildrenEffect::ForgetSettled => {}
            }
        }
    }
}

/// A new child creates a new version of its parent, so a job at one of these versions has none. Saves most
/// jobs a query.
fn never_had_children(job: &Job) -> bool {
    job.version == 1 || (job.version == 2 && job.state().lease().is_some())
}

/// True if the child may be waiting for its parent's run to end.
fn is_held_by_parent(child: &Job) -> bool {
    matches!(child.state(), JobState::Waiting)
        && child.spec.family().is_some_and(|family| family.parent_waits())
}

/// Settled child that its parent has taken into account. Failed children are kept for inspection.
fn is_done_for_parent(child: &Job) -> bool {
    child.spec.family().is_some_and(|family| family.parent_waits())
        && matches!(
            child.state(),
            JobState::Completed { .. } | JobState::Cancelled { .. } | JobState::Terminated { .. }
        )
}

fn without_parent(child: &Job) -> Patch {
    let mut extras = child.spec.extras.clone().unwrap_or_default();
    extras.family = None;
    Patch { extras: Some(extras), ..Patch::default() }
}
