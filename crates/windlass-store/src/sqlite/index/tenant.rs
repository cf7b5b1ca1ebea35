//! Index of one tenant: queues and shelves, keys, and the views of its workers.

use super::PausedQueues;
use super::shelf::{Shelf, ShelfId, Slot, ViewId};
use crate::change::ClaimAsk;
use crate::keys::Key;
use crate::query::repeats;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::{Job, JobId, JobSpec, Name, NameMatch, Queue, Scope, StateName};

/// Patterns cached per tenant. A worker pool uses a handful; an evicted view is rebuilt at its next use.
const VIEWS_MAX: usize = 64;

/// Place in which a claim looks for its next job.
pub(super) enum Source {
    View(ViewId),
    Shelf(ShelfId),
}

/// First jobs of all shelves that match a pattern, in claim order: a claim by GLOB costs the same with a
/// hundred thousand names as with one.
struct View {
    queue: Option<Queue>,
    names: NameMatch,
    scope: Scope,
    heads: BTreeSet<(Slot, ShelfId)>,
    used: u64,
}

impl View {
    fn shows(&self, shelf: &Shelf) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == shelf.queue)
            && self.names.matches(&shelf.name)
            && self.scope.allows(&shelf.queue, &shelf.name)
    }
}

/// Jobs that claim a key. Nearly always one; of several the job with the smallest id is the holder.
#[derive(Default)]
pub(super) struct Keys(FxHashMap<Arc<str>, SmallVec<[JobId; 1]>>);

impl Keys {
    fn holder(&self, key: &str) -> Option<JobId> {
        self.0.get(key)?.iter().min().copied()
    }

    fn claimants(&self, key: &str) -> &[JobId] {
        self.0.get(key).map(SmallVec::as_slice).unwrap_or_default()
    }

    fn claim(&mut self, key: &str, id: JobId) {
        match self.0.get_mut(key) {
            Some(claimants) => claimants.push(id),
            None => drop(self.0.insert(key.into(), SmallVec::from_elem(id, 1))),
        }
    }

    pub(super) fn absorb(&mut self, other: Keys) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (key, claimants) in other.0 {
            self.0.entry(key).or_default().extend(claimants);
        }
    }

    fn let_go(&mut self, key: &str, id: JobId) {
        let Some(claimants) = self.0.get_mut(key) else { return };
        claimants.retain(|claimant| *claimant != id);
        if claimants.is_empty() {
            self.0.remove(key);
        }
    }
}

type Names = FxHashMap<Name, SmallVec<[ShelfId; 1]>>;

#[derive(Default)]
pub(super) struct TenantIndex {
    /// Sorted, so that queries over all queues return the same order everywhere.
    queues: BTreeMap<Queue, Names>,
    paused: PausedQueues,
    pub(super) uniques: Keys,
    pub(super) aliases: Keys,
    /// Jobs by state, except ready ones: the others are few, or searched by state.
    pub(super) by_state: [BTreeSet<JobId>; 9],
    /// Jobs with a repeat rule that are not settled: few, and listed together.
    pub(super) repeating: BTreeSet<JobId>,
    /// Ready jobs with an attempt behind them: few, and searched for.
    pub(super) retried: BTreeSet<JobId>,
    views: FxHashMap<ViewId, View>,
    views_made: ViewId,
    asks: u64,
    /// Of all its jobs.
    pub payload_bytes: u64,
}

impl TenantIndex {
    pub(super) fn add(&mut self, job: &Job) {
        self.payload_bytes += job.spec.payload.bytes.len() as u64;
        let state = job.state().name();
        if state != StateName::Ready {
            self.by_state[state as usize].insert(job.id);
        }
        if repeats(job) {
            self.repeating.insert(job.id);
        }
        if job.is_retried() {
            self.retried.insert(job.id);
        }
        if job.spec.extras.is_none() {
            return;
        }
        if let Some(unique) = job.spec.unique()
            && job.holds_unique_key()
        {
            self.uniques.claim(&unique.key, job.id);
        }
        if let Some(alias) = job.spec.alias() {
            self.aliases.claim(alias, job.id);
        }
    }

    pub(super) fn remove(&mut self, job: &Job) {
        self.payload_bytes -= job.spec.payload.bytes.len() as u64;
        let state = job.state().name();
        if state != StateName::Ready {
            self.by_state[state as usize].remove(&job.id);
        }
        if repeats(job) {
            self.repeating.remove(&job.id);
        }
        if job.is_retried() {
            self.retried.remove(&job.id);
        }
        if job.spec.extras.is_none() {
            return;
        }
        if let Some(unique) = job.spec.unique() {
            self.uniques.let_go(&unique.key, job.id);
        }
        if let Some(alias) = job.spec.alias() {
            self.aliases.let_go(alias, job.id);
        }
    }

