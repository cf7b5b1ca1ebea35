use super::*;
use serde_json::json;
use windlass_core::unique::{HeldUntil, OnConflict};
use windlass_core::{KeepFor, Timestamp};

fn parsed(body: &str) -> PushBody<'_> {
    read(Encoding::Json, body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {e}"))
}

fn malformed(body: &str, why: &str) {
    let error = read(Encoding::Json, body.as_bytes()).expect_err(body).to_string();
    assert!(error.contains(why), "{body}: {error}");
}

fn pushed(body: &str) -> Result<Vec<Push>, ApiError> {
    let asked = read(Encoding::Json, body.as_bytes())?;
    pushes(&asked.jobs, asked.single, &|_| windlass_core::Keep::default())
}

#[test]
fn a_push_is_one_job_or_a_batch() {
    let one = parsed(r#"{"name":"mail","payload":{"to":1},"priority":-3,"tenant":"t"}"#);
    assert!(one.single);
    assert_eq!(one.tenant.as_deref(), Some("t"));
    assert_eq!(one.jobs[0].payload, Some(Raw::Json(r#"{"to":1}"#)));
    assert_eq!(one.jobs[0].priority, -3);
    let batch = parsed(r#"{"jobs":[{"name":"a"},{"name":"b"}]}"#);
    assert!(!batch.single);
    let names: Vec<_> = batch.jobs.iter().map(|job| job.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(parsed(r#"{"jobs":[]}"#).jobs.is_empty());
}

#[test]
fn what_is_misspelt_or_misplaced_is_malformed() {
    malformed(r#"{"naem":"mail"}"#, "unknown field `naem`");
    malformed(r#"{"jobs":[{"name":"a"}],"name":"b"}"#, "beside `jobs`");
    malformed(r#"{"jobs":[{"name":"a"},{"jobs":[]}]}"#, "job 1");
    malformed(r#"{"jobs":[{"name":"a","tenant":"t"}]}"#, "at the top");
    malformed(r#"{"name":5}"#, "expected a string");
    malformed(r#"{"name":"a","payload":{"a":}}"#, "line 1 column 28");
    malformed(r#"["mail"]"#, "must be a JSON object");
    malformed("", "EOF");
    malformed(r#"{"name":"a","priority":3000000000}"#, "3000000000");
    malformed(r#"{"name":"a","parent":0}"#, "nonzero");
    malformed(r#"{"name":"a","format":"xml"}"#, "unknown variant");
    malformed(r#"{"name":"a"} x"#, "trailing");
}

#[test]
fn times_are_numbers_or_text() {
    let at = |text: &str| {
        let body = format!(r#"{{"name":"a","run_at":{text}}}"#);
        let pushes = read(Encoding::Json, body.as_bytes()).map_err(|e| e.to_string())?;
        Ok::<i64, String>(pushes.jobs[0].run_at.unwrap().0.as_millis())
    };
    assert_eq!(at("1500").unwrap(), 1500);
    assert_eq!(at("\"1970-01-01T00:00:01.5Z\"").unwrap(), 1500);
    assert_eq!(at("\"1970-01-01T01:00:01.5+01:00\"").unwrap(), 1500);
    assert!(at("\"tomorrow\"").unwrap_err().contains("2026-01-31T12:00:00Z"));
    assert_eq!(at("99999999999999999").unwrap(), Timestamp::MAX.as_millis());
    assert!(at("18446744073709551615").is_ok());
}

#[test]
fn unique_is_a_key_or_more() {
    let unique = |text: &str| {
        let body = format!(r#"{{"name":"a","unique":{text}}}"#);
        let found = parsed(&body).jobs[0]
            .unique
            .clone()
            .map(|u| (u.0.key.to_string(), u.0.on_conflict, u.0.held_until));
        found.unwrap()
    };
    assert_eq!(unique("\"k\""), ("k".into(), OnConflict::Return, HeldUntil::Settled));
    assert_eq!(unique("\"k\\n\""), ("k\n".into(), OnConflict::Return, HeldUntil::Settled));
    assert_eq!(
        unique(r#"{"key":"k","on_conflict":"refuse","held_until":"forgotten"}"#),
        ("k".into(), OnConflict::Refuse, HeldUntil::Forgotten)
    );
    malformed(r#"{"name":"a","unique":{"on_conflict":"refuse"}}"#, "missing field `key`");
    malformed(r#"{"name":"a","unique":{"key":"k","on_conflict":"maybe"}}"#, "unknown variant");
    malformed(r#"{"name":"a","unique":5}"#, "a key, or");
}

#[test]
fn retry_is_a_number_or_more() {
    let retry =
        |text: &str| parsed(&format!(r#"{{"name":"a","retry":{text}}}"#)).jobs[0].retry.clone().unwrap().0;
    assert_eq!(retry("3").max_attempts, Some(Some(3)));
    assert_eq!(retry(r#"{"max_attempts":null}"#).max_attempts, Some(None));
    assert_eq!(retry("{}").max_attempts, None);
    assert_eq!(retry(r#"{"backoff":"none"}"#).backoff, Some(BackoffAsk::None));
    assert_eq!(retry(r#"{"backoff":{"fixed_ms":5}}"#).backoff, Some(BackoffAsk::Fixed { fixed_ms: 5 }));
    assert_eq!(
        retry(r#"{"backoff":{"base_ms":5,"cap_ms":9}}"#).backoff,
        Some(BackoffAsk::Growing { base_ms: 5, cap_ms: Some(9), jitter_percent: None })
    );
    malformed(r#"{"name":"a","retry":0}"#, "use 1");
    malformed(r#"{"name":"a","retry":-1}"#, "a number of attempts");
    malformed(r#"{"name":"a","retry":{"backoff":{"fixed_ms":1,"base_ms":2}}}"#, "either fixed_ms");
    malformed(r#"{"name":"a","retry":{"backoff":"soon"}}"#, "soon");
}

#[test]
fn keep_times_are_numbers_or_ever() {
    let keep = parsed(r#"{"name":"a","keep":{"completed_ms":0,"failed_ms":"ever","cancelled_ms":5}}"#);
    let keep = keep.jobs[0].keep.clone().unwrap();
    assert_eq!(keep.completed_ms, Some(KeepMs(KeepFor::Drop)));
    assert_eq!(keep.failed_ms, Some(KeepMs(KeepFor::Ever)));
    assert_eq!(keep.cancelled_ms, Some(KeepMs(KeepFor::Ms(5))));
    malformed(r#"{"name":"a","keep":{"completed_ms":-1}}"#, "delete at once");
    malformed(r#"{"name":"a","keep":{"completed_ms":"long"}}"#, "ever");
}

#[test]
fn leases_stay_within_reason() {
    malformed(r#"{"name":"a","lease_ms":0}"#, "lease_ms must be between");
    malformed(r#"{"name":"a","lease_ms":99999999999999}"#, "lease_ms must be between");
    assert_eq!(parsed(r#"{"name":"a","lease_ms":5000}"#).jobs[0].lease_ms, Some(Lease(5000)));
}

#[test]
fn both_encodings_are_read_by_the_same_rules() {
    let body = json!({"jobs": [{
        "name": "mail", "queue": "q", "priority": -1, "run_at": 5, "repeat": "every 5m",
        "unique": {"key": "k"}, "retry": {"max_attempts": 3, "backoff": {"fixed_ms": 100}},
        "lease_ms": 30_000, "keep": {"completed_ms": 0}, "parent": 7, "alias": "x", "tags": ["a", "b"],
        "format": "msgpack",
    }]});
    let text = body.to_string();
    let packed = rmp_serde::to_vec_named(&body).unwrap();
    let (from_json, from_msgpack) = (parsed(&text), read(Encoding::Msgpack, &packed).unwrap());
    assert_eq!(from_json, from_msgpack);
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
    refused(r#"{"name":"a","run_at":1,"delay_ms":1}"#, "cannot be combined");
    refused(r#"{"name":"a","delay_ms":-1}"#, "negative");
    refused(r#"{"name":"a","repeat":"sometimes"}"#, "every 5m");
    refused(r#"{"name":"a","alias":""}"#, "`alias` must not be empty");
    refused(r#"{"name":"a","retry":{"backoff":{"fixed_ms":-1}}}"#, "negative");
    refused(r#"{"name":"a","retry":{"backoff":{"base_ms":1,"jitter_percent":200}}}"#, "between 0 and 100");
    refused(r#"{"name":"a","payload":1,"payload_base64":"AA=="}"#, "cannot be combined");
    refused(r#"{"name":"a","payload":1,"format":"binary"}"#, "payload_base64");
    refused(r#"{"name":"a","payload":1,"format":"text"}"#, "must be a string");
    refused(r#"{"name":"a","payload_base64":"?"}"#, "not base64");
    refused(r#"{"name":"a","payload_base64":"/w==","format":"text"}"#, "not UTF-8");
    refused(r#"{"name":"a","payload_base64":"ew==","format":"json"}"#, "EOF");
    refused(r#"{"name":"a","payload_base64":"kgE=","format":"msgpack"}"#, "truncated");
    let tags = vec!["\"t\""; wire::TAGS_MAX + 1].join(",");
    refused(&format!(r#"{{"name":"a","tags":[{tags}]}}"#), "the maximum is 32");
    let long = "x".repeat(wire::KEY_BYTES_MAX + 1);
    refused(&format!(r#"{{"name":"a","unique":"{long}"}}"#), "the maximum is 512");
    let batch = format!(r#"{{"jobs":[{}]}}"#, vec![r#"{"name":"a"}"#; wire::BATCH_MAX + 1].join(","));
    refused(&batch, "the maximum is 10000");
}

#[test]
fn payloads_are_kept_in_the_format_asked_for() {
    let payload = |body: &str| one(body).payload;
    assert_eq!(payload(r#"{"name":"a","payload":"x","format":"text"}"#), Payload::new(Format::Text, *b"x"));
    assert_eq!(payload(r#"{"name":"a","payload_base64":"AP8="}"#), Payload::new(Format::Binary, [0, 255]));
    assert_eq!(payload(r#"{"name":"a","payload":{"k" : 1}}"#), Payload::json(r#"{"k" : 1}"#));
}
