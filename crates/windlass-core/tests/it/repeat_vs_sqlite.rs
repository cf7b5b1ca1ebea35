//! Date modifiers against `DATETIME()` of the bundled SQLite.

use proptest::prelude::*;
use rusqlite::{Connection, params_from_iter};
use windlass_core::Timestamp;
use windlass_core::repeat::modifiers::{apply, parse_modifiers};

const FIRST_SECOND: i64 = -62_135_596_800; // 0001-01-01 00:00:00
const LAST_SECOND: i64 = 253_402_300_799; // 9999-12-31 23:59:59

thread_local! {
    static SQLITE: Connection = Connection::open_in_memory().unwrap();
}

/// Result of SQLite in seconds; `None` also for years before 1, which `Timestamp` does not support.
fn sqlite_apply(base: &str, modifiers: &[String]) -> Option<i64> {
    let mut date = base.to_string();
    // START OF HOUR is unknown to SQLite, so the modifiers between its occurrences are evaluated separately.
    let mut stretches = modifiers.split(|modifier| modifier == "START OF HOUR").peekable();
    while let Some(stretch) = stretches.next() {
        date = sqlite_text("DATETIME(", &date, stretch)?;
        if stretches.peek().is_some() {
            let hours = format!("+{} HOURS", sqlite_text("STRFTIME('%H', ", &date, &[])?);
            date = sqlite_text("DATETIME(", &date, &["START OF DAY".into(), hours])?;
        }
    }
    let seconds: i64 = sqlite_text("STRFTIME('%s', ", &date, &[])?.parse().unwrap();
    (FIRST_SECOND..=LAST_SECOND).contains(&seconds).then_some(seconds)
}

fn sqlite_text(call: &str, date: &str, modifiers: &[String]) -> Option<String> {
    let sql = format!("SELECT {call}?{})", ", ?".repeat(modifiers.len()));
    let values = std::iter::once(date).chain(modifiers.iter().map(String::as_str));
    SQLITE.with(|sqlite| {
        let mut statement = sqlite.prepare_cached(&sql).unwrap();
        statement.query_row(params_from_iter(values), |row| row.get(0)).unwrap()
    })
}

fn check(base: &str, modifiers: &[String]) -> Result<(), TestCaseError> {
    let moment: jiff::civil::DateTime = base.parse().unwrap();
    let at = moment.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
    let ours =
        apply(&parse_modifiers(&modifiers.join(", ")).unwrap(), Timestamp::from_millis(at.as_millisecond()));
    let ours = ours.map(|at| at.as_millis());
    prop_assert_eq!(ours, sqlite_apply(base, modifiers).map(|s| s * 1_000), "{} {:?}", base, modifiers);
    Ok(())
}

/// Date at which months, years and days begin or end as often as at all other dates together.
fn a_base() -> impl Strategy<Value = String> {
    let years = prop_oneof![4 => 1_i16..=9998, 1 => 1_i16..=5, 1 => 9990_i16..=9998, 4 => 1960_i16..=2110];
    let days = prop_oneof![Just(1_i8), Just(28), Just(29), Just(30), Just(31), 1_i8..=31];
    let hours = prop_oneof![Just(0_i8), Just(23), 0_i8..=23];
    (years, 1_i8..=12, days, hours, 0_i8..=59, 0_i8..=59, 0_i16..=999).prop_map(
        |(year, month, day, hour, minute, second, ms)| {
            let last = jiff::civil::date(year, month, 1).last_of_month().day();
            let day = day.min(last);
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}")
        },
    )
}

fn a_modifier() -> impl Strategy<Value = String> {
    let sign = prop_oneof![Just('+'), Just('-')];
    let unit = prop::sample::select(vec!["YEAR", "MONTH", "DAY", "HOUR", "MINUTE"]);
    let amount = prop_oneof![0_u32..=13, 0_u32..=999];
    let plural = prop_oneof![Just(""), Just("S")];
    prop_oneof![
        6 => (sign.clone(), amount, unit, plural).prop_map(|(sign, n, unit, s)| format!("{sign}{n} {unit}{s}")),
        1 => (sign, 0_u32..=99_999_999).prop_map(|(sign, n)| format!("{sign}{n} SECONDS")),
        2 => prop::sample::select(vec!["DAY", "MONTH", "YEAR", "HOUR"]).prop_map(|unit| format!("START OF {unit}")),
        2 => (0..=6).prop_map(|day| format!("WEEKDAY {day}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn modifiers_agree(base in a_base(), modifiers in prop::collection::vec(a_modifier(), 1..6)) {
        check(&base, &modifiers)?;
    }

    #[test]
    fn walking_off_the_end_of_the_calendar_agrees(
        days in prop::collection::vec(prop_oneof![Just("+999 DAYS"), Just("-999 DAYS"), Just("+1 MONTH"),
            Just("WEEKDAY 0"), Just("START OF MONTH"), Just("-11 HOURS"), Just("+1 YEAR"), Just("-999 YEARS")], 1..9),
        base in prop_oneof![Just("9998-12-31 12:00:00"), Just("0001-01-01 00:00:00"), Just("9999-11-30 23:59:59")],
    ) {
        let modifiers: Vec<String> = days.into_iter().map(String::from).collect();
        check(base, &modifiers)?;
    }
}

#[test]
fn days_from_all_over_the_calendar_agree() {
    // Every fifth day, which covers all weekdays and days of the month; one statement for all of them.
    let days = (LAST_SECOND - FIRST_SECOND) / 86_400;
    let month = parse_modifiers("+1 MONTH").unwrap();
    let start_of_year = parse_modifiers("START OF YEAR, WEEKDAY 3").unwrap();
    SQLITE.with(|sqlite| {
        let mut statement = sqlite
            .prepare(
                "WITH RECURSIVE s(at) AS (SELECT ?1 UNION ALL SELECT at + 86400 * 5 FROM s LIMIT ?2)
                 SELECT at, unixepoch(at, 'unixepoch', '+1 month'),
                        unixepoch(at, 'unixepoch', 'start of year', 'weekday 3') FROM s",
            )
            .unwrap();
        let mut rows = statement.query((FIRST_SECOND, days / 5)).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let at = Timestamp::from_millis(row.get::<_, i64>(0).unwrap() * 1_000);
            let seconds = |at: Option<Timestamp>| at.map(|at| at.as_millis() / 1_000);
            assert_eq!(seconds(apply(&month, at)), row.get(1).unwrap(), "{at} +1 month");
            let wednesday = seconds(apply(&start_of_year, at));
            assert_eq!(wednesday, row.get(2).unwrap(), "{at} start of year, weekday 3");
        }
    });
}
