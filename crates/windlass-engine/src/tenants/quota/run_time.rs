//! Run time of a tenant's handlers and guests: a token bucket that holds the quota of one minute. The length of a run is
//! known only at its end, so the bucket may run into debt; no further run begins until the debt is paid by time.

use super::{Engine, Inner, TenantUse};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use windlass_core::{Tenant, Timestamp};

/// Milliseconds of one minute.
const MINUTE_MS: i128 = 60_000;
/// Longest time between two checks of a tenant without room: its quota may have been raised, here or by another
/// server.
const LOOK_AGAIN_MS: i64 = 5_000;

/// Run time used up, in sixtieths of a millisecond: it falls by the quota in seconds each millisecond, and rises by
/// sixty for each run.
type Level = i128;

/// Level after `ms` milliseconds with so many runs.
fn advance(level: Level, runs: u64, per_minute_s: u64, ms: i64) -> Level {
    (level + i128::from(ms.max(0)) * (60 * i128::from(runs) - i128::from(per_minute_s))).max(0)
}

/// Milliseconds until another run may begin; `None`: not before a run ends or the quota changes.
fn room_in_ms(level: Level, runs: u64, per_minute_s: u64) -> Option<i64> {
    let over = level - MINUTE_MS * i128::from(per_minute_s);
    let falls = i128::from(per_minute_s) - 60 * i128::from(runs);
    match (over < 0, falls > 0) {
        (true, _) => Some(0),
        (false, true) => Some(i64::try_from(over / falls + 1).unwrap_or(i64::MAX)),
        (false, false) => None,
    }
}

#[derive(Debug, Default)]
pub(super) struct RunTimes(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    level: Level,
    runs: u64,
    /// Time of the level.
    at: Timestamp,
    /// Run time since the start of the server, up to `at`.
    total_ms: u64,
}

impl Used {
    fn advance(&mut self, per_minute_s: u64, now: Timestamp) {
        let ms = now.since_ms(self.at).max(0);
        self.level = advance(self.level, self.runs, per_minute_s, ms);
        self.total_ms += self.runs.saturating_mul(ms.unsigned_abs());
        self.at = self.at.max(now);
    }
}

/// Run of a handler or guest; it counts until it is dropped.
pub struct RunTime {
    inner: Arc<Inner>,
    usage: Arc<TenantUse>,
}

impl fmt::Debug for RunTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunTime")
    }
}

impl Drop for RunTime {
    fn drop(&mut self) {
        self.usage.change_runs(self.inner.now(), |runs| runs.saturating_sub(1));
    }
}

impl TenantUse {
    fn change_runs(&self, now: Timestamp, change: impl FnOnce(u64) -> u64) {
        let per_minute_s = self.quota().handler_seconds_per_minute;
        let mut used = self.run_time.0.lock();
        used.advance(per_minute_s, now);
        used.runs = change(used.runs);
    }

    /// Seconds of the quota that are used up, rounded up; run time since the start of the server.
    pub(super) fn run_time_used(&self, now: Timestamp) -> (u64, u64) {
        let per_minute_s = self.quota().handler_seconds_per_minute;
        let mut used = self.run_time.0.lock();
        used.advance(per_minute_s, now);
        let seconds = (used.level + MINUTE_MS - 1) / MINUTE_MS;
        (u64::try_from(seconds).unwrap_or(u64::MAX), used.total_ms)
    }
}

impl Engine {
    /// Run of a handler or guest of this tenant; it ends when the value is dropped.
    pub fn begin_run(&self, tenant: &Tenant) -> RunTime {
        let usage = self.inner.quotas.of(tenant);
        usage.change_runs(self.now(), |runs| runs + 1);
        RunTime { inner: Arc::clone(&self.inner), usage }
    }

    /// Time at which to ask again because the tenant has used up its run time; `None`: a run may begin.
    pub fn runs_wait_until(&self, tenant: &Tenant) -> Option<Timestamp> {
        let (usage, now) = (self.inner.quotas.of(tenant), self.now());
        let per_minute_s = usage.quota().handler_seconds_per_minute;
        let mut used = usage.run_time.0.lock();
        used.advance(per_minute_s, now);
        match room_in_ms(used.level, used.runs, per_minute_s) {
            Some(0) => None,
            ms => Some(now.plus_ms(ms.unwrap_or(LOOK_AGAIN_MS).min(LOOK_AGAIN_MS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Level = MINUTE_MS;

    #[test]
    fn the_level_rises_by_runs_and_falls_by_the_quota() {
        let check = |level, runs, per_minute_s, ms, expected: Level| {
            assert_eq!(
                advance(level, runs, per_minute_s, ms),
                expected,
                "{level} {runs} {per_minute_s} {ms}"
            );
        };
        // Nothing runs: a minute pays back the quota, and no more than was used.
        check(0, 0, 10, 60_000, 0);
        check(30 * SECOND, 0, 10, 60_000, 20 * SECOND);
        check(30 * SECOND, 0, 10, 600_000, 0);
        check(30 * SECOND, 0, 0, 600_000, 30 * SECOND);
        // A run that lasts all the time uses a second each second.
        check(0, 1, 0, 7_000, 7 * SECOND);
        check(0, 1, 60, 7_000, 0);
        check(0, 2, 60, 7_000, 7 * SECOND);
        check(0, 1, 30, 60_000, 30 * SECOND);
        // Time that goes back changes nothing; large values do not overflow.
        check(5, 9, 9, -1, 5);
        check(0, 0, u64::MAX, i64::MAX, 0);
        check(0, 1 << 32, 1, i64::MAX, i128::from(i64::MAX) * ((60 << 32) - 1));
    }

    #[test]
    fn a_run_begins_when_less_than_the_quota_of_a_minute_is_used_up() {
        let check = |level, runs, per_minute_s, expected| {
            assert_eq!(room_in_ms(level, runs, per_minute_s), expected, "{level} {runs} {per_minute_s}");
        };
        check(0, 0, 10, Some(0));
        check(10 * SECOND - 1, 5, 10, Some(0));
        check(10 * SECOND, 0, 10, Some(1));
        // Debt of two seconds at ten per minute: twelve seconds.
        check(12 * SECOND, 0, 10, Some(12_001));
        // What runs uses as much as time gives back, or more.
        check(60 * SECOND, 1, 60, None);
        check(90 * SECOND, 1, 90, Some(1));
        check(95 * SECOND, 1, 90, Some(10_001));
        // Without any quota nothing runs.
        check(0, 0, 0, None);
        check(0, 0, u64::MAX, Some(0));
    }

    #[test]
    fn room_is_there_when_the_time_is_over_and_not_before() {
        for (level, per_minute_s) in [(12 * SECOND, 10), (61 * SECOND + 7, 1), (9 * SECOND, 9)] {
            let wait = room_in_ms(level, 0, per_minute_s).unwrap();
            let after = |ms| room_in_ms(advance(level, 0, per_minute_s, ms), 0, per_minute_s);
            assert_eq!((after(wait - 1), after(wait)), (Some(1), Some(0)), "{level} {per_minute_s}");
        }
    }
}
