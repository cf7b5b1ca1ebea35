use super::*;
use crate::auth::Role;

fn parse(text: &str) -> Result<Search, ApiError> {
    Search::parse(text, &Caller::unnamed(Role::Admin), None)
}

#[test]
fn words_are_split_at_blanks_and_kept_together_by_quotes() {
    assert_eq!(words(r#" a  b:c "d e" queue:"mail out" "#), ["a", "b:c", "d e", "queue:mail out"]);
    assert_eq!(words(r#""say \"hi\"" """#), [r#"say "hi""#]);
    assert_eq!(words("\"open end"), ["open end"]);
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
    for text in ["http://x", "state:", "age:5", "args.:x", "foo:bar"] {
        let search = parse(text).unwrap();
        assert_eq!(search.filter.text.as_deref(), Some(text));
        assert!(search.looks_into_payloads());
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
    for (text, part) in [("state:lost", "lost"), ("age>soon", "soon"), (&"x ".repeat(51), "50")] {
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
