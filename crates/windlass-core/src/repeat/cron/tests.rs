use super::*;
use crate::repeat::tests::{at, finished};

/// First ticks after `from`, each written with the UTC offset of its expected value.
#[track_caller]
fn check(rule: &str, from: &str, expected: &[&str]) {
    let cron = Cron::parse(rule).unwrap();
    let mut now = from.to_string();
    for tick in expected {
        let next = cron.next(&finished(&now)).map(|next| next.to_string());
        assert_eq!(next, Some(at(tick).to_string()), "{rule} after {now}");
        now = tick.to_string();
    }
}

#[test]
fn fields_are_numbers_ranges_steps_lists_and_names() {
    check("0 4 * * *", "2024-05-15T04:00:00Z", &["2024-05-16T04:00:00Z", "2024-05-17T04:00:00Z"]);
    check("*/20 * * * *", "2024-05-15T23:30:00Z", &["2024-05-15T23:40:00Z", "2024-05-16T00:00:00Z"]);
    check("0 9-17/4 * * *", "2024-05-15T10:00:00Z", &["2024-05-15T13:00:00Z", "2024-05-15T17:00:00Z"]);
    check("5/25 * * * *", "2024-05-15T10:06:00Z", &["2024-05-15T10:30:00Z", "2024-05-15T10:55:00Z"]);
    check("0 0 1,15 JAN,jul *", "2024-05-15T10:06:00Z", &["2024-07-01T00:00:00Z", "2024-07-15T00:00:00Z"]);
    check("0 0 * * mon-FRI", "2024-05-17T10:00:00Z", &["2024-05-20T00:00:00Z"]);
}

#[test]
fn six_fields_begin_with_seconds() {
    check("*/30 * * * * *", "2024-05-15T10:59:29.999Z", &["2024-05-15T10:59:30Z", "2024-05-15T11:00:00Z"]);
    check("15 30 4 * * *", "2024-05-15T04:30:15Z", &["2024-05-16T04:30:15Z"]);
}

#[test]
fn a_tick_is_strictly_after_now_and_after_the_scheduled_time() {
    check("0 * * * *", "2024-05-15T10:59:59.999Z", &["2024-05-15T11:00:00Z"]);
    check("0 * * * *", "2024-05-15T11:00:00.001Z", &["2024-05-15T12:00:00Z"]);
    let cron = Cron::parse("0 * * * *").unwrap();
    let behind = Moments { scheduled: at("2024-05-01T00:00:00Z"), ..finished("2024-05-15T11:30:00Z") };
    assert_eq!(cron.next(&behind), Some(at("2024-05-15T12:00:00Z")));
    let early = Moments { scheduled: at("2024-05-15T11:00:00Z"), ..finished("2024-05-15T10:30:00Z") };
    assert_eq!(cron.next(&early), Some(at("2024-05-15T12:00:00Z")));
}

#[test]
fn sunday_is_zero_and_seven_and_may_end_a_range() {
    // 2024-05-19 was a Sunday.
    for days in ["0", "7", "SUN", "sun,7"] {
        check(
            &format!("0 0 * * {days}"),
            "2024-05-15T00:00:00Z",
            &["2024-05-19T00:00:00Z", "2024-05-26T00:00:00Z"],
        );
    }
    for days in ["6-7", "SAT-SUN", "6-0"] {
        check(
            &format!("0 0 * * {days}"),
            "2024-05-15T00:00:00Z",
            &["2024-05-18T00:00:00Z", "2024-05-19T00:00:00Z", "2024-05-25T00:00:00Z"],
        );
    }
    check("0 0 * * MON/3", "2024-05-15T00:00:00Z", &["2024-05-16T00:00:00Z", "2024-05-20T00:00:00Z"]);
}

#[test]
fn when_both_days_are_given_either_is_enough() {
    check(
        "0 0 13 * FRI",
        "2024-09-05T00:00:00Z",
        &["2024-09-06T00:00:00Z", "2024-09-13T00:00:00Z", "2024-09-20T00:00:00Z"],
    );
    check("0 0 17 * FRI", "2024-09-14T00:00:00Z", &["2024-09-17T00:00:00Z", "2024-09-20T00:00:00Z"]);
}

#[test]
fn a_day_field_that_begins_with_a_star_does_not_count_as_given() {
    // Odd days that are Fridays, not odd days and Fridays.
    check("0 0 */2 * FRI", "2024-09-01T00:00:00Z", &["2024-09-13T00:00:00Z", "2024-09-27T00:00:00Z"]);
}

#[test]
fn l_is_the_last_day_of_the_month() {
    check("0 0 L * *", "2024-01-31T00:00:00Z", &["2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"]);
    check("0 0 15,l * *", "2023-02-01T00:00:00Z", &["2023-02-15T00:00:00Z", "2023-02-28T00:00:00Z"]);
    check("0 0 L * MON", "2024-04-23T00:00:00Z", &["2024-04-29T00:00:00Z", "2024-04-30T00:00:00Z"]);
    assert!(Cron::parse("0 0 * L *").is_err());
}

