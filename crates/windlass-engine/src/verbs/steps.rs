//! Durable steps of runs, and signals to jobs.

use crate::engine::Engine;
use crate::error::{EngineError, VerbError};
use crate::transaction::Moved;
use crate::verbs::JobEvent;
use std::sync::Arc;
use windlass_core::steps::{NewStep, StepRecord};
use windlass_core::{Event, Holder, JobId, Payload, StateName, Tenant};

/// For each step sent, in order: the step that was kept before under its name; `None`: it is kept now.
pub type KeptBefore = Vec<Option<Arc<StepRecord>>>;

impl Engine {
    /// Keeps the results of steps of a run, all or none. A step whose name is kept already does not change.
    pub async fn keep_steps(
        &self,
        tenant: &Tenant,
        id: JobId,
        by: Holder,
        steps: Vec<NewStep>,
    ) -> Result<Result<KeptBefore, VerbError>, EngineError> {
        self.check_payloads(steps.iter().map(|step| step.result.as_ref()))?;
        let names: Vec<Arc<str>> = steps.iter().map(|step| step.name.clone()).collect();
        let answer = self.apply_to_one(tenant, id, Event::KeepSteps { by, steps }).await?;
        Ok(answer.map(|moved| {
            let before = moved.before.steps().map(|steps| steps.by_name()).unwrap_or_default();
            names.iter().map(|name| before.get(&**name).map(|step| Arc::clone(step))).collect()
        }))
    }

    /// Sends a signal to a job. True: the job was waiting for it.
    pub async fn signal(
        &self,
        tenant: &Tenant,
        id: JobId,
        name: Arc<str>,
        payload: Payload,
    ) -> Result<Result<bool, VerbError>, EngineError> {
        let answer = self.apply_to_one(tenant, id, Event::Signal { name, payload }).await?;
        let is_ready = |moved: &Moved| {
            moved.after.as_ref().is_some_and(|job| job.state().name() == StateName::Ready)
                && moved.before.state().name() == StateName::Suspended
        };
        Ok(answer.map(|moved| is_ready(&moved)))
    }

    async fn apply_to_one(
        &self,
        tenant: &Tenant,
        id: JobId,
        event: Event,
    ) -> Result<Result<Moved, VerbError>, EngineError> {
        let mut answers = self.apply_each(tenant, vec![JobEvent { id, event }]).await?;
        Ok(answers.pop().unwrap_or(Err(VerbError::NotFound)))
    }
}
