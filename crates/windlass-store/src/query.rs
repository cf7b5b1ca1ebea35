//! Queries that do not change jobs.

use crate::{Lookup, Result};
use std::sync::Arc;
use windlass_core::{Job, JobId, Name, NameMatch, Queue, Scope, StateName, StateWord, Tenant, Timestamp};

/// Most jobs per page: a page is held in memory by server and client.
pub const PAGE_MAX: usize = 1_000;
/// Bytes of payloads, errors, results and logs with which a page ends before its limit: 1,000 failed jobs with long
/// errors take 150 MB. Pages of 1,000 ordinary jobs, of a few kilobytes each, stay whole.
pub const PAGE_BYTES_MAX: usize = 8 << 20;
/// Most rows examined for one page, so that a filter that matches nothing cannot occupy a reader for long.
/// The page then comes back short, with a cursor to continue.
pub const SCAN_MAX: usize = 100_000;

#[derive(Clone, Debug)]
pub struct Filter {
    /// `None`: all tenants; only for operators of the whole server.
    pub tenant: Option<Tenant>,
    /// Empty: any state.
    pub states: Vec<StateName>,
    /// Of the ready jobs, only those with an attempt behind them.
    pub retried: bool,
    pub queue: Option<Queue>,
    pub names: NameMatch,
    /// Of these, what the caller may reach.
    pub scope: Scope,
    pub tag: Option<Arc<str>>,
    /// Text anywhere in the payload, compared byte by byte.
    pub text: Option<Arc<str>>,
    /// Only jobs with a repeat rule that are not settled.
    pub repeating: bool,
    /// Cursor: only jobs with smaller ids.
    pub before: Option<JobId>,
    /// Most jobs on the page; it ends earlier with [`PAGE_BYTES_MAX`].
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            tenant: None,
            states: Vec::new(),
            retried: false,
            queue: None,
            names: NameMatch::Any,
            scope: Scope::default(),
            tag: None,
            text: None,
            repeating: false,
            before: None,
            limit: 50,
        }
    }
}

impl Filter {
    /// True if the filter has only a tenant and states, without `Ready`: ready jobs are indexed by queue, not
    /// by state, except the retried ones.
    pub fn is_about_states_only(&self) -> bool {
        self.queue.is_none()
            && self.names == NameMatch::Any
            && self.scope.is_everything()
            && self.tag.is_none()
            && self.text.is_none()
            && !self.repeating
            && !self.states.is_empty()
            && (self.retried || !self.states.contains(&StateName::Ready))
    }

    /// True if the job matches, ignoring the cursor.
    pub fn fits(&self, job: &Job) -> bool {
        let spec = &job.spec;
        self.tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
            && (self.states.is_empty() || self.states.contains(&job.state().name()))
            && (!self.retried || job.state().name() != StateName::Ready || job.is_retried())
            && self.queue.as_ref().is_none_or(|queue| *queue == spec.queue)
            && self.names.matches(&spec.name)
            && self.scope.allows(&spec.queue, &spec.name)
            && self.tag.as_ref().is_none_or(|tag| spec.tags().contains(tag))
            && (!self.repeating || repeats(job))
            && self.text.as_ref().is_none_or(|text| contains(&spec.payload.bytes, text.as_bytes()))
    }
}

/// Finds a job with exactly this name by listing the jobs in these states, or in all states if none is given.
pub(crate) async fn find_named_by_listing(
    store: &dyn Lookup,
    tenant: &Tenant,
    queue: &Queue,
    name: &Name,
    states: Vec<StateName>,
) -> Result<Option<JobId>> {
    let mut pages = Pages::new(Filter {
        tenant: Some(tenant.clone()),
        queue: Some(queue.clone()),
        names: NameMatch::Exact(name.as_str().into()),
        states,
        limit: 1,
        ..Filter::default()
    });
    while let Some(jobs) = pages.next(store).await? {
        if let Some(job) = jobs.first() {
            return Ok(Some(job.id));
        }
    }
    Ok(None)
}

/// Keyset pagination over the jobs that match a filter, in pages of `filter.limit`.
pub struct Pages {
    /// `None` after the last page.
    rest: Option<Filter>,
}

impl Pages {
    pub fn new(filter: Filter) -> Pages {
        Pages { rest: Some(filter) }
    }

    /// Next page, which may be empty; `None` after the last.
    pub async fn next<S: Lookup + ?Sized>(&mut self, store: &S) -> Result<Option<Vec<Arc<Job>>>> {
        let Some(filter) = &mut self.rest else { return Ok(None) };
        let page = store.list(filter.clone()).await?;
        match page.next {
            Some(next) => filter.before = Some(next),
            None => self.rest = None,
        }
        Ok(Some(page.jobs))
    }
}

/// True if the job has a repeat rule and is not settled.
pub fn repeats(job: &Job) -> bool {
    job.spec.policy.repeat.is_some() && !job.state().is_settled()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub jobs: Vec<Arc<Job>>,
    /// Cursor for `Filter::before`; `None`: last page.
    pub next: Option<JobId>,
}

/// Page that is being filled. It ends by the number of its jobs or by their bytes, whichever comes first, and holds
/// at least one job.
pub struct PageBuilder {
    jobs: Vec<Arc<Job>>,
    limit: usize,
    bytes: usize,
}

impl PageBuilder {
    pub fn new(limit: usize) -> PageBuilder {
        PageBuilder { jobs: Vec::new(), limit, bytes: 0 }
    }

    /// True if the page takes no further job.
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= self.limit || self.bytes >= PAGE_BYTES_MAX
    }

    pub fn push(&mut self, job: Arc<Job>) {
        self.bytes += job_bytes(&job);
        self.jobs.push(job);
    }

    /// Last page, or one that ends at a cursor.
    pub fn end_at(self, next: Option<JobId>) -> Page {
        Page { jobs: self.jobs, next }
    }

    /// Page that ends with its last job.
    pub fn end_here(self) -> Page {
        let next = self.jobs.last().map(|job| job.id);
        self.end_at(next)
    }
}

/// Bytes of the parts of a job that can be large.
pub fn job_bytes(job: &Job) -> usize {
    job.spec.payload.bytes.len() + job.body.as_ref().map_or(0, |body| body.bytes())
}

/// Claimable jobs with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingName {
    pub tenant: Tenant,
    pub name: Name,
    pub ready: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    pub tenant: Tenant,
    pub queue: Queue,
    pub paused: bool,
    /// Indexed by `StateName as usize`.
    pub by_state: [u64; 9],
    /// Ready jobs that are not due yet, without an attempt behind them.
    pub delayed: u64,
    /// Ready jobs that are not due yet, with an attempt behind them.
    pub retrying: u64,
    /// `run_at` of the job that has been claimable for the longest time.
    pub oldest_due: Option<Timestamp>,
}

impl QueueCounts {
    pub fn of(&self, state: StateName) -> u64 {
        self.by_state[state as usize]
    }

    /// Number of jobs that are shown with this word.
    pub fn of_word(&self, word: StateWord) -> u64 {
        match word {
            StateWord::Ready => self.of(StateName::Ready).saturating_sub(self.delayed + self.retrying),
            StateWord::Delayed => self.delayed,
            StateWord::Retrying => self.retrying,
            other => self.of(other.stored()),
        }
    }
}
