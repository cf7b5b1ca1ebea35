//! `GET /api/v1/jobs/count` and `POST /api/v1/jobs/bulk`: counts the jobs of a search, and applies one action
//! to all of them.

mod undo;

use super::list::cursor;
use crate::audit::{unrecorded, with_detail};
use crate::codec::{Nullable, Text};
use crate::native::commands::run_at;
use crate::native::errors::ApiError;
use crate::native::reply::{Answer, ok};
use crate::native::request::{Body, Params, find_id};
use crate::native::search::{Count as Found, Search};
use crate::native::wire::{Id, TenantText, Time, When};
use crate::query::{PAGE_BYTES_MAX, job_bytes};
use crate::route::{Call, Examples};
use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::names::NAME_BYTES_MAX;
use windlass_core::{Action, Event, Job, JobId, Queue, Tenant, Timestamp};

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

pub(super) const EXAMPLES: Examples = &[
    ("failed", "retry all failed jobs of a name", r#"{"action":"retry","search":"state:failed name:mail*"}"#),
    (
        "dry",
        "count the jobs that would be moved to another queue",
        r#"{"action":"move","queue":"slow","search":"state:ready name:report","dry_run":true}"#,
    ),
];

/// Action, and the jobs it applies to: `search` or `ids`.
#[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bulk")]
pub(super) struct BulkAsk<'a> {
    /// Action; `undelete` brings back deleted jobs and needs `ids`.
    pub action: BulkAction,
    /// Search words that select the jobs.
    #[serde(borrow, default)]
    pub search: Option<Text<'a>>,
    /// Ids of the jobs, at most 1,000.
    #[serde(default)]
    pub ids: Option<Vec<Id>>,
    /// priority: new priority.
    #[serde(default)]
    pub priority: Option<i32>,
    /// move: new queue; retry: queue in which the jobs start again.
    #[serde(borrow, default)]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX))]
    pub queue: Option<Text<'a>>,
    /// reschedule, retry, run: time of the next run.
    #[serde(default)]
    pub run_at: Option<When>,
    /// reschedule, retry, run: time of the next run, in milliseconds from now.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub delay_ms: Option<i64>,
    /// Only count the jobs; nothing is changed.
    #[serde(default)]
    pub dry_run: bool,
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
    Move,
    Reschedule,
    Undelete,
}

impl BulkAction {
    fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Action that has to fit the state of a job; `None`: there is no job yet.
    fn action(self) -> Option<Action> {
        Some(match self {
            BulkAction::Retry => Action::Retry,
            BulkAction::Cancel => Action::Cancel,
            BulkAction::Run => Action::Run,
            BulkAction::Delete => Action::Delete,
            BulkAction::Priority => Action::Priority,
            BulkAction::Move => Action::Move,
            BulkAction::Reschedule => Action::Reschedule,
            BulkAction::Undelete => return None,
        })
    }
}

/// Result of an action on many jobs.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct BulkDone {
    /// Number of jobs to which the action was applied.
    done: usize,
    /// Number of jobs that no longer exist or are not in a suitable state.
    refused: usize,
    /// First refusals.
    errors: Vec<BulkError>,
    /// Cursor to send as `cursor` to continue; null: no more jobs.
    next: Nullable<String>,
    /// dry_run: number of jobs found.
    count: Option<u64>,
    /// dry_run: true if there may be more, because the time limit ended the count.
    at_least: Option<bool>,
    /// dry_run of delete: number of deleted jobs that the server keeps at most, to bring them back.
    undo_max: Option<usize>,
    /// delete: ids of the deleted jobs that the action undelete brings back.
    undo: Option<Vec<Id>>,
    /// delete: time until which it does.
    undo_until: Option<Time>,
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
    fn add(&mut self, id: JobId, answer: Result<(), ApiError>) {
        let Err(error) = answer else {
            self.done += 1;
            return;
        };
        self.refused += 1;
        if self.errors.len() < REFUSALS_TOLD_MAX {
            let ApiError { code, message, .. } = error;
            self.errors.push(BulkError { id: Id(id), code, message });
        }
    }
}

