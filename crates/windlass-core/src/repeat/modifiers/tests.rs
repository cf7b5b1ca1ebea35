use super::*;
use crate::repeat::tests::{at, finished};

const SNAP: Style = Style { words: Words::Snap, missed: Missed::JumpOver };

#[track_caller]
fn check(text: &str, moments: &Moments, style: Style, expected: &str) {
    let next = Schedule::parse(text, style).unwrap().next(moments);
    assert_eq!(next.map(|next| next.to_string()), Some(at(expected).to_string()), "{text}");
}

#[track_caller]
fn check_apply(from: &str, modifiers: &str, expected: Option<&str>) {
    let next = apply(&parse_modifiers(modifiers).unwrap(), at(from));
    assert_eq!(next.map(|t| t.to_string()), expected.map(|t| at(t).to_string()), "{from} {modifiers}");
}

#[test]
fn the_base_is_what_the_rule_counts_from() {
    let moments = Moments {
        scheduled: at("2024-01-01T01:00:00Z"),
        started: Some(at("2024-01-01T02:00:00Z")),
        finished: at("2024-01-01T03:00:00Z"),
    };
    check("SCHEDULED, +1 DAY", &moments, Style::default(), "2024-01-02T01:00:00Z");
    check("STARTED, +1 DAY", &moments, Style::default(), "2024-01-02T02:00:00Z");
    check("FINISHED, +1 DAY", &moments, Style::default(), "2024-01-02T03:00:00Z");
    let never_started = Moments { started: None, ..moments };
    check("STARTED, +1 DAY", &never_started, Style::default(), "2024-01-02T03:00:00Z");
}

#[test]
fn the_examples_of_the_documentation_hold() {
    // 2024-05-15 was a Wednesday.
    let now = finished("2024-05-15T13:14:15Z");
    check("FINISHED, +1 DAY, START OF DAY, +4 HOURS", &now, Style::default(), "2024-05-16T04:00:00Z");
    check(
        "FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS",
        &now,
        Style::default(),
        "2024-05-20T06:00:00Z",
    );
}

#[test]
fn words_count_from_the_finish_by_default() {
    let now = finished("2024-05-15T13:14:15.678Z");
    check("HOURLY", &now, Style::default(), "2024-05-15T14:14:15Z");
    check("daily", &now, Style::default(), "2024-05-16T13:14:15Z");
    check("Weekly", &now, Style::default(), "2024-05-22T13:14:15Z");
}

#[test]
fn words_snap_when_asked_to() {
    let now = finished("2024-05-15T13:14:15.678Z");
    check("HOURLY", &now, SNAP, "2024-05-15T14:00:00Z");
    check("DAILY", &now, SNAP, "2024-05-16T00:00:00Z");
    check("WEEKLY", &now, SNAP, "2024-05-19T00:00:00Z");
    // On a Sunday the next one is a week away.
    check("WEEKLY", &finished("2024-05-19T08:00:00Z"), SNAP, "2024-05-26T00:00:00Z");
}

#[test]
fn a_scheduled_rule_that_fell_behind_catches_up_slot_by_slot() {
    let behind = Moments { scheduled: at("2024-05-15T10:00:00Z"), ..finished("2024-05-15T13:14:15Z") };
    check("SCHEDULED, +10 MINUTES", &behind, Style::default(), "2024-05-15T10:10:00Z");
}

#[test]
fn a_plain_interval_under_four_hours_jumps_over_missed_slots_when_asked_to() {
    let behind = Moments { scheduled: at("2024-05-15T00:00:07.5Z"), ..finished("2024-05-15T13:14:15Z") };
    check("SCHEDULED, +10 MINUTES", &behind, SNAP, "2024-05-15T13:20:07Z");
    check("SCHEDULED, +1 HOUR, -30 MINUTES", &behind, SNAP, "2024-05-15T13:30:07Z");
    check("SCHEDULED, +239 MINUTES", &behind, SNAP, "2024-05-15T15:56:07Z");
    // Interval too long, snapping, zero or negative: no slot is skipped.
    check("SCHEDULED, +4 HOURS", &behind, SNAP, "2024-05-15T04:00:07Z");
    check("SCHEDULED, +1 HOUR, START OF HOUR", &behind, SNAP, "2024-05-15T01:00:00Z");
    check("SCHEDULED, +0 SECONDS", &behind, SNAP, "2024-05-15T00:00:07Z");
    check("SCHEDULED, -1 HOUR", &behind, SNAP, "2024-05-14T23:00:07Z");
    // Other bases do not fall behind.
    let started_late = Moments { started: Some(at("2024-05-15T01:00:00Z")), ..behind };
    check("STARTED, +10 MINUTES", &started_late, SNAP, "2024-05-15T01:10:00Z");
}

#[test]
fn a_slot_that_is_due_just_now_is_jumped_over_too() {
    let due = Moments { scheduled: at("2024-05-15T10:00:00Z"), ..finished("2024-05-15T11:00:00Z") };
    check("SCHEDULED, +1 HOUR", &due, SNAP, "2024-05-15T12:00:00Z");
    let just_past = Moments { finished: at("2024-05-15T11:00:00.999Z"), ..due };
    check("SCHEDULED, +1 HOUR", &just_past, SNAP, "2024-05-15T12:00:00Z");
    let almost = Moments { finished: at("2024-05-15T10:59:59.999Z"), ..due };
    check("SCHEDULED, +1 HOUR", &almost, SNAP, "2024-05-15T11:00:00Z");
}

