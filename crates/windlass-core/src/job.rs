//! What a job is: what was asked (`JobSpec`, `Policy`), what moves (`Progress`, `Body`), and where it stands.

use crate::family::Family;
use crate::lease::LeasePolicy;
use crate::ports::Ports;
use crate::repeat::{Repeat, Span};
use crate::retry::RetryPolicy;
use crate::state::JobState;
use crate::trail::{Log, MARKS_KEPT, Mark};
use crate::unique::Unique;
use crate::{Name, Queue, Tenant, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

/// 1, 2, 3, … per store, never reused.
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

/// Bytes as they came. Converted at the edge only, when another dialect must read them.
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

/// How long a settled job stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepFor {
    Drop,
    Ms(i64),
    Ever,
}

impl KeepFor {
    pub fn expires_at(self, settled_at: Timestamp) -> Option<Timestamp> {
        match self {
            KeepFor::Drop => Some(settled_at),
            KeepFor::Ms(ms) => Some(settled_at.plus_ms(ms)),
            KeepFor::Ever => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    pub completed: KeepFor,
    pub failed: KeepFor,
    pub cancelled: KeepFor,
}

impl Default for Keep {
    /// Completed jobs for an hour, to be looked at; failed ones until someone has dealt with them.
    fn default() -> Self {
        Keep {
            completed: KeepFor::Ms(3_600_000),
            failed: KeepFor::Ever,
            cancelled: KeepFor::Ms(7 * 86_400_000),
        }
    }
}

/// What becomes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultPolicy {
    /// Counted from the job's end, and never longer than the job itself is kept.
    pub keep: KeepFor,
    /// The first who asks for it takes it away.
    pub once: bool,
}

impl Default for ResultPolicy {
    fn default() -> Self {
        ResultPolicy { keep: KeepFor::Ever, once: false }
    }
}

/// The rules a job lives by. Jobs of one kind share one, so a waiting job costs a pointer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Policy {
    #[serde(skip_serializing_if = "is_default")]
    pub lease: LeasePolicy,
    /// In place of `lease.length_ms`: the lease ends so far away by the calendar, or when the next turn of a repeating
    /// job comes, if that is sooner.
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
    /// Runs of one job in one minute by the clock; who would begin one more is given its last run instead: the job goes
    /// round in a circle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_per_minute: Option<u32>,
    /// A repeating job whose attempts are used up waits for its next turn instead of ending.
    #[serde(skip_serializing_if = "is_default")]
    pub repeat_after_failure: bool,
    /// A repeat rule counts from when the latest run was due, be that a retry. Otherwise all runs of one turn have its slot.
    #[serde(skip_serializing_if = "is_default")]
    pub retry_moves_slot: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The rarer things that may be asked of a job; most have none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Extras {
    /// The dialect it came by, for people to see; nothing below the dialects looks at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<str>>,
    /// Another id for the same job, unique per tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Limits this job counts against: set by the engine when the job is made or the limits change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limit_keys: Vec<Arc<str>>,
    /// Its first run is at a date that somebody named, not so long after the push: it moves with the calendar when the
    /// machine's clock is set.
    #[serde(skip_serializing_if = "is_default")]
    pub dated: bool,
    /// Words of the dialect it came by that no rule needs, such as a date as it was typed; only that dialect reads them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<Arc<str>, Arc<str>>,
}

/// What was asked. Changes only by an explicit update.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    pub payload: Payload,
    /// Smaller first.
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

/// What moves while the job lives; small, rewritten with every transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Progress {
    /// Attempts that counted, the present one included.
    pub attempts: u32,
    /// When the present or next run was due: what a repeat rule calls "scheduled".
    pub due_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// When the run before the present or last one began.
    #[serde(default)]
    pub prior_start: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Children this job has to wait for.
    pub pending_children: u32,
    /// Counted only where the policy bounds them.
    #[serde(default)]
    pub minute_runs: MinuteRuns,
}

/// Runs begun in the latest minute that had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct MinuteRuns {
    /// Since the epoch.
    pub minute: u32,
    pub count: u32,
}

