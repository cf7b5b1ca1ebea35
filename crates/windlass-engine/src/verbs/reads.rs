//! Reads of single jobs, and of all jobs page by page.

use crate::engine::Engine;
use crate::error::EngineError;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_store::query::Filter;

impl Engine {
    /// `None`: there is no such job, or it belongs to another tenant.
    pub async fn get_one(&self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, EngineError> {
        Ok(self.get(tenant, vec![id]).await?.pop().flatten())
    }

    /// Jobs that match `filter`, in pages of `filter.limit`.
    pub fn pages(&self, filter: Filter) -> Pages<'_> {
        Pages { engine: self, rest: Some(filter) }
    }
}

/// Keyset pagination over a list.
pub struct Pages<'a> {
    engine: &'a Engine,
    /// `None` after the last page.
    rest: Option<Filter>,
}

impl Pages<'_> {
    /// Next page; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Job>>>, EngineError> {
        let Some(filter) = &mut self.rest else { return Ok(None) };
        let page = self.engine.list(filter.clone()).await?;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => self.rest = None,
        }
        Ok(Some(page.jobs))
    }

    pub fn has_more(&self) -> bool {
        self.rest.is_some()
    }

    /// Reads all remaining pages.
    pub async fn collect(mut self) -> Result<Vec<Arc<Job>>, EngineError> {
        let mut all = Vec::new();
        while let Some(jobs) = self.next().await? {
            all.extend(jobs);
        }
        Ok(all)
    }
}
