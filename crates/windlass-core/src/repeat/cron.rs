//! Cron rules.
//!
//! ```text
//! [TZ=Area/City] [second] minute hour day-of-month month day-of-week
//! [TZ=Area/City] @hourly | @daily | @weekly | @monthly | @yearly
//! ```
//!
//! Fields are `*`, numbers, names (`MON`, `JAN`), ranges (`9-17`), steps (`*/5`, `9-17/2`, `5/15` from 5 on)
//! and lists of these; `L` is the last day of the month; Sunday is 0 and 7. As in Vixie cron, if both day
//! fields are restricted, a day that matches either one is enough; a field that begins with `*` counts as
//! unrestricted. Without `TZ=` (or `CRON_TZ=`) the times are UTC.
//!
//! **Missed ticks are skipped**: the next run is the first tick strictly after both `scheduled` and now, so
//! each tick runs at most once, even if a run took place early.
//!
//! **Daylight saving time**: a rule for certain hours follows local time. A skipped local time runs once, at
//! the first moment after the gap; a repeated local time runs the first time. A rule for every hour follows
//! elapsed time: it has no ticks in the gap, and ticks in both repeated hours.

mod fields;
#[cfg(test)]
mod tests;

use super::{Moments, excerpt};
use crate::Timestamp;
use fields::{DAY, Field, HOUR, MINUTE, MONTH, SECOND, WEEKDAY};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, ToSpan};
use std::sync::LazyLock;

/// Search horizon for the next tick. The rarest tick, 29 February on a given weekday, returns after at most
/// 40 years: 28, and 12 more across a century without a leap day.
const HORIZON_YEARS: i16 = 41;

/// Bundled time zone database instead of the machine's, so that every server computes the same times.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Parsed cron rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: Field,
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
    zone: TimeZone,
}

/// Parse error of a cron rule, with a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCron {
    #[error(
        "a cron rule has five fields (minute, hour, day, month, weekday) or six with seconds first, \
         not {found}; write for example `0 4 * * *` for every day at 4:00"
    )]
    FieldCount { found: usize },
    #[error("`{text}` is not a valid {field}; write {min} to {max}{names}, for example `{example}`")]
    Value {
        field: &'static str,
        text: String,
        min: u32,
        max: u32,
        names: &'static str,
        example: &'static str,
    },
    #[error("the {field} range `{text}` runs backwards; write it as two, for example `22-23,0-2`")]
    Backwards { field: &'static str, text: String },
    #[error("`{text}` is not a step for a {field}; write a number from 1 to {max}, for example `*/5`")]
    Step { field: &'static str, text: String, max: u32 },
    #[error(
        "`{text}` is not a known schedule; write @hourly, @daily, @weekly, @monthly or @yearly, \
         or an interval such as `every 5m`"
    )]
    Macro { text: String },
    #[error("`{text}` is not a known time zone; write for example `TZ=Europe/Berlin 0 4 * * *`")]
    Zone { text: String },
}

