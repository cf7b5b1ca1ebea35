//! Actions on jobs from outside their runs.

use crate::engine::Engine;
use crate::error::{EngineError, VerbError};
use crate::verbs::{JobEvent, check_sizes};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant};

/// Most descendants of one recursive call. A larger family needs several calls.
const DESCENDANTS_MAX: usize = 100_000;

type Afterwards = Vec<Result<Option<Arc<Job>>, VerbError>>;

impl Engine {
    /// Applies the same event to each job. Returns the jobs afterwards; `None`: deleted.
    pub async fn apply(
        &self,
        tenant: &Tenant,
        ids: Vec<JobId>,
        event: Event,
    ) -> Result<Afterwards, EngineError> {
        check_sizes(&event, self.inner.options.payload_bytes_max)?;
        let events = ids.into_iter().map(|id| JobEvent { id, event: event.clone() }).collect();
        self.afterwards(tenant, events).await
    }

    /// Applies the same events to each job, one after the other in one transaction: all of them, or none if one is
    /// refused.
    pub async fn apply_in_turn(
        &self,
        tenant: &Tenant,
        ids: &[JobId],
        events: &[Event],
    ) -> Result<Vec<Result<(), VerbError>>, EngineError> {
        for event in events {
            check_sizes(event, self.inner.options.payload_bytes_max)?;
        }
        let each = |id: &JobId| {
            events.iter().map(|event| JobEvent { id: *id, event: event.clone() }).collect::<Vec<_>>()
        };
        let together = events.len().max(1);
        let answers = self.apply_blocks(tenant, ids.iter().flat_map(each).collect(), together).await?;
        let mut answers = answers.into_iter().map(|answer| answer.map(drop));
        // Takes the answers to all events of a job, also after a failure.
        let of_one = |_: &JobId| {
            let all: Vec<_> = answers.by_ref().take(events.len()).collect();
            all.into_iter().collect()
        };
        Ok(ids.iter().map(of_one).collect())
    }

    async fn afterwards(&self, tenant: &Tenant, events: Vec<JobEvent>) -> Result<Afterwards, EngineError> {
        let answers = self.apply_each(tenant, events).await?;
        Ok(answers.into_iter().map(|answer| answer.map(|moved| moved.after)).collect())
    }

    /// Terminates the jobs first, then all their descendants, each once. Returns one result per requested
    /// job.
    pub async fn terminate_families(
        &self,
        tenant: &Tenant,
        ids: Vec<JobId>,
    ) -> Result<Afterwards, EngineError> {
        self.check_count(ids.len())?;
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
        let events: Vec<JobEvent> =
            all.into_iter().map(|id| JobEvent { id, event: Event::Terminate }).collect();
        let mut answers = Vec::with_capacity(asked);
        for chunk in events.chunks(self.inner.options.batch_max.max(1)) {
            answers.extend(self.afterwards(tenant, chunk.to_vec()).await?);
        }
        answers.truncate(asked);
        Ok(answers)
    }
}
