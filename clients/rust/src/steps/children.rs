//! Children of a run: pushed once, waited for without a worker.

use super::{Turn, begin, keep_version};
use crate::error::Error;
use crate::outcome::Suspension;
use crate::run::Run;
use crate::task::Call;
use crate::wire::{JobResult, NewJob, keep_completed};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Retention of completed children: their results must be there when the last one ends.
const KEEP: Duration = Duration::from_secs(30 * 86_400);

/// Pushes the calls as children, waits for all, and returns their results in order.
pub(crate) async fn all<R: DeserializeOwned>(
    run: Arc<Run>,
    turn: Turn,
    calls: Vec<Call<R>>,
) -> Result<Vec<R>, Error> {
    all_settled(run, turn, calls).await?.into_iter().collect()
}

/// Like [`all`], with the failures of children as values.
pub(crate) async fn all_settled<R: DeserializeOwned>(
    run: Arc<Run>,
    turn: Turn,
    calls: Vec<Call<R>>,
) -> Result<Vec<Result<R, Error>>, Error> {
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let generation = turn.kept.as_ref().map_or(run.generation, |kept| kept.generation);
    let label = label(&turn.name, generation);
    let jobs = calls.into_iter().enumerate();
    let jobs: Vec<NewJob> =
        jobs.map(|(index, call)| Ok(child(&run, &label, index, call.job?))).collect::<Result<_, Error>>()?;
    if turn.kept.is_none() {
        begin(&run, &turn.name)?;
        keep_version(&run).await?;
        run.backend.push(&jobs).await?;
        return Err(run.suspend(Suspension { step: turn.name, children: true, ..Suspension::default() }));
    }
    let ended = outcomes(&run, &label, &jobs).await?;
    Ok(ended.into_iter().map(decode).collect())
}

fn decode<R: DeserializeOwned>(child: JobResult) -> Result<R, Error> {
    child.decode().map_err(|error| match error {
        Error::NotCompleted { id, state, class, message } => Error::ChildFailed { id, state, class, message },
        other => other,
    })
}

/// Name of a step in the keys and tags of its children: a step that is executed again has others.
fn label(step: &str, generation: u32) -> String {
    if generation == 0 { step.to_owned() } else { format!("{step}@{generation}") }
}

/// Tag of the children of a step, by which their results are found.
fn step_tag(step: &str) -> String {
    format!("windlass.step={step}")
}

/// Prefix of the tag with the position of a child among the calls of its step.
const INDEX: &str = "windlass.index=";

fn index(child: &JobResult) -> Option<usize> {
    child.tags.iter().find_map(|tag| tag.strip_prefix(INDEX)?.parse().ok())
}

fn child(run: &Run, step: &str, index: usize, mut job: NewJob) -> NewJob {
    job.parent = Some(run.job.id);
    // The same child in every run: a second push creates no job.
    job.idempotency_key = Some(format!("{}/{step}/{index}", run.job.id));
    job.options.keep = Some(keep_completed(KEEP));
    // A job outside of this step with the same unique key would not be a child.
    job.options.unique = None;
    job.options.tags.extend([step_tag(step), format!("{INDEX}{index}")]);
    let trace = run.job.tags.iter().find(|tag| tag.starts_with(crate::push::TRACEPARENT));
    if !job.options.tags.iter().any(|tag| tag.starts_with(crate::push::TRACEPARENT)) {
        job.options.tags.extend(trace.cloned());
    }
    job
}

/// Outcomes of the children of a step, in the order of the calls.
async fn outcomes(run: &Run, step: &str, jobs: &[NewJob]) -> Result<Vec<JobResult>, Error> {
    let listed = run.backend.children(run.job.id).await?;
    let tag = step_tag(step);
    let mut found: Vec<JobResult> = listed.into_iter().filter(|child| child.tags.contains(&tag)).collect();
    found.sort_unstable_by_key(|child| (index(child), child.id));
    if found.len() == jobs.len() {
        return Ok(found);
    }
    let (count, all) = (found.len(), jobs.len());
    Err(Error::Answer(format!("{count} of {all} children of step {step} are there")))
}
