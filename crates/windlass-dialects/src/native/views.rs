//! A job as shown to clients.

mod job_history;
mod parts;
mod schedule;
mod steps;

use super::wire::{Id, State, Time, Unique};
use crate::codec::{Encoding, Kept, Nullable, Text};
use crate::route::Call;
use job_history::{HistoryEntry, LogView};
use parts::{FailedAttempt, LeaseView, PayloadFields, Ports};
use schedule::ScheduleView;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use steps::{SignalView, StepView, WaitView};
use windlass_core::repeat::Moments;
use windlass_core::unique::IDEMPOTENCY_MARK;
use windlass_core::{Action, Job, JobState, Timestamp};

pub(super) use parts::{OutcomeFields, Progress};
pub(super) use schedule::{TurnView, is_paused};
pub(super) use steps::StepResult;

/// Estimated bytes of one job without its payload; it avoids most reallocations.
pub(super) const JOB_BYTES_GUESS: usize = 320;
/// Predicted runs per repeating job.
const RUNS_FORETOLD: usize = 10;

/// Job as delivered to its worker.
// The only response that contains a lease token.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClaimedJob<'a> {
    /// Id of the job.
    id: Id,
    /// Lease token: send it with settle and extend.
    #[schemars(required)]
    token: Option<u64>,
    /// Expiry of the lease without a heartbeat; null: it does not expire.
    #[schemars(required)]
    lease_until: Option<Nullable<Time>>,
    /// Kind of job.
    name: &'a str,
    /// Queue it came from.
    queue: &'a str,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
    /// Number of this attempt, from 1.
    attempt: u32,
    /// Priority; a smaller number runs first.
    priority: i32,
    /// Time of the push.
    created_at: Time,
    /// Due time of this run.
    run_at: Time,
    /// Tags.
    tags: Option<&'a [Arc<str>]>,
    progress: Option<Progress<'a>>,
    /// Steps kept by earlier runs, in order.
    steps: Option<Vec<StepView<'a>>>,
    /// Number of times that steps were dropped to be executed again; missing: never. Part of the keys of children.
    generation: Option<u32>,
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
            // A requested run of a repeating job is ahead of its slot.
            run_at: lease.map_or(job.progress.due_at, |it| job.progress.due_at.min(it.granted_at)).into(),
            tags: tags(job),
            progress: Progress::of(job),
            steps: steps::kept(job, encoding),
            generation: job.steps().map(|steps| steps.generation()).filter(|generation| *generation > 0),
        }
    }
}

/// Job with all its details.
// Except its lease token, and its data where payloads are hidden.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Job")]
pub(super) struct JobView<'a> {
    /// Id of the job: 1, 2, 3, …; never reused.
    id: Id,
    /// Kind of job.
    name: &'a str,
    /// Queue.
    queue: &'a str,
    /// Tenant that owns it.
    tenant: &'a str,
    /// State.
    state: State,
    /// Priority; a smaller number runs first.
    priority: i32,
    /// True if payload, result and errors are hidden from the caller.
    hidden: Option<bool>,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
    /// Counted attempts, including the current one.
    attempts: u32,
    /// Total number of attempts; missing: unlimited.
    max_attempts: Option<u32>,
    /// Time of the push.
    created_at: Time,
    /// Due time of the current, next or last run.
    run_at: Time,
    /// Time of the last change.
    updated_at: Time,
    /// Start of the last run.
    started_at: Option<Time>,
    /// End of the last run.
    finished_at: Option<Time>,
    /// Time at which it will be deleted.
    expires_at: Option<Time>,
    lease: Option<LeaseView<'a>>,
    progress: Option<Progress<'a>>,
    /// Most recent failed attempts.
    errors: Option<Vec<FailedAttempt<'a>>>,
    #[serde(flatten)]
    outcome: OutcomeFields<'a>,
    ports: Option<Ports<'a>>,
    /// State set by its workers.
    custom_state: Option<BTreeMap<&'a str, Kept<'a>>>,
    /// Repeat rule.
    repeat: Option<&'a str>,
    schedule: Option<ScheduleView<'a>>,
    /// Dialect that created it.
    origin: &'a str,
    /// Alias.
    alias: Option<&'a str>,
    unique: Option<Unique<'a>>,
    /// Key of the push that created it.
    idempotency_key: Option<&'a str>,
    /// Id of its parent.
    parent: Option<Id>,
    /// Its name among the children of its parent.
    child_name: Option<&'a str>,
    /// Number of children it waits for.
    pending_children: Option<u32>,
    /// Tags.
    tags: Option<&'a [Arc<str>]>,
    /// Reason why it is not running: due, paused queue, limit X, children N, parent, a worker.
    waiting_for: Option<String>,
    /// Predicted times of the next runs.
    next_runs: Option<Vec<Time>>,
    log: Option<LogView<'a>>,
    /// Steps kept by its runs, in order; only in the response for a single job.
    steps: Option<Vec<StepView<'a>>>,
    wait: Option<WaitView<'a>>,
    /// Signals that it has not waited for yet; only in the response for a single job.
    signals: Option<Vec<SignalView<'a>>>,
    /// Actions that fit its state: retry, run, cancel, delete, edit, clone; only in the response for a single job.
    actions: Option<Vec<&'static str>>,
    /// Events in its life, oldest first; only in the response for a single job.
    history: Option<Vec<HistoryEntry<'a>>>,
}

