//! The job: its specification (`JobSpec`, `Policy`), the parts that change (`Progress`, `Body`), and its
//! state.

use crate::failure;
use crate::family::Family;
use crate::history::{Log, MARKS_KEPT, Mark};
pub use crate::keep::{Keep, KeepFor, ResultPolicy};
use crate::lease::LeasePolicy;
use crate::ports::Ports;
use crate::repeat::{Repeat, Span};
use crate::retry::RetryPolicy;
use crate::state::JobState;
use crate::steps::Steps;
use crate::turn::{CatchUp, TURNS_KEPT, Turn};
use crate::unique::Unique;
use crate::{Name, Queue, Tenant, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Job id: 1, 2, 3, … per store, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(NonZeroU64);

impl JobId {
    pub fn new(number: u64) -> Option<JobId> {
        NonZeroU64::new(number).map(JobId)
    }

    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    #[default]
    Json,
    Msgpack,
    Text,
    Binary,
}

/// Bytes exactly as received. Converted only at the edge, when another dialect must read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    pub format: Format,
    #[serde(with = "shared_bytes")]
    pub bytes: Arc<[u8]>,
}

impl Payload {
    pub fn new(format: Format, bytes: impl Into<Arc<[u8]>>) -> Payload {
        Payload { format, bytes: bytes.into() }
    }

    pub fn json(text: &str) -> Payload {
        Payload::new(Format::Json, text.as_bytes())
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload::json("null")
    }
}

/// Policies of a job. Jobs of one kind share one value, so each waiting job costs only a pointer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Policy {
    #[serde(skip_serializing_if = "is_default")]
    pub lease: LeasePolicy,
    /// Replaces `lease.length_ms`: a calendar span after which the lease expires. A repeating job's lease
    /// expires at its next scheduled run if that is sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_span: Option<Span>,
    #[serde(skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub keep: Keep,
    #[serde(skip_serializing_if = "is_default")]
    pub result: ResultPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// Most runs of one job within one minute of the clock. A claim beyond the bound is turned into the job's
    /// shutdown run, because the job is stuck in a loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_per_minute: Option<u32>,
    /// A repeating job that has used up its attempts waits for its next scheduled run instead of failing.
    #[serde(skip_serializing_if = "is_default")]
    pub repeat_after_failure: bool,
    /// The repeat rule counts from the time the latest run was due, even if that run was a retry. Otherwise
    /// all attempts of one scheduled run share its slot.
    #[serde(skip_serializing_if = "is_default")]
    pub retry_moves_slot: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub catch_up: CatchUp,
    /// Whether the end of a run deletes the settled children that the run has seen. `None`: if the job itself
    /// is deleted on completion, because nobody could find them from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forget_children: Option<bool>,
}

impl Policy {
    pub fn forgets_children(&self) -> bool {
        self.forget_children.unwrap_or(self.keep.completed == KeepFor::Drop)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Rarely used parts of a specification; most jobs have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Extras {
    /// Dialect that created the job, for display; no code below the dialects reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<str>>,
    /// Second id of the job, unique per tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Keys of the limits that count this job. Set by the engine when the job is created or the limits
    /// change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limit_keys: Vec<Arc<str>>,
    /// The first run is at a calendar date, not at a delay after the push. Such a run moves with the calendar
    /// when the machine's clock is set.
    #[serde(skip_serializing_if = "is_default")]
    pub dated: bool,
    /// Values of the originating dialect that no rule needs, such as a date as it was typed; only that
    /// dialect reads them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<Arc<str>, Arc<str>>,
}

/// Specification of a job. Changes only by an explicit update.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    pub payload: Payload,
    /// Smaller numbers first.
    pub priority: i32,
    pub created_at: Timestamp,
    pub policy: Arc<Policy>,
    pub extras: Option<Box<Extras>>,
}

impl JobSpec {
    pub fn unique(&self) -> Option<&Unique> {
        self.extras.as_ref()?.unique.as_ref()
    }

