//! Persistent record of the server's timeline relative to the wall clock. See `docs/adr` on time.

use serde::{Deserialize, Serialize};
use windlass_core::{Job, Timestamp};

/// Key of the record among the settings.
pub const CLOCK: &str = "clock";
/// Smaller differences come from reading two clocks one after the other and are no step.
const STEP_MIN_MS: i64 = 250;
/// Steps kept; the jobs of older steps have been moved long before there are so many.
const STEPS_MAX: usize = 64;

/// Persistent record of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Offset of the wall clock from the timeline.
    pub ahead_ms: i64,
    /// The timeline has reached at least this time.
    pub seen_ms: i64,
    /// Steps after which some jobs that wait for a date have not been moved yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WallStep>,
}

/// The wall clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallStep {
    /// Timeline time at which the step was detected. Jobs written later already take it into account.
    pub at_ms: i64,
    /// Forward, or back if negative.
    pub by_ms: i64,
}

impl Kept {
    /// Time at which the timeline resumes while the wall clock shows `wall_ms`. The result is later than
    /// `seen_ms`, so jobs written before the restart are older than a step detected now.
    pub fn resume_ms(&self, wall_ms: i64) -> i64 {
        let now_ms = wall_ms.saturating_sub(self.ahead_ms);
        if now_ms < self.seen_ms { self.seen_ms + 1 } else { now_ms }
    }

    /// Detects a step: at `now_ms` of the timeline the wall clock shows `wall_ms`.
    pub fn step(&self, now_ms: i64, wall_ms: i64) -> Option<WallStep> {
        let by_ms = wall_ms.saturating_sub(now_ms).saturating_sub(self.ahead_ms);
        (by_ms.abs() >= STEP_MIN_MS).then_some(WallStep { at_ms: now_ms, by_ms })
    }

    pub fn take(&mut self, step: WallStep) {
        self.ahead_ms = self.ahead_ms.saturating_add(step.by_ms);
        if self.steps.len() == STEPS_MAX {
            self.steps.remove(0);
        }
        self.steps.push(step);
    }

    /// New run time of a job that waits for a date, after the steps made since the job was written; `None`:
    /// no step affects it.
    pub fn moved(&self, job: &Job) -> Option<Timestamp> {
        let at = job.appointment().filter(|at| *at < Timestamp::MAX)?;
        let written_ms = job.progress.updated_at.as_millis();
        let later = self.steps.iter().filter(|step| step.at_ms > written_ms);
        let by_ms: i64 = later.map(|step| step.by_ms).sum();
        (by_ms != 0).then(|| at.plus_ms(by_ms.saturating_neg()))
    }

    pub fn bytes(&self) -> Vec<u8> {
        // Serialising numbers and a list of numbers cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ahead_ms: i64, seen_ms: i64) -> Kept {
        Kept { ahead_ms, seen_ms, steps: Vec::new() }
    }

    #[test]
    fn the_timeline_goes_on_where_it_was_and_the_clock_is_believed_unless_it_went_back() {
        for (ahead_ms, seen_ms, wall_ms, resumes_at, step_by) in [
            (0, 1_000, 5_000, 5_000, None),         // four seconds passed
            (0, 9_000, 5_000, 9_001, Some(-4_001)), // the clock was set back meanwhile
            (-4_000, 9_000, 6_000, 10_000, None),   // and stayed so
            (3_000, 1_000, 5_000, 2_000, None),
            (0, 5_000, 5_000, 5_000, None),
            (0, 5_100, 5_000, 5_101, None), // below the threshold
        ] {
            let kept = kept(ahead_ms, seen_ms);
            let now_ms = kept.resume_ms(wall_ms);
            assert_eq!(now_ms, resumes_at, "{kept:?} {wall_ms}");
            assert_eq!(kept.step(now_ms, wall_ms).map(|step| step.by_ms), step_by, "{kept:?} {wall_ms}");
        }
    }

    #[test]
    fn steps_add_up() {
        let mut kept = kept(0, 0);
        kept.take(WallStep { at_ms: 10, by_ms: 3_600_000 });
        kept.take(WallStep { at_ms: 20, by_ms: -600_000 });
        assert_eq!(kept.ahead_ms, 3_000_000);
        assert_eq!(kept.step(30, 3_000_030), None);
    }
}
