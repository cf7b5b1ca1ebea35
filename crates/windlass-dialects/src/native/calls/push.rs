//! `POST /api/v1/jobs`: one job, or a batch in `jobs`.

use crate::codec::{self, Encoding, Malformed, Nullable, Raw, Text};
use crate::ingest::pushes;
use crate::native::State;
use crate::native::commands::{payload, repeat, run_at};
use crate::native::errors::{ApiError, ErrorBody};
use crate::native::reply::{Answer, reply};
use crate::native::request::Body;
use crate::native::schema::{CatchUpWord, FormatWord};
use crate::native::wire::{
    self, BackoffAsk, Id, Keep, KeepMs, Lease, Retry, RetryAsk, TenantText, UniqueAsk, When,
};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::retry::{Backoff, RetryPolicy};
use windlass_core::turn::CatchUp;
use windlass_core::{Format, KeepFor, Name, Payload, Policy, Queue, Tenant};
use windlass_engine::journal::{JournalError, NewLine};
use windlass_engine::{Push, Pushed, RunAt};

mod keys;
#[cfg(test)]
mod tests;

pub(super) const EXAMPLES: Examples = &[
    ("one", "one job", r#"{"name":"mail","payload":{"to":"ann@example.org"}}"#),
    ("later", "in ten minutes, with three attempts", r#"{"name":"mail","delay_ms":600000,"retry":3}"#),
    ("batch", "a batch", r#"{"jobs":[{"name":"mail","payload":1},{"name":"mail","payload":2}]}"#),
    (
        "repeating",
        "every night, with a unique key",
        r#"{"name":"report","repeat":"0 4 * * *","unique":"report"}"#,
    ),
];

/// Job to create.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a job, or {\"jobs\": […]}")]
#[schemars(rename = "NewJob")]
pub(super) struct PushJob<'a> {
    /// Kind of job, by which workers claim it.
    // Required; an `Option` only for a better error message.
    #[serde(borrow)]
    #[schemars(required, length(min = 1, max = NAME_BYTES_MAX))]
    pub name: Option<Text<'a>>,
    /// Data for the worker: any value, stored byte for byte.
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
    /// Instead of `payload`: bytes that are not JSON, in base64.
    #[serde(borrow, default)]
    pub payload_base64: Option<Text<'a>>,
    #[serde(default)]
    #[schemars(with = "Option<FormatWord>")]
    pub format: Option<Format>,
    /// Queue; `default` if omitted.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// Priority; a smaller number runs first.
    #[serde(default)]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub priority: i32,
    /// Earliest time of the run.
    #[serde(default)]
    pub run_at: Option<When>,
    /// Earliest time of the run, in milliseconds from now; instead of `run_at`.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// Repeat rule: `every 5m`, `0 4 * * *`, …
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::REPEAT_BYTES_MAX))]
    pub repeat: Option<Text<'a>>,
    /// Handling of a turn of a repeating job that was not claimed before the next scheduled time: `one` (of
    /// the missed turns one is run, late) or `none`; `one` if omitted.
    #[serde(default)]
    #[schemars(with = "Option<CatchUpWord>")]
    pub catch_up: Option<CatchUp>,
    /// Unique key: at most one live job per key.
    #[serde(borrow, default)]
    pub unique: Option<UniqueAsk<'a>>,
    /// Key of this push: a second push with the key creates no job and returns the id of the first. The job is kept
    /// for at least ten minutes after its completion, and the key as long as the job.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub idempotency_key: Option<Text<'a>>,
    /// Total number of attempts, or a whole retry policy.
    #[serde(default)]
    pub retry: Option<RetryAsk>,
    /// Length of a lease without a heartbeat.
    #[serde(default)]
    pub lease_ms: Option<Lease>,
    #[serde(default)]
    pub keep: Option<Keep>,
    /// Id of a running job that continues after this job and its other children are settled.
    #[serde(default)]
    pub parent: Option<Id>,
    /// Alias, unique per tenant.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::KEY_BYTES_MAX))]
    pub alias: Option<Text<'a>>,
    /// Tags for searches.
    #[serde(borrow, default)]
    #[schemars(length(max = wire::TAGS_MAX), inner(length(max = wire::LABEL_BYTES_MAX)))]
    pub tags: Vec<Text<'a>>,
    /// Jobs of a batch; only at the top level of a body.
    #[serde(borrow, default)]
    #[schemars(skip)]
    pub jobs: Option<Vec<PushJob<'a>>>,
    /// Tenant; only at the top level of a body.
    #[serde(borrow, default)]
    #[schemars(skip)]
    pub tenant: Option<TenantText<'a>>,
}

