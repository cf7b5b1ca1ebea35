//! How a job looks from outside.

mod job_history;
mod parts;

use super::wire::{Id, State, Time, Unique};
use crate::codec::{Encoding, Kept, Nullable, Text};
use job_history::{Happening, LogView};
use parts::{FailedAttempt, LeaseView, PayloadFields, Ports};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::repeat::Moments;
use windlass_core::{Job, JobState, Timestamp};

pub(super) use parts::{OutcomeFields, Progress};

/// Room for one job beside its payload; a guess that saves most of the growing.
pub(super) const JOB_BYTES_GUESS: usize = 320;
/// Runs that are foretold per repeating job.
const RUNS_FORETOLD: usize = 10;

/// A job as its worker gets it.
// The only answer with a token of a claim in it.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClaimedJob<'a> {
    /// The job.
    id: Id,
    /// Proof of holding it: send it with settle and extend.
    #[schemars(required)]
    token: Option<u64>,
    /// Send a heartbeat before then; null: held until settled.
    #[schemars(required)]
    lease_until: Option<Nullable<Time>>,
    /// Its kind.
    name: &'a str,
    /// Where it came from.
    queue: &'a str,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
    /// Which attempt this is, from 1.
    attempt: u32,
    /// Smaller first.
    priority: i32,
    /// When it was pushed.
    created_at: Time,
    /// When this run was due.
    run_at: Time,
    /// Its tags.
    tags: Option<&'a [Arc<str>]>,
    progress: Option<Progress<'a>>,
}

impl<'a> ClaimedJob<'a> {
    pub(super) fn new(job: &'a Job, encoding: Encoding) -> ClaimedJob<'a> {
        let (spec, lease) = (&job.spec, job.state().lease());
        ClaimedJob {
            id: Id(job.id),
            token: lease.map(|lease| lease.token.number()),
            lease_until: lease.map(|lease| Nullable(lease.until.map(Time::from))),
            name: &spec.name,
            queue: &spec.queue,
            payload: PayloadFields::new(&spec.payload, encoding),
            attempt: job.progress.attempts,
            priority: spec.priority,
            created_at: spec.created_at.into(),
            run_at: job.progress.due_at.into(),
            tags: tags(job),
            progress: Progress::of(job),
        }
    }
}

/// All about a job.
// But its token, and what it works on where that is hidden.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Job")]
pub(super) struct JobView<'a> {
    /// 1, 2, 3, …; never used again.
    id: Id,
    /// Its kind.
    name: &'a str,
    /// Where it waits.
    queue: &'a str,
    /// Whose it is.
    tenant: &'a str,
    /// Where it stands.
    state: State,
    /// Smaller first.
    priority: i32,
    /// Payload, result and errors are not shown to viewers.
    hidden: Option<bool>,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
    /// Attempts that counted, the present one included.
    attempts: u32,
    /// Attempts in all; without it there is no bound.
    max_attempts: Option<u32>,
    /// When it was pushed.
    created_at: Time,
    /// When it is or was due.
    run_at: Time,
    /// When it last changed.
    updated_at: Time,
    /// When its last run began.
    started_at: Option<Time>,
    /// When it ended.
    finished_at: Option<Time>,
    /// When it will be forgotten.
    expires_at: Option<Time>,
    lease: Option<LeaseView<'a>>,
    progress: Option<Progress<'a>>,
    /// The last attempts that went wrong.
    errors: Option<Vec<FailedAttempt<'a>>>,
    #[serde(flatten)]
    outcome: OutcomeFields<'a>,
    ports: Option<Ports<'a>>,
    /// What was set as its state.
    custom_state: Option<BTreeMap<&'a str, Kept<'a>>>,
    /// Its repeat rule.
    repeat: Option<&'a str>,
    /// The dialect it came by.
    origin: &'a str,
    /// Another id for it.
    alias: Option<&'a str>,
    unique: Option<Unique<'a>>,
    /// Its parent.
    parent: Option<Id>,
    /// What its parent calls it.
    child_name: Option<&'a str>,
    /// Children it waits for.
    pending_children: Option<u32>,
    /// Its tags.
    tags: Option<&'a [Arc<str>]>,
    /// Why nobody is working on it: due, paused queue, limit X, children N, parent, a worker.
    waiting_for: Option<String>,
    /// When it runs next, if every run is on time.
    next_runs: Option<Vec<Time>>,
    log: Option<LogView<'a>>,
    /// What became of it, oldest first; only of a single job.
    history: Option<Vec<Happening<'a>>>,
}

