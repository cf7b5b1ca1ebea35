//! What a change means for the family: parent and children move in the same step as the job itself.

use crate::plan::{Moves, Plan};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::event::Patch;
use windlass_core::transition::{ChildrenEffect, ParentEffect};
use windlass_core::{Effects, Event, Job, JobId, JobState, Transition, apply};

/// Settled children forgotten in one step. The rest follows in steps of its own: nobody waits for that.
pub(crate) const FORGET_PER_STEP_MAX: usize = 1_000;

/// Follows the effects of one transition until there are no more. `None`: something has to be loaded first, and the
/// plan knows what.
pub(crate) fn follow(plan: &mut Plan<'_>, before: &Arc<Job>, transition: Transition) -> Option<Moves> {
    let Transition { job, effects } = transition;
    let after = plan.limited(before, job);
    let effects = without_children(before, effects);
    let mut moves = Moves::new();
    moves.push((before.id, after));
    if effects == Effects::default() {
        return Some(moves);
    }
    let at = FxHashMap::from_iter([(before.id, 0)]);
    let mut family = Cascade { moves, at, work: VecDeque::new(), is_whole: true };
    family.react(plan, before, effects);
    while let Some((id, event)) = family.work.pop_front() {
        family.happen(plan, id, event);
    }
    family.is_whole.then_some(family.moves)
}

/// A job that never had children has none to tell.
fn without_children(before: &Job, effects: Effects) -> Effects {
    if never_had_children(before) { Effects { children: None, ..effects } } else { effects }
}

struct Cascade {
    moves: Moves,
    /// Where in `moves` a job is.
    at: FxHashMap<JobId, usize>,
    work: VecDeque<(JobId, Event)>,
    is_whole: bool,
}

impl Cascade {
    fn happen(&mut self, plan: &mut Plan<'_>, id: JobId, event: Event) {
        let Some(job) = self.current(plan, id) else { return };
        // A refusal is fine: the parent is busy, has ended or is gone, and there is nothing to tell it.
        let Ok(transition) = apply(&job, event, plan.now) else { return };
        let after = plan.limited(&job, transition.job);
        let effects = without_children(&job, transition.effects);
        match self.at.get(&id) {
            Some(&index) => self.moves[index].1 = after,
            None => {
                self.at.insert(id, self.moves.len());
                self.moves.push((id, after));
            }
        }
        self.react(plan, &job, effects);
    }

    fn current(&mut self, plan: &mut Plan<'_>, id: JobId) -> Option<Arc<Job>> {
        if let Some(&index) = self.at.get(&id) {
            return self.moves[index].1.clone();
        }
        if !plan.view.knows(id) {
            plan.missing.jobs.insert(id);
            self.is_whole = false;
        }
        plan.view.get(id).cloned()
    }

    fn react(&mut self, plan: &mut Plan<'_>, before: &Arc<Job>, effects: Effects) {
        match effects.parent {
            Some(ParentEffect::Settled(parent)) => self.work.push_back((parent, Event::ChildSettled)),
            Some(ParentEffect::Failed(parent)) => self.work.push_back((parent, Event::ChildFailed)),
            Some(ParentEffect::WrittenOff(parent)) => self.work.push_back((parent, Event::ChildWrittenOff)),
            Some(ParentEffect::Reopened(parent)) => self.work.push_back((parent, Event::ChildAdded)),
            Some(ParentEffect::Run(parent)) => {
                self.work.push_back((parent, Event::Run { at: plan.now, force: false }));
            }
            None => {}
        }
        if let Some(effect) = effects.children {
            self.tell_children(plan, before.id, effect);
        }
    }

    fn tell_children(&mut self, plan: &mut Plan<'_>, parent: JobId, effect: ChildrenEffect) {
        let Some(children) = plan.view.children(parent).map(<[JobId]>::to_vec) else {
            plan.missing.children_of.insert(parent);
            self.is_whole = false;
            return;
        };
        let mut forgotten = 0;
        for id in children {
            let Some(child) = self.current(plan, id) else { continue };
            match effect {
                // One that waits for children of its own refuses, as it should.
                ChildrenEffect::Release if is_held_by_parent(&child) => {
                    self.work.push_back((id, Event::ParentPaused));
                }
                ChildrenEffect::ForgetSettled | ChildrenEffect::Disband if is_done_for_parent(&child) => {
                    forgotten += 1;
                    if forgotten <= FORGET_PER_STEP_MAX {
                        self.work.push_back((id, Event::Delete));
                    } else {
                        plan.forget_later.push((parent, id));
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
