//! A job in memory, and the rules by which it changes. The clock is an argument.

use super::TestJob;
use crate::outcome::{RetryWish, Settlement, Suspension};
use crate::run::Notes;
use crate::wire::{ClaimedJob, JobResult, KeptStep, NewJob, ms, null};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::{Duration, UNIX_EPOCH};

/// Attempts of a job that names none.
const ATTEMPTS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Due at `run_at`.
    Waiting,
    Running,
    Suspended,
    Completed,
    Failed,
    Cancelled,
}

pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) job: NewJob,
    pub(super) state: State,
    pub(super) run_at: u64,
    pub(super) attempts: u32,
    /// Number of the run; a token of an older run is refused.
    pub(super) token: u64,
    pub(super) steps: Vec<KeptStep>,
    wait: Option<Wait>,
    signals: Vec<(String, Box<RawValue>)>,
    result: Option<Box<RawValue>>,
    class: Option<String>,
    message: Option<String>,
    log: Vec<String>,
    progress: Option<(u8, Option<String>)>,
}

/// Wait of a suspended job.
struct Wait {
    suspension: Suspension,
    until: Option<u64>,
}

impl Entry {
    pub(super) fn new(id: u64, job: NewJob, now: u64) -> Entry {
        let run_at = job.options.run_at.unwrap_or(now + job.options.delay_ms.unwrap_or(0));
        Entry {
            id,
            job,
            state: State::Waiting,
            run_at,
            attempts: 0,
            token: 0,
            steps: Vec::new(),
            wait: None,
            signals: Vec::new(),
            result: None,
            class: None,
            message: None,
            log: Vec::new(),
            progress: None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::Completed | State::Failed | State::Cancelled)
    }

    /// Time at which the job can run or wakes, if time alone is enough.
    pub(super) fn next_time(&self) -> Option<u64> {
        match self.state {
            State::Waiting => Some(self.run_at),
            State::Suspended => self.wait.as_ref().and_then(|wait| wait.until),
            _ => None,
        }
    }

    pub(super) fn claim(&mut self) -> ClaimedJob {
        self.state = State::Running;
        self.attempts += 1;
        self.token += 1;
        ClaimedJob {
            id: self.id,
            token: self.token,
            name: self.job.name.clone(),
            queue: self.job.options.queue.clone().unwrap_or_else(|| "default".to_owned()),
            payload: Some(self.job.payload.clone()),
            payload_base64: None,
            attempt: self.attempts,
            priority: self.job.options.priority.unwrap_or(0),
            tags: self.job.options.tags.clone(),
            steps: self.steps.clone(),
            generation: 0,
        }
    }

    pub(super) fn note(&mut self, notes: Notes) {
        self.log.extend(notes.lines);
        if notes.progress.is_some() {
            self.progress = notes.progress;
        }
    }

    /// Ends a run. A suspended job still needs [`Entry::wake_if_due`].
    pub(super) fn settle(&mut self, settlement: Settlement, now: u64) {
        match settlement {
            Settlement::Finish(result) => {
                self.result = Some(result);
                self.state = State::Completed;
            }
            Settlement::Fail { class, message, retry } => {
                (self.class, self.message) = (Some(class), Some(message));
                let delay = match retry {
                    RetryWish::Never => None,
                    _ if u64::from(self.attempts) >= attempts_max(self.job.options.retry.as_ref()) => None,
                    RetryWish::After(delay) => Some(ms(delay)),
                    RetryWish::Policy => Some(backoff_ms(self.job.options.retry.as_ref(), self.attempts)),
                };
                match delay {
                    None => self.state = State::Failed,
                    Some(delay) => (self.state, self.run_at) = (State::Waiting, now + delay),
                }
            }
            Settlement::Release { delay } => {
                self.attempts -= 1;
                (self.state, self.run_at) = (State::Waiting, now + ms(delay));
            }
            Settlement::Suspend(suspension) => {
                let until = suspension.until_ms.or(suspension.delay_ms.map(|delay| now + delay));
                self.state = State::Suspended;
                self.wait = Some(Wait { suspension, until });
            }
            Settlement::Drop => (self.state, self.run_at) = (State::Waiting, now),
        }
    }

    /// Makes the job ready, with its attempts counted from zero. A completed job starts without steps.
    pub(super) fn retry(&mut self, now: u64) {
        if self.state == State::Completed {
            self.steps.clear();
        }
        self.attempts = 0;
        self.wait = None;
        (self.state, self.run_at) = (State::Waiting, now);
    }

