//! Shelf: claim queue of the due jobs with the same tenant, queue, name and limit keys.

use crate::query::QueueCounts;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::{Job, JobId, JobSpec, Name, Queue, StateName, Tenant, Timestamp};

pub(super) type ShelfId = u32;
pub(super) type ViewId = u32;

/// Kind of run that a waiting job waits for: it is counted by this until its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Wait {
    /// First attempt.
    First,
    /// Another attempt.
    Again,
    /// Shutdown run.
    Shutdown,
}

impl Wait {
    const COUNT: usize = 3;

    fn of(job: &Job) -> Wait {
        match job.state().name() {
            StateName::Terminating => Wait::Shutdown,
            _ if job.is_retried() => Wait::Again,
            _ => Wait::First,
        }
    }
}

/// Entry of a shelf. The field order is the claim order: priority, then time, then id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub priority: i32,
    pub run_at: Timestamp,
    pub id: JobId,
    pub wait: Wait,
}

impl Slot {
    /// Entry of a job that waits for a worker.
    pub(super) fn of(job: &Job) -> Option<Slot> {
        let run_at = job.state().claimable_at()?;
        Some(Slot { priority: job.spec.priority, run_at, id: job.id, wait: Wait::of(job) })
    }
}

/// Entry of a job that is not due yet, without time and id, which are its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Later {
    pub shelf: ShelfId,
    pub priority: i32,
    pub wait: Wait,
}

pub(super) struct Shelf {
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    pub limit_keys: Box<[Arc<str>]>,
    pub slots: BTreeSet<Slot>,
    /// All jobs of this shelf by `StateName as usize`; the shelf is dropped when all counts are zero.
    pub counts: [u64; 9],
    /// Jobs in other states than ready.
    pub others: FewIds,
    /// Jobs that are not due yet, by `Wait as usize`.
    pub later: [u64; Wait::COUNT],
    pub paused: bool,
    /// Limit that blocked its first job at the last try.
    pub parked_by: Option<Arc<str>>,
    pub parked_until: Option<Timestamp>,
    /// Views that contain this shelf's first job.
    pub views: SmallVec<[ViewId; 2]>,
}

/// Distinct priorities examined to find the oldest due job: exact for all but the most unusual queues.
const PRIORITIES_LOOKED_AT: usize = 64;

impl Shelf {
    pub(super) fn new(spec: &JobSpec, paused: bool) -> Shelf {
        Shelf {
            tenant: spec.tenant.clone(),
            queue: spec.queue.clone(),
            name: spec.name.clone(),
            limit_keys: spec.limit_keys().into(),
            paused,
            ..Shelf::default()
        }
    }

    /// Counts a job of this shelf.
    pub(super) fn enter(&mut self, job: &Job) {
        let state = job.state().name();
        self.counts[state as usize] += 1;
        if state != StateName::Ready {
            self.others.add(job.id);
        }
    }

    pub(super) fn leave(&mut self, job: &Job) {
        let state = job.state().name();
        self.counts[state as usize] -= 1;
        if state != StateName::Ready {
            let ready = self.counts[StateName::Ready as usize];
            let left = self.counts.iter().sum::<u64>() - ready;
            self.others.remove(job.id, left);
        }
    }

    /// True if ready jobs of this shelf are not due yet.
    pub(super) fn has_later(&self) -> bool {
        self.later[Wait::First as usize] + self.later[Wait::Again as usize] > 0
    }

    /// True if its jobs may be claimed at present.
    pub(super) fn is_open(&self) -> bool {
        !self.paused && self.parked_by.is_none()
    }

    /// First job; `None` while the shelf is closed.
    pub(super) fn head(&self) -> Option<Slot> {
        if self.is_open() { self.slots.first().copied() } else { None }
    }

