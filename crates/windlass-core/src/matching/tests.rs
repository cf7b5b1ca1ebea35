use super::*;

#[track_caller]
fn check(pattern: &str, matching: &[&str], others: &[&str]) {
    let glob = Glob::new(pattern);
    for text in matching {
        assert!(glob.matches(text), "{pattern:?} should match {text:?}");
    }
    for text in others {
        assert!(!glob.matches(text), "{pattern:?} should not match {text:?}");
    }
}

#[test]
fn literals_match_themselves_and_case_counts() {
    check("mail", &["mail"], &["Mail", "mai", "mails", ""]);
    check("", &[""], &["a"]);
    check("]^-", &["]^-"], &["]"]);
}

#[test]
fn a_star_is_any_run_and_a_question_mark_one_character() {
    check("*", &["", "a", "ünïcode"], &[]);
    check("mail/*", &["mail/", "mail/send"], &["mail", "email/send"]);
    check("*/send", &["/send", "a/b/send"], &["send", "/sends"]);
    check("a*b*c", &["abc", "aXbbbYc", "abcbc"], &["ab", "abcd"]);
    check("?", &["a", "ü", "日"], &["", "ab"]);
    check("*?", &["a", "ab"], &[""]);
    check("a?*?c", &["axxc", "axyzc"], &["axc", "ac"]);
}

#[test]
fn sets_hold_characters_and_ranges() {
    check("[a-c]x", &["ax", "cx"], &["dx", "x", "a"]);
    check("[^a-c]", &["d", "ü", "^"], &["a", "c", ""]);
    check("[α-ω]", &["β"], &["a"]);
    check("[z-a]", &["z"], &["a", "m"]);
    check("[*?[]", &["*", "?", "["], &["a"]);
    check("*[0-9]", &["7", "v7"], &["", "v", "7v"]);
}

#[test]
fn a_closing_bracket_in_first_place_is_a_member() {
    check("[]]", &["]"], &["a", ""]);
    check("[^]]", &["a"], &["]"]);
    check("[]-a]", &["]", "-", "a"], &["^", "`"]);
}

#[test]
fn a_dash_is_itself_at_the_edges_of_a_set_and_after_a_range() {
    check("[-a]", &["-", "a"], &["b"]);
    check("[a-]", &["-", "a"], &["b"]);
    check("[a-c-e]", &["b", "-", "e"], &["d"]);
    check("[^-]", &["a"], &["-"]);
}

#[test]
fn an_unterminated_set_matches_nothing() {
    for pattern in ["[", "[a", "[^", "[]", "[^]", "[a-", "*[a", "x[a-"] {
        check(pattern, &[], &["", "[", "a", "]", "x", "xa", pattern]);
    }
}

#[test]
fn a_nul_ends_pattern_and_text() {
    check("a\0b", &["a", "a\0c"], &["ab", "a b"]);
}

#[test]
fn a_hostile_pattern_is_not_exponential() {
    let text = "a".repeat(5_000);
    check(&"*a".repeat(200), &[&text], &[]);
    check(&format!("{}*b", "*a".repeat(200)), &[], &[&text]);
    check(&format!("{}[b]", "*[a]".repeat(200)), &[], &[&text]);
}

#[test]
fn the_literal_prefix_ends_before_the_first_special_character() {
    for (pattern, prefix) in
        [("mail/*", "mail/"), ("*", ""), ("mail", "mail"), ("a[b]", "a"), ("ü?", "ü"), ("a\0b", "a")]
    {
        assert_eq!(Glob::new(pattern).literal_prefix(), prefix, "{pattern:?}");
    }
}

#[test]
fn only_stars_are_everything() {
    assert!(Glob::new("*").is_everything());
    assert!(Glob::new("***").is_everything());
    for pattern in ["", "*a", "a*", "*?", "?"] {
        assert!(!Glob::new(pattern).is_everything(), "{pattern:?}");
    }
}

#[test]
fn a_name_match_is_the_cheapest_that_says_it() {
    assert_eq!(NameMatch::glob("**"), NameMatch::Any);
    assert_eq!(NameMatch::glob("mail"), NameMatch::Exact("mail".into()));
    assert_eq!(NameMatch::glob(""), NameMatch::Exact("".into()));
    assert_eq!(NameMatch::glob("m?il"), NameMatch::Glob(Glob::new("m?il")));
    assert_eq!(NameMatch::glob("]x"), NameMatch::Exact("]x".into()));
}

#[test]
fn a_name_match_matches_by_its_kind() {
    assert!(NameMatch::Any.matches("x"));
    assert!(NameMatch::Exact("a*".into()).matches("a*"));
    assert!(!NameMatch::Exact("a*".into()).matches("ab"));
    let either = NameMatch::OneOf(vec!["a".into(), "b".into()]);
    assert!(either.matches("b") && !either.matches("c"));
    assert!(NameMatch::glob("a*").matches("ab"));
}

#[test]
fn patterns_are_written_as_their_text_and_read_back() {
    let glob = Glob::new("mail/[a-c]*");
    let text = serde_json::to_string(&glob).unwrap();
    assert_eq!(text, r#""mail/[a-c]*""#);
    assert_eq!(serde_json::from_str::<Glob>(&text).unwrap(), glob);

    for name in
        [NameMatch::Any, NameMatch::glob("a"), NameMatch::glob("a*"), NameMatch::OneOf(vec!["a".into()])]
    {
        let text = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<NameMatch>(&text).unwrap(), name, "{text}");
        let bytes = rmp_serde::to_vec(&name).unwrap();
        assert_eq!(rmp_serde::from_slice::<NameMatch>(&bytes).unwrap(), name);
    }
}

#[test]
fn none_of_takes_every_other_name() {
    let but = NameMatch::NoneOf(vec!["mail".into(), "m*".into()]);
    assert!(!but.matches("mail") && but.matches("mails") && but.matches("more"));
    assert!(NameMatch::NoneOf(vec![]).matches("mail"));
}
