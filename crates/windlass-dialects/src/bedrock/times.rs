//! Timestamps of this dialect: text in UTC, `2024-01-31 12:00:00`, with `.123` for milliseconds.
//!
//! The protocol never parses its timestamps: a job is due when the text of the current time is not less than
//! the text of its `nextRun`, byte by byte. So every text stands for a time, which [`moment_of`] finds:
//! `2024` is the first millisecond of that year, and `zzz` is never reached.

use std::fmt::Write;
use windlass_core::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// Formats a timestamp in whole seconds.
pub fn seconds(at: Timestamp) -> String {
    let mut text = String::with_capacity(19);
    write_seconds(&mut text, at);
    text
}

pub fn milliseconds(at: Timestamp) -> String {
    let mut text = String::with_capacity(23);
    write_seconds(&mut text, at);
    let _ = write!(text, ".{:03}", at.calendar_ms().rem_euclid(1_000));
    text
}

/// Formats a timestamp; milliseconds only if they are not zero.
pub fn shortest(at: Timestamp) -> String {
    if at.calendar_ms().rem_euclid(1_000) == 0 { seconds(at) } else { milliseconds(at) }
}

/// Returns the first time whose text is not less than `text`, or [`Timestamp::MAX`] if there is none.
pub fn moment_of(text: &str) -> Timestamp {
    if let Some(at) = canonical(text) {
        return at;
    }
    let earliest = Timestamp::from_millis(i64::MIN).as_millis();
    let (mut low, mut high) = (earliest, Timestamp::MAX.as_millis());
    while low < high {
        let middle = low + (high - low) / 2;
        if milliseconds(Timestamp::from_millis(middle)).as_str() >= text {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Timestamp::from_millis(high)
}

/// Parses the usual format without a search.
fn canonical(text: &str) -> Option<Timestamp> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    if !matches!(text.len(), 19 | 23) {
        return None;
    }
    let day = days_from_civil(number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds_of_day = number(11, 13)? * 3_600 + number(14, 16)? * 60 + number(17, 19)?;
    let ms = if text.len() == 23 { number(20, 23)? } else { 0 };
    let at = Timestamp::from_calendar_ms(day * DAY_MS + seconds_of_day * 1_000 + ms);
    // An invalid date such as 31 April would format as another date.
    let same = if text.len() == 19 { seconds(at) == text } else { milliseconds(at) == text };
    same.then_some(at)
}

fn write_seconds(text: &mut String, at: Timestamp) {
    let (year, month, day) = civil_from_days(at.calendar_ms().div_euclid(DAY_MS));
    let second = at.calendar_ms().rem_euclid(DAY_MS) / 1_000;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let _ = write!(text, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
}

/// Days since 1970-01-01 in the Gregorian calendar, computed in 400-year eras that begin in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let year_of_era = year.rem_euclid(400);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_with_as_much_as_it_has() {
        let at = Timestamp::from_millis(1_706_702_400_000);
        assert_eq!(seconds(at), "2024-01-31 12:00:00");
        assert_eq!(shortest(at), "2024-01-31 12:00:00");
        assert_eq!(milliseconds(at), "2024-01-31 12:00:00.000");
        assert_eq!(shortest(at.plus_ms(7)), "2024-01-31 12:00:00.007");
    }

    #[test]
    fn every_day_is_itself() {
        let first = days_from_civil(1, 1, 1);
        let last = days_from_civil(9_999, 12, 31);
        assert_eq!((first, last), (-719_162, 2_932_896));
        for day in first..=last {
            let (year, month, of_month) = civil_from_days(day);
            assert_eq!(days_from_civil(year, month, of_month), day);
        }
    }

    #[test]
    fn a_text_stands_for_the_first_moment_that_is_not_before_it() {
        for (text, moment) in [
            ("2024-01-31 12:00:00", "2024-01-31 12:00:00.000"),
            ("2024-01-31 12:00:00.007", "2024-01-31 12:00:00.007"),
            ("2024-01-31", "2024-01-31 00:00:00.000"),
            ("2024", "2024-01-01 00:00:00.000"),
            ("2024-01-31T12:00:00", "2024-02-01 00:00:00.000"),
            ("2024-13-01 00:00:00", "2025-01-01 00:00:00.000"),
            ("2024-01-31 12:00:00.0075", "2024-01-31 12:00:00.008"),
            ("", "0001-01-01 00:00:00.000"),
            (" ", "0001-01-01 00:00:00.000"),
            ("zzz", "9999-12-31 23:59:59.999"),
        ] {
            assert_eq!(milliseconds(moment_of(text)), moment, "{text:?}");
        }
    }
}