impl Cron {
    pub fn parse(text: &str) -> Result<Cron, BadCron> {
        let (zone, rule) = split_zone(text.trim())?;
        let rule = if rule.starts_with('@') { spelled_out(rule)? } else { rule };
        let fields: Vec<&str> = rule.split_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => return Err(BadCron::FieldCount { found: fields.len() }),
        };
        Ok(Cron {
            seconds: Field::parse(&SECOND, second)?,
            minutes: Field::parse(&MINUTE, minute)?,
            hours: Field::parse(&HOUR, hour)?,
            days: Field::parse(&DAY, day)?,
            months: Field::parse(&MONTH, month)?,
            weekdays: Field::parse(&WEEKDAY, weekday)?,
            zone,
        })
    }

    pub fn next(&self, at: &Moments) -> Option<Timestamp> {
        let after = at.scheduled.max(at.finished);
        // Ticks are whole seconds: strictly after the second that contains `after` is strictly after `after`.
        let after = jiff::Timestamp::from_second(after.calendar_ms().div_euclid(1_000)).ok()?;
        let tick = match self.hours.is_full(&HOUR) {
            true => self.next_in_real_time(after),
            false => self.next_on_the_wall(after),
        };
        Some(Timestamp::from_calendar_ms(tick?.as_millisecond()))
    }

    /// Searches each period between two UTC offset changes separately, because it has one offset.
    fn next_in_real_time(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut from = after.checked_add(SignedDuration::from_secs(1)).ok()?;
        let year_last = self.year_last(from);
        loop {
            let offset = self.zone.to_offset(from);
            let tick = offset.to_timestamp(self.first_from(offset.to_datetime(from), year_last)?).ok()?;
            match self.zone.following(from).next() {
                Some(change) if change.timestamp() <= tick => from = change.timestamp(),
                Some(_) | None => return Some(tick),
            }
        }
    }

    /// Local times in order are timestamps in order too, see `moment_of`. The first candidates may not be
    /// later than `after`, namely in the second pass of a repeated hour.
    fn next_on_the_wall(&self, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut from = self.zone.to_datetime(after);
        let year_last = self.year_last(after);
        loop {
            let wall = self.first_from(from, year_last)?;
            let tick = self.moment_of(wall)?;
            if tick > after {
                return Some(tick);
            }
            from = wall.checked_add(1.second()).ok()?;
        }
    }

    /// First timestamp with this local time, or the end of the gap that contains it.
    fn moment_of(&self, wall: DateTime) -> Option<jiff::Timestamp> {
        match self.zone.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(wall).ok()
            }
            AmbiguousOffset::Gap { after, .. } => {
                // Converted with the later offset, a time in the gap lies before the change, by less than the
                // gap.
                let before_change = after.to_timestamp(wall).ok()?;
                self.zone.following(before_change).next().map(|change| change.timestamp())
            }
        }
    }

    fn year_last(&self, from: jiff::Timestamp) -> i16 {
        self.zone.to_datetime(from).year().saturating_add(HORIZON_YEARS)
    }

    /// First local time at or after `from` that the fields allow.
    fn first_from(&self, from: DateTime, year_last: i16) -> Option<DateTime> {
        let day = self.first_day_from(from.date(), year_last)?;
        if day > from.date() {
            return Some(day.to_datetime(self.first_time_from(Time::midnight())?));
        }
        if let Some(time) = self.first_time_from(from.time()) {
            return Some(day.to_datetime(time));
        }
        let day = self.first_day_from(day.tomorrow().ok()?, year_last)?;
        Some(day.to_datetime(self.first_time_from(Time::midnight())?))
    }

    fn first_day_from(&self, from: Date, year_last: i16) -> Option<Date> {
        let mut first = from;
        while first.year() <= year_last {
            if self.months.has(first.month())
                && let Some(day) = self.first_day_in_month(first)
            {
                return Some(day);
            }
            first = first.last_of_month().tomorrow().ok()?;
        }
        None
    }

    fn first_day_in_month(&self, from: Date) -> Option<Date> {
        let mut day = from;
        while !self.has_day(day) {
            if day == day.last_of_month() {
                return None;
            }
            day = day.tomorrow().ok()?;
        }
        Some(day)
    }

    fn has_day(&self, day: Date) -> bool {
        let last = self.days.last && day == day.last_of_month();
        let by_month = last || self.days.has(day.day());
        let by_week = self.weekdays.has(day.weekday().to_sunday_zero_offset());
        match self.days.star || self.weekdays.star {
            true => by_month && by_week,
            false => by_month || by_week,
        }
    }

    /// First time of day at or after `from`; `None` if none is left on that day.
    fn first_time_from(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let second_first = self.seconds.first_from(0)?;
        let minute_first = self.minutes.first_from(0)?;
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.first_from(second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = self.minutes.first_from(minute + 1) {
                return Time::new(hour, minute, second_first, 0).ok();
            }
        }
        Time::new(self.hours.first_from(hour + 1)?, minute_first, second_first, 0).ok()
    }
}

fn split_zone(text: &str) -> Result<(TimeZone, &str), BadCron> {
    let Some(after) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok((TimeZone::UTC, text));
    };
    let (name, rule) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
    match ZONES.get(name) {
        Ok(zone) => Ok((zone, rule.trim_start())),
        Err(_) => Err(BadCron::Zone { text: excerpt(name) }),
    }
}

fn spelled_out(name: &str) -> Result<&'static str, BadCron> {
    match name.to_ascii_lowercase().as_str() {
        "@hourly" => Ok("0 * * * *"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@monthly" => Ok("0 0 1 * *"),
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        _ => Err(BadCron::Macro { text: excerpt(name) }),
    }
}
