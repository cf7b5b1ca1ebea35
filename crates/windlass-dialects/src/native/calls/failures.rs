//! `GET /api/v1/failures`: failed and retrying jobs, grouped by error and name.
//!
//! The groups are counted from the newest job on, within a time limit. An answer that hit the limit says so and
//! has a cursor; groups of several answers with the same tenant, name and title add up.

use super::bulk::search;
use super::list::{cursor, states};
use crate::codec::Nullable;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, reply};
use crate::native::request::Params;
use crate::native::search::errors::{exactly, quoted};
use crate::native::search::{Looking, Search, without_states};
use crate::native::wire::{Id, Time};
use crate::route::Call;
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::failure::{cut_middle, group_title};
use windlass_core::job::AttemptError;
use windlass_core::{Job, JobId, Name, NameMatch, Queue, StateWord, Tenant, Timestamp};

/// Time limit of one answer. Longer than that of a search: it is asked for less often, and partial groups are
/// worth less than a partial page.
const LOOKING_MAX: Duration = Duration::from_millis(200);
/// Groups in one answer, each held in memory while jobs are counted.
const GROUPS_MAX: usize = 10_000;
/// Bytes of a sample message.
const SAMPLE_BYTES_MAX: usize = 1_000;
/// Queues listed per group.
const QUEUES_MAX: usize = 20;
/// States of jobs with an error to act on.
const STATES: [StateWord; 2] = [StateWord::Failed, StateWord::Retrying];

/// Groups of failures.
#[derive(Serialize, JsonSchema)]
pub(super) struct Failures {
    /// Groups, in the requested order.
    groups: Vec<FailureGroup>,
    /// Number of groups, also those beyond `limit`.
    groups_total: usize,
    /// Number of jobs in the requested states; with `name` or `search`, before these are applied.
    total: u64,
    /// Number of jobs counted into the groups.
    looked_at: u64,
    /// True if the time limit ended the count: counts are those of the newest jobs.
    partial: bool,
    /// Cursor to count on from, as `cursor`; null: all jobs are counted.
    next: Nullable<String>,
}

/// Failed and retrying jobs with the same tenant, name and error.
#[derive(Serialize, JsonSchema)]
struct FailureGroup {
    /// Class of the error, or the normal form of its message: numbers, ids and quoted texts as `*`.
    title: String,
    /// Class of the error, if it has one.
    class: Option<String>,
    /// Kind of job.
    name: String,
    /// Tenant that owns the jobs.
    tenant: String,
    /// Number of jobs.
    count: u64,
    /// Number of jobs that have failed.
    failed: u64,
    /// Number of jobs that wait for their next attempt.
    retrying: u64,
    /// Time of the earliest last error of these jobs.
    first_at: Time,
    /// Time of the latest error.
    last_at: Time,
    /// Queues of the jobs, at most 20.
    queues: Vec<String>,
    sample: Sample,
    /// Search that finds the jobs of this group.
    search: String,
}

/// Job with the latest error of a group.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Sample {
    /// Id of the job.
    id: Id,
    /// Its error message, at most 1,000 bytes of it.
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Count,
    Last,
}

/// Group while jobs are counted.
#[derive(Debug, PartialEq)]
struct Tally {
    class: Option<String>,
    failed: u64,
    retrying: u64,
    first_at: Timestamp,
    last_at: Timestamp,
    queues: BTreeSet<Queue>,
    sample: (JobId, String),
}

/// Tenant, name and title.
type Key = (Tenant, Name, String);

#[derive(Default)]
struct Groups {
    tallies: BTreeMap<Key, Tally>,
    looked_at: u64,
}

impl Groups {
    fn add(&mut self, job: &Job, now: Timestamp) {
        let untold = AttemptError { at: job.progress.updated_at, ..AttemptError::default() };
        let error = job.body.as_ref().and_then(|body| body.errors.last()).unwrap_or(&untold);
        let key = (job.spec.tenant.clone(), job.spec.name.clone(), group_title(error).into_owned());
        self.looked_at += 1;
        let tally = self.tallies.entry(key).or_insert_with(|| Tally {
            class: error.class.clone().filter(|class| !class.is_empty()),
            failed: 0,
            retrying: 0,
            first_at: error.at,
            last_at: error.at,
            queues: BTreeSet::new(),
            sample: (job.id, cut_middle(&error.message, SAMPLE_BYTES_MAX)),
        });
        match job.state_word(now) {
            StateWord::Failed => tally.failed += 1,
            _ => tally.retrying += 1,
        }
        tally.first_at = tally.first_at.min(error.at);
        if error.at > tally.last_at {
            tally.last_at = error.at;
            tally.sample = (job.id, cut_middle(&error.message, SAMPLE_BYTES_MAX));
        }
        if tally.queues.len() < QUEUES_MAX {
            tally.queues.insert(job.spec.queue.clone());
        }
    }

    fn is_full(&self) -> bool {
        self.tallies.len() >= GROUPS_MAX
    }

