//! Which lanes a kind of claim looks at, the one with the best first job first. A pattern is held against every name once, not
//! with every claim; what a claim costs then depends on the lanes that it looks at, not on how many there are.

use super::lanes::{LaneId, NOWHERE, Place, Words, is_asked_for};
use crate::change::ClaimAsk;
use std::collections::BTreeSet;
use std::ops::Bound;
use windlass_core::Timestamp;

pub type ViewId = u32;

/// Kinds of claims that are remembered. A pool of workers asks with a handful; what falls out is made anew when it is asked for
/// again.
const VIEWS_MAX: usize = 64;

/// Where a lane stands among others: its first job may be here.
pub type Rank = (i32, Place, LaneId);

#[derive(Default)]
pub struct Views {
    views: Vec<View>,
    made: ViewId,
    asks: u64,
}

struct View {
    id: ViewId,
    /// The first claim of this kind; who asked, for how many and for how long does not matter.
    ask: ClaimAsk,
    lanes: BTreeSet<Rank>,
    used: u64,
}

impl Views {
    pub fn find(&mut self, ask: &ClaimAsk) -> Option<ViewId> {
        self.asks += 1;
        let view = self.views.iter_mut().find(|view| view.is_for(ask))?;
        view.used = self.asks;
        Some(view.id)
    }

    /// For claims like this one, which is about these lanes; gives the lanes of a view that had to go, and its id.
    pub fn make(&mut self, ask: &ClaimAsk, lanes: BTreeSet<Rank>) -> (ViewId, Option<(ViewId, Vec<LaneId>)>) {
        let gone = (self.views.len() >= VIEWS_MAX).then(|| self.least_used()).flatten();
        let gone = gone.map(|place| {
            let view = self.views.swap_remove(place);
            (view.id, view.lanes.into_iter().map(|(.., lane)| lane).collect())
        });
        let id = self.made;
        self.made = self.made.wrapping_add(1);
        // What a gate holds is the engine's; nobody asks it through a view.
        let ask = ClaimAsk { gate: None, ..ask.clone() };
        self.views.push(View { id, ask, lanes, used: self.asks });
        (id, gone)
    }

    fn least_used(&self) -> Option<usize> {
        (0..self.views.len()).min_by_key(|place| self.views[*place].used)
    }

    /// A new lane comes into all views that are about it.
    pub fn enter(&mut self, words: &Words, rank: Rank) -> Vec<ViewId> {
        let mut ids = Vec::new();
        for view in self.views.iter_mut().filter(|view| is_asked_for(words, &view.ask)) {
            view.lanes.insert(rank);
            ids.push(view.id);
        }
        ids
    }

    pub fn moved(&mut self, ids: &[ViewId], before: Rank, after: Rank) {
        for view in self.views.iter_mut().filter(|view| ids.contains(&view.id)) {
            view.lanes.remove(&before);
            view.lanes.insert(after);
        }
    }

    /// All lanes of the view, in order.
    pub fn lanes(&self, id: ViewId) -> Option<&BTreeSet<Rank>> {
        self.views.iter().find(|view| view.id == id).map(|view| &view.lanes)
    }
}

impl View {
    fn is_for(&self, ask: &ClaimAsk) -> bool {
        self.ask.tenant == ask.tenant
            && self.ask.names == ask.names
            && self.ask.queues == ask.queues
            && self.ask.scope == ask.scope
            && self.ask.priority == ask.priority
    }
}

/// In order, without those whose first job is still to come.
pub fn due(lanes: &BTreeSet<Rank>, now: Timestamp) -> impl Iterator<Item = Rank> + '_ {
    let last_due = (now.as_millis(), i64::MAX);
    let after = |rank: Rank| lanes.range((Bound::Excluded(rank), Bound::Unbounded)).next().copied();
    let mut next = lanes.first().copied();
    std::iter::from_fn(move || {
        loop {
            let rank = next?;
            let (priority, first, _) = rank;
            if first <= last_due {
                next = after(rank);
                return Some(rank);
            }
            // The others of this priority come later still.
            next = after((priority, NOWHERE, LaneId::MAX));
        }
    })
}