    pub fn family(&self) -> Option<&Family> {
        self.extras.as_ref()?.family.as_ref()
    }

    pub fn alias(&self) -> Option<&str> {
        self.extras.as_ref()?.alias.as_deref()
    }

    pub fn tags(&self) -> &[Arc<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.tags)
    }

    pub fn limit_keys(&self) -> &[Arc<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.limit_keys)
    }

    pub fn is_dated(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.dated)
    }

    pub fn fact(&self, key: &str) -> Option<&str> {
        self.extras.as_ref()?.facts.get(key).map(|text| &**text)
    }
}

/// The part of a job that changes with every transition; small, and rewritten each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Progress {
    /// Attempts that count, including the current one.
    pub attempts: u32,
    /// Time at which the current or next run was due: the "scheduled" time of a repeat rule.
    pub due_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// Start of the run before the current or last one.
    #[serde(default)]
    pub prior_start: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Children that this job waits for.
    pub pending_children: u32,
    /// Counted only if the policy sets `runs_per_minute`.
    #[serde(default)]
    pub minute_runs: MinuteRuns,
}

/// Runs started in the latest minute that had any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct MinuteRuns {
    /// Minutes since the epoch.
    pub minute: u32,
    pub count: u32,
}

/// Error of a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct AttemptError {
    pub attempt: u32,
    pub at: Timestamp,
    pub message: String,
    /// Kind of error, such as the name of an exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Structured error, within [`failure::ERROR_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Payload>,
    /// Lines of the backtrace, within [`failure::BACKTRACE_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Worker that held the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Arc<str>>,
}

/// Outcome of the job, or of its last run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Outcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// Structured error, where the protocol has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Payload>,
    /// Message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Kind of error, such as the name of an exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Lines of the backtrace of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Worker that reported the outcome, where the protocol shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Arc<str>>,
    /// End of the run, where it differs from the time of the report: by the worker's own clock, or the expiry
    /// of its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Memory of a log line besides its text.
const LINE_OVERHEAD_BYTES: usize = 64;

/// Errors kept per job: enough to see a pattern, few enough to keep the job small.
pub const ERRORS_KEPT: usize = 10;

/// The larger part of a job that changes rarely; stored apart from the row that every claim rewrites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<AttemptError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Ports and state of a long-lived job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Arc<Ports>>,
    /// Kept steps, wait and signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Arc<Steps>>,
    /// Log lines of its runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<Log>>,
    /// Actions by named users from outside the runs, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Last turns of a repeating job, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
}

impl Body {
    /// Approximate size in memory, counting only the parts that can be large.
    pub fn bytes(&self) -> usize {
        let payload = |payload: &Option<Payload>| payload.as_ref().map_or(0, |payload| payload.bytes.len());
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let ports = self.ports.as_ref().map_or(0, |ports| ports.bytes());
        let outcome = self.outcome.as_ref().map_or(0, |outcome| {
            payload(&outcome.result)
                + payload(&outcome.error)
                + text(&outcome.message)
                + text(&outcome.backtrace)
        });
        let lines = self.log.iter().flat_map(|log| &log.lines);
        let lines: usize = lines.map(|line| line.text.len() + LINE_OVERHEAD_BYTES).sum();
        let errors = self.errors.iter().map(|error| {
            error.message.len() + text(&error.class) + payload(&error.error) + text(&error.backtrace)
        });
        let steps = self.steps.as_ref().map_or(0, |steps| steps.bytes());
        ports + outcome + lines + steps + errors.sum::<usize>()
    }

    pub fn remember_error(&mut self, error: AttemptError) {
        if self.errors.len() == ERRORS_KEPT {
            self.errors.remove(0);
        }
        self.errors.push(error);
        failure::drop_old_details(&mut self.errors);
    }

    pub fn remember_mark(&mut self, mark: Mark) {
        if self.marks.len() == MARKS_KEPT {
            self.marks.remove(0);
        }
        self.marks.push(mark);
    }

