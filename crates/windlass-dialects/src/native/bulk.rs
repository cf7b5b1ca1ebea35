//! The calls on many jobs at once: how many a search finds, and one action on all of them.

use super::calls::{Answer, answer, body, find_id, param, params, reply_encoding, write_next};
use super::errors::ApiError;
use super::search::Search;
use super::wire::{BulkAction, BulkAsk};
use crate::codec::{self, Out};
use crate::route::Call;
use ::http::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::{Action, RunAt, VerbError};

/// Jobs acted on by one call: a commit of about this size holds up nobody. The answer says how to go on.
pub const BULK_MAX: usize = 1_000;
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

pub async fn count(call: Call) -> Answer {
    let params = params(&call, &["search", "tenant"])?;
    let search = search(&call, param(&params, "search").unwrap_or_default(), param(&params, "tenant"))?;
    let count = search.count(&call.engine).await?;
    let mut out = Out::new(reply_encoding(&call), 64);
    out.begin_map();
    out.key("count");
    out.uint(count.jobs);
    out.key("at_least");
    out.bool(count.at_least);
    out.end_map();
    Ok(answer(StatusCode::OK, out))
}

pub async fn bulk(mut call: Call) -> Answer {
    let reply = reply_encoding(&call);
    let (encoding, body) = body(&mut call).await?;
    let ask: BulkAsk<'_> = codec::read_map(encoding, &body)?;
    let action = action(&ask)?;
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
    let mut tally = Tally::default();
    tally.refused += asked - jobs.len();
    let engine = call.engine.on_behalf_of(&call.caller.who);
    for (tenant, ids) in by_tenant(&jobs) {
        let answers = engine.act(&tenant, ids.clone(), action.clone()).await?;
        ids.into_iter().zip(answers).for_each(|(id, answer)| tally.add(id, answer.err()));
    }
    let mut out = Out::new(reply, 256);
    tally.write(&mut out, next);
    Ok(answer(StatusCode::OK, out))
}

fn action(ask: &BulkAsk<'_>) -> Result<Action, ApiError> {
    if ask.priority.is_some() != (ask.action == BulkAction::Priority) {
        return Err(ApiError::bad_request("`priority` goes with the action priority, and only with that"));
    }
    Ok(match ask.action {
        BulkAction::Retry => Action::Requeue { at: RunAt::Now, even_running: false },
        BulkAction::Cancel => Action::Cancel { running: CancelRunning::Ask, failed_too: false },
        BulkAction::Run => Action::Run { at: RunAt::Now, force: false },
        BulkAction::Delete => Action::Delete,
        BulkAction::Priority => Action::Update(Patch { priority: ask.priority, ..Patch::default() }),
    })
}

async fn named(call: &Call, ids: &[JobId], tenant: Option<&str>) -> Result<Vec<Arc<Job>>, ApiError> {
    if ids.len() > BULK_MAX {
        return Err(ApiError::bad_request(format!("at most {BULK_MAX} ids in one call; send several calls")));
    }
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
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

#[derive(Default)]
struct Tally {
    done: usize,
    refused: usize,
    told: Vec<(JobId, VerbError)>,
}

impl Tally {
    fn add(&mut self, id: JobId, error: Option<VerbError>) {
        let Some(error) = error else {
            self.done += 1;
            return;
        };
        self.refused += 1;
        if self.told.len() < REFUSALS_TOLD_MAX {
            self.told.push((id, error));
        }
    }

    fn write(self, out: &mut Out, next: Option<JobId>) {
        out.begin_map();
        out.key("done");
        out.uint(self.done as u64);
        out.key("refused");
        out.uint(self.refused as u64);
        out.key("errors");
        out.begin_array();
        for (id, error) in self.told {
            let error = ApiError::from(error);
            out.begin_map();
            out.key("id");
            out.uint(id.get());
            out.key("code");
            out.str(error.code);
            out.key("message");
            out.str(&error.message);
            out.end_map();
        }
        out.end_array();
        write_next(out, next);
        out.end_map();
    }
}
