//! `GET /api/v1/queues`, and `POST …/{queue}/pause` and `…/resume`.

use super::queue_settings::SettingsFields;
use crate::codec::Nullable;
use crate::native::State;
use crate::native::rates::Flow;
use crate::native::reply::{Answer, ok, reply};
use crate::native::request::{one_tenant, seen_tenant};
use crate::query::QueueCounts;
use crate::route::Call;
use ::http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, json};
use std::borrow::Cow;
use windlass_core::{Queue, StateWord, Timestamp};

/// Queues.
#[derive(Serialize, JsonSchema)]
pub(super) struct Queues<'a> {
    /// List of queues.
    queues: Vec<QueueView<'a>>,
}

/// Queue.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub(super) struct QueueView<'a> {
    /// Name of the queue.
    queue: &'a str,
    /// Tenant that owns it.
    tenant: &'a str,
    /// True if its jobs are not claimed.
    paused: bool,
    #[serde(flatten)]
    states: StateCounts<'a>,
    /// Waiting time of the oldest job that could run now.
    #[schemars(with = "Nullable<u64>")]
    oldest_ms: Nullable<i64>,
    /// Jobs pushed per second over the last minute, through this server.
    pushed_per_s: f64,
    /// Jobs claimed per second over the last minute, through this server.
    claimed_per_s: f64,
    /// Estimated time until no job is ready, at the current rates.
    #[schemars(range(min = 0))]
    empty_in_ms: Option<i64>,
    #[serde(flatten)]
    settings: SettingsFields,
}

impl<'a> QueueView<'a> {
    fn new(counts: &'a QueueCounts, flow: Flow, now: Timestamp, settings: SettingsFields) -> QueueView<'a> {
        let ready = counts.of_word(StateWord::Ready);
        QueueView {
            queue: &counts.queue,
            tenant: &counts.tenant,
            paused: counts.paused,
            states: StateCounts(Cow::Borrowed(counts)),
            oldest_ms: Nullable(counts.oldest_due.map(|due| now.since_ms(due))),
            pushed_per_s: flow.pushed_per_s,
            claimed_per_s: flow.claimed_per_s,
            empty_in_ms: flow.empties_in_ms(ready).filter(|_| !counts.paused),
            settings,
        }
    }
}

/// Counts by state, each job under the word by which it is shown.
pub(super) struct StateCounts<'a>(pub(super) Cow<'a, QueueCounts>);

impl Serialize for StateCounts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for word in StateWord::ALL {
            map.serialize_entry(word.as_str(), &self.0.of_word(word))?;
        }
        map.end()
    }
}

impl JsonSchema for StateCounts<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StateCounts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let about = |word| match word {
            StateWord::Ready => "Jobs that can be claimed now.",
            StateWord::Delayed => "Jobs whose start time is in the future.",
            StateWord::Retrying => "Jobs whose next attempt is in the future.",
            _ => "Jobs in this state.",
        };
        let count = |about: &str| json!({"type": "integer", "description": about, "minimum": 0});
        let properties: Map<_, _> =
            StateWord::ALL.map(|word| (word.as_str().to_owned(), count(about(word)))).into_iter().collect();
        let required: Vec<String> = properties.keys().cloned().collect();
        json_schema!({"type": "object", "properties": properties, "required": required})
    }
}

/// Queue that was paused or resumed.
#[derive(Serialize, JsonSchema)]
pub(super) struct QueuePaused<'a> {
    /// Name of the queue.
    queue: &'a str,
    /// Tenant that owns it.
    tenant: &'a str,
    /// True if the queue is paused now.
    paused: bool,
}

pub(super) async fn queues(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let engine = &call.engine;
    let counts = engine.counts(tenant.as_ref()).await?;
    let queues = views_of(&call, &counts);
    reply(&call, StatusCode::OK, 32 + counts.len() * 256, &Queues { queues })
}

pub(super) fn views_of<'a>(call: &Call, counts: &'a [QueueCounts]) -> Vec<QueueView<'a>> {
    let (engine, now) = (&call.engine, call.engine.now());
    let flows = call.server.state::<State>().rates.flows(engine.meters());
    let flow =
        |one: &QueueCounts| flows.get(&(one.tenant.clone(), one.queue.clone())).copied().unwrap_or_default();
    let settings = |one: &QueueCounts| SettingsFields::of(call, &one.tenant, &one.queue);
    counts.iter().map(|one| QueueView::new(one, flow(one), now, settings(one))).collect()
}

pub(super) async fn pause(call: Call) -> Answer {
    set_paused(call, true).await
}

pub(super) async fn resume(call: Call) -> Answer {
    set_paused(call, false).await
}

async fn set_paused(call: Call, paused: bool) -> Answer {
    let tenant = one_tenant(&call)?;
    let queue = Queue::new(call.param(0))?;
    call.engine.set_paused(&tenant, &queue, paused).await?;
    ok(&call, &QueuePaused { queue: &queue, tenant: &tenant, paused })
}