    pub(super) fn conflict(&self, spec: &JobSpec) -> Option<JobId> {
        let by_key = spec.unique().and_then(|unique| self.uniques.holder(&unique.key));
        by_key.or_else(|| self.aliases.holder(spec.alias()?))
    }

    pub(super) fn claimants(&self, key: &Key) -> Vec<JobId> {
        match key {
            Key::Unique(_, key) => self.uniques.claimants(key).to_vec(),
            Key::Alias(_, alias) => self.aliases.claimants(alias).to_vec(),
        }
    }

    pub(super) fn find_alias(&self, alias: &str) -> Option<JobId> {
        self.aliases.holder(alias)
    }

    /// Number of jobs in a state other than ready.
    pub(super) fn count_in(&self, state: StateName) -> usize {
        self.by_state[state as usize].len()
    }

    pub(super) fn newest_in(
        &self,
        state: StateName,
        before: u64,
        limit: usize,
    ) -> impl Iterator<Item = JobId> {
        let below = JobId::new(before).into_iter();
        let ids = &self.by_state[state as usize];
        below.flat_map(move |before| ids.range(..before).rev().take(limit).copied())
    }

    pub(super) fn newest_repeating(&self, before: u64, limit: usize) -> impl Iterator<Item = JobId> {
        let below = JobId::new(before).into_iter();
        below.flat_map(move |before| self.repeating.range(..before).rev().take(limit).copied())
    }

    pub(super) fn newest_retried(&self, before: u64, limit: usize) -> impl Iterator<Item = JobId> {
        let below = JobId::new(before).into_iter();
        below.flat_map(move |before| self.retried.range(..before).rev().take(limit).copied())
    }

    // --- queues and shelves --------------------------------------------------------------------------------

    pub(super) fn set_paused(&mut self, queue: &Queue, paused: bool) {
        if paused {
            self.paused.insert(queue.clone());
        } else {
            self.paused.remove(queue);
        }
    }

    pub(super) fn is_paused(&self, queue: &Queue) -> bool {
        !self.paused.is_empty() && self.paused.contains(queue)
    }

    pub(super) fn shelves_of(&self, queue: &Queue) -> Vec<ShelfId> {
        self.queues.get(queue).into_iter().flat_map(|names| names.values().flatten().copied()).collect()
    }

    pub(super) fn shelves_named(&self, queue: &Queue, name: &Name) -> Vec<ShelfId> {
        let shelves = self.queues.get(queue).and_then(|names| names.get(name));
        shelves.map(|shelves| shelves.to_vec()).unwrap_or_default()
    }

    /// Shelves of a name in any queue.
    pub(super) fn shelves_of_name(&self, name: &str) -> Vec<ShelfId> {
        self.queues.values().filter_map(|names| names.get(name)).flatten().copied().collect()
    }

    /// Every queue with each of its shelves; a queue that is only paused has none.
    pub(super) fn queues_and_shelves(&self) -> impl Iterator<Item = (&Queue, Option<ShelfId>)> {
        let shelved = self
            .queues
            .iter()
            .flat_map(|(queue, names)| names.values().flatten().map(move |shelf| (queue, Some(*shelf))));
        let only_paused = self.paused.iter().filter(|queue| !self.queues.contains_key(*queue));
        shelved.chain(only_paused.map(|queue| (queue, None)))
    }

    pub(super) fn find_shelf(
        &self,
        queue: &Queue,
        name: &Name,
        limit_keys: &[Arc<str>],
        shelves: &[Shelf],
    ) -> Option<ShelfId> {
        let candidates = self.queues.get(queue)?.get(name)?;
        candidates.iter().copied().find(|shelf| *shelves[*shelf as usize].limit_keys == *limit_keys)
    }

    pub(super) fn enter_shelf(&mut self, number: ShelfId, shelves: &mut [Shelf]) {
        let shelf = &mut shelves[number as usize];
        let names = self.queues.entry(shelf.queue.clone()).or_default();
        names.entry(shelf.name.clone()).or_default().push(number);
        for (id, view) in &self.views {
            if view.shows(shelf) {
                shelf.views.push(*id);
            }
        }
    }