#[test]
fn modifiers_move_dates_as_sqlite_does() {
    check_apply("2024-01-31T10:00:00Z", "+1 MONTH", Some("2024-03-02T10:00:00Z"));
    check_apply("2024-01-31T10:00:00Z", "+ 1 MONTH, - 2 HOURS", Some("2024-03-02T08:00:00Z"));
    check_apply("2023-01-31T10:00:00Z", "+1 MONTH", Some("2023-03-03T10:00:00Z"));
    check_apply("2024-02-29T00:00:00Z", "+1 YEAR", Some("2025-03-01T00:00:00Z"));
    check_apply("2024-03-31T00:00:00Z", "-1 MONTH", Some("2024-03-02T00:00:00Z"));
    check_apply("2024-01-15T00:00:00Z", "-13 MONTHS", Some("2022-12-15T00:00:00Z"));
    check_apply("2024-05-15T13:14:15Z", "START OF MONTH", Some("2024-05-01T00:00:00Z"));
    check_apply("2024-05-15T13:14:15Z", "START OF YEAR", Some("2024-01-01T00:00:00Z"));
    check_apply("2024-05-15T13:14:15Z", "START OF HOUR", Some("2024-05-15T13:00:00Z"));
    check_apply("2024-05-15T13:14:15Z", "WEEKDAY 3", Some("2024-05-15T13:14:15Z"));
    check_apply("2024-05-15T13:14:15Z", "WEEKDAY 2", Some("2024-05-21T13:14:15Z"));
    check_apply("1969-12-31T23:59:59.999Z", "START OF HOUR", Some("1969-12-31T23:00:00Z"));
    check_apply("2024-05-15T13:14:15.999Z", "+0 SECONDS", Some("2024-05-15T13:14:15Z"));
    check_apply("2024-05-15T13:14:15Z", "+99999999 SECONDS", Some("2027-07-16T23:00:54Z"));
}

#[test]
fn a_date_may_leave_the_calendar_only_between_modifiers() {
    check_apply("9999-12-30T00:00:00Z", "+5 DAYS", None);
    check_apply("9999-12-30T00:00:00Z", "+5 DAYS, -5 DAYS", Some("9999-12-30T00:00:00Z"));
    check_apply("9999-12-30T00:00:00Z", "+5 DAYS, START OF DAY, -5 DAYS", None);
    check_apply("9999-12-30T00:00:00Z", "+1 YEAR, -1 YEAR", None);
    check_apply("0001-01-01T00:00:00Z", "-1 SECOND", None);
    check_apply("0001-01-01T00:00:00Z", "-1 YEAR, +1 YEAR", Some("0001-01-01T00:00:00Z"));
}

#[test]
fn spaces_go_before_a_part_and_empty_parts_are_ignored() {
    for text in ["FINISHED,+1 HOUR", " FINISHED,   +1 hour,", "finished,, +1 Hours,,"] {
        check(text, &finished("2024-05-15T13:00:00Z"), Style::default(), "2024-05-15T14:00:00Z");
    }
}

#[test]
fn what_the_grammar_does_not_know_is_refused() {
    for text in
        ["", "FINISHED", "FINISHED,", "HOURLY ", "FINISHED , +1 HOUR", "YESTERDAY, +1 HOUR", "DAILY, +1 HOUR"]
    {
        assert!(Schedule::parse(text, Style::default()).is_err(), "{text:?}");
    }
    for part in [
        "1 HOUR",
        "+1HOUR",
        "+1  HOUR",
        "+  1 HOUR",
        "+ +1 HOUR",
        "+ 1000 HOURS",
        "+1 HOUR ",
        "+1000 HOURS",
        "+ HOURS",
        "++1 HOURS",
        "+1 HOURSS",
        "+1 WEEK",
        "+1.5 HOURS",
        "+100000000 SECONDS",
        "START OF WEEK",
        "START OF",
        "START  OF DAY",
        "WEEKDAY 7",
        "WEEKDAY -1",
        "WEEKDAY",
        "WEEKDAY 1.0",
        "WEEKDAY ٣",
        "LOCALTIME",
    ] {
        assert_eq!(parse_modifiers(part), Err(BadModifiers::Modifier { part: part.into() }));
    }
}

#[test]
fn start_of_hour_is_for_repeat_rules_only() {
    assert!(parse_modifiers("START OF HOUR").is_ok());
    assert_eq!(parse_sqlite_modifiers("+1 DAY, start of hour"), Err(BadModifiers::StartOfHour));
    assert_eq!(parse_sqlite_modifiers("+1 DAY, start of day"), parse_modifiers("+1 DAY, START OF DAY"));
    assert_eq!(parse_sqlite_modifiers(""), Err(BadModifiers::NoModifier));
}

#[test]
fn the_number_of_modifiers_is_limited() {
    assert!(parse_modifiers(&"+1 DAY,".repeat(MODIFIERS_MAX)).is_ok());
    assert_eq!(parse_modifiers(&"+1 DAY,".repeat(MODIFIERS_MAX + 1)), Err(BadModifiers::TooManyModifiers));
}
