//! Spans of traced jobs for an exporter: push, wait, run, settle. Without an exporter each event costs one branch; with
//! one, a span that finds the queue full is dropped and counted, and nothing waits.

use super::job_meters::JobOutcome;
use super::meters::Counter;
use crate::engine::{Engine, Inner};
use crate::transaction::Moved;
use crate::verbs::{Push, Pushed};
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass_core::trace::{self, JobTrace, TraceContext};
use windlass_core::{Event, Job, JobId, JobSpec, Name, Queue, Tenant, Timestamp};
use windlass_store::Change;

/// Longest error message in a span; a collector keeps it for weeks.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// Part of a job's life that a span covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanPart {
    /// From the request to the commit.
    Push,
    /// From when the job was due to its claim.
    Wait,
    /// From the claim to the end of the run.
    Run,
    /// From the end of the run to its commit.
    Settle,
}

impl SpanPart {
    pub fn as_str(self) -> &'static str {
        match self {
            SpanPart::Push => "push",
            SpanPart::Wait => "wait",
            SpanPart::Run => "run",
            SpanPart::Settle => "settle",
        }
    }
}

/// Span of a job. Holds nothing of its payload, so that a full queue stays small.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpan {
    pub part: SpanPart,
    pub trace_id: u128,
    pub span_id: u64,
    pub parent: Option<u64>,
    pub from: Timestamp,
    pub until: Timestamp,
    pub id: JobId,
    pub tenant: Tenant,
    pub queue: Queue,
    pub name: Name,
    /// Number of the attempt; `None` for a push.
    pub attempt: Option<u32>,
    pub worker: Option<Arc<str>>,
    /// Way in which a run ended.
    pub outcome: Option<&'static str>,
    pub error: Option<SpanError>,
}

/// Error of a failed attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanError {
    pub class: Option<String>,
    pub message: String,
}

/// Recorder of spans; unset until an exporter asks for them.
#[derive(Debug)]
pub(crate) struct Spans {
    queue: mpsc::Sender<JobSpan>,
    /// Share of the jobs without a trace context for which the server begins a trace.
    share: f64,
}

impl Engine {
    /// Records spans from now on, in a queue of this length; begins a trace for `share` of the jobs that are pushed
    /// without one. `None`: they are recorded already.
    pub fn record_spans(&self, share: f64, queued_max: usize) -> Option<mpsc::Receiver<JobSpan>> {
        let (queue, spans) = mpsc::channel(queued_max);
        self.inner.spans.set(Spans { queue, share }).ok()?;
        Some(spans)
    }

    /// Handle whose pushes belong to this trace, unless the job has a trace context of its own.
    pub fn in_trace(self, context: Option<TraceContext>) -> Engine {
        Engine { trace: context, ..self }
    }

    /// Adds the trace context of this handle to the tags of new jobs that have none, for jobs that are pushed later by another
    /// handle.
    pub fn add_own_trace(&self, jobs: &mut [Push]) {
        self.add_trace_tags_with(jobs, None);
    }

    /// Adds the trace context to the tags of new jobs that have none: that of this handle, or of a new trace.
    pub(crate) fn add_trace_tags(&self, jobs: &mut [Push]) {
        self.add_trace_tags_with(jobs, self.inner.spans.get());
    }

    /// Repeating jobs get no tag, because each of their runs has a trace of its own.
    fn add_trace_tags_with(&self, jobs: &mut [Push], spans: Option<&Spans>) {
        if self.trace.is_none() && spans.is_none() {
            return;
        }
        let given = self.trace.map(|context| context.tag());
        for push in jobs.iter_mut().filter(|push| push.policy.repeat.is_none()) {
            let tags = push.extras.as_ref().map_or(&[][..], |extras| &extras.tags);
            if tags.iter().any(|tag| tag.starts_with(trace::TAG)) {
                continue;
            }
            let begun = || {
                let share = spans?.share;
                let context = TraceContext::begin([self.random_u64(), self.random_u64()]);
                trace::is_chosen(context.trace_id, share).then(|| context.tag())
            };
            if let Some(tag) = given.clone().or_else(begun) {
                push.extras.get_or_insert_default().tags.push(tag);
            }
        }
    }

    /// Trace context for a program that runs this claimed job: inside the span of the run if that is recorded, else as it
    /// was pushed.
    pub fn trace_within(&self, job: &Job) -> Option<TraceContext> {
        let recorded = self.inner.spans.get().and_then(|spans| JobTrace::of_claimed(job, spans.share));
        match (recorded, job.state().lease()) {
            (Some(trace), Some(lease)) => Some(trace.within_run(lease.token.number())),
            _ => TraceContext::of_tags(job.spec.tags()),
        }
    }
}

impl Inner {
    /// True if spans are recorded.
    pub(crate) fn has_spans(&self) -> bool {
        self.spans.get().is_some()
    }

    /// True if changes of a family have to be reported: to the feed, or as spans.
    pub(crate) fn has_observers(&self) -> bool {
        self.feed.has_listeners() || self.has_spans()
    }

    pub(crate) fn record_pushes(&self, pushed: &[Pushed], specs: &[Arc<JobSpec>], from: Timestamp) {
        let Some(spans) = self.spans.get() else { return };
        let until = self.now();
        for (pushed, spec) in pushed.iter().zip(specs) {
            let Pushed::New(id) = pushed else { continue };
            let Some(trace) = JobTrace::of(spec, *id) else { continue };
            let Some(push) = trace.push else { continue };
            let ids = (push, trace.outer);
            let span = span(SpanPart::Push, &trace, ids, (from, until), (*id, spec));
            spans.send(span, &self.meters.spans_dropped);
        }
    }

