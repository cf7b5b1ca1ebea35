//! `POST /api/v1/settle`: reports the end of runs, and claims the next jobs if requested.

use super::claim::{self, ClaimBody, claimed, deliver, next_jobs, room_for};
use crate::codec::{Raw, Text};
use crate::native::commands::{payload, within};
use crate::native::errors::{ApiError, ErrorBody};
use crate::native::reply::{Answer, encode};
use crate::native::request::{Body, reply_encoding};
use crate::native::views::ClaimedJob;
use crate::native::wire::{self, Id, TenantText, Time, When};
use crate::route::{Call, Examples};
use failure::{Backtrace, Sent, described};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::sync::Arc;
use windlass_core::event::{Failure, Finish, RetryWish, Suspend};
use windlass_core::steps::{STEP_NAME_BYTES_MAX, Wait};
use windlass_core::{Event, Holder, JobId, Outcome, StateWord, Timestamp, Token};
use windlass_engine::{JobEvent, Settled, VerbError};

pub(in crate::native) mod failure;
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
        "failure",
        "fail a job, with the class and the backtrace of the error",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"fail","class":"SMTPServerDisconnected",
            "message":"connection closed","backtrace":["mail.py:12 in send","smtplib.py:398 in getreply"]}]}"#,
    ),
    (
        "wait",
        "end the run; the job goes on with a signal, or after seven days without it",
        r#"{"settle":[{"id":1,"token":65537,"outcome":"suspend","signal":"approval","delay_ms":604800000,
            "step":"wait:approval"}]}"#,
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
    /// Error: a text, or any value. A text without `message` is the message. An object may have class, type or
    /// name, message, and backtrace, stack or traceback: they are used where the fields here are missing.
    #[serde(borrow, default)]
    pub error: Option<Raw<'a>>,
    /// Message for people; more than 16 KiB are cut in the middle.
    #[serde(borrow, default)]
    pub message: Option<Text<'a>>,
    /// fail: kind of error, such as the name of an exception; cut after 255 bytes.
    #[serde(borrow, default)]
    pub class: Option<Text<'a>>,
    /// fail: lines of the backtrace; more than 32 KiB are cut in the middle.
    #[serde(default)]
    pub backtrace: Option<Backtrace>,
    /// Code for programs.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = wire::LABEL_BYTES_MAX))]
    pub code: Option<Text<'a>>,
    /// Exit code of a process.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// fail: delay before the next attempt; release: delay before the next claim; suspend: time until the job runs
    /// again.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// fail: false gives up without another attempt.
    #[serde(default)]
    pub retry: Option<bool>,
    /// suspend: time at which the job runs again in any case; instead of `delay_ms`.
    #[serde(default)]
    pub until: Option<When>,
    /// suspend: signal that wakes the job.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = STEP_NAME_BYTES_MAX))]
    pub signal: Option<Text<'a>>,
    /// suspend: the end of all its children wakes the job.
    #[serde(default)]
    pub children: Option<bool>,
    /// suspend: name of the step that is kept when the job wakes, with the payload of the signal as result.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = STEP_NAME_BYTES_MAX))]
    pub step: Option<Text<'a>>,
    /// Payload for the next run, if there is one.
    #[serde(borrow, default)]
    pub payload: Option<Raw<'a>>,
}

impl SettleEntry<'_> {
    fn has_wait(&self) -> bool {
        self.until.is_some() || self.signal.is_some() || self.children.is_some() || self.step.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum OutcomeWord {
    Finish,
    Fail,
    Release,
    Suspend,
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
    let words: Vec<&str> = StateWord::ALL.into_iter().map(StateWord::as_str).chain([GONE]).collect();
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
                state: Some(settled.state.map_or(GONE, StateWord::as_str)),
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
    let claim = ask.claim.as_ref().map(|claim| claim::to_claim(claim, tenant.clone())).transpose()?;
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
    if entry.outcome != OutcomeWord::Fail && (entry.class.is_some() || entry.backtrace.is_some()) {
        return Err("`class` and `backtrace` are allowed only with the outcome fail".into());
    }
    if entry.outcome != OutcomeWord::Suspend && entry.has_wait() {
        return Err(
            "`until`, `signal`, `children` and `step` are allowed only with the outcome suspend".into()
        );
    }
    match entry.outcome {
        OutcomeWord::Suspend => suspend(entry, now),
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

fn suspend(entry: &SettleEntry<'_>, now: Timestamp) -> Result<Event, String> {
    let has_report = entry.result.is_some() || entry.error.is_some() || entry.message.is_some();
    if has_report || entry.retry.is_some() || entry.payload.is_some() {
        return Err("a suspended run has no result, error, message, payload or retry".into());
    }
    for (field, text) in [("signal", &entry.signal), ("step", &entry.step)] {
        if let Some(text) = text {
            within(field, text, STEP_NAME_BYTES_MAX)?;
        }
    }
    let until = match (entry.until, entry.delay_ms) {
        (Some(_), Some(_)) => {
            return Err("`until` and `delay_ms` cannot be combined; send one of them".into());
        }
        (Some(When(until)), None) => Some(until),
        (None, delay_ms) => delay_ms.map(|ms| now.plus_ms(ms)),
    };
    let shared = |text: &Option<Text<'_>>| text.as_deref().map(Arc::from);
    let wait = Wait {
        step: shared(&entry.step),
        signal: shared(&entry.signal),
        children: entry.children == Some(true),
        since: now,
    };
    Ok(Event::Suspend(Suspend { by: Holder::Token(entry.token), until, wait: Some(Box::new(wait)) }))
}

fn outcome(entry: &SettleEntry<'_>) -> Result<Outcome, String> {
    if let Some(code) = &entry.code {
        within("code", code, wire::LABEL_BYTES_MAX)?;
    }
    let described = described(&Sent {
        class: entry.class.as_deref(),
        message: entry.message.as_deref(),
        error: entry.error,
        backtrace: entry.backtrace.as_ref().map(|backtrace| backtrace.0.as_str()),
    })?;
    let is_failure = entry.outcome == OutcomeWord::Fail;
    Ok(Outcome {
        result: payload(entry.result, None, None)?,
        error: described.error,
        message: described.message,
        class: described.class.filter(|_| is_failure),
        backtrace: described.backtrace.filter(|_| is_failure),
        code: entry.code.as_ref().map(|code| code.to_string()),
        exit_code: entry.exit_code,
        ..Outcome::default()
    })
}
