//! `DELETE /api/v1/jobs/{id}`, and `POST …/undelete`, `…/cancel`, `…/retry`, `…/run`: one action on one job.

use crate::codec::Text;
use crate::native::State;
use crate::native::commands::run_at;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok, reply};
use crate::native::request::{Body, find, reply_encoding, seen_tenant};
use crate::native::schema::GoneWord;
use crate::native::views::JobView;
use crate::native::wire::{Id, Time, When};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::event::CancelRunning;
use windlass_core::steps::STEP_NAME_BYTES_MAX;
use windlass_core::{Event, Job, JobId, Tenant, Timestamp};
use windlass_engine::{Engine, VerbError};

pub(super) const CANCEL_EXAMPLES: Examples = &[("now", "now", r#"{"now":true}"#)];
pub(super) const RUN_EXAMPLES: Examples = &[("now", "now", "{}")];
pub(super) const RETRY_EXAMPLES: Examples = &[
    ("now", "now", "{}"),
    ("step", "from a step on; the steps before it are not executed again", r#"{"from_step":"charge"}"#),
];

/// Options of a cancellation.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Cancel")]
pub(super) struct CancelAsk {
    /// Revoke the lease at once instead of asking the worker to stop.
    pub now: bool,
}

/// Options of a run.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Run")]
pub(super) struct RunAsk {
    /// Time of the run; now if omitted.
    pub run_at: Option<When>,
    /// Time of the run, in milliseconds from now.
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// Also a settled job.
    pub force: bool,
}

/// Options of a retry.
#[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "RetryJob")]
pub(super) struct RetryJobAsk<'a> {
    /// Time of the run; now if omitted.
    pub run_at: Option<When>,
    /// Time of the run, in milliseconds from now.
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// Also a running job.
    pub force: bool,
    /// Name of a kept step: it and the steps kept after it are executed again.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = STEP_NAME_BYTES_MAX))]
    pub from_step: Option<Text<'a>>,
}

/// Deleted job.
#[derive(Serialize, JsonSchema)]
pub(super) struct Gone {
    /// Id of the job.
    id: Id,
    /// Always `gone`.
    state: GoneWord,
    /// Time until which it can be brought back.
    undo_until: Option<Time>,
}

pub(super) async fn cancel(mut call: Call) -> Answer {
    let ask: CancelAsk = Body::of(&mut call).await?.read_or_default()?;
    let running = if ask.now { CancelRunning::Now } else { CancelRunning::Ask };
    act(&call, Event::Cancel { running, failed_too: false }).await
}

pub(super) async fn retry(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: RetryJobAsk<'_> = body.read_or_default()?;
    let at = run_at(ask.run_at, ask.delay_ms).map_err(ApiError::bad_request)?.from(call.engine.now());
    let event = match &ask.from_step {
        Some(_) if ask.force => {
            return Err(ApiError::bad_request("`from_step` and `force` cannot be combined"));
        }
        Some(step) => Event::RequeueFrom { at, step: (**step).into() },
        None => Event::Requeue { at, even_running: ask.force },
    };
    act(&call, event).await
}

pub(super) async fn run(mut call: Call) -> Answer {
    let ask: RunAsk = Body::of(&mut call).await?.read_or_default()?;
    let at = run_at(ask.run_at, ask.delay_ms).map_err(ApiError::bad_request)?.from(call.engine.now());
    act(&call, Event::Run { at, force: ask.force }).await
}

pub(super) async fn delete(call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let mut answers = engine.delete(&tenant, &[job.id]).await?;
    let deleted = answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    let kept = &call.server.state::<State>().deleted;
    let undo_until = deleted.and_then(|job| kept.keep(job, engine.now())).map(Time::from);
    ok(&call, &Gone { id: Id(job.id), state: GoneWord::Gone, undo_until })
}

pub(super) async fn undelete(call: Call) -> Answer {
    let tenant = seen_tenant(&call)?;
    let id = call.param(0).parse().ok().and_then(JobId::new).ok_or_else(ApiError::no_such_job)?;
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let kept = take_kept(&call, tenant.as_ref(), id)?;
    call.concerns(&kept.1.spec.tenant, Some(id));
    let job = bring_back(&call, &engine, kept).await?;
    let view = JobView::new(&job, reply_encoding(&call), call.hides_payloads(), engine.now());
    reply(&call, StatusCode::OK, 512, &view)
}

/// Deleted job that is still kept, and the end of its time.
pub(super) type KeptJob = (Timestamp, Arc<Job>);

pub(super) fn take_kept(call: &Call, tenant: Option<&Tenant>, id: JobId) -> Result<KeptJob, ApiError> {
    let kept = call.server.state::<State>().deleted.take(tenant, id, call.engine.now());
    let message = "no job with this id was deleted here within the time for which it can be brought back";
    kept.ok_or_else(|| ApiError::coded(StatusCode::NOT_FOUND, "not_found", message))
}

/// Brings back a deleted job; it stays kept if that is refused.
pub(super) async fn bring_back(call: &Call, engine: &Engine, kept: KeptJob) -> Result<Arc<Job>, ApiError> {
    let refused = match engine.undelete(&kept.1.spec.tenant, &kept.1).await {
        Ok(Ok(job)) => return Ok(job),
        Ok(Err(refused)) => refused.into(),
        Err(error) => error.into(),
    };
    call.server.state::<State>().deleted.return_taken(kept);
    Err(refused)
}

/// Applies an event to the job in the path, and responds with its new state.
async fn act(call: &Call, event: Event) -> Answer {
    let (tenant, job) = find(call).await?;
    act_on(call, &tenant, &job, event).await
}

pub(super) async fn act_on(call: &Call, tenant: &Tenant, job: &Job, event: Event) -> Answer {
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let mut answers = engine.apply(tenant, vec![job.id], event).await?;
    let after = answers.pop().unwrap_or(Err(VerbError::NotFound))?;
    let Some(after) = after else {
        return ok(call, &Gone { id: Id(job.id), state: GoneWord::Gone, undo_until: None });
    };
    let view = JobView::new(&after, reply_encoding(call), call.hides_payloads(), call.engine.now());
    reply(call, StatusCode::OK, 512, &view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoding;

    #[test]
    fn the_body_may_be_left_out() {
        let read = |encoding, bytes: &'static [u8]| {
            Body { encoding, bytes: bytes.into() }.read_or_default::<CancelAsk>().map_err(|e| e.code)
        };
        assert_eq!(read(Encoding::Json, b""), Ok(CancelAsk { now: false }));
        assert_eq!(read(Encoding::Json, br#"{"now":true}"#), Ok(CancelAsk { now: true }));
        assert_eq!(read(Encoding::Json, b"{"), Err("malformed"));
        assert_eq!(read(Encoding::Json, b"[]"), Err("malformed"));
        assert_eq!(read(Encoding::Msgpack, &[0x90]), Err("malformed"));
        assert_eq!(read(Encoding::Msgpack, &[0x80]), Ok(CancelAsk { now: false }));
    }
}
