//! Cache of the lanes on this server: existing lanes, a lower bound for the first job of each, and lanes
//! blocked by a limit. Plain data without I/O. Correctness does not depend on it: the database decides which
//! server gets a job. The cache avoids queries on empty lanes and, above all, scans over dead rows that are
//! not vacuumed yet.

use super::views::{Rank, ViewId, Views, due};
use crate::change::{ClaimAsk, Held};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use windlass_core::{JobSpec, Name, NameMatch, Queue, Tenant, Timestamp};

pub(super) type LaneId = i32;
/// Position in a lane: (at, id).
pub(super) type Place = (i64, i64);

/// Before every job.
pub(super) const START: Place = (i64::MIN, 0);
/// After every job.
pub(super) const NOWHERE: Place = (i64::MAX, i64::MAX);
/// Lanes in the first query of a claim. The lanes with the best first jobs are among them; jobs of the other
/// lanes are known to come later.
pub(super) const LANES_PER_LOOK: usize = 64;

/// Limit key of jobs pushed by SQL while limits exist: their real limit keys have not been computed yet, and
/// until then they are not claimable.
pub(super) const UNCHECKED: &str = "\u{1f}unchecked";

/// Key of a lane: all job fields that a claim or a limit reads, except the time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneKey {
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    pub priority: i32,
    pub limit_keys: Vec<Arc<str>>,
}

impl LaneKey {
    pub(super) fn is_unchecked(&self) -> bool {
        matches!(self.limit_keys.as_slice(), [only] if **only == *UNCHECKED)
    }

    pub(super) fn has_limits(&self) -> bool {
        !self.limit_keys.is_empty() && !self.is_unchecked()
    }

    pub(super) fn of(spec: &JobSpec) -> LaneKey {
        LaneKey {
            tenant: spec.tenant.clone(),
            queue: spec.queue.clone(),
            name: spec.name.clone(),
            priority: spec.priority,
            limit_keys: spec.limit_keys().to_vec(),
        }
    }
}

struct Lane {
    words: Arc<LaneKey>,
    /// Lower bound: no known job of the lane comes before this position.
    floor: Place,
    /// Grows whenever a job enters: a query that started before must not raise the floor above that job.
    entries: u64,
    parked: Option<Held>,
    /// Views that contain this lane.
    views: Vec<ViewId>,
}

/// Lane to query, and the start position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub lane: LaneId,
    pub priority: i32,
    pub from: Place,
    entries: u64,
}

/// Lanes that a claim has to query.
#[derive(Debug, Default)]
pub(super) struct Looks {
    pub lanes: Vec<Look>,
    /// Upper bound of the query: lanes that were left out may have better jobs beyond it.
    pub bound: Option<(i32, Place)>,
}

/// Result of a query for new lanes, from which the next query continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Transaction id (xid): lanes created by earlier transactions are known.
    pub before: String,
    /// Time of the query in µs by the database's clock, and the timeline of the database; on another timeline
    /// transaction ids have another meaning.
    pub at_us: i64,
    pub history: String,
}

impl Default for Seen {
    /// No lane is known.
    fn default() -> Seen {
        Seen { before: "0".to_owned(), at_us: i64::MIN, history: String::new() }
    }
}

/// Addresses with newly claimable jobs, and their number; `None`: any number.
pub(super) type News = BTreeMap<(Tenant, Queue, Name), Option<usize>>;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: FxHashMap<LaneId, Lane>,
    by_words: FxHashMap<Arc<LaneKey>, LaneId>,
    /// Lets a claim by name find its lanes among a hundred thousand.
    by_name: FxHashMap<Tenant, BTreeMap<Name, Vec<LaneId>>>,
    views: Views,
    unchecked: BTreeSet<LaneId>,
    seen: Seen,
    paused: FxHashSet<(Tenant, Queue)>,
    parked: usize,
    /// `now` of the last `due`: the listener has been notified of jobs due before that.
    looked_at: Option<Timestamp>,
    news: News,
}

impl Lanes {
    pub(super) fn find(&self, words: &LaneKey) -> Option<LaneId> {
        self.by_words.get(words).copied()
    }