/// An attempt that ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct AttemptError {
    pub attempt: u32,
    pub at: Timestamp,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Who was at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Arc<str>>,
}

/// How a job ended, or how its last run did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Outcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// The error as data, where the protocol has such a thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Payload>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Who said so, where the protocol wants to know afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Arc<str>>,
    /// When the run ended, where that is not when it was noticed: by the worker's own clock, or with its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Errors kept per job: enough to see a pattern, few enough to stay small.
pub const ERRORS_KEPT: usize = 10;

/// The larger, rarer part of what moves; kept apart from the row that every claim rewrites.
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
    /// Ports and state of long-lived jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Arc<Ports>>,
    /// What its runs have said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<Log>>,
    /// What was done to it by those who say who they are, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

impl Body {
    pub fn remember_error(&mut self, error: AttemptError) {
        if self.errors.len() == ERRORS_KEPT {
            self.errors.remove(0);
        }
        self.errors.push(error);
    }

    pub fn remember_mark(&mut self, mark: Mark) {
        if self.marks.len() == MARKS_KEPT {
            self.marks.remove(0);
        }
        self.marks.push(mark);
    }
}

/// A job as one version of it stands. Cheap to clone: the large parts are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    /// Grows by one with every commit; guards against writing over someone else's change.
    pub version: u64,
    pub spec: Arc<JobSpec>,
    pub progress: Progress,
    pub body: Option<Arc<Body>>,
    /// Changed by `transition` alone.
    pub(crate) state: JobState,
}

impl Job {
    /// For stores, which put back together what they wrote apart.
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

    /// Whether its present run is its last because it had too many in one minute.
    pub fn runs_too_often(&self) -> bool {
        let max = self.spec.policy.runs_per_minute;
        self.state.lease().is_some() && max.is_some_and(|max| self.progress.minute_runs.count > max)
    }

    /// When the store may forget it, if ever.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let keep = &self.spec.policy.keep;
        match &self.state {
            JobState::Completed { at } => keep.completed.expires_at(*at),
            JobState::Failed { at } => keep.failed.expires_at(*at),
            JobState::Cancelled { at } => keep.cancelled.expires_at(*at),
            _ => None,
        }
    }

    /// The result, if it has one.
    pub fn result(&self) -> Option<&Payload> {
        self.body.as_ref()?.outcome.as_ref()?.result.as_ref()
    }

    /// When its result is let go, where that is planned before the job itself goes.
    pub fn result_expires_at(&self) -> Option<Timestamp> {
        let settled_at = match &self.state {
            JobState::Completed { at } | JobState::Failed { at } | JobState::Cancelled { at } => *at,
            _ => return None,
        };
        self.result()?;
        self.spec.policy.result.keep.expires_at(settled_at)
    }

    /// The next moment at which this job needs attention without anyone asking.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            JobState::Running(lease) => lease.until,
            _ => [self.expires_at(), self.result_expires_at()].into_iter().flatten().min(),
        }
    }

    /// The date it waits for, on the timeline, if that was named by a person or a calendar rule. Other times to wait for
    /// are distances: delays, backoff, intervals.
    pub fn appointment(&self) -> Option<Timestamp> {
        let at = match &self.state {
            JobState::Ready { run_at, .. } => *run_at,
            JobState::Waiting => self.progress.due_at,
            _ => return None,
        };
        let is_first_try = self.progress.attempts == 0 && at == self.progress.due_at;
        // A date that was named is for the first run; later ones are a rule's, or so long after something.
        let is_named = self.spec.is_dated() && self.progress.started_at.is_none();
        let names_dates = is_named || self.spec.policy.repeat.as_ref().is_some_and(Repeat::names_dates);
        (is_first_try && names_dates).then_some(at)
    }

    /// Whether its unique key still keeps others out.
    pub fn holds_unique_key(&self) -> bool {
        self.spec.unique().is_some_and(|unique| unique.held_in(&self.state))
    }
}

mod shared_bytes {
    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(bytes: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
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
