use super::*;
use crate::auth::Role;

fn parse(text: &str) -> Result<Search, ApiError> {
    Search::parse(text, &Caller::unnamed(Role::Admin), None)
}

#[test]
fn words_are_split_at_blanks_and_kept_together_by_quotes() {
    let texts = |text: &str| words(text).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(texts(r#" a  b:c "d e" queue:"mail out" "#), ["a", "b:c", "d e", "queue:mail out"]);
    assert_eq!(texts(r#""say \"hi\"" """#), [r#"say "hi""#]);
    assert_eq!(texts("\"open end"), ["open end"]);
    let flags: Vec<bool> = words(r#"a "7" b:"c" "" "d"e "#).into_iter().map(|(_, flag)| flag).collect();
    assert_eq!(flags, [false, true, false, true]);
}

#[test]
fn fields_go_to_the_store_and_the_longest_text_with_them() {
    let search = parse("state:failed,running queue:q name:mail* tag:x ab longer").unwrap();
    assert_eq!(search.filter.states, [StateName::Failed, StateName::Running]);
    assert_eq!(search.filter.queue.as_deref(), Some("q"));
    assert!(search.filter.names.matches("mail.out") && !search.filter.names.matches("post"));
    assert_eq!(search.filter.tag.as_deref(), Some("x"));
    assert_eq!(search.filter.text.as_deref(), Some("longer"));
    assert_eq!(search.texts, ["ab".into()]);
}

#[test]
fn what_looks_like_a_field_and_is_none_is_text() {
    for text in ["http://x", "state:", "12:30", "Error:x", "a-b:c", "\"foo:bar\"", "\"state:failed\""] {
        let search = parse(text).unwrap();
        assert_eq!(search.filter.text.as_deref(), Some(text.trim_matches('"')));
        assert!(search.looks_into_payloads());
    }
}

#[test]
fn a_key_that_does_not_exist_is_refused_with_the_keys_there_are() {
    for (text, key) in [
        ("stat:failed", "stat"),
        ("foo:bar", "foo"),
        ("user_id:42", "user_id"),
        ("age:5", "age"),
        ("args.:x", "args."),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (400, "bad_request"), "{text}");
        for part in
            [&format!("`{key}`"), "state, queue,", "args.PATH", "age>", "ended<", &format!("\"{text}\"")]
        {
            assert!(error.message.contains(part), "{part}: {}", error.message);
        }
    }
}

#[test]
fn states_go_to_the_store_and_those_that_depend_on_the_time_are_looked_at_here() {
    for (text, stored, retried, is_plain) in [
        ("state:ready", vec![StateName::Ready], false, false),
        ("state:delayed", vec![StateName::Ready], false, false),
        ("state:retrying", vec![StateName::Ready], true, false),
        ("state:failed,retrying", vec![StateName::Failed, StateName::Ready], true, false),
        ("state:ready,retrying", vec![StateName::Ready, StateName::Ready], false, false),
        ("state:retrying state:delayed,ready", vec![StateName::Ready; 3], false, true),
        ("state:failed", vec![StateName::Failed], false, true),
        ("", vec![], false, true),
    ] {
        let search = parse(text).unwrap();
        assert_eq!((search.filter.states.clone(), search.filter.retried), (stored, retried), "{text}");
        assert_eq!(search.is_plain(), is_plain, "{text}");
    }
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("state:lost", "lost"),
        ("age>soon", "age>1h"),
        ("ended<soon", "ended<30m"),
        (&"x ".repeat(51), "50"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.message.contains(part), "{}", error.message);
    }
    let viewer = Caller::unnamed(Role::Viewer);
    assert_eq!(Search::parse("tenant:other", &viewer, None).unwrap_err().code, "forbidden");
}

#[test]
fn arguments_are_found_by_their_path() {
    let fits = |payload: &str, search: &str| {
        parse(search).unwrap().args_fit(&Payload::new(Format::Json, payload.as_bytes()))
    };
    assert!(fits(r#"{"user_id":42}"#, "args.user_id:42"));
    assert!(!fits(r#"{"user_id":43}"#, "args.user_id:42"));
    assert!(fits(r#"{"user":{"name":"ann"}}"#, "args.user.name:ann"));
    assert!(fits(r#"{"to":[{"x":true}]}"#, "args.to.0.x:true"));
    assert!(!fits("[1", "args.0:1"));
}

#[test]
fn a_number_is_an_id_and_a_word_in_quotes_is_text() {
    let ids =
        |text: &str| parse(text).unwrap().ids.map(|ids| ids.iter().map(|id| id.get()).collect::<Vec<_>>());
    assert_eq!(ids("7"), Some(vec![7]));
    assert_eq!(ids("id:3,1"), Some(vec![1, 3]));
    assert_eq!(ids("id:3,1 3"), Some(vec![3]));
    for text in ["\"7\"", "0", "007", "-7", "7x", "+7"] {
        assert_eq!(ids(text), None, "{text}");
    }
    assert_eq!(parse("\"state:x\"").unwrap().filter.text.as_deref(), Some("state:x"));
    for wrong in ["id:x", "id:0", "id:1,,2"] {
        assert!(parse(wrong).unwrap_err().message.contains("is not an id"), "{wrong}");
    }
}

#[test]
fn errors_are_found_by_class_text_pattern_and_group() {
    use windlass_core::job::AttemptError;
    let error = AttemptError {
        message: "Connection to 10.0.0.1 timed out".to_owned(),
        class: Some("Net::Timeout".to_owned()),
        ..AttemptError::default()
    };
    let plain = AttemptError { class: None, ..error.clone() };
    for (text, fits, fits_plain) in [
        ("class:Net::Timeout", true, false),
        ("class:Net::*", true, false),
        ("class:net::timeout", false, false),
        ("error:TIMED", true, true),
        ("error:net::t*", true, false),
        ("error:\"connection to * timed out\"", true, true),
        ("error:timed*", false, false),
        ("group:Net::Timeout", true, false),
        ("group:\"Connection to * timed out\"", false, true),
    ] {
        let wanted = parse(text).unwrap();
        assert!(wanted.looks_into_payloads(), "{text}");
        let matches = |error| wanted.errors.iter().all(|one| one.fits(error));
        assert_eq!((matches(&error), matches(&plain)), (fits, fits_plain), "{text}");
    }
}

#[test]
fn a_search_is_told_again_without_its_states() {
    for (text, expected) in [
        ("", ""),
        ("state:failed queue:q", "queue:q "),
        ("queue:\"a b\" age>1h 7", "queue:\"a b\" age>1h 7 "),
        ("ended<1h state:failed", "ended<1h "),
        ("args.to:ann word \"state:x\"", "args.to:ann \"word\" \"state:x\" "),
    ] {
        assert_eq!(without_states(text), expected, "{text}");
    }
}
