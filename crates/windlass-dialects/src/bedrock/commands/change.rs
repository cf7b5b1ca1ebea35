//! QueryJob, UpdateJob, CancelJob, DeleteJob and RequeueJobs: operations on jobs from outside a run.

use super::create::repeat_of;
use super::settle::rename;
use super::{Answered, Commands};
use crate::bedrock::errors::{self, StatusLine, conflict_status};
use crate::bedrock::json::{self, Writer, guessed};
use crate::bedrock::params::{self, Params, job_id};
use crate::bedrock::row::{self, Row, RowState};
use crate::bedrock::times;
use crate::bedrock::wire::{Reply, Request};
use windlass_core::event::{CancelRunning, Patch};
use windlass_core::repeat::{Moments, Repeat};
use windlass_core::{Event, Job, JobId, Name, Payload, Timestamp};
use windlass_engine::{Stop, VerbError};

/// Largest data of UpdateJob.
const UPDATE_BYTES_MAX: usize = 1 << 20;
/// Jobs in one RequeueJobs.
const REQUEUE_MAX: usize = 10_000;

impl Commands<'_> {
    pub(super) async fn query_job(&self, request: &Request) -> Answered {
        let job = self.load(job_id(request)?).await?;
        let row = Row::of(&job);
        let mut out = Writer::new();
        out.put("created", &guessed(&row.created))
            .put("data", if self.sees_payloads() { &row.data } else { row::HIDDEN_DATA })
            .put("jobID", &row.job_id.to_string())
            .put("lastRun", &guessed(row.last_run.as_deref().unwrap_or_default()))
            .put("name", &self.name_text(row.name))
            .put("nextRun", &guessed(&row.next_run))
            .put("priority", &row.priority.to_string())
            .put("repeat", &guessed(row.repeat))
            .put("retryAfter", &guessed(row.retry_after))
            .put("state", &guessed(row.state.as_str()));
        Ok(Reply::ok().with_body(out.finish()).into())
    }

    pub(super) async fn update_job(&self, request: &Request) -> Answered {
        let id = job_id(request);
        // The protocol reports an id that no job can have only after all other checks.
        if let Err(status) = &id
            && *status != errors::NO_SUCH_JOB
        {
            return Err(status.clone());
        }
        let data = request.given("data").ok_or(errors::MISSING_DATA)?;
        if data.len() > UPDATE_BYTES_MAX {
            return Err(errors::MALFORMED_DATA);
        }
        let data = json::minified(params::checked_data(data)?);
        let params = Params::Headers(request);
        let repeat = repeat_of(&params, self.shared.profile)?;
        let priority = params.priority("jobpriority")?;
        let id = id?;
        self.change(id, |job, now| {
            let mut patch = Patch {
                payload: Some(Payload::json(&row::data_for(&data, job))),
                priority: priority.map(row::engine_priority),
                // The new data carries the counter of claims.
                attempts: job.spec.policy.lease_span.is_some().then_some(0),
                ..Patch::default()
            };
            if let Some(repeat) = &repeat {
                patch.run_at = next_by(repeat, job, now)?;
                patch.repeat = Some(Some(repeat.clone()));
                patch.facts = vec![(row::NEXT_RUN.into(), None)];
            }
            if params.is_true("shouldclearrepeat") {
                patch.repeat = Some(None);
            }
            if let Some(text) = request.given("nextrun") {
                let at = times::moment_of(text);
                patch.run_at = Some(at);
                patch.facts = vec![(row::NEXT_RUN.into(), row::next_run_fact(text, at, now))];
            }
            Ok(vec![Event::Update(Box::new(patch))])
        })
        .await
    }

    pub(super) async fn cancel_job(&self, request: &Request) -> Answered {
        if self.shared.profile.ignores_cancel_with_tail() && !request.tail().is_empty() {
            return Ok(Reply::ok().into());
        }
        let job = self.load(job_id(request)?).await?;
        if !self.engine.children(self.tenant, job.id).await?.is_empty() {
            return Err(errors::CANCEL_WITH_CHILDREN);
        }
        if job.spec.family().is_none() {
            return Err(errors::CANCEL_WITHOUT_PARENT);
        }
        let running = match RowState::of(&job) {
            RowState::Running | RowState::Finished | RowState::Paused => return Ok(Reply::ok().into()),
            RowState::Runqueued if !self.shared.profile.cancels_runqueued() => return Ok(Reply::ok().into()),
            RowState::Runqueued => CancelRunning::Now,
            RowState::Queued | RowState::Failed | RowState::Cancelled => CancelRunning::Refuse,
        };
        let event = Event::Cancel { running, failed_too: true };
        match self.engine.apply(self.tenant, vec![job.id], event).await?.pop() {
            Some(Err(VerbError::NotFound)) => Err(errors::NO_SUCH_JOB),
            // Already cancelled, or claimed in the meantime.
            _ => Ok(Reply::ok().into()),
        }
    }

    pub(super) async fn delete_job(&self, request: &Request) -> Answered {
        self.change(job_id(request)?, |job, now| match RowState::of(job) {
            RowState::Running => Err(errors::DELETE_RUNNING),
            RowState::Paused => Err(errors::DELETE_PAUSED),
            // The lease is revoked first.
            RowState::Runqueued => Ok(vec![Event::Requeue { at: now, even_running: true }, Event::Delete]),
            RowState::Queued | RowState::Finished | RowState::Failed | RowState::Cancelled => {
                Ok(vec![Event::Delete])
            }
        })
        .await
    }

    /// Always succeeds: unknown ids and texts that are not numbers are skipped.
    pub(super) async fn requeue_jobs(&self, request: &Request) -> Answered {
        let ids = request.get("jobids").unwrap_or_default().split(',');
        let ids = ids.filter_map(|text| JobId::new(text.trim().parse().ok()?)).take(REQUEUE_MAX);
        let name = request.given("name").map(Name::new).transpose().map_err(|_| errors::MALFORMED_NAME)?;
        let takes_back = Params::Headers(request).is_true("decrementfailures");
        for id in ids {
            let requeued = self
                .change(id, |job, _| {
                    let less = if takes_back { row::data_with_one_less(job) } else { None };
                    let attempts = if less.is_some() { 0 } else { row::counted_hand_outs(job) };
                    // `nextRun` becomes the text of `created`, which has no milliseconds.
                    let created = times::seconds(job.spec.created_at);
                    let at = times::moment_of(&created);
                    let mut patch = Patch {
                        payload: less.as_deref().map(Payload::json),
                        attempts: Some(attempts),
                        facts: vec![(row::NEXT_RUN.into(), Some(created.into()))],
                        ..Patch::default()
                    };
                    rename(&mut patch, job, name.clone());
                    Ok(vec![Event::Requeue { at, even_running: true }, Event::Update(Box::new(patch))])
                })
                .await;
            match requeued {
                Err(status) if status == errors::NO_SUCH_JOB || status == errors::UNIQUE_VIOLATION => {}
                other => {
                    other?;
                }
            }
        }
        Ok(Reply::ok().into())
    }

    /// Applies the events that `decide` returns for the current job, all or none.
    async fn change(
        &self,
        id: JobId,
        decide: impl Fn(&Job, Timestamp) -> Result<Vec<Event>, StatusLine> + Sync,
    ) -> Answered {
        let changed = self.engine.transact(self.tenant, vec![id], |tx| {
            let job = tx.job(id)?.ok_or(errors::NO_SUCH_JOB)?;
            for event in decide(&job, tx.now())? {
                tx.apply(id, event)?.map_err(|error| conflict_status(error, errors::UNIQUE_VIOLATION))?;
            }
            Ok::<_, Stop<StatusLine>>(())
        });
        changed.await?;
        Ok(Reply::ok().into())
    }
}

/// Time of the next run of a job under a new repeat rule.
fn next_by(repeat: &Repeat, job: &Job, now: Timestamp) -> Result<Option<Timestamp>, StatusLine> {
    let counts_from_start = repeat.text().to_ascii_uppercase().starts_with("STARTED");
    if counts_from_start && job.progress.started_at.is_none() {
        return Err(errors::UNIQUE_VIOLATION);
    }
    let moments = Moments { scheduled: job.progress.due_at, started: job.progress.started_at, finished: now };
    Ok(repeat.next(&moments))
}
