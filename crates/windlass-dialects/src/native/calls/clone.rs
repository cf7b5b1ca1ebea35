//! `POST /api/v1/jobs/{id}/clone`: pushes a new job with the specification of another.

use crate::codec::{Raw, Text};
use crate::native::commands::{payload, run_at};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, find};
use crate::native::schema::FormatWord;
use crate::native::wire::{Id, When};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::{Extras, Format, JobSpec, Policy, Queue, trace};
use windlass_engine::{Push, Pushed, RunAt};

pub(super) const EXAMPLES: Examples = &[
    ("later", "a copy that runs in a minute", r#"{"delay_ms":60000}"#),
    ("changed", "a copy with another payload", r#"{"payload":{"to":"bob"}}"#),
];

/// Options of a clone.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Clone")]
pub(super) struct CloneAsk<'a> {
    /// Time of its run; now if omitted.
    pub run_at: Option<When>,
    /// Time of its run, in milliseconds from now.
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// Queue; that of the job if omitted.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// Priority; that of the job if omitted.
    pub priority: Option<i32>,
    /// Payload; that of the job if omitted.
    #[serde(borrow)]
    pub payload: Option<Raw<'a>>,
    /// Payload that is not JSON, in base64.
    #[serde(borrow)]
    pub payload_base64: Option<Text<'a>>,
    #[schemars(with = "Option<FormatWord>")]
    pub format: Option<Format>,
}

/// Clone of a job.
#[derive(Serialize, JsonSchema)]
pub(super) struct Cloned {
    /// Id of the new job.
    id: Id,
    /// Id of the job that it was made from.
    from: Id,
}

pub(super) async fn clone(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: CloneAsk<'_> = body.read_or_default()?;
    let at = run_at(ask.run_at, ask.delay_ms).map_err(ApiError::bad_request)?;
    let queue = ask.queue.as_ref().map(|queue| Queue::new(queue)).transpose()?;
    let payload =
        payload(ask.payload, ask.payload_base64.as_ref(), ask.format).map_err(ApiError::bad_request)?;
    let (tenant, job) = find(&call).await?;
    let mut push = push_of(&job.spec, queue, at);
    push.payload = payload.unwrap_or(push.payload);
    push.priority = ask.priority.unwrap_or(push.priority);
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let mut pushed = engine.push(&tenant, vec![push]).await?;
    match pushed.pop() {
        Some(Pushed::New(id) | Pushed::Existing(id)) => {
            reply(&call, StatusCode::CREATED, 64, &Cloned { id: Id(id), from: Id(job.id) })
        }
        Some(Pushed::Refused(refused)) => Err(refused.into()),
        None => Err(ApiError::no_such_job()),
    }
}

/// Push of a job like another: without its idempotency key and alias, which only one job has, without parent, and
/// without repeat rule, because a clone runs once.
fn push_of(spec: &JobSpec, queue: Option<Queue>, at: RunAt) -> Push {
    let policy = match &spec.policy.repeat {
        None => Arc::clone(&spec.policy),
        Some(_) => {
            let policy = Policy::clone(&spec.policy);
            Arc::new(Policy { repeat: None, repeat_after_failure: false, ..policy })
        }
    };
    let extras = spec.extras.as_deref().map(|extras| Extras {
        origin: extras.origin.clone(),
        // A clone belongs to the trace of its own push.
        tags: extras.tags.iter().filter(|tag| !tag.starts_with(trace::TAG)).cloned().collect(),
        facts: extras.facts.clone(),
        ..Extras::default()
    });
    Push {
        queue: queue.unwrap_or_else(|| spec.queue.clone()),
        name: spec.name.clone(),
        payload: spec.payload.clone(),
        priority: spec.priority,
        run_at: at,
        policy,
        extras: extras.filter(|extras| *extras != Extras::default()).map(Box::new),
        body: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::family::{Family, FamilyRule};
    use windlass_core::repeat::Repeat;
    use windlass_core::unique::{HeldUntil, OnConflict, Unique};
    use windlass_core::{JobId, Name, Payload, Tenant, Timestamp};

    #[test]
    fn a_clone_has_the_specification_without_what_is_one_jobs_own() {
        let mut policy = Policy { repeat: Some(Repeat::parse("every 5m").unwrap()), ..Policy::default() };
        policy.retry.max_attempts = Some(7);
        let extras = Extras {
            origin: Some("other".into()),
            alias: Some("a".into()),
            tags: vec!["t".into()],
            unique: Some(Unique {
                key: "k".into(),
                on_conflict: OnConflict::Return,
                held_until: HeldUntil::Settled,
            }),
            family: Some(Family {
                parent: JobId::new(3).unwrap(),
                child_name: None,
                rule: FamilyRule::ParentRunsAfter,
            }),
            limit_keys: vec!["l".into()],
            dated: true,
            ..Extras::default()
        };
        let spec = JobSpec {
            tenant: Tenant::default(),
            queue: Queue::new("q").unwrap(),
            name: Name::new("n").unwrap(),
            payload: Payload::json("[1]"),
            priority: 4,
            created_at: Timestamp::EPOCH,
            policy: Arc::new(policy),
            extras: Some(Box::new(extras)),
        };
        let push = push_of(&spec, None, RunAt::After(5));
        assert_eq!((push.queue.as_str(), push.name.as_str(), push.priority), ("q", "n", 4));
        assert_eq!((push.payload.clone(), push.run_at), (spec.payload.clone(), RunAt::After(5)));
        assert_eq!((push.policy.retry.max_attempts, push.policy.repeat.is_none()), (Some(7), true));
        let kept = Extras { origin: Some("other".into()), tags: vec!["t".into()], ..Extras::default() };
        assert_eq!(push.extras.as_deref(), Some(&kept));
        assert_eq!(push_of(&spec, Some(Queue::new("x").unwrap()), RunAt::Now).queue.as_str(), "x");
    }
}
