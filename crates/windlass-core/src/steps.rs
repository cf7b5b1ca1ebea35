//! Durable steps of a job: results that outlive a run, the wait of a suspended job, and the signals that
//! arrived for it.
//!
//! A worker keeps the result of each step under a name. The next run gets the kept steps with the claim and
//! does not execute them again. A suspended job waits for a time, a signal or its children, whichever comes
//! first; the end of the wait is kept as a step too.

use crate::Timestamp;
use crate::job::Payload;
use crate::refused::Refused;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Steps of one job. Every step rewrites the record of all of them.
pub const STEPS_MAX: usize = 10_000;
/// Bytes of all results and names together, for the same reason.
pub const STEPS_BYTES_MAX: usize = 4 << 20;
/// Longest name of a step or signal in bytes, the same as for other names.
pub const STEP_NAME_BYTES_MAX: usize = crate::names::NAME_BYTES_MAX;
/// Signals of one job that no wait has taken.
pub const SIGNALS_MAX: usize = 100;
/// Bytes of one signal's payload.
pub const SIGNAL_BYTES_MAX: usize = 64 << 10;

/// Overhead of a step beside its name and result, so that many tiny steps count for the memory they take.
const STEP_BYTES: usize = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steps {
    /// Number of times that steps were dropped to be executed again. Children of an earlier generation are not the
    /// children of this one.
    #[serde(skip_serializing_if = "is_zero")]
    generation: u32,
    /// In the order in which they were kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Arc<StepRecord>>,
    /// Wait of a suspended job.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    /// Signals that no wait has taken, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    signals: Vec<Arc<Signal>>,
}

/// Kept result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    pub name: Arc<str>,
    #[serde(default, skip_serializing_if = "is_run")]
    pub kind: StepKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// Start of the step, by the clock of its worker; start of a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub at: Timestamp,
    /// The time of a wait came before its signal or the end of the children.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Generation in which it was kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Executed by a worker.
    #[default]
    Run,
    /// Wait for a time.
    Sleep,
    /// Wait for a signal.
    Signal,
    /// Wait for the children.
    Children,
}

impl StepKind {
    pub fn as_str(self) -> &'static str {
        match self {
            StepKind::Run => "run",
            StepKind::Sleep => "sleep",
            StepKind::Signal => "signal",
            StepKind::Children => "children",
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_run(kind: &StepKind) -> bool {
    *kind == StepKind::Run
}

/// Step that a worker has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub name: Arc<str>,
    pub result: Option<Payload>,
    pub started_at: Option<Timestamp>,
}

/// Condition on which a suspended job runs again, besides the time in its state. Without a condition and a
/// time the job waits for a `Run` event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Name of the step that is kept when the wait ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Arc<str>>,
    /// Wait for the end of all children.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub children: bool,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub name: Arc<str>,
    pub payload: Payload,
    pub at: Timestamp,
}

/// Event that ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Woken {
    ByTime,
    /// A run was requested.
    ByRequest,
    BySignal(Arc<Signal>),
    ByChildren,
}

