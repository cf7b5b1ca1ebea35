use super::*;

#[test]
fn only_the_last_thirty_days_are_shown_and_gaps_are_nothing() {
    let now = Timestamp::from_millis(1_000_000 * HOUR_MS + 5);
    let hours = BTreeMap::from([(1, [9; 4]), (999_998, [1, 2, 3, 4]), (1_000_000, [1; 4])]);
    let (from, step_ms, steps) = last_hours(&hours, now);
    assert_eq!((from.as_millis(), step_ms), (999_998 * HOUR_MS, HOUR_MS));
    assert_eq!(steps, [[1, 2, 3, 4], [0; 4], [1; 4]]);
    let full: BTreeMap<i64, Counts> = (0..=1_000_000).step_by(10).map(|hour| (hour, [1; 4])).collect();
    assert!(last_hours(&full, now).2.len() <= HOURS_MAX as usize);
}

#[test]
fn a_day_that_cannot_be_read_is_empty() {
    assert_eq!(read_day(b"[1,2"), [[0; 4]; 24]);
    let mut day = [[0; 4]; 24];
    day[3] = [1, 2, 3, 4];
    assert_eq!(read_day(&serde_json::to_vec(&day).unwrap()), day);
}
