//! Import of jobs from another system, in their state there.

use crate::engine::{Engine, Inner};
use crate::error::EngineError;
use crate::verbs::{Import, JobEvent, Pushed, RunAt};
use std::sync::Arc;
use windlass_core::event::{Standing, Stands};
use windlass_core::{Event, Job, JobId, JobState, Scope, Tenant, Timestamp};

/// Start time of a job whose import is not complete: it is never claimable.
const NEVER: Timestamp = Timestamp::MAX;

impl Engine {
    /// Like push, but each job keeps its creation time and state. A job whose alias is in use is not changed,
    /// so an interrupted import can be repeated: it completes the jobs it had begun. Parents must be imported
    /// in an earlier call than their children.
    pub async fn import(&self, tenant: &Tenant, jobs: Vec<Import>) -> Result<Vec<Pushed>, EngineError> {
        let in_flight = self.inner.enter()?;
        self.check_count(jobs.len())?;
        self.check_payloads(jobs.iter().map(|job| Some(&job.push.payload)))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.check_all()?;
        let tenant = tenant.clone();
        self.inner.detached(async move { in_flight.import(&tenant, jobs).await }).await
    }
}

impl Inner {
    async fn import(
        self: &Arc<Self>,
        tenant: &Tenant,
        jobs: Vec<Import>,
    ) -> Result<Vec<Pushed>, EngineError> {
        let now = self.now();
        let mut pushes = Vec::with_capacity(jobs.len());
        let mut rest = Vec::with_capacity(jobs.len());
        for Import { mut push, created_at, standing } in jobs {
            push.run_at = RunAt::At(NEVER);
            pushes.push(push);
            rest.push((created_at, standing));
        }
        let mut batch = self.build_jobs(tenant, pushes, now);
        for (new, (created_at, _)) in batch.iter_mut().zip(&rest) {
            Arc::make_mut(&mut new.spec).created_at = *created_at;
        }
        let pushed = if batch.iter().any(|new| new.spec.family().is_some()) {
            self.insert_with_parents(batch, &Scope::default(), now).await?
        } else {
            self.insert(batch, None, now).await?
        };
        let standings =
            pushed.iter().zip(rest).filter_map(|(pushed, (_, standing))| Some((pushed.id()?, standing)));
        let taken_over = self.take_over(tenant, standings.collect()).await;
        taken_over.map_err(EngineError::with_a_part_written)?;
        Ok(pushed)
    }

    /// Sets the state of each job, including jobs created by an earlier, interrupted call.
    async fn take_over(
        self: &Arc<Self>,
        tenant: &Tenant,
        standings: Vec<(JobId, Standing)>,
    ) -> Result<(), EngineError> {
        let jobs = self.store.load(standings.iter().map(|(id, _)| *id).collect()).await?;
        let (mut asks, mut known) = (Vec::new(), Vec::new());
        for ((id, standing), job) in standings.into_iter().zip(jobs) {
            let Some(job) = job.filter(|job| is_unfinished(job)) else { continue };
            // The end of a child may start its parent, so jobs that have not ended come first.
            asks.push((is_end(standing.stands), JobEvent { id, event: Event::TakeOver(standing) }));
            known.push(job);
        }
        asks.sort_by_key(|(is_end, _)| *is_end);
        let asks = asks.into_iter().map(|(_, ask)| ask).collect();
        self.change(Some(tenant), asks, known).await?;
        Ok(())
    }
}

fn is_unfinished(job: &Job) -> bool {
    job.version == 1 && matches!(job.state(), JobState::Ready { run_at, .. } if *run_at == NEVER)
}

fn is_end(stands: Stands) -> bool {
    matches!(stands, Stands::Completed | Stands::Failed | Stands::Cancelled)
}
