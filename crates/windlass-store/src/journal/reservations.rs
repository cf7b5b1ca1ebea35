//! Reservation table: lines read from the files, their reservations, and the head.

use super::JournalError;
use super::format::Line;
use std::collections::{BTreeMap, VecDeque};
use windlass_core::Timestamp;

/// Id of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

/// Position of a line: its file, and the byte offsets of its block and of the line itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    pub file: u64,
    pub block: u64,
    pub line: u64,
}

impl Place {
    /// Position of the block itself, before its first line.
    pub(super) fn at_block(self) -> Place {
        Place { line: self.block, ..self }
    }
}

#[derive(Debug)]
pub(super) struct Reservations {
    /// Lines without a reservation, in order.
    free: BTreeMap<Place, Line>,
    reserved: BTreeMap<Token, Reservation>,
    /// Position up to which the files are read.
    frontier: Place,
    last_token: u64,
}

#[derive(Debug)]
struct Reservation {
    /// In order; kept until they are acknowledged.
    lines: VecDeque<(Place, Line)>,
    was_read: bool,
    until: Timestamp,
}

impl Reservations {
    pub(super) fn new(head: Place) -> Reservations {
        Reservations { free: BTreeMap::new(), reserved: BTreeMap::new(), frontier: head, last_token: 0 }
    }

    pub(super) fn frontier(&self) -> Place {
        self.frontier
    }

    /// Adds lines read at the frontier, and moves the frontier.
    pub(super) fn found(&mut self, frontier: Place, lines: Vec<(Place, Line)>) {
        debug_assert!(frontier > self.frontier, "reading goes on");
        self.frontier = frontier;
        self.free.extend(lines);
    }

    /// Number of lines without a reservation.
    pub(super) fn waiting(&self) -> usize {
        self.free.len()
    }

    /// True if every line read so far is processed.
    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.reserved.is_empty()
    }

    pub(super) fn reserve(&mut self, lines: usize, until: Timestamp) -> Option<Token> {
        let mut taken = VecDeque::with_capacity(lines.min(self.free.len()));
        while taken.len() < lines {
            let Some(entry) = self.free.pop_first() else { break };
            taken.push_back(entry);
        }
        if taken.is_empty() {
            return None;
        }
        self.last_token += 1;
        let token = Token(self.last_token);
        self.reserved.insert(token, Reservation { lines: taken, was_read: false, until });
        Some(token)
    }

    pub(super) fn read(&mut self, token: Token) -> Result<Vec<(Place, Line)>, JournalError> {
        let reservation = self.reserved.get_mut(&token).ok_or(JournalError::Expired)?;
        if std::mem::replace(&mut reservation.was_read, true) {
            return Err(JournalError::AlreadyRead);
        }
        Ok(reservation.lines.iter().cloned().collect())
    }

    pub(super) fn done(&mut self, token: Token) -> Result<(), JournalError> {
        self.reserved.remove(&token).map(drop).ok_or(JournalError::Expired)
    }

    pub(super) fn cancel(&mut self, token: Token) -> Result<(), JournalError> {
        let reservation = self.reserved.remove(&token).ok_or(JournalError::Expired)?;
        self.free.extend(reservation.lines);
        Ok(())
    }

    /// Frees the lines of expired reservations.
    pub(super) fn expire_reservations(&mut self, now: Timestamp) {
        let late: Vec<Token> =
            self.reserved.iter().filter(|(_, one)| one.until <= now).map(|(token, _)| *token).collect();
        for token in late {
            // Cannot fail: the token was just read from the table.
            let _ = self.cancel(token);
        }
    }

    /// Position of the first line that is not processed, or else the frontier.
    pub(super) fn head(&self) -> Place {
        let free = self.free.first_key_value().map(|(place, _)| *place);
        let reserved =
            self.reserved.values().filter_map(|one| one.lines.front()).map(|(place, _)| *place).min();
        free.into_iter().chain(reserved).chain([self.frontier]).min().unwrap_or(self.frontier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn place(line: u64) -> Place {
        Place { file: 1, block: line, line }
    }

    fn table(lines: std::ops::Range<u64>) -> Reservations {
        let mut table = Reservations::new(place(0));
        let line = |n: u64| (place(n), Line { id: n.to_string(), kind: "a-b".into(), payload: "".into() });
        table.found(place(lines.end), lines.map(line).collect());
        table
    }

    fn ids(lines: &[(Place, Line)]) -> Vec<&str> {
        lines.iter().map(|(_, line)| line.id.as_str()).collect()
    }

    #[test]
    fn two_reservations_hold_disjoint_lines_in_order() {
        let mut table = table(0..5);
        let (one, other) = (table.reserve(2, at(10)).unwrap(), table.reserve(9, at(10)).unwrap());
        assert_eq!(ids(&table.read(one).unwrap()), ["0", "1"]);
        assert_eq!(ids(&table.read(other).unwrap()), ["2", "3", "4"]);
        assert_eq!(table.reserve(1, at(10)), None);
    }

    #[test]
    fn reading_twice_and_reading_what_is_over_are_errors() {
        let mut table = table(0..3);
        let token = table.reserve(1, at(10)).unwrap();
        assert!(table.read(token).is_ok());
        assert_eq!(table.read(token), Err(JournalError::AlreadyRead));
        table.done(token).unwrap();
        assert_eq!(table.read(token), Err(JournalError::Expired));
        assert_eq!(table.done(token), Err(JournalError::Expired));
        let token = table.reserve(1, at(10)).unwrap();
        table.expire_reservations(at(9));
        assert!(table.read(token).is_ok());
        table.expire_reservations(at(10));
        assert_eq!(table.done(token), Err(JournalError::Expired));
    }

    #[test]
    fn lines_that_were_read_and_not_synced_come_back_first() {
        let mut table = table(0..4);
        let late = table.reserve(2, at(10)).unwrap();
        table.read(late).unwrap();
        table.expire_reservations(at(10));
        let again = table.reserve(3, at(20)).unwrap();
        assert_eq!(ids(&table.read(again).unwrap()), ["0", "1", "2"]);
    }

    #[test]
    fn the_head_is_the_first_line_that_is_not_taken_care_of() {
        let mut table = table(0..4);
        let (first, second) = (table.reserve(1, at(10)).unwrap(), table.reserve(2, at(10)).unwrap());
        table.done(second).unwrap();
        assert_eq!(table.head(), place(0));
        table.done(first).unwrap();
        assert_eq!(table.head(), place(3));
        let last = table.reserve(1, at(10)).unwrap();
        table.done(last).unwrap();
        assert_eq!((table.head(), table.is_empty()), (place(4), true));
    }
}
