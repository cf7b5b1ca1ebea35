use super::*;

/// `2024-03-10T08:00:00Z`, with or without fractions.
pub(super) fn at(text: &str) -> Timestamp {
    let moment: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(moment.as_millisecond())
}

/// Run that started on time and ended at `text`.
pub(super) fn finished(text: &str) -> Moments {
    Moments { scheduled: at(text), started: Some(at(text)), finished: at(text) }
}

#[track_caller]
fn check_shape(text: &str, expected: Shape) {
    assert_eq!(Shape::of(text), expected, "{text:?}");
}

#[test]
fn the_shape_of_a_text_says_which_syntax_it_is() {
    for text in
        ["HOURLY", "daily", "Finished, +1 DAY", "  SCHEDULED, +1 HOUR", "STARTED", "FINISHED , +1 HOUR"]
    {
        check_shape(text, Shape::Modifiers);
    }
    // Five and six words, but not cron.
    check_shape("FINISHED, +1 DAY, +1 HOUR", Shape::Modifiers);
    check_shape("FINISHED, +1 DAY, START OF DAY", Shape::Modifiers);
    for text in
        ["0 4 * * *", "*/5 0 4 * * MON", "@daily", "TZ=Europe/Berlin @daily", "CRON_TZ=UTC 1", "a b c d e"]
    {
        check_shape(text, Shape::Cron);
    }
    for text in ["every 5m", "EVERY hour", "every"] {
        check_shape(text, Shape::Every);
    }
    for text in ["tomorrow", "5m", "0 4 * *", "everyday"] {
        check_shape(text, Shape::Unknown);
    }
    check_shape("", Shape::Empty);
    check_shape("  ", Shape::Empty);
}

#[test]
fn every_refusal_says_what_to_write() {
    for text in [
        "",
        "tomorrow",
        "HOURLY, +1 DAY",
        "FINISHED",
        "FINISHED, 1 DAY",
        "FINISHED , +1 DAY",
        "0 25 * * *",
        "0 4 * * FUNDAY",
        "@reboot",
        "TZ=Mars/Olympus 0 4 * * *",
        "TZ=Europe/Berlin",
        "every",
        "every 5",
        "every 5 parsecs",
        "every 1ms",
        "every 99999d",
    ] {
        let message = Repeat::parse(text).unwrap_err().to_string();
        assert!(message.contains("write ") && message.contains('`'), "{text:?}: {message}");
        assert!(message.starts_with(|c: char| c.is_lowercase() || c == '`'), "{text:?}: {message}");
    }
}

#[test]
fn a_long_wrong_text_is_shown_cut_and_on_one_line() {
    let message = Repeat::parse(&"x\n".repeat(5_000)).unwrap_err().to_string();
    assert!(message.len() < 300 && !message.contains('\n'), "{message}");
}

#[test]
fn the_text_is_kept_as_entered() {
    for text in [" finished, +1 day", "0  4 * * *", "Every 5 Minutes"] {
        assert_eq!(Repeat::parse(text).unwrap().text(), text);
    }
}