pub(super) async fn bulk(mut call: Call) -> Answer {
    let body = Body::of(&mut call).await?;
    let ask: BulkAsk<'_> = body.read()?;
    let now = call.engine.now();
    let events = events(&ask, now)?;
    let mut done = BulkDone::default();
    if ask.dry_run {
        let count = counted(&call, &ask).await?;
        (done.count, done.at_least) = (Some(count.jobs), Some(count.at_least));
        done.undo_max = (ask.action == BulkAction::Delete).then(|| undo::kept_max(&call));
        return Ok(unrecorded(ok(&call, &done)?));
    }
    if ask.action == BulkAction::Undelete {
        return undo::undelete(&call, &ask).await;
    }
    let fitting = selected(&call, &ask, now, &mut done).await?;
    let engine = call.engine.on_behalf_of(&call.caller.who);
    let words = match &ask.search {
        Some(words) => format!("search {:?}", &**words),
        None => format!("{} ids", ask.ids.as_ref().map_or(0, Vec::len)),
    };
    let action = ask.action.word();
    let is_of_many = fitting.len() > 1;
    for (tenant, jobs) in fitting {
        call.concerns(&tenant, None);
        let (done_before, refused_before) = (done.done, done.refused);
        for ids in parts(&jobs) {
            let answers = match ask.action {
                BulkAction::Delete => undo::delete(&call, &engine, &tenant, &ids, &mut done).await?,
                _ => engine.apply_in_turn(&tenant, &ids, &events).await?,
            };
            ids.into_iter()
                .zip(answers)
                .for_each(|(id, answer)| done.add(id, answer.map_err(ApiError::from)));
        }
        if is_of_many {
            let (changed, refused) = (done.done - done_before, done.refused - refused_before);
            call.has_done(format!("{action}, {words}: {changed} done, {refused} refused"));
        }
    }
    let detail = format!("{action}, {words}: {} done, {} refused", done.done, done.refused);
    Ok(with_detail(ok(&call, &done)?, None, detail))
}

/// Job to which the action fits.
struct Candidate {
    id: JobId,
    bytes: usize,
}

type Candidates = BTreeMap<Tenant, Vec<Candidate>>;

/// Jobs of one call to which the action fits; the others are refused, and `done` has the cursor of the next call. The
/// jobs themselves are not held: a thousand of them may be large.
async fn selected(
    call: &Call,
    ask: &BulkAsk<'_>,
    now: Timestamp,
    done: &mut BulkDone,
) -> Result<Candidates, ApiError> {
    let mut fitting = Candidates::new();
    let mut sort = |job: &Job, done: &mut BulkDone| match check(call, ask, job, now) {
        Ok(()) => {
            let candidate = Candidate { id: job.id, bytes: job_bytes(job) };
            fitting.entry(job.spec.tenant.clone()).or_default().push(candidate);
        }
        Err(error) => done.add(job.id, Err(error)),
    };
    match (&ask.search, &ask.ids) {
        (Some(words), None) => {
            let search = search(call, words, ask.tenant.as_deref())?;
            let before = ask.cursor.as_deref().and_then(|id| id.parse().ok()).and_then(JobId::new);
            let page = search.page(&call.engine, before, BULK_MAX).await?;
            page.jobs.iter().for_each(|job| sort(job, done));
            done.next = cursor(page.next);
        }
        (None, Some(ids)) => {
            for Id(id) in few(ids)? {
                match find_id(call, *id, ask.tenant.as_deref()).await? {
                    Some((_, job)) => sort(&job, done),
                    None => done.refused += 1,
                }
            }
        }
        _ => return Err(ApiError::bad_request("send either `ids` or `search`")),
    }
    Ok(fitting)
}

