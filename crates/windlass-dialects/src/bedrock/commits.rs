//! Commit counter that replies carry.
//!
//! The counter is the time in microseconds, or the previous value plus one if that is larger. It is unique
//! per commit of this server, never decreases across a restart, and needs no storage.

use std::sync::atomic::{AtomicI64, Ordering};
use windlass_core::Timestamp;

#[derive(Debug, Default)]
pub struct Commits {
    last: AtomicI64,
}

impl Commits {
    /// Returns the number of a commit made at `now`.
    pub fn count(&self, now: Timestamp) -> i64 {
        let micros = micros(now);
        let before =
            self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(micros.max(last + 1)));
        micros.max(before.unwrap_or_else(|last| last) + 1)
    }

    /// Returns a number that is less than that of every later commit and not less than that of any earlier
    /// one.
    pub fn latest(&self, now: Timestamp) -> i64 {
        let micros = micros(now);
        micros.max(self.last.fetch_max(micros, Ordering::Relaxed))
    }
}

fn micros(now: Timestamp) -> i64 {
    now.as_millis().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commits_have_the_same_number() {
        let (commits, now) = (Commits::default(), Timestamp::from_millis(5));
        let told = [commits.latest(now), commits.count(now), commits.count(now), commits.latest(now)];
        assert_eq!(told, [5_000, 5_001, 5_002, 5_002]);
        assert_eq!(commits.count(Timestamp::from_millis(6)), 6_000);
        assert_eq!(commits.count(now), 6_001, "also if the clock is set back");
    }
}
