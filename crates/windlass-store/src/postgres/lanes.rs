//! What this server knows of the lanes: which there are, where the first job of each may be, which are held back by a
//! limit. Plain tables, no I/O. Nothing here is needed to be right: the database decides who gets a job. It spares looking
//! where nothing is, and above all passing over rows that are gone but not yet cleaned up.

use super::views::{Rank, ViewId, Views, due};
use crate::change::{ClaimAsk, Held};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use windlass_core::{JobSpec, Name, NameMatch, Queue, Tenant, Timestamp};

pub type LaneId = i32;
/// A place in a lane: (at, id).
pub type Place = (i64, i64);

/// Before every job.
pub const START: Place = (i64::MIN, 0);
/// Behind every job.
pub const NOWHERE: Place = (i64::MAX, i64::MAX);
/// Lanes looked at by one claim, at first. Those with the best first jobs are among them; the rest is known to come later.
pub const LANES_PER_LOOK: usize = 64;

/// The limit key of jobs that were pushed by SQL where there are limits: nobody has worked out yet which of them are about
/// the job, and until then it is not given out.
pub const UNCHECKED: &str = "\u{1f}unchecked";

/// What makes a lane: jobs that differ in nothing that a claim or a limit looks at, but in their time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Words {
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    pub priority: i32,
    pub limit_keys: Vec<Arc<str>>,
}

impl Words {
    pub fn is_unchecked(&self) -> bool {
        matches!(self.limit_keys.as_slice(), [only] if **only == *UNCHECKED)
    }

    pub fn has_limits(&self) -> bool {
        !self.limit_keys.is_empty() && !self.is_unchecked()
    }

    pub fn of(spec: &JobSpec) -> Words {
        Words {
            tenant: spec.tenant.clone(),
            queue: spec.queue.clone(),
            name: spec.name.clone(),
            priority: spec.priority,
            limit_keys: spec.limit_keys().to_vec(),
        }
    }
}

struct Lane {
    words: Arc<Words>,
    /// No job of the lane is before this, as far as we know.
    floor: Place,
    /// Grows whenever a job enters: a look that began before must not raise the floor over it.
    entries: u64,
    parked: Option<Held>,
    /// That show it.
    views: Vec<ViewId>,
}

/// A lane to look at, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub lane: LaneId,
    pub priority: i32,
    pub from: Place,
    entries: u64,
}

/// Where a claim has to look.
#[derive(Debug, Default)]
pub struct Looks {
    pub lanes: Vec<Look>,
    /// Jobs behind this are not for this look: lanes that were left out may have better ones.
    pub bound: Option<(i32, Place)>,
}

/// What a look for new lanes came to, and the next one starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of a transaction: lanes that were made by earlier ones are known.
    pub before: String,
    /// When that was, in µs by the database's clock, and in which of its histories: elsewhere numbers may mean others.
    pub at_us: i64,
    pub history: String,
}

impl Default for Seen {
    /// Nothing.
    fn default() -> Seen {
        Seen { before: "0".to_owned(), at_us: i64::MIN, history: String::new() }
    }
}

#[derive(Default)]
pub struct Lanes {
    lanes: FxHashMap<LaneId, Lane>,
    by_words: FxHashMap<Arc<Words>, LaneId>,
    /// So that a claim by name looks at its own among a hundred thousand.
    by_name: FxHashMap<Tenant, BTreeMap<Name, Vec<LaneId>>>,
    views: Views,
    unchecked: BTreeSet<LaneId>,
    seen: Seen,
    paused: FxHashSet<(Tenant, Queue)>,
    parked: usize,
    /// The `now` of the latest `due`: jobs whose time came before that have been told of.
    looked_at: Option<Timestamp>,
    news: BTreeSet<(Tenant, Queue, Name)>,
}

impl Lanes {
    pub fn find(&self, words: &Words) -> Option<LaneId> {
        self.by_words.get(words).copied()
    }

    pub fn words(&self, lane: LaneId) -> Option<Arc<Words>> {
        self.lanes.get(&lane).map(|lane| Arc::clone(&lane.words))
    }

    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Looks may overtake each other: the later one counts. Times of different histories cannot be compared.
    pub fn see(&mut self, seen: Seen) {
        if seen.at_us > self.seen.at_us || seen.history != self.seen.history {
            self.seen = seen;
        }
    }

