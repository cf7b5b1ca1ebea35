use super::super::{Limit, Rate};
use super::{limit, subject, value};
use proptest::prelude::*;
use serde_json::{Value, json};

#[track_caller]
fn check_bad(id: &str, json: &str, message: &str) {
    assert_eq!(Limit::parse(id, &value(json)).unwrap_err().to_string(), message, "{json}");
}

#[test]
fn a_limit_is_read_in_the_words_of_its_clients() {
    let json = r#"{"id":"m","matcher":{"name":"mail"},"rate":{"per_second":2.0,"burst":3},
        "max_running":4,"group_by":[["user","id"],["list",0]]}"#;
    let limit = limit("m", json);
    assert_eq!(limit.rate, Some(Rate { per_second: 2.0, burst: 3 }));
    assert_eq!(limit.max_running, Some(4));
    assert_eq!(serde_json::to_value(&limit).unwrap(), value(json));
    assert_eq!(serde_json::from_str::<Limit>(json).unwrap(), limit);
    let packed = rmp_serde::to_vec(&limit).unwrap();
    assert_eq!(rmp_serde::from_slice::<Limit>(&packed).unwrap(), limit);
}

#[test]
fn null_is_absent_and_burst_defaults_to_a_second() {
    let burst =
        |rate: &str| limit("m", &format!(r#"{{"matcher":{{"all":[]}},"rate":{rate}}}"#)).rate.unwrap().burst;
    assert_eq!(burst(r#"{"per_second":0.2}"#), 1);
    assert_eq!(burst(r#"{"per_second":2.5,"burst":null}"#), 3);
    let limit = limit("m", r#"{"matcher":{"all":[]},"rate":null,"max_running":1,"group_by":null}"#);
    assert_eq!((limit.rate, limit.group_by), (None, vec![]));
}

#[test]
fn a_malformed_limit_says_what_is_wrong() {
    let id = "id must be a string of 1 to 255 bytes without control characters";
    let good = r#"{"matcher":{"all":[]},"max_running":1}"#;
    check_bad("", good, id);
    check_bad("a\u{1f}b", good, id);
    check_bad(&"x".repeat(256), good, id);
    check_bad("b", r#"{"id":"a","matcher":{}}"#, "id must be absent, or equal to the id in the path");
    check_bad("m", "[]", "a limit must be an object");
    check_bad("m", "{}", "matcher: must be an object");
    check_bad("m", r#"{"matcher":{"name":1}}"#, "matcher/name: must be a string");
    check_bad("m", r#"{"matcher":{"all":[]}}"#, "a limit requires rate, max_running or both");
    check_bad("m", r#"{"matcher":{"all":[]},"max_runing":1}"#, r#"unknown field "max_runing" in a limit"#);
    let whole = "must be a whole number from 1 to 4294967295";
    for bad in ["0", "-1", "1.5", "4294967296", r#""1""#] {
        let json = format!(r#"{{"matcher":{{"all":[]}},"max_running":{bad}}}"#);
        check_bad("m", &json, &format!("max_running {whole}"));
        let json = format!(r#"{{"matcher":{{"all":[]}},"rate":{{"per_second":1,"burst":{bad}}}}}"#);
        check_bad("m", &json, &format!("rate.burst {whole}"));
    }
    for bad in ["0", "-1", "1e-7", "1e7", r#""1""#, "null"] {
        let json = format!(r#"{{"matcher":{{"all":[]}},"rate":{{"per_second":{bad}}}}}"#);
        check_bad("m", &json, "rate.per_second must be a number from 0.000001 to 1000000");
    }
    check_bad("m", r#"{"matcher":{"all":[]},"rate":5}"#, "rate must be an object {per_second, burst}");
    for bad in [r#""host""#, r#"["host"]"#, "[[null]]", "[[],[],[],[],[],[],[],[],[]]"] {
        let json = format!(r#"{{"matcher":{{"all":[]}},"max_running":1,"group_by":{bad}}}"#);
        let message = r#"group_by must be a list of at most 8 paths, each a list of at most 16 keys, as in [["user","id"]]"#;
        check_bad("m", &json, message);
    }
}

#[test]
fn the_key_is_the_id_and_the_group_values() {
    let plain = limit("m", r#"{"matcher":{"name":"mail"},"max_running":1}"#);
    assert_eq!(plain.key_for(&subject("mail", &Value::Null)).as_deref(), Some("m"));
    assert_eq!(plain.key_for(&subject("other", &Value::Null)), None);
    assert!(!plain.needs_args());

    let grouped = limit("m", r#"{"matcher":{"name":"mail"},"max_running":1,"group_by":[["u"],["h",0]]}"#);
    assert!(grouped.needs_args());
    for (args, key) in [
        (r#"{"u":1,"h":["x"]}"#, "m\u{1f}1\u{1f}\"x\""),
        (r#"{"u":1.0,"h":["x\u001f"]}"#, "m\u{1f}1\u{1f}\"x\\u001f\""),
        (r#"{"u":-0.0,"h":[1.5]}"#, "m\u{1f}0\u{1f}1.5"),
        (r#"{"u":{"b":1,"a":[true,null]}}"#, "m\u{1f}{\"a\":[true,null],\"b\":1}\u{1f}"),
        (r#"{"u":""}"#, "m\u{1f}\"\"\u{1f}"),
        (r#"[1]"#, "m\u{1f}\u{1f}"),
    ] {
        assert_eq!(grouped.key_for(&subject("mail", &value(args))).unwrap(), key, "{args}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        (-3i32..3).prop_map(|n| json!(f64::from(n) / 2.0)),
        any::<u64>().prop_map(Value::from),
        "[a,\\[\\]\"\u{1f}1]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab\",]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn two_keys_are_equal_only_if_all_group_values_are(
        one in prop::collection::vec(prop::option::of(any_value()), 2),
        other in prop::collection::vec(prop::option::of(any_value()), 2),
    ) {
        let limit = limit("m", r#"{"matcher":{"all":[]},"max_running":1,"group_by":[["0"],["1"]]}"#);
        let key = |groups: &[Option<Value>]| {
            let present = groups.iter().enumerate().filter_map(|(at, v)| Some((at.to_string(), v.clone()?)));
            limit.key_for(&subject("x", &Value::Object(present.collect()))).unwrap()
        };
        let same = one.iter().zip(&other).all(|pair| match pair {
            (None, None) => true,
            (Some(a), Some(b)) => super::super::values::equal(a, b),
            (None, Some(_)) | (Some(_), None) => false,
        });
        prop_assert_eq!(key(&one) == key(&other), same);
        prop_assert_eq!(key(&one), key(&one.clone()));
    }
}
