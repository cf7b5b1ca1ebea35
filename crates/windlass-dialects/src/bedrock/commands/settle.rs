//! FinishJob, RetryJob and FailJob: the end of a run.

use super::{Answered, Commands};
use crate::bedrock::errors::{self, StatusLine, conflict_status};
use crate::bedrock::params::{self, Params, job_id};
use crate::bedrock::row::{self, RowState};
use crate::bedrock::wire::{Reply, Request};
use crate::bedrock::{json, times};
use std::sync::Arc;
use windlass_core::event::{Failure, Finish, Patch, Restart, RetryWish};
use windlass_core::{Event, Extras, Holder, Job, Name, Outcome as Ending, Payload, Timestamp};
use windlass_engine::JobEvent;

/// Longest delay of a retry, in seconds.
const DELAY_S_MAX: i64 = 99_999_999;

impl Commands<'_> {
    pub(super) async fn finish_job(&self, request: &Request) -> Answered {
        let job = self.job_to_end(request).await?;
        let data = checked_data(request, &job)?;
        let ends = data.as_deref().is_some_and(|data| json::get(data, "delete") == Some("true"));
        let by = reporter(&job);
        let end = Finish {
            by,
            outcome: Ending::default(),
            payload: payload_without_count(data, &job),
            ignore_repeat: ends || Params::Headers(request).is_true("ignorerepeat"),
        };
        self.end(&job, Event::Finish(end)).await
    }

    pub(super) async fn retry_job(&self, request: &Request) -> Answered {
        let job = self.job_to_end(request).await?;
        let data = checked_data(request, &job)?;
        let params = Params::Headers(request);
        let priority = params.priority("jobpriority")?;
        let delay_s = delay(request)?;
        let heed_repeat = !params.is_true("ignorerepeat");
        let now = self.engine.now();
        let next_run = request.given("nextrun");
        let run_at = match next_run {
            Some(text) => times::moment_of(text),
            // Computed times have whole seconds.
            None => Timestamp::from_millis((now.as_millis().div_euclid(1_000) + delay_s) * 1_000),
        };
        let name = request.given("name").map(Name::new).transpose().map_err(|_| errors::MALFORMED_NAME)?;
        let fact = next_run.and_then(|text| row::next_run_fact(text, run_at, now));
        let mut patch = Patch {
            payload: payload_without_count(data, &job),
            priority: priority.map(row::engine_priority),
            facts: vec![(row::NEXT_RUN.into(), fact)],
            ..Patch::default()
        };
        rename(&mut patch, &job, name);
        let end = Restart { by: reporter(&job), run_at, heed_repeat, patch };
        self.end(&job, Event::Restart(Box::new(end))).await
    }

    pub(super) async fn fail_job(&self, request: &Request) -> Answered {
        let job = self.load(job_id(request)?).await?;
        if !RowState::of(&job).is_out() {
            return Err(errors::FAIL_NOT_OUT);
        }
        let data = request.given("data").map(params::checked_data).transpose()?;
        let outcome = Ending { message: Some("the worker called FailJob".to_owned()), ..Ending::default() };
        let payload = data.map(|data| Payload::json(&row::data_for(data, &job)));
        let (by, retry) = (Holder::Anyone, RetryWish::Never);
        let event = Event::Fail(Failure { by, outcome, retry, payload, chance: 0.0 });
        let settle = JobEvent { id: job.id, event };
        match self.engine.settle(self.tenant, vec![settle]).await?.pop() {
            Some(Err(error)) => Err(conflict_status(error, errors::FAIL_NOT_OUT)),
            _ => Ok(Reply::ok().into()),
        }
    }

    /// Loads a job and checks that its run may be reported on.
    async fn job_to_end(&self, request: &Request) -> Result<Arc<Job>, StatusLine> {
        let id = job_id(request)?;
        let job = match self.engine.running(self.tenant, id) {
            Some(job) => job,
            None => self.load(id).await?,
        };
        if !RowState::of(&job).is_out() && !row::is_mocked(&job) {
            return Err(errors::NOT_OUT);
        }
        if let Some(family) = job.spec.family().filter(|family| family.parent_waits())
            && let Some(parent) = self.find(family.parent).await?
        {
            // A settled parent will never be paused; its child may end nevertheless.
            let state = RowState::of(&parent);
            if state != RowState::Paused && !parent.state().is_settled() {
                return Err(errors::PARENT_NOT_PAUSED);
            }
        }
        Ok(job)
    }

    async fn end(&self, job: &Job, event: Event) -> Answered {
        let settle = JobEvent { id: job.id, event };
        match self.engine.settle(self.tenant, vec![settle]).await?.pop() {
            Some(Err(error)) => Err(conflict_status(error, errors::NOT_OUT)),
            _ => Ok(Reply::ok().into()),
        }
    }
}

/// Authority of the report: mocked jobs may be reported on without having been claimed.
fn reporter(job: &Job) -> Holder {
    if row::is_mocked(job) { Holder::Overseer } else { Holder::Anyone }
}

/// Checks the data for the next run and minifies it. The mock marker must match the job.
fn checked_data(request: &Request, job: &Job) -> Result<Option<String>, StatusLine> {
    let Some(data) = request.given("data") else { return Ok(None) };
    let data = json::minified(params::checked_data(data)?);
    // Any value counts as the marker: an ordinary job has no such member.
    let has_mark = json::get(&data, row::MOCK).is_some();
    if has_mark == row::is_mocked(job) { Ok(Some(data)) } else { Err(errors::MOCK_MISMATCH) }
}

/// Payload without the counter of claims, which restarts with every end of a run.
fn payload_without_count(data: Option<String>, job: &Job) -> Option<Payload> {
    use row::COUNT;
    match data {
        Some(data) if data.contains(COUNT) => Some(Payload::json(&json::without(&data, COUNT))),
        Some(data) => Some(Payload::json(&data)),
        None => {
            let stored = row::payload_text(&job.spec.payload);
            let has_count = stored.contains(COUNT) && json::is_object(&stored);
            has_count.then(|| Payload::json(&json::without(&stored, COUNT)))
        }
    }
}

fn delay(request: &Request) -> Result<i64, StatusLine> {
    let delay_s = params::leading_number(request.given("delay").unwrap_or_default());
    match delay_s {
        ..0 => Err(errors::NEGATIVE_DELAY),
        0..=DELAY_S_MAX => Ok(delay_s),
        _ => Err(errors::MALFORMED_DELAY),
    }
}

/// Renames the job in the patch. Under another name it gives up its unique key.
pub(super) fn rename(patch: &mut Patch, job: &Job, name: Option<Name>) {
    let Some(name) = name.filter(|name| *name != job.spec.name) else { return };
    patch.name = Some(name);
    if let Some(extras) = job.spec.extras.as_ref().filter(|extras| extras.unique.is_some()) {
        patch.extras = Some(Box::new(Extras { unique: None, ..Extras::clone(extras) }));
    }
}
