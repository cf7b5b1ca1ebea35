//! Steps, wait and signals of a job.

use super::parts::ResultFields;
use crate::codec::Encoding;
use crate::native::wire::Time;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::steps::{Signal, StepKind, StepRecord, Wait};
use windlass_core::{Job, JobState, Timestamp};

/// Result of a kept step.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub(in crate::native) struct StepResult<'a> {
    #[serde(flatten)]
    result: ResultFields<'a>,
}

impl<'a> StepResult<'a> {
    pub(in crate::native) fn new(step: &'a StepRecord, encoding: Encoding) -> StepResult<'a> {
        let result = step.result.as_ref();
        StepResult { result: result.map(|it| ResultFields::new(it, encoding)).unwrap_or_default() }
    }
}

/// Kept step.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub(super) struct StepView<'a> {
    /// Name, unique in its job.
    name: &'a str,
    /// `run`: executed by a worker; `sleep`, `signal`, `children`: a wait.
    #[schemars(with = "StepKindWord")]
    kind: &'static str,
    #[serde(flatten)]
    result: StepResult<'a>,
    /// Start, by the clock of the worker; start of a wait.
    started_at: Option<Time>,
    /// Time at which it was kept.
    at: Time,
    /// True if the time of the wait came before its signal or the end of the children.
    timed_out: Option<bool>,
    /// Generation in which it was kept; missing: the first.
    generation: Option<u32>,
}

/// Kind of a step.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
#[allow(dead_code, reason = "only its schema is used")]
enum StepKindWord {
    Run,
    Sleep,
    Signal,
    Children,
}

impl<'a> StepView<'a> {
    fn new(step: &'a StepRecord, encoding: Encoding) -> StepView<'a> {
        StepView {
            name: &step.name,
            kind: StepKind::as_str(step.kind),
            result: StepResult::new(step, encoding),
            started_at: step.started_at.map(Time::from),
            at: step.at.into(),
            timed_out: step.timed_out.then_some(true),
            generation: Some(step.generation).filter(|generation| *generation > 0),
        }
    }
}

/// Kept steps; `None`: there are none.
pub(super) fn kept(job: &Job, encoding: Encoding) -> Option<Vec<StepView<'_>>> {
    let kept = job.steps()?.kept();
    (!kept.is_empty()).then(|| kept.iter().map(|step| StepView::new(step, encoding)).collect())
}

/// Wait of a suspended job: it ends with whichever comes first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Wait")]
pub(super) struct WaitView<'a> {
    /// Name of the step that is kept when the wait ends.
    step: Option<&'a str>,
    /// Time at which it ends in any case.
    until: Option<Time>,
    /// Signal that ends it.
    signal: Option<&'a str>,
    /// True if the end of all children ends it.
    children: Option<bool>,
    /// Start of the wait.
    since: Time,
}

impl<'a> WaitView<'a> {
    pub(super) fn of(job: &'a Job) -> Option<WaitView<'a>> {
        let JobState::Suspended { until } = job.state() else { return None };
        let wait = job.steps()?.wait()?;
        Some(WaitView {
            step: wait.step.as_deref(),
            until: until.map(Time::from),
            signal: wait.signal.as_deref(),
            children: wait.children.then_some(true),
            since: wait.since.into(),
        })
    }
}

/// Signal that waits for its job.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SignalView<'a> {
    /// Name of the signal.
    name: &'a str,
    /// Time at which it came.
    at: Time,
}

pub(super) fn signals(job: &Job) -> Option<Vec<SignalView<'_>>> {
    let signals = job.steps()?.signals();
    (!signals.is_empty()).then(|| signals.iter().map(|signal| SignalView::new(signal)).collect())
}

impl<'a> SignalView<'a> {
    fn new(signal: &'a Signal) -> SignalView<'a> {
        SignalView { name: &signal.name, at: signal.at.into() }
    }
}

/// Condition of a wait in a few words.
pub(super) fn reason(wait: &Wait, until: Option<Timestamp>, pending_children: u32) -> String {
    match (&wait.signal, wait.children, until) {
        (Some(signal), _, _) => format!("signal {signal}"),
        (None, true, _) => format!("children {pending_children}"),
        (None, false, Some(_)) => "due".to_owned(),
        (None, false, None) => "being run".to_owned(),
    }
}
