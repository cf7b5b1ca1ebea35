//! Deletion of jobs on request, and its undoing.

use crate::engine::{Engine, Inner};
use crate::error::{EngineError, VerbError};
use crate::events::feed::FeedKind;
use crate::transaction::Moved;
use crate::verbs::JobEvent;
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Refused, Tenant, Timestamp};
use windlass_store::KeyRule;

impl Engine {
    /// Deletes jobs; returns each as it was, or `None` if its relatives changed with it, so that it cannot come
    /// back.
    pub async fn delete(
        &self,
        tenant: &Tenant,
        ids: &[JobId],
    ) -> Result<Vec<Result<Option<Arc<Job>>, VerbError>>, EngineError> {
        let events = ids.iter().map(|id| JobEvent { id: *id, event: Event::Delete }).collect();
        let answers = self.apply_each(tenant, events).await?;
        let alone = |moved: Moved| moved.alone.then_some(moved.before);
        Ok(answers.into_iter().map(|answer| answer.map(alone)).collect())
    }

    /// Brings back a deleted job with its id, as it was deleted. It comes back without an idempotency key that
    /// it held, which another job may hold by now, and not at all if its alias is taken or the quota is used up.
    pub async fn undelete(
        &self,
        tenant: &Tenant,
        deleted: &Job,
    ) -> Result<Result<Arc<Job>, VerbError>, EngineError> {
        let in_flight = self.inner.enter()?;
        if !self.reaches_job(tenant, deleted) {
            return Ok(Err(VerbError::NotFound));
        }
        if let Some(holder) = in_flight.alias_holder(deleted).await? {
            return Ok(Err(Refused::KeyTaken(holder).into()));
        }
        let job = Arc::new(come_back(deleted, self.now()));
        let (jobs, bytes) = (u64::from(!job.state().is_settled()), job.spec.payload.bytes.len() as u64);
        let admitted = self.reserve(tenant, jobs, bytes).await?;
        let work = async move {
            let put = in_flight.put_back(Arc::clone(&job)).await;
            if put.as_ref().err().is_none_or(|error| error.code() == "outcome_unknown") {
                admitted.keep();
            }
            match put {
                Ok(()) => Ok(Ok(job)),
                Err(error) if error.code() == "unsupported" => match in_flight.alias_holder(&job).await? {
                    // Another job took it meanwhile.
                    Some(holder) => Ok(Err(Refused::KeyTaken(holder).into())),
                    None => Err(error),
                },
                Err(error) => Err(error),
            }
        };
        self.inner.detached(work).await
    }
}

impl Inner {
    /// Job that has the alias of this one.
    async fn alias_holder(&self, job: &Job) -> Result<Option<JobId>, EngineError> {
        match job.spec.alias() {
            Some(alias) => Ok(self.store.find_alias(&job.spec.tenant, alias).await?),
            None => Ok(None),
        }
    }

    async fn put_back(self: &Arc<Self>, job: Arc<Job>) -> Result<(), EngineError> {
        let (id, now) = (job.id, self.now());
        self.store.restore(vec![Arc::clone(&job)], id, KeyRule::Ask).await?;
        for at in job.state().claimable_at().into_iter().chain(job.deadline()) {
            self.timers.plan(at);
        }
        self.feed.publish(FeedKind::Updated, &job, job.state_word(now), now);
        // The limits may have changed since it was deleted.
        self.relimit_new(vec![id]).await.map_err(EngineError::with_a_part_written)
    }
}

/// Next version of a deleted job.
fn come_back(deleted: &Job, now: Timestamp) -> Job {
    let mut job = deleted.clone();
    job.version += 1;
    job.progress.updated_at = now;
    if job.holds_unique_key()
        && let Some(extras) = &mut Arc::make_mut(&mut job.spec).extras
    {
        extras.unique = None;
    }
    job
}