    pub(super) fn waits_for_children(&self) -> bool {
        self.state == State::Suspended && self.wait.as_ref().is_some_and(|wait| wait.suspension.children)
    }

    /// Wakes a suspended job if one of its events is there. True if it woke.
    pub(super) fn wake_if_due(&mut self, now: u64, has_children: bool) -> bool {
        let Some(Wait { suspension, until }) = self.wait.as_ref().filter(|_| self.state == State::Suspended)
        else {
            return false;
        };
        let signal = suspension.signal.as_ref();
        let kept = signal.and_then(|name| self.signals.iter().position(|(kept, _)| kept == name));
        let (result, timed_out) = if let Some(position) = kept {
            (self.signals.remove(position).1, false)
        } else if suspension.children && !has_children {
            (null(), false)
        } else if until.is_some_and(|until| until <= now) {
            (null(), suspension.signal.is_some() || suspension.children)
        } else {
            return false;
        };
        let name = suspension.step.clone();
        self.steps.push(KeptStep { name, result: Some(result), timed_out, generation: 0 });
        self.wait = None;
        self.attempts = 0;
        (self.state, self.run_at) = (State::Waiting, now);
        true
    }

    pub(super) fn signal(&mut self, name: &str, payload: &RawValue) {
        self.signals.push((name.to_owned(), payload.to_owned()));
    }

    /// Word of the API for the state.
    fn word(&self, now: u64) -> &'static str {
        match self.state {
            State::Waiting if self.run_at <= now => "ready",
            State::Waiting if self.attempts > 0 => "retrying",
            State::Waiting => "delayed",
            State::Running => "running",
            State::Suspended => "suspended",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    pub(super) fn outcome(&self, now: u64) -> JobResult {
        JobResult {
            id: self.id,
            state: self.word(now).to_owned(),
            result: self.result.clone(),
            message: self.message.clone(),
            class: self.class.clone(),
            tags: self.job.options.tags.clone(),
        }
    }

    pub(super) fn view(&self, now: u64) -> TestJob {
        let value = |text: &RawValue| serde_json::from_str(text.get()).unwrap_or_default();
        TestJob {
            id: self.id,
            name: self.job.name.clone(),
            state: self.word(now).to_owned(),
            payload: value(&self.job.payload),
            result: self.result.as_deref().map(value),
            attempts: self.attempts,
            class: self.class.clone(),
            message: self.message.clone(),
            run_at: self.next_time().map(|at| UNIX_EPOCH + Duration::from_millis(at)),
            steps: self
                .steps
                .iter()
                .map(|step| (step.name.clone(), step.result.as_deref().map(value).unwrap_or_default()))
                .collect(),
            log: self.log.clone(),
            progress: self.progress.clone(),
        }
    }
}

fn attempts_max(retry: Option<&Value>) -> u64 {
    let attempts = retry.and_then(|retry| retry.as_u64().or_else(|| retry["max_attempts"].as_u64()));
    attempts.unwrap_or(ATTEMPTS)
}

/// Delay of the policy after this many failed attempts, without jitter.
fn backoff_ms(retry: Option<&Value>, failures: u32) -> u64 {
    let backoff = retry.map_or(&Value::Null, |retry| &retry["backoff"]);
    if backoff == "none" {
        return 0;
    }
    if let Some(fixed) = backoff["fixed_ms"].as_u64() {
        return fixed;
    }
    let base = backoff["base_ms"].as_u64().unwrap_or(1_000);
    let cap = backoff["cap_ms"].as_u64().unwrap_or(3_600_000);
    base.saturating_mul(1 << (failures.saturating_sub(1)).min(40)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn delays_follow_the_retry_policy_of_the_server() {
        for (retry, failures, attempts, delay) in [
            (json!(null), 1, 10, 1_000),
            (json!(5), 3, 5, 4_000),
            (json!({"max_attempts": 2, "backoff": {"fixed_ms": 50}}), 1, 2, 50),
            (json!({"backoff": "none"}), 4, 10, 0),
            (json!({"backoff": {"base_ms": 10, "cap_ms": 25}}), 3, 10, 25),
        ] {
            assert_eq!(attempts_max(Some(&retry)), attempts, "{retry}");
            assert_eq!(backoff_ms(Some(&retry), failures), delay, "{retry}");
        }
    }
}
