//! Jobs in memory, with a clock that only the test moves.

use super::TestJob;
use super::entry::{Entry, State};
use crate::app::Windlass;
use crate::backend::Backend;
use crate::error::Error;
use crate::hooks;
use crate::outcome::{RetryWish, Settlement};
use crate::run::{self, Run, lock, now_ms};
use crate::wire::{JobResult, KeptStep, NewJob, NewStep, PushAnswer, StepAnswer, ms};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Runs of one call: a job that pushes itself must end sometime.
const RUNS_MAX: usize = 100_000;
/// Time that the handler of a cancelled job has.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct TestStore {
    app: Windlass,
    state: Mutex<Jobs>,
}

struct Jobs {
    now: u64,
    is_inline: bool,
    entries: BTreeMap<u64, Entry>,
    /// Jobs by idempotency key.
    keys: HashMap<String, u64>,
}

impl TestStore {
    pub(crate) fn new(app: &Windlass) -> Arc<TestStore> {
        let jobs = Jobs { now: now_ms(), is_inline: false, entries: BTreeMap::new(), keys: HashMap::new() };
        Arc::new(TestStore { app: app.clone(), state: Mutex::new(jobs) })
    }

    pub(super) fn set_inline(&self) {
        lock(&self.state).is_inline = true;
    }

    pub(super) fn now(&self) -> u64 {
        lock(&self.state).now
    }

    pub(super) fn views(&self) -> Vec<TestJob> {
        let jobs = lock(&self.state);
        jobs.entries.values().map(|entry| entry.view(jobs.now)).collect()
    }

    pub(crate) async fn push(self: Arc<Self>, jobs: &[NewJob]) -> Result<PushAnswer, Error> {
        let (answer, is_inline) = {
            let mut state = lock(&self.state);
            (state.push(jobs), state.is_inline)
        };
        if is_inline {
            self.run_due().await;
        }
        Ok(answer)
    }

    pub(crate) async fn result(self: Arc<Self>, id: u64, wait: Duration) -> Result<JobResult, Error> {
        if !wait.is_zero() {
            Arc::clone(&self).run_due().await;
        }
        let jobs = lock(&self.state);
        let outcome = jobs.entries.get(&id).ok_or_else(unknown)?.outcome(jobs.now);
        if !wait.is_zero() && !outcome.is_settled() {
            return Err(Error::Setting(format!(
                "job {id} is {} and would be waited for forever; advance the time, or send its signal",
                outcome.state
            )));
        }
        Ok(outcome)
    }

    pub(crate) fn children(&self, id: u64) -> Vec<JobResult> {
        let jobs = lock(&self.state);
        let children = jobs.entries.values().filter(|entry| entry.job.parent == Some(id));
        children.map(|entry| entry.outcome(jobs.now)).collect()
    }

    pub(crate) fn keep_steps(
        &self,
        id: u64,
        token: u64,
        steps: &[NewStep],
    ) -> Result<Vec<StepAnswer>, Error> {
        let mut jobs = lock(&self.state);
        let entry = jobs.entries.get_mut(&id).ok_or_else(unknown)?;
        if entry.token != token || entry.state != State::Running {
            return Err(Error::LeaseLost { message: "the run has ended".to_owned() });
        }
        let keep = |step: &NewStep| match entry.steps.iter().find(|kept| kept.name == step.name) {
            Some(kept) => StepAnswer { kept: false, result: kept.result.clone() },
            None => {
                let result = Some(step.result.clone());
                entry.steps.push(KeptStep {
                    name: step.name.clone(),
                    result,
                    timed_out: false,
                    generation: 0,
                });
                StepAnswer { kept: true, result: None }
            }
        };
        Ok(steps.iter().map(keep).collect())
    }

    pub(crate) fn signal(&self, id: u64, name: &str, payload: &RawValue) -> Result<bool, Error> {
        let mut jobs = lock(&self.state);
        let now = jobs.now;
        let has_children = jobs.has_pending_children(id);
        let entry = jobs.unsettled(id)?;
        entry.signal(name, payload);
        Ok(entry.wake_if_due(now, has_children))
    }

    pub(crate) fn act(&self, id: u64, verb: &str) -> Result<(), Error> {
        let mut jobs = lock(&self.state);
        let now = jobs.now;
        if verb == "cancel" {
            jobs.unsettled(id)?.state = State::Cancelled;
            jobs.wake();
            return Ok(());
        }
        jobs.entries.get_mut(&id).ok_or_else(unknown)?.retry(now);
        Ok(())
    }

    pub(crate) fn retry_from(&self, id: u64, step: &str) -> Result<(), Error> {
        let mut jobs = lock(&self.state);
        let now = jobs.now;
        let entry = jobs.entries.get_mut(&id).ok_or_else(unknown)?;
        let position = entry.steps.iter().position(|kept| kept.name == step);
        let position =
            position.ok_or_else(|| Error::NotFound { message: format!("job {id} has no step {step}") })?;
        // A completed job keeps the steps before this one.
        let steps = entry.steps.drain(..).take(position).collect();
        entry.retry(now);
        entry.steps = steps;
        Ok(())
    }

