//! The count of commits that replies carry.
//!
//! It is the time in microseconds, or one more than the last if that has been told already: no two commits of this server
//! have the same, it never goes back over a restart, and nothing has to be kept for it.

use std::sync::atomic::{AtomicI64, Ordering};
use windlass_core::Timestamp;

#[derive(Debug, Default)]
pub struct Commits {
    last: AtomicI64,
}

impl Commits {
    /// The number of a commit that was made just now.
    pub fn count(&self, now: Timestamp) -> i64 {
        let micros = micros(now);
        let before =
            self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(micros.max(last + 1)));
        micros.max(before.unwrap_or_else(|last| last) + 1)
    }

    /// A number that every later commit exceeds and no earlier one does.
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