    /// Groups in order; equal ones by title, so that the order is the same every time.
    fn sorted(self, order: Order) -> Vec<(Key, Tally)> {
        let mut groups: Vec<(Key, Tally)> = self.tallies.into_iter().collect();
        groups.sort_by_key(|(_, tally)| {
            let count = tally.failed + tally.retrying;
            std::cmp::Reverse(match order {
                Order::Count => (i64::try_from(count).unwrap_or(i64::MAX), tally.last_at.as_millis()),
                Order::Last => (tally.last_at.as_millis(), i64::try_from(count).unwrap_or(i64::MAX)),
            })
        });
        groups
    }
}

impl FailureGroup {
    fn new(
        ((tenant, name, title), tally): (Key, Tally),
        within: &str,
        states: &[StateWord],
        names_tenant: bool,
    ) -> FailureGroup {
        let words: Vec<&str> = states.iter().map(|word| word.as_str()).collect();
        let error = match &tally.class {
            Some(class) => format!("class:{}", quoted(&exactly(class))),
            None => format!("group:{}", quoted(&title)),
        };
        let (words, name_word) = (words.join(","), quoted(&exactly(&name)));
        let mut search = format!("{within}state:{words} {error} name:{name_word}");
        if names_tenant {
            search.push_str(&format!(" tenant:{}", quoted(&tenant)));
        }
        FailureGroup {
            title,
            class: tally.class,
            name: name.to_string(),
            tenant: tenant.to_string(),
            count: tally.failed + tally.retrying,
            failed: tally.failed,
            retrying: tally.retrying,
            first_at: tally.first_at.into(),
            last_at: tally.last_at.into(),
            queues: tally.queues.iter().map(|queue| queue.to_string()).collect(),
            sample: Sample { id: Id(tally.sample.0), message: tally.sample.1 },
            search,
        }
    }
}

pub(super) async fn failures(call: Call) -> Answer {
    let params = Params::of(&call)?;
    let order = match params.text("sort").unwrap_or("count") {
        "count" => Order::Count,
        "last" => Order::Last,
        other => return Err(ApiError::bad_request(format!("unknown order `{other}`; use count or last"))),
    };
    let words = asked_states(params.text("state"))?;
    let search = asked(&call, &params, &words)?;
    let (engine, now) = (&call.engine, call.engine.now());
    let counts = engine.counts(search.filter.tenant.as_ref()).await?;
    let in_queue =
        counts.iter().filter(|one| search.filter.queue.as_ref().is_none_or(|queue| *queue == one.queue));
    let counted: u64 = in_queue.map(|one| words.iter().map(|word| one.of_word(*word)).sum::<u64>()).sum();
    let mut groups = Groups::default();
    let mut looking = Looking::begin(&search, engine, params.cursor()?, LOOKING_MAX).await?;
    let mut next = None;
    while let Some(job) = looking.next().await? {
        groups.add(&job, now);
        if groups.is_full() {
            next = Some(job.id);
            break;
        }
    }
    let next = next.or_else(|| looking.stopped_at());
    let (groups_total, looked_at) = (groups.tallies.len(), groups.looked_at);
    // Counters of queues that the caller reaches only in part are hidden.
    let total = if engine.counts_are_whole() { counted } else { looked_at };
    let names_tenant = search.filter.tenant.is_none() || params.tenant().is_some();
    let mut within = without_states(params.text("search").unwrap_or_default());
    if let Some(queue) = params.text("queue") {
        within.push_str(&format!("queue:{} ", quoted(queue)));
    }
    let sorted = groups.sorted(order).into_iter().take(params.page_limit()?);
    let groups: Vec<FailureGroup> =
        sorted.map(|group| FailureGroup::new(group, &within, search.states(), names_tenant)).collect();
    let room = 64 + groups.len() * 512;
    let answer =
        Failures { groups, groups_total, total, looked_at, partial: next.is_some(), next: cursor(next) };
    reply(&call, StatusCode::OK, room, &answer)
}

/// Requested states, of those with an error to act on.
fn asked_states(list: Option<&str>) -> Result<Vec<StateWord>, ApiError> {
    let asked = states(list)?;
    match asked.iter().find(|word| !STATES.contains(word)) {
        Some(word) => {
            Err(ApiError::bad_request(format!("`state` can be failed and retrying here, not {word}")))
        }
        None if asked.is_empty() => Ok(STATES.to_vec()),
        None => Ok(asked),
    }
}

fn asked(call: &Call, params: &Params, words: &[StateWord]) -> Result<Search, ApiError> {
    let mut search = search(call, params.text("search").unwrap_or_default(), params.tenant())?;
    if call.hides_payloads() {
        let message = "viewers cannot see errors on this server (auth.viewer_payloads is hide)";
        return Err(ApiError::coded(StatusCode::FORBIDDEN, "forbidden", message));
    }
    if !search.keep_states(words) {
        return Err(ApiError::bad_request("the search asks for other states than failed and retrying"));
    }
    if let Some(queue) = params.text("queue") {
        search.filter.queue = Some(Queue::new(queue)?);
    }
    if let Some(name) = params.text("name") {
        search.filter.names = NameMatch::glob(name);
    }
    Ok(search)
}

#[cfg(test)]
mod tests;
