//! Clock of the database, which all servers follow: minus its offset, it is the timeline of the jobs. Between
//! readings each server advances the timeline by its own uptime; the first server that detects a step of the
//! database's clock records it for all.

use super::shared::Shared;
use super::statements as sql;
use crate::Result;
use crate::calendar::{Kept, WallStep};
use crate::steady;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::warn;
use windlass_core::Timestamp;

/// Smaller differences are followed at once: the clock of a new primary may be off by this much.
const STEP_MIN_MS: i64 = 1_000;
/// A correction by another server this soon after our record takes precedence: this machine was suspended.
const OVERRULED_WITHIN: Duration = Duration::from_secs(60);

/// Last reading.
#[derive(Default)]
pub(super) struct Watched {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_looked: bool,
    kept: Kept,
    /// Time at which this server last recorded a step, and the offset that it set.
    said: Option<(Instant, i64)>,
    /// The previous reading found a step.
    was_set: bool,
}

impl Watched {
    pub(super) fn kept(&self) -> Kept {
        self.with(|state| state.kept.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock())
    }
}

/// Reading of the database's clock, taken between request and reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub there_ms: i64,
    pub asked: Timestamp,
    pub answered: Timestamp,
}

/// Follows a reading. `text` is the stored record; `seen_ms`, by the database's clock, is the last heartbeat
/// of any server.
pub(super) async fn follow(
    shared: &Shared,
    reading: Reading,
    text: Option<&str>,
    seen_ms: Option<i64>,
) -> Result<()> {
    let mut kept = text.and_then(|text| serde_json::from_str::<Kept>(text).ok()).unwrap_or_default();
    let (is_first, said) = shared.clock.with(|state| (!state.has_looked, state.said));
    let known = shared.clock_ahead_ms.load(Ordering::Relaxed);
    let ahead = ahead_ms(known, reading.there_ms - kept.ahead_ms, reading.asked, reading.answered);
    let is_overruled =
        said.is_some_and(|(at, ahead_ms)| at.elapsed() < OVERRULED_WITHIN && ahead_ms != kept.ahead_ms);
    let step = if is_first {
        step_while_away(&kept, reading.there_ms, seen_ms)
    } else {
        let by_ms = ahead.saturating_sub(known);
        let at_ms = reading.answered.plus_ms(known).as_millis();
        (by_ms.abs() >= STEP_MIN_MS && !is_overruled).then_some(WallStep { at_ms, by_ms })
    };
    let mut ahead = ahead;
    if let Some(step) = step {
        let old = text.unwrap_or_default().as_bytes();
        kept.take(step);
        let said = shared.pool.write(sql::SET_CLOCK, &[&kept.bytes(), &old]).await?;
        if said.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
            // Another server recorded the step first; the next reading uses its record.
            return Ok(());
        }
        let (way, seconds) =
            (if step.by_ms > 0 { "forward" } else { "back" }, step.by_ms.unsigned_abs() as f64 / 1_000.0);
        warn!(
            "the clock of the database was set {way} by {seconds:.1} s; leases, delays and retries \
             are not affected"
        );
        ahead = ahead_ms(known, reading.there_ms - kept.ahead_ms, reading.asked, reading.answered);
        shared.clock.with(|state| state.said = Some((Instant::now(), kept.ahead_ms)));
    }
    shared.clock_ahead_ms.store(ahead, Ordering::Relaxed);
    let (is_set, was_set) = shared.clock.with(|state| {
        let is_set = state.has_looked && state.kept.ahead_ms != kept.ahead_ms;
        state.has_looked = true;
        state.kept = kept;
        (is_set, std::mem::replace(&mut state.was_set, is_set))
    });
    // Rates computed the end of their wait by the old clock; a claim in progress may have done so even after
    // this reading.
    if is_set || was_set {
        shared.lanes().unpark(|_| true);
    }
    Ok(())
}

/// Step back while no server was running: the clock shows less than the last heartbeat. No time is assumed to
/// have passed.
fn step_while_away(kept: &Kept, there_ms: i64, seen_ms: Option<i64>) -> Option<WallStep> {
    let now_ms = there_ms.saturating_sub(kept.ahead_ms);
    let seen_ms = seen_ms.map_or(kept.seen_ms, |seen_ms| kept.seen_ms.max(seen_ms - kept.ahead_ms));
    let behind_ms = seen_ms.saturating_sub(now_ms);
    (behind_ms >= STEP_MIN_MS).then_some(WallStep { at_ms: seen_ms + 1, by_ms: -(behind_ms + 1) })
}

/// Offset of the database's clock. The reading was taken between request and reply: the known offset stays as
/// long as it fits that interval, so a slow reply changes nothing.
fn ahead_ms(known: i64, there_ms: i64, asked: Timestamp, answered: Timestamp) -> i64 {
    // Both clocks are truncated to milliseconds.
    let least = there_ms.saturating_sub(answered.as_millis()).saturating_sub(1);
    let most = there_ms.saturating_sub(asked.as_millis()).saturating_add(1);
    known.clamp(least, most.max(least))
}

/// Time of this machine, unaffected by changes of its wall clock.
pub(super) fn ours(shared: &Shared) -> Timestamp {
    steady::now().plus_ms(shared.clock_error_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_shows_less_than_was_seen_was_set_back() {
        let kept = Kept { ahead_ms: 500, seen_ms: 9_000, steps: Vec::new() };
        for (there_ms, seen_ms, by_ms) in [
            (10_000, None, None),
            (9_000, None, None), // half a second
            (5_500, None, Some(-4_001)),
            (10_000, Some(10_000), None),
            (10_000, Some(20_500), Some(-10_501)),
        ] {
            let step = step_while_away(&kept, there_ms, seen_ms);
            assert_eq!(step.map(|step| step.by_ms), by_ms, "{there_ms} {seen_ms:?}");
            if let Some(step) = step {
                let now_ms = there_ms - kept.ahead_ms - step.by_ms;
                assert_eq!(now_ms, step.at_ms, "the timeline goes on behind what was seen");
            }
        }
    }

    #[test]
    fn a_clock_is_believed_until_an_answer_says_otherwise() {
        let at = Timestamp::from_millis;
        for (known, there, asked, answered, expected) in [
            (0, 1_003, 1_000, 1_010, 0), // the same clock, and a slow reply
            (0, 1_000, 1_000, 1_000, 0),
            (0, 4_600_000, 1_000_000, 1_000_004, 3_599_995), // at least an hour ahead
            (3_599_995, 4_600_500, 1_000_500, 1_000_501, 3_599_998), // a quicker reply is more precise
            (3_599_998, 4_700_000, 1_100_000, 1_100_900, 3_599_998), // a slow reply changes nothing
            (0, 1_000, 4_000, 4_002, -2_999),                // behind
        ] {
            assert_eq!(ahead_ms(known, there, at(asked), at(answered)), expected, "{known} {there}");
        }
    }
}
