//! What people and programs do to jobs from outside their runs.

use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::verbs::{Action, JobEvent};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant, Timestamp};

/// Descendants that one recursive call reaches. A family larger than that is terminated in several calls.
const DESCENDANTS_MAX: usize = 100_000;

impl Engine {
    /// The job as it is afterwards; `None`: it is gone.
    pub async fn act(
        &self,
        tenant: &Tenant,
        ids: Vec<JobId>,
        action: Action,
    ) -> Result<Vec<Result<Option<Arc<Job>>, VerbError>>, EngineError> {
        self.inner.open()?;
        self.check_count(ids.len())?;
        let now = self.now();
        let asked = ids.len();
        let action = match action {
            Action::Terminate { recursive: true } => return self.terminate_families(tenant, ids).await,
            other => other,
        };
        self.check_payloads(std::iter::once(action.payload()))?;
        self.check_reports(std::iter::once(action.report_bytes()))?;
        let ask = |id| JobEvent { id, event: self.inner.event_of(action.clone(), now) };
        let asks = ids.into_iter().map(ask).collect();
        self.afterwards(tenant, asks, asked).await
    }

    /// The first `asked` answers; the rest were ours to ask.
    async fn afterwards(
        &self,
        tenant: &Tenant,
        asks: Vec<JobEvent>,
        asked: usize,
    ) -> Result<Vec<Result<Option<Arc<Job>>, VerbError>>, EngineError> {
        let answers = self.apply_each(tenant, asks).await?;
        Ok(answers.into_iter().take(asked).map(|answer| answer.map(|moved| moved.after)).collect())
    }

    /// The jobs themselves first, then all below them, each once.
    async fn terminate_families(
        &self,
        tenant: &Tenant,
        ids: Vec<JobId>,
    ) -> Result<Vec<Result<Option<Arc<Job>>, VerbError>>, EngineError> {
        let asked = ids.len();
        let own = self.get(tenant, ids.clone()).await?;
        let mut seen: FxHashSet<JobId> = ids.iter().copied().collect();
        let mut unvisited: Vec<JobId> = own.iter().flatten().map(|job| job.id).collect();
        let mut all = ids;
        while let Some(parent) = unvisited.pop() {
            for child in self.inner.store.children(parent).await? {
                if all.len() < DESCENDANTS_MAX && seen.insert(child) {
                    all.push(child);
                    unvisited.push(child);
                }
            }
        }
        let asks: Vec<JobEvent> =
            all.into_iter().map(|id| JobEvent { id, event: Event::Terminate }).collect();
        let mut answers = Vec::with_capacity(asked);
        for chunk in asks.chunks(self.inner.options.batch_max.max(1)) {
            let left = asked - answers.len();
            answers.extend(self.afterwards(tenant, chunk.to_vec(), left).await?);
        }
        Ok(answers)
    }
}

impl Inner {
    /// What it is to the job itself.
    pub(crate) fn event_of(&self, action: Action, now: Timestamp) -> Event {
        match action {
            Action::Cancel { running, failed_too } => Event::Cancel { running, failed_too },
            Action::Run { at, force } => Event::Run { at: at.from(now), force },
            Action::Requeue { at, even_running } => Event::Requeue { at: at.from(now), even_running },
            Action::Terminate { .. } => Event::Terminate,
            Action::PutToRest(rest) => Event::PutToRest(rest),
            Action::SetPorts(ports) => Event::SetPorts(ports),
            Action::Update(patch) => Event::Update(Box::new(patch)),
            Action::Delete => Event::Delete,
            Action::Settle { by, how } => self.end_of_run(by, how, now),
        }
    }
}
