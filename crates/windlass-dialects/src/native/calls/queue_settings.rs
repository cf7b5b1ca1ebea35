//! `GET` and `PUT /api/v1/queues/{queue}`: one queue with its settings.

use super::queues::views_of;
use crate::codec::Nullable;
use crate::native::State;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Body, one_tenant};
use crate::native::wire::{KeepMs, given};
use crate::query::QueueCounts;
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{Keep, KeepFor, Queue, Tenant};
use windlass_engine::{KeepSettings, QueueSettings};

pub(super) const EXAMPLES: Examples = &[(
    "keep",
    "keep completed jobs for a day, failed ones as long as the server's default",
    r#"{"keep":{"completed_ms":86400000,"failed_ms":null}}"#,
)];

/// Settings of a queue; omitted ones stay unchanged.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "QueueSettings")]
pub(super) struct QueueAsk {
    pub keep: Option<KeepChange>,
}

/// Keep times of jobs that are pushed from now on without `keep`; null: the server's default.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(super) struct KeepChange {
    /// After completion.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Nullable<KeepMs>")]
    pub completed_ms: Option<Option<KeepMs>>,
    /// After failure.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Nullable<KeepMs>")]
    pub failed_ms: Option<Option<KeepMs>>,
    /// After cancellation.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Nullable<KeepMs>")]
    pub cancelled_ms: Option<Option<KeepMs>>,
}

impl KeepChange {
    fn applied_to(&self, keep: KeepSettings) -> KeepSettings {
        let new = |asked: Option<Option<KeepMs>>, old: Option<KeepFor>| match asked {
            Some(asked) => asked.map(|KeepMs(keep)| keep),
            None => old,
        };
        KeepSettings {
            completed: new(self.completed_ms, keep.completed),
            failed: new(self.failed_ms, keep.failed),
            cancelled: new(self.cancelled_ms, keep.cancelled),
        }
    }
}

/// Keep times that apply to the jobs of a queue.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct KeepView {
    /// After completion.
    completed_ms: KeepMs,
    /// After failure.
    failed_ms: KeepMs,
    /// After cancellation.
    cancelled_ms: KeepMs,
}

/// Fields of a queue about its settings.
#[derive(Serialize, JsonSchema)]
pub(super) struct SettingsFields {
    keep: KeepView,
    /// Keep times that are set for this queue; the others are the server's defaults.
    keep_set: Option<Vec<&'static str>>,
}

impl SettingsFields {
    pub(super) fn of(call: &Call, tenant: &Tenant, queue: &Queue) -> SettingsFields {
        let QueueSettings { keep } = call.engine.queue_settings(tenant, queue);
        SettingsFields::new(keep, call.server.state::<State>().settings.keep)
    }

    fn new(own: KeepSettings, default: Keep) -> SettingsFields {
        let keep = own.or(default);
        let all =
            [("completed_ms", own.completed), ("failed_ms", own.failed), ("cancelled_ms", own.cancelled)];
        let set: Vec<&str> = all.into_iter().filter_map(|(name, set)| set.map(|_| name)).collect();
        SettingsFields {
            keep: KeepView {
                completed_ms: KeepMs(keep.completed),
                failed_ms: KeepMs(keep.failed),
                cancelled_ms: KeepMs(keep.cancelled),
            },
            keep_set: Some(set).filter(|set| !set.is_empty()),
        }
    }
}

pub(super) async fn get(call: Call) -> Answer {
    let (tenant, queue) = (one_tenant(&call)?, Queue::new(call.param(0))?);
    show(&call, &tenant, &queue).await
}

pub(super) async fn put(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: QueueAsk = body.read()?;
    let (tenant, queue) = (one_tenant(&call)?, Queue::new(call.param(0))?);
    let Some(keep) = &ask.keep else {
        return Err(ApiError::bad_request(
            "nothing to set; send for example {\"keep\":{\"completed_ms\":0}}",
        ));
    };
    let known = call.engine.queue_settings(&tenant, &queue);
    let settings = QueueSettings { keep: keep.applied_to(known.keep) };
    call.engine.set_queue_settings(&tenant, &queue, settings).await?;
    show(&call, &tenant, &queue).await
}

async fn show(call: &Call, tenant: &Tenant, queue: &Queue) -> Answer {
    call.engine.check_queue(queue)?;
    let counts = call.engine.counts(Some(tenant)).await?;
    let empty = || QueueCounts {
        tenant: tenant.clone(),
        queue: queue.clone(),
        paused: false,
        by_state: [0; 9],
        delayed: 0,
        retrying: 0,
        oldest_due: None,
    };
    let counts = [counts.into_iter().find(|counts| counts.queue == *queue).unwrap_or_else(empty)];
    match views_of(call, &counts).as_slice() {
        [view] => reply(call, StatusCode::OK, 512, view),
        _ => Err(ApiError::bad_request("there is no such queue")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, Encoding};

    #[test]
    fn a_keep_time_is_set_left_alone_or_given_back_to_the_server() {
        let before =
            KeepSettings { completed: Some(KeepFor::Ms(5)), failed: Some(KeepFor::Ms(6)), cancelled: None };
        for (body, after) in [
            ("{}", before),
            (r#"{"completed_ms":0}"#, KeepSettings { completed: Some(KeepFor::Drop), ..before }),
            (r#"{"completed_ms":null}"#, KeepSettings { completed: None, ..before }),
            (r#"{"cancelled_ms":"ever"}"#, KeepSettings { cancelled: Some(KeepFor::Ever), ..before }),
        ] {
            let change = codec::read::<KeepChange>(Encoding::Json, body.as_bytes()).unwrap();
            assert_eq!(change.applied_to(before), after, "{body}");
        }
    }

    #[test]
    fn the_view_has_the_times_that_apply_and_says_which_are_the_queues_own() {
        let own = KeepSettings { failed: Some(KeepFor::Ms(7)), ..KeepSettings::default() };
        let shown = serde_json::to_value(SettingsFields::new(own, Keep::default())).unwrap();
        let keep =
            serde_json::json!({"completed_ms": 3_600_000, "failed_ms": 7, "cancelled_ms": 604_800_000});
        assert_eq!(shown, serde_json::json!({"keep": keep, "keep_set": ["failed_ms"]}));
    }
}
