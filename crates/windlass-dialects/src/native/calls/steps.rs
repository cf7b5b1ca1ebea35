//! `POST /api/v1/jobs/{id}/steps`: keeps results of steps. `POST /api/v1/jobs/{id}/signal/{name}`: sends a signal.

use crate::codec::{Encoding, Raw, Text};
use crate::native::commands::{inline_payload, payload, within};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok, reply};
use crate::native::request::{Body, find, reply_encoding};
use crate::native::views::StepResult;
use crate::native::wire::{self, Id, When};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::steps::{NewStep, SIGNAL_BYTES_MAX, STEP_NAME_BYTES_MAX, StepRecord};
use windlass_core::{Holder, Payload, Token};

pub(super) const EXAMPLES: Examples = &[
    ("one", "the result of one step", r#"{"token":65537,"name":"charge","result":{"charge_id":"ch_1"}}"#),
    (
        "several",
        "steps that finished together",
        r#"{"token":65537,"steps":[{"name":"pack","result":3},{"name":"label","result":"A7"}]}"#,
    ),
];

/// Results of steps: one step, or a list of them.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeepSteps")]
pub(super) struct StepsAsk<'a> {
    /// Lease token from the claim.
    #[schemars(with = "u64")]
    pub token: Token,
    /// Steps, instead of the fields of a single step.
    #[serde(borrow, default)]
    pub steps: Option<Vec<StepAsk<'a>>>,
    /// Name of the step.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = STEP_NAME_BYTES_MAX))]
    pub name: Option<Text<'a>>,
    /// Result: any value.
    #[serde(borrow, default)]
    pub result: Option<Raw<'a>>,
    /// Start of the step.
    #[serde(default)]
    pub started_at: Option<When>,
}

/// Result of one step.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StepAsk<'a> {
    /// Name of the step, unique in its job.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = STEP_NAME_BYTES_MAX))]
    pub name: Text<'a>,
    /// Result: any value.
    #[serde(borrow, default)]
    pub result: Option<Raw<'a>>,
    /// Start of the step.
    #[serde(default)]
    pub started_at: Option<When>,
}

/// Steps that are kept now, in the order sent.
#[derive(Serialize, JsonSchema)]
pub(super) struct KeptSteps<'a> {
    /// Results, one per step.
    steps: Vec<KeptStep<'a>>,
}

/// Result of keeping one step.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct KeptStep<'a> {
    /// Name of the step.
    name: &'a str,
    /// False: a step of this name was kept before, with the result that follows.
    kept: bool,
    #[serde(flatten)]
    result: StepResult<'a>,
}

pub(super) async fn keep(mut call: Call) -> Answer {
    // Authorization comes first, as for log lines.
    let (tenant, job) = find(&call).await?;
    let body = Body::of(&mut call).await?;
    let ask: StepsAsk<'_> = body.read()?;
    let steps = new_steps(&ask)?;
    let names: Vec<Arc<str>> = steps.iter().map(|step| step.name.clone()).collect();
    let before = call.engine.keep_steps(&tenant, job.id, Holder::Token(ask.token), steps).await??;
    let encoding = reply_encoding(&call);
    let shown = names.iter().zip(&before).map(|(name, before)| kept_step(name, before.as_deref(), encoding));
    ok(&call, &KeptSteps { steps: shown.collect() })
}

fn kept_step<'a>(name: &'a str, before: Option<&'a StepRecord>, encoding: Encoding) -> KeptStep<'a> {
    let result = before.map(|step| StepResult::new(step, encoding)).unwrap_or_default();
    KeptStep { name, kept: before.is_none(), result }
}

fn new_steps(ask: &StepsAsk<'_>) -> Result<Vec<NewStep>, ApiError> {
    let single = || ask.name.is_some() || ask.result.is_some() || ask.started_at.is_some();
    let steps = match (&ask.steps, &ask.name) {
        (Some(_), _) if single() => {
            return Err(ApiError::bad_request("`steps` cannot be combined with the fields of a single step"));
        }
        (Some(steps), _) if steps.len() > wire::BATCH_MAX => {
            return Err(ApiError::batch_too_large(steps.len()));
        }
        (Some(steps), _) => {
            steps.iter().map(|step| new_step(&step.name, step.result, step.started_at)).collect()
        }
        (None, Some(name)) => new_step(name, ask.result, ask.started_at).map(|step| vec![step]),
        (None, None) => Err("`name` of the step is missing; send `name` and `result`, or `steps`".to_owned()),
    };
    steps.map_err(ApiError::bad_request)
}

fn new_step(name: &str, result: Option<Raw<'_>>, started_at: Option<When>) -> Result<NewStep, String> {
    within("name", name, STEP_NAME_BYTES_MAX)?;
    let started_at = started_at.map(|When(at)| at);
    Ok(NewStep { name: name.into(), result: payload(result, None, None)?, started_at })
}

/// Accepted signal.
#[derive(Serialize, JsonSchema)]
pub(super) struct Signalled {
    /// Id of the job.
    id: Id,
    /// True if the job was waiting for the signal; otherwise the signal is kept until the job waits for it.
    woken: bool,
}

pub(super) async fn signal(mut call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    let name: Arc<str> = call.param(1).into();
    within("name", &name, STEP_NAME_BYTES_MAX).map_err(ApiError::bad_request)?;
    let payload = signal_payload(&Body::of(&mut call).await?)?;
    let woken = call.engine.signal(&tenant, job.id, name, payload).await??;
    reply(&call, StatusCode::ACCEPTED, 64, &Signalled { id: Id(job.id), woken })
}

/// Body of a signal: any value, or none.
fn signal_payload(body: &Body) -> Result<Payload, ApiError> {
    if body.bytes.len() > SIGNAL_BYTES_MAX {
        let (bytes, max) = (body.bytes.len(), SIGNAL_BYTES_MAX);
        let message = format!("the payload of a signal is {bytes} bytes long; the maximum is {max}");
        return Err(ApiError::coded(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message));
    }
    if body.bytes.is_empty() {
        return Ok(Payload::default());
    }
    inline_payload(body.read_any()?, None).map_err(ApiError::bad_request)
}
