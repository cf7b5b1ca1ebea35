use super::super::{Gauge, Limit, Matcher, Rate, Verdict};
use super::at;
use proptest::prelude::*;

fn limit(rate: Option<(f64, u32)>, max_running: Option<u32>) -> Limit {
    let rate = rate.map(|(per_second, burst)| Rate { per_second, burst });
    Limit { id: "m".into(), matcher: Matcher::All(vec![]), rate, max_running, group_by: vec![] }
}

/// Starts as many jobs as may start at that moment.
fn start_all(gauge: &mut Gauge, ms: i64) -> usize {
    let mut started = 0;
    while gauge.may_start(at(ms)) == Verdict::Yes {
        gauge.start(at(ms));
        started += 1;
    }
    started
}

#[test]
fn two_a_second_with_burst_two_lets_six_pass_in_two_seconds() {
    let mut gauge = Gauge::full(&limit(Some((2.0, 2)), None), at(0));
    assert_eq!(start_all(&mut gauge, 0), 2);
    assert_eq!(gauge.may_start(at(0)), Verdict::NotBefore(at(500)));
    assert_eq!(gauge.may_start(at(499)), Verdict::NotBefore(at(500)));
    assert_eq!(start_all(&mut gauge, 500), 1);
    assert_eq!(start_all(&mut gauge, 1_250), 1);
    assert_eq!(gauge.may_start(at(1_250)), Verdict::NotBefore(at(1_500)));
    assert_eq!(start_all(&mut gauge, 2_000), 2);
    assert_eq!(start_all(&mut gauge, 1_000_000), 2);
}

#[test]
fn an_empty_gauge_starts_nothing_until_the_rate_has_earned_it() {
    let mut gauge = Gauge::empty(&limit(Some((0.5, 5)), None), at(10_000));
    assert_eq!(gauge.may_start(at(10_000)), Verdict::NotBefore(at(12_000)));
    assert_eq!(start_all(&mut gauge, 12_000), 1);
    assert_eq!(start_all(&mut gauge, 1_000_000), 5);
}

#[test]
fn fractions_add_up_however_often_the_gauge_is_asked() {
    for (per_second, expected_ms) in [(0.001, 1_000_000), (0.3, 3_334), (7.0, 143), (1e-6, 1_000_000_000)] {
        let mut gauge = Gauge::empty(&limit(Some((per_second, 1)), None), at(0));
        for ms in (1..=100).map(|step| expected_ms * step / 100 - 1) {
            assert_eq!(gauge.may_start(at(ms)), Verdict::NotBefore(at(expected_ms)), "{per_second} at {ms}");
        }
        assert_eq!(gauge.may_start(at(expected_ms)), Verdict::Yes, "{per_second}");
    }
}

#[test]
fn a_full_house_waits_for_an_end_and_then_for_the_rate() {
    let mut gauge = Gauge::full(&limit(Some((1.0, 2)), Some(2)), at(0));
    assert_eq!(start_all(&mut gauge, 0), 2);
    assert_eq!(gauge.may_start(at(0)), Verdict::WhenOneEnds);
    gauge.end();
    assert_eq!(gauge.may_start(at(0)), Verdict::NotBefore(at(1_000)));
    gauge.charge_running();
    gauge.charge_running();
    gauge.end();
    assert_eq!((gauge.running(), gauge.may_start(at(5_000))), (2, Verdict::WhenOneEnds));
}

#[test]
fn without_a_rate_only_the_places_count() {
    let mut gauge = Gauge::empty(&limit(None, Some(3)), at(0));
    assert_eq!(start_all(&mut gauge, 0), 3);
    gauge.give_back(at(0));
    assert_eq!(start_all(&mut gauge, 0), 1);
    assert!(!gauge.is_idle(at(0)));
    (0..3).for_each(|_| gauge.end());
    assert!(gauge.is_idle(at(0)));
    gauge.end();
    assert_eq!(gauge.running(), 0);
}

