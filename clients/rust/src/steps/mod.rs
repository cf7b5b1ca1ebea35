//! Durable steps: results that are kept with the job, and waits that hold no worker.

mod call;
mod children;
mod keep;
mod log;
mod wait;

pub use call::Step;
pub use log::OnChange;
pub use wait::Wait;

pub(crate) use children::{all, all_settled};
pub(crate) use keep::{Finished, keep};
pub(crate) use log::{StepLog, Turn};
pub(crate) use wait::{Until, sleep};

use crate::error::Error;
use crate::run::Run;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Value of a kept step.
fn decode<T: DeserializeOwned>(name: &str, text: Option<&RawValue>) -> Result<T, Error> {
    serde_json::from_str(text.map_or("null", RawValue::get))
        .map_err(|source| Error::Value { what: format!("the kept result of step {name}"), source })
}

/// Checks before a step or a wait that is not kept yet.
fn begin(run: &Run, name: &str) -> Result<(), Error> {
    if run.is_suspended() {
        return Err(Error::Suspended);
    }
    check_running(run)?;
    run.check_change(&format!("step {name}"))
}

/// An ended run, such as one without a lease, must have no further effect: another worker may have the job.
fn check_running(run: &Run) -> Result<(), Error> {
    match run.has_ended() {
        true => Err(Error::LeaseLost { message: "the run has ended".to_owned() }),
        false => Ok(()),
    }
}

/// Keeps the version of the task before a wait that is the first step of the job: the server keeps the end of
/// the wait by itself.
async fn keep_version(run: &Arc<Run>) -> Result<(), Error> {
    let version = run.steps().version_step();
    match version {
        Some(step) => keep(run, step).await.map(drop),
        None => Ok(()),
    }
}
