//! Changes made by UPDATE and DELETE, as engine events. SQL can therefore do nothing that the commands
//! cannot.

use super::Change;
use super::sandbox::COLUMNS;
use crate::bedrock::row::{self, Row, RowState};
use crate::bedrock::{Profile, json, times};
use rusqlite::types::Value;
use windlass_core::event::{CancelRunning, Finish, Patch, RetryWish};
use windlass_core::lease::{LeasePolicy, OnLapse};
use windlass_core::repeat::modifiers::Schedule;
use windlass_core::repeat::{Repeat, Span};
use windlass_core::{Event, Holder, Job, JobState, KeepFor, Name, Outcome, Payload, Timestamp};
use windlass_engine::JobEvent;

/// Valid priorities of this dialect.
const PRIORITIES: [i64; 6] = [0, 250, 500, 750, 850, 1000];

/// Returns the events in an order in which they can be applied: children, which have larger ids, before their
/// parents.
pub(super) fn events(changes: &[Change], profile: Profile, now: Timestamp) -> Result<Vec<JobEvent>, String> {
    let mut all = Vec::with_capacity(changes.len());
    for Change { job, touched } in changes.iter().rev() {
        let events = match &touched.set {
            None => deletion(job),
            Some(values) => Update::of(job, values, profile, now)
                .and_then(|update| update.events(job))
                .map_err(|why| format!("job {}: {why}", job.id))?,
        };
        all.extend(events.into_iter().map(|event| JobEvent { id: job.id, event }));
    }
    Ok(all)
}

/// Deletes a job. A running job is cancelled first; the later report of its worker finds no job.
fn deletion(job: &Job) -> Vec<Event> {
    let cancel = || Event::Cancel { running: CancelRunning::Now, failed_too: true };
    match job.state() {
        JobState::Running(_) if job.spec.policy.keep.cancelled == KeepFor::Drop => vec![cancel()],
        JobState::Running(_) => vec![cancel(), Event::Delete],
        _ => vec![Event::Delete],
    }
}

/// Difference between a job and its changed row.
#[derive(Default)]
struct Update {
    patch: Patch,
    is_patched: bool,
    state: Option<RowState>,
    next_run: Option<Timestamp>,
}

impl Update {
    fn of(job: &Job, values: &[(usize, Value)], profile: Profile, now: Timestamp) -> Result<Update, String> {
        let before = super::load::cells(&Row::of(job));
        let mut update = Update::default();
        for (place, value) in values.iter().filter(|(place, value)| before[*place] != *value) {
            update.set(job, COLUMNS[*place], value, profile, now)?;
        }
        update.check_combination(job, profile)?;
        Ok(update)
    }

    fn set(
        &mut self,
        job: &Job,
        column: &str,
        value: &Value,
        profile: Profile,
        now: Timestamp,
    ) -> Result<(), String> {
        let text = || text_of(column, value);
        match column {
            "state" => {
                self.state = Some(state_of(text()?)?);
                return Ok(());
            }
            "name" => self.patch.name = Some(Name::new(text()?).map_err(|e| e.to_string())?),
            "data" => {
                self.patch.payload = Some(data_of(text()?)?);
                // The new data carries the counter of claims.
                self.patch.attempts = job.spec.policy.lease_span.is_some().then_some(0);
            }
            "priority" => self.patch.priority = Some(priority_of(value)?),
            "repeat" => self.patch.repeat = Some(repeat_of(text()?, profile)?),
            "retryAfter" => {
                let span = match text()? {
                    "" => None,
                    text => Some(Span::parse(text).map_err(|e| format!("retryAfter: {e}"))?),
                };
                // The span sets the length of the lease, and late reports are accepted.
                let lease = LeasePolicy {
                    length_ms: None,
                    on_lapse: OnLapse::AtLeaseEnd,
                    accept_late: true,
                    ..job.spec.policy.lease
                };
                self.patch.lease = Some((lease, span));
            }
            "nextRun" => {
                let text = text()?;
                let at = times::moment_of(text);
                self.next_run = Some(at);
                self.patch.run_at = Some(at);
                self.patch.facts.push((row::NEXT_RUN.into(), row::next_run_fact(text, at, now)));
            }
            other => return Err(format!("{other} cannot be changed")),
        }
        self.is_patched = true;
        Ok(())
    }

