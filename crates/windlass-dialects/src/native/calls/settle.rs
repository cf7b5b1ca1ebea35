//! `POST /api/v1/settle`: ends of runs, and the next jobs if asked.

use super::claim::{self, ClaimAsk, claimed, deliver, next_jobs, room_for};
use crate::codec::{self, Encoding, Raw, Text};
use crate::native::commands::{inline_payload, payload, within};
use crate::native::errors::{ApiError, ErrorBody};
use crate::native::reply::{Answer, written};
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
        "one went well, one did not",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"finish","result":{"sent":true}},
            {"id":2,"token":131075,"outcome":"fail","error":"mailbox full","delay_ms":60000}]}"#,
    ),
    (
        "next",
        "done, and the next one please",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"finish"}],"claim":{"name":"mail*"}}"#,
    ),
];

/// Ends of runs.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Settle")]
pub(super) struct SettleAsk<'a> {
    /// One entry per run.
    #[serde(borrow)]
    pub settle: Vec<SettleEntry<'a>>,
    /// The next jobs in the same call; its `tenant` must be left out.
    #[serde(borrow, default)]
    pub claim: Option<ClaimAsk<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<TenantText<'a>>,
}

/// The end of one run.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleEntry<'a> {
    /// The job.
    pub id: Id,
    /// From the claim.
    #[schemars(with = "u64")]
    pub token: Token,
    /// How it ended.
    pub outcome: OutcomeWord,
    /// What came of it: any value.
    #[serde(borrow, default)]
    pub result: Option<Raw<'a>>,
    /// What went wrong: a text for people, or any value.
    #[serde(borrow, default)]
    pub error: Option<Raw<'a>>,
    /// What happened, for people.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::MESSAGE_BYTES_MAX))]
    pub message: Option<Text<'a>>,
    /// What happened, for programs.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub code: Option<Text<'a>>,
    /// Of a process.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// fail: when to try again; release: when it may be claimed again.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// fail: false gives it up at once.
    #[serde(default)]
    pub retry: Option<bool>,
    /// What the next run starts with, if there is one.
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

/// One answer per entry, in order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Settled")]
pub(super) struct SettledAnswer<'a> {
    /// The answers.
    settled: Vec<SettledEntry>,
    /// What `claim` asked for, best first.
    jobs: Option<Vec<ClaimedJob<'a>>>,
}

/// The answer to one entry.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct SettledEntry {
    /// The job.
    id: Id,
    /// Whether it was done.
    ok: bool,
    error: Option<ErrorBody<'static>>,
    /// Where the job stands now.
    #[schemars(schema_with = "state_or_gone", default)]
    state: Option<&'static str>,
    /// When it runs again.
    run_at: Option<Time>,
}

/// The job may be gone, if it is not kept.
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
        return Err(ApiError::bad_request("name the `tenant` beside `claim`, not in it"));
    }
    let claim = ask.claim.as_ref().map(|claim| claim::wanted(claim, tenant.clone())).transpose()?;
    let ids: Vec<JobId> = settles.iter().map(|settle| settle.id).collect();
    let settling = call.engine.settle(&tenant, settles);
    // Both at once, so that one commit does for both.
    let (answers, delivery) = match claim {
        None => (settling.await, None),
        Some(claim) => {
            let (answers, delivery) = tokio::join!(settling, next_jobs(&call, claim));
            (answers, Some(delivery))
        }
    };
    let settled = ids.into_iter().zip(answers?).map(SettledEntry::new).collect();
    // What was settled is settled: a claim that did not work out must not hide it.
    let asked_for_more = delivery.is_some();
    let delivery = delivery.and_then(Result::unwrap_or_default);
    let reply = reply_encoding(&call);
    let jobs = asked_for_more.then(|| claimed(&delivery, reply));
    let answer = SettledAnswer { settled, jobs };
    let room = 16 + answer.settled.len() * 48 + room_for(&delivery);
    let written = written(reply, room, &answer)?;
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
            Err("`delay_ms` and `retry` belong to the outcomes fail and release".into())
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
        return Err(format!("`message` is {} bytes long; put data into `error`", message.len()));
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

/// An error that is a short text is the message for people; anything else is data.
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
