//! Rules for runs: which job is run and when; the status of a job in this protocol.

use super::ORIGIN;
use super::errors::Problem;
use super::tx::{Reply, Stop, Tx};
use super::wire::RunWish;
use std::sync::Arc;
use windlass_core::lease::{Afterwards, Rest, RunKind};
use windlass_core::ports::Side;
use windlass_core::{Event, Job, JobId, JobState, Timestamp};

/// Current status, one of seven. A run requested during a run shows already as `queued`.
pub(super) fn status(job: &Job) -> &'static str {
    match job.state() {
        JobState::Ready { .. } | JobState::Waiting => "queued",
        JobState::Running(lease) => match (lease.kind, lease.afterwards) {
            (RunKind::Shutdown, Afterwards::RunAgain { .. }) => "queued",
            (RunKind::Shutdown, _) | (RunKind::Perform, Afterwards::Terminate) => "terminating",
            (RunKind::Perform, Afterwards::Settle) => "running",
            (RunKind::Perform, Afterwards::RunAgain { .. }) => "queued",
            (RunKind::Perform, Afterwards::Rest(rest)) => rest_name(rest),
        },
        JobState::Suspended { .. } => "suspended",
        JobState::Completed { .. } => "completed",
        JobState::Failed { .. } => "failed",
        JobState::Terminating { .. } => "terminating",
        JobState::Cancelled { .. } | JobState::Terminated { .. } => "terminated",
    }
}

fn rest_name(rest: Rest) -> &'static str {
    match rest {
        Rest::Suspended => "suspended",
        Rest::Completed => "completed",
        Rest::Failed => "failed",
        Rest::Terminated => "terminated",
    }
}

/// Result of a requested run.
#[derive(Default)]
pub(super) struct Ran {
    /// Job that was run, if any.
    pub job: Option<JobId>,
    pub trouble: Option<Problem>,
}

impl Ran {
    /// Combines two results; the first error wins.
    pub(super) fn and(self, other: Ran) -> Ran {
        Ran { job: self.job.or(other.job), trouble: self.trouble.or(other.trouble) }
    }
}

/// Runs the job or its parent, as requested.
pub(super) fn apply_run_request(tx: &mut Tx<'_, '_>, id: JobId, wish: RunWish) -> Result<Ran, Stop> {
    let at = wish.when.map_or(tx.now(), |when| when.from(tx.now()));
    if !wish.parent {
        return run(tx, id, at, wish.force);
    }
    match parent_of(tx, id)? {
        Some(parent) => run(tx, parent, at, wish.force),
        None => Ok(Ran::default()),
    }
}

/// Runs the job that a write concerns: an input concerns the job itself, an output its parent.
pub(super) fn after_write(tx: &mut Tx<'_, '_>, id: JobId, side: Side) -> Result<Ran, Stop> {
    let now = tx.now();
    match side {
        Side::In => run(tx, id, now, false),
        Side::Out => match parent_of(tx, id)? {
            Some(parent) => {
                let ran = run(tx, parent, now, false)?;
                // A parent with a pending run is not run again. But that run might be claimed, read its ports
                // and find nothing before this commit. Holding the parent's version makes this commit stale
                // in that case, and it is decided again.
                tx.hold(parent)?;
                Ok(ran)
            }
            None => Ok(Ran::default()),
        },
    }
}

/// Parent of the job, if it still exists.
fn parent_of(tx: &mut Tx<'_, '_>, id: JobId) -> Result<Option<JobId>, Stop> {
    let Some(parent) = tx.job(id)?.spec.family().map(|family| family.parent) else { return Ok(None) };
    Ok(tx.find(parent)?.map(|parent| parent.id))
}

fn run(tx: &mut Tx<'_, '_>, id: JobId, at: Timestamp, force: bool) -> Result<Ran, Stop> {
    let job = tx.job(id)?;
    if let Some(trouble) = made_elsewhere(tx, &job) {
        return Ok(Ran { job: None, trouble: Some(trouble) });
    }
    let is_down = matches!(status(&job), "failed" | "terminating" | "terminated");
    if is_down && !force {
        return Ok(Ran::default());
    }
    if will_run_anyway(&job, tx.now()) {
        return Ok(Ran { job: Some(id), trouble: None });
    }
    if tx.queues.class_of(&job).is_none() {
        return abandon(tx, &job);
    }
    let ran = tx.apply(id, Event::Run { at, force })?;
    Ok(Ran { job: ran.is_ok().then_some(id), trouble: None })
}