impl Steps {
    pub fn kept(&self) -> &[Arc<StepRecord>] {
        &self.kept
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn find(&self, name: &str) -> Option<&Arc<StepRecord>> {
        self.kept.iter().find(|step| *step.name == *name)
    }

    pub fn by_name(&self) -> BTreeMap<&str, &Arc<StepRecord>> {
        self.kept.iter().map(|step| (&*step.name, step)).collect()
    }

    pub fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    pub fn signals(&self) -> &[Arc<Signal>] {
        &self.signals
    }

    /// Approximate size in memory.
    pub fn bytes(&self) -> usize {
        let signals = self.signals.iter().map(|signal| signal.payload.bytes.len() + STEP_BYTES);
        self.kept_bytes() + signals.sum::<usize>()
    }

    fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|step| size_of(&step.name, step.result.as_ref())).sum()
    }

    /// Keeps the results of executed steps. A step whose name is kept already does not change: its first
    /// result counts.
    pub(crate) fn keep(&mut self, new: Vec<NewStep>, now: Timestamp) -> Result<(), Refused> {
        let mut bytes = self.kept_bytes();
        let mut names: BTreeSet<Arc<str>> = self.kept.iter().map(|step| step.name.clone()).collect();
        for step in new {
            if !names.insert(step.name.clone()) {
                continue;
            }
            bytes += size_of(&step.name, step.result.as_ref());
            if self.kept.len() == STEPS_MAX || bytes > STEPS_BYTES_MAX {
                return Err(Refused::StepsFull);
            }
            self.kept.push(Arc::new(StepRecord {
                name: step.name,
                kind: StepKind::Run,
                result: step.result,
                started_at: step.started_at.map(|at| at.min(now)),
                at: now,
                timed_out: false,
                generation: self.generation,
            }));
        }
        Ok(())
    }

    /// True if the end of a wait can be kept as a step, whatever the signal brings.
    pub(crate) fn has_room_for_a_wait(&self) -> bool {
        self.kept.len() < STEPS_MAX && self.kept_bytes() + SIGNAL_BYTES_MAX <= STEPS_BYTES_MAX
    }

    /// Begins a wait. Returns what ends it at once: a signal that came early, or the end of the children.
    pub(crate) fn begin_wait(&mut self, wait: Wait, children_pending: bool) -> Option<Woken> {
        let early = wait.signal.as_ref().and_then(|name| {
            let position = self.signals.iter().position(|signal| signal.name == *name)?;
            Some(Woken::BySignal(self.signals.remove(position)))
        });
        let woken = early.or_else(|| (wait.children && !children_pending).then_some(Woken::ByChildren));
        self.wait = Some(wait);
        woken
    }

    /// Ends the wait and keeps its step, if it has one. A requested run ends a sleep; it does not answer a wait for a
    /// signal or for children, for which the next run waits again.
    pub(crate) fn end_wait(&mut self, woken: Woken, now: Timestamp) {
        let Some(wait) = self.wait.take() else { return };
        let Some(name) = wait.step else { return };
        let has_condition = wait.signal.is_some() || wait.children;
        if self.find(&name).is_some() || (woken == Woken::ByRequest && has_condition) {
            return;
        }
        let kind = match (&woken, &wait.signal, wait.children) {
            (Woken::BySignal(_), _, _) | (Woken::ByTime | Woken::ByRequest, Some(_), _) => StepKind::Signal,
            (Woken::ByChildren, _, _) | (Woken::ByTime | Woken::ByRequest, None, true) => StepKind::Children,
            (Woken::ByTime | Woken::ByRequest, None, false) => StepKind::Sleep,
        };
        let timed_out = woken == Woken::ByTime && has_condition;
        let result = match woken {
            Woken::BySignal(signal) => Some(signal.payload.clone()),
            Woken::ByTime | Woken::ByRequest | Woken::ByChildren => None,
        };
        let (started_at, generation) = (Some(wait.since), self.generation);
        let step = StepRecord { name, kind, result, started_at, at: now, timed_out, generation };
        self.kept.push(Arc::new(step));
    }

    /// Ends a wait without an outcome.
    pub(crate) fn drop_wait(&mut self) {
        self.wait = None;
    }

    /// Takes a signal in, or hands it to the wait that asks for it.
    pub(crate) fn take_in(&mut self, signal: Signal) -> Result<Option<Woken>, Refused> {
        let signal = Arc::new(signal);
        if self.wait.as_ref().is_some_and(|wait| wait.signal.as_ref() == Some(&signal.name)) {
            return Ok(Some(Woken::BySignal(signal)));
        }
        if self.signals.len() == SIGNALS_MAX {
            return Err(Refused::SignalsFull);
        }
        self.signals.push(signal);
        Ok(None)
    }

    /// Drops a step, the ones kept after it, and the wait.
    pub(crate) fn drop_from(&mut self, name: &str) {
        let position = self.kept.iter().position(|step| *step.name == *name);
        self.kept.truncate(position.unwrap_or(self.kept.len()));
        self.wait = None;
        self.generation += 1;
    }

    /// Steps of a job that starts anew.
    pub(crate) fn anew(&self) -> Steps {
        Steps { generation: self.generation + 1, ..Steps::default() }
    }
}

fn size_of(name: &str, result: Option<&Payload>) -> usize {
    name.len() + result.map_or(0, |result| result.bytes.len()) + STEP_BYTES
}
