use super::*;
use serde_json::json;

fn parsed(body: &str) -> Pushes<'_> {
    push(Encoding::Json, body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {e}"))
}

fn refused(body: &str, why: &str) {
    let error = push(Encoding::Json, body.as_bytes()).expect_err(body).to_string();
    assert!(error.contains(why), "{body}: {error}");
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
fn what_is_misspelt_or_misplaced_is_refused() {
    refused(r#"{"naem":"mail"}"#, "unknown field `naem`");
    refused(r#"{"jobs":[{"name":"a"}],"name":"b"}"#, "beside `jobs`");
    refused(r#"{"jobs":[{"name":"a"},{"jobs":[]}]}"#, "job 1");
    refused(r#"{"jobs":[{"name":"a","tenant":"t"}]}"#, "at the top");
    refused(r#"{"name":5}"#, "expected a string");
    refused(r#"{"name":"a","payload":{"a":}}"#, "line 1 column 28");
    refused(r#"["mail"]"#, "must be an object");
    refused("", "EOF");
    refused(r#"{"name":"a","priority":3000000000}"#, "3000000000");
    refused(r#"{"name":"a","parent":0}"#, "nonzero");
    refused(r#"{"name":"a","format":"xml"}"#, "unknown variant");
    refused(r#"{"name":"a"} x"#, "trailing");
}

#[test]
fn times_are_numbers_or_text() {
    let at = |text: &str| {
        let body = format!(r#"{{"name":"a","run_at":{text}}}"#);
        let pushes = push(Encoding::Json, body.as_bytes()).map_err(|e| e.to_string())?;
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
        let found =
            parsed(&body).jobs[0].unique.clone().map(|u| (u.key.to_string(), u.on_conflict, u.held_until));
        found.unwrap()
    };
    assert_eq!(unique("\"k\""), ("k".into(), OnConflict::Return, HeldUntil::Settled));
    assert_eq!(unique("\"k\\n\""), ("k\n".into(), OnConflict::Return, HeldUntil::Settled));
    assert_eq!(
        unique(r#"{"key":"k","on_conflict":"refuse","held_until":"forgotten"}"#),
        ("k".into(), OnConflict::Refuse, HeldUntil::Forgotten)
    );
    refused(r#"{"name":"a","unique":{"on_conflict":"refuse"}}"#, "missing field `key`");
    refused(r#"{"name":"a","unique":{"key":"k","on_conflict":"maybe"}}"#, "unknown variant");
    refused(r#"{"name":"a","unique":5}"#, "a key, or");
}

#[test]
fn retry_is_a_number_or_more() {
    let retry =
        |text: &str| parsed(&format!(r#"{{"name":"a","retry":{text}}}"#)).jobs[0].retry.clone().unwrap();
    assert_eq!(retry("3").max_attempts, Some(Some(3)));
    assert_eq!(retry(r#"{"max_attempts":null}"#).max_attempts, Some(None));
    assert_eq!(retry("{}").max_attempts, None);
    assert_eq!(retry(r#"{"backoff":"none"}"#).backoff, Some(BackoffAsk::None));
    assert_eq!(retry(r#"{"backoff":{"fixed_ms":5}}"#).backoff, Some(BackoffAsk::Fixed { fixed_ms: 5 }));
    assert_eq!(
        retry(r#"{"backoff":{"base_ms":5,"cap_ms":9}}"#).backoff,
        Some(BackoffAsk::Growing { base_ms: 5, cap_ms: Some(9), jitter_percent: None })
    );
    refused(r#"{"name":"a","retry":0}"#, "write 1");
    refused(r#"{"name":"a","retry":-1}"#, "a number of attempts");
    refused(r#"{"name":"a","retry":{"backoff":{"fixed_ms":1,"base_ms":2}}}"#, "either fixed_ms");
    refused(r#"{"name":"a","retry":{"backoff":"soon"}}"#, "soon");
}

#[test]
fn keep_times_are_numbers_or_ever() {
    let keep = parsed(r#"{"name":"a","keep":{"completed_ms":0,"failed_ms":"ever","cancelled_ms":5}}"#);
    let keep = keep.jobs[0].keep.clone().unwrap();
    assert_eq!(keep.completed_ms, Some(KeepMs(KeepFor::Drop)));
    assert_eq!(keep.failed_ms, Some(KeepMs(KeepFor::Ever)));
    assert_eq!(keep.cancelled_ms, Some(KeepMs(KeepFor::Ms(5))));
    refused(r#"{"name":"a","keep":{"completed_ms":-1}}"#, "forget at once");
    refused(r#"{"name":"a","keep":{"completed_ms":"long"}}"#, "ever");
}

#[test]
fn leases_stay_within_reason() {
    refused(r#"{"name":"a","lease_ms":0}"#, "lease_ms must be between");
    refused(r#"{"name":"a","lease_ms":99999999999999}"#, "lease_ms must be between");
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
    let (from_json, from_msgpack) = (parsed(&text), push(Encoding::Msgpack, &packed).unwrap());
    assert_eq!(from_json, from_msgpack);
}

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

#[test]
fn a_patch_tells_null_from_nothing() {
    let read = |body: &'static str| codec::read::<PatchAsk<'_>>(Encoding::Json, body.as_bytes()).unwrap();
    assert_eq!(read("{}").repeat, None);
    assert_eq!(read(r#"{"repeat":null}"#).repeat, Some(None));
    assert!(matches!(read(r#"{"repeat":"every 5m"}"#).repeat, Some(Some(_))));
}

#[test]
fn an_optional_body_may_be_left_out() {
    assert_eq!(optional::<CancelAsk>(Encoding::Json, b"").unwrap(), CancelAsk { now: false });
    assert_eq!(optional::<CancelAsk>(Encoding::Json, br#"{"now":true}"#).unwrap(), CancelAsk { now: true });
    assert!(optional::<CancelAsk>(Encoding::Json, b"{").is_err());
    assert!(optional::<CancelAsk>(Encoding::Json, b"[]").is_err());
    assert!(optional::<CancelAsk>(Encoding::Msgpack, &[0x90]).is_err());
    assert!(optional::<CancelAsk>(Encoding::Msgpack, &[0x80]).is_ok());
}