    /// First job that is due at `now`, optionally of one priority.
    pub(super) fn due_head(&self, priority: Option<i32>, now: Timestamp) -> Option<Slot> {
        if !self.is_open() {
            return None;
        }
        let due = |slot: &&Slot| slot.run_at <= now;
        match priority {
            None => self.slots.iter().find(due).copied(),
            Some(priority) => {
                let from = self.slots.range(first_of(priority)..);
                from.take_while(|slot| slot.priority == priority).find(due).copied()
            }
        }
    }

    /// Adds this shelf to the counts. `set_back`: `now` is earlier than the clock of the index, so not every
    /// job on the shelf is due.
    pub(super) fn count_into(&self, counts: &mut QueueCounts, set_back: bool, now: Timestamp) {
        for (sum, count) in counts.by_state.iter_mut().zip(&self.counts) {
            *sum += count;
        }
        let mut later = self.later;
        if set_back {
            let early = self.slots.iter().filter(|slot| slot.run_at > now);
            early.for_each(|slot| later[slot.wait as usize] += 1);
        }
        counts.delayed += later[Wait::First as usize];
        counts.retrying += later[Wait::Again as usize];
        let oldest = self.oldest_due().filter(|oldest| *oldest <= now);
        counts.oldest_due = [counts.oldest_due, oldest].into_iter().flatten().min();
    }

    /// Earliest `run_at`: the first slot of each priority is the earliest of that priority.
    fn oldest_due(&self) -> Option<Timestamp> {
        let mut oldest: Option<Timestamp> = None;
        let mut next = self.slots.first().copied();
        for _ in 0..PRIORITIES_LOOKED_AT {
            let Some(slot) = next else { break };
            oldest = Some(oldest.map_or(slot.run_at, |at| at.min(slot.run_at)));
            next = slot.priority.checked_add(1).and_then(|priority| self.first_from(priority));
        }
        oldest
    }

    fn first_from(&self, priority: i32) -> Option<Slot> {
        self.slots.range(first_of(priority)..).next().copied()
    }
}

/// Ids of jobs while they are few, so that an old job with a rare name is found without a scan of the rows.
#[derive(Default)]
pub(super) struct FewIds {
    /// Sorted.
    ids: SmallVec<[JobId; 1]>,
    /// Set when there were too many; from then on until none is left they are not known.
    overflowed: bool,
}

/// Most ids of a shelf: few enough to insert into a sorted list, and for one page of a listing.
const FEW_MAX: usize = 1_000;

impl FewIds {
    fn add(&mut self, id: JobId) {
        if self.overflowed {
            return;
        }
        if self.ids.len() == FEW_MAX {
            *self = FewIds { ids: SmallVec::new(), overflowed: true };
        } else if let Err(place) = self.ids.binary_search(&id) {
            self.ids.insert(place, id);
        }
    }

    fn remove(&mut self, id: JobId, left: u64) {
        if left == 0 {
            *self = FewIds::default();
        } else if let Ok(place) = self.ids.binary_search(&id) {
            self.ids.remove(place);
        }
    }

    pub(super) fn absorb(&mut self, other: FewIds) {
        if other.overflowed {
            *self = other;
        } else {
            other.ids.into_iter().for_each(|id| self.add(id));
        }
    }

    /// `None`: they are, or were, too many.
    pub(super) fn all(&self) -> Option<&[JobId]> {
        (!self.overflowed).then_some(&self.ids)
    }
}

fn first_of(priority: i32) -> Slot {
    let id = JobId::new(1).expect("one is a positive number");
    Slot { priority, run_at: Timestamp::from_millis(i64::MIN), id, wait: Wait::First }
}

impl Default for Shelf {
    fn default() -> Self {
        Shelf {
            tenant: Tenant::default(),
            queue: Queue::default(),
            name: Name::new("-").expect("a dash is a name"),
            limit_keys: Box::default(),
            slots: BTreeSet::new(),
            counts: [0; StateName::ALL.len()],
            others: FewIds::default(),
            later: [0; Wait::COUNT],
            paused: false,
            parked_by: None,
            parked_until: None,
            views: SmallVec::new(),
        }
    }
}
