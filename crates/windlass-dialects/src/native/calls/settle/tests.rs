use super::*;
use crate::codec::{self, Encoding};
use windlass_core::Payload;

#[test]
fn settle_entries_need_proof() {
    let read = |body: &'static str| codec::read::<SettleAsk<'_>>(Encoding::Json, body.as_bytes());
    let ask =
        read(r#"{"settle":[{"id":1,"token":65537,"outcome":"fail","error":"no","retry":false}]}"#).unwrap();
    assert_eq!(ask.settle[0].outcome, OutcomeWord::Fail);
    assert_eq!(ask.settle[0].error, Some(Raw::Json("\"no\"")));
    let missing = read(r#"{"settle":[{"id":1,"outcome":"finish"}]}"#).unwrap_err().to_string();
    assert!(missing.contains("missing field `token`"), "{missing}");
    let unknown = read(r#"{"settle":[{"id":1,"token":1,"outcome":"done"}]}"#).unwrap_err().to_string();
    assert!(unknown.contains("expected one of `finish`, `fail`, `release`"), "{unknown}");
}

fn settle_of(entry: &str) -> Result<Event, String> {
    let entry: SettleEntry<'_> = codec::read(Encoding::Json, entry.as_bytes()).map_err(|e| e.to_string())?;
    event(&entry, Timestamp::from_millis(1_000))
}

#[test]
fn a_failure_says_when_to_try_again() {
    let wish = |rest: &str| match settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"fail"{rest}}}"#)) {
        Ok(Event::Fail(failure)) => failure.retry,
        other => panic!("{other:?}"),
    };
    assert_eq!(wish(""), RetryWish::Policy);
    assert_eq!(wish(r#","delay_ms":50"#), RetryWish::At(Timestamp::from_millis(1_050)));
    assert_eq!(wish(r#","retry":false"#), RetryWish::Never);
    assert_eq!(wish(r#","retry":true"#), RetryWish::Policy);
}

#[test]
fn an_error_is_a_message_or_data() {
    let outcome = |rest: &str| match settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"fail"{rest}}}"#)) {
        Ok(Event::Fail(failure)) => failure.outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(r#","error":"no""#).message.as_deref(), Some("no"));
    assert_eq!(outcome(r#","error":{"a":1}"#).error, Some(Payload::json(r#"{"a":1}"#)));
    let both = outcome(r#","error":"no","message":"yes","code":"E1","exit_code":3"#);
    assert_eq!(
        (both.message.as_deref(), both.code.as_deref(), both.exit_code),
        (Some("yes"), Some("E1"), Some(3))
    );
    assert_eq!(both.error, Some(Payload::json("\"no\"")));
}

#[test]
fn finishing_knows_no_delay() {
    assert!(settle_of(r#"{"id":1,"token":1,"outcome":"finish","delay_ms":5}"#).is_err());
    assert!(settle_of(r#"{"id":1,"token":1,"outcome":"release","delay_ms":-5}"#).is_err());
}

/// Class, message, error and backtrace of a report.
type Parts = [Option<String>; 4];

fn parts_of(rest: &str) -> Parts {
    match settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"fail"{rest}}}"#)) {
        Ok(Event::Fail(failure)) => {
            let Outcome { class, message, error, backtrace, .. } = failure.outcome;
            [class, message, error.map(|it| String::from_utf8_lossy(&it.bytes).into_owned()), backtrace]
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_is_described_by_what_was_sent_else_by_its_error() {
    let object = r#"{"type":"Timeout","message":"slow","stack":"a\nb"}"#;
    let cases: [(&str, [Option<&str>; 4]); 10] = [
        ("", [None, None, None, None]),
        (r#","error":"Traceback""#, [None, Some("Traceback"), None, None]),
        (r#","message":"short","error":"Traceback""#, [None, Some("short"), Some(r#""Traceback""#), None]),
        (r#","class":"E","message":"m","backtrace":"a\nb""#, [Some("E"), Some("m"), None, Some("a\nb")]),
        (r#","backtrace":["a","b"]"#, [None, None, None, Some("a\nb")]),
        (r#","class":"","backtrace":[]"#, [None, None, None, None]),
        (&format!(r#","error":{object}"#), [Some("Timeout"), Some("slow"), Some(object), Some("a\nb")]),
        (
            &format!(r#","class":"Mine","message":"my own","error":{object}"#),
            [Some("Mine"), Some("my own"), Some(object), Some("a\nb")],
        ),
        (
            r#","error":{"name":"E","traceback":["x",{"line":1}]}"#,
            [Some("E"), None, Some(r#"{"name":"E","traceback":["x",{"line":1}]}"#), Some("x\n{\"line\":1}")],
        ),
        (r#","error":[1,2]"#, [None, None, Some("[1,2]"), None]),
    ];
    for (rest, expected) in cases {
        assert_eq!(parts_of(rest), expected.map(|text| text.map(str::to_owned)), "{rest}");
    }
}

#[test]
fn a_long_description_is_cut_and_not_refused() {
    let long = "x".repeat(100_000);
    let [class, message, error, backtrace] =
        parts_of(&format!(r#","class":"{long}","message":"{long}","error":"{long}","backtrace":"{long}""#));
    let lengths = [class, message, error, backtrace].map(|text| text.unwrap().len());
    assert!(lengths[0] == 255, "{lengths:?}");
    for (length, max) in lengths[1..].iter().zip([16 * 1024, 64 * 1024, 32 * 1024]) {
        assert!(*length <= max && *length > max - 64, "{lengths:?}");
    }
    let [_, message, error, _] = parts_of(&format!(r#","error":"{}""#, "y".repeat(20_000)));
    assert!(message.unwrap().contains("bytes left out") && error.unwrap().len() == 20_002);
}

#[test]
fn only_failures_have_a_class_and_a_backtrace() {
    for outcome in ["finish", "release"] {
        for rest in [r#""class":"E""#, r#""backtrace":"a""#] {
            let refused = settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"{outcome}",{rest}}}"#));
            assert!(refused.unwrap_err().contains("only with the outcome fail"));
        }
    }
}