    /// Runs all jobs that are due. Returns the number of runs.
    pub(crate) async fn run_due(self: Arc<Self>) -> usize {
        for runs in 0..RUNS_MAX {
            let next = lock(&self.state).next_due();
            let Some(id) = next else { return runs };
            self.run_one(id).await;
        }
        panic!("{RUNS_MAX} runs, and still jobs are due: a job keeps pushing itself");
    }

    pub(crate) async fn advance(self: Arc<Self>, time: Duration) -> usize {
        let until = self.now() + ms(time);
        let mut runs = 0;
        loop {
            runs += Arc::clone(&self).run_due().await;
            assert!(runs < RUNS_MAX, "{runs} runs, and still jobs are due");
            let mut jobs = lock(&self.state);
            let next = jobs.entries.values().filter_map(Entry::next_time).filter(|at| *at <= until).min();
            let is_done = next.is_none();
            jobs.now = jobs.now.max(next.unwrap_or(until));
            jobs.wake();
            if is_done {
                return runs;
            }
        }
    }

    async fn run_one(self: &Arc<Self>, id: u64) {
        let (claimed, name) = {
            let mut jobs = lock(&self.state);
            let Some(entry) = jobs.entries.get_mut(&id) else { return };
            (entry.claim(), entry.job.name.clone())
        };
        let Some(task) = self.app.registered(&name) else {
            let message = format!("no task {name} is registered");
            return self.settle(id, Settlement::failed("NoTask", message, RetryWish::Never));
        };
        let backend = Backend::Test(Arc::clone(self));
        let run = Arc::new(Run::new(claimed, &task, backend, Arc::new(Notify::new())));
        let handler = hooks::start(&task, &run, &self.app.hooks());
        let settlement = run::drive(&run, handler, task.timeout, CANCEL_GRACE).await;
        if let Some(entry) = lock(&self.state).entries.get_mut(&id) {
            entry.note(run.take_notes());
        }
        self.settle(id, settlement);
    }

    fn settle(&self, id: u64, settlement: Settlement) {
        let mut jobs = lock(&self.state);
        let now = jobs.now;
        if let Some(entry) = jobs.entries.get_mut(&id).filter(|entry| entry.state == State::Running) {
            entry.settle(settlement, now);
        }
        jobs.wake();
    }
}

impl Jobs {
    fn push(&mut self, jobs: &[NewJob]) -> PushAnswer {
        let mut answer = PushAnswer { ids: Vec::new(), existing: Vec::new() };
        for job in jobs {
            let existing = self.existing(job);
            let id = existing.unwrap_or(self.entries.len() as u64 + 1);
            answer.ids.push(id);
            answer.existing.extend(existing);
            if existing.is_none() {
                self.keys.extend(job.idempotency_key.clone().map(|key| (key, id)));
                self.entries.insert(id, Entry::new(id, job.clone(), self.now));
            }
        }
        answer
    }

    /// Job with the idempotency key or the unique key of the push.
    fn existing(&self, job: &NewJob) -> Option<u64> {
        let by_key = job.idempotency_key.as_ref().and_then(|key| self.keys.get(key)).copied();
        by_key.or_else(|| {
            let unique = unique_key(job)?;
            let mut live = self.entries.values().filter(|entry| !entry.is_settled());
            live.find(|entry| unique_key(&entry.job) == Some(unique)).map(|entry| entry.id)
        })
    }

    /// Next due job, in the order of the server: priority, time, id.
    fn next_due(&self) -> Option<u64> {
        let due = self.entries.values().filter(|entry| {
            // A child starts when the run of its parent has ended.
            let parent = entry.job.parent.and_then(|parent| self.entries.get(&parent));
            let is_held = parent.is_some_and(|parent| parent.state == State::Running);
            entry.state == State::Waiting && entry.run_at <= self.now && !is_held
        });
        let first = due.min_by_key(|entry| (entry.job.options.priority.unwrap_or(0), entry.run_at, entry.id));
        first.map(|entry| entry.id)
    }

    fn has_pending_children(&self, id: u64) -> bool {
        self.entries.values().any(|entry| entry.job.parent == Some(id) && !entry.is_settled())
    }

    /// Wakes the suspended jobs whose time, signal or children have come.
    fn wake(&mut self) {
        let waiting: Vec<(u64, bool)> = self
            .entries
            .values()
            .filter(|entry| entry.state == State::Suspended)
            .map(|entry| (entry.id, entry.waits_for_children() && self.has_pending_children(entry.id)))
            .collect();
        for (id, has_children) in waiting {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.wake_if_due(self.now, has_children);
            }
        }
    }

    fn unsettled(&mut self, id: u64) -> Result<&mut Entry, Error> {
        let entry = self.entries.get_mut(&id).ok_or_else(unknown)?;
        match entry.is_settled() {
            true => Err(Error::Conflict {
                code: "settled".to_owned(),
                message: format!("job {id} is already settled"),
            }),
            false => Ok(entry),
        }
    }
}

fn unique_key(job: &NewJob) -> Option<&str> {
    let unique = job.options.unique.as_ref()?;
    unique.as_str().or_else(|| unique.get("key").and_then(Value::as_str))
}

fn unknown() -> Error {
    Error::NotFound { message: "job not found".to_owned() }
}
