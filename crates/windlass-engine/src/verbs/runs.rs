//! Reports of workers on their runs: end, heartbeat, progress, log lines.

use crate::engine::Engine;
use crate::error::{EngineError, VerbError};
use crate::transaction::Moved;
use crate::verbs::{Extend, Extended, JobEvent, LogEntry, Renew, Report, Settled, payload_of, report_bytes};
use std::sync::Arc;
use windlass_core::{Event, Job, JobId, Tenant};

impl Engine {
    /// Ends runs, with one result per entry. An entry with too large a result or error is refused: its run
    /// continues, and the other entries are processed.
    pub async fn settle(
        &self,
        tenant: &Tenant,
        mut ends: Vec<JobEvent>,
    ) -> Result<Vec<Result<Settled, VerbError>>, EngineError> {
        self.check_payloads(ends.iter().map(|end| payload_of(&end.event)))?;
        let max = self.inner.options.payload_bytes_max;
        if ends.iter().all(|end| report_bytes(&end.event) <= max) {
            return self.settle_all(tenant, ends).await;
        }
        let sizes: Vec<usize> = ends.iter().map(|end| report_bytes(&end.event)).collect();
        ends.retain(|end| report_bytes(&end.event) <= max);
        let mut settled = match ends.is_empty() {
            true => Vec::new(),
            false => self.settle_all(tenant, ends).await?,
        }
        .into_iter();
        let answer = |bytes: usize| match bytes > max {
            true => Err(VerbError::ReportTooLarge { bytes, max }),
            false => settled.next().unwrap_or(Err(VerbError::NotFound)),
        };
        Ok(sizes.into_iter().map(answer).collect())
    }

    async fn settle_all(
        &self,
        tenant: &Tenant,
        ends: Vec<JobEvent>,
    ) -> Result<Vec<Result<Settled, VerbError>>, EngineError> {
        let answers = self.apply_each(tenant, ends).await?;
        let now = self.now();
        let settled = |moved: Moved| Settled {
            state: moved.after.as_ref().map(|job| job.state_word(now)),
            run_at: moved.after.as_ref().and_then(|job| job.state().claimable_at()),
        };
        Ok(answers.into_iter().map(|answer| answer.map(settled)).collect())
    }

    async fn apply_to_runs(
        &self,
        tenant: &Tenant,
        events: Vec<JobEvent>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let answers = self.apply_each(tenant, events).await?;
        Ok(answers.into_iter().map(|answer| answer.map(extended)).collect())
    }

    /// Extends leases (heartbeat).
    pub async fn extend(
        &self,
        tenant: &Tenant,
        entries: Vec<Extend>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: Extend| {
            let event = Event::Extend { by: entry.by, lease_ms: entry.lease_ms };
            JobEvent { id: entry.id, event }
        };
        self.apply_to_runs(tenant, entries.into_iter().map(ask).collect()).await
    }

    /// Restarts leases from now, for the same or another worker.
    pub async fn renew(
        &self,
        tenant: &Tenant,
        entries: Vec<Renew>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: Renew| {
            let Renew { id, by, lease_ms, worker } = entry;
            JobEvent { id, event: Event::Renew { by, lease_ms, worker } }
        };
        self.apply_to_runs(tenant, entries.into_iter().map(ask).collect()).await
    }

    /// Takes the result of a settled job whose policy delivers it once, and returns the job as it was. Of
    /// concurrent callers one gets the result. If the result may be read repeatedly, or has expired, returns
    /// the job as it is now. `None`: there is no such job.
    pub async fn take_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Arc<Job>>, EngineError> {
        let Some(job) = self.get(tenant, vec![id]).await?.pop().flatten() else { return Ok(None) };
        let is_over = job.result_expires_at().is_some_and(|at| at <= self.now());
        if job.result().is_none() || !(job.spec.policy.result.once || is_over) {
            return Ok(Some(job));
        }
        let event = if is_over { Event::Expire } else { Event::TakeResult };
        match self.apply_each(tenant, vec![JobEvent { id, event }]).await?.pop() {
            Some(Ok(moved)) if is_over => Ok(moved.after),
            Some(Ok(moved)) => Ok(Some(moved.before)),
            // A concurrent caller was first.
            Some(Err(_)) | None => Ok(self.get(tenant, vec![id]).await?.pop().flatten()),
        }
    }

    /// Records the progress of runs. The result says whether a cancellation was requested.
    pub async fn report(
        &self,
        tenant: &Tenant,
        entries: Vec<Report>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        self.check_payloads(entries.iter().map(|entry| entry.payload.as_ref()))?;
        let ask = |entry: Report| {
            let Report { id, by, percent, note, payload } = entry;
            JobEvent { id, event: Event::Report { by, percent: percent.map(|p| p.min(100)), note, payload } }
        };
        self.apply_to_runs(tenant, entries.into_iter().map(ask).collect()).await
    }

    /// Appends log lines to jobs. Each call rewrites the whole stored log of a job, so callers should send
    /// many lines at once. The result says whether a cancellation was requested.
    pub async fn log(
        &self,
        tenant: &Tenant,
        entries: Vec<LogEntry>,
    ) -> Result<Vec<Result<Extended, VerbError>>, EngineError> {
        let ask = |entry: LogEntry| {
            let LogEntry { id, by, source, lines } = entry;
            JobEvent { id, event: Event::Log { by, source, lines } }
        };
        self.apply_to_runs(tenant, entries.into_iter().map(ask).collect()).await
    }
}

fn extended(moved: Moved) -> Extended {
    let lease = moved.after.as_ref().and_then(|job| job.state().lease());
    Extended {
        until: lease.and_then(|lease| lease.until),
        cancel_asked: lease.is_some_and(|lease| lease.cancel_asked),
    }
}