impl<'a> JobView<'a> {
    /// View of a job in a list, without ports, log and history.
    pub(super) fn new(job: &'a Job, encoding: Encoding, hidden: bool, now: Timestamp) -> JobView<'a> {
        let (spec, progress) = (&job.spec, &job.progress);
        let body = job.body.as_ref().filter(|_| !hidden);
        let errors = body.map_or(&[][..], |body| &body.errors);
        let unique = spec.unique().filter(|unique| !unique.key.starts_with(IDEMPOTENCY_MARK));
        let unique = unique.map(|unique| Unique {
            key: Text((&*unique.key).into()),
            on_conflict: unique.on_conflict,
            held_until: unique.held_until,
        });
        JobView {
            id: Id(job.id),
            name: &spec.name,
            queue: &spec.queue,
            tenant: &spec.tenant,
            state: State(job.state_word(now)),
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
            // Notes and results of a worker reveal the payload.
            progress: Progress::of(job).filter(|_| !hidden),
            errors: (!errors.is_empty()).then(|| errors.iter().map(FailedAttempt::brief).collect()),
            outcome: OutcomeFields::new(body.and_then(|body| body.outcome.as_ref()), encoding)
                .without_backtrace(),
            ports: None,
            custom_state: None,
            repeat: spec.policy.repeat.as_ref().map(|repeat| repeat.text()),
            schedule: ScheduleView::of(job, hidden),
            origin: origin(job),
            alias: spec.alias().filter(|alias| !alias.starts_with(IDEMPOTENCY_MARK)),
            unique,
            idempotency_key: idempotency_key(job),
            parent: spec.family().map(|family| Id(family.parent)),
            child_name: spec.family().and_then(|family| family.child_name.as_deref()),
            pending_children: Some(progress.pending_children).filter(|children| *children > 0),
            tags: tags(job),
            waiting_for: None,
            next_runs: None,
            log: None,
            steps: None,
            wait: WaitView::of(job),
            signals: None,
            actions: None,
            history: None,
        }
    }

    /// View of a single job: with its ports, log, history and the reason why it is not running.
    pub(super) fn whole(
        job: &'a Job,
        encoding: Encoding,
        hidden: bool,
        around: &RunConditions,
    ) -> JobView<'a> {
        let ports = job.ports().filter(|_| !hidden);
        let body = job.body.as_ref().filter(|_| !hidden);
        let errors = body.map_or(&[][..], |body| &body.errors);
        let state = |ports: &'a Arc<windlass_core::ports::Ports>| {
            ports
                .state()
                .iter()
                .map(|(key, value)| (key.as_str(), Kept::Json(value.as_str().as_bytes())))
                .collect()
        };
        let view =
            JobView::new(job, encoding, hidden, around.now).with_next_runs(job, around.now, around.up_since);
        JobView {
            errors: (!errors.is_empty())
                .then(|| errors.iter().map(|error| FailedAttempt::new(error, encoding)).collect()),
            outcome: OutcomeFields::new(body.and_then(|body| body.outcome.as_ref()), encoding),
            ports: ports.map(|ports| Ports::new(ports)),
            custom_state: ports.map(state),
            waiting_for: waiting_for(job, around),
            log: body.and_then(|body| body.log.as_deref()).map(LogView::new),
            steps: steps::kept(job, encoding).filter(|_| !hidden),
            signals: steps::signals(job),
            actions: Some(Action::offered(job, around.now).into_iter().map(Action::as_str).collect()),
            history: Some(job_history::history(job, hidden)),
            schedule: view.schedule.map(|schedule| schedule.with_turns(job, hidden)),
            ..view
        }
    }

    /// Adds the predicted runs, assuming that each begins on time and takes no time, and whether a turn is
    /// late. None for a settled or paused job. `up_since`: see [`up_since`].
    pub(super) fn with_next_runs(
        mut self,
        job: &Job,
        now: Timestamp,
        up_since: Option<Timestamp>,
    ) -> JobView<'a> {
        self.schedule = self.schedule.map(|schedule| schedule.with_lateness(job, now, up_since));
        if is_paused(job) {
            return self;
        }
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

/// Start of this server; `None` if other servers may work on the same store.
pub(super) fn up_since(call: &Call) -> Option<Timestamp> {
    (!call.engine.is_shared()).then(|| call.server.state::<super::State>().up_since)
}

/// Due time of the current, next or last run.
pub(super) fn due_at(job: &Job) -> Time {
    job.state().claimable_at().unwrap_or(job.progress.due_at).into()
}

fn tags(job: &Job) -> Option<&[Arc<str>]> {
    Some(job.spec.tags()).filter(|tags| !tags.is_empty())
}

fn idempotency_key(job: &Job) -> Option<&str> {
    let keys = [job.spec.unique().map(|unique| &*unique.key), job.spec.alias()];
    keys.into_iter().flatten().find_map(|key| key.strip_prefix(IDEMPOTENCY_MARK))
}

/// Dialect that created the job.
pub(super) fn origin(job: &Job) -> &str {
    job.spec.extras.as_ref().and_then(|extras| extras.origin.as_deref()).unwrap_or("native")
}

/// Conditions outside the job that keep it from running.
#[derive(Clone, Debug, Default)]
pub(super) struct RunConditions {
    pub now: Timestamp,
    pub up_since: Option<Timestamp>,
    pub queue_is_paused: bool,
    /// Limit that keeps it from starting.
    pub held_by: Option<String>,
}

/// Reason why the job is not running, in a few words.
fn waiting_for(job: &Job, around: &RunConditions) -> Option<String> {
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
        JobState::Suspended { until } => match job.steps().and_then(|steps| steps.wait()) {
            Some(wait) => return Some(steps::reason(wait, *until, job.progress.pending_children)),
            None if job.spec.policy.repeat.is_some() => "being resumed",
            None => "being run",
        },
        JobState::Running(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => return None,
    };
    Some(reason.to_owned())
}