/// Parts in which the jobs of a tenant are changed: a transaction holds its jobs in memory.
fn parts(jobs: &[Candidate]) -> Vec<Vec<JobId>> {
    let (mut parts, mut bytes): (Vec<Vec<JobId>>, usize) = (Vec::new(), 0);
    for job in jobs {
        match parts.last_mut() {
            Some(part) if bytes < PAGE_BYTES_MAX => part.push(job.id),
            _ => {
                parts.push(vec![job.id]);
                bytes = 0;
            }
        }
        bytes += job.bytes;
    }
    parts
}

async fn counted(call: &Call, ask: &BulkAsk<'_>) -> Result<Found, ApiError> {
    match (&ask.search, &ask.ids) {
        (Some(words), None) => Ok(search(call, words, ask.tenant.as_deref())?.count(&call.engine).await?),
        (None, Some(ids)) => {
            let mut jobs = 0;
            for Id(id) in few(ids)? {
                jobs += u64::from(find_id(call, *id, ask.tenant.as_deref()).await?.is_some());
            }
            Ok(Found { jobs, at_least: false })
        }
        _ => Err(ApiError::bad_request("send either `ids` or `search`")),
    }
}

/// Reason why a job is left out, if there is one.
fn check(call: &Call, ask: &BulkAsk<'_>, job: &Job, now: Timestamp) -> Result<(), ApiError> {
    if let Some(action) = ask.action.action()
        && !action.fits(job, now)
    {
        let (action, state) = (action.as_str(), job.state_word(now));
        let message = format!("`{action}` does not fit a job that is {state}");
        return Err(ApiError::coded(StatusCode::CONFLICT, "wrong_state", message));
    }
    match &ask.queue {
        Some(queue) => Ok(call.engine.check_reach(&Queue::new(queue)?, &job.spec.name)?),
        None => Ok(()),
    }
}

/// Events of an action, in order.
fn events(ask: &BulkAsk<'_>, now: Timestamp) -> Result<Vec<Event>, ApiError> {
    check_fields(ask)?;
    let update = |patch: Patch| Event::Update(Box::new(patch));
    let queue = ask.queue.as_ref().map(|queue| Queue::new(queue)).transpose()?;
    let at = run_at(ask.run_at, ask.delay_ms).map_err(ApiError::bad_request)?.from(now);
    let moved = queue.map(|queue| update(Patch { queue: Some(queue), ..Patch::default() }));
    Ok(match ask.action {
        BulkAction::Retry => moved.into_iter().chain([Event::Requeue { at, even_running: false }]).collect(),
        BulkAction::Cancel => vec![Event::Cancel { running: CancelRunning::Ask, failed_too: false }],
        BulkAction::Run => vec![Event::Run { at, force: false }],
        BulkAction::Delete => vec![Event::Delete],
        BulkAction::Undelete => Vec::new(),
        BulkAction::Priority => vec![update(Patch { priority: ask.priority, ..Patch::default() })],
        BulkAction::Move => moved.into_iter().collect(),
        BulkAction::Reschedule => vec![update(Patch { run_at: Some(at), ..Patch::default() })],
    })
}

