use super::*;
use windlass_core::KeepFor;

fn pushed(body: &str) -> Result<Vec<Push>, ApiError> {
    let asked = wire::push(Encoding::Json, body.as_bytes())?;
    pushes(&asked.jobs, asked.single)
}

fn one(body: &str) -> Push {
    pushed(body).unwrap_or_else(|e| panic!("{body}: {}", e.message)).remove(0)
}

fn refused(body: &str, why: &str) {
    let message = pushed(body).expect_err(body).message;
    assert!(message.contains(why), "{body}: {message}");
}

#[test]
fn what_is_not_asked_for_is_default() {
    let push = one(r#"{"name":"a"}"#);
    assert_eq!(push.queue, Queue::default());
    assert_eq!(push.payload, Payload::default());
    assert_eq!(*push.policy, Policy::default());
    assert_eq!(push.run_at, RunAt::Now);
    assert!(push.extras.is_none() && push.body.is_none());
}

#[test]
fn equal_neighbours_share_texts_and_policy() {
    let pushes = pushed(
        r#"{"jobs":[{"name":"a","queue":"q","retry":3},{"name":"a","queue":"q","retry":3},
            {"name":"a","queue":"q","retry":4},{"name":"b"},{"name":"b"}]}"#,
    )
    .unwrap();
    let same_text = |a: &str, b: &str| std::ptr::eq(a, b);
    assert!(same_text(&pushes[0].name, &pushes[1].name));
    assert!(same_text(&pushes[0].queue, &pushes[1].queue));
    assert!(Arc::ptr_eq(&pushes[0].policy, &pushes[1].policy));
    assert!(!Arc::ptr_eq(&pushes[1].policy, &pushes[2].policy));
    assert_eq!(pushes[2].policy.retry.max_attempts, Some(4));
    assert!(same_text(&pushes[3].name, &pushes[4].name));
    assert!(Arc::ptr_eq(&pushes[3].policy, &one(r#"{"name":"z"}"#).policy), "the default is shared by all");
}

#[test]
fn everything_that_can_be_asked_arrives() {
    let push = one(
        r#"{"name":"a","delay_ms":5,"lease_ms":1000,"repeat":"every 5m","parent":7,"alias":"x","tags":["t"],
            "retry":{"max_attempts":null,"backoff":{"base_ms":1,"cap_ms":2,"jitter_percent":3},"give_up_after_ms":9},
            "keep":{"completed_ms":0},"unique":{"key":"k","on_conflict":"refuse"}}"#,
    );
    assert_eq!(push.run_at, RunAt::After(5));
    let policy = &push.policy;
    assert_eq!(policy.lease.length_ms, Some(1000));
    assert_eq!(policy.repeat.as_ref().unwrap().text(), "every 5m");
    assert_eq!(policy.retry.max_attempts, None);
    assert_eq!(policy.retry.backoff, Backoff::Exponential { base_ms: 1, cap_ms: 2, jitter_percent: 3 });
    assert_eq!(policy.retry.give_up_after_ms, Some(9));
    assert_eq!(policy.keep.completed, KeepFor::Drop);
    assert_eq!(policy.keep.failed, KeepFor::Ever);
    let extras = push.extras.unwrap();
    assert_eq!((extras.alias.as_deref(), &*extras.tags[0]), (Some("x"), "t"));
    assert_eq!(extras.family.unwrap().parent.get(), 7);
    assert_eq!(&*extras.unique.unwrap().key, "k");
}

#[test]
fn what_makes_no_sense_is_refused_with_advice() {
    refused("{}", "`name` is missing");
    refused(r#"{"name":""}"#, "must not be empty");
    refused(r#"{"jobs":[{"name":"a"},{"payload":1}]}"#, "job 1: `name` is missing");
    refused(r#"{"name":"a","run_at":1,"delay_ms":1}"#, "exclude each other");
    refused(r#"{"name":"a","delay_ms":-1}"#, "negative");
    refused(r#"{"name":"a","repeat":"sometimes"}"#, "every 5m");
    refused(r#"{"name":"a","alias":""}"#, "`alias` must not be empty");
    refused(r#"{"name":"a","retry":{"backoff":{"fixed_ms":-1}}}"#, "negative");
    refused(r#"{"name":"a","retry":{"backoff":{"base_ms":1,"jitter_percent":200}}}"#, "between 0 and 100");
    refused(r#"{"name":"a","payload":1,"payload_base64":"AA=="}"#, "exclude");
    refused(r#"{"name":"a","payload":1,"format":"binary"}"#, "payload_base64");
    refused(r#"{"name":"a","payload":1,"format":"text"}"#, "must be a string");
    refused(r#"{"name":"a","payload_base64":"?"}"#, "not base64");
    refused(r#"{"name":"a","payload_base64":"/w==","format":"text"}"#, "not UTF-8");
    refused(r#"{"name":"a","payload_base64":"ew==","format":"json"}"#, "EOF");
    refused(r#"{"name":"a","payload_base64":"kgE=","format":"msgpack"}"#, "cut off");
    let tags = vec!["\"t\""; wire::TAGS_MAX + 1].join(",");
    refused(&format!(r#"{{"name":"a","tags":[{tags}]}}"#), "at most 32");
    let long = "x".repeat(wire::KEY_BYTES_MAX + 1);
    refused(&format!(r#"{{"name":"a","unique":"{long}"}}"#), "at most 512");
    let batch = format!(r#"{{"jobs":[{}]}}"#, vec![r#"{"name":"a"}"#; wire::BATCH_MAX + 1].join(","));
    refused(&batch, "at most 10000");
}

#[test]
fn payloads_are_kept_in_the_format_asked_for() {
    let payload = |body: &str| one(body).payload;
    assert_eq!(payload(r#"{"name":"a","payload":"x","format":"text"}"#), Payload::new(Format::Text, *b"x"));
    assert_eq!(payload(r#"{"name":"a","payload_base64":"AP8="}"#), Payload::new(Format::Binary, [0, 255]));
    assert_eq!(payload(r#"{"name":"a","payload":{"k" : 1}}"#), Payload::json(r#"{"k" : 1}"#));
    let bin = inline_payload(Raw::Msgpack(&[0xc4, 2, 1, 2]), None).unwrap();
    assert_eq!(bin, Payload::new(Format::Binary, [1, 2]));
    let map = inline_payload(Raw::Msgpack(&[0x81, 0xa1, b'a', 1]), Some(Format::Json)).unwrap();
    assert_eq!(map, Payload::json(r#"{"a":1}"#));
    assert!(inline_payload(Raw::Msgpack(&[0x01]), Some(Format::Binary)).is_err());
}

fn settle_of(entry: &str) -> Result<How, String> {
    let entry: SettleEntry<'_> = codec::read(Encoding::Json, entry.as_bytes()).map_err(|e| e.to_string())?;
    how(&entry)
}

#[test]
fn a_failure_says_when_to_try_again() {
    let wish = |rest: &str| match settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"fail"{rest}}}"#)) {
        Ok(How::Fail { retry, .. }) => retry,
        other => panic!("{other:?}"),
    };
    assert_eq!(wish(""), Wish::Policy);
    assert_eq!(wish(r#","delay_ms":50"#), Wish::After(50));
    assert_eq!(wish(r#","retry":false"#), Wish::Never);
    assert_eq!(wish(r#","retry":true"#), Wish::Policy);
}

#[test]
fn an_error_is_a_message_or_data() {
    let outcome = |rest: &str| match settle_of(&format!(r#"{{"id":1,"token":1,"outcome":"fail"{rest}}}"#)) {
        Ok(How::Fail { outcome, .. }) => outcome,
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
