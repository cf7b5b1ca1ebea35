use super::super::{Fault, Matcher, Subject};
use super::{subject, value};
use serde_json::{Value, json};

const ARGS: &str = r#"{"user":{"id":7,"name":"ann"},"host":"a.example","n":2.5,"neg":-2.5,"none":null,"ok":true,
    "list":[10,{"x":[1,2]}],"big":18446744073709551615,"odd":9007199254740993,"min":-9223372036854775808}"#;

/// Evaluates on a job "fetch.page" in queue "bulk" with priority 10 and the payload above.
#[track_caller]
fn check(matcher: &str, expected: bool) {
    let (matcher, args) = (Matcher::parse(&value(matcher)).unwrap(), value(ARGS));
    let subject = Subject { queue: "bulk", name: "fetch.page", priority: 10, args: &args };
    assert_eq!(matcher.matches(&subject), expected, "{matcher:?}");
}

#[track_caller]
fn check_arg(path: &str, op: &str, wanted: &str, expected: bool) {
    check(&format!(r#"{{"arg":{path},"op":"{op}","value":{wanted}}}"#), expected);
    check(&format!(r#"{{"parameter":{path},"op":"{op}","value":{wanted}}}"#), expected);
}

#[track_caller]
fn check_bad(matcher: &str, message: &str) {
    let bad = Matcher::parse(&value(matcher)).unwrap_err();
    assert_eq!(bad.to_string(), message, "{matcher}");
}

#[test]
fn name_queue_and_glob_look_at_the_address() {
    check(r#"{"name":"fetch.page"}"#, true);
    check(r#"{"name":"fetch.*"}"#, false);
    check(r#"{"name_glob":"fetch.*"}"#, true);
    check(r#"{"name_glob":"mail.*"}"#, false);
    check(r#"{"queue":"bulk"}"#, true);
    check(r#"{"queue":"Bulk"}"#, false);
}

#[test]
fn every_operator_compares_an_argument() {
    for (op, less, same, more) in [
        ("eq", false, true, false),
        ("ne", true, false, true),
        ("lt", true, false, false),
        ("le", true, true, false),
        ("gt", false, false, true),
        ("ge", false, true, true),
    ] {
        check_arg(r#"["user","id"]"#, op, "8", less);
        check_arg(r#"["user","id"]"#, op, "7", same);
        check_arg(r#"["user","id"]"#, op, "6", more);
        check_arg(r#"["host"]"#, op, r#""b""#, less);
        check_arg(r#"["host"]"#, op, r#""a.example""#, same);
        check_arg(r#"["host"]"#, op, r#""A""#, more);
    }
    check_arg(r#"["user","id"]"#, "in", "[1,7.0]", true);
    check_arg(r#"["user","id"]"#, "in", r#"[1,"7"]"#, false);
    check_arg(r#"["user","id"]"#, "in", "[]", false);
    check(r#"{"arg":["none"],"op":"exists"}"#, true);
    check_arg(r#"["none"]"#, "exists", "null", true);
    check_arg(r#"["nothing"]"#, "exists", "true", false);
}

#[test]
fn an_absent_path_differs_from_everything() {
    for path in [r#"["user","mail"]"#, r#"["host","x"]"#, r#"["list",9]"#, r#"["list","0"]"#, r#"["user",0]"#]
    {
        for (op, wanted, expected) in [
            ("eq", "null", false),
            ("ne", "null", true),
            ("ne", "7", true),
            ("lt", "7", false),
            ("le", "7", false),
            ("gt", "7", false),
            ("ge", "7", false),
            ("in", "[null,7]", false),
            ("exists", "true", false),
        ] {
            check_arg(path, op, wanted, expected);
        }
    }
}

#[test]
fn paths_go_through_lists_and_the_empty_path_is_everything() {
    check_arg(r#"["list",1,"x",0]"#, "eq", "1", true);
    check_arg(r#"["list",1]"#, "eq", r#"{"x":[1.0,2]}"#, true);
    check_arg(r#"["list",1]"#, "eq", r#"{"x":[1,2],"y":1}"#, false);
    check_arg("[]", "exists", "true", true);
    check_arg("[]", "eq", ARGS, true);
}

#[test]
fn null_and_booleans_equal_themselves_and_have_no_order() {
    check_arg(r#"["none"]"#, "eq", "null", true);
    check_arg(r#"["ok"]"#, "eq", "true", true);
    check_arg(r#"["ok"]"#, "eq", "1", false);
    check_arg(r#"["ok"]"#, "ge", "0", false);
    check_arg(r#"["host"]"#, "gt", "0", false);
}

#[test]
fn numbers_compare_exactly_however_they_are_written() {
    check_arg(r#"["n"]"#, "gt", "2", true);
    check_arg(r#"["n"]"#, "lt", "3", true);
    check_arg(r#"["n"]"#, "eq", "25e-1", true);
    check_arg(r#"["user","id"]"#, "eq", "7.0", true);
    // 2^53 + 1 is not a double; its nearest one is 2^53.
    check_arg(r#"["odd"]"#, "eq", "9007199254740992.0", false);
    check_arg(r#"["odd"]"#, "gt", "9007199254740992.0", true);
    check_arg(r#"["odd"]"#, "lt", "9007199254740994.0", true);
    check_arg(r#"["big"]"#, "eq", "18446744073709551615", true);
    check_arg(r#"["big"]"#, "gt", "18446744073709551614", true);
    check_arg(r#"["big"]"#, "lt", "18446744073709551616", true);
    check_arg(r#"["big"]"#, "gt", "-1", true);
    check_arg(r#"["min"]"#, "eq", "-9223372036854775808.0", true);
    check_arg(r#"["min"]"#, "gt", "-1e300", true);
    check_arg(r#"["min"]"#, "lt", "-9223372036854774784.0", true);
    check_arg(r#"["neg"]"#, "lt", "-2", true);
    check_arg(r#"["neg"]"#, "gt", "-3", true);
    check_arg(r#"["neg"]"#, "in", "[-2,-3]", false);
}

#[test]
fn priority_tests_must_all_hold() {
    check(r#"{"priority":{"ge":10}}"#, true);
    check(r#"{"priority":{"gt":10}}"#, false);
    check(r#"{"priority":{"ge":5,"lt":10.5}}"#, true);
    check(r#"{"priority":{"ge":5,"lt":10}}"#, false);
    check(r#"{"priority":{"in":[1,10]}}"#, true);
}

#[test]
fn conditions_combine() {
    check(r#"{"all":[]}"#, true);
    check(r#"{"any":[]}"#, false);
    check(r#"{"not":{"all":[]}}"#, false);
    check(r#"{"all":[{"name_glob":"fetch*"},{"arg":["host"],"op":"eq","value":"a.example"}]}"#, true);
    check(r#"{"all":[{"name_glob":"fetch*"},{"arg":["host"],"op":"eq","value":"b.example"}]}"#, false);
    check(r#"{"any":[{"name":"x"},{"not":{"queue":"x"}}]}"#, true);
}

#[test]
fn the_payload_is_needed_only_where_it_decides() {
    let check = |matcher: &str, needs_args: bool, unseen: Option<bool>| {
        let matcher = Matcher::parse(&value(matcher)).unwrap();
        assert_eq!(matcher.needs_args(), needs_args);
        assert_eq!(matcher.matches_unseen(&subject("mail", &Value::Null)), unseen);
    };
    check(r#"{"all":[{"name":"mail"},{"queue":"default"}]}"#, false, Some(true));
    check(r#"{"all":[{"name":"mail"},{"arg":["a"],"op":"exists"}]}"#, true, None);
    check(r#"{"all":[{"arg":["a"],"op":"exists"},{"name":"fetch"}]}"#, true, Some(false));
    check(r#"{"any":[{"arg":["a"],"op":"exists"},{"name":"mail"}]}"#, true, Some(true));
    check(r#"{"not":{"any":[{"arg":["a"],"op":"ne","value":1},{"name":"x"}]}}"#, true, None);
}

#[test]
fn a_malformed_matcher_says_where_and_what() {
    check_bad("null", "matcher: must be an object");
    check_bad("[]", "matcher: must be an object");
    check_bad("{}", "matcher: requires a condition: name, name_glob, queue, arg, priority, all, any or not");
    check_bad(r#"{"nmae":"x"}"#, r#"matcher: has an unknown condition or field "nmae""#);
    check_bad(r#"{"name":"x","op":"eq"}"#, r#"matcher: has an unknown condition or field "op""#);
    check_bad(
        r#"{"name":"x","queue":"y"}"#,
        "matcher: contains more than one condition (name and queue); combine them with all or any",
    );
    check_bad(r#"{"name":7}"#, "matcher/name: must be a string");
    check_bad(r#"{"name_glob":null}"#, "matcher/name_glob: must be a string");
    check_bad(r#"{"queue":[]}"#, "matcher/queue: must be a string");
    check_bad(r#"{"all":{}}"#, "matcher/all: must be a list of conditions");
    check_bad(r#"{"not":[{"name":"x"}]}"#, "matcher/not: must be an object");
    check_bad(r#"{"any":[{"name":"x"},{"not":{"name":1}}]}"#, "matcher/any/1/not/name: must be a string");
}

#[test]
fn a_malformed_comparison_says_where_and_what() {
    let path = r#"must be a path: a list of at most 16 keys, as in ["user", "id"]"#;
    check_bad(r#"{"arg":"a","op":"exists"}"#, &format!("matcher/arg: {path}"));
    check_bad(r#"{"parameter":[null],"op":"exists"}"#, &format!("matcher/parameter: {path}"));
    check_bad(r#"{"arg":[-1],"op":"exists"}"#, &format!("matcher/arg: {path}"));
    check_bad(r#"{"arg":["a"],"value":1}"#, r#"matcher: requires the field "op""#);
    check_bad(r#"{"arg":["a"],"op":1}"#, "matcher/op: must be the name of an operator");
    let operators = "use eq, ne, lt, le, gt, ge, in or exists";
    check_bad(
        r#"{"arg":["a"],"op":"==","value":1}"#,
        &format!(r#"matcher/op: has an unknown operator "=="; {operators}"#),
    );
    check_bad(r#"{"arg":["a"],"op":"eq"}"#, "matcher/value: must be given");
    check_bad(r#"{"arg":["a"],"op":"in","value":"a"}"#, "matcher/value: must be a list");
    check_bad(r#"{"arg":["a"],"op":"exists","value":false}"#, "matcher/value: must be absent or true");
    for op in ["lt", "le", "gt", "ge"] {
        let matcher = format!(r#"{{"arg":["a"],"op":"{op}","value":true}}"#);
        check_bad(&matcher, "matcher/value: must be a number or a string");
    }
    let object = r#"matcher/priority: must be an object of operators and numbers, as in {"ge": 10}"#;
    check_bad(r#"{"priority":10}"#, object);
    check_bad(r#"{"priority":{}}"#, object);
    check_bad(r#"{"priority":{"ge":"10"}}"#, "matcher/priority/ge: must be a number");
    check_bad(r#"{"priority":{"in":[1,"2"]}}"#, "matcher/priority/in: must be a number");
    check_bad(
        r#"{"priority":{"a/b":1}}"#,
        &format!(r#"matcher/priority/a~1b: has an unknown operator "a/b"; {operators}"#),
    );
    check_bad(
        r#"{"priority":{"exists":true}}"#,
        &format!(r#"matcher/priority: has an unknown operator "exists"; {operators}"#),
    );
}

#[test]
fn a_matcher_is_neither_deep_nor_large() {
    let nested = |levels: usize| (1..levels).fold(json!({"name": "x"}), |inner, _| json!({"not": inner}));
    let fault = |matcher: &Value| Matcher::parse(matcher).map(|_| ()).map_err(|bad| bad.fault);
    assert_eq!(fault(&nested(16)), Ok(()));
    assert_eq!(fault(&nested(17)), Err(Fault::TooDeep));
    let list = |levels: usize| (1..levels).fold(json!([]), |inner, _| json!([inner]));
    let eq = |wanted: Value| json!({"arg": [], "op": "eq", "value": wanted});
    assert_eq!(fault(&eq(list(16))), Ok(()));
    assert_eq!(fault(&eq(list(17))), Err(Fault::TooDeep));
    assert_eq!(fault(&json!({"any": vec![json!({"queue": "x"}); 512]})), Err(Fault::TooLarge));
    assert_eq!(fault(&json!({"any": vec![json!({"queue": "x"}); 511]})), Ok(()));
    assert_eq!(fault(&json!({"name": "x".repeat(64 * 1024)})), Ok(()));
    assert_eq!(fault(&json!({"name": "x".repeat(64 * 1024 + 1)})), Err(Fault::TooLarge));
    assert!(fault(&json!({"arg": vec!["a"; 17], "op": "exists"})).is_err());
}

#[test]
fn a_matcher_reads_back_as_it_was_written() {
    for matcher in [
        r#"{"name":"mail"}"#,
        r#"{"name_glob":"mail.*"}"#,
        r#"{"queue":"bulk"}"#,
        r#"{"arg":["user","id",0],"op":"in","value":[1,"a",null]}"#,
        r#"{"arg":["a"],"op":"exists"}"#,
        r#"{"priority":{"ge":10,"lt":20}}"#,
        r#"{"all":[{"any":[]},{"not":{"arg":[],"op":"ne","value":{"a":1.5}}}]}"#,
    ] {
        let parsed: Matcher = serde_json::from_str(matcher).unwrap();
        assert_eq!(serde_json::to_value(&parsed).unwrap(), value(matcher));
        let packed = rmp_serde::to_vec(&parsed).unwrap();
        assert_eq!(packed, rmp_serde::to_vec(&value(matcher)).unwrap());
        assert_eq!(rmp_serde::from_slice::<Matcher>(&packed).unwrap(), parsed);
    }
    let error = serde_json::from_str::<Matcher>(r#"{"any":[{}]}"#).unwrap_err();
    assert!(error.to_string().starts_with("matcher/any/0: requires a condition"), "{error}");
}