#[test]
fn a_clock_read_out_of_turn_earns_nothing_twice() {
    let mut gauge = Gauge::full(&limit(Some((1.0, 1)), None), at(0));
    assert_eq!(start_all(&mut gauge, 0), 1);
    for _ in 0..10 {
        assert_eq!(start_all(&mut gauge, 500), 0);
        assert_eq!(start_all(&mut gauge, 100), 0);
    }
    assert_eq!(start_all(&mut gauge, 999), 0);
    assert_eq!(start_all(&mut gauge, 1_000), 1);
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_the_gauge() {
    let mut gauge = Gauge::full(&limit(Some((1.0, 1)), None), at(100_000_000));
    assert_eq!(start_all(&mut gauge, 100_000_000), 1);
    assert_eq!(gauge.may_start(at(5_000)), Verdict::NotBefore(at(6_000)));
    assert_eq!(start_all(&mut gauge, 6_000), 1);
}

#[test]
fn a_changed_limit_keeps_what_runs_and_no_more_than_the_new_burst() {
    let mut gauge = Gauge::full(&limit(Some((1.0, 10)), None), at(0));
    gauge.start(at(0));
    gauge.adapt(&limit(Some((2.0, 3)), Some(1)), at(0));
    assert_eq!(gauge.may_start(at(0)), Verdict::WhenOneEnds);
    gauge.adapt(&limit(Some((2.0, 30)), None), at(0));
    assert_eq!((gauge.running(), start_all(&mut gauge, 0)), (1, 3));
    assert_eq!(gauge.may_start(at(0)), Verdict::NotBefore(at(500)));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(i64),
    Start,
    End,
    GiveBack,
}

fn any_steps(with_give_back: bool) -> impl Strategy<Value = Vec<Step>> {
    let give_back = if with_give_back { 2 } else { 0 };
    let step = prop_oneof![
        3 => prop_oneof![0i64..5, 0i64..3_000].prop_map(Step::Wait),
        6 => Just(Step::Start),
        2 => Just(Step::End),
        give_back => Just(Step::GiveBack),
    ];
    prop::collection::vec(step, 0..120)
}

fn any_rate() -> impl Strategy<Value = (f64, u32)> {
    (prop_oneof![0.001f64..1.0, 1.0f64..500.0], 1u32..8)
}

/// Plays the steps; yields every start (+1) and give-back (-1) with its time.
fn play(gauge: &mut Gauge, max_running: Option<u32>, steps: &[Step]) -> Vec<(i64, i64)> {
    let (mut now, mut moves) = (0, Vec::new());
    for step in steps {
        match step {
            Step::Wait(ms) => now += ms,
            Step::Start if gauge.may_start(at(now)) == Verdict::Yes => {
                gauge.start(at(now));
                moves.push((now, 1));
            }
            Step::GiveBack if gauge.running() > 0 => {
                gauge.give_back(at(now));
                moves.push((now, -1));
            }
            Step::End => gauge.end(),
            Step::Start | Step::GiveBack => {}
        }
        assert!(max_running.is_none_or(|max| gauge.running() <= max));
    }
    moves
}

proptest! {
    /// With give-backs: a job given back within a window may be started again within it.
    #[test]
    fn no_window_holds_more_starts_than_burst_and_rate_allow(
        (per_second, burst) in any_rate(),
        max_running in prop::option::of(1u32..5),
        steps in prop_oneof![any_steps(false), any_steps(true)],
        full in any::<bool>(),
    ) {
        let limit = limit(Some((per_second, burst)), max_running);
        let mut gauge = if full { Gauge::full(&limit, at(0)) } else { Gauge::empty(&limit, at(0)) };
        let moves = play(&mut gauge, max_running, &steps);
        for from in 0..moves.len() {
            let mut net = 0;
            for (ms, change) in &moves[from..] {
                net += change;
                let allowed = f64::from(burst) + per_second * (ms - moves[from].0) as f64 / 1e3 + 1e-6;
                prop_assert!(net as f64 <= allowed, "{net} > {allowed} in {moves:?}");
            }
        }
    }

    #[test]
    fn over_a_restart_no_window_holds_more_either(
        (per_second, burst) in any_rate(), before in any_steps(false), after in any_steps(false),
    ) {
        let limit = limit(Some((per_second, burst)), None);
        let mut moves = play(&mut Gauge::full(&limit, at(0)), None, &before);
        let stop: i64 = before.iter().map(|step| if let Step::Wait(ms) = step { *ms } else { 0 }).sum();
        let mut again = Gauge::empty(&limit, at(0));
        moves.extend(play(&mut again, None, &after).iter().map(|(ms, change)| (ms + stop, *change)));
        for from in 0..moves.len() {
            for to in from..moves.len() {
                let allowed = f64::from(burst) + per_second * (moves[to].0 - moves[from].0) as f64 / 1e3;
                prop_assert!((to - from + 1) as f64 <= allowed + 1e-6);
            }
        }
    }

    #[test]
    fn what_is_given_back_was_never_taken(
        (per_second, burst) in any_rate(), steps in any_steps(true), later in 0i64..5_000,
    ) {
        let mut gauge = Gauge::full(&limit(Some((per_second, burst)), None), at(0));
        play(&mut gauge, None, &steps);
        let now = at(1_000_000);
        let _ = gauge.may_start(now);
        let mut untouched = gauge.clone();
        if gauge.may_start(now) == Verdict::Yes {
            gauge.start(now);
            gauge.give_back(now.plus_ms(later));
        }
        prop_assert_eq!(untouched.may_start(now.plus_ms(later)), gauge.may_start(now.plus_ms(later)));
        prop_assert_eq!(untouched, gauge);
    }

    #[test]
    fn the_promised_moment_is_the_first_one(
        (per_second, burst) in any_rate(), steps in any_steps(true),
    ) {
        let mut gauge = Gauge::full(&limit(Some((per_second, burst)), None), at(0));
        play(&mut gauge, None, &steps);
        start_all(&mut gauge, 1_000_000);
        let Verdict::NotBefore(then) = gauge.may_start(at(1_000_000)) else { panic!("tokens are left") };
        prop_assert_eq!(gauge.clone().may_start(then.plus_ms(-1)), Verdict::NotBefore(then));
        prop_assert_eq!(gauge.may_start(then), Verdict::Yes);
    }
}
