//! Dates of this dialect.

use windlass_core::Timestamp;

/// Offset of an archived job's date into the future, so that no search for due jobs finds it.
const ARCHIVE_YEARS: i16 = 1_000;

/// UTC with milliseconds.
pub fn iso(at: Timestamp) -> String {
    civil(at).map_or_else(|| at.calendar_ms().to_string(), shown)
}

/// Same month, day and time a thousand years later. The 29th of February becomes the 1st of March if that
/// year has no such day.
pub fn archived(at: Timestamp) -> String {
    let later = civil(at).and_then(|time| {
        let year = time.year().checked_add(ARCHIVE_YEARS)?;
        let date = jiff::civil::Date::new(year, time.month(), time.day())
            .or_else(|_| jiff::civil::Date::new(year, 3, 1))
            .ok()?;
        Some(date.to_datetime(time.time()))
    });
    later.map_or_else(|| at.calendar_ms().to_string(), shown)
}

fn civil(at: Timestamp) -> Option<jiff::civil::DateTime> {
    let at = jiff::Timestamp::from_millisecond(at.calendar_ms()).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).datetime())
}

fn shown(time: jiff::civil::DateTime) -> String {
    let (date, ms) = (time.date(), time.millisecond());
    format!("{date}T{:02}:{:02}:{:02}.{ms:03}Z", time.hour(), time.minute(), time.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn the_archive_is_a_thousand_calendar_years_away() {
        let check = |time: &str, expected: &str| assert_eq!(archived(at(time)), expected);
        check("2026-11-15T16:03:04.567Z", "3026-11-15T16:03:04.567Z");
        check("2024-02-29T23:59:59.999Z", "3024-02-29T23:59:59.999Z");
        check("2100-02-28T00:00:00Z", "3100-02-28T00:00:00.000Z");
        check("2000-02-29T12:00:00Z", "3000-03-01T12:00:00.000Z");
        assert_eq!(iso(at("2026-01-02T03:04:05.006Z")), "2026-01-02T03:04:05.006Z");
    }
}
