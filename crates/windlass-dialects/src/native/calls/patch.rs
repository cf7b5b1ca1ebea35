//! `PATCH /api/v1/jobs/{id}`: fields that are not sent stay unchanged.

use super::act::act_on;
use crate::codec::{Nullable, Raw, Text};
use crate::native::commands::{payload, repeat, run_at, tags};
use crate::native::errors::ApiError;
use crate::native::reply::Answer;
use crate::native::request::{Body, find};
use crate::native::schema::FormatWord;
use crate::native::wire::{When, given};
use crate::route::{Call, Examples};
use schemars::JsonSchema;
use windlass_core::event::Patch;
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::{Event, Extras, Format, Name, Queue, Timestamp};

pub(super) const EXAMPLES: Examples = &[("first", "raise the priority", r#"{"priority":-10}"#)];

/// Changes to a job; omitted fields stay unchanged.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Patch")]
pub(super) struct PatchAsk<'a> {
    /// New payload.
    #[serde(borrow)]
    pub payload: Option<Raw<'a>>,
    /// New payload that is not JSON, in base64.
    #[serde(borrow)]
    pub payload_base64: Option<Text<'a>>,
    #[schemars(with = "Option<FormatWord>")]
    pub format: Option<Format>,
    /// Priority; a smaller number runs first.
    pub priority: Option<i32>,
    /// Kind of job.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub name: Option<Text<'a>>,
    /// Queue.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// Earliest time of the run.
    pub run_at: Option<When>,
    /// Earliest time of the run, in milliseconds from now.
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// New repeat rule; null ends the repetition.
    #[serde(borrow, deserialize_with = "given")]
    #[schemars(with = "Nullable<Text<'a>>")]
    pub repeat: Option<Option<Text<'a>>>,
    /// Tags, replacing all present ones.
    #[serde(borrow)]
    pub tags: Option<Vec<Text<'a>>>,
}

pub(super) async fn patch(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: PatchAsk<'_> = body.read()?;
    let (tenant, job) = find(&call).await?;
    let now = call.engine.now();
    let patch = changes(&ask, job.spec.extras.as_deref(), now).map_err(ApiError::bad_request)?;
    let (queue, name) = (patch.queue.as_ref(), patch.name.as_ref());
    call.engine.check_reach(queue.unwrap_or(&job.spec.queue), name.unwrap_or(&job.spec.name))?;
    act_on(&call, &tenant, &job, Event::Update(Box::new(patch))).await
}

/// `extras` are the current ones of the job, of which a patch can change the tags.
fn changes(ask: &PatchAsk<'_>, extras: Option<&Extras>, now: Timestamp) -> Result<Patch, String> {
    let patched_extras = match &ask.tags {
        None => None,
        Some(new) => Some(Box::new(Extras { tags: tags(new)?, ..extras.cloned().unwrap_or_default() })),
    };
    let run_at = match (ask.run_at, ask.delay_ms) {
        (None, None) => None,
        (at, delay_ms) => Some(run_at(at, delay_ms)?.from(now)),
    };
    Ok(Patch {
        payload: payload(ask.payload, ask.payload_base64.as_ref(), ask.format)?,
        priority: ask.priority,
        name: ask.name.as_ref().map(|name| Name::new(name)).transpose().map_err(|e| e.to_string())?,
        queue: ask.queue.as_ref().map(|queue| Queue::new(queue)).transpose().map_err(|e| e.to_string())?,
        run_at,
        repeat: match &ask.repeat {
            None => None,
            Some(None) => Some(None),
            Some(Some(rule)) => Some(Some(repeat(rule)?)),
        },
        extras: patched_extras,
        ..Patch::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, Encoding};

    #[test]
    fn a_patch_tells_null_from_nothing() {
        let read = |body: &'static str| codec::read::<PatchAsk<'_>>(Encoding::Json, body.as_bytes()).unwrap();
        assert_eq!(read("{}").repeat, None);
        assert_eq!(read(r#"{"repeat":null}"#).repeat, Some(None));
        assert!(matches!(read(r#"{"repeat":"every 5m"}"#).repeat, Some(Some(_))));
    }
}
