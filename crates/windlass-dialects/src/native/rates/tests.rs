use super::*;

fn reading(at: Instant, pushed: u64) -> Reading {
    let time = Timestamp::from_millis(0);
    Reading {
        at,
        time,
        counts: [pushed, 0, 0, 0],
        pickup: Vec::new(),
        run: Vec::new(),
        queues: Queues::default(),
    }
}

#[test]
fn rates_are_over_the_last_minute_and_the_past_is_bounded() {
    let rates = Rates::default();
    let start = Instant::now();
    for step in 0..=1_000 {
        rates.keep(reading(start + EVERY * step, u64::from(step) * 50));
    }
    let now = start + EVERY * 1_000;
    assert_eq!(rates.at(now, [1_000 * 50, 0, 0, 0])[0], 10.0);
    assert_eq!(rates.readings.lock().len(), READINGS_MAX);
    assert_eq!(rates.recent().1, vec![[50, 0, 0, 0]; READINGS_MAX - 1]);
}

#[test]
fn nothing_happened_yet() {
    assert_eq!(Rates::default().at(Instant::now(), [5; 4]), PerSecond::default());
    assert_eq!(Rates::default().recent(), (None, vec![]));
}

#[test]
fn percentiles_lie_in_the_bucket_of_their_rank_and_count_only_what_is_new() {
    let before = vec![(1_000, 50), (2_000, 50), (u64::MAX, 50)];
    let now = vec![(1_000, 50), (2_000, 150), (u64::MAX, 150)];
    let Percentiles([half, most, _]) = percentiles(&before, &now).unwrap();
    assert_eq!((half, most), (1.5, 1.95));
    assert_eq!(percentiles(&now, &now), None);
    // Beyond the last bound, the bound is returned.
    let beyond = vec![(1_000, 0), (2_000, 0), (u64::MAX, 4)];
    assert_eq!(percentiles(&vec![(0, 0); 3], &beyond), Some(Percentiles([2.0; 3])));
}

#[test]
fn a_queue_that_shrinks_is_empty_some_day_and_one_that_does_not_is_not() {
    let flow = |pushed_per_s, claimed_per_s| Flow { pushed_per_s, claimed_per_s };
    assert_eq!(flow(1.0, 3.0).empties_in_ms(10), Some(5_000));
    assert_eq!(flow(1.0, 3.0).empties_in_ms(0), None);
    assert_eq!(flow(3.0, 3.0).empties_in_ms(10), None);
    assert_eq!(flow(3.0, 1.0).empties_in_ms(10), None);
}

#[test]
fn what_queues_were_like_is_forgotten_after_the_window() {
    let rates = Rates::default();
    let start = Instant::now();
    let queues: Queues = Arc::new([((Tenant::default(), Queue::default()), Traffic::default())].into());
    for step in 0..100 {
        rates.keep(Reading { queues: queues.clone(), ..reading(start + EVERY * step, 0) });
    }
    let kept = rates.readings.lock().iter().filter(|reading| !reading.queues.is_empty()).count();
    let in_window = WINDOW.as_secs() / EVERY.as_secs();
    assert!((in_window..=in_window + 3).contains(&(kept as u64)), "{kept}");
}
