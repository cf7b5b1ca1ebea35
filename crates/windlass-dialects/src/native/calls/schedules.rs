//! `GET /api/v1/schedules`: jobs with a repeat rule that are not settled, with their next runs.

use super::list::Page;
use crate::native::reply::Answer;
use crate::native::request::{Params, reply_encoding};
use crate::native::views::JobView;
use crate::query::Filter;
use crate::route::Call;

pub(super) async fn schedules(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let filter = Filter {
        tenant: call.caller.tenants_for(params.tenant())?,
        repeating: true,
        before: params.cursor()?,
        limit: params.page_limit()?,
        ..Filter::default()
    };
    let (page, now) = (call.engine.list(filter).await?, call.engine.now());
    let (encoding, hidden) = (reply_encoding(&call), call.hides_payloads());
    let jobs = page.jobs.iter().map(|job| JobView::new(job, encoding, hidden, now).with_next_runs(job, now));
    Page::reply(&call, jobs.collect(), page.next)
}
