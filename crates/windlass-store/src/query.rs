//! Looking at jobs without touching them.

use std::sync::Arc;
use windlass_core::{Job, JobId, Name, NameMatch, Queue, Scope, StateName, Tenant, Timestamp};

/// Jobs per page at most: a page is built in memory on both sides.
pub const PAGE_MAX: usize = 1_000;
/// Rows looked at for one page at most, so that a filter that fits nothing cannot occupy a reader for long. The page
/// then comes back short, with a cursor to go on from.
pub const SCAN_MAX: usize = 100_000;

#[derive(Clone, Debug)]
pub struct Filter {
    /// `None`: all tenants; for operators of the whole server only.
    pub tenant: Option<Tenant>,
    /// Empty: any state.
    pub states: Vec<StateName>,
    pub queue: Option<Queue>,
    pub names: NameMatch,
    /// Of these, what the caller may reach.
    pub scope: Scope,
    pub tag: Option<Arc<str>>,
    /// Text somewhere in the payload, byte for byte.
    pub text: Option<Arc<str>>,
    /// Only jobs with a repeat rule that are not settled.
    pub repeating: bool,
    /// Only jobs with smaller ids: the cursor.
    pub before: Option<JobId>,
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            tenant: None,
            states: Vec::new(),
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
    /// Nothing but tenant and states is asked for, and not for ready jobs, which are known by their queues.
    pub fn is_about_states_only(&self) -> bool {
        self.queue.is_none()
            && self.names == NameMatch::Any
            && self.scope.is_everything()
            && self.tag.is_none()
            && self.text.is_none()
            && !self.repeating
            && !self.states.is_empty()
            && !self.states.contains(&StateName::Ready)
    }

    /// Whether the job belongs in the answer, the cursor aside.
    pub fn fits(&self, job: &Job) -> bool {
        let spec = &job.spec;
        self.tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
            && (self.states.is_empty() || self.states.contains(&job.state().name()))
            && self.queue.as_ref().is_none_or(|queue| *queue == spec.queue)
            && self.names.matches(&spec.name)
            && self.scope.allows(&spec.queue, &spec.name)
            && self.tag.as_ref().is_none_or(|tag| spec.tags().contains(tag))
            && (!self.repeating || repeats(job))
            && self.text.as_ref().is_none_or(|text| contains(&spec.payload.bytes, text.as_bytes()))
    }
}

/// It will run again and again, as far as is known.
pub fn repeats(job: &Job) -> bool {
    job.spec.policy.repeat.is_some() && !job.state().is_settled()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub jobs: Vec<Arc<Job>>,
    /// Ask for what comes `before` this id to go on; `None`: that was all.
    pub next: Option<JobId>,
}

/// Jobs of one name that could be given out now.
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
    /// By `StateName as usize`.
    pub by_state: [u64; 9],
    /// Jobs that wait for a worker, but whose time has not come.
    pub delayed: u64,
    /// When the job that has been claimable for longest became so.
    pub oldest_due: Option<Timestamp>,
}

impl QueueCounts {
    pub fn of(&self, state: StateName) -> u64 {
        self.by_state[state as usize]
    }
}
