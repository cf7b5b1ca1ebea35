use super::*;

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
}

#[test]
fn finishing_knows_no_delay() {
    assert!(settle_of(r#"{"id":1,"token":1,"outcome":"finish","delay_ms":5}"#).is_err());
    assert!(settle_of(r#"{"id":1,"token":1,"outcome":"release","delay_ms":-5}"#).is_err());
}
