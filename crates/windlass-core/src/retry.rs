//! Retries: time of the next attempt, and the end of retrying.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// Error code of a job that failed because [`RetryPolicy::give_up_after_ms`] ran out, whatever its last
/// attempt reported.
pub const TIMED_OUT: &str = "timeout";

/// Delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// No delay.
    #[default]
    None,
    Fixed {
        delay_ms: i64,
    },
    /// `base · 2^(n-1)` after the n-th failure, at most `cap`, plus a random jitter of up to `jitter_percent`
    /// of the delay.
    Exponential {
        base_ms: i64,
        cap_ms: i64,
        jitter_percent: u8,
    },
}

impl Backoff {
    /// `failures` counts from 1; `chance` is the random number for the jitter, in `0.0..1.0`.
    pub fn delay_ms(self, failures: u32, chance: f64) -> i64 {
        match self {
            Backoff::None => 0,
            Backoff::Fixed { delay_ms } => delay_ms.max(0),
            Backoff::Exponential { base_ms, cap_ms, jitter_percent } => {
                let doublings = failures.saturating_sub(1).min(62);
                let plain = base_ms.max(0).saturating_mul(1_i64 << doublings).min(cap_ms.max(0));
                let jitter = plain as f64 * f64::from(jitter_percent) / 100.0 * chance.clamp(0.0, 1.0);
                plain.saturating_add(jitter as i64)
            }
        }
    }
}

/// Bounds on attempts. Set when the job is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Total attempts, including the first; `None`: bounded only by `give_up_after_ms`.
    pub max_attempts: Option<u32>,
    pub backoff: Backoff,
    /// No attempt starts later than this after the job was created.
    pub give_up_after_ms: Option<i64>,
}

impl Default for RetryPolicy {
    /// Ten attempts over roughly nine minutes: long enough for a deployment or a restart of another
    /// service.
    fn default() -> Self {
        RetryPolicy {
            max_attempts: Some(10),
            backoff: Backoff::Exponential { base_ms: 1_000, cap_ms: 3_600_000, jitter_percent: 10 },
            give_up_after_ms: None,
        }
    }
}

impl RetryPolicy {
    pub const ONCE: RetryPolicy =
        RetryPolicy { max_attempts: Some(1), backoff: Backoff::None, give_up_after_ms: None };

    /// Time of the next attempt after `attempts` attempts; `None`: the job fails for good.
    pub fn next_run(
        &self,
        attempts: u32,
        created_at: Timestamp,
        now: Timestamp,
        chance: f64,
    ) -> Option<Timestamp> {
        if !self.allows_another(attempts) {
            return None;
        }
        let run_at = now.plus_ms(self.backoff.delay_ms(attempts.max(1), chance));
        match self.give_up_after_ms {
            Some(limit) if run_at > created_at.plus_ms(limit) => None,
            _ => Some(run_at),
        }
    }

    pub fn allows_another(&self, attempts: u32) -> bool {
        self.max_attempts.is_none_or(|max| attempts < max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn exponential_backoff_doubles_up_to_its_cap() {
        let backoff = Backoff::Exponential { base_ms: 1000, cap_ms: 5000, jitter_percent: 0 };
        let delays: Vec<i64> = (1..=5).map(|n| backoff.delay_ms(n, 0.9)).collect();
        assert_eq!(delays, [1000, 2000, 4000, 5000, 5000]);
        assert_eq!(backoff.delay_ms(u32::MAX, 0.0), 5000);
    }

    #[test]
    fn jitter_only_adds_and_stays_within_its_share() {
        let backoff = Backoff::Exponential { base_ms: 1000, cap_ms: 5000, jitter_percent: 10 };
        assert_eq!(backoff.delay_ms(1, 0.0), 1000);
        assert_eq!(backoff.delay_ms(1, 1.0), 1100);
    }

    #[test]
    fn attempts_are_bounded() {
        let twice = RetryPolicy { max_attempts: Some(2), backoff: Backoff::None, give_up_after_ms: None };
        assert_eq!(twice.next_run(1, at(0), at(10), 0.0), Some(at(10)));
        assert_eq!(twice.next_run(2, at(0), at(10), 0.0), None);
        assert_eq!(RetryPolicy::ONCE.next_run(1, at(0), at(10), 0.0), None);
    }

    #[test]
    fn a_job_is_given_up_when_its_time_is_over() {
        let policy = RetryPolicy {
            max_attempts: None,
            backoff: Backoff::Fixed { delay_ms: 300 },
            give_up_after_ms: Some(1000),
        };
        assert_eq!(policy.next_run(7, at(0), at(700), 0.0), Some(at(1000)));
        assert_eq!(policy.next_run(7, at(0), at(701), 0.0), None);
    }
}