#[test]
fn a_rule_is_written_as_text_and_style_and_read_back() {
    let style = modifiers::Style { words: modifiers::Words::Snap, missed: modifiers::Missed::JumpOver };
    for rule in [
        Repeat::parse("HOURLY").unwrap(),
        Repeat::parse_styled("HOURLY", style).unwrap(),
        Repeat::parse("TZ=Europe/Berlin 0 4 * * *").unwrap(),
        Repeat::parse("every 5m").unwrap(),
    ] {
        let json = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<Repeat>(&json).unwrap(), rule, "{json}");
        let bytes = rmp_serde::to_vec(&rule).unwrap();
        assert_eq!(rmp_serde::from_slice::<Repeat>(&bytes).unwrap(), rule);
    }
    let json = serde_json::to_string(&Repeat::parse("every 5m").unwrap()).unwrap();
    assert_eq!(json, r#"{"text":"every 5m","style":{"words":"after_finish","missed":"catch_up"}}"#);
    assert!(serde_json::from_str::<Repeat>(r#"{"text":"HOURLY"}"#).is_ok());
    assert!(serde_json::from_str::<Repeat>(r#"{"text":"never"}"#).is_err());
}

#[test]
fn rules_of_different_style_are_different() {
    let style = modifiers::Style { words: modifiers::Words::Snap, ..Default::default() };
    assert_ne!(Repeat::parse("HOURLY").unwrap(), Repeat::parse_styled("HOURLY", style).unwrap());
}

#[track_caller]
fn check_upcoming(text: &str, at: &Moments, expected: &[&str]) {
    let runs = Repeat::parse(text).unwrap().upcoming(at, expected.len());
    let shown: Vec<String> = runs.iter().map(|run| run.to_string()).collect();
    assert_eq!(shown, expected, "{text}");
}

#[test]
fn upcoming_runs_follow_each_other() {
    let now = finished("2024-02-28T12:34:56Z");
    check_upcoming(
        "FINISHED, +1 DAY, START OF DAY, +4 HOURS",
        &now,
        &["2024-02-29T04:00:00.000Z", "2024-03-01T04:00:00.000Z", "2024-03-02T04:00:00.000Z"],
    );
    check_upcoming("STARTED, +1 MONTH", &now, &["2024-03-28T12:34:56.000Z", "2024-04-28T12:34:56.000Z"]);
    check_upcoming("0 4 29 2 *", &now, &["2024-02-29T04:00:00.000Z", "2028-02-29T04:00:00.000Z"]);
    check_upcoming("every 1h", &now, &["2024-02-28T13:34:56.000Z", "2024-02-28T14:34:56.000Z"]);
}

#[test]
fn upcoming_runs_that_are_overdue_count_as_begun_now() {
    let behind = Moments {
        scheduled: at("2024-02-28T10:00:00Z"),
        started: Some(at("2024-02-28T10:00:00Z")),
        finished: at("2024-02-28T12:30:00Z"),
    };
    check_upcoming(
        "SCHEDULED, +1 HOUR",
        &behind,
        &["2024-02-28T11:00:00.000Z", "2024-02-28T12:00:00.000Z", "2024-02-28T13:00:00.000Z"],
    );
    check_upcoming("every 1h", &behind, &["2024-02-28T13:00:00.000Z", "2024-02-28T14:00:00.000Z"]);
}

#[test]
fn a_rule_that_never_comes_again_has_no_upcoming_runs() {
    let now = finished("2024-02-28T12:00:00Z");
    assert_eq!(Repeat::parse("0 0 30 2 *").unwrap().upcoming(&now, 10), []);
    assert_eq!(Repeat::parse("* * 31 4,6 *").unwrap().next(&now), None);
    // The calendar ends with the year 9999.
    let late = finished("9999-06-01T00:00:00Z");
    assert_eq!(Repeat::parse("FINISHED, +300 DAYS").unwrap().next(&late), None);
    assert_eq!(Repeat::parse("every 300d").unwrap().next(&late), None);
    assert_eq!(Repeat::parse("0 0 1 1 *").unwrap().next(&late), None);
}

#[test]
fn missed_times_are_those_between_the_due_time_and_now() {
    let day = 86_400_000;
    for (rule, now, missed) in [
        ("every 5m", 0, 0),
        ("every 5m", 299_999, 0),
        ("every 5m", 300_000, 1),
        ("every 5m", 1_020_000, 3),
        ("every 100ms", day, MISSED_MAX),
        ("0 4 * * *", 4 * 3_600_000 - 1, 0),
        ("0 4 * * *", 4 * 3_600_000, 1),
        ("0 4 * * *", 3 * day, 3),
        ("* * * * *", day, MISSED_MAX),
        ("0 0 30 2 *", 9 * day, 0),
        ("FINISHED, +1 HOUR", 9 * day, 0),
        ("SCHEDULED, +1 HOUR", 9 * day, 0),
    ] {
        let rule = Repeat::parse(rule).unwrap();
        let missed_by = rule.missed(Timestamp::EPOCH, Timestamp::from_millis(now));
        assert_eq!(missed_by, missed, "{rule} at {now}");
    }
}
