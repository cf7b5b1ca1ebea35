use super::*;
use serde_json::{Value, json};
use windlass_core::{Format, Payload};

fn msgpack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Sample<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    raw: Raw<'a>,
    #[serde(borrow, default)]
    maybe: Option<Text<'a>>,
}

#[test]
fn plain_texts_and_raw_values_borrow_from_the_body() {
    let body = br#"{"text":"abc","raw":{ "a" : [1, 2] },"maybe":null}"#;
    let sample: Sample<'_> = read(Encoding::Json, body).unwrap();
    assert!(matches!(sample.text.0, Cow::Borrowed("abc")));
    assert_eq!(sample.raw, Raw::Json(r#"{ "a" : [1, 2] }"#));
    let escaped: Sample<'_> = read(Encoding::Json, br#"{"text":"a\nb","raw":1}"#).unwrap();
    assert_eq!(&*escaped.text, "a\nb");
}

#[test]
fn msgpack_raw_values_keep_their_bytes() {
    // A fixmap with an array in the 16-bit form, which no writer would choose, and an ext.
    let raw = [0x82, 0xa1, b'a', 0xdc, 0x00, 0x01, 0x05, 0xa1, b'b', 0xd4, 0x01, 0x02];
    let mut body = vec![0x82, 0xa4];
    body.extend_from_slice(b"text\xa3abc\xa3raw");
    body.extend_from_slice(&raw);
    let sample: Sample<'_> = read(Encoding::Msgpack, &body).unwrap();
    assert_eq!(sample.raw, Raw::Msgpack(&raw));
    assert!(matches!(sample.text.0, Cow::Borrowed("abc")));
}

#[test]
fn msgpack_reads_what_others_write() {
    for value in [
        json!(null),
        json!([true, false, 0, 127, 128, 255, 256, 65_535, 65_536, u64::MAX, -1, -32, -33, i64::MIN, 1.5]),
        json!({"k": "x".repeat(31), "l": "x".repeat(32), "m": "x".repeat(300), "n": "x".repeat(70_000)}),
        json!({"deep": [[[[{"a": {"b": []}}]]]]}),
    ] {
        assert_eq!(read::<Value>(Encoding::Msgpack, &msgpack(&value)).unwrap(), value);
    }
}

#[test]
fn what_is_cut_off_or_too_deep_is_an_error_and_never_a_panic() {
    let whole = msgpack(&json!({"a": [1, 2, {"b": "text"}], "c": 1.5}));
    for length in 0..whole.len() {
        assert!(read::<Value>(Encoding::Msgpack, &whole[..length]).is_err(), "{length}");
    }
    // Lengths of four billion with no bytes behind them.
    for head in
        [[0xdd, 0xff, 0xff, 0xff, 0xff], [0xdf, 0xff, 0xff, 0xff, 0xff], [0xc6, 0xff, 0xff, 0xff, 0xff]]
    {
        assert!(read::<Value>(Encoding::Msgpack, &head).is_err());
        assert!(msgpack_length(&head).is_err());
    }
    let deep = vec![0x91; 100_000];
    assert!(read::<Value>(Encoding::Msgpack, &deep).is_err());
    assert!(msgpack_length(&deep).unwrap_err().to_string().contains("deeper than 64 levels"));
    assert!(read::<Value>(Encoding::Msgpack, &[0xc1]).is_err());
    let trailing = read::<Value>(Encoding::Msgpack, &[0x01, 0x02]).unwrap_err();
    assert_eq!(trailing.to_string(), "unexpected bytes after the end of the value at byte 1");
}

#[test]
fn deep_json_is_refused_although_the_reader_would_skip_over_it() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read::<Raw<'_>>(Encoding::Json, nested(DEPTH_MAX).as_bytes()).is_ok());
    assert!(read::<Raw<'_>>(Encoding::Json, nested(DEPTH_MAX + 1).as_bytes()).is_err());
    let harmless = format!("[\"{}\\\"{}\"]", "[".repeat(200), "{".repeat(200));
    assert!(read::<Raw<'_>>(Encoding::Json, harmless.as_bytes()).is_ok());
    let wide = format!("[{}[]]", "[],".repeat(500));
    assert!(read::<Raw<'_>>(Encoding::Json, wide.as_bytes()).is_ok());
}

#[test]
fn errors_say_where() {
    let error = read::<Value>(Encoding::Json, b"{\"a\":\n tru}").unwrap_err();
    assert!(error.to_string().contains("line 2 column"), "{error}");
    let error = read::<Value>(Encoding::Json, b"\"a\xff\"").unwrap_err();
    assert_eq!(error.to_string(), "the body is not valid UTF-8 at byte 2");
}

fn written(encoding: Encoding, write: impl Fn(&mut Out)) -> Vec<u8> {
    let mut out = Out::new(encoding, 0);
    write(&mut out);
    out.into_bytes()
}

fn sample(out: &mut Out) {
    out.begin_map();
    out.key("a");
    out.begin_array();
    out.uint(1);
    out.int(-5);
    out.int(-300);
    out.begin_array();
    out.end_array();
    out.begin_map();
    out.end_map();
    out.str("q\"\n");
    out.float(0.5);
    out.end_array();
    out.key("b");
    out.null();
    out.key("c");
    out.bool(true);
    out.opt_str("d", None);
    out.opt_int("e", Some(70_000));
    out.end_map();
}

#[test]
fn both_encodings_say_the_same() {
    let json = written(Encoding::Json, sample);
    let expected = r#"{"a":[1,-5,-300,[],{},"q\"\n",0.5],"b":null,"c":true,"e":70000}"#;
    assert_eq!(String::from_utf8(json.clone()).unwrap(), expected);
    let packed = written(Encoding::Msgpack, sample);
    let value: Value = rmp_serde::from_slice(&packed).unwrap();
    assert_eq!(value, serde_json::from_slice::<Value>(&json).unwrap());
}

#[test]
fn payloads_can_be_used_at_once_in_either_encoding() {
    let json_of = |payload: &Payload| {
        let bytes = written(Encoding::Json, |out| {
            out.begin_map();
            out.payload("payload", payload);
            out.end_map();
        });
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(json_of(&Payload::json("{ \"a\": 1 }")), "{\"payload\":{ \"a\": 1 }}");
    assert_eq!(json_of(&Payload::new(Format::Text, *b"h\"i")), r#"{"payload":"h\"i","format":"text"}"#);
    assert_eq!(
        json_of(&Payload::new(Format::Binary, [0xff, 0])),
        r#"{"payload_base64":"/wA=","format":"binary"}"#
    );
    let packed = Payload::new(Format::Msgpack, msgpack(&json!({"a": 1})));
    assert_eq!(json_of(&packed), r#"{"payload":{"a":1},"payload_base64":"gaFhAQ==","format":"msgpack"}"#);
    let ext = Payload::new(Format::Msgpack, [0xd4, 1, 2]);
    assert_eq!(json_of(&ext), r#"{"payload_base64":"1AEC","format":"msgpack"}"#);

    let msgpack_of = |payload: &Payload| {
        written(Encoding::Msgpack, |out| {
            out.begin_map();
            out.payload("payload", payload);
            out.end_map();
        })
    };
    let value: Value = rmp_serde::from_slice(&msgpack_of(&Payload::json("[1,{\"b\":null}]"))).unwrap();
    assert_eq!(value, json!({"payload": [1, {"b": null}]}));
    let bytes = msgpack_of(&ext);
    assert!(bytes.windows(3).any(|window| window == [0xd4, 1, 2]));
}

#[test]
fn a_broken_payload_in_the_store_does_not_break_the_answer() {
    let broken = Payload::new(Format::Msgpack, [0x92, 0x01]);
    let bytes = written(Encoding::Msgpack, |out| {
        out.begin_map();
        out.payload("payload", &broken);
        out.end_map();
    });
    assert_eq!(msgpack_length(&bytes), Ok(bytes.len()));
}

#[test]
fn every_msgpack_value_can_be_shown_in_json() {
    let shown = |bytes: &[u8]| {
        let mut out = Out::new(Encoding::Json, 16);
        out.begin_array();
        out.content(&Payload::new(Format::Msgpack, bytes));
        out.content(&Payload::new(Format::Msgpack, bytes));
        out.end_array();
        let twice: Value = serde_json::from_slice(&out.into_bytes()).unwrap();
        assert_eq!(twice[0], twice[1]);
        twice[0].clone()
    };
    assert_eq!(shown(&[0xc4, 2, 1, 2]), json!("AQI="));
    assert_eq!(shown(&[0xd4, 0xff, 9]), json!({"ext": -1, "data": "CQ=="}));
    assert_eq!(shown(&[0xca, 0x7f, 0xc0, 0, 0]), Value::Null);
    assert_eq!(shown(&[0x82, 0x07, 0xc3, 0xc0, 0x90]), json!({"7": true, "null": []}));
    assert_eq!(shown(&[0x81, 0x81, 0xc0, 0xc0, 0x01]), json!({"gcDA": 1}), "a key that is a map");
    assert_eq!(shown(&[0xc1]), Value::Null, "what is no value");
    assert_eq!(shown(&[0x01, 0x02]), Value::Null, "more than one");
    let nested: Vec<u8> = std::iter::repeat_n(0x81, 60).chain(std::iter::repeat_n(0xc0, 61)).collect();
    assert!(shown(&nested).to_string().len() < 1_000, "keys within keys do not grow without bound");
}

#[derive(serde::Serialize)]
struct Answer<'a> {
    id: u64,
    nothing: Option<u64>,
    null: Nullable<u64>,
    list: Vec<Option<i32>>,
    raw: Kept<'a>,
    bytes: Option<Kept<'a>>,
    #[serde(flatten)]
    more: More<'a>,
    last: Option<&'a str>,
}

#[derive(serde::Serialize)]
struct More<'a> {
    inner: Option<Box<More<'a>>>,
    text: Option<&'a str>,
}

fn answer(bytes: Option<Kept<'_>>) -> Answer<'_> {
    Answer {
        id: 7,
        nothing: None,
        null: Nullable(None),
        list: vec![Some(-1), None],
        raw: Kept::Json(br#"{"a" : [1,null]}"#),
        bytes,
        more: More { inner: Some(Box::new(More { inner: None, text: None })), text: Some("t\n") },
        last: None,
    }
}

#[test]
fn a_struct_is_written_without_its_missing_fields() {
    use serde::Serialize;
    let mut out = Out::new(Encoding::Json, 0);
    answer(Some(Kept::Bin(&[0, 255]))).serialize(&mut out).unwrap();
    let text = String::from_utf8(out.into_bytes()).unwrap();
    let expected = r#"{"id":7,"null":null,"list":[-1,null],"raw":{"a" : [1,null]},"bytes":"AP8=","inner":{},"text":"t\n"}"#;
    assert_eq!(text, expected);
    let mut out = Out::new(Encoding::Msgpack, 0);
    answer(None).serialize(&mut out).unwrap();
    let bytes = out.into_bytes();
    assert_eq!(msgpack_length(&bytes), Ok(bytes.len()), "the counts of the maps are right");
    let read: Value = rmp_serde::from_slice(&bytes).unwrap();
    let mut expected: Value = serde_json::from_str(expected).unwrap();
    expected.as_object_mut().unwrap().remove("bytes");
    assert_eq!(read, expected);
}

#[test]
fn a_value_in_messagepack_is_handed_on_as_it_is() {
    use serde::Serialize;
    let mut out = Out::new(Encoding::Msgpack, 0);
    [Kept::Msgpack(&[0xcc, 1]), Kept::Text("x"), Kept::Bin(&[5])].serialize(&mut out).unwrap();
    assert_eq!(out.into_bytes(), [0xdd, 0, 0, 0, 3, 0xcc, 1, 0xa1, b'x', 0xc4, 1, 5]);
}
