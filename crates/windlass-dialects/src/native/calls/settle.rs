//! `POST /api/v1/settle`: reports the end of runs, and claims the next jobs if requested.

use super::claim::{self, ClaimBody, claimed, deliver, next_jobs, room_for};
use crate::codec::{self, Encoding, Raw, Text};
use crate::native::commands::{inline_payload, payload, within};
use crate::native::errors::{ApiError, ErrorBody};
use crate::native::reply::{Answer, encode};
use crate::native::request::{Body, reply_encoding};
use crate::native::views::ClaimedJob;
use crate::native::wire::{self, Id, TenantText, Time};
use crate::route::{Call, Examples};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use windlass_core::event::{Failure, Finish, RetryWish};
use windlass_core::{Event, Holder, JobId, Outcome, Payload, StateName, Timestamp, Token};
use windlass_engine::{JobEvent, Settled, VerbError};

#[cfg(test)]
mod tests;

pub(super) const EXAMPLES: Examples = &[
    (
        "both",
        "finish one job, fail another",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"finish","result":{"sent":true}},
            {"id":2,"token":131075,"outcome":"fail","error":"mailbox full","delay_ms":60000}]}"#,
    ),
    (
        "next",
        "finish a job and claim the next",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"finish"}],"claim":{"name":"mail*"}}"#,
    ),
];

/// Reports of ended runs.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Settle")]
pub(super) struct SettleAsk<'a> {
    /// Entries, one per run.
    #[serde(borrow)]
    pub settle: Vec<SettleEntry<'a>>,
    /// Claim of the next jobs in the same call; its `tenant` must be omitted.
    #[serde(borrow, default)]
    pub claim: Option<ClaimBody<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<TenantText<'a>>,
}

/// Report of one ended run.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleEntry<'a> {
    /// Id of the job.
    pub id: Id,
    /// Lease token from the claim.
    #[schemars(with = "u64")]
    pub token: Token,
    /// Outcome of the run.
    pub outcome: OutcomeWord,
    /// Result: any value.
    #[serde(borrow, default)]
    pub result: Option<Raw<'a>>,
    /// Error: a message for people, or any value.
    #[serde(borrow, default)]
    pub error: Option<Raw<'a>>,
    /// Message for people.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::MESSAGE_BYTES_MAX))]
    pub message: Option<Text<'a>>,
    /// Code for programs.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub code: Option<Text<'a>>,
    /// Exit code of a process.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// fail: delay before the next attempt; release: delay before the next claim.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// fail: false gives up without another attempt.
    #[serde(default)]
    pub retry: Option<bool>,
    /// Payload for the next run, if there is one.
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum OutcomeWord {
    Finish,
    Fail,
    Release,
}

/// Results, one per entry, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Settled")]
pub(super) struct SettledAnswer<'a> {
    /// Results.
    settled: Vec<SettledEntry>,
    /// Claimed jobs in claim order, if `claim` was sent.
    jobs: Option<Vec<ClaimedJob<'a>>>,
}

/// Result of one entry.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct SettledEntry {
    /// Id of the job.
    id: Id,
    /// True if the report was accepted.
    ok: bool,
    error: Option<ErrorBody>,
    /// State of the job afterwards.
    #[schemars(schema_with = "state_or_gone", default)]
    state: Option<&'static str>,
    /// Time of the next run.
    run_at: Option<Time>,
}

/// State of a job that is deleted when it is settled.
const GONE: &str = "gone";

fn state_or_gone(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<&str> = StateName::ALL.into_iter().map(StateName::as_str).chain([GONE]).collect();
    json_schema!({"type": "string", "enum": words})
}

impl SettledEntry {
    fn new((id, answer): (JobId, Result<Settled, VerbError>)) -> SettledEntry {
        let id = Id(id);
        match answer {
            Ok(settled) => SettledEntry {
                id,
                ok: true,
                error: None,
                state: Some(settled.state.map_or(GONE, StateName::as_str)),
                run_at: settled.run_at.map(Time::from),
            },
            Err(error) => {
                let error = Some(ApiError::from(error).into_body());
                SettledEntry { id, ok: false, error, state: None, run_at: None }
            }
        }
    }
}

