//! `GET /api/v1/jobs/{id}/children`.

use crate::native::reply::{Answer, reply};
use crate::native::request::{find, reply_encoding};
use crate::native::views::JobView;
use crate::native::wire::PAGE_MAX;
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

/// Children of a job.
#[derive(Serialize, JsonSchema)]
pub(super) struct Children<'a> {
    /// Jobs ordered by id.
    jobs: Vec<JobView<'a>>,
}

pub(super) async fn children(call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    let jobs = call.engine.children(&tenant, job.id).await?;
    let (encoding, hidden, now) = (reply_encoding(&call), call.hides_payloads(), call.engine.now());
    let shown = jobs.iter().take(PAGE_MAX).map(|job| JobView::new(job, encoding, hidden, now));
    reply(&call, StatusCode::OK, 1_024, &Children { jobs: shown.collect() })
}
