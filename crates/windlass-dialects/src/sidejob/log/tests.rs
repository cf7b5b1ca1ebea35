use super::*;

fn value(text: &str) -> RawJson {
    RawJson::new(text).unwrap()
}

fn id(number: u64) -> JobId {
    JobId::new(number).unwrap()
}

#[test]
fn later_keys_hold_and_keep_their_place() {
    let context = vec![("user".to_owned(), "\"x\"".to_owned()), ("a".to_owned(), "1".to_owned())];
    let text = entry(&context, Timestamp::EPOCH, &[("a", "2"), ("b", "[]")]);
    assert_eq!(text, r#"{"user":"x","a":2,"timestamp":"1970-01-01T00:00:00.000Z","b":[]}"#);
}

#[test]
fn values_of_one_port_are_one_list() {
    let mut events = PortEvents::default();
    assert_eq!(events.entry(&Vec::new(), Timestamp::EPOCH), None);
    events.read(id(1), (Side::In, "a"), vec![value("1")]);
    events.wrote(id(2), (Side::Out, "x"), vec![value("2"), value("3")]);
    events.read(id(1), (Side::In, "a"), vec![value("null")]);
    events.read(id(1), (Side::Out, "a"), vec![]);
    let text = events.entry(&Vec::new(), Timestamp::EPOCH).unwrap();
    let expected = r#"{"timestamp":"1970-01-01T00:00:00.000Z","read":[{"job":1,"data":[1,null],"inport":"a"}],"write":[{"job":2,"data":[2,3],"outport":"x"}]}"#;
    assert_eq!(text, expected);
}

#[test]
fn long_values_and_long_lists_are_told_of_shortly() {
    let long = value(&format!("\"{}\"", "x".repeat(VALUE_BYTES_MAX)));
    let mut events = PortEvents::default();
    events.wrote(id(1), (Side::In, "a"), vec![long; 20]);
    let text = events.entry(&Vec::new(), Timestamp::EPOCH).unwrap();
    assert!(text.contains(&format!("(a value of {} bytes)", VALUE_BYTES_MAX + 2)), "{text}");
    assert!(text.contains("(and 4 more values)"), "{text}");
}

#[test]
fn the_oldest_notes_go_when_there_are_too_many() {
    let mut known = Known::default();
    for number in 0..=NOTES_MAX + NOTES_SLACK {
        assert_eq!(known.excess(), Vec::<String>::new());
        known.add(number.to_string(), 1);
    }
    let gone = known.excess();
    assert_eq!((gone.len(), gone[0].as_str()), (NOTES_SLACK + 1, "0"));
    assert_eq!(known.notes.len(), NOTES_MAX);
    known.add("large".to_owned(), BYTES_MAX);
    assert_eq!(known.excess().len(), NOTES_MAX + 1, "bytes count, too");
    assert_eq!(known.bytes, 0);
}

#[test]
fn a_note_that_cannot_be_read_has_no_entries() {
    assert_eq!(entries_of(b"[{\"a\":1},{\"b\":[2, 3]}]"), [r#"{"a":1}"#, r#"{"b":[2, 3]}"#]);
    assert_eq!(entries_of(b"nonsense"), Vec::<String>::new());
}
