//! Date arithmetic of SQLite's `DATETIME()` modifiers.
//!
//! SQLite's calendar starts in November 4714 BC, and an intermediate value may leave the valid range as long
//! as no modifier needs its calendar date. This module does the same; `tests/it/repeat_vs_sqlite.rs` compares
//! the two on random modifiers.

use crate::Timestamp;

const SECONDS_PER_HOUR: i64 = 3_600;
const SECONDS_PER_DAY: i64 = 86_400;
/// Julian day zero, -4713-11-24 12:00:00 in the Gregorian calendar.
const FIRST_SECOND: i64 = -210_866_760_000;
/// 9999-12-31 23:59:59.
const LAST_SECOND: i64 = 253_402_300_799;
/// 0001-01-01 00:00:00, the first second a `Timestamp` can hold.
const FIRST_TIMESTAMP_SECOND: i64 = -62_135_596_800;

/// Target of a `START OF …` modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Not a SQLite modifier; equals `STRFTIME('%Y-%m-%d %H:00:00')`.
    Hour,
    Day,
    Month,
    Year,
}

/// Whole seconds since 1970, because `DATETIME()` drops fractions. Not always a valid date, see the module's
/// comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteDate {
    seconds: i64,
}

impl SqliteDate {
    pub fn from_timestamp(at: Timestamp) -> SqliteDate {
        SqliteDate { seconds: at.calendar_ms().div_euclid(1_000) }
    }

    /// `None` outside the years 1 to 9999.
    pub fn to_timestamp(self) -> Option<Timestamp> {
        (FIRST_TIMESTAMP_SECOND..=LAST_SECOND)
            .contains(&self.seconds)
            .then(|| Timestamp::from_calendar_ms(self.seconds * 1_000))
    }

    pub fn plus_seconds(self, seconds: i64) -> SqliteDate {
        SqliteDate { seconds: self.seconds.saturating_add(seconds) }
    }

    pub fn plus_days(self, days: i64) -> SqliteDate {
        self.plus_seconds(days.saturating_mul(SECONDS_PER_DAY))
    }

    /// Adds months and keeps the day of the month. A day that the month lacks overflows into the next month:
    /// one month after 31 January is 2 or 3 March. A year is twelve months.
    pub fn plus_months(self, months: i64) -> Option<SqliteDate> {
        let (year, month, day) = self.year_month_day()?;
        let months = (year * 12 + month - 1).checked_add(months)?;
        let first_of_month = day_number(months.div_euclid(12), months.rem_euclid(12) + 1)?;
        Some(self.moved_to_day(first_of_month + day - 1))
    }

    /// Moves forward to the next such weekday (0 is Sunday); a date on that weekday stays.
    pub fn forward_to_weekday(self, weekday: u8) -> Option<SqliteDate> {
        let today = self.valid()?.day_number();
        // 1970-01-01 was a Thursday.
        let ahead = (i64::from(weekday) - (today + 4)).rem_euclid(7);
        Some(self.plus_days(ahead))
    }

    pub fn back_to(self, start: Start) -> Option<SqliteDate> {
        let (year, month, _) = self.year_month_day()?;
        let day = match start {
            Start::Hour => {
                return Some(self.plus_seconds(-self.seconds.rem_euclid(SECONDS_PER_HOUR)));
            }
            Start::Day => self.day_number(),
            Start::Month => day_number(year, month)?,
            Start::Year => day_number(year, 1)?,
        };
        Some(SqliteDate { seconds: day * SECONDS_PER_DAY })
    }

    fn valid(self) -> Option<SqliteDate> {
        (FIRST_SECOND..=LAST_SECOND).contains(&self.seconds).then_some(self)
    }

    /// Days since 1970-01-01.
    fn day_number(self) -> i64 {
        self.seconds.div_euclid(SECONDS_PER_DAY)
    }

    /// Moves to another day at the same time of day.
    fn moved_to_day(self, day: i64) -> SqliteDate {
        SqliteDate { seconds: day * SECONDS_PER_DAY + self.seconds.rem_euclid(SECONDS_PER_DAY) }
    }

    /// Days are counted from 1 March of year 0, so a leap day is the last day of its year and the months
    /// follow a regular pattern of 153 days in five.
    fn year_month_day(self) -> Option<(i64, i64, i64)> {
        let days = self.valid()?.day_number() + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Some((year, month, day))
    }
}

/// Number of the first day of a month; the inverse of `year_month_day`. `None` outside SQLite's range of
/// years.
fn day_number(year: i64, month: i64) -> Option<i64> {
    if !(-4_713..=9_999).contains(&year) {
        return None;
    }
    debug_assert!((1..=12).contains(&month));
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}
