//! `GET /api/v1/jobs/count` and `POST /api/v1/jobs/bulk`: how many a search finds, and one action on all of them.

use super::list::cursor;
use crate::codec::{Nullable, Text};
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok};
use crate::native::request::{Body, Params, find_id};
use crate::native::search::Search;
use crate::native::wire::{Id, TenantText};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::{Event, Job, JobId, Tenant, Timestamp};
use windlass_engine::VerbError;

/// Jobs acted on by one call: a commit of about this size holds up nobody. The answer says how to go on.
pub(super) const BULK_MAX: usize = 1_000;
/// Refusals told one by one; the rest is a number.
const REFUSALS_TOLD_MAX: usize = 20;

/// What a search may look at: the words, unless they ask for what the caller may not see.
pub(super) fn search(call: &Call, text: &str, tenant: Option<&str>) -> Result<Search, ApiError> {
    let search = Search::parse(text, &call.caller, tenant)?;
    may_search(call, &search)?;
    Ok(search)
}

pub(super) fn may_search(call: &Call, search: &Search) -> Result<(), ApiError> {
    if search.looks_into_payloads() && call.hides_payloads() {
        let message = "payloads are hidden from viewers on this server, so they cannot be searched";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    Ok(())
}

/// How many jobs a search finds.
#[derive(Serialize, JsonSchema)]
pub(super) struct Count {
    /// So many were found.
    count: u64,
    /// There may be more: counting on would have taken long.
    at_least: bool,
}

pub(super) async fn count(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let search = search(&call, params.text("search").unwrap_or_default(), params.tenant())?;
    let count = search.count(&call.engine).await?;
    ok(&call, &Count { count: count.jobs, at_least: count.at_least })
}

pub(super) const EXAMPLES: Examples =
    &[("failed", "retry all that failed", r#"{"action":"retry","search":"state:failed name:mail*"}"#)];

/// What to do, and to which jobs: `search` or `ids`.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bulk")]
pub(super) struct BulkAsk<'a> {
    /// What to do.
    pub action: BulkAction,
    /// The words of a search: to all jobs it finds.
    #[serde(borrow, default)]
    pub search: Option<Text<'a>>,
    /// To these jobs, at most 1,000.
    #[serde(default)]
    pub ids: Option<Vec<Id>>,
    /// With the action priority: the new one.
    #[serde(default)]
    pub priority: Option<i32>,
    /// `next` of the call before, to go on.
    #[serde(borrow, default)]
    pub cursor: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub tenant: Option<TenantText<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum BulkAction {
    Retry,
    Cancel,
    Run,
    Delete,
    Priority,
}

/// What became of an action on many jobs.
#[derive(Serialize, JsonSchema)]
pub(super) struct BulkDone {
    /// To so many it was done.
    done: usize,
    /// So many are gone, or not in a state for it.
    refused: usize,
    /// The first of the refusals.
    errors: Vec<BulkError>,
    /// Send it as `cursor` to go on; null: that was all.
    next: Nullable<String>,
}

/// A refusal.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct BulkError {
    /// The job.
    id: Id,
    /// Why, for programs.
    code: &'static str,
    /// Why, for people.
    message: String,
}

impl BulkDone {
    fn add(&mut self, id: JobId, answer: Result<Option<Arc<Job>>, VerbError>) {
        let Err(error) = answer else {
            self.done += 1;
            return;
        };
        self.refused += 1;
        if self.errors.len() < REFUSALS_TOLD_MAX {
            let ApiError { code, message, .. } = error.into();
            self.errors.push(BulkError { id: Id(id), code, message });
        }
    }
}

pub(super) async fn bulk(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: BulkAsk<'_> = body.read()?;
    let event = event(&ask, call.engine.now())?;
    let (jobs, next) = match (&ask.search, &ask.ids) {
        (Some(words), None) => {
            let search = search(&call, words, ask.tenant.as_deref())?;
            let before = ask.cursor.as_deref().and_then(|id| id.parse().ok()).and_then(JobId::new);
            let page = search.page(&call.engine, before, BULK_MAX).await?;
            (page.jobs, page.next)
        }
        (None, Some(ids)) => (named(&call, ids, ask.tenant.as_deref()).await?, None),
        _ => return Err(ApiError::bad_request("name either `ids` or a `search`")),
    };
    let asked = ask.ids.as_ref().map_or(jobs.len(), Vec::len);
    let mut done = BulkDone { done: 0, refused: asked - jobs.len(), errors: Vec::new(), next: cursor(next) };
    let engine = call.engine.on_behalf_of(&call.caller.who);
    for (tenant, ids) in by_tenant(&jobs) {
        let answers = engine.apply(&tenant, ids.clone(), event.clone()).await?;
        ids.into_iter().zip(answers).for_each(|(id, answer)| done.add(id, answer));
    }
    ok(&call, &done)
}

fn event(ask: &BulkAsk<'_>, now: Timestamp) -> Result<Event, ApiError> {
    if ask.priority.is_some() != (ask.action == BulkAction::Priority) {
        return Err(ApiError::bad_request("`priority` goes with the action priority, and only with that"));
    }
    Ok(match ask.action {
        BulkAction::Retry => Event::Requeue { at: now, even_running: false },
        BulkAction::Cancel => Event::Cancel { running: CancelRunning::Ask, failed_too: false },
        BulkAction::Run => Event::Run { at: now, force: false },
        BulkAction::Delete => Event::Delete,
        BulkAction::Priority => Event::Update(Box::new(Patch { priority: ask.priority, ..Patch::default() })),
    })
}

async fn named(call: &Call, ids: &[Id], tenant: Option<&str>) -> Result<Vec<Arc<Job>>, ApiError> {
    if ids.len() > BULK_MAX {
        return Err(ApiError::bad_request(format!("at most {BULK_MAX} ids in one call; send several calls")));
    }
    let mut jobs = Vec::with_capacity(ids.len());
    for Id(id) in ids {
        jobs.extend(find_id(call, *id, tenant).await?.map(|(_, job)| job));
    }
    Ok(jobs)
}

fn by_tenant(jobs: &[Arc<Job>]) -> BTreeMap<Tenant, Vec<JobId>> {
    let mut groups: BTreeMap<Tenant, Vec<JobId>> = BTreeMap::new();
    for job in jobs {
        groups.entry(job.spec.tenant.clone()).or_default().push(job.id);
    }
    groups
}