    /// Removes an unused shelf. It has no head, so no view contains it.
    pub(super) fn forget_shelf(&mut self, number: ShelfId, shelf: &Shelf) {
        let Some(names) = self.queues.get_mut(&shelf.queue) else { return };
        if let Some(numbers) = names.get_mut(&shelf.name) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                names.remove(&shelf.name);
            }
        }
        if names.is_empty() {
            self.queues.remove(&shelf.queue);
        }
    }

    // --- views ---------------------------------------------------------------------------------------------

    /// Sources for this claim. Exact names in named queues are looked up directly; all other claims use
    /// views.
    pub(super) fn sources(&mut self, ask: &ClaimAsk, shelves: &mut [Shelf]) -> Vec<Source> {
        self.asks += 1;
        if ask.priority.is_some() {
            return self.all_fitting(ask, shelves);
        }
        let exact: &[Box<str>] = match &ask.names {
            NameMatch::Exact(name) => std::slice::from_ref(name),
            NameMatch::OneOf(names) => names,
            NameMatch::Any | NameMatch::NoneOf(_) | NameMatch::Glob(_) => &[],
        };
        if !exact.is_empty() && !ask.queues.is_empty() {
            let names = ask.queues.iter().filter_map(|queue| self.queues.get(queue));
            let found = names.flat_map(|names| exact.iter().filter_map(|name| names.get(&**name)));
            let reached = found.flatten().filter(|shelf| is_reached(ask, &shelves[**shelf as usize]));
            return reached.map(|shelf| Source::Shelf(*shelf)).collect();
        }
        if ask.queues.is_empty() {
            return vec![Source::View(self.view(None, ask, shelves))];
        }
        ask.queues.iter().map(|queue| Source::View(self.view(Some(queue), ask, shelves))).collect()
    }

    /// All matching shelves: the slow path for claims of a single priority.
    fn all_fitting(&self, ask: &ClaimAsk, shelves: &[Shelf]) -> Vec<Source> {
        let queues =
            self.queues.iter().filter(|(queue, _)| ask.queues.is_empty() || ask.queues.contains(queue));
        let numbers = queues.flat_map(|(_, names)| names.values().flatten().copied());
        numbers
            .filter(|number| ask.names.matches(&shelves[*number as usize].name))
            .filter(|number| is_reached(ask, &shelves[*number as usize]))
            .map(Source::Shelf)
            .collect()
    }

    /// Heads of a view, in claim order.
    pub(super) fn view_heads(&self, view: ViewId) -> impl Iterator<Item = &(Slot, ShelfId)> {
        self.views.get(&view).into_iter().flat_map(|view| &view.heads)
    }

    pub(super) fn head_moved(
        &mut self,
        number: ShelfId,
        views: &[ViewId],
        before: Option<Slot>,
        after: Option<Slot>,
    ) {
        for id in views {
            let Some(view) = self.views.get_mut(id) else { continue };
            if let Some(slot) = before {
                view.heads.remove(&(slot, number));
            }
            if let Some(slot) = after {
                view.heads.insert((slot, number));
            }
        }
    }

    fn view(&mut self, queue: Option<&Queue>, ask: &ClaimAsk, shelves: &mut [Shelf]) -> ViewId {
        let is_same =
            |view: &View| view.queue.as_ref() == queue && view.names == ask.names && view.scope == ask.scope;
        if let Some((id, view)) = self.views.iter_mut().find(|(_, view)| is_same(view)) {
            view.used = self.asks;
            return *id;
        }
        if self.views.len() >= VIEWS_MAX {
            self.forget_least_used_view(shelves);
        }
        let id = self.views_made;
        self.views_made = self.views_made.wrapping_add(1);
        let heads = BTreeSet::new();
        let (names, scope) = (ask.names.clone(), ask.scope.clone());
        let mut view = View { queue: queue.cloned(), names, scope, heads, used: self.asks };
        for number in self.queues.values().flat_map(|names| names.values().flatten()) {
            let shelf = &mut shelves[*number as usize];
            if view.shows(shelf) {
                shelf.views.push(id);
                view.heads.extend(shelf.head().map(|slot| (slot, *number)));
            }
        }
        self.views.insert(id, view);
        id
    }

    /// Evicts the least recently used view, never one of the current claim, which were used last.
    fn forget_least_used_view(&mut self, shelves: &mut [Shelf]) {
        let Some(oldest) = self.views.iter().min_by_key(|(_, view)| view.used).map(|(id, _)| *id) else {
            return;
        };
        self.views.remove(&oldest);
        for number in self.queues.values().flat_map(|names| names.values().flatten()) {
            shelves[*number as usize].views.retain(|id| *id != oldest);
        }
    }
}

fn is_reached(ask: &ClaimAsk, shelf: &Shelf) -> bool {
    ask.scope.allows(&shelf.queue, &shelf.name)
}
