//! Bedrock's repeat rules: a base with modifiers, `FINISHED, +1 DAY, START OF DAY, +4 HOURS`, or one of the
//! words `HOURLY`, `DAILY`, `WEEKLY`. All times are UTC; results are whole seconds.
//!
//! The text is split at commas; spaces before a part are dropped, spaces after it are an error, empty parts
//! are ignored, and case does not matter. The modifiers apply from left to right, with the semantics of
//! SQLite's `DATETIME()`:
//!
//! | modifier | effect |
//! |---|---|
//! | `+N SECONDS`, `-N SECONDS` | N of up to eight digits; a space may follow the sign |
//! | `+N MINUTES`, `HOURS`, `DAYS`, `MONTHS`, `YEARS`, or with `-` | N of up to three digits |
//! | `START OF HOUR`, `DAY`, `MONTH`, `YEAR` | back to its first second |
//! | `WEEKDAY N` | forward to that weekday, 0 is Sunday; a date on that weekday stays |

use super::sqlite_date::{SqliteDate, Start};
use super::{Moments, excerpt, slot_after};
use crate::Timestamp;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// SQLite's maximum number of function arguments when the syntax was made; more is a mistake or an attack.
const MODIFIERS_MAX: usize = 126;
/// Rules with an interval this long or longer never skip missed slots: each slot is worth a run.
const JUMP_BELOW_MS: i64 = 4 * 3_600_000;

/// Variants of the syntax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Style {
    pub words: Words,
    pub missed: Missed,
}

/// Meaning of `HOURLY`, `DAILY` and `WEEKLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// Top of the next hour, next midnight, midnight at the start of the next Sunday.
    Snap,
    /// An hour, a day, seven days after the run finished.
    #[default]
    AfterFinish,
}

/// Handling of missed slots of a `SCHEDULED` rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Runs once for every missed slot.
    #[default]
    CatchUp,
    /// Continues with the first slot after now, if the rule is a plain interval under four hours.
    JumpOver,
}

/// Parsed rule: the base and the modifiers that lead to the next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    base: Base,
    modifiers: Vec<Modifier>,
    missed: Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Scheduled,
    Started,
    Finished,
}

/// Modifier of a date, see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    Plus { amount: i32, unit: Unit },
    StartOf(Start),
    Weekday(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

/// Parse error of such a rule, with a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModifiers {
    #[error(
        "`{part}` is not where a repeat rule can count from; write SCHEDULED, STARTED or FINISHED \
         directly followed by a comma, for example `FINISHED, +1 HOUR`"
    )]
    Base { part: String },
    #[error("there is no modifier; write at least one, for example `+1 HOUR`")]
    NoModifier,
    #[error(
        "`{part}` is not a modifier; write for example `+15 MINUTES` (up to 999, or 99999999 SECONDS), \
         `START OF DAY` or `WEEKDAY 1`, without a space before the comma"
    )]
    Modifier { part: String },
    #[error("`START OF HOUR` can only stand in a repeat rule; write for example `+1 HOUR`")]
    StartOfHour,
    #[error("more than {MODIFIERS_MAX} modifiers; write fewer, for example `+1 DAY, +4 HOURS`")]
    TooManyModifiers,
}

impl Schedule {
    pub fn parse(text: &str, style: Style) -> Result<Schedule, BadModifiers> {
        let text = text.to_ascii_uppercase();
        let mut parts = parts_of(&text);
        let first = parts.next().unwrap_or_default();
        let base = match first {
            "HOURLY" | "DAILY" | "WEEKLY" => return word(first, parts.next(), style),
            "SCHEDULED" => Base::Scheduled,
            "STARTED" => Base::Started,
            "FINISHED" => Base::Finished,
            _ => return Err(BadModifiers::Base { part: excerpt(first) }),
        };
        Ok(Schedule { base, modifiers: modifiers_of(parts)?, missed: style.missed })
    }

    pub fn next(&self, at: &Moments) -> Option<Timestamp> {
        let base = match self.base {
            Base::Scheduled => at.scheduled,
            Base::Started => at.started.unwrap_or(at.finished),
            Base::Finished => at.finished,
        };
        let next = apply(&self.modifiers, base)?;
        match (self.base, self.missed) {
            (Base::Scheduled, Missed::JumpOver) => self.jump_over_missed(base, next, at.finished),
            (Base::Scheduled, Missed::CatchUp) | (Base::Started | Base::Finished, _) => Some(next),
        }
    }

    /// True if the runs are calendar dates (`START OF DAY`, `WEEKDAY 1`), not intervals.
    pub fn names_dates(&self) -> bool {
        self.modifiers.iter().any(|modifier| !matches!(modifier, Modifier::Plus { .. }))
    }

    fn jump_over_missed(&self, base: Timestamp, next: Timestamp, now: Timestamp) -> Option<Timestamp> {
        // Slots are whole seconds, so the base loses its fraction before the interval is computed.
        let base = apply(&[], base)?;
        let interval_ms = next.as_millis() - base.as_millis();
        let plain = self.modifiers.iter().all(|modifier| matches!(modifier, Modifier::Plus { .. }));
        // A slot within the current second counts as missed: Bedrock compares times as texts without
        // fractions.
        if next > apply(&[], now)? || !plain || !(1..JUMP_BELOW_MS).contains(&interval_ms) {
            return Some(next);
        }
        slot_after(base, now.since_ms(base) / interval_ms + 1, interval_ms)
    }
}

