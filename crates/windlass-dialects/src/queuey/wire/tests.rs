use super::*;

const RUNNER: &str = "019300fe-85c0-7abc-9def-0123456789ab";

fn fields(bad: Result<impl std::fmt::Debug, BadRequest>) -> String {
    match bad {
        Err(BadRequest::Fields(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_create_needs_a_binary_and_ignores_what_it_does_not_know() {
    let ask = create(br#"{"binary_addr":"a","more":[1,{"x":2}]}"#).unwrap();
    assert_eq!(ask, Create { binary_addr: "a".into(), input_addr: None });
    let ask = create(br#"{"input_addr":"i","binary_addr":"a"}"#).unwrap();
    assert_eq!(ask.input_addr.as_deref(), Some("i"));
    assert_eq!(create(br#"{"binary_addr":"a","input_addr":null}"#).unwrap().input_addr, None);
    assert!(fields(create(b"{}")).contains("binary_addr"));
    for body in [
        &br#"{"binary_addr":1}"#[..],
        br#"{"binary_addr":null}"#,
        br#"{"binary_addr":"a","input_addr":1}"#,
        b"1",
        b"null",
        br#"["a"]"#,
    ] {
        fields(create(body));
    }
    for body in [&b""[..], b"{", b"not json", b"{}x", b"\xff"] {
        assert!(matches!(create(body), Err(BadRequest::NotJson(_))), "{body:?}");
    }
    assert_eq!(create(br#"{"binary_addr":""}"#), Err(BadRequest::EmptyAddress { field: "binary_addr" }));
    let long = format!(r#"{{"binary_addr":"{}"}}"#, "x".repeat(ADDR_BYTES_MAX + 1));
    assert_eq!(create(long.as_bytes()), Err(BadRequest::LongAddress { field: "binary_addr" }));
}

#[test]
fn a_runner_is_a_uuid() {
    let ask = claim(format!(r#"{{"runner_id":"{}"}}"#, RUNNER.to_uppercase()).as_bytes()).unwrap();
    assert_eq!(ask.runner.to_string(), RUNNER);
    for body in ["{}", r#"{"runner_id":"bob"}"#, r#"{"runner_id":7}"#, r#"{"runner_id":null}"#] {
        fields(claim(body.as_bytes()));
    }
}

#[test]
fn a_tickle_needs_no_body_but_reads_one_that_names_the_runner() {
    for body in ["", "  ", "hello", "a=b"] {
        assert_eq!(tickle(body.as_bytes(), false), Ok(Tickle::default()), "{body:?}");
    }
    assert_eq!(tickle(b"", true), Ok(Tickle::default()));
    assert_eq!(tickle(b"{}", true), Ok(Tickle::default()));
    let named = format!(r#"{{"runner_id":"{RUNNER}"}}"#);
    for is_json in [true, false] {
        assert_eq!(tickle(named.as_bytes(), is_json), Ok(Tickle { runner: Uuid::parse(RUNNER) }));
    }
    assert!(matches!(tickle(b"hello", true), Err(BadRequest::NotJson(_))));
    fields(tickle(br#"{"runner_id":"bob"}"#, false));
}

#[test]
fn an_end_is_completed_or_failed_in_either_spelling() {
    for (status, end) in [
        ("completed", End::Completed),
        ("Completed", End::Completed),
        ("failed", End::Failed),
        ("Failed", End::Failed),
    ] {
        let ask = complete(format!(r#"{{"status":"{status}","output_addr":"o"}}"#).as_bytes()).unwrap();
        assert_eq!(ask, Complete { end, output_addr: Some("o".into()), runner: None });
    }
    assert_eq!(complete(br#"{"status":"failed"}"#).unwrap().output_addr, None);
    for status in [r#""pending""#, r#""active""#, r#""done""#, r#""COMPLETED""#, "null", "1"] {
        fields(complete(format!(r#"{{"status":{status}}}"#).as_bytes()));
    }
    fields(complete(br#"{"output_addr":"o"}"#));
}

#[test]
fn json_is_told_by_its_type() {
    for yes in
        ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/x+json"]
    {
        assert!(is_json(yes), "{yes}");
    }
    for no in ["", "text/plain", "text/json", "application/jsonp", "application/x-www-form-urlencoded"] {
        assert!(!is_json(no), "{no}");
    }
}
