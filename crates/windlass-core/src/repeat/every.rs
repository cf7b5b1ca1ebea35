//! Fixed intervals: `every 5m`, `every 1h30m`, `every 90 seconds`, `every hour`.
//!
//! Runs keep the phase of the first run: the next run is the first whole number of intervals after
//! `scheduled` that is strictly after now. Missed slots are skipped, and no slot runs twice.

use super::{Moments, excerpt, slot_after};
use crate::Timestamp;

#[cfg(test)]
mod tests;

/// Ten runs a second; a faster repetition belongs in a loop within the worker.
const INTERVAL_MS_MIN: i64 = 100;
/// Ten years. A longer interval is more likely a typing error.
const INTERVAL_MS_MAX: i64 = 3_653 * 86_400_000;

/// Repeat rule with a fixed interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    interval_ms: i64,
}

/// Parse error of an interval, with a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEvery {
    #[error("`{text}` does not say how often; write for example `every 5m`")]
    Form { text: String },
    #[error("the interval in `{text}` is too short; write at least `every 100ms`")]
    TooShort { text: String },
    #[error("the interval in `{text}` is too long; write at most `every 3653d`, which is ten years")]
    TooLong { text: String },
    #[error(transparent)]
    Duration(#[from] BadDuration),
}

/// Parse error of a duration, with a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    #[error("the duration is empty; write for example `10s` or `1h30m`")]
    Empty,
    #[error("`{text}` is not a duration; write whole numbers with units, for example `10s` or `1h30m`")]
    Number { text: String },
    #[error("`{text}` has a number without a unit; write for example `10s`, `5m` or `250ms`")]
    NoUnit { text: String },
    #[error("`{unit}` is not a unit of time; write ms, s, m, h, d or w, for example `1h30m`")]
    Unit { unit: String },
    #[error("the duration `{text}` is too long to count; write for example `2d`")]
    TooLong { text: String },
}

impl Every {
    pub fn parse(text: &str) -> Result<Every, BadEvery> {
        let (word, duration) = text
            .trim()
            .split_once(char::is_whitespace)
            .ok_or_else(|| BadEvery::Form { text: excerpt(text) })?;
        if !word.eq_ignore_ascii_case("every") {
            return Err(BadEvery::Form { text: excerpt(text) });
        }
        // `every hour` means `every 1 hour`.
        let interval_ms = match unit_ms(duration.trim()) {
            Some(one) => one,
            None => parse_duration_ms(duration)?,
        };
        match interval_ms {
            ..INTERVAL_MS_MIN => Err(BadEvery::TooShort { text: excerpt(text) }),
            INTERVAL_MS_MIN..=INTERVAL_MS_MAX => Ok(Every { interval_ms }),
            _ => Err(BadEvery::TooLong { text: excerpt(text) }),
        }
    }

    pub fn interval_ms(self) -> i64 {
        self.interval_ms
    }

    pub fn next(self, at: &Moments) -> Option<Timestamp> {
        let slots = at.finished.since_ms(at.scheduled) / self.interval_ms + 1;
        slot_after(at.scheduled, slots, self.interval_ms)
    }
}

/// Parses `10s`, `1h30m`, `250ms`, `2d`, `90 seconds`: numbers with units, added up. Case does not matter.
pub fn parse_duration_ms(text: &str) -> Result<i64, BadDuration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(BadDuration::Empty);
    }
    let mut total_ms: i64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_alphabetic());
        match (digits, unit) {
            ("", _) => return Err(BadDuration::Number { text: excerpt(text) }),
            (_, "") if after.is_empty() => return Err(BadDuration::NoUnit { text: excerpt(text) }),
            (_, "") => return Err(BadDuration::Number { text: excerpt(text) }),
            (_, _) => {}
        }
        let one_ms = unit_ms(unit).ok_or_else(|| BadDuration::Unit { unit: excerpt(unit) })?;
        total_ms = digits
            .parse::<i64>()
            .ok()
            .and_then(|count| count.checked_mul(one_ms)?.checked_add(total_ms))
            .ok_or_else(|| BadDuration::TooLong { text: excerpt(text) })?;
        rest = after.trim_start();
    }
    Ok(total_ms)
}

fn unit_ms(unit: &str) -> Option<i64> {
    match unit.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Some(1),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1_000),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60_000),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(3_600_000),
        "d" | "day" | "days" => Some(86_400_000),
        "w" | "week" | "weeks" => Some(7 * 86_400_000),
        _ => None,
    }
}

/// Splits before the first character for which `ends` is true.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}