    pub(crate) fn record_claims(&self, jobs: &[Arc<Job>]) {
        let Some(spans) = self.spans.get() else { return };
        for job in jobs {
            let (Some(lease), Some(due_at)) = (job.state().lease(), waited_since(job)) else { continue };
            let Some(trace) = JobTrace::of_claimed(job, spans.share) else { continue };
            let token = lease.token.number();
            let ids = (trace.wait_span(token), Some(trace.wait_parent(token)));
            let times = (due_at, lease.granted_at.max(due_at));
            let span = JobSpan {
                attempt: Some(job.progress.attempts),
                ..span(SpanPart::Wait, &trace, ids, times, (job.id, &job.spec))
            };
            spans.send(span, &self.meters.spans_dropped);
        }
    }

    /// Records the end of a run, if the event ended one.
    pub(crate) fn record_end(&self, event: &Event, moved: &Moved) {
        let Some(spans) = self.spans.get() else { return };
        // A turn that came too late was not handed out.
        if !ends_run(&moved.before, moved.after.as_deref()) || matches!(event, Event::Skip { .. }) {
            return;
        }
        let outcome = JobOutcome::of(event, moved).map(JobOutcome::as_str);
        self.record_run(spans, &moved.before, moved.after.as_deref(), (outcome, error_of(event)));
    }

    /// Records the end of a run that a change in the family of the job ended.
    pub(crate) fn record_family_end(&self, change: &Change) {
        let Some(spans) = self.spans.get() else { return };
        if ends_run(&change.before, change.after.as_deref()) {
            self.record_run(spans, &change.before, change.after.as_deref(), (None, None));
        }
    }

    fn record_run(
        &self,
        spans: &Spans,
        before: &Job,
        after: Option<&Job>,
        (outcome, error): (Option<&'static str>, Option<SpanError>),
    ) {
        let Some(lease) = before.state().lease() else { return };
        let Some(trace) = JobTrace::of_claimed(before, spans.share) else { return };
        let (token, committed_at) = (lease.token.number(), self.now());
        let ended_at = after.map_or(committed_at, |job| job.progress.updated_at);
        let ended_at = ended_at.clamp(lease.granted_at, committed_at.max(lease.granted_at));
        let of = (before.id, &*before.spec);
        let ids = (trace.run_span(token), trace.push);
        let outcome = outcome.or(after.map(|job| job.state().name().as_str()));
        let run = JobSpan {
            attempt: Some(before.progress.attempts),
            worker: lease.worker.clone(),
            outcome: Some(outcome.unwrap_or("deleted")),
            error,
            ..span(SpanPart::Run, &trace, ids, (lease.granted_at, ended_at), of)
        };
        let ids = (trace.settle_span(token), Some(run.span_id));
        let times = (ended_at, committed_at.max(ended_at));
        let settle = JobSpan {
            attempt: run.attempt,
            outcome: run.outcome,
            ..span(SpanPart::Settle, &trace, ids, times, of)
        };
        spans.send(run, &self.meters.spans_dropped);
        spans.send(settle, &self.meters.spans_dropped);
    }
}

impl Spans {
    fn send(&self, span: JobSpan, dropped: &Counter) {
        if self.queue.try_send(span).is_err() {
            dropped.add(1);
        }
    }
}

/// Time since when a claimed job was ready. `None` if it is not known: a turn that was requested runs ahead of its due time, and a
/// parent, a retried turn or a job whose lease expired may keep the due time of its last run.
pub(crate) fn waited_since(job: &Job) -> Option<Timestamp> {
    let due_at = job.progress.due_at;
    let is_ahead = job.state().lease().is_some_and(|lease| lease.ahead);
    let has_run_since = job.progress.prior_start.is_some_and(|start| start >= due_at);
    (!is_ahead && !has_run_since).then(|| due_at.max(job.spec.created_at))
}

fn ends_run(before: &Job, after: Option<&Job>) -> bool {
    let token = |job: &Job| job.state().lease().map(|lease| lease.token);
    token(before).is_some() && after.and_then(token) != token(before)
}

fn span(
    part: SpanPart,
    trace: &JobTrace,
    (span_id, parent): (u64, Option<u64>),
    (from, until): (Timestamp, Timestamp),
    (id, spec): (JobId, &JobSpec),
) -> JobSpan {
    JobSpan {
        part,
        trace_id: trace.trace_id,
        span_id,
        parent,
        from,
        until,
        id,
        tenant: spec.tenant.clone(),
        queue: spec.queue.clone(),
        name: spec.name.clone(),
        attempt: None,
        worker: None,
        outcome: None,
        error: None,
    }
}

fn error_of(event: &Event) -> Option<SpanError> {
    match event {
        Event::Fail(failure) => {
            let outcome = &failure.outcome;
            let message = outcome.message.as_deref().unwrap_or("the attempt failed");
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
            Some(SpanError { class: outcome.class.clone(), message: message[..end].to_owned() })
        }
        Event::Lapse { .. } | Event::LapseInOutage { .. } => {
            Some(SpanError { class: None, message: "the lease expired".to_owned() })
        }
        _ => None,
    }
}
