//! What a change means for the family: parent and children move in the same step as the job itself.

use super::jobs::{Jobs, Moves, Rules, Worked};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::transition::{ChildrenEffect, ParentEffect};
use windlass_core::{Effects, Event, Job, JobId, JobState, Transition, apply};

/// Settled children deleted in one step. The rest follows in steps of its own: nobody waits for that.
pub(super) const DELETED_PER_STEP_MAX: usize = 1_000;

/// Follows the effects of one transition until there are no more. `None`: something has to be loaded first.
pub(super) fn follow(
    jobs: &mut Jobs,
    rules: &Rules<'_>,
    before: Arc<Job>,
    transition: Transition,
) -> Option<Worked> {
    let Transition { job, effects } = transition;
    let after = rules.limited(&before, job);
    let effects = without_children(&before, effects);
    let mut moves = Moves::new();
    moves.push((before.id, after));
    if effects == Effects::default() {
        return Some(Worked { before, moves, delete_later: Vec::new() });
    }
    let at = FxHashMap::from_iter([(before.id, 0)]);
    let (work, delete_later) = (VecDeque::new(), Vec::new());
    let mut family = Cascade { jobs, rules, moves, at, work, delete_later, is_whole: true };
    family.react(&before, effects);
    while let Some((id, event)) = family.work.pop_front() {
        family.happen(id, event);
    }
    let Cascade { moves, delete_later, is_whole, .. } = family;
    is_whole.then_some(Worked { before, moves, delete_later })
}

/// A job that never had children has none to tell.
fn without_children(before: &Job, effects: Effects) -> Effects {
    if never_had_children(before) { Effects { children: None, ..effects } } else { effects }
}

struct Cascade<'a> {
    jobs: &'a mut Jobs,
    rules: &'a Rules<'a>,
    moves: Moves,
    /// Where in `moves` a job is.
    at: FxHashMap<JobId, usize>,
    work: VecDeque<(JobId, Event)>,
    delete_later: Vec<JobId>,
    is_whole: bool,
}

impl Cascade<'_> {
    fn happen(&mut self, id: JobId, event: Event) {
        let Some(job) = self.current(id) else { return };
        // A refusal is fine: the parent is busy, has ended or is gone, and there is nothing to tell it.
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
                // One that waits for children of its own refuses, as it should.
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
                // Losing its parent also starts a child that was held by it.
                ChildrenEffect::Orphan | ChildrenEffect::Disband => {
                    self.work.push_back((id, Event::Update(Box::new(without_parent(&child)))));
                }
                ChildrenEffect::Release | ChildrenEffect::ForgetSettled => {}
            }
        }
    }
}

/// Being given a child makes a new version of the parent, so these cannot have any. Spares most jobs the question.
fn never_had_children(job: &Job) -> bool {
    job.version == 1 || (job.version == 2 && job.state().lease().is_some())
}

/// May wait for its parent's run to end.
fn is_held_by_parent(child: &Job) -> bool {
    matches!(child.state(), JobState::Waiting)
        && child.spec.family().is_some_and(|family| family.parent_waits())
}

/// Settled and seen by its parent. One that failed is kept: somebody has to look at it.
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