/// True if a run is pending, or requested after the current run.
fn will_run_anyway(job: &Job, now: Timestamp) -> bool {
    match job.state() {
        JobState::Ready { run_at, .. } => *run_at <= now,
        JobState::Running(lease) => {
            matches!(lease.afterwards, Afterwards::RunAgain { at } if at <= now)
        }
        _ => false,
    }
}

/// Refuses a job of another dialect whose class is not registered here: its workers use the other dialect.
fn made_elsewhere(tx: &Tx<'_, '_>, job: &Job) -> Option<Problem> {
    let origin = job.spec.extras.as_ref().and_then(|extras| extras.origin.as_deref());
    let is_own = origin == Some(ORIGIN);
    let problem = || Problem::made_elsewhere(job.id, &job.spec.name, &job.spec.queue);
    (!is_own && tx.queues.class_of(job).is_none()).then(problem)
}

/// Terminates a job whose class is no longer registered.
pub(super) fn abandon(tx: &mut Tx<'_, '_>, job: &Job) -> Result<Ran, Stop> {
    // A job that is terminated already stays so.
    let _ = tx.apply(job.id, Event::PutToRest(Rest::Terminated))?;
    let trouble = Problem::no_longer_registered(&job.spec.name, &job.spec.queue);
    Ok(Ran { job: None, trouble: Some(trouble) })
}

/// Returns the parent that must be terminated, not run, when a run of the child ends, because its class is no
/// longer registered. To be called before the run ends; the termination follows after it.
pub(super) fn parent_to_end(tx: &mut Tx<'_, '_>, child: JobId) -> Result<Option<Arc<Job>>, Stop> {
    let Some(parent) = parent_of(tx, child)? else { return Ok(None) };
    let parent = tx.job(parent)?;
    let is_down = matches!(status(&parent), "failed" | "terminating" | "terminated");
    let has_workers = tx.queues.class_of(&parent).is_some() || made_elsewhere(tx, &parent).is_some();
    let is_run = !is_down && !will_run_anyway(&parent, tx.now());
    Ok((is_run && !has_workers).then_some(parent))
}

/// Starts the shutdown run; if the class has none or is not registered, terminates the job at once.
pub(super) fn terminate(tx: &mut Tx<'_, '_>, id: JobId) -> Result<Reply, Stop> {
    let job = tx.job(id)?;
    let waits = will_run_anyway(&job, tx.now()) || matches!(job.state(), JobState::Terminating { .. });
    let mut trouble = made_elsewhere(tx, &job);
    match tx.queues.class_of(&job) {
        _ if status(&job) == "terminated" || trouble.is_some() => {}
        None if !waits => trouble = abandon(tx, &job)?.trouble,
        Some(class) if class.without_shutdown && job.state().lease().is_none() => {
            let _ = tx.apply(id, Event::PutToRest(Rest::Terminated))?;
        }
        Some(_) | None => {
            let _ = tx.apply(id, Event::Terminate)?;
        }
    }
    Ok(status_reply(tx, id)?.with_error(trouble))
}

/// Sets one of the seven statuses.
pub(super) fn set_status(tx: &mut Tx<'_, '_>, id: JobId, name: &str) -> Result<Reply, Stop> {
    let job = tx.job(id)?;
    let rest = match name {
        _ if name == status(&job) => return status_reply(tx, id),
        "queued" => {
            let now = tx.now();
            let ran = run(tx, id, now, true)?;
            return Ok(status_reply(tx, id)?.with_error(ran.trouble));
        }
        "terminating" => return terminate(tx, id),
        "running" => {
            let message = format!(
                "Job {id}: status running cannot be set; a job is running when a worker has claimed \
                 it"
            );
            return Err(Problem::refused(message).into());
        }
        "suspended" => Rest::Suspended,
        "completed" => Rest::Completed,
        "failed" => Rest::Failed,
        "terminated" => Rest::Terminated,
        other => {
            let names = "queued, running, suspended, completed, failed, terminating, terminated";
            return Err(Problem::refused(format!("Invalid status: {other}; use one of {names}")).into());
        }
    };
    if let Some(problem) = made_elsewhere(tx, &job) {
        return Err(problem.into());
    }
    let put = tx.apply(id, Event::PutToRest(rest))?;
    put.map_err(|refused| Problem::refused(format!("Job {id}: {refused}")))?;
    status_reply(tx, id)
}

/// Returns `{"job": 1, "status": "queued"}`.
pub(super) fn status_reply(tx: &mut Tx<'_, '_>, id: JobId) -> Result<Reply, Stop> {
    let job = tx.job(id)?;
    Ok(Reply::new(format!("{{\"job\":{id},\"status\":\"{}\"}}", status(&job))))
}
