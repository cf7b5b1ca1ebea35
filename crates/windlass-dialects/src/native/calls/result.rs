//! `GET /api/v1/jobs/{id}/result`: outcome of a job, with an optional wait.

use crate::codec::Encoding;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Params, find, reply_encoding};
use crate::native::views::{OutcomeFields, Progress};
use crate::native::wire::{Id, State, Time, WAIT_MS_MAX};
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{Job, Timestamp};
use windlass_engine::Waited;

/// Outcome of a job, or its current state.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Result")]
pub(super) struct ResultView<'a> {
    /// Id of the job.
    id: Id,
    /// State.
    state: State,
    progress: Option<Progress<'a>>,
    #[serde(flatten)]
    outcome: OutcomeFields<'a>,
    /// End of the last run.
    finished_at: Option<Time>,
}

impl<'a> ResultView<'a> {
    fn new(job: &'a Job, encoding: Encoding, hidden: bool, now: Timestamp) -> ResultView<'a> {
        let body = job.body.as_ref().filter(|_| job.state().is_settled() && !hidden);
        ResultView {
            id: Id(job.id),
            state: State(job.state_word(now)),
            progress: Progress::of(job).filter(|_| !hidden),
            outcome: OutcomeFields::new(body.and_then(|body| body.outcome.as_ref()), encoding),
            finished_at: job.progress.finished_at.map(Time::from),
        }
    }
}

pub(super) async fn result(call: Call) -> Answer {
    let wait_ms = Params::of(&call)?.number::<u64>("wait_ms")?.unwrap_or(0).min(WAIT_MS_MAX);
    let (tenant, job) = find(&call).await?;
    let waited = tokio::select! {
        biased;
        waited = call.engine.wait_settled(&tenant, job.id, wait_ms) => waited?,
        () = call.wait_until_ended() => Waited::NotYet(job),
    };
    let (status, job) = match waited {
        Waited::Settled(job) => (StatusCode::OK, job),
        Waited::NotYet(job) => (StatusCode::ACCEPTED, job),
        Waited::Unknown => return Err(ApiError::no_such_job()),
    };
    let view = ResultView::new(&job, reply_encoding(&call), call.hides_payloads(), call.engine.now());
    reply(&call, status, 256, &view)
}
