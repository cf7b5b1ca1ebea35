//! What miniq's clients send: lines, names, handlers, times; and the types of lines in the journal.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/windlass-dialects/src/miniq/wire.rs"]
#[allow(dead_code)]
mod wire;

use windlass_core::Timestamp;
use windlass_core::handler::HandlerText;
use wire::LineKind;

fn now() -> Timestamp {
    Timestamp::from_millis(1_763_200_000_000)
}

fuzz_target!(|input: &[u8]| {
    payloads(input);
    handler(input);
    let text = String::from_utf8_lossy(input);
    if let Ok(Some(at)) = wire::when(Some(&text), None, now()) {
        assert!(at >= now(), "a delay goes forward");
    }
    let _ = wire::when(None, Some(&text), now());
    names(&text);
    if let Ok(kind) = LineKind::parse(&text) {
        assert_eq!(LineKind::parse(&kind.text()), Ok(kind), "what is written is read again as it was");
    }
});

fn payloads(body: &[u8]) {
    let payloads = wire::payloads(body).expect("few lines");
    for payload in payloads {
        assert!(!payload.is_empty() && payload[0] != b'#' && !payload.contains(&b'\n'));
    }
    let Some(text) = wire::journaled(body) else { return };
    assert!(!text.contains(&b'\n'), "a line is one line");
    assert_eq!(wire::unjournaled(&text).as_deref(), Ok(body));
}

fn handler(body: &[u8]) {
    let Ok(handler) = wire::handler(body, Some("sh")) else { return };
    assert!(!handler.lang.is_empty() && !handler.body.is_empty());
    let kept = serde_json::to_vec(&handler).expect("a handler can be kept");
    let again = wire::handler(&kept, None).expect("and is one again");
    let texts = |one: &HandlerText| {
        [one.eid.clone(), one.before.clone(), one.before_each.clone(), one.after_each.clone()]
    };
    assert_eq!((&again.lang, &again.body, texts(&again)), (&handler.lang, &handler.body, texts(&handler)));
    assert_eq!(again.next(), handler.next());
}

/// Two names make a full type from which both can be told.
fn names(text: &str) {
    let Some((client, jobtype)) = text.split_once('\n') else { return };
    let (Ok(client), Ok(jobtype)) = (wire::client(client), wire::jobtype(jobtype)) else { return };
    let kind = LineKind { client, jobtype, run_at: None, is_base64: false };
    assert_eq!(LineKind::parse(&wire::full_type(&kind.client, &kind.jobtype)), Ok(kind));
}
