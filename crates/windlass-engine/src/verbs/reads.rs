//! Reads of single jobs, and of all jobs page by page.

use crate::engine::Engine;
use crate::error::EngineError;
use std::sync::Arc;
use windlass_core::{Job, JobId, Tenant};
use windlass_store::query::{Filter, Page, PageBuilder};

/// Children loaded at once: few enough that a page of large ones does not read many more than it takes.
const CHILDREN_LOADED: usize = 50;

impl Engine {
    /// `None`: there is no such job, or it belongs to another tenant.
    pub async fn get_one(&self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, EngineError> {
        Ok(self.get(tenant, vec![id]).await?.pop().flatten())
    }

    /// Ids of the jobs of these tenants with this alias, in no particular order.
    pub async fn find_aliases(&self, tenants: &[Tenant], alias: &str) -> Result<Vec<JobId>, EngineError> {
        if self.scope.is_everything() {
            self.inner.open()?;
            return Ok(self.inner.store.find_aliases(tenants, alias).await?);
        }
        let mut found = Vec::new();
        for tenant in tenants {
            found.extend(self.find_alias(tenant, alias).await?);
        }
        Ok(found)
    }

    /// Children with larger ids than `after`, ordered by id, as many as a page of `limit` takes. The cursor of the
    /// page is the `after` of the next.
    pub async fn page_of_children(
        &self,
        tenant: &Tenant,
        parent: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Page, EngineError> {
        self.inner.open()?;
        let mut ids = self.inner.store.children(parent).await?;
        ids.retain(|id| after.is_none_or(|after| *id > after));
        let mut page = PageBuilder::new(limit);
        for some in ids.chunks(CHILDREN_LOADED) {
            for job in self.get(tenant, some.to_vec()).await?.into_iter().flatten() {
                if page.is_full() {
                    return Ok(page.end_here());
                }
                page.push(job);
            }
        }
        Ok(page.end_at(None))
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
