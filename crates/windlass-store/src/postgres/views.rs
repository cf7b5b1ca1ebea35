//! Views: lanes that match a kind of claim, in claim order. A pattern is matched against each name once, not
//! at every claim; the cost of a claim then depends on the lanes it queries, not on their total number.

use super::lanes::{LaneId, LaneKey, NOWHERE, Place, is_asked_for};
use crate::change::ClaimAsk;
use std::collections::BTreeSet;
use std::ops::Bound;
use windlass_core::Timestamp;

pub(super) type ViewId = u32;

/// Kinds of claims cached. A worker pool uses a handful; an evicted view is rebuilt at its next use.
const VIEWS_MAX: usize = 64;

/// Sort key of a lane: priority, lower bound of its first job, id.
pub(super) type Rank = (i32, Place, LaneId);

#[derive(Default)]
pub(super) struct Views {
    views: Vec<View>,
    made: ViewId,
    asks: u64,
}

struct View {
    id: ViewId,
    /// First claim of this kind; its worker, limit and lease length do not matter.
    ask: ClaimAsk,
    lanes: BTreeSet<Rank>,
    used: u64,
}

impl Views {
    pub(super) fn find(&mut self, ask: &ClaimAsk) -> Option<ViewId> {
        self.asks += 1;
        let view = self.views.iter_mut().find(|view| view.is_for(ask))?;
        view.used = self.asks;
        Some(view.id)
    }

    /// Builds a view with these lanes; returns its id, and the id and lanes of an evicted view.
    pub(super) fn make(
        &mut self,
        ask: &ClaimAsk,
        lanes: BTreeSet<Rank>,
    ) -> (ViewId, Option<(ViewId, Vec<LaneId>)>) {
        let gone = (self.views.len() >= VIEWS_MAX).then(|| self.least_used()).flatten();
        let gone = gone.map(|place| {
            let view = self.views.swap_remove(place);
            (view.id, view.lanes.into_iter().map(|(.., lane)| lane).collect())
        });
        let id = self.made;
        self.made = self.made.wrapping_add(1);
        // Drops the gate, which belongs to the engine and is not used by a view.
        let ask = ClaimAsk { gate: None, ..ask.clone() };
        self.views.push(View { id, ask, lanes, used: self.asks });
        (id, gone)
    }

    fn least_used(&self) -> Option<usize> {
        (0..self.views.len()).min_by_key(|place| self.views[*place].used)
    }

    /// Adds a new lane to all views that match it.
    pub(super) fn enter(&mut self, words: &LaneKey, rank: Rank) -> Vec<ViewId> {
        let mut ids = Vec::new();
        for view in self.views.iter_mut().filter(|view| is_asked_for(words, &view.ask)) {
            view.lanes.insert(rank);
            ids.push(view.id);
        }
        ids
    }

    pub(super) fn moved(&mut self, ids: &[ViewId], before: Rank, after: Rank) {
        for view in self.views.iter_mut().filter(|view| ids.contains(&view.id)) {
            view.lanes.remove(&before);
            view.lanes.insert(after);
        }
    }

    /// All lanes of the view, in order.
    pub(super) fn lanes(&self, id: ViewId) -> Option<&BTreeSet<Rank>> {
        self.views.iter().find(|view| view.id == id).map(|view| &view.lanes)
    }
}

impl View {
    fn is_for(&self, ask: &ClaimAsk) -> bool {
        self.ask.wanted() == ask.wanted()
    }
}

/// Lanes in order, without those whose first job is not due.
pub(super) fn due(lanes: &BTreeSet<Rank>, now: Timestamp) -> impl Iterator<Item = Rank> + '_ {
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
            // The other lanes of this priority are later still.
            next = after((priority, NOWHERE, LaneId::MAX));
        }
    })
}
