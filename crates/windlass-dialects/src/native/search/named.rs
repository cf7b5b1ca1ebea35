//! Searches that name their jobs, by id or alias: they load these jobs and look at no others.

use super::{Count, LOOKING_MAX, Search};
use crate::native::errors::ApiError;
use crate::native::wire::PAGE_MAX;
use crate::query::{Filter, Page, PageBuilder};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
        let tenants: Vec<Tenant> = tenants.into_iter().collect();
        let mut found: BTreeSet<JobId> = engine.find_aliases(&tenants, alias).await?.into_iter().collect();
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
        let mut page = PageBuilder::new(limit);
        let mut looking = NamedJobs::new(self, engine, ids, before, LOOKING_MAX);
        while let Some(job) = looking.next().await? {
            if page.is_full() {
                return Ok(page.end_here());
            }
            page.push(job);
        }
        Ok(page.end_at(looking.stopped_at()))
    }

    /// Number of jobs with these ids that match the rest of the search.
    pub(super) async fn count_of(&self, engine: &Engine, ids: BTreeSet<JobId>) -> Result<Count, EngineError> {
        let mut looking = NamedJobs::new(self, engine, ids, None, LOOKING_MAX);
        let mut jobs = 0;
        while looking.next().await?.is_some() {
            jobs += 1;
        }
        Ok(Count { jobs, at_least: looking.stopped_at().is_some() })
    }
}

/// Iteration over jobs that are known by their ids, from the newest, with a time limit. It looks at one job at least.
struct NamedJobs<'a> {
    search: &'a Search,
    engine: &'a Engine,
    /// Ids to look at, in ascending order.
    rest: Vec<JobId>,
    looked_at: Option<JobId>,
    began: Instant,
    time_max: Duration,
}

impl<'a> NamedJobs<'a> {
    fn new(
        search: &'a Search,
        engine: &'a Engine,
        ids: BTreeSet<JobId>,
        before: Option<JobId>,
        time_max: Duration,
    ) -> NamedJobs<'a> {
        let rest = ids.into_iter().filter(|id| before.is_none_or(|before| *id < before)).collect();
        NamedJobs { search, engine, rest, looked_at: None, began: Instant::now(), time_max }
    }

    async fn next(&mut self) -> Result<Option<Arc<Job>>, EngineError> {
        let (tenant, now) = (self.search.filter.tenant.as_ref(), self.engine.now());
        while self.looked_at.is_none() || self.began.elapsed() < self.time_max {
            let Some(id) = self.rest.pop() else { return Ok(None) };
            self.looked_at = Some(id);
            let job = load(self.engine, tenant, id).await?;
            if let Some(job) = job.filter(|job| self.search.finds(job, now)) {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Cursor to continue from, if the time limit ended the iteration.
    fn stopped_at(&self) -> Option<JobId> {
        self.looked_at.filter(|_| !self.rest.is_empty())
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