pub(super) async fn settle(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: SettleAsk<'_> = body.read()?;
    let tenant = call.caller.tenant_for(ask.tenant.as_deref())?;
    let settles = settles(&ask.settle, call.engine.now())?;
    if ask.claim.as_ref().is_some_and(|claim| claim.tenant.is_some()) {
        return Err(ApiError::bad_request("send `tenant` beside `claim`, not inside it"));
    }
    let claim = ask.claim.as_ref().map(|claim| claim::wanted(claim, tenant.clone())).transpose()?;
    let ids: Vec<JobId> = settles.iter().map(|settle| settle.id).collect();
    let settling = call.engine.settle(&tenant, settles);
    // Concurrently, so that both share a commit.
    let (answers, delivery) = match claim {
        None => (settling.await, None),
        Some(claim) => {
            let (answers, delivery) = tokio::join!(settling, next_jobs(&call, claim));
            (answers, Some(delivery))
        }
    };
    let settled = ids.into_iter().zip(answers?).map(SettledEntry::new).collect();
    // The settled runs are committed; a failed claim must not hide that.
    let asked_for_more = delivery.is_some();
    let delivery = delivery.and_then(Result::unwrap_or_default);
    let reply = reply_encoding(&call);
    let jobs = asked_for_more.then(|| claimed(&delivery, reply));
    let answer = SettledAnswer { settled, jobs };
    let room = 16 + answer.settled.len() * 48 + room_for(&delivery);
    let written = encode(reply, room, &answer)?;
    drop(answer);
    Ok(deliver(reply, written, delivery))
}

fn settles(entries: &[SettleEntry<'_>], now: Timestamp) -> Result<Vec<JobEvent>, ApiError> {
    if entries.len() > wire::BATCH_MAX {
        return Err(ApiError::batch_too_large(entries.len()));
    }
    let settle = |(index, entry): (usize, &SettleEntry<'_>)| {
        let event = event(entry, now);
        let event = event.map_err(|message| ApiError::bad_request(format!("entry {index}: {message}")))?;
        Ok(JobEvent { id: entry.id.0, event })
    };
    entries.iter().enumerate().map(settle).collect()
}

fn event(entry: &SettleEntry<'_>, now: Timestamp) -> Result<Event, String> {
    let by = Holder::Token(entry.token);
    if entry.delay_ms.is_some_and(|ms| ms < 0) {
        return Err("`delay_ms` must not be negative".into());
    }
    match entry.outcome {
        OutcomeWord::Finish if entry.delay_ms.is_some() || entry.retry.is_some() => {
            Err("`delay_ms` and `retry` are allowed only with the outcomes fail and release".into())
        }
        OutcomeWord::Finish => {
            let payload = payload(entry.payload, None, None)?;
            Ok(Event::Finish(Finish { by, outcome: outcome(entry)?, payload, ignore_repeat: false }))
        }
        OutcomeWord::Fail => {
            let retry = match (entry.retry, entry.delay_ms) {
                (Some(false), _) => RetryWish::Never,
                (_, Some(delay_ms)) => RetryWish::At(now.plus_ms(delay_ms)),
                (_, None) => RetryWish::Policy,
            };
            let payload = payload(entry.payload, None, None)?;
            Ok(Event::Fail(Failure { by, outcome: outcome(entry)?, retry, payload, chance: 0.0 }))
        }
        OutcomeWord::Release => {
            Ok(Event::Release { by, run_at: now.plus_ms(entry.delay_ms.unwrap_or(0)), counts: false })
        }
    }
}

fn outcome(entry: &SettleEntry<'_>) -> Result<Outcome, String> {
    if let Some(message) = entry.message.as_ref().filter(|message| message.len() > wire::MESSAGE_BYTES_MAX) {
        return Err(format!("`message` is {} bytes long; send data in `error`", message.len()));
    }
    if let Some(code) = &entry.code {
        within("code", code, wire::LABEL_BYTES_MAX)?;
    }
    let (error_text, error) = error(entry.error)?;
    Ok(Outcome {
        result: payload(entry.result, None, None)?,
        error,
        message: entry.message.as_ref().map(|message| message.to_string()).or(error_text),
        code: entry.code.as_ref().map(|code| code.to_string()),
        exit_code: entry.exit_code,
        ..Outcome::default()
    })
}

/// A short text becomes the message for people; any other error is data.
fn error(raw: Option<Raw<'_>>) -> Result<(Option<String>, Option<Payload>), String> {
    let Some(raw) = raw else { return Ok((None, None)) };
    let text: Option<Text<'_>> = match raw {
        Raw::Json(json) => codec::read(Encoding::Json, json.as_bytes()).ok(),
        Raw::Msgpack(bytes) => codec::read(Encoding::Msgpack, bytes).ok(),
    };
    match text {
        Some(text) if text.len() <= wire::MESSAGE_BYTES_MAX => Ok((Some(text.to_string()), None)),
        _ => Ok((None, Some(inline_payload(raw, None)?))),
    }
}
