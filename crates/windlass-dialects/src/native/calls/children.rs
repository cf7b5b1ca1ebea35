//! `GET /api/v1/jobs/{id}/children`.

use super::list::cursor;
use crate::codec::Nullable;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Params, find, reply_encoding};
use crate::native::views::{JOB_BYTES_GUESS, JobView};
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
    /// Cursor of the next page, to be sent as `cursor`; null: no more children.
    next: Nullable<String>,
}

pub(super) async fn children(call: Call) -> Answer {
    let (tenant, job) = find(&call).await?;
    let after = Params::of(&call)?.cursor()?;
    let page = call.engine.page_of_children(&tenant, job.id, after, PAGE_MAX).await?;
    let (encoding, hidden, now) = (reply_encoding(&call), call.hides_payloads(), call.engine.now());
    let jobs = page.jobs.iter().map(|job| JobView::new(job, encoding, hidden, now)).collect();
    let room = 32 + page.jobs.len() * 2 * JOB_BYTES_GUESS;
    reply(&call, StatusCode::OK, room, &Children { jobs, next: cursor(page.next) })
}
