//! In-memory index. SQLite finds rows by id only; the index answers every other query (next job, due jobs,
//! holder of a key, counts). Rebuilt from the rows at startup.

mod listing;
mod merge;
mod shelf;
mod tenant;
mod tests;

use crate::change::{ClaimAsk, Held, UnderLimits, summed};
use crate::keys::Key;
use crate::query::{QueueCounts, WaitingName};
use rustc_hash::{FxHashMap, FxHashSet};
use shelf::{Later, Shelf, ShelfId, Slot, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenant::{Source, TenantIndex};
use windlass_core::{Job, JobId, Name, Queue, StateName, Tenant, Timestamp};

/// Largest backward step of `now` that is taken for concurrent requests out of order. A larger step means
/// that the clock was set back, which requires a scan of all waiting jobs. A claim never gets a job before
/// its time in either case.
const OVERTAKING_MS_MAX: i64 = 1_000;

/// Result of a search by exact name.
pub(super) enum Named {
    Nobody,
    One(JobId),
    /// Some exist in these states; their ids are only in the rows.
    Among(Vec<StateName>),
}

/// Tenant, queue and name of a claimable job, for the listener.
pub(super) type Address = (Tenant, Queue, Name);

#[derive(Default)]
pub(super) struct Index {
    /// Latest `now` of any call: jobs due by then are on their shelves, later ones in `delayed`.
    now: Timestamp,
    shelves: Vec<Shelf>,
    free_shelves: Vec<ShelfId>,
    tenants: FxHashMap<Tenant, TenantIndex>,
    delayed: BTreeMap<(Timestamp, JobId), Later>,
    /// Expiry of leases and ends of keep times.
    deadlines: BTreeSet<(Timestamp, JobId)>,
    /// Shelves blocked by a limit until a time.
    parked_until: BTreeSet<(Timestamp, ShelfId)>,
    /// Shelves blocked by a limit, by its key. May contain shelves that were released since.
    parked_by: FxHashMap<Arc<str>, Vec<ShelfId>>,
    children: FxHashMap<JobId, BTreeSet<JobId>>,
    /// Number of newly claimable jobs by shelf; emptied by `take_news`.
    news: BTreeMap<ShelfId, usize>,
}

impl Index {
    /// Empty index that treats jobs due by `now` as claimable.
    pub(super) fn at(now: Timestamp) -> Index {
        Index { now, ..Index::default() }
    }

    /// Adds a job in its current state.
    pub(super) fn add(&mut self, job: &Job) {
        let id = job.id;
        let shelf = self.shelf_for(job);
        self.shelves[shelf as usize].enter(job);
        match Slot::of(job) {
            Some(slot) if slot.run_at > self.now => self.put_off(shelf, slot),
            Some(slot) => self.put_on_shelf(shelf, slot),
            None => {}
        }
        if let Some(deadline) = job.deadline() {
            self.deadlines.insert((deadline, id));
        }
        if let Some(family) = job.spec.family() {
            self.children.entry(family.parent).or_default().insert(id);
        }
        let tenant = self.tenants.entry(job.spec.tenant.clone()).or_default();
        tenant.add(job);
    }

    /// Removes a job; `job` must be the version that was added.
    pub(super) fn remove(&mut self, job: &Job) {
        let id = job.id;
        let shelf = self.shelf_for(job);
        self.shelves[shelf as usize].leave(job);
        if let Some(slot) = Slot::of(job) {
            // A job that is being claimed was already removed from its shelf.
            if !self.take_off_shelf(shelf, slot) && self.delayed.remove(&(slot.run_at, id)).is_some() {
                self.shelves[shelf as usize].later[slot.wait as usize] -= 1;
            }
        }
        if let Some(deadline) = job.deadline() {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(family) = job.spec.family()
            && let Some(siblings) = self.children.get_mut(&family.parent)
        {
            siblings.remove(&id);
            if siblings.is_empty() {
                self.children.remove(&family.parent);
            }
        }
        if let Some(tenant) = self.tenants.get_mut(&job.spec.tenant) {
            tenant.remove(job);
        }
        self.drop_shelf_if_unused(shelf);
    }

    /// Advances the clock of the index: delayed jobs that are due and shelves whose wait is over become
    /// claimable.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if self.now.since_ms(now) > OVERTAKING_MS_MAX {
            self.rewind(now);
        }
        if now <= self.now {
            return;
        }
        self.now = now;
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ((run_at, id), Later { shelf, priority, wait }) = entry.remove_entry();
            self.shelves[shelf as usize].later[wait as usize] -= 1;
            self.put_on_shelf(shelf, Slot { priority, run_at, id, wait });
        }
        while let Some((until, shelf)) = self.parked_until.first().copied() {
            if until > now {
                break;
            }
            self.unpark(shelf);
        }
    }

    /// The clock was set back: jobs that were due by the old time are delayed again.
    fn rewind(&mut self, now: Timestamp) {
        self.now = now;
        for number in 0..self.shelves.len() {
            let early: Vec<Slot> =
                self.shelves[number].slots.iter().filter(|slot| slot.run_at > now).copied().collect();
            for slot in early {
                self.take_off_shelf(number as ShelfId, slot);
                self.put_off(number as ShelfId, slot);
            }
        }
    }

    /// Picks up to `ask.limit` jobs in claim order, and removes them from their shelves.
    pub(super) fn pick(&mut self, ask: &ClaimAsk, now: Timestamp) -> Vec<JobId> {
        self.advance(now);
        let mut picked = Vec::new();
        let Some(tenant) = self.tenants.get_mut(&ask.tenant) else { return picked };
        let sources = tenant.sources(ask, &mut self.shelves);
        while picked.len() < ask.limit {
            let best = sources.iter().filter_map(|source| self.head_of(source, ask, now)).min();
            let Some((slot, shelf)) = best else { break };
            if let Some(held) = self.held_by_limit(shelf, ask, now) {
                self.park(shelf, &held);
                continue;
            }
            self.take_off_shelf(shelf, slot);
            picked.push(slot.id);
        }
        picked
    }

    fn head_of(&self, source: &Source, ask: &ClaimAsk, now: Timestamp) -> Option<(Slot, ShelfId)> {
        let due = |shelf: ShelfId| Some((self.shelves[shelf as usize].due_head(ask.priority, now)?, shelf));
        match source {
            Source::Shelf(shelf) => due(*shelf),
            Source::View(view) => {
                let mut best: Option<(Slot, ShelfId)> = None;
                // The first head is the answer, unless the request is out of order and asks about an earlier
                // time.
                for head in self.tenants.get(&ask.tenant)?.view_heads(*view) {
                    if best.is_some_and(|best| best < *head) {
                        break;
                    }
                    best = best.into_iter().chain(due(head.1)).min();
                }
                best
            }
        }
    }

    fn held_by_limit(&self, shelf: ShelfId, ask: &ClaimAsk, now: Timestamp) -> Option<Held> {
        let gate = ask.gate.as_ref()?;
        let keys = &self.shelves[shelf as usize].limit_keys;
        if keys.is_empty() { None } else { gate.admit(&ask.tenant, keys, now).err() }
    }

    /// Jobs with a passed deadline, earliest first.
    pub(super) fn overdue(&self, now: Timestamp, limit: usize) -> Vec<JobId> {
        self.deadlines.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, id)| *id).collect()
    }

    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        if now < self.now {
            // Request out of order: jobs that became due in between are already on their shelves. Asking
            // again at once is cheap.
            return Some(now.plus_ms(1));
        }
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let delayed = self.delayed.first_key_value().map(|((at, _), _)| *at);
        let parked = self.parked_until.first().map(|(at, _)| *at);
        [deadline, delayed, parked].into_iter().flatten().min()
    }

    /// Holder of the unique key or alias that this job would take.
    pub(super) fn conflict(&self, spec: &windlass_core::JobSpec) -> Option<JobId> {
        if spec.unique().is_none() && spec.alias().is_none() {
            return None;
        }
        self.tenants.get(&spec.tenant)?.conflict(spec)
    }

    /// Every job that claims the key, in no order.
    pub(super) fn claimants(&self, key: &Key) -> Vec<JobId> {
        let (Key::Unique(tenant, _) | Key::Alias(tenant, _)) = key;
        self.tenants.get(tenant).map(|tenant| tenant.claimants(key)).unwrap_or_default()
    }

    pub(super) fn find_alias(&self, tenant: &Tenant, alias: &str) -> Option<JobId> {
        self.tenants.get(tenant)?.find_alias(alias)
    }

    /// Looks up jobs with exactly this name.
    pub(super) fn named(&self, tenant: &Tenant, queue: &Queue, name: &Name) -> Named {
        let shelves =
            self.tenants.get(tenant).map(|tenant| tenant.shelves_named(queue, name)).unwrap_or_default();
        let mut states = Vec::new();
        for shelf in shelves.iter().map(|number| &self.shelves[*number as usize]) {
            if let Some(slot) = shelf.slots.first() {
                return Named::One(slot.id);
            }
            states.extend(StateName::ALL.into_iter().filter(|state| shelf.counts[*state as usize] > 0));
        }
        if states.is_empty() { Named::Nobody } else { Named::Among(states) }
    }

    pub(super) fn children_of(&self, parent: JobId) -> Vec<JobId> {
        self.children.get(&parent).map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn set_paused(&mut self, tenant: &Tenant, queue: &Queue, paused: bool) {
        let entry = self.tenants.entry(tenant.clone()).or_default();
        entry.set_paused(queue, paused);
        for shelf in entry.shelves_of(queue) {
            self.reshelve(shelf, |shelf| shelf.paused = paused);
        }
    }

    /// Releases shelves blocked by this limit key.
    pub(super) fn reopen(&mut self, key: &str) {
        for shelf in self.parked_by.remove(key).unwrap_or_default() {
            if self.shelves[shelf as usize].parked_by.as_deref() == Some(key) {
                self.unpark(shelf);
            }
        }
    }

    /// Forgets the jobs that became claimable: while the index is built nobody listens.
    pub(super) fn forget_news(&mut self) {
        self.news.clear();
    }

    /// Tenant, queue and name of the jobs that became claimable since the last call, and their number.
    pub(super) fn take_news(&mut self) -> BTreeMap<Address, usize> {
        let mut news = BTreeMap::new();
        for (shelf, count) in std::mem::take(&mut self.news) {
            let shelf = &self.shelves[shelf as usize];
            if shelf.is_open() {
                let address = (shelf.tenant.clone(), shelf.queue.clone(), shelf.name.clone());
                *news.entry(address).or_default() += count;
            }
        }
        news
    }

    pub(super) fn payload_bytes(&self, tenant: &Tenant) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.payload_bytes)
    }

    pub(super) fn counts(&self, tenant: Option<&Tenant>, now: Timestamp) -> Vec<QueueCounts> {
        let mut queues: BTreeMap<(Tenant, Queue), QueueCounts> = BTreeMap::new();
        for (name, entry) in &self.tenants {
            if tenant.is_some_and(|asked| asked != name) {
                continue;
            }
            for (queue, shelf) in entry.queues_and_shelves() {
                let counts = queues.entry((name.clone(), queue.clone())).or_insert_with(|| QueueCounts {
                    tenant: name.clone(),
                    queue: queue.clone(),
                    paused: entry.is_paused(queue),
                    by_state: [0; 9],
                    delayed: 0,
                    retrying: 0,
                    oldest_due: None,
                });
                if let Some(shelf) = shelf {
                    self.shelves[shelf as usize].count_into(counts, now < self.now, now);
                }
            }
        }
        // Counts jobs that became due since the last `advance`; the scheduler makes them claimable within
        // milliseconds.
        for ((run_at, _), later) in self.delayed.iter().take_while(|((run_at, _), _)| *run_at <= now) {
            let shelf = &self.shelves[later.shelf as usize];
            if let Some(counts) = queues.get_mut(&(shelf.tenant.clone(), shelf.queue.clone())) {
                match later.wait {
                    Wait::First => counts.delayed -= 1,
                    Wait::Again => counts.retrying -= 1,
                    Wait::Shutdown => {}
                }
                counts.oldest_due = Some(counts.oldest_due.map_or(*run_at, |oldest| oldest.min(*run_at)));
            }
        }
        queues.into_values().collect()
    }

    /// Names of this queue with claimable jobs.
    pub(super) fn waiting(&self, queue: &Queue, now: Timestamp) -> Vec<WaitingName> {
        let mut names: BTreeMap<(&Tenant, &Name), u64> = BTreeMap::new();
        let set_back = now < self.now;
        for (tenant, entry) in &self.tenants {
            for shelf in entry.shelves_of(queue).into_iter().map(|number| &self.shelves[number as usize]) {
                let early = match set_back {
                    true => shelf.slots.iter().filter(|slot| slot.run_at > now).count(),
                    false => 0,
                };
                let ready = (shelf.slots.len() - early) as u64;
                if ready > 0 && shelf.is_open() {
                    *names.entry((tenant, &shelf.name)).or_default() += ready;
                }
            }
        }
        // Jobs that became due since the last `advance`.
        for (_, later) in self.delayed.iter().take_while(|((run_at, _), _)| *run_at <= now) {
            let shelf = &self.shelves[later.shelf as usize];
            if shelf.queue == *queue && shelf.is_open() {
                *names.entry((&shelf.tenant, &shelf.name)).or_default() += 1;
            }
        }
        let named = |((tenant, name), ready): ((&Tenant, &Name), u64)| WaitingName {
            tenant: tenant.clone(),
            name: name.clone(),
            ready,
        };
        names.into_iter().map(named).collect()
    }

    /// Due jobs grouped by their limit keys, from the sizes of the shelves.
    pub(super) fn under_limits(&self, tenant: &Tenant, now: Timestamp) -> Vec<UnderLimits> {
        let entry = self.tenants.get(tenant).into_iter();
        let shelves = entry.flat_map(TenantIndex::queues_and_shelves).filter_map(|(_, shelf)| shelf);
        let mut groups: Vec<UnderLimits> = Vec::new();
        for shelf in shelves.map(|number| &self.shelves[number as usize]) {
            // Request out of order: jobs that became due after `now` are already on the shelf.
            let due = match now < self.now {
                true => shelf.slots.iter().filter(|slot| slot.run_at <= now).count(),
                false => shelf.slots.len(),
            };
            if due > 0 && !shelf.limit_keys.is_empty() {
                let is_parked = shelf.parked_until.is_none_or(|until| until > now);
                let held = shelf.parked_by.clone().filter(|_| is_parked);
                groups.push(UnderLimits { keys: shelf.limit_keys.to_vec(), due: due as u64, held });
            }
        }
        // Jobs that became due since the last `advance`.
        for ((run_at, _), later) in self.delayed.iter().take_while(|((run_at, _), _)| *run_at <= now) {
            let shelf = &self.shelves[later.shelf as usize];
            debug_assert!(*run_at > self.now, "due jobs are on their shelves");
            if shelf.tenant == *tenant && !shelf.limit_keys.is_empty() {
                groups.push(UnderLimits { keys: shelf.limit_keys.to_vec(), due: 1, held: None });
            }
        }
        summed(groups)
    }

    // --- shelves -------------------------------------------------------------------------------------------

    fn shelf_for(&mut self, job: &Job) -> ShelfId {
        let spec = &job.spec;
        let tenant = self.tenants.entry(spec.tenant.clone()).or_default();
        if let Some(shelf) = tenant.find_shelf(&spec.queue, &spec.name, spec.limit_keys(), &self.shelves) {
            return shelf;
        }
        let number = self.free_shelves.pop().unwrap_or_else(|| {
            self.shelves.push(Shelf::default());
            (self.shelves.len() - 1) as ShelfId
        });
        self.shelves[number as usize] = Shelf::new(spec, tenant.is_paused(&spec.queue));
        tenant.enter_shelf(number, &mut self.shelves);
        number
    }

    fn drop_shelf_if_unused(&mut self, number: ShelfId) {
        let shelf = &self.shelves[number as usize];
        if shelf.counts.iter().any(|count| *count > 0) {
            return;
        }
        self.unpark(number);
        let shelf = std::mem::take(&mut self.shelves[number as usize]);
        if let Some(tenant) = self.tenants.get_mut(&shelf.tenant) {
            tenant.forget_shelf(number, &shelf);
        }
        self.news.remove(&number);
        self.free_shelves.push(number);
    }

    fn put_on_shelf(&mut self, number: ShelfId, slot: Slot) {
        *self.news.entry(number).or_default() += 1;
        self.with_head_kept(number, |shelf| {
            shelf.slots.insert(slot);
        });
    }

    /// Keeps a job that is not due yet.
    fn put_off(&mut self, number: ShelfId, slot: Slot) {
        let Slot { priority, run_at, id, wait } = slot;
        self.delayed.insert((run_at, id), Later { shelf: number, priority, wait });
        self.shelves[number as usize].later[wait as usize] += 1;
    }

    fn take_off_shelf(&mut self, number: ShelfId, slot: Slot) -> bool {
        let mut taken = false;
        self.with_head_kept(number, |shelf| taken = shelf.slots.remove(&slot));
        taken
    }

    /// Changes whether a shelf is open; opening it notifies the listener of its jobs.
    fn reshelve(&mut self, number: ShelfId, change: impl FnOnce(&mut Shelf)) {
        let was_open = self.shelves[number as usize].is_open();
        self.with_head_kept(number, change);
        let shelf = &self.shelves[number as usize];
        if shelf.is_open() && !was_open {
            *self.news.entry(number).or_default() += shelf.slots.len();
        }
    }

    /// Changes a shelf and updates the views that contain its first job.
    fn with_head_kept(&mut self, number: ShelfId, change: impl FnOnce(&mut Shelf)) {
        let shelf = &mut self.shelves[number as usize];
        let before = shelf.head();
        change(shelf);
        let after = shelf.head();
        if before != after
            && !shelf.views.is_empty()
            && let Some(tenant) = self.tenants.get_mut(&shelf.tenant)
        {
            tenant.head_moved(number, &shelf.views, before, after);
        }
    }

    fn park(&mut self, number: ShelfId, held: &Held) {
        if let Some(until) = held.until {
            self.parked_until.insert((until, number));
        }
        let key = Arc::clone(&held.key);
        let until = held.until;
        let others = self.parked_by.entry(Arc::clone(&key)).or_default();
        if !others.contains(&number) {
            others.push(number);
        }
        self.with_head_kept(number, |shelf| {
            shelf.parked_by = Some(key);
            shelf.parked_until = until;
        });
    }

    fn unpark(&mut self, number: ShelfId) {
        let shelf = &self.shelves[number as usize];
        if shelf.parked_by.is_none() {
            return;
        }
        if let Some(until) = shelf.parked_until {
            self.parked_until.remove(&(until, number));
        }
        self.reshelve(number, |shelf| {
            shelf.parked_by = None;
            shelf.parked_until = None;
        });
    }

    #[cfg(test)]
    pub(super) fn delayed_count(&self) -> usize {
        self.delayed.len()
    }

    #[cfg(test)]
    fn shelf_count(&self) -> usize {
        self.shelves.len() - self.free_shelves.len()
    }
}

/// Paused queues, kept apart from queues with jobs: each may exist without the other.
pub(super) type PausedQueues = FxHashSet<Queue>;
