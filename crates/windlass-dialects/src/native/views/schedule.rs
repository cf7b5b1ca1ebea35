//! Schedule of a repeating job as shown to clients: its turns, and whether it is paused or late.

use crate::native::schema::CatchUpWord;
use crate::native::wire::Time;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::lease::{Afterwards, Rest};
use windlass_core::turn::{Turn, TurnOutcome};
use windlass_core::{Job, JobState, Timestamp};

/// Schedule of a repeating job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Schedule")]
pub(crate) struct ScheduleView<'a> {
    /// True if no further turn starts until it is resumed.
    paused: bool,
    /// Handling of a turn that was not claimed before the next scheduled time.
    #[schemars(with = "CatchUpWord")]
    catch_up: &'static str,
    /// Turn that ended last.
    last_turn: Option<TurnView<'a>>,
    /// Number of turns that failed since the last one that did not, among the kept turns.
    failed_in_a_row: Option<usize>,
    overdue: Option<Overdue>,
    /// Last turns, newest first; only in the response for a single job.
    turns: Option<Vec<TurnView<'a>>>,
}

/// Turn that has not started although a later scheduled time has passed.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Overdue {
    /// Its scheduled time.
    due_at: Time,
    /// Scheduled times that have passed since.
    missed: u32,
    /// True if the server was not running at `due_at`.
    server_was_down: bool,
}

/// Turn of a repeating job: a scheduled run with all its attempts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Turn")]
pub(crate) struct TurnView<'a> {
    /// Scheduled time; of a requested turn its start.
    due_at: Time,
    /// Start of its last attempt.
    started_at: Option<Time>,
    /// End of the turn.
    ended_at: Time,
    /// Duration of its last attempt.
    #[schemars(range(min = 0))]
    duration_ms: Option<i64>,
    /// Outcome: completed, failed, cancelled or missed (it came too late and was not run).
    outcome: &'static str,
    /// Number of attempts.
    attempts: u32,
    /// Scheduled times that passed during the turn and were skipped.
    missed: Option<u32>,
    /// True if it was requested and left the schedule as it is.
    requested: Option<bool>,
    /// Class of the last error.
    class: Option<&'a str>,
    /// Code of the last error.
    code: Option<&'a str>,
    /// Message of the last error.
    message: Option<&'a str>,
    /// Worker of the last attempt.
    worker: Option<&'a str>,
}

impl<'a> TurnView<'a> {
    fn new(turn: &'a Turn, hidden: bool) -> TurnView<'a> {
        TurnView {
            due_at: turn.due_at.into(),
            started_at: turn.started_at.map(Time::from),
            ended_at: turn.ended_at.into(),
            duration_ms: turn.started_at.map(|at| turn.ended_at.since_ms(at)),
            outcome: turn.outcome.as_str(),
            attempts: turn.attempts,
            missed: Some(turn.missed).filter(|missed| *missed > 0),
            requested: turn.requested.then_some(true),
            class: turn.class.as_deref().filter(|_| !hidden),
            code: turn.code.as_deref().filter(|_| !hidden),
            message: turn.message.as_deref().filter(|_| !hidden),
            worker: turn.worker.as_deref(),
        }
    }

    /// Kept turns of a job, newest first.
    pub(crate) fn all(job: &'a Job, hidden: bool) -> Vec<TurnView<'a>> {
        job.turns().iter().rev().map(|turn| TurnView::new(turn, hidden)).collect()
    }
}

impl<'a> ScheduleView<'a> {
    /// `None` for a job that does not repeat.
    pub(super) fn of(job: &'a Job, hidden: bool) -> Option<ScheduleView<'a>> {
        job.spec.policy.repeat.as_ref()?;
        let failed = |turn: &&Turn| turn.outcome == TurnOutcome::Failed;
        let failed = job.turns().iter().rev().take_while(failed).count();
        Some(ScheduleView {
            paused: is_paused(job),
            catch_up: job.spec.policy.catch_up.as_str(),
            last_turn: job.turns().last().map(|turn| TurnView::new(turn, hidden)),
            failed_in_a_row: Some(failed).filter(|failed| *failed > 0),
            overdue: None,
            turns: None,
        })
    }

    /// Adds the kept turns.
    pub(super) fn with_turns(self, job: &'a Job, hidden: bool) -> ScheduleView<'a> {
        ScheduleView { turns: Some(TurnView::all(job, hidden)), ..self }
    }

    /// Adds whether a turn is late. `up_since`: start of the server, if it alone works on the store.
    pub(super) fn with_lateness(
        self,
        job: &Job,
        now: Timestamp,
        up_since: Option<Timestamp>,
    ) -> ScheduleView<'a> {
        ScheduleView { overdue: overdue(job, now, up_since), ..self }
    }
}

fn overdue(job: &Job, now: Timestamp, up_since: Option<Timestamp>) -> Option<Overdue> {
    let (repeat, due_at) = (job.spec.policy.repeat.as_ref()?, job.progress.due_at);
    // A turn that has begun and waited is not late.
    let has_begun = job.steps().is_some_and(|steps| !steps.kept().is_empty());
    let is_waiting =
        matches!(job.state(), JobState::Ready { .. }) && job.progress.attempts == 0 && !has_begun;
    let missed = if is_waiting { repeat.missed(due_at, now) } else { 0 };
    let server_was_down = up_since.is_some_and(|since| since > due_at);
    (missed > 0).then(|| Overdue { due_at: due_at.into(), missed, server_was_down })
}

/// True if no further turn starts until the schedule is resumed; a running turn goes on.
pub(crate) fn is_paused(job: &Job) -> bool {
    match job.state() {
        // A turn that waits is not a paused schedule.
        JobState::Suspended { .. } => job.steps().and_then(|steps| steps.wait()).is_none(),
        JobState::Running(lease) => lease.afterwards == Afterwards::Rest(Rest::Suspended),
        JobState::Ready { .. }
        | JobState::Waiting
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminating { .. }
        | JobState::Terminated { .. } => false,
    }
}
