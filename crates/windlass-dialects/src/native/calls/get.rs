//! `GET /api/v1/jobs/{id}` and `GET /api/v1/aliases/{alias}`: one job in full.

use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{find, find_alias, one_tenant, reply_encoding};
use crate::native::views::{JobView, RunConditions, up_since};
use crate::route::Call;
use ::http::StatusCode;
use windlass_core::{Job, Tenant};
use windlass_engine::Engine;

pub(super) async fn get(call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    show(&call, &tenant, &job).await
}

pub(super) async fn get_by_alias(call: Call) -> Answer {
    let found = find_alias(&call, one_tenant(&call)?).await?;
    let (tenant, job) = found.ok_or_else(ApiError::no_such_job)?;
    show(&call, &tenant, &job).await
}

async fn show(call: &Call, tenant: &Tenant, job: &Job) -> Answer {
    let mut around = surroundings(&call.engine, tenant, job).await?;
    around.up_since = up_since(call);
    let view = JobView::whole(job, reply_encoding(call), call.hides_payloads(), &around);
    reply(call, StatusCode::OK, 1_024, &view)
}

/// Loads the conditions outside the job that decide whether it can run.
async fn surroundings(engine: &Engine, tenant: &Tenant, job: &Job) -> Result<RunConditions, ApiError> {
    let mut around = RunConditions { now: engine.now(), ..RunConditions::default() };
    if job.state().claimable_at().is_none() {
        return Ok(around);
    }
    let counts = engine.counts(Some(tenant)).await?;
    around.queue_is_paused = counts.iter().any(|counts| counts.queue == job.spec.queue && counts.paused);
    around.held_by = engine.held_by(job).await?.map(|held| held.limit.into());
    Ok(around)
}