    fn check_combination(&self, job: &Job, profile: Profile) -> Result<(), String> {
        let repeats = self.patch.repeat.as_ref().map_or(job.spec.policy.repeat.is_some(), Option::is_some);
        let retries = self
            .patch
            .lease
            .as_ref()
            .map_or(job.spec.policy.lease_span.is_some(), |(_, span)| span.is_some());
        let is_new = self.patch.repeat.is_some() || self.patch.lease.is_some();
        match is_new && repeats && retries && !profile.combines_retry_after() {
            true => Err("recurring auto-retrying jobs are not supported".to_owned()),
            false => Ok(()),
        }
    }

    fn events(self, job: &Job) -> Result<Vec<Event>, String> {
        let has_lease_end = job.state().lease().is_some_and(|lease| lease.until.is_some());
        if self.next_run.is_some() && has_lease_end && self.state.is_none() {
            return Err(
                "nextRun of a RUNQUEUED job is the end of its worker's lease; to run the job at another \
             time, also set state = 'QUEUED'"
                    .to_owned(),
            );
        }
        let mut events = Vec::new();
        if self.is_patched {
            events.push(Event::Update(Box::new(self.patch)));
        }
        let (by, outcome) = (Holder::Overseer, Outcome::default());
        match self.state {
            None => {}
            Some(RowState::Queued) => {
                let at = self.next_run.unwrap_or_else(|| times::moment_of(&Row::of(job).next_run));
                events.push(Event::Requeue { at, even_running: true });
            }
            Some(RowState::Failed) => {
                events.push(Event::fail(by, outcome, RetryWish::Never));
            }
            Some(RowState::Finished) => {
                events.push(Event::Finish(Finish { by, outcome, payload: None, ignore_repeat: true }));
            }
            Some(RowState::Cancelled) => {
                events.push(Event::Cancel { running: CancelRunning::Now, failed_too: true });
            }
            Some(state @ (RowState::Running | RowState::Runqueued | RowState::Paused)) => {
                return Err(format!(
                    "state cannot be set to {}; it can be set to QUEUED, FAILED, FINISHED and CANCELLED",
                    state.as_str()
                ));
            }
        }
        Ok(events)
    }
}

fn text_of<'a>(column: &str, value: &'a Value) -> Result<&'a str, String> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(format!("{column} must be text")),
    }
}

fn state_of(word: &str) -> Result<RowState, String> {
    let all = [
        RowState::Queued,
        RowState::Running,
        RowState::Runqueued,
        RowState::Paused,
        RowState::Finished,
        RowState::Failed,
        RowState::Cancelled,
    ];
    all.into_iter().find(|state| state.as_str() == word).ok_or_else(|| format!("unknown state {word}"))
}

fn data_of(text: &str) -> Result<Payload, String> {
    match json::is_object(text) {
        true => Ok(Payload::json(text)),
        false => Err("data must be a JSON object".to_owned()),
    }
}

fn priority_of(value: &Value) -> Result<i32, String> {
    match value {
        Value::Integer(priority) if PRIORITIES.contains(priority) => Ok(row::engine_priority(*priority)),
        _ => Err("priority must be 0, 250, 500, 750, 850 or 1000".to_owned()),
    }
}

fn repeat_of(text: &str, profile: Profile) -> Result<Option<Repeat>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let style = profile.repeat_style();
    Schedule::parse(text, style).map_err(|e| format!("repeat: {e}"))?;
    Repeat::parse_styled(&profile.repeat_text(text), style).map(Some).map_err(|e| format!("repeat: {e}"))
}