    pub fn learn(&mut self, lane: LaneId, words: Words) {
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

    /// Lanes of jobs that nobody has looked at for limits.
    pub fn unchecked(&self) -> Vec<LaneId> {
        self.unchecked.iter().copied().collect()
    }

    fn set_floor(&mut self, id: LaneId, floor: Place) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.floor != floor) else { return };
        let priority = lane.words.priority;
        self.views.moved(&lane.views, (priority, lane.floor, id), (priority, floor, id));
        lane.floor = floor;
    }

    /// Lanes by tenant, queue and name.
    pub fn fitting(&self, fits: impl Fn(&Words) -> bool) -> Vec<LaneId> {
        self.lanes.iter().filter(|(_, lane)| fits(&lane.words)).map(|(id, _)| *id).collect()
    }

    // --- pauses --------------------------------------------------------------------------------------------

    pub fn set_paused(&mut self, tenant: &Tenant, queue: &Queue, paused: bool) {
        let address = (tenant.clone(), queue.clone());
        if paused {
            self.paused.insert(address);
            return;
        }
        if self.paused.remove(&address) {
            let here = self.fitting(|words| words.tenant == *tenant && words.queue == *queue);
            here.into_iter().for_each(|lane| self.tell(lane));
        }
    }

    /// As the database has it; true if we thought otherwise.
    pub fn all_paused(&mut self, paused: Vec<(Tenant, Queue)>) -> bool {
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

    pub fn paused(&self) -> impl Iterator<Item = &(Tenant, Queue)> {
        self.paused.iter()
    }

    fn is_paused(&self, words: &Words) -> bool {
        !self.paused.is_empty() && self.paused.contains(&(words.tenant.clone(), words.queue.clone()))
    }

    // --- jobs come -----------------------------------------------------------------------------------------

    /// A job can be claimed from here on, or once its time has come.
    pub fn entered(&mut self, lane: LaneId, place: Place, now: Timestamp) {
        let Some(entry) = self.lanes.get_mut(&lane) else { return };
        entry.entries += 1;
        let floor = entry.floor.min(place);
        self.set_floor(lane, floor);
        // What `due` has looked past already will not be told of by it, so it is told of here.
        let told_until = self.looked_at.max(Some(now)).unwrap_or(now);
        if place.0 <= told_until.as_millis() {
            self.tell(lane);
        }
    }

    pub fn tell(&mut self, lane: LaneId) {
        let Some(lane) = self.lanes.get(&lane) else { return };
        if !self.is_paused(&lane.words) {
            let words = &lane.words;
            self.news.insert((words.tenant.clone(), words.queue.clone(), words.name.clone()));
        }
    }

    pub fn take_news(&mut self) -> BTreeSet<(Tenant, Queue, Name)> {
        std::mem::take(&mut self.news)
    }

    // --- claims look ---------------------------------------------------------------------------------------

    /// Where this claim has to look, about so many lanes at once; none: there is nothing for it, as far as we know.
    pub fn looks(&mut self, ask: &ClaimAsk, now: Timestamp, at_once: usize) -> Looks {
        let mut looks = Looks::default();
        let view = self.view(ask);
        let own = self.lanes_by_name(ask, view);
        for rank in self.ranks(view, &own, now) {
            let (priority, from, id) = rank;
            let Some(lane) = self.lanes.get(&id).filter(|lane| self.is_open(lane, now)) else { continue };
            // Lanes whose beginning is not known yet are all looked at: nothing can be said about what comes before them.
            if looks.lanes.len() >= at_once && from != START {
                looks.bound = Some((priority, from));
                break;
            }
            looks.lanes.push(Look { lane: id, priority, from, entries: lane.entries });
        }
        looks
    }

    /// Whether there may be a job that fits.
    pub fn may_have(&mut self, ask: &ClaimAsk, now: Timestamp) -> bool {
        let view = self.view(ask);
        let own = self.lanes_by_name(ask, view);
        self.ranks(view, &own, now)
            .any(|(.., id)| self.lanes.get(&id).is_some_and(|lane| self.is_open(lane, now)))
    }

    /// All lanes that such a claim is about, with or without jobs.
    pub fn asked_for(&mut self, ask: &ClaimAsk) -> Vec<LaneId> {
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

    /// Names are looked up; everything else goes through a view, which is made when it is asked for.
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

    /// For a claim without a view.
    fn lanes_by_name(&self, ask: &ClaimAsk, view: Option<ViewId>) -> BTreeSet<Rank> {
        if view.is_some() { BTreeSet::new() } else { self.ranks_of(ask) }
    }

    fn ranks_of(&self, ask: &ClaimAsk) -> BTreeSet<Rank> {
        let named = self.named(&ask.tenant, &ask.names).filter_map(|id| Some((id, self.lanes.get(&id)?)));
        let asked = named.filter(|(_, lane)| is_asked_for(&lane.words, ask));
        asked.map(|(id, lane)| (lane.words.priority, lane.floor, id)).collect()
    }

    /// Lanes of a tenant by name; a few more than are asked for, perhaps.
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

    /// Every job of the lane before `place` was given out or is someone else's.
    pub fn passed(&mut self, look: &Look, place: Place) {
        let Some(lane) = self.lanes.get(&look.lane).filter(|lane| lane.entries == look.entries) else {
            return;
        };
        let floor = lane.floor.max(place);
        self.set_floor(look.lane, floor);
    }

    /// What the database says is first; `None`: the lane is empty.
    pub fn head_is(&mut self, lane: LaneId, entries: u64, head: Option<Place>, now: Timestamp) {
        let told_until = self.looked_at.max(Some(now)).unwrap_or(now).as_millis();
        let Some(entry) = self.lanes.get(&lane) else { return };
        let head = head.unwrap_or(NOWHERE);
        // Also of a lane that we have only just learned of.
        let is_news = (head < entry.floor || entry.floor == START) && head.0 <= told_until;
        let floor = if entry.entries == entries { head } else { entry.floor.min(head) };
        self.set_floor(lane, floor);
        if is_news {
            self.tell(lane);
        }
    }

    /// Of lanes in which there may be jobs: how often jobs have entered.
    pub fn entries(&self) -> FxHashMap<LaneId, u64> {
        let may_have_jobs = self.lanes.iter().filter(|(_, lane)| lane.floor != NOWHERE);
        may_have_jobs.map(|(id, lane)| (*id, lane.entries)).collect()
    }

    pub fn entries_of(&self, lanes: &[LaneId]) -> FxHashMap<LaneId, u64> {
        lanes.iter().filter_map(|id| Some((*id, self.lanes.get(id)?.entries))).collect()
    }

    // --- limits --------------------------------------------------------------------------------------------

    pub fn park(&mut self, lane: LaneId, held: Held) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.parked += usize::from(lane.parked.is_none());
            lane.parked = Some(held);
        }
    }

    /// The key of the limit that it is held back by, as far as this server knows.
    pub fn held_by(&self, lane: LaneId, now: Timestamp) -> Option<Arc<str>> {
        let parked = self.lanes.get(&lane)?.parked.as_ref();
        parked.filter(|held| is_held(Some(held), now)).map(|held| Arc::clone(&held.key))
    }

    pub fn unpark(&mut self, which: impl Fn(&Held) -> bool) {
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
        released.into_iter().for_each(|lane| self.tell(lane));
    }

    // --- time ----------------------------------------------------------------------------------------------

    /// From when on jobs have not been told of.
    pub fn looked_at(&self) -> Option<Timestamp> {
        self.looked_at
    }

    pub fn look_at(&mut self, now: Timestamp) {
        self.looked_at = Some(now);
    }

    pub fn forget_look(&mut self) {
        self.looked_at = None;
    }

    pub fn next_unparked(&self, now: Timestamp) -> Option<Timestamp> {
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

pub fn is_asked_for(words: &Words, ask: &ClaimAsk) -> bool {
    words.tenant == ask.tenant
        && (ask.queues.is_empty() || ask.queues.contains(&words.queue))
        && ask.names.matches(&words.name)
        && ask.scope.allows(&words.queue, &words.name)
        && ask.priority.is_none_or(|priority| priority == words.priority)
}

#[cfg(test)]
mod tests;