    pub fn remember_turn(&mut self, turn: Turn) {
        if self.turns.len() == TURNS_KEPT {
            self.turns.remove(0);
        }
        self.turns.push(turn);
    }
}

/// Job at one version. Cheap to clone: the large parts are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    /// Grows by one with every commit; an optimistic lock against overwriting a concurrent change.
    pub version: u64,
    pub spec: Arc<JobSpec>,
    pub progress: Progress,
    pub body: Option<Arc<Body>>,
    /// Changed only by `transition`.
    pub(crate) state: JobState,
}

impl Job {
    /// Rebuilds a job from its stored parts.
    pub fn from_parts(
        id: JobId,
        version: u64,
        spec: Arc<JobSpec>,
        progress: Progress,
        body: Option<Arc<Body>>,
        state: JobState,
    ) -> Job {
        Job { id, version, spec, progress, body, state }
    }

    pub fn state(&self) -> &JobState {
        &self.state
    }

    pub fn ports(&self) -> Option<&Arc<Ports>> {
        self.body.as_ref()?.ports.as_ref()
    }

    pub fn steps(&self) -> Option<&Arc<Steps>> {
        self.body.as_ref()?.steps.as_ref()
    }

    /// True if the current run is the shutdown run because the job started too many runs within one minute.
    pub fn runs_too_often(&self) -> bool {
        let max = self.spec.policy.runs_per_minute;
        self.state.lease().is_some() && max.is_some_and(|max| self.progress.minute_runs.count > max)
    }

    /// Time from which the store may delete the job, if any.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let keep = &self.spec.policy.keep;
        match &self.state {
            JobState::Completed { at } => keep.completed.expires_at(*at),
            JobState::Failed { at } => keep.failed.expires_at(*at),
            JobState::Cancelled { at } => keep.cancelled.expires_at(*at),
            _ => None,
        }
    }

    /// Last turns of a repeating job, oldest first.
    pub fn turns(&self) -> &[Turn] {
        self.body.as_ref().map_or(&[], |body| &body.turns)
    }

    pub fn result(&self) -> Option<&Payload> {
        self.body.as_ref()?.outcome.as_ref()?.result.as_ref()
    }

    /// Time at which the result is deleted, if the policy deletes it before the job.
    pub fn result_expires_at(&self) -> Option<Timestamp> {
        let settled_at = match &self.state {
            JobState::Completed { at } | JobState::Failed { at } | JobState::Cancelled { at } => *at,
            _ => return None,
        };
        self.result()?;
        self.spec.policy.result.keep.expires_at(settled_at)
    }

    /// Next time at which the job needs action without a request: lease expiry, the end of a wait or of a keep
    /// time.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            JobState::Running(lease) => lease.until,
            JobState::Suspended { until } => *until,
            _ => [self.expires_at(), self.result_expires_at()].into_iter().flatten().min(),
        }
    }

    /// Date the job waits for, if a person or a calendar rule named it. Delays, backoff and intervals are
    /// durations and do not count.
    pub fn appointment(&self) -> Option<Timestamp> {
        let at = match &self.state {
            JobState::Ready { run_at, .. } => *run_at,
            JobState::Waiting => self.progress.due_at,
            _ => return None,
        };
        let is_first_try = self.progress.attempts == 0 && at == self.progress.due_at;
        // A named date applies to the first run only; later runs follow a repeat rule or a delay.
        let is_named = self.spec.is_dated() && self.progress.started_at.is_none();
        let names_dates = is_named || self.spec.policy.repeat.as_ref().is_some_and(Repeat::names_dates);
        (is_first_try && names_dates).then_some(at)
    }

    /// True if its unique key still blocks other pushes.
    pub fn holds_unique_key(&self) -> bool {
        self.spec.unique().is_some_and(|unique| unique.held_in(&self.state))
    }
}

mod shared_bytes {
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(bytes: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        from.deserialize_bytes(Bytes)
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Arc<[u8]>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }
        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(bytes.into())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = seq.next_element::<u8>()? {
                bytes.push(byte);
            }
            Ok(bytes.into())
        }
    }
}
