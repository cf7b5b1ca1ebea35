//! Searches that name their jobs, by id or alias: they load these jobs and look at no others.

use super::Search;
use crate::native::errors::ApiError;
use crate::native::wire::PAGE_MAX;
use crate::query::{Filter, Page};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_engine::{Engine, EngineError};

/// Parses a list of ids, separated by commas.
pub(super) fn ids(list: &str) -> Result<BTreeSet<JobId>, ApiError> {
    let parse = |word: &str| {
        let id = word.trim().parse().ok().and_then(JobId::new);
        id.ok_or_else(|| ApiError::bad_request(format!("`{word}` is not an id; ids are numbers from 1 on")))
    };
    let ids = list.split(',').map(parse).collect::<Result<BTreeSet<JobId>, ApiError>>()?;
    match ids.len() {
        count if count > PAGE_MAX => {
            Err(ApiError::bad_request(format!("{count} ids in one search; the maximum is {PAGE_MAX}")))
        }
        _ => Ok(ids),
    }
}

impl Search {
    /// Ids of the jobs that the search names; `None`: it names none.
    pub(super) async fn named_ids(&self, engine: &Engine) -> Result<Option<BTreeSet<JobId>>, EngineError> {
        let (Some(alias), ids) = (&self.alias, &self.ids) else { return Ok(self.ids.clone()) };
        let tenants: BTreeSet<Tenant> = match &self.filter.tenant {
            Some(tenant) => [tenant.clone()].into(),
            None => engine.counts(None).await?.into_iter().map(|counts| counts.tenant).collect(),
        };
        let mut found = BTreeSet::new();
        for tenant in tenants {
            found.extend(engine.find_alias(&tenant, alias).await?);
        }
        found.retain(|id| ids.as_ref().is_none_or(|ids| ids.contains(id)));
        Ok(Some(found))
    }

    /// Page of the jobs with these ids that match the rest of the search, newest first.
    pub(super) async fn page_of(
        &self,
        engine: &Engine,
        ids: BTreeSet<JobId>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Page, EngineError> {
        let (mut page, now) = (Page::default(), engine.now());
        for id in ids.into_iter().rev().filter(|id| before.is_none_or(|before| *id < before)) {
            let job = load(engine, self.filter.tenant.as_ref(), id).await?;
            if let Some(job) = job.filter(|job| self.finds(job, now)) {
                if page.jobs.len() == limit {
                    page.next = page.jobs.last().map(|job| job.id);
                    return Ok(page);
                }
                page.jobs.push(job);
            }
        }
        Ok(page)
    }
}

/// Loads a job; `tenant: None`: of any tenant.
async fn load(engine: &Engine, tenant: Option<&Tenant>, id: JobId) -> Result<Option<Arc<Job>>, EngineError> {
    if let Some(tenant) = tenant {
        return engine.get_one(tenant, id).await;
    }
    let Some(next) = id.get().checked_add(1).and_then(JobId::new) else { return Ok(None) };
    let page = engine.list(Filter { before: Some(next), limit: 1, ..Filter::default() }).await?;
    Ok(page.jobs.into_iter().next().filter(|job| job.id == id))
}