#[test]
fn at_words_stand_for_rules() {
    for (word, tick) in [
        ("@hourly", "2024-05-15T11:00:00Z"),
        ("@daily", "2024-05-16T00:00:00Z"),
        ("@Midnight", "2024-05-16T00:00:00Z"),
        ("@weekly", "2024-05-19T00:00:00Z"),
        ("@monthly", "2024-06-01T00:00:00Z"),
        ("@yearly", "2025-01-01T00:00:00Z"),
        ("@annually", "2025-01-01T00:00:00Z"),
        ("TZ=Asia/Tokyo @daily", "2024-05-16T00:00:00+09"),
    ] {
        check(word, "2024-05-15T10:30:00Z", &[tick]);
    }
}

#[test]
fn rare_days_are_found_and_impossible_ones_are_not() {
    check("0 0 29 2 *", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    // 29 February on a Sunday, across a century without a leap day: the longest possible wait.
    check("0 0 29 2 */7", "2088-03-01T00:00:00Z", &["2128-02-29T00:00:00Z"]);
    check("* * 29 2 */7", "2088-03-01T00:00:00Z", &["2128-02-29T00:00:00Z", "2128-02-29T00:01:00Z"]);
    for rule in ["0 0 30 2 *", "* * 30 2 *", "TZ=Europe/Berlin * * 31 4 *", "TZ=Europe/Berlin 0 2 31 4 *"] {
        assert_eq!(Cron::parse(rule).unwrap().next(&finished("2024-01-01T00:00:00Z")), None, "{rule}");
    }
}

#[test]
fn a_zone_moves_the_rule_to_its_clock() {
    check("TZ=Europe/Berlin 0 4 * * *", "2024-01-10T12:00:00Z", &["2024-01-11T03:00:00Z"]);
    check("CRON_TZ=Europe/Berlin 0 4 * * *", "2024-07-10T12:00:00Z", &["2024-07-11T02:00:00Z"]);
    check("TZ=America/New_York 0 0 1 * *", "2024-01-01T04:59:59Z", &["2024-01-01T05:00:00Z"]);
    check("TZ=Asia/Kolkata 0 * * * *", "2024-01-01T00:00:00Z", &["2024-01-01T00:30:00Z"]);
}

#[test]
fn a_time_that_is_skipped_runs_once_at_the_end_of_the_gap() {
    // Berlin goes from 02:00 to 03:00 on 2024-03-31, New York on 2024-03-10.
    check(
        "TZ=Europe/Berlin 30 2 * * *",
        "2024-03-30T00:00:00+01",
        &["2024-03-30T02:30:00+01", "2024-03-31T03:00:00+02", "2024-04-01T02:30:00+02"],
    );
    check(
        "TZ=America/New_York 0 2 * * *",
        "2024-03-09T12:00:00-05",
        &["2024-03-10T03:00:00-04", "2024-03-11T02:00:00-04"],
    );
    // Several ticks in the gap, and one at its very end, become one tick.
    check(
        "TZ=Europe/Berlin */15 2,3 * * *",
        "2024-03-31T01:59:59+01",
        &["2024-03-31T03:00:00+02", "2024-03-31T03:15:00+02"],
    );
    check(
        "TZ=Europe/Berlin 0 */2 * * *",
        "2024-03-31T01:00:00+01",
        &["2024-03-31T03:00:00+02", "2024-03-31T04:00:00+02"],
    );
}

#[test]
fn a_time_that_comes_twice_runs_the_first_time() {
    // Berlin goes back from 03:00 to 02:00 on 2024-10-27, New York from 02:00 to 01:00 on 2024-11-03.
    check(
        "TZ=Europe/Berlin 30 2 * * *",
        "2024-10-27T00:00:00+02",
        &["2024-10-27T02:30:00+02", "2024-10-28T02:30:00+01"],
    );
    check(
        "TZ=America/New_York 30 1 * * *",
        "2024-11-03T00:00:00-04",
        &["2024-11-03T01:30:00-04", "2024-11-04T01:30:00-05"],
    );
    // From within the second pass.
    check("TZ=Europe/Berlin 30 2 * * *", "2024-10-27T02:10:00+01", &["2024-10-28T02:30:00+01"]);
    check("TZ=Europe/Berlin * * 2 * * *", "2024-10-27T02:59:59+02", &["2024-10-28T02:00:00+01"]);
}

#[test]
fn a_rule_for_every_hour_goes_by_real_time() {
    check(
        "TZ=Europe/Berlin 30 * * * *",
        "2024-10-27T01:30:00+02",
        &["2024-10-27T02:30:00+02", "2024-10-27T02:30:00+01", "2024-10-27T03:30:00+01"],
    );
    check(
        "TZ=Europe/Berlin 30 * * * *",
        "2024-03-31T01:00:00+01",
        &["2024-03-31T01:30:00+01", "2024-03-31T03:30:00+02"],
    );
    check(
        "TZ=America/New_York */30 0-23 * * *",
        "2024-11-03T01:15:00-04",
        &[
            "2024-11-03T01:30:00-04",
            "2024-11-03T01:00:00-05",
            "2024-11-03T01:30:00-05",
            "2024-11-03T02:00:00-05",
        ],
    );
    check("TZ=America/New_York @hourly", "2024-03-10T01:00:00-05", &["2024-03-10T03:00:00-04"]);
}

#[test]
fn a_gap_at_midnight_or_of_a_whole_day_is_bridged() {
    // Sao Paulo skipped 00:00 to 01:00 on 2018-11-04; Samoa skipped all of 2011-12-30.
    check("TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T12:00:00-03", &["2018-11-04T01:00:00-02"]);
    check(
        "TZ=Pacific/Apia 0 4 30 12 *",
        "2011-12-01T00:00:00Z",
        &["2011-12-31T00:00:00+14", "2012-12-30T04:00:00+14"],
    );
}

#[test]
fn what_is_no_cron_rule_says_why() {
    #[track_caller]
    fn check(rule: &str, message: &str) {
        let error = Cron::parse(rule).unwrap_err().to_string();
        assert!(error.starts_with(message), "{rule:?}: {error}");
    }
    check("0 4 * *", "a cron rule has five fields");
    check("TZ=UTC", "a cron rule has five fields");
    check("60 4 * * *", "`60` is not a valid minute; write 0 to 59, for example `*/5`");
    check("0 24 * * *", "`24` is not a valid hour");
    check("0 0 0 * *", "`0` is not a valid day of the month; write 1 to 31 or L for the last");
    check("0 0 * 13 *", "`13` is not a valid month; write 1 to 12 or JAN to DEC");
    check("0 0 * * 8", "`8` is not a valid day of the week; write 0 to 7 or SUN to SAT");
    check("+5 0 * * *", "`+5` is not a valid minute");
    check("1,,2 0 * * *", "`` is not a valid minute");
    check("* * ? * MON", "`?` is not a valid day of the month");
    check("0 22-2 * * *", "the hour range `22-2` runs backwards");
    check("*/0 * * * *", "`0` is not a step for a minute");
    check("*/x * * * *", "`x` is not a step for a minute");
    check("@every 5m", "`@every 5m` is not a known schedule; write @hourly");
    check("TZ=Mars/Olympus 0 4 * * *", "`Mars/Olympus` is not a known time zone");
}

/// Reference implementation that checks every minute: slow, and simple enough to verify by reading.
fn next_by_scanning(cron: &Cron, after: jiff::Timestamp, minutes_max: i64) -> Option<jiff::Timestamp> {
    let minute = SignedDuration::from_mins(1);
    let matches = |wall: DateTime| {
        cron.months.has(wall.month())
            && cron.has_day(wall.date())
            && cron.hours.has(wall.hour())
            && cron.minutes.has(wall.minute())
    };
    let real_time = cron.hours.is_full(&HOUR);
    (1..=minutes_max).map(|n| after + minute * n as i32).find(|&moment| {
        let wall = cron.zone.to_datetime(moment);
        let first = cron.zone.to_timestamp(wall).unwrap() == moment;
        let skipped_from = cron.zone.to_datetime(moment - minute) + minute;
        let mut skipped = (0..).map(|n| skipped_from + minute * n).take_while(|skipped| *skipped < wall);
        matches(wall) && (real_time || first) || !real_time && skipped.any(matches)
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn jumping_ahead_finds_what_scanning_finds(
        minute in "(0|30|\\*/7|\\*/15|5,59|10-20/5)",
        hour in "(\\*|0|1|2|3|\\*/2|1-3|2,23)",
        day in "(\\*|\\*|L|31|1|\\*/2|10,27)",
        month in "(\\*|\\*|3|10,11|\\*/3)",
        weekday in "(\\*|\\*|0|MON-FRI|\\*/2|7)",
        zone in "(UTC|Europe/Berlin|America/New_York|Australia/Lord_Howe)",
        day_of_year in proptest::prop_oneof![0_i64..366, 66_i64..72, 88_i64..93, 275_i64..310],
        minute_of_day in 0_i64..1_440,
    ) {
        const MINUTES_MAX: i64 = 5 * 1_440;
        let cron = Cron::parse(&format!("TZ={zone} {minute} {hour} {day} {month} {weekday}")).unwrap();
        let minutes = day_of_year * 1_440 + minute_of_day;
        let now = at("2024-01-01T00:00:00Z").plus_ms(minutes * 60_000);
        let after = jiff::Timestamp::from_millisecond(now.as_millis()).unwrap();
        let found = cron.next(&Moments { scheduled: now, started: None, finished: now });
        let found = found.map(|tick| jiff::Timestamp::from_millisecond(tick.as_millis()).unwrap());
        let limit = after + SignedDuration::from_mins(MINUTES_MAX);
        let expected = next_by_scanning(&cron, after, MINUTES_MAX);
        proptest::prop_assert_eq!(found.filter(|tick| *tick <= limit), expected, "{:?} after {}", cron, after);
    }
}
