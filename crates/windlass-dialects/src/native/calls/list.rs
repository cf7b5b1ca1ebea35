//! `GET /api/v1/jobs`: jobs, newest first.

use super::bulk::{may_search, search};
use crate::codec::Nullable;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::{Params, reply_encoding};
use crate::native::views::{JOB_BYTES_GUESS, JobView};
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::{JobId, NameMatch, Queue, StateWord};

/// Page of jobs, newest first.
#[derive(Serialize, JsonSchema)]
pub(super) struct Page<'a> {
    /// Jobs.
    jobs: Vec<JobView<'a>>,
    /// Cursor of the next page, to be sent as `cursor`; null: no more jobs.
    next: Nullable<String>,
}

impl Page<'_> {
    pub(super) fn reply(call: &Call, jobs: Vec<JobView<'_>>, next: Option<JobId>) -> Answer {
        let room = 32 + jobs.len() * 2 * JOB_BYTES_GUESS;
        reply(call, StatusCode::OK, room, &Page { jobs, next: cursor(next) })
    }
}

/// Cursor of the next page.
pub(super) fn cursor(next: Option<JobId>) -> Nullable<String> {
    Nullable(next.map(|id| id.to_string()))
}

pub(super) async fn list(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let mut search = search(&call, params.text("search").unwrap_or_default(), params.tenant())?;
    search.add_states(states(params.text("state"))?);
    let filter = &mut search.filter;
    if let Some(queue) = params.text("queue") {
        filter.queue = Some(Queue::new(queue)?);
    }
    if let Some(name) = params.text("name") {
        filter.names = NameMatch::glob(name);
    }
    if let Some(tag) = params.text("tag") {
        filter.tag = Some(tag.into());
    }
    if let Some(text) = params.text("q") {
        // Taken literally, not parsed as search words.
        search.add_text(text);
        may_search(&call, &search)?;
    }
    let page = search.page(&call.engine, params.cursor()?, params.page_limit()?).await?;
    let (reply, hidden, now) = (reply_encoding(&call), call.hides_payloads(), call.engine.now());
    Page::reply(&call, page.jobs.iter().map(|job| JobView::new(job, reply, hidden, now)).collect(), page.next)
}

/// Parses a comma-separated list of states.
pub(in crate::native) fn states(list: Option<&str>) -> Result<Vec<StateWord>, ApiError> {
    let parse = |word: &str| {
        let word = word.trim();
        StateWord::parse(word).ok_or_else(|| {
            let known = StateWord::ALL.map(StateWord::as_str).join(", ");
            ApiError::bad_request(format!("unknown state `{word}`; the states are: {known}"))
        })
    };
    list.map_or(Ok(Vec::new()), |list| list.split(',').map(parse).collect())
}
