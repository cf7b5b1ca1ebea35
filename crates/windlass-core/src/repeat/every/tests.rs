use super::*;
use crate::repeat::tests::{at, finished};

#[track_caller]
fn check_duration(text: &str, expected: Result<i64, BadDuration>) {
    assert_eq!(parse_duration_ms(text), expected, "{text:?}");
}

#[test]
fn durations_are_numbers_with_units() {
    check_duration("10s", Ok(10_000));
    check_duration("1h30m", Ok(5_400_000));
    check_duration("1h 30m", Ok(5_400_000));
    check_duration("250ms", Ok(250));
    check_duration("2d", Ok(172_800_000));
    check_duration("90 seconds", Ok(90_000));
    check_duration(" 1 Week ", Ok(604_800_000));
    check_duration("0s", Ok(0));
    check_duration("1h0m5s", Ok(3_605_000));
}

#[test]
fn what_is_no_duration_says_why() {
    let text = |text: &str| text.to_string();
    check_duration("", Err(BadDuration::Empty));
    check_duration("  ", Err(BadDuration::Empty));
    check_duration("10", Err(BadDuration::NoUnit { text: text("10") }));
    check_duration("1h30", Err(BadDuration::NoUnit { text: text("1h30") }));
    check_duration("s", Err(BadDuration::Number { text: text("s") }));
    check_duration("-5m", Err(BadDuration::Number { text: text("-5m") }));
    check_duration("1.5h", Err(BadDuration::Number { text: text("1.5h") }));
    check_duration("5 parsecs", Err(BadDuration::Unit { unit: text("parsecs") }));
    check_duration("9223372036854775807s", Err(BadDuration::TooLong { text: text("9223372036854775807s") }));
    check_duration(
        "99999999999999999999ms",
        Err(BadDuration::TooLong { text: text("99999999999999999999ms") }),
    );
}

#[test]
fn every_takes_a_duration_or_a_unit() {
    for (text, interval_ms) in [
        ("every 5m", 300_000),
        ("every 100ms", 100),
        ("EVERY 90 seconds", 90_000),
        (" every  1h30m ", 5_400_000),
        ("every hour", 3_600_000),
        ("every day", 86_400_000),
        ("every 3653d", INTERVAL_MS_MAX),
    ] {
        assert_eq!(Every::parse(text), Ok(Every { interval_ms }), "{text:?}");
    }
}

#[test]
fn intervals_have_limits() {
    for text in ["every 99ms", "every 0s", "every ms"] {
        assert_eq!(Every::parse(text), Err(BadEvery::TooShort { text: text.into() }));
    }
    assert!(matches!(Every::parse("every 3654d"), Err(BadEvery::TooLong { .. })));
    assert!(matches!(Every::parse("every"), Err(BadEvery::Form { .. })));
    assert!(matches!(Every::parse("every 5"), Err(BadEvery::Duration(_))));
}

#[track_caller]
fn check_next(text: &str, scheduled: &str, now: &str, expected: &str) {
    let moments = Moments { scheduled: at(scheduled), ..finished(now) };
    let next = Every::parse(text).unwrap().next(&moments);
    assert_eq!(next.map(|t| t.to_string()), Some(at(expected).to_string()), "{text}");
}

#[test]
fn runs_keep_their_phase_and_missed_slots_are_skipped() {
    check_next("every 10m", "2024-01-01T00:03:00Z", "2024-01-01T00:03:20Z", "2024-01-01T00:13:00Z");
    check_next("every 10m", "2024-01-01T00:03:00Z", "2024-01-01T00:44:00Z", "2024-01-01T00:53:00Z");
    check_next("every 500ms", "2024-01-01T00:00:00.25Z", "2024-01-01T00:00:01Z", "2024-01-01T00:00:01.25Z");
}

#[test]
fn the_next_slot_is_strictly_after_now() {
    check_next("every 10m", "2024-01-01T00:03:00Z", "2024-01-01T00:13:00Z", "2024-01-01T00:23:00Z");
    check_next("every 10m", "2024-01-01T00:03:00Z", "2024-01-01T00:12:59.999Z", "2024-01-01T00:13:00Z");
}

#[test]
fn a_run_that_took_place_early_does_not_repeat_its_slot() {
    check_next("every 10m", "2024-01-01T00:03:00Z", "2023-12-31T12:00:00Z", "2024-01-01T00:13:00Z");
}