impl PushJob<'_> {
    /// True if both jobs have equal policies; equal neighbors in a batch share one.
    fn has_same_policy_as(&self, other: &PushJob<'_>) -> bool {
        self.lease_ms == other.lease_ms
            && self.retry == other.retry
            && self.keep == other.keep
            && self.repeat.as_deref() == other.repeat.as_deref()
            && self.catch_up == other.catch_up
            && self.idempotency_key.is_some() == other.idempotency_key.is_some()
    }
}

/// Parsed push: the tenant, the jobs, and whether the body was a single job.
#[derive(Debug, PartialEq)]
pub(super) struct PushBody<'a> {
    pub tenant: Option<TenantText<'a>>,
    pub jobs: Vec<PushJob<'a>>,
    pub single: bool,
}

impl JsonSchema for PushBody<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Push".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let tenant = generator.subschema_for::<TenantText<'_>>();
        let jobs = generator.subschema_for::<PushJob<'_>>();
        let mut one = PushJob::json_schema(generator);
        one.insert("description".into(), "One job.".into());
        if let Some(properties) = one.get_mut("properties") {
            properties["tenant"] = tenant.clone().to_value();
        }
        let jobs = json_schema!({
            "type": "array", "description": "The jobs.", "maxItems": wire::BATCH_MAX, "items": jobs,
        });
        let batch = json_schema!({
            "type": "object", "description": "A batch.", "required": ["jobs"], "additionalProperties": false,
            "properties": {"jobs": jobs, "tenant": tenant},
        });
        json_schema!({"description": "One job, or a batch.", "anyOf": [one, batch]})
    }
}

/// Parses the body of a push.
pub(super) fn read(encoding: Encoding, body: &[u8]) -> Result<PushBody<'_>, Malformed> {
    let mut top: PushJob<'_> = codec::read_map(encoding, body)?;
    let tenant = top.tenant.take();
    let Some(jobs) = top.jobs.take() else {
        return Ok(PushBody { tenant, jobs: vec![top], single: true });
    };
    if top != PushJob::default() {
        return Err(Malformed(
            "only `tenant` is allowed beside `jobs`; move the other fields into the jobs".into(),
        ));
    }
    if let Some(index) = jobs.iter().position(|job| job.jobs.is_some() || job.tenant.is_some()) {
        return Err(Malformed(format!(
            "job {index}: `jobs` and `tenant` are allowed only at the top level of the body"
        )));
    }
    Ok(PushBody { tenant, jobs, single: false })
}

/// Result of a push.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pushed")]
pub(super) struct PushedAnswer {
    /// Ids in the order of the jobs sent; null for a refused job.
    ids: Vec<Nullable<Id>>,
    /// Id, if a single job was sent.
    id: Option<Id>,
    /// Ids of jobs that existed already.
    existing: Vec<Id>,
    /// Jobs that were not created.
    refused: Option<Vec<RefusedJob>>,
}

/// Refused job.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct RefusedJob {
    /// Index in the batch.
    index: usize,
    /// Code for programs.
    code: &'static str,
    /// Message for people.
    message: String,
    /// Conflicting job.
    id: Option<Id>,
}

impl PushedAnswer {
    pub(super) fn new(answers: &[Pushed]) -> PushedAnswer {
        let refusal = |(index, answer): (usize, &Pushed)| {
            let Pushed::Refused(refused) = answer else { return None };
            let ErrorBody { code, message, id } = ApiError::from(*refused).into_body();
            Some(RefusedJob { index, code, message, id })
        };
        let refused: Vec<RefusedJob> = answers.iter().enumerate().filter_map(refusal).collect();
        let existing = |answer: &Pushed| match answer {
            Pushed::Existing(id) => Some(Id(*id)),
            Pushed::New(_) | Pushed::Refused(_) => None,
        };
        PushedAnswer {
            ids: answers.iter().map(|answer| Nullable(answer.id().map(Id))).collect(),
            id: if let [answer] = answers { answer.id().map(Id) } else { None },
            existing: answers.iter().filter_map(existing).collect(),
            refused: Some(refused).filter(|refused| !refused.is_empty()),
        }
    }
}

/// Push that was written to the journal (`journal.native`); the jobs are created a moment later, or when the
/// store is available again.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Kept")]
pub(super) struct Journaled {
    /// Aliases by which the jobs can be looked up, in the order of the jobs sent.
    aliases: Vec<String>,
}

