use super::super::{BadLimit, Held, LIMITS_MAX, Limits, Tokens};
use super::{at, limit, subject, value};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn keys(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn table(limits: &[(&str, &str)]) -> Limits {
    let mut table = Limits::default();
    for (id, json) in limits {
        table.set(limit(id, json), at(0)).unwrap();
    }
    table
}

fn held(key: &str, until: Option<i64>) -> Result<(), Held> {
    Err(Held { key: key.into(), until: until.map(at) })
}

const MAIL_RATE: (&str, &str) = ("rate", r#"{"matcher":{"name":"mail"},"rate":{"per_second":2,"burst":2}}"#);
const MAIL_ONE: (&str, &str) = ("one", r#"{"matcher":{"name":"mail"},"max_running":1}"#);
const BY_HOST: (&str, &str) =
    ("host", r#"{"matcher":{"name":"fetch"},"rate":{"per_second":1,"burst":1},"group_by":[["host"]]}"#);

#[test]
fn a_job_has_the_keys_of_the_limits_about_it() {
    let table = table(&[MAIL_RATE, MAIL_ONE, BY_HOST]);
    let keys_for = |name, args: &str| table.keys_for(&subject(name, &value(args)));
    assert_eq!(keys_for("mail", "{}"), keys(&["one", "rate"]));
    assert_eq!(keys_for("fetch", r#"{"host":"a"}"#), keys(&["host\u{1f}\"a\""]));
    assert_eq!(keys_for("fetch", "null"), keys(&["host\u{1f}"]));
    assert_eq!(keys_for("other", "{}"), keys(&[]));
}

#[test]
fn the_payload_is_decoded_only_for_jobs_whose_limits_look_at_it() {
    let table = table(&[MAIL_RATE, BY_HOST]);
    assert!(!table.needs_args(&subject("mail", &Value::Null)));
    assert!(table.needs_args(&subject("fetch", &Value::Null)));
}

#[test]
fn a_job_without_limits_is_always_admitted() {
    let mut table = table(&[MAIL_RATE]);
    for _ in 0..100 {
        assert_eq!(table.admit(&[], at(0)), Ok(()));
    }
}

#[test]
fn all_keys_must_allow_or_nothing_is_taken() {
    let mut table = table(&[MAIL_RATE, MAIL_ONE]);
    let both = keys(&["rate", "one"]);
    assert_eq!(table.admit(&both, at(0)), Ok(()));
    for _ in 0..10 {
        assert_eq!(table.admit(&both, at(0)), held("one", None));
    }
    table.end(&both);
    assert_eq!(table.admit(&both, at(0)), Ok(()), "the token of the refused tries is still there");
    table.end(&both);
    assert_eq!(table.admit(&both, at(0)), held("rate", Some(500)));
    assert_eq!(table.admit(&keys(&["one"]), at(0)), Ok(()));
}

#[test]
fn groups_do_not_hold_each_other() {
    let mut table = table(&[BY_HOST]);
    let (a, b) = (keys(&["host\u{1f}\"a\""]), keys(&["host\u{1f}\"b\""]));
    assert_eq!(table.admit(&a, at(0)), Ok(()));
    assert_eq!(table.admit(&a, at(0)), held("host\u{1f}\"a\"", Some(1_000)));
    assert_eq!(table.admit(&b, at(0)), Ok(()));
}

#[test]
fn what_could_not_be_handed_out_holds_nobody() {
    let mut table = table(&[MAIL_RATE, MAIL_ONE]);
    let both = keys(&["rate", "one"]);
    for _ in 0..10 {
        assert_eq!(table.admit(&both, at(0)), Ok(()));
        table.give_back(&both, at(0));
    }
    assert_eq!(table.gauges(), 0);
}

#[test]
fn a_removed_limit_holds_nobody_and_its_keys_are_ignored() {
    let mut table = table(&[MAIL_ONE]);
    let one = keys(&["one"]);
    assert_eq!(table.admit(&one, at(0)), Ok(()));
    assert_eq!(table.admit(&one, at(0)), held("one", None));
    assert_eq!(table.remove("one").map(|limit| limit.id), Some("one".into()));
    assert_eq!(table.admit(&one, at(0)), Ok(()));
    table.end(&one);
    table.give_back(&one, at(0));
    table.charge_running(&one);
    assert_eq!((table.gauges(), table.is_empty(), table.remove("one")), (0, true, None));
}

#[test]
fn a_loaded_limit_earns_its_first_token_and_counts_what_runs() {
    let mut table = Limits::default();
    table.load(limit(BY_HOST.0, BY_HOST.1), at(10_000)).unwrap();
    table.load(limit(MAIL_ONE.0, MAIL_ONE.1), at(10_000)).unwrap();
    assert_eq!(table.admit(&keys(&["host\u{1f}1"]), at(10_200)), held("host\u{1f}1", Some(11_000)));
    assert_eq!(table.admit(&keys(&["host\u{1f}1"]), at(11_000)), Ok(()));
    assert_eq!(table.admit(&keys(&["host\u{1f}2"]), at(20_000)), Ok(()));
    table.charge_running(&keys(&["one"]));
    assert_eq!(table.admit(&keys(&["one"]), at(20_000)), held("one", None));
    table.end(&keys(&["one"]));
    assert_eq!(table.admit(&keys(&["one"]), at(20_000)), Ok(()));
}

#[test]
fn a_loaded_limit_works_after_the_clock_was_set_back() {
    let mut table = Limits::default();
    table.load(limit(BY_HOST.0, BY_HOST.1), at(100_000_000)).unwrap();
    assert_eq!(table.admit(&keys(&["host\u{1f}1"]), at(5_000)), held("host\u{1f}1", Some(6_000)));
    assert_eq!(table.admit(&keys(&["host\u{1f}1"]), at(6_000)), Ok(()));
}

#[test]
fn setting_a_limit_again_neither_refills_nor_forgets() {
    let mut table = table(&[MAIL_RATE]);
    let rate = keys(&["rate"]);
    assert_eq!(table.admit(&rate, at(0)).and(table.admit(&rate, at(0))), Ok(()));
    table.set(limit(MAIL_RATE.0, MAIL_RATE.1), at(0)).unwrap();
    assert_eq!(table.admit(&rate, at(0)), held("rate", Some(500)));
    table.set(limit("rate", r#"{"matcher":{"name":"mail"},"max_running":2}"#), at(0)).unwrap();
    assert_eq!(table.admit(&rate, at(0)), held("rate", None));
    table.set(limit("rate", r#"{"matcher":{"name":"mail"},"max_running":3}"#), at(0)).unwrap();
    assert_eq!(table.admit(&rate, at(0)), Ok(()));
}

#[test]
fn the_next_change_is_when_a_held_key_may_open() {
    let mut table = table(&[MAIL_RATE, MAIL_ONE, BY_HOST]);
    assert_eq!(table.next_change(at(0)), None);
    for (key, ms) in [("rate", 0), ("rate", 0), ("rate", 0), ("host\u{1f}1", 100), ("host\u{1f}1", 100)] {
        let _ = table.admit(&keys(&[key]), at(ms));
    }
    assert_eq!(table.next_change(at(100)), Some(at(500)));
    assert_eq!(table.next_change(at(500)), Some(at(1_100)));
    assert_eq!(table.next_change(at(1_100)), None);
    let _ = (table.admit(&keys(&["one"]), at(2_000)), table.admit(&keys(&["one"]), at(2_000)));
    assert_eq!(table.next_change(at(2_000)), None, "only an end opens it");
}

#[test]
fn idle_groups_take_no_room() {
    let mut table = table(&[BY_HOST, ("run", r#"{"matcher":{"all":[]},"max_running":1,"group_by":[[]]}"#)]);
    for n in 0..100_000i64 {
        let args = json!({ "host": n });
        let keys = table.keys_for(&subject("fetch", &args));
        assert_eq!((keys.len(), table.admit(&keys, at(n * 100))), (2, Ok(())));
        table.end(&keys);
        assert!(table.gauges() <= 65, "{}", table.gauges());
    }
}

#[test]
fn there_are_only_so_many_limits() {
    let mut table = Limits::default();
    for n in 0..LIMITS_MAX {
        table.set(limit(&n.to_string(), MAIL_ONE.1), at(0)).unwrap();
    }
    assert_eq!(table.set(limit("x", MAIL_ONE.1), at(0)), Err(BadLimit::TooMany { max: LIMITS_MAX }));
    table.set(limit("0", MAIL_RATE.1), at(0)).unwrap();
    assert_eq!((table.iter().count(), table.get("0").unwrap().max_running), (LIMITS_MAX, None));
}

proptest! {
    /// Dropping idle gauges changes no answer: a table that drops them answers like one gauge per key.
    #[test]
    fn the_table_answers_as_one_gauge_per_key_would(
        load in any::<bool>(),
        steps in prop::collection::vec((0usize..4, 0u8..3, 0i64..900), 0..200),
    ) {
        use super::super::{Gauge, Verdict};
        let json = r#"{"matcher":{"all":[]},"rate":{"per_second":3,"burst":2},"max_running":2,"group_by":[[]]}"#;
        let limit = limit("m", json);
        let mut table = Limits::default();
        let gauge = if load {
            table.load(limit.clone(), at(0)).unwrap();
            Gauge::empty(&limit, at(0))
        } else {
            table.set(limit.clone(), at(0)).unwrap();
            Gauge::full(&limit, at(0))
        };
        let mut gauges = vec![gauge; 4];
        let mut now = 0;
        for (group, action, wait_ms) in steps {
            now += wait_ms;
            let keys = table.keys_for(&subject("x", &Value::from(group)));
            let gauge = &mut gauges[group];
            match action {
                0 => {
                    let expected = match gauge.may_start(at(now)) {
                        Verdict::Yes => { gauge.start(at(now)); Ok(()) }
                        Verdict::NotBefore(then) => Err(Some(then)),
                        Verdict::WhenOneEnds => Err(None),
                    };
                    prop_assert_eq!(table.admit(&keys, at(now)).map_err(|held| held.until), expected);
                }
                1 => { gauge.end(); table.end(&keys) }
                _ if gauge.running() > 0 => { gauge.give_back(at(now)); table.give_back(&keys, at(now)) }
                _ => {}
            }
        }
    }
}

#[test]
fn servers_that_tell_each_other_of_a_limit_hold_it_together() {
    let mut servers = [table(&[MAIL_RATE, MAIL_ONE]), table(&[MAIL_RATE, MAIL_ONE])];
    let (rate, one) = (keys(&["rate"]), keys(&["one"]));
    // Two tables behave as one: tokens taken by the first are missing in the second.
    let (mut shared, mut started) = (None, 0);
    for turn in 0..6 {
        let server = &mut servers[turn % 2];
        server.adopt(&rate[0], 0, shared, at(0));
        started += i32::from(server.admit(&rate, at(0)).is_ok());
        let (tokens, full_at) = server.tokens("rate", at(0)).unwrap();
        assert_eq!(Tokens::from_bytes(&tokens.to_bytes()), Some(tokens), "as it is written");
        assert_eq!(full_at, at(500 * (1 + turn.min(1)) as i64));
        shared = Some(tokens);
    }
    assert_eq!(started, 2, "the burst, once");
    servers[0].adopt(&rate[0], 0, shared, at(700));
    assert_eq!(servers[0].admit(&rate, at(700)), Ok(()));
    assert_eq!(servers[0].admit(&rate, at(700)), held("rate", Some(1_000)));
    assert_eq!(servers[0].tokens("rate", at(60_000)), None, "a full bucket need not be told of");
    servers[1].adopt(&rate[0], 0, None, at(60_000));
    assert_eq!(servers[1].admit(&rate, at(60_000)), Ok(()));

    servers[0].adopt(&one[0], 1, None, at(0));
    assert_eq!(servers[0].admit(&one, at(0)), held("one", None), "it runs at the other one");
    servers[0].adopt(&one[0], 0, None, at(0));
    assert_eq!(servers[0].admit(&one, at(0)), Ok(()));
    assert_eq!(servers[0].tokens("one", at(0)), None, "there is no bucket");
    assert_eq!(Tokens::from_bytes(b"of another form"), None);
}

#[test]
fn a_bucket_that_was_written_with_the_clock_ahead_goes_on_by_the_right_time() {
    const HOUR_MS: i64 = 3_600_000;
    let (mut server, rate) = (table(&[MAIL_RATE]), keys(&["rate"]));
    let empty = |server: &mut Limits, now| {
        while server.admit(&rate, at(now)).is_ok() {}
        server.tokens("rate", at(now)).unwrap().0
    };
    let ahead = empty(&mut server, HOUR_MS);
    // Checks alone, however many, do not change the bucket: only a start writes it.
    for now in [0, 100, 10_000] {
        server.adopt(&rate[0], 0, Some(ahead), at(now));
        assert_eq!(server.admit(&rate, at(now)), Ok(()), "at {now}");
        assert_eq!(server.admit(&rate, at(now)), held("rate", Some(now + 500)), "at {now}: one, not a burst");
    }
    let written = server.tokens("rate", at(10_000)).unwrap().0;
    server.adopt(&rate[0], 0, Some(written), at(10_100));
    assert_eq!(server.admit(&rate, at(10_100)), held("rate", Some(10_500)));
    // Two servers that read the clock out of order are no such case.
    server.adopt(&rate[0], 0, Some(written), at(9_900));
    assert_eq!(server.admit(&rate, at(9_900)), held("rate", Some(10_500)));
}
