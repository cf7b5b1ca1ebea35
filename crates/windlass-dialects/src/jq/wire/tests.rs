use super::*;
use serde_json::{Value, json};

fn packed(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

/// Expects the same refusal in both encodings.
fn refused(read: impl Fn(Encoding, &[u8]) -> Option<String>, value: Value) -> String {
    let from_msgpack = read(Encoding::Msgpack, &packed(&value));
    let from_json = read(Encoding::Json, value.to_string().as_bytes());
    assert!(from_json.is_some(), "accepted as JSON: {value}");
    from_msgpack.unwrap_or_else(|| panic!("accepted: {value}"))
}

fn bad_job(value: Value) -> String {
    refused(|encoding, body| job(encoding, body).err().map(|e| e.to_string()), value)
}

fn good_job(value: &Value) {
    job(Encoding::Json, value.to_string().as_bytes()).unwrap();
    job(Encoding::Msgpack, &packed(value)).unwrap();
}

/// Reads a job whose encoded priority is `bytes`.
fn with_priority(bytes: &[u8]) -> Result<i32, Bad> {
    let mut body = b"\x83\xa4name\xa1t\xa8argument\x80\xa8priority".to_vec();
    body.extend_from_slice(bytes);
    job(Encoding::Msgpack, &body).map(|job| job.priority)
}

#[test]
fn what_is_left_out_has_the_documented_defaults() {
    let body = packed(&json!({"name": "t", "argument": {}}));
    let job = job(Encoding::Msgpack, &body).unwrap();
    assert_eq!((job.priority, job.max_retry, job.keep_result, job.timeout_s), (0, 10, false, 30));
    assert_eq!(job.argument, Raw::Msgpack(&[0x80]));
    good_job(&json!({"name": "t", "argument": {}, "priority": null, "timeout": null, "more": [1, {"a": 2}]}));
}

#[test]
fn a_job_needs_a_name_and_a_map() {
    assert!(bad_job(json!({"argument": {}})).contains("`name` is missing"));
    assert!(bad_job(json!({"name": "t"})).contains("`argument` is missing"));
    for argument in [json!([]), json!(1), json!("x"), Value::Null] {
        bad_job(json!({"name": "t", "argument": argument}));
    }
    for name in [json!(""), json!(7), json!("x".repeat(256)), json!(["t"])] {
        bad_job(json!({"name": name, "argument": {}}));
    }
}

#[test]
fn numbers_are_whole_and_within_their_range() {
    let job = |key: &str, value: Value| json!({"name": "t", "argument": {}, key: value});
    for bad in [json!(2_147_483_648_i64), json!(-2_147_483_649_i64), json!(1.5), json!("1"), json!(true)] {
        bad_job(job("priority", bad));
    }
    good_job(&job("priority", json!(i32::MIN)));
    good_job(&job("priority", json!(i32::MAX)));
    for bad in [json!(-1), json!(u32::MAX), json!(1.0), json!("3"), json!(u64::MAX)] {
        bad_job(job("max_retry", bad));
    }
    for bad in [json!(0), json!(-5), json!(0.5), json!(TIMEOUT_S_MAX + 1), json!("30")] {
        bad_job(job("timeout", bad));
    }
    for bad in [json!(1), json!("true")] {
        bad_job(job("keep_result", bad));
    }
}

#[test]
fn an_integer_is_what_it_says_in_every_width() {
    let forms: [(&[u8], i32); 12] = [
        (&[0x05], 5),
        (&[0xcc, 5], 5),
        (&[0xcd, 0, 5], 5),
        (&[0xce, 0, 0, 0, 5], 5),
        (&[0xcf, 0, 0, 0, 0, 0, 0, 0, 5], 5),
        (&[0xd0, 5], 5),
        (&[0xd1, 0, 5], 5),
        (&[0xd2, 0, 0, 0, 5], 5),
        (&[0xd3, 0, 0, 0, 0, 0, 0, 0, 5], 5),
        (&[0xff], -1),
        (&[0xd0, 0x80], -128),
        (&[0xd3, 0xff, 0xff, 0xff, 0xff, 0x80, 0, 0, 0], i32::MIN),
    ];
    for (bytes, expected) in forms {
        assert_eq!(with_priority(bytes).unwrap(), expected, "{bytes:02x?}");
    }
    with_priority(&[0xce, 0x80, 0, 0, 0]).unwrap_err();
    with_priority(&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).unwrap_err();
    with_priority(&[0xca, 0x3f, 0x80, 0, 0]).unwrap_err();
}

#[test]
fn what_is_no_msgpack_is_refused() {
    for body in [&b""[..], &[0xc1], &[0x82, 0xa4], &[0xde, 0xff], &[0xdf, 0xff, 0xff, 0xff, 0xff], &[0x90]] {
        job(Encoding::Msgpack, body).unwrap_err();
        done(Encoding::Msgpack, body).unwrap_err();
        worker(Encoding::Msgpack, body).unwrap_err();
    }
    let mut trailing = packed(&json!({"name": "t", "argument": {}}));
    trailing.push(0xc0);
    job(Encoding::Msgpack, &trailing).unwrap_err();
}

#[test]
fn an_argument_keeps_its_bytes_and_has_a_depth() {
    // bin, ext, float32, a str in a wide form, int64 for a small number.
    let argument = [
        0x85, 0xa1, b'b', 0xc4, 1, 0, 0xa1, b'e', 0xd4, 1, 2, 0xa1, b'f', 0xca, 0x3f, 0x80, 0, 0, 0xa1, b's',
        0xd9, 1, b'x', 0xa1, b'i', 0xd3, 0, 0, 0, 0, 0, 0, 0, 1,
    ];
    let mut body = b"\x82\xa4name\xa1t\xa8argument".to_vec();
    body.extend_from_slice(&argument);
    let read = job(Encoding::Msgpack, &body).unwrap();
    assert_eq!(as_msgpack(read.argument).unwrap(), argument);
    let nested = |depth: usize| {
        let mut body = b"\x82\xa4name\xa1t\xa8argument".to_vec();
        body.extend(std::iter::repeat_n(*b"\x81\xa1a", depth).flatten());
        body.push(0x80);
        body
    };
    // As documented: 63 levels in MessagePack, 100 in JSON.
    assert!(job(Encoding::Msgpack, &nested(62)).is_ok());
    let json = |depth: usize| {
        let (open, close) = (r#"{"a":"#.repeat(depth - 1), "}".repeat(depth - 1));
        format!(r#"{{"name":"t","argument":{open}{{}}{close}}}"#).into_bytes()
    };
    assert!(job(Encoding::Json, &json(100)).is_ok());
    assert!(job(Encoding::Json, &json(101)).is_err());
    let error = job(Encoding::Msgpack, &nested(63)).unwrap_err().to_string();
    assert!(error.contains("deep"), "{error}");
    job(Encoding::Msgpack, &nested(1_000_000)).unwrap_err();
}

#[test]
fn a_huge_map_costs_what_it_weighs() {
    let mut argument = vec![0xde, 0xff, 0xff];
    for number in 0..u16::MAX {
        argument.extend_from_slice(&[0xcd]);
        argument.extend_from_slice(&number.to_be_bytes());
        argument.push(0xc0);
    }
    let mut body = b"\x82\xa4name\xa1t\xa8argument".to_vec();
    body.extend_from_slice(&argument);
    assert_eq!(job(Encoding::Msgpack, &body).unwrap().argument, Raw::Msgpack(&argument));
}

#[test]
fn json_arguments_become_msgpack() {
    let body = br#"{"name":"t","argument":{"a":[1,-2,1.5,null,"x"]}}"#;
    let bytes = as_msgpack(job(Encoding::Json, body).unwrap().argument).unwrap();
    let back: Value = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(back, json!({"a": [1, -2, 1.5, null, "x"]}));
}

#[test]
fn a_worker_says_how_many_jobs_it_takes_and_where_it_is() {
    let read = |value: Value| worker(Encoding::Msgpack, &packed(&value));
    let place = |value: Value| read(value).unwrap().place;
    assert_eq!(place(json!({"name": "w", "max_jobs": 1})), Place::Usual);
    assert_eq!(place(json!({"name": "w", "max_jobs": 1, "port": 9})), Place::Port(9));
    let url = "http://localhost:9/x";
    assert_eq!(place(json!({"name": "w", "max_jobs": 1, "url": url})), Place::Url(url.to_owned()));
    for bad in [
        json!({"max_jobs": 1}),
        json!({"name": "w"}),
        json!({"name": "", "max_jobs": 1}),
        json!({"name": "w", "max_jobs": 0}),
        json!({"name": "w", "max_jobs": -1}),
        json!({"name": "w", "max_jobs": 1.5}),
        json!({"name": "w", "max_jobs": "2"}),
        json!({"name": "w", "max_jobs": 1, "port": 0}),
        json!({"name": "w", "max_jobs": 1, "port": 70_000}),
        json!({"name": "w", "max_jobs": 1, "port": 9, "url": url}),
    ] {
        read(bad.clone()).expect_err(&bad.to_string());
    }
}

#[test]
fn an_end_is_a_success_or_a_whole_failure() {
    let read = |value: Value| done(Encoding::Msgpack, &packed(&value)).map(|done| done.end == done.end);
    read(json!({"job_id": "7", "type": "success"})).unwrap();
    let failure =
        json!({"job_id": "7", "type": "failure", "reason": "other", "should_retry": true, "message": ""});
    read(failure.clone()).unwrap();
    for (key, value) in [
        ("reason", json!("server_issue")),
        ("reason", Value::Null),
        ("should_retry", Value::Null),
        ("message", Value::Null),
        ("message", json!("x".repeat(MESSAGE_BYTES_MAX + 1))),
        ("type", json!("Success")),
        ("type", Value::Null),
        ("job_id", Value::Null),
        ("job_id", json!(7)),
        ("finished_at", json!("yesterday")),
        ("finished_at", json!("2024-03-24")),
    ] {
        let mut bad = failure.clone();
        bad[key] = value;
        read(bad.clone()).expect_err(&bad.to_string());
    }
}

#[test]
fn a_moment_is_rfc_3339() {
    let at = |text: &str| {
        let body = packed(&json!({"job_id": "7", "type": "success", "finished_at": text}));
        done(Encoding::Msgpack, &body).unwrap().finished_at.unwrap().as_millis()
    };
    assert_eq!(at("2024-03-24T17:39:18+09:00"), 1_711_269_558_000);
    assert_eq!(at("2024-03-24T08:39:18Z"), 1_711_269_558_000);
    assert_eq!(at("2024-03-24T08:39:18.250Z"), 1_711_269_558_250);
}

#[test]
fn one_job_has_one_id() {
    assert_eq!(job_id("17").map(JobId::get), Some(17));
    for bad in ["", "0", "017", "+17", "-1", " 17", "1e3", "x", "99999999999999999999999"] {
        assert_eq!(job_id(bad), None, "{bad:?}");
    }
}

#[test]
fn a_json_number_that_no_machine_number_holds_is_refused() {
    let body = br#"{"name":"t","argument":{"a":1e999}}"#;
    let job = job(Encoding::Json, body).unwrap();
    assert!(matches!(as_msgpack(job.argument), Err(Bad::Malformed(_))));
}