/// Parses a comma list of modifiers, including `START OF HOUR`.
pub fn parse_modifiers(text: &str) -> Result<Vec<Modifier>, BadModifiers> {
    modifiers_of(parts_of(&text.to_ascii_uppercase()))
}

/// Like `parse_modifiers`, but refuses `START OF HOUR`, which SQLite lacks and only a repeat rule may use.
pub fn parse_sqlite_modifiers(text: &str) -> Result<Vec<Modifier>, BadModifiers> {
    let modifiers = parse_modifiers(text)?;
    match modifiers.contains(&Modifier::StartOf(Start::Hour)) {
        true => Err(BadModifiers::StartOfHour),
        false => Ok(modifiers),
    }
}

/// `DATETIME(from, modifier, …)` in whole seconds; `None` outside the years 1 to 9999.
pub fn apply(modifiers: &[Modifier], from: Timestamp) -> Option<Timestamp> {
    let mut date = SqliteDate::from_timestamp(from);
    for modifier in modifiers {
        date = match *modifier {
            Modifier::Plus { amount, unit } => plus(date, i64::from(amount), unit)?,
            Modifier::StartOf(start) => date.back_to(start)?,
            Modifier::Weekday(weekday) => date.forward_to_weekday(weekday)?,
        };
    }
    date.to_timestamp()
}

fn plus(date: SqliteDate, amount: i64, unit: Unit) -> Option<SqliteDate> {
    match unit {
        Unit::Second => Some(date.plus_seconds(amount)),
        Unit::Minute => Some(date.plus_seconds(amount * 60)),
        Unit::Hour => Some(date.plus_seconds(amount * 3_600)),
        Unit::Day => Some(date.plus_days(amount)),
        Unit::Month => date.plus_months(amount),
        Unit::Year => date.plus_months(amount * 12),
    }
}

/// The words abbreviate rules that count from `FINISHED`.
fn word(word: &str, more: Option<&str>, style: Style) -> Result<Schedule, BadModifiers> {
    if more.is_some() {
        return Err(BadModifiers::Base { part: excerpt(word) });
    }
    let modifiers = match (style.words, word) {
        (Words::AfterFinish, "HOURLY") => "+1 HOUR",
        (Words::AfterFinish, "DAILY") => "+1 DAY",
        (Words::AfterFinish, _) => "+7 DAYS",
        (Words::Snap, "HOURLY") => "+1 HOUR, START OF HOUR",
        (Words::Snap, "DAILY") => "+1 DAY, START OF DAY",
        (Words::Snap, _) => "+1 DAY, WEEKDAY 0, START OF DAY",
    };
    Ok(Schedule { base: Base::Finished, modifiers: parse_modifiers(modifiers)?, missed: style.missed })
}

fn parts_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|part| part.trim_start_matches(' ')).filter(|part| !part.is_empty())
}

fn modifiers_of<'t>(parts: impl Iterator<Item = &'t str>) -> Result<Vec<Modifier>, BadModifiers> {
    let mut modifiers = Vec::new();
    for part in parts {
        if modifiers.len() == MODIFIERS_MAX {
            return Err(BadModifiers::TooManyModifiers);
        }
        modifiers.push(modifier_of(part).ok_or_else(|| BadModifiers::Modifier { part: excerpt(part) })?);
    }
    if modifiers.is_empty() { Err(BadModifiers::NoModifier) } else { Ok(modifiers) }
}

fn modifier_of(part: &str) -> Option<Modifier> {
    if let Some(what) = part.strip_prefix("START OF ") {
        let start = match what {
            "HOUR" => Start::Hour,
            "DAY" => Start::Day,
            "MONTH" => Start::Month,
            "YEAR" => Start::Year,
            _ => return None,
        };
        return Some(Modifier::StartOf(start));
    }
    if let Some(day) = part.strip_prefix("WEEKDAY ") {
        return match day.as_bytes() {
            [digit @ b'0'..=b'6'] => Some(Modifier::Weekday(digit - b'0')),
            _ => None,
        };
    }
    let (sign, rest) =
        if let Some(rest) = part.strip_prefix('-') { (-1, rest) } else { (1, part.strip_prefix('+')?) };
    let (digits, unit) = rest.strip_prefix(' ').unwrap_or(rest).split_once(' ')?;
    let (unit, digits_max) = unit_of(unit)?;
    let well_formed = (1..=digits_max).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let amount: i32 = if well_formed { digits.parse().ok()? } else { return None };
    Some(Modifier::Plus { amount: sign * amount, unit })
}

/// Unit and the most digits its number may have.
fn unit_of(word: &str) -> Option<(Unit, usize)> {
    match word.strip_suffix('S').unwrap_or(word) {
        "SECOND" => Some((Unit::Second, 8)),
        "MINUTE" => Some((Unit::Minute, 3)),
        "HOUR" => Some((Unit::Hour, 3)),
        "DAY" => Some((Unit::Day, 3)),
        "MONTH" => Some((Unit::Month, 3)),
        "YEAR" => Some((Unit::Year, 3)),
        _ => None,
    }
}