    pub(super) fn words(&self, lane: LaneId) -> Option<Arc<LaneKey>> {
        self.lanes.get(&lane).map(|lane| Arc::clone(&lane.words))
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Keeps the later result, because queries may finish out of order. Times of different timelines cannot
    /// be compared.
    pub(super) fn see(&mut self, seen: Seen) {
        if seen.at_us > self.seen.at_us || seen.history != self.seen.history {
            self.seen = seen;
        }
    }

    pub(super) fn learn(&mut self, lane: LaneId, words: LaneKey) {
        if self.lanes.contains_key(&lane) {
            return;
        }
        let words = Arc::new(words);
        let names = self.by_name.entry(words.tenant.clone()).or_default();
        names.entry(words.name.clone()).or_default().push(lane);
        self.by_words.insert(Arc::clone(&words), lane);
        if words.is_unchecked() {
            self.unchecked.insert(lane);
        }
        let views = self.views.enter(&words, (words.priority, START, lane));
        self.lanes.insert(lane, Lane { words, floor: START, entries: 0, parked: None, views });
    }

    /// Lanes of jobs whose limit keys have not been computed.
    pub(super) fn unchecked(&self) -> Vec<LaneId> {
        self.unchecked.iter().copied().collect()
    }

    fn set_floor(&mut self, id: LaneId, floor: Place) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.floor != floor) else { return };
        let priority = lane.words.priority;
        self.views.moved(&lane.views, (priority, lane.floor, id), (priority, floor, id));
        lane.floor = floor;
    }

    /// Lanes whose key satisfies the predicate.
    pub(super) fn fitting(&self, fits: impl Fn(&LaneKey) -> bool) -> Vec<LaneId> {
        self.lanes.iter().filter(|(_, lane)| fits(&lane.words)).map(|(id, _)| *id).collect()
    }

    // --- pauses --------------------------------------------------------------------------------------------

    pub(super) fn set_paused(&mut self, tenant: &Tenant, queue: &Queue, paused: bool) {
        let address = (tenant.clone(), queue.clone());
        if paused {
            self.paused.insert(address);
            return;
        }
        if self.paused.remove(&address) {
            let here = self.fitting(|words| words.tenant == *tenant && words.queue == *queue);
            here.into_iter().for_each(|lane| self.tell(lane, None));
        }
    }

    /// Replaces the paused queues by those of the database; returns whether they differed.
    pub(super) fn all_paused(&mut self, paused: Vec<(Tenant, Queue)>) -> bool {
        let now: FxHashSet<_> = paused.into_iter().collect();
        if now == self.paused {
            return false;
        }
        for (tenant, queue) in self.paused.difference(&now).cloned().collect::<Vec<_>>() {
            self.set_paused(&tenant, &queue, false);
        }
        self.paused = now;
        true
    }

    pub(super) fn paused(&self) -> impl Iterator<Item = &(Tenant, Queue)> {
        self.paused.iter()
    }

    fn is_paused(&self, words: &LaneKey) -> bool {
        !self.paused.is_empty() && self.paused.contains(&(words.tenant.clone(), words.queue.clone()))
    }

    // --- new jobs ------------------------------------------------------------------------------------------

    /// Records a job that is claimable now or at a later time. `count` as in [`News`].
    pub(super) fn entered(&mut self, lane: LaneId, place: Place, now: Timestamp, count: Option<usize>) {
        let Some(entry) = self.lanes.get_mut(&lane) else { return };
        entry.entries += 1;
        let floor = entry.floor.min(place);
        self.set_floor(lane, floor);
        // `due` will not notify of times it has already passed, so the notice is given here.
        let told_until = self.looked_at.max(Some(now)).unwrap_or(now);
        if place.0 <= told_until.as_millis() {
            self.tell(lane, count);
        }
    }

    pub(super) fn tell(&mut self, lane: LaneId, count: Option<usize>) {
        let Some(lane) = self.lanes.get(&lane) else { return };
        if !self.is_paused(&lane.words) {
            let words = &lane.words;
            let address = (words.tenant.clone(), words.queue.clone(), words.name.clone());
            let known = self.news.entry(address).or_insert(Some(0));
            *known = known.zip(count).map(|(known, count)| known + count);
        }
    }

    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    // --- claims --------------------------------------------------------------------------------------------

    /// Lanes that this claim has to query, about `at_once` of them; empty if no job is known.
    pub(super) fn looks(&mut self, ask: &ClaimAsk, now: Timestamp, at_once: usize) -> Looks {
        let mut looks = Looks::default();
        let view = self.view(ask);
        let own = self.lanes_by_name(ask, view);
        for rank in self.ranks(view, &own, now) {
            let (priority, from, id) = rank;
            let Some(lane) = self.lanes.get(&id).filter(|lane| self.is_open(lane, now)) else { continue };
            // Lanes with an unknown head are all included: nothing is known about the jobs before it.
            if looks.lanes.len() >= at_once && from != START {
                looks.bound = Some((priority, from));
                break;
            }
            looks.lanes.push(Look { lane: id, priority, from, entries: lane.entries });
        }
        looks
    }

    /// True if a matching job may exist.
    pub(super) fn may_have(&mut self, ask: &ClaimAsk, now: Timestamp) -> bool {
        let view = self.view(ask);
        let own = self.lanes_by_name(ask, view);
        self.ranks(view, &own, now)
            .any(|(.., id)| self.lanes.get(&id).is_some_and(|lane| self.is_open(lane, now)))
    }

    /// All lanes that match the claim, with or without jobs.
    pub(super) fn asked_for(&mut self, ask: &ClaimAsk) -> Vec<LaneId> {
        let view = self.view(ask);
        let own = self.lanes_by_name(ask, view);
        let shown = view.and_then(|view| self.views.lanes(view)).unwrap_or(&own);
        shown.iter().map(|(.., lane)| *lane).collect()
    }

    fn is_open(&self, lane: &Lane, now: Timestamp) -> bool {
        !lane.words.is_unchecked() && !self.is_paused(&lane.words) && !is_held(lane.parked.as_ref(), now)
    }

    fn ranks<'a>(
        &'a self,
        view: Option<ViewId>,
        own: &'a BTreeSet<Rank>,
        now: Timestamp,
    ) -> impl Iterator<Item = Rank> + 'a {
        due(view.and_then(|view| self.views.lanes(view)).unwrap_or(own), now)
    }

    /// View of a claim, built at its first use. Claims by exact name need none.
    fn view(&mut self, ask: &ClaimAsk) -> Option<ViewId> {
        if matches!(ask.names, NameMatch::Exact(_) | NameMatch::OneOf(_)) {
            return None;
        }
        if let Some(view) = self.views.find(ask) {
            return Some(view);
        }
        let lanes = self.ranks_of(ask);
        let shown: Vec<LaneId> = lanes.iter().map(|(.., lane)| *lane).collect();
        let (view, gone) = self.views.make(ask, lanes);
        if let Some((gone, lanes)) = gone {
            for lane in lanes {
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    lane.views.retain(|view| *view != gone);
                }
            }
        }
        for lane in shown {
            if let Some(lane) = self.lanes.get_mut(&lane) {
                lane.views.push(view);
            }
        }
        Some(view)
    }

    /// Lanes of a claim without a view.
    fn lanes_by_name(&self, ask: &ClaimAsk, view: Option<ViewId>) -> BTreeSet<Rank> {
        if view.is_some() { BTreeSet::new() } else { self.ranks_of(ask) }
    }

    fn ranks_of(&self, ask: &ClaimAsk) -> BTreeSet<Rank> {
        let named = self.named(&ask.tenant, &ask.names).filter_map(|id| Some((id, self.lanes.get(&id)?)));
        let asked = named.filter(|(_, lane)| is_asked_for(&lane.words, ask));
        asked.map(|(id, lane)| (lane.words.priority, lane.floor, id)).collect()
    }

    /// Lanes of a tenant by name; may include some that do not match.
    fn named<'a>(&'a self, tenant: &Tenant, asked: &'a NameMatch) -> Box<dyn Iterator<Item = LaneId> + 'a> {
        let Some(names) = self.by_name.get(tenant) else { return Box::new(std::iter::empty()) };
        let exactly = |name: &str| names.get(name).into_iter().flatten().copied();
        match asked {
            NameMatch::Exact(name) => Box::new(exactly(name)),
            NameMatch::OneOf(wanted) => {
                let different: BTreeSet<&str> = wanted.iter().map(|name| &**name).collect();
                Box::new(different.into_iter().flat_map(exactly))
            }
            NameMatch::Glob(glob) => {
                let prefix = glob.literal_prefix();
                let from = names.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
                Box::new(
                    from.take_while(move |(name, _)| name.starts_with(prefix))
                        .flat_map(|(_, lanes)| lanes)
                        .copied(),
                )
            }
            NameMatch::Any | NameMatch::NoneOf(_) => Box::new(names.values().flatten().copied()),
        }
    }

    /// Raises the floor: every job of the lane before `place` was claimed or is locked by another server.
    pub(super) fn passed(&mut self, look: &Look, place: Place) {
        let Some(lane) = self.lanes.get(&look.lane).filter(|lane| lane.entries == look.entries) else {
            return;
        };
        let floor = lane.floor.max(place);
        self.set_floor(look.lane, floor);
    }

    /// Sets the head as read from the database; `None`: the lane is empty.
    pub(super) fn head_is(&mut self, lane: LaneId, entries: u64, head: Option<Place>, now: Timestamp) {
        let told_until = self.looked_at.max(Some(now)).unwrap_or(now).as_millis();
        let Some(entry) = self.lanes.get(&lane) else { return };
        let head = head.unwrap_or(NOWHERE);
        // Also for a lane that was just discovered.
        let is_news = (head < entry.floor || entry.floor == START) && head.0 <= told_until;
        let floor = if entry.entries == entries { head } else { entry.floor.min(head) };
        self.set_floor(lane, floor);
        if is_news {
            self.tell(lane, None);
        }
    }

    /// Entry counters of the lanes that may have jobs.
    pub(super) fn entries(&self) -> FxHashMap<LaneId, u64> {
        let may_have_jobs = self.lanes.iter().filter(|(_, lane)| lane.floor != NOWHERE);
        may_have_jobs.map(|(id, lane)| (*id, lane.entries)).collect()
    }

    pub(super) fn entries_of(&self, lanes: &[LaneId]) -> FxHashMap<LaneId, u64> {
        lanes.iter().filter_map(|id| Some((*id, self.lanes.get(id)?.entries))).collect()
    }

    // --- limits --------------------------------------------------------------------------------------------

    pub(super) fn park(&mut self, lane: LaneId, held: Held) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.parked += usize::from(lane.parked.is_none());
            lane.parked = Some(held);
        }
    }

    /// Key of the limit that blocks the lane, as far as this server knows.
    pub(super) fn held_by(&self, lane: LaneId, now: Timestamp) -> Option<Arc<str>> {
        let parked = self.lanes.get(&lane)?.parked.as_ref();
        parked.filter(|held| is_held(Some(held), now)).map(|held| Arc::clone(&held.key))
    }

    pub(super) fn unpark(&mut self, which: impl Fn(&Held) -> bool) {
        if self.parked == 0 {
            return;
        }
        let mut released = Vec::new();
        for (id, lane) in &mut self.lanes {
            if lane.parked.as_ref().is_some_and(&which) {
                lane.parked = None;
                released.push(*id);
            }
        }
        self.parked -= released.len();
        released.into_iter().for_each(|lane| self.tell(lane, None));
    }

    // --- time ----------------------------------------------------------------------------------------------

    /// Time up to which the listener has been notified of due jobs.
    pub(super) fn looked_at(&self) -> Option<Timestamp> {
        self.looked_at
    }

    pub(super) fn look_at(&mut self, now: Timestamp) {
        self.looked_at = Some(now);
    }

    pub(super) fn forget_look(&mut self) {
        self.looked_at = None;
    }

    pub(super) fn next_unparked(&self, now: Timestamp) -> Option<Timestamp> {
        if self.parked == 0 {
            return None;
        }
        let held = self.lanes.values().filter_map(|lane| lane.parked.as_ref()?.until);
        held.filter(|until| *until > now).min()
    }
}

fn is_held(parked: Option<&Held>, now: Timestamp) -> bool {
    parked.is_some_and(|held| held.until.is_none_or(|until| until > now))
}

pub(super) fn is_asked_for(words: &LaneKey, ask: &ClaimAsk) -> bool {
    words.tenant == ask.tenant
        && ask.fits(&words.queue, &words.name)
        && ask.priority.is_none_or(|priority| priority == words.priority)
}

#[cfg(test)]
mod tests;
