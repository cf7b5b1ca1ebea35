//! Encoding of a whole push as a line, for callers whose pushes must be accepted while the store is
//! unavailable.

use super::Reader;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::job::Format;
use windlass_core::{Body, Extras, Name, Payload, Policy, Queue, Tenant, Timestamp};
use windlass_engine::journal::Line;
use windlass_engine::{Push, RunAt};

/// Type of these lines. Types of clients' jobs contain a `-`.
pub const KIND: &str = "windlass.push";

#[derive(Serialize, Deserialize)]
struct StoredPush {
    tenant: Tenant,
    queue: Queue,
    name: Name,
    format: Format,
    /// Payload that is valid UTF-8; any other is in `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    priority: i32,
    /// `None`: at the first time of its repeat rule.
    run_at: Option<Timestamp>,
    /// True if `run_at` was computed from a delay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_delay: bool,
    policy: Policy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extras: Option<Box<Extras>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Body>,
}

/// Encodes a push. Delays count from `now`, not from the time of the ingest. A job without an alias gets the
/// line's id as its alias, so that a line delivered twice creates one job.
pub fn encode_push(tenant: &Tenant, push: &Push, id: &str, now: Timestamp) -> Vec<u8> {
    let text = std::str::from_utf8(&push.payload.bytes).ok();
    let mut extras = push.extras.clone().unwrap_or_default();
    extras.alias.get_or_insert_with(|| id.into());
    let stored = StoredPush {
        tenant: tenant.clone(),
        queue: push.queue.clone(),
        name: push.name.clone(),
        format: push.payload.format,
        payload: text.map(str::to_owned),
        base64: text.is_none().then(|| STANDARD.encode(&push.payload.bytes)),
        priority: push.priority,
        run_at: (push.run_at != RunAt::FirstTurn).then(|| push.run_at.from(now)),
        is_delay: matches!(push.run_at, RunAt::After(_) | RunAt::Delayed(_)),
        policy: (*push.policy).clone(),
        extras: Some(extras),
        body: push.body.as_deref().cloned(),
    };
    // Cannot fail: the fields are texts, integers and maps with text keys.
    serde_json::to_vec(&stored).unwrap_or_default()
}

/// True if the push can be acknowledged without a query to the store.
pub fn needs_no_store(push: &Push) -> bool {
    push.extras.as_ref().is_none_or(|extras| extras.unique.is_none() && extras.family.is_none())
}

/// Reads lines of the type [`KIND`].
pub struct PushReader;

impl Reader for PushReader {
    fn read(&self, line: &Line) -> Option<Result<(Tenant, Push), String>> {
        (line.kind == KIND).then(|| push_of(line))
    }
}

fn push_of(line: &Line) -> Result<(Tenant, Push), String> {
    let stored: StoredPush = serde_json::from_slice(&line.payload).map_err(|error| error.to_string())?;
    let bytes: Arc<[u8]> = match (stored.payload, stored.base64) {
        (Some(text), _) => text.into_bytes().into(),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|error| error.to_string())?.into(),
        (None, None) => return Err("it has no payload".to_owned()),
    };
    let push = Push {
        queue: stored.queue,
        name: stored.name,
        payload: Payload::new(stored.format, bytes),
        priority: stored.priority,
        run_at: match stored.run_at {
            None => RunAt::FirstTurn,
            Some(at) if stored.is_delay => RunAt::Delayed(at),
            Some(at) => RunAt::At(at),
        },
        policy: Arc::new(stored.policy),
        extras: stored.extras,
        body: stored.body.map(Arc::new),
    };
    Ok((stored.tenant, push))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(push: &Push) -> Push {
        let tenant = Tenant::new("acme").unwrap();
        let payload = encode_push(&tenant, push, "Q7TzzMq-vm-aHav-000", Timestamp::from_millis(1_000)).into();
        let line = Line { id: "Q7TzzMq-vm-aHav-000".to_owned(), kind: KIND.to_owned(), payload };
        let (whose, again) = PushReader.read(&line).unwrap().unwrap();
        assert_eq!(whose, tenant);
        assert_eq!((&again.queue, &again.name, &again.payload), (&push.queue, &push.name, &push.payload));
        assert_eq!((again.priority, &again.policy), (push.priority, &push.policy));
        again
    }

    fn push() -> Push {
        Push {
            queue: Queue::default(),
            name: Name::new("mail").unwrap(),
            payload: Payload::json("{\"to\":\"you\"}"),
            priority: -3,
            run_at: RunAt::After(500),
            policy: Arc::default(),
            extras: None,
            body: None,
        }
    }

    #[test]
    fn a_push_comes_back_from_its_line() {
        let again = check(&push());
        assert_eq!(again.run_at, RunAt::Delayed(Timestamp::from_millis(1_500)), "delays count from the push");
        let date = RunAt::At(Timestamp::from_millis(9_000));
        assert_eq!(check(&Push { run_at: date, ..push() }).run_at, date);
        assert_eq!(again.extras.unwrap().alias.as_deref(), Some("Q7TzzMq-vm-aHav-000"));
        check(&Push { payload: Payload::new(Format::Binary, vec![0, 255, 10, 13]), ..push() });
        let extras = Extras { alias: Some("mine".into()), tags: vec!["t".into()], ..Extras::default() };
        let again =
            check(&Push { extras: Some(Box::new(extras.clone())), run_at: RunAt::FirstTurn, ..push() });
        assert_eq!((again.extras, again.run_at), (Some(Box::new(extras)), RunAt::FirstTurn));
    }

    #[test]
    fn lines_of_others_and_nonsense_make_no_push() {
        let line = |kind: &str, payload: &'static str| Line {
            id: "i".into(),
            kind: kind.into(),
            payload: payload.into(),
        };
        assert!(PushReader.read(&line("acme-resize", "x")).is_none());
        assert!(PushReader.read(&line(KIND, "{}")).unwrap().is_err());
        assert!(PushReader.read(&line(KIND, "\u{1}")).unwrap().is_err());
    }
}
