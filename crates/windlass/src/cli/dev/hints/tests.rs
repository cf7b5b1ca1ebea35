use super::*;
use serde_json::json;
use windlass_core::{Name, Queue, Tenant, Timestamp};

fn event(kind: FeedKind, id: u64, name: &str, at_ms: i64) -> Arc<FeedEvent> {
    Arc::new(FeedEvent {
        seq: 1,
        at: Timestamp::from_millis(at_ms),
        kind,
        id: JobId::new(id).unwrap(),
        tenant: Tenant::default(),
        queue: Queue::default(),
        name: Name::new(name).unwrap(),
        state: StateWord::Ready,
    })
}

fn hints(lines: &[Line]) -> Vec<String> {
    let hint = |line: &Line| match line {
        Line::Hint { text, commands } => Some(format!("{text} {}", commands.join(" | "))),
        Line::Event { .. } => None,
    };
    lines.iter().filter_map(hint).collect()
}

fn texts(lines: &[Line]) -> Vec<&str> {
    let mut texts = Vec::new();
    for line in lines {
        if let Line::Event { text, .. } = line {
            texts.push(text.as_str());
        }
    }
    texts
}

fn failing() -> Value {
    json!({"state": "retrying", "attempts": 1, "max_attempts": 10, "run_at": 15_000, "origin": "native",
        "errors": [{"attempt": 1, "message": "no\u{1b}[2J route", "class": "IOError"}]})
}

#[test]
fn a_failure_is_shown_with_its_message_and_hinted_at_once_per_name() {
    let mut all = Hints::new(" --server http://127.0.0.1:1".to_owned(), 5_000);
    let first = all.step(&[event(FeedKind::Retrying, 3, "mail", 0)], 0, 0, &mut |_| failing());
    let expected = "job 3 mail attempt failed: IOError: no\u{fffd}[2J route (attempt 1 of 10, next in 15s)";
    assert_eq!(texts(&first), [expected]);
    let said = hints(&first);
    let command =
        "windlass job 3 --server http://127.0.0.1:1 | windlass job 3 run --server http://127.0.0.1:1";
    assert!(said.len() == 1 && said[0].ends_with(command), "{said:?}");
    let second = all.step(&[event(FeedKind::Retrying, 4, "mail", 9)], 0, 9, &mut |_| failing());
    assert_eq!((texts(&second).len(), hints(&second).len()), (1, 0));
    let other = all.step(&[event(FeedKind::Retrying, 5, "sync", 9)], 0, 9, &mut |_| failing());
    assert_eq!(hints(&other).len(), 1);
    let ended = all.step(&[event(FeedKind::Failed, 3, "mail", 9)], 0, 9, &mut |_| failing());
    assert!(hints(&ended)[0].contains("windlass job 3 retry"), "{ended:?}");
}

#[test]
fn a_job_that_nobody_claims_gets_a_hint_after_a_while() {
    let waits = |why: &str| json!({"state": "ready", "waiting_for": why, "origin": "native"});
    let check = |why: &str, words: &str| {
        let mut all = Hints::new(String::new(), 5_000);
        let pushed = event(FeedKind::Pushed, 7, "it's late", 1_000);
        assert_eq!(hints(&all.step(&[pushed], 0, 1_000, &mut |_| Value::Null)), Vec::<String>::new());
        assert_eq!(hints(&all.step(&[], 0, 5_999, &mut |_| waits(why))), Vec::<String>::new());
        let said = hints(&all.step(&[], 0, 6_000, &mut |_| waits(why)));
        assert!(said.len() == 1 && said[0].contains(words), "{why}: {said:?}");
        let again = event(FeedKind::Pushed, 8, "it's late", 7_000);
        all.step(&[again], 0, 7_000, &mut |_| Value::Null);
        assert_eq!(hints(&all.step(&[], 0, 20_000, &mut |_| waits(why))), Vec::<String>::new(), "once");
    };
    check("a worker", r"windlass work 'it'\''s late' -- cat");
    check("paused queue", "windlass queues resume default");
    check("limit one-mail", "because of the limit one-mail");
}

#[test]
fn a_job_that_was_claimed_gets_no_hint() {
    let mut all = Hints::new(String::new(), 5_000);
    let events = [event(FeedKind::Pushed, 7, "mail", 0), event(FeedKind::Claimed, 7, "mail", 10)];
    all.step(&events, 0, 20, &mut |_| Value::Null);
    assert_eq!(hints(&all.step(&[], 0, 60_000, &mut |_| panic!("nothing waits"))), Vec::<String>::new());
    // The next one of the name waits although there was a worker.
    all.step(&[event(FeedKind::Pushed, 8, "mail", 60_000)], 0, 60_000, &mut |_| Value::Null);
    let busy = json!({"state": "ready", "waiting_for": "a worker", "origin": "native"});
    let said = hints(&all.step(&[], 0, 70_000, &mut |_| busy.clone()));
    assert!(said[0].contains("busy or gone") && said[0].contains("windlass top"), "{said:?}");
    // A job that ended meanwhile is not mentioned.
    all.step(&[event(FeedKind::Pushed, 9, "gone", 80_000)], 0, 80_000, &mut |_| Value::Null);
    assert_eq!(hints(&all.step(&[], 0, 90_000, &mut |_| Value::Null)), Vec::<String>::new());
}

#[test]
fn many_events_are_summed_up_and_the_hints_remain() {
    let mut all = Hints::new(String::new(), 5_000);
    let mut events: Vec<_> = (1..=100).map(|id| event(FeedKind::Pushed, id, "row", 0)).collect();
    events.extend((1..=40).map(|id| event(FeedKind::Failed, id, "row", 0)));
    let mut asked = 0;
    let lines = all.step(&events, 0, 0, &mut |_| {
        asked += 1;
        failing()
    });
    assert_eq!(texts(&lines).last(), Some(&"jobs: 40 failed, 100 pushed"));
    assert_eq!((texts(&lines).len(), hints(&lines).len(), asked), (2, 1, 1));
    let missed = all.step(&[], 9_000, 0, &mut |_| Value::Null);
    assert_eq!(texts(&missed), ["jobs: 9000 events not shown"]);
}

#[test]
fn names_without_end_do_not_fill_the_memory() {
    let mut all = Hints::new(String::new(), 5_000);
    for id in 1..=3_000 {
        let name = format!("n{id}");
        let events = [event(FeedKind::Failed, id, &name, 0), event(FeedKind::Pushed, id, &name, 0)];
        all.step(&events, 0, 0, &mut |_| failing());
        all.step(&[event(FeedKind::Claimed, id, &format!("m{id}"), 0)], 0, 0, &mut |_| Value::Null);
    }
    assert_eq!((all.given.len(), all.waiting.len(), all.claimed.len()), (NAMES_MAX, NAMES_MAX, NAMES_MAX));
}
