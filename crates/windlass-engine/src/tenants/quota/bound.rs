//! Upper bound of a number that is counted only from time to time: last count, later additions, reservations.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use windlass_core::Timestamp;

/// Shortest interval between two counts.
const COUNT_EVERY_MS: i64 = 200;
/// Age at which a count is outdated on a shared store.
const COUNT_LASTS_MS: i64 = 5_000;
/// Divisor of a quota: the uncounted part that makes a count necessary.
const HUNDREDTH: u64 = 100;

/// Grows with local additions; decreases are noticed only by a count.
#[derive(Debug, Default)]
pub(super) struct Bound(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    counted: u64,
    counted_at: Option<Timestamp>,
    /// Sum of all additions since the start.
    added: u64,
    /// Value of `added` when the count began; later additions may or may not be included in the count.
    counted_from: u64,
    /// Reservations that are neither added nor returned yet.
    under_way: u64,
}

impl Known {
    fn uncounted(self) -> u64 {
        (self.added - self.counted_from).saturating_add(self.under_way)
    }

    /// True if there is room for `more`.
    fn has_room(self, more: u64, max: u64) -> bool {
        self.counted.saturating_add(self.uncounted()).saturating_add(more) <= max
    }

    /// True if a new count is needed.
    fn must_count(self, more: u64, max: u64, is_shared: bool, now: Timestamp) -> bool {
        let age_ms = self.counted_at.map(|at| now.as_millis() - at.as_millis());
        let is_worth_it = self.uncounted().saturating_add(more) > max / HUNDREDTH;
        match age_ms {
            None => is_worth_it,
            Some(age_ms) if !self.has_room(more, max) => age_ms >= COUNT_EVERY_MS,
            // Other servers may have added to it.
            Some(age_ms) => is_shared && is_worth_it && age_ms >= COUNT_LASTS_MS,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    from: u64,
}

impl Bound {
    /// `None`: the last count is good enough.
    pub(super) fn begin_count(&self, more: u64, max: u64, is_shared: bool, now: Timestamp) -> Option<Count> {
        let known = self.known();
        known.must_count(more, max, is_shared, now).then_some(Count { from: known.added })
    }

    /// Amounts added or reserved during the count are kept: until the next count they may count twice.
    pub(super) fn end_count(&self, count: Count, counted: u64, now: Timestamp) {
        let mut known = self.known();
        if count.from >= known.counted_from {
            (known.counted, known.counted_from, known.counted_at) = (counted, count.from, Some(now));
        }
    }

    pub(super) fn has_room(&self, more: u64, max: u64) -> bool {
        self.known().has_room(more, max)
    }

    /// `None`: there is no room.
    pub(super) fn reserve(self: &Arc<Self>, amount: u64, max: u64) -> Option<Reserved> {
        let mut reserved = Reserved { bound: Arc::clone(self), amount: 0 };
        reserved.grow(amount, max).then_some(reserved)
    }

    /// Turns a reservation that was left under way into an addition.
    pub(super) fn arrived(&self, amount: u64) {
        let mut known = self.known();
        known.under_way = known.under_way.saturating_sub(amount);
        known.added += amount;
    }

    /// Returns a reservation that was left under way.
    pub(super) fn give_back(&self, amount: u64) {
        let mut known = self.known();
        known.under_way = known.under_way.saturating_sub(amount);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }
}

/// Reservation; returned on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    bound: Arc<Bound>,
    amount: u64,
}

impl Reserved {
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// Extends the reservation; `false`: there is no room.
    pub(crate) fn grow(&mut self, more: u64, max: u64) -> bool {
        let mut known = self.bound.known();
        let has_room = known.has_room(more, max);
        if has_room {
            known.under_way += more;
            self.amount += more;
        }
        has_room
    }

    /// Turns `amount` of the reservation into an addition; returns the rest.
    pub(crate) fn keep(self, amount: u64) {
        self.bound.known().added += amount;
    }

    /// Leaves the reservation in place until [`Bound::arrived`] or [`Bound::give_back`].
    pub(crate) fn leave_under_way(mut self) {
        self.amount = 0;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut known = self.bound.known();
        known.under_way = known.under_way.saturating_sub(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_number_is_counted_when_it_matters_and_not_more_often() {
        let known = |counted, at_ms: Option<i64>, added| Known {
            counted,
            counted_at: at_ms.map(at),
            added,
            ..Known::default()
        };
        let check = |known: Known, more: u64, is_shared: bool, now: i64, expected: bool| {
            assert_eq!(known.must_count(more, 1_000, is_shared, at(now)), expected, "{known:?} {more} {now}");
        };
        check(known(0, None, 0), 10, false, 0, false);
        check(known(0, None, 0), 11, false, 0, true);
        check(known(900, Some(0), 90), 10, false, 9_000, false);
        check(known(900, Some(0), 90), 11, false, 199, false);
        check(known(900, Some(0), 90), 11, false, 200, true);
        check(known(100, Some(0), 50), 1, true, 4_999, false);
        check(known(100, Some(0), 50), 1, true, 5_000, true);
        check(known(100, Some(0), 5), 1, true, 5_000, false);
    }

    #[test]
    fn a_count_forgets_nothing_that_was_on_its_way_meanwhile() {
        let bound = Arc::new(Bound::default());
        let first = bound.reserve(40, 100).unwrap();
        let count = bound.begin_count(2, 100, false, at(0)).unwrap();
        // The count happens here, and finds none of them yet.
        let second = bound.reserve(30, 100).unwrap();
        second.keep(30);
        bound.end_count(count, 0, at(0));
        assert!(bound.has_room(30, 100) && !bound.has_room(31, 100), "{bound:?}");
        first.keep(40);
        assert!(bound.has_room(30, 100) && !bound.has_room(31, 100), "{bound:?}");
        // A count that began earlier but ends later is outdated and ignored.
        let (old, new) = (Count { from: 0 }, Count { from: 70 });
        bound.end_count(new, 70, at(1_000));
        bound.end_count(old, 0, at(1_000));
        assert!(bound.has_room(30, 100) && !bound.has_room(31, 100), "{bound:?}");
    }

    #[test]
    fn what_is_reserved_is_taken_until_it_is_given_back() {
        let bound = Arc::new(Bound::default());
        let mut one = bound.reserve(60, 100).unwrap();
        assert!(bound.reserve(41, 100).is_none());
        assert!(one.grow(40, 100) && !one.grow(1, 100));
        drop(one);
        let kept = bound.reserve(100, 100).unwrap();
        kept.keep(10);
        let later = bound.reserve(90, 100).unwrap();
        later.leave_under_way();
        assert!(!bound.has_room(1, 100));
        bound.give_back(20);
        assert!(bound.has_room(20, 100) && !bound.has_room(21, 100));
        bound.reserve(20, 100).unwrap().leave_under_way();
        bound.arrived(90);
        assert!(!bound.has_room(1, 100));
    }
}
