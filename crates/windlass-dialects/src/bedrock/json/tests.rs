use super::*;

#[test]
fn only_strict_objects_pass() {
    for good in ["{}", "{ }", r#" {"a":{"b":[1,2.50,"x\"y"]}} "#] {
        assert!(is_object(good), "{good}");
    }
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for bad in ["", "[]", "1", r#"{"a":1"#, r#"{"a":01}"#, r#"{"a":"x"y"}"#, "{} {}", "{'a':1}", &deep] {
        assert!(!is_object(bad), "{bad}");
    }
}

#[test]
fn spaces_go_but_not_those_in_texts() {
    assert_eq!(minified("{ \"a b\" : [ 1 ,\n\t2 ], \"c\":\"x \\\" y\" }"), r#"{"a b":[1,2],"c":"x \" y"}"#);
}

#[test]
fn members_are_found_whatever_they_hold() {
    let object = r#"{"a":"x,y","b":{"c":[1,{"d":"}"}]},"e\"f":"\\","g":[]}"#;
    let found = members(object);
    let values: Vec<(String, &str)> = found.iter().map(|m| (m.name().into_owned(), m.value)).collect();
    let expected = [("a", r#""x,y""#), ("b", r#"{"c":[1,{"d":"}"}]}"#), ("e\"f", r#""\\""#), ("g", "[]")];
    assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(composed(found.into_iter()), object);
    assert_eq!(members("{}"), []);
    assert_eq!(elements(r#"[{"a":[1,2]},"x,y",3]"#), [r#"{"a":[1,2]}"#, r#""x,y""#, "3"]);
}

#[test]
fn a_member_is_set_in_its_place_and_removed_alone() {
    assert_eq!(with(r#"{"a": 1, "b": 2}"#, "a", "3"), r#"{"a":3,"b":2}"#);
    assert_eq!(with("{}", "n", "1"), r#"{"n":1}"#);
    assert_eq!(without(r#"{"a": 1.50, "b": 2}"#, "b"), r#"{"a":1.50}"#);
    assert_eq!(get(r#"{"a":1,"a":2}"#, "a"), Some("2"));
}

/// Examples of RFC 7396, appendix A, that concern objects.
#[test]
fn merging_follows_the_rfc() {
    for (target, patch, result) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":"foo"}"#, r#"{"b":{"c":null,"d":1}}"#, r#"{"a":"foo","b":{"d":1}}"#),
    ] {
        assert_eq!(merged(target, patch), result, "{target} + {patch}");
    }
}

#[test]
fn a_text_becomes_the_type_it_looks_like() {
    for (text, json) in [
        ("123", "123"),
        ("-5", "-5"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", r#""9223372036854775808""#),
        ("1.5", r#""1.5""#),
        ("007", r#""007""#),
        ("-0", r#""-0""#),
        ("1e5", r#""1e5""#),
        ("+1", r#""+1""#),
        ("TRUE", "true"),
        ("null", "null"),
        ("[1]", "[1]"),
        ("[1", r#""[1""#),
        (r#"{"a":1}"#, r#"{"a":1}"#),
        ("", r#""""#),
        ("a/b\n\u{1}\"\\", r#""a\/b\n\u0001\"\\""#),
    ] {
        assert_eq!(guessed(text), json, "{text:?}");
    }
}