impl<'a> JobView<'a> {
    /// As one of several: without what would make a page of jobs a page of their data.
    pub(super) fn new(job: &'a Job, encoding: Encoding, hidden: bool) -> JobView<'a> {
        let (spec, progress) = (&job.spec, &job.progress);
        let body = job.body.as_ref().filter(|_| !hidden);
        let errors = body.map_or(&[][..], |body| &body.errors);
        let unique = spec.unique().map(|unique| Unique {
            key: Text((&*unique.key).into()),
            on_conflict: unique.on_conflict,
            held_until: unique.held_until,
        });
        JobView {
            id: Id(job.id),
            name: &spec.name,
            queue: &spec.queue,
            tenant: &spec.tenant,
            state: State(job.state().name()),
            priority: spec.priority,
            hidden: hidden.then_some(true),
            payload: if hidden {
                PayloadFields::default()
            } else {
                PayloadFields::new(&spec.payload, encoding)
            },
            attempts: progress.attempts,
            max_attempts: spec.policy.retry.max_attempts,
            created_at: spec.created_at.into(),
            run_at: due_at(job),
            updated_at: progress.updated_at.into(),
            started_at: progress.started_at.map(Time::from),
            finished_at: progress.finished_at.map(Time::from),
            expires_at: job.expires_at().map(Time::from),
            lease: job.state().lease().map(LeaseView::new),
            // Words and results of a worker tell of the payload.
            progress: Progress::of(job).filter(|_| !hidden),
            errors: (!errors.is_empty()).then(|| errors.iter().map(FailedAttempt::new).collect()),
            outcome: OutcomeFields::new(body.and_then(|body| body.outcome.as_ref()), encoding),
            ports: None,
            custom_state: None,
            repeat: spec.policy.repeat.as_ref().map(|repeat| repeat.text()),
            origin: origin(job),
            alias: spec.alias(),
            unique,
            parent: spec.family().map(|family| Id(family.parent)),
            child_name: spec.family().and_then(|family| family.child_name.as_deref()),
            pending_children: Some(progress.pending_children).filter(|children| *children > 0),
            tags: tags(job),
            waiting_for: None,
            next_runs: None,
            log: None,
            history: None,
        }
    }

    /// By itself: with its ports, its log, its history and why it is not running.
    pub(super) fn whole(
        job: &'a Job,
        encoding: Encoding,
        hidden: bool,
        around: &Surroundings,
    ) -> JobView<'a> {
        let ports = job.ports().filter(|_| !hidden);
        let state = |ports: &'a Arc<windlass_core::ports::Ports>| {
            ports
                .state()
                .iter()
                .map(|(key, value)| (key.as_str(), Kept::Json(value.as_str().as_bytes())))
                .collect()
        };
        JobView {
            ports: ports.map(|ports| Ports::new(ports)),
            custom_state: ports.map(state),
            waiting_for: waiting_for(job, around),
            log: job.body.as_ref().and_then(|body| body.log.as_deref()).filter(|_| !hidden).map(LogView::new),
            history: Some(job_history::history(job, hidden)),
            ..JobView::new(job, encoding, hidden).with_next_runs(job, around.now)
        }
    }

    /// If each run begins on time and takes none. Not for a job that will not run again.
    pub(super) fn with_next_runs(mut self, job: &Job, now: Timestamp) -> JobView<'a> {
        let Some(repeat) = job.spec.policy.repeat.as_ref().filter(|_| !job.state().is_settled()) else {
            return self;
        };
        let mut runs = Vec::new();
        let waiting = job.state().claimable_at();
        runs.extend(waiting);
        let began = waiting.unwrap_or(job.progress.due_at);
        let moments = Moments { scheduled: began, started: Some(began.max(now)), finished: began.max(now) };
        runs.extend(repeat.upcoming(&moments, RUNS_FORETOLD - runs.len()));
        self.next_runs = Some(runs.into_iter().map(Time::from).collect());
        self
    }
}

/// When it is or was due.
pub(super) fn due_at(job: &Job) -> Time {
    job.state().claimable_at().unwrap_or(job.progress.due_at).into()
}

fn tags(job: &Job) -> Option<&[Arc<str>]> {
    Some(job.spec.tags()).filter(|tags| !tags.is_empty())
}

/// The dialect it came by.
pub(super) fn origin(job: &Job) -> &str {
    job.spec.extras.as_ref().and_then(|extras| extras.origin.as_deref()).unwrap_or("native")
}

/// Why a job is not running, where that takes more than a look at the job itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    pub now: Timestamp,
    pub queue_is_paused: bool,
    /// The limit that lets it not start now.
    pub held_by: Option<String>,
}

/// One sentence's worth of why nobody is working on it.
fn waiting_for(job: &Job, around: &Surroundings) -> Option<String> {
    let reason = match job.state() {
        JobState::Ready { run_at, .. } if *run_at > around.now => "due",
        JobState::Ready { .. } | JobState::Terminating { .. } if around.queue_is_paused => "paused queue",
        JobState::Ready { .. } | JobState::Terminating { .. } => match &around.held_by {
            Some(limit) => return Some(format!("limit {limit}")),
            None => "a worker",
        },
        JobState::Waiting if job.progress.pending_children > 0 => {
            return Some(format!("children {}", job.progress.pending_children));
        }
        JobState::Waiting => "parent",
        JobState::Suspended => "being run",
        JobState::Running(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => return None,
    };
    Some(reason.to_owned())
}