/// Fields that an action needs, and those that it does not take.
fn check_fields(ask: &BulkAsk<'_>) -> Result<(), ApiError> {
    use BulkAction::{Move, Priority, Reschedule, Retry, Run};
    let has_time = ask.run_at.is_some() || ask.delay_ms.is_some();
    let needs = match ask.action {
        Priority if ask.priority.is_none() => Some("the action priority needs `priority`"),
        Move if ask.queue.is_none() => Some("the action move needs `queue`"),
        Reschedule if !has_time => Some("the action reschedule needs `run_at` or `delay_ms`"),
        _ => None,
    };
    let refuses = match ask.action {
        Priority => None,
        _ if ask.priority.is_some() => Some("`priority` is for the action priority"),
        _ => None,
    };
    let refuses = refuses.or(match ask.action {
        Move | Retry => None,
        _ if ask.queue.is_some() => Some("`queue` is for the actions move and retry"),
        _ => None,
    });
    let refuses = refuses.or(match ask.action {
        Reschedule | Retry | Run => None,
        _ if has_time => Some("`run_at` and `delay_ms` are for the actions reschedule, retry and run"),
        _ => None,
    });
    let needs = needs.or(match (ask.action, &ask.search, &ask.ids) {
        (BulkAction::Undelete, Some(_), _) | (BulkAction::Undelete, _, None) => {
            Some("the action undelete needs `ids`, and takes no `search`")
        }
        (BulkAction::Undelete, ..) if ask.dry_run => Some("`dry_run` is not for the action undelete"),
        _ => None,
    });
    needs.or(refuses).map_or(Ok(()), |message| Err(ApiError::bad_request(message)))
}

/// Ids of a call, unless there are too many.
fn few(ids: &[Id]) -> Result<&[Id], ApiError> {
    match ids.len() {
        count if count > BULK_MAX => {
            Err(ApiError::bad_request(format!("too many ids; the maximum is {BULK_MAX}, send several calls")))
        }
        _ => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{self, Encoding};

    #[test]
    fn an_action_takes_the_fields_that_it_needs_and_no_others() {
        let asked = |rest: &str| {
            let body = format!(r#"{{"action":{rest},"search":""}}"#);
            let ask: BulkAsk<'_> = codec::read(Encoding::Json, body.as_bytes()).unwrap();
            events(&ask, Timestamp::from_millis(100)).map(|events| events.len()).map_err(|e| e.message)
        };
        for (rest, count) in [
            (r#""retry""#, 1),
            (r#""retry","queue":"q","delay_ms":5"#, 2),
            (r#""run","run_at":7"#, 1),
            (r#""cancel""#, 1),
            (r#""delete""#, 1),
            (r#""priority","priority":0"#, 1),
            (r#""move","queue":"q""#, 1),
            (r#""reschedule","delay_ms":0"#, 1),
        ] {
            assert_eq!(asked(rest), Ok(count), "{rest}");
        }
        for (rest, part) in [
            (r#""priority""#, "needs `priority`"),
            (r#""move""#, "needs `queue`"),
            (r#""reschedule""#, "needs `run_at`"),
            (r#""retry","priority":1"#, "`priority` is for"),
            (r#""cancel","queue":"q""#, "`queue` is for"),
            (r#""delete","delay_ms":5"#, "`run_at` and `delay_ms` are for"),
            (r#""reschedule","delay_ms":5,"run_at":7"#, "cannot be combined"),
            (r#""reschedule","delay_ms":-5"#, "negative"),
            (r#""undelete""#, "needs `ids`"),
            (r#""undelete","ids":[1]"#, "takes no `search`"),
        ] {
            assert!(asked(rest).unwrap_err().contains(part), "{rest}");
        }
    }

    #[test]
    fn large_jobs_are_changed_in_several_parts() {
        let of = |sizes: &[usize]| {
            let job = |(index, bytes): (usize, &usize)| Candidate {
                id: JobId::new(index as u64 + 1).unwrap(),
                bytes: *bytes,
            };
            let jobs: Vec<Candidate> = sizes.iter().enumerate().map(job).collect();
            parts(&jobs).iter().map(Vec::len).collect::<Vec<_>>()
        };
        let half = PAGE_BYTES_MAX / 2;
        for (sizes, expected) in [
            (vec![], vec![]),
            (vec![10; 1_000], vec![1_000]),
            (vec![half; 5], vec![2, 2, 1]),
            (vec![3 * half, 1, half, half, 1], vec![1, 3, 1]),
        ] {
            assert_eq!(of(&sizes), expected, "{sizes:?}");
        }
    }
}
