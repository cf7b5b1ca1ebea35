//! Sending of step results to the server: steps that finish at the same time share a call.

use super::log::VERSION;
use crate::api::Backoff;
use crate::error::Error;
use crate::run::Run;
use crate::wire::{NewStep, StepAnswer};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Steps per call.
const BATCH_MAX: usize = 1_000;

/// Result that another run kept first; `None` if the own result was kept.
type Kept = Result<Option<Box<RawValue>>, Error>;

/// Finished steps whose results are not kept yet.
#[derive(Default)]
pub(crate) struct Finished {
    waiting: Vec<(NewStep, oneshot::Sender<Kept>)>,
    is_sending: bool,
}

/// Keeps the result of a step. Returns once the server has it.
pub(crate) async fn keep(run: &Arc<Run>, step: NewStep) -> Kept {
    let (tell, told) = oneshot::channel();
    let is_first = {
        let mut finished = run.finished();
        finished.waiting.push((step, tell));
        !std::mem::replace(&mut finished.is_sending, true)
    };
    if is_first {
        // Started on drop, so that the other steps are sent even if this future is dropped here.
        let sending = StartSending(Arc::clone(run));
        // Lets steps that are polled together with this one finish too.
        tokio::task::yield_now().await;
        drop(sending);
    }
    told.await.unwrap_or_else(|_| Err(Error::LeaseLost { message: "the run has ended".to_owned() }))
}

struct StartSending(Arc<Run>);

impl Drop for StartSending {
    fn drop(&mut self) {
        let run = Arc::clone(&self.0);
        // Without a runtime the process is about to end.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { send_all(&run).await });
        }
    }
}

async fn send_all(run: &Arc<Run>) {
    loop {
        let (steps, tells): (Vec<NewStep>, Vec<oneshot::Sender<Kept>>) = {
            let mut finished = run.finished();
            if finished.waiting.is_empty() {
                finished.is_sending = false;
                return;
            }
            let count = finished.waiting.len().min(BATCH_MAX);
            finished.waiting.drain(..count).unzip()
        };
        match send(run, &steps).await {
            Ok(answers) => tell(tells, answers),
            // One bad step must not cost the others.
            Err(Error::Refused { .. } | Error::Conflict { .. }) if steps.len() > 1 => {
                for (step, tell_one) in steps.into_iter().zip(tells) {
                    let answer = send(run, std::slice::from_ref(&step)).await;
                    let _ = tell_one.send(answer.map(|mut answers| answers.pop().and_then(earlier)));
                }
            }
            Err(error) => {
                for tell_one in tells {
                    let _ = tell_one.send(Err(error.copy()));
                }
            }
        }
    }
}

fn tell(tells: Vec<oneshot::Sender<Kept>>, answers: Vec<StepAnswer>) {
    for (tell_one, answer) in tells.into_iter().zip(answers) {
        let _ = tell_one.send(Ok(earlier(answer)));
    }
}

fn earlier(answer: StepAnswer) -> Option<Box<RawValue>> {
    (!answer.kept).then(|| answer.result.unwrap_or_else(crate::wire::null))
}

/// Sends steps, repeatedly while the server is unavailable and the run goes on: a result that is not kept would
/// mean that the step runs again.
async fn send(run: &Arc<Run>, steps: &[NewStep]) -> Result<Vec<StepAnswer>, Error> {
    let is_there = steps.iter().any(|step| step.name == VERSION);
    let version = run.steps().version_step().filter(|_| !is_there);
    let with_version: Vec<NewStep> = version.iter().chain(steps).cloned().collect();
    let mut backoff = Backoff::new();
    loop {
        let error = match run.backend.keep_steps(run.job.id, run.token, &with_version).await {
            Ok(mut answers) if answers.len() == with_version.len() => {
                run.steps().version_kept();
                return Ok(answers.split_off(with_version.len() - steps.len()));
            }
            Ok(answers) => {
                return Err(Error::Answer(format!("{} of {} steps", answers.len(), with_version.len())));
            }
            Err(error) => error,
        };
        if matches!(error, Error::LeaseLost { .. } | Error::NotFound { .. }) {
            run.lose();
        }
        if !error.is_outage() || run.has_ended() {
            return Err(error);
        }
        tracing::debug!(job.id = run.job.id, %error, "cannot keep steps of job {}; retrying", run.job.id);
        tokio::time::sleep(backoff.pause()).await;
    }
}