pub(super) async fn push(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let asked = read(body.encoding, &body.bytes)?;
    let tenant = call.caller.tenant_for(asked.tenant.as_deref())?;
    let single = asked.single;
    let settings = &call.server.state::<State>().settings;
    let keep = |queue: &Queue| call.engine.queue_settings(&tenant, queue).keep.or(settings.keep);
    let mut pushes = pushes(&asked.jobs, single, &keep)?;
    drop(asked);
    if settings.journals_pushes && !pushes.is_empty() && pushes.iter().all(pushes::needs_no_store) {
        call.engine.add_own_trace(&mut pushes);
        return journaled(&call, &tenant, &pushes).await;
    }
    let answers = call.engine.push(&tenant, pushes).await?;
    if let ([Pushed::Refused(refused)], true) = (answers.as_slice(), single) {
        return Err((*refused).into());
    }
    reply(&call, StatusCode::CREATED, 64 + answers.len() * 8, &PushedAnswer::new(&answers))
}

/// Writes the push to the journal, whether or not the store is available; the jobs get their ids in the
/// store.
async fn journaled(call: &Call, tenant: &Tenant, pushes: &[Push]) -> Answer {
    let (engine, journal) = (&call.engine, &call.server.journal);
    engine.check_pushes(pushes)?;
    engine
        .admit_jobs(tenant, pushes.iter().map(|push| (&push.queue, &push.name, push.payload.bytes.len())))
        .await?;
    let now = engine.now();
    let ids = journal.make_ids(pushes.len(), now);
    let payloads: Vec<Vec<u8>> =
        pushes.iter().zip(&ids).map(|(push, id)| pushes::encode_push(tenant, push, id, now)).collect();
    let line = |(id, payload)| NewLine { id, kind: pushes::KIND, payload };
    let texts = ids.iter().map(String::as_str);
    let lines: Vec<NewLine<'_>> = texts.zip(payloads.iter().map(Vec::as_slice)).map(line).collect();
    let kept = async { journal.wsync(journal.write(&lines)?).await };
    if let Err(error) = kept.await {
        // Also if the outcome is unknown: such lines are not read before the next start, which counts anew.
        let bytes: u64 = pushes.iter().map(|push| push.payload.bytes.len() as u64).sum();
        engine.return_reservations(tenant, pushes.len() as u64, bytes);
        return Err(match error {
            JournalError::Unknown(_) => {
                ApiError::coded(StatusCode::INTERNAL_SERVER_ERROR, "outcome_unknown", error.to_string())
            }
            _ => ApiError::coded(StatusCode::SERVICE_UNAVAILABLE, "journal_unavailable", error.to_string()),
        });
    }
    let alias =
        |(push, id): (&Push, &String)| match push.extras.as_ref().and_then(|extras| extras.alias.as_ref()) {
            Some(alias) => alias.to_string(),
            None => id.clone(),
        };
    let aliases: Vec<String> = pushes.iter().zip(&ids).map(alias).collect();
    reply(call, StatusCode::ACCEPTED, 64 + ids.len() * 24, &Journaled { aliases })
}

/// Keep times of the jobs of a queue whose push sets none.
type KeepOf<'a> = &'a dyn Fn(&Queue) -> windlass_core::Keep;

/// Converts a batch. Equal neighbors share their names and policy, so that a waiting job costs little more
/// than its payload.
fn pushes(asks: &[PushJob<'_>], single: bool, keep: KeepOf<'_>) -> Result<Vec<Push>, ApiError> {
    if asks.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(asks.len()));
    }
    let mut pushes: Vec<Push> = Vec::with_capacity(asks.len());
    for (index, ask) in asks.iter().enumerate() {
        let before = pushes.last().zip(index.checked_sub(1).and_then(|before| asks.get(before)));
        let push = job(ask, before, keep).map_err(|message| match single {
            true => ApiError::bad_request(message),
            false => ApiError::bad_request(format!("job {index}: {message}")),
        })?;
        pushes.push(push);
    }
    Ok(pushes)
}

