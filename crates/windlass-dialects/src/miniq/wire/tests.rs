use super::*;
use proptest::prelude::*;

#[test]
fn empty_lines_and_comments_are_no_jobs() {
    let check = |body: &str, expected: &[&str]| {
        let found = payloads(body.as_bytes()).unwrap();
        let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
        assert_eq!(found, expected, "{body:?}");
    };
    check("a\nb\n", &["a", "b"]);
    check("a\nb", &["a", "b"]);
    check("", &[]);
    check("\n\n\n", &[]);
    check("# one\n#two\na\n", &["a"]);
    check("a\r\nb\r", &["a\r", "b\r"]);
    check(" # indented\nx|y|z\n", &[" # indented", "x|y|z"]);
    assert!(payloads(&b"x\n".repeat(LINES_MAX)).is_ok());
    assert_eq!(payloads(&b"x\n".repeat(LINES_MAX + 1)), Err(BadLine::TooManyLines(LINES_MAX + 1)));
}

#[test]
fn names_that_could_be_taken_for_something_else_are_refused() {
    for good in ["acme", "a", "A_1.b", "default"] {
        assert!(client(good).is_ok(), "{good}");
    }
    for bad in
        ["", "a|b", "a/b", "a,b", "a\nb", "a-b", "api", "queue.sysid", "jobs", "a b", "ä", &"x".repeat(65)]
    {
        assert!(client(bad).is_err(), "{bad}");
    }
    for good in ["resize", "resize.v2", "a-b-c", "größe", "with space", &"x".repeat(200)] {
        assert!(jobtype(good).is_ok(), "{good}");
    }
    for bad in ["", "a|b", "a/b", "a,b", "a\nb", "a\rb", "a\0b", &"x".repeat(201)] {
        assert!(jobtype(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_delay_is_seconds_and_a_dt_is_a_time() {
    let now = Timestamp::from_millis(1_000);
    let at = |ms: i64| Ok(Some(Timestamp::from_millis(ms)));
    assert_eq!(when(None, None, now), Ok(None));
    assert_eq!(when(Some("1.5"), None, now), at(2_500));
    assert_eq!(when(Some("0"), None, now), at(1_000));
    assert_eq!(when(None, Some("1970-01-01T00:00:07Z"), now), at(7_000));
    assert_eq!(when(None, Some("1970-01-01T01:00:07+01:00"), now), at(7_000));
    for bad in ["-1", "x", "", "NaN", "1e300", "inf"] {
        assert_eq!(when(Some(bad), None, now), Err(BadLine::When), "{bad}");
    }
    assert_eq!(when(None, Some("tomorrow"), now), Err(BadLine::When));
    assert_eq!(when(Some("1"), Some("1970-01-01T00:00:07Z"), now), Err(BadLine::When));
}

#[test]
fn a_handler_is_a_json_object_or_a_text_in_the_language_of_the_method() {
    let json = br#"{"eid":"e","lang":"node","body":"x","before":"b","beforeEach":"be","afterEach":"ae",
        "options":{"next":"thumb"},"color":"red"}"#;
    let full = handler(json, Some("http")).unwrap();
    assert_eq!((full.eid.as_deref(), full.lang.as_str(), full.body.as_str()), (Some("e"), "node", "x"));
    assert_eq!((full.before_each.as_deref(), full.after_each.as_deref()), (Some("be"), Some("ae")));
    assert_eq!(full.next(), Some("thumb"));
    assert!(!serde_json::to_string(&full).unwrap().contains("color"));
    let raw = handler(b"http://127.0.0.1:9/x", Some("http")).unwrap();
    assert_eq!((raw.lang.as_str(), raw.body.as_str()), ("http", "http://127.0.0.1:9/x"));
    assert_eq!(handler(br#"{"body":"x"}"#, Some("sh")).unwrap().lang, "sh");
    // Not an object, so a program.
    assert_eq!(handler(b"[1]", Some("node")).unwrap().body, "[1]");
}

#[test]
fn a_handler_without_language_or_body_is_refused() {
    for bad in [
        r#"{"lang":"sh"}"#,
        r#"{"body":"x"}"#,
        r#"{"lang":"","body":"x"}"#,
        r#"{"lang":"sh","body":""}"#,
        "text",
        "",
        "{}",
    ] {
        assert_eq!(handler(bad.as_bytes(), None), Err(BadLine::LangAndBody), "{bad}");
    }
    assert!(matches!(handler(br#"{"lang":1,"body":"x"}"#, None), Err(BadLine::Handler(_))));
    assert!(matches!(handler(br#"{"lang":"sh","body":"x","options":3}"#, None), Err(BadLine::Handler(_))));
    assert!(matches!(handler(&vec![b'x'; HANDLER_BYTES_MAX + 1], Some("sh")), Err(BadLine::LongHandler(_))));
}

#[test]
fn the_type_of_a_line_is_read_back_as_it_was_written() {
    let check = |text: &str| assert_eq!(LineKind::parse(text).unwrap().text(), text);
    check("acme-resize");
    check("acme-b-c");
    check("acme-resize,dt=1763200000000");
    check("acme-resize,dt=-5,base64");
    for bad in ["", "acme", "-x", "acme-", "acme-x,", "acme-x,dt=", "acme-x,dt=y", "acme-x,zip", "api-x"] {
        assert!(LineKind::parse(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_payload_with_newlines_survives_the_journal(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        match journaled(&payload) {
            Some(text) => {
                prop_assert!(!text.contains(&b'\n'));
                prop_assert_eq!(unjournaled(&text).unwrap(), payload);
            }
            None => prop_assert!(!payload.contains(&b'\n')),
        }
    }

    #[test]
    fn no_two_clients_and_types_share_a_full_type(a in "[a-z.]{1,3}", b in "[a-z-]{1,5}", c in "[a-z.]{1,3}", d in "[a-z-]{1,5}") {
        let full = |client_text: &str, type_text: &str| Some(full_type(&client(client_text).ok()?, &jobtype(type_text).ok()?));
        if let (Some(one), Some(other)) = (full(&a, &b), full(&c, &d)) {
            prop_assert_eq!(one == other, a == c && b == d);
        }
    }

    #[test]
    fn whatever_is_sent_is_understood_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = handler(&body, Some("sh"));
        let _ = payloads(&body);
        let _ = LineKind::parse(&String::from_utf8_lossy(&body));
    }
}
