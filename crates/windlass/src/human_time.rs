//! Parsing and formatting of times, durations and sizes.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Parses `500ms`, `10s`, `1h30m`, `2d`. A number without a unit is refused as ambiguous.
pub(crate) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a duration; use the form 500ms, 10s, 1h30m or 2d");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total_ms = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_ms = unit_ms(&rest[..letters]).ok_or_else(wrong)?;
        rest = rest[letters..].trim_start();
        total_ms = total_ms.saturating_add((number * unit_ms as f64).round() as i64);
    }
    Ok(total_ms)
}

fn unit_ms(unit: &str) -> Option<i64> {
    Some(match unit {
        "ms" => 1,
        "s" | "sec" | "second" | "seconds" => 1_000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "w" | "week" | "weeks" => 7 * 86_400_000,
        _ => return None,
    })
}

/// Parses a time into milliseconds since the epoch. Without an offset it is local time; a time of day alone
/// is its next occurrence.
pub(crate) fn parse_time_ms(text: &str) -> Result<i64, String> {
    parse_time_at(text, &Zoned::now())
}

fn parse_time_at(text: &str, now: &Zoned) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.as_millisecond());
    }
    if let Ok(local) = text.parse::<DateTime>() {
        return in_zone(local, now.time_zone());
    }
    if let Ok(time) = text.parse::<Time>() {
        let today = now.date().to_datetime(time);
        let day = if today > now.datetime() { Ok(today) } else { today.tomorrow() };
        return day.map_err(|error| error.to_string()).and_then(|local| in_zone(local, now.time_zone()));
    }
    Err(format!("{text:?} is not a time; use the form 2030-01-31T09:00:00Z, \"2030-01-31 09:00\" or 09:00"))
}

fn in_zone(local: DateTime, zone: &TimeZone) -> Result<i64, String> {
    let moment = zone.to_timestamp(local).map_err(|error| error.to_string())?;
    Ok(moment.as_millisecond())
}

/// Local time for ages in tables. The server decides by its own clock.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats a time as `2026-01-31 09:00:00` in the local time zone.
pub(crate) fn show_time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// Formats a duration with at most two units: `850ms`, `12s`, `3m05s`, `2h10m`, `5d3h`.
pub(crate) fn show_duration(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a time as `12s ago` or `in 5m00s`.
pub(crate) fn show_relative(ms: i64, now_ms: i64) -> String {
    if ms > now_ms {
        format!("in {}", show_duration(ms - now_ms))
    } else {
        format!("{} ago", show_duration(now_ms - ms))
    }
}

/// Formats a size as `812 B`, `16.4 MB` or `1.2 TB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1e3;
    let mut unit = 0;
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1e3;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        let cases =
            [("500ms", 500), ("10s", 10_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("1.5s", 1500)];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        assert_eq!(parse_duration_ms("5 minutes"), Ok(300_000));
    }

    #[test]
    fn a_duration_without_a_unit_is_refused_with_an_example() {
        for text in ["10", "", "ten", "5 parsecs", "s", "-3s"] {
            let message = parse_duration_ms(text).unwrap_err();
            assert!(message.contains("10s"), "{message}");
        }
    }

    #[test]
    fn times_are_read_with_and_without_an_offset() {
        let now: Zoned = "2026-03-01T10:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let check = |text: &str, expected: &str| {
            let expected: Timestamp = expected.parse().unwrap();
            assert_eq!(parse_time_at(text, &now), Ok(expected.as_millisecond()), "{text}");
        };
        check("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z");
        check("2026-03-01 12:00", "2026-03-01T11:00:00Z");
        check("2026-03-02", "2026-03-01T23:00:00Z");
        check("11:30", "2026-03-01T10:30:00Z");
        check("09:30", "2026-03-02T08:30:00Z");
        assert!(parse_time_at("soon", &now).is_err());
    }

    #[test]
    fn durations_are_shown_short() {
        let cases = [
            (850, "850ms"),
            (12_000, "12s"),
            (185_000, "3m05s"),
            (7_800_000, "2h10m"),
            (442_800_000, "5d3h"),
        ];
        for (ms, text) in cases {
            assert_eq!(show_duration(ms), text);
        }
    }

    #[test]
    fn sizes_are_shown_with_one_digit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (16_400_000, "16.4 MB"),
            (999_960, "1.0 MB"),
            (2_500_000_000_000, "2.5 TB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