fn job(ask: &PushJob<'_>, before: Option<(&Push, &PushJob<'_>)>, keep: KeepOf<'_>) -> Result<Push, String> {
    let name = match (&ask.name, before) {
        (None, _) => return Err("`name` is missing; workers claim jobs by name".into()),
        (Some(name), Some((push, _))) if **name == *push.name => push.name.clone(),
        (Some(name), _) => Name::new(name).map_err(|e| e.to_string())?,
    };
    let queue = match (&ask.queue, before) {
        (Some(queue), Some((push, _))) if **queue == *push.queue => push.queue.clone(),
        (Some(queue), _) => Queue::new(queue).map_err(|e| e.to_string())?,
        (None, _) => default_queue(),
    };
    let policy = match before {
        Some((push, other)) if ask.has_same_policy_as(other) && queue == push.queue => push.policy.clone(),
        _ => match policy(ask, keep(&queue))? {
            policy if policy == *default_policy() => default_policy(),
            policy => Arc::new(policy),
        },
    };
    Ok(Push {
        queue,
        name,
        payload: payload(ask.payload, ask.payload_base64.as_ref(), ask.format)?
            .unwrap_or_else(default_payload),
        priority: ask.priority,
        run_at: match run_at(ask.run_at, ask.delay_ms)? {
            // A job with a repeat rule starts at its first scheduled time, not now.
            RunAt::Now if ask.repeat.is_some() && ask.delay_ms.is_none() => RunAt::FirstTurn,
            at => at,
        },
        policy,
        extras: keys::extras(ask)?,
        body: None,
    })
}

fn default_queue() -> Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    QUEUE.get_or_init(Queue::default).clone()
}

fn default_policy() -> Arc<Policy> {
    static POLICY: OnceLock<Arc<Policy>> = OnceLock::new();
    POLICY.get_or_init(Arc::default).clone()
}

fn default_payload() -> Payload {
    static PAYLOAD: OnceLock<Payload> = OnceLock::new();
    PAYLOAD.get_or_init(Payload::default).clone()
}

/// Policy of a new job; `keep`: unless the push sets keep times of its own.
fn policy(ask: &PushJob<'_>, keep: windlass_core::Keep) -> Result<Policy, String> {
    let mut policy = Policy { keep, ..Policy::default() };
    if let Some(lease) = ask.lease_ms {
        policy.lease.length_ms = Some(lease.0);
    }
    if let Some(retry) = &ask.retry {
        policy.retry = retry_policy(&retry.0)?;
    }
    if let Some(keep) = &ask.keep {
        let or = |asked: Option<KeepMs>, default| asked.map_or(default, |keep| keep.0);
        policy.keep.completed = or(keep.completed_ms, policy.keep.completed);
        policy.keep.failed = or(keep.failed_ms, policy.keep.failed);
        policy.keep.cancelled = or(keep.cancelled_ms, policy.keep.cancelled);
    }
    if ask.idempotency_key.is_some() {
        policy.keep.completed = keys::kept_for_key(policy.keep.completed);
    }
    // Children keep to their own `keep`, also if their parent is not kept.
    policy.forget_children = (policy.keep.completed == KeepFor::Drop).then_some(false);
    if let Some(rule) = &ask.repeat {
        policy.repeat = Some(repeat(rule)?);
        // A repeating job whose attempts are used up waits for its next scheduled run; the schedule does not
        // stop.
        policy.repeat_after_failure = true;
    }
    policy.catch_up = match (ask.catch_up, &ask.repeat) {
        (Some(_), None) => return Err("`catch_up` is for repeating jobs; add `repeat`".into()),
        (catch_up, _) => catch_up.unwrap_or_default(),
    };
    Ok(policy)
}

fn retry_policy(ask: &Retry) -> Result<RetryPolicy, String> {
    let mut retry = RetryPolicy::default();
    if let Some(max_attempts) = ask.max_attempts {
        retry.max_attempts = max_attempts;
    }
    match ask.backoff {
        None => {}
        Some(BackoffAsk::None) => retry.backoff = Backoff::None,
        Some(BackoffAsk::Fixed { fixed_ms }) => retry.backoff = Backoff::Fixed { delay_ms: fixed_ms },
        Some(BackoffAsk::Growing { base_ms, cap_ms, jitter_percent }) => {
            let cap_ms = cap_ms.unwrap_or(3_600_000);
            let jitter_percent = jitter_percent.unwrap_or(10);
            if jitter_percent > 100 {
                return Err("`jitter_percent` must be between 0 and 100".into());
            }
            retry.backoff = Backoff::Exponential { base_ms, cap_ms, jitter_percent };
        }
    }
    match retry.backoff {
        Backoff::Fixed { delay_ms: ms } | Backoff::Exponential { base_ms: ms, .. } if ms < 0 => {
            return Err("the delays of `backoff` must not be negative".into());
        }
        _ => {}
    }
    retry.give_up_after_ms = ask.give_up_after_ms.map(|ms| ms.max(0));
    Ok(retry)
}
