//! `GET /api/v1/jobs/count` and `POST /api/v1/jobs/bulk`: counts the jobs of a search, and applies one action
//! to all of them.

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

/// Jobs per call: a commit of this size does not delay other requests. The response has a cursor to continue
/// from.
pub(super) const BULK_MAX: usize = 1_000;
/// Refusals listed one by one; the others are only counted.
const REFUSALS_TOLD_MAX: usize = 20;

/// Parses a search, and refuses it if the caller may not see what it depends on.
pub(super) fn search(call: &Call, text: &str, tenant: Option<&str>) -> Result<Search, ApiError> {
    let search = Search::parse(text, &call.caller, tenant)?;
    may_search(call, &search)?;
    Ok(search)
}

pub(super) fn may_search(call: &Call, search: &Search) -> Result<(), ApiError> {
    if search.looks_into_payloads() && call.hides_payloads() {
        let message = "viewers cannot search payloads on this server (auth.viewer_payloads is hide)";
        return Err(ApiError::coded(StatusCode::FORBIDDEN, "forbidden", message));
    }
    Ok(())
}

/// Number of jobs that a search finds.
#[derive(Serialize, JsonSchema)]
pub(super) struct Count {
    /// Number of jobs found.
    count: u64,
    /// True if there may be more, because the time limit ended the count.
    at_least: bool,
}

pub(super) async fn count(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let search = search(&call, params.text("search").unwrap_or_default(), params.tenant())?;
    let count = search.count(&call.engine).await?;
    ok(&call, &Count { count: count.jobs, at_least: count.at_least })
}

pub(super) const EXAMPLES: Examples = &[(
    "failed",
    "retry all failed jobs of a name",
    r#"{"action":"retry","search":"state:failed name:mail*"}"#,
)];

/// Action, and the jobs it applies to: `search` or `ids`.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bulk")]
pub(super) struct BulkAsk<'a> {
    /// Action.
    pub action: BulkAction,
    /// Search words that select the jobs.
    #[serde(borrow, default)]
    pub search: Option<Text<'a>>,
    /// Ids of the jobs, at most 1,000.
    #[serde(default)]
    pub ids: Option<Vec<Id>>,
    /// New priority, for the action priority.
    #[serde(default)]
    pub priority: Option<i32>,
    /// `next` of the previous call, to continue.
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

/// Result of an action on many jobs.
#[derive(Serialize, JsonSchema)]
pub(super) struct BulkDone {
    /// Number of jobs to which the action was applied.
    done: usize,
    /// Number of jobs that no longer exist or are not in a suitable state.
    refused: usize,
    /// First refusals.
    errors: Vec<BulkError>,
    /// Cursor to send as `cursor` to continue; null: no more jobs.
    next: Nullable<String>,
}

/// Refusal.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct BulkError {
    /// Id of the job.
    id: Id,
    /// Code for programs.
    code: &'static str,
    /// Message for people.
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
        _ => return Err(ApiError::bad_request("send either `ids` or `search`")),
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
        return Err(ApiError::bad_request(
            "`priority` is required for the action `priority`, and not allowed for others",
        ));
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
        return Err(ApiError::bad_request(format!(
            "too many ids; the maximum is {BULK_MAX}, send several calls"
        )));
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
