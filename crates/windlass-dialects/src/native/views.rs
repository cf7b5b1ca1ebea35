//! How jobs, queues and answers look from outside.

use super::errors::ApiError;
use super::rates::Flow;
use crate::codec::Out;
use crate::query::QueueCounts;
use windlass_core::family::Family;
use windlass_core::job::AttemptError;
use windlass_core::ports::{Port, Side};
use windlass_core::unique::{HeldUntil, OnConflict};
use windlass_core::{Job, JobId, JobState, Outcome, StateName, Timestamp};
use windlass_engine::{Extended, Pushed, Settled, VerbError};

/// Room for one job beside its payload; a guess that saves most of the growing.
pub const JOB_BYTES_GUESS: usize = 320;

pub fn pushed(out: &mut Out, answers: &[Pushed]) {
    out.begin_map();
    out.key("ids");
    out.begin_array();
    for answer in answers {
        // In step with what was sent: a refused job leaves a gap.
        match answer.id() {
            Some(id) => out.uint(id.get()),
            None => out.null(),
        }
    }
    out.end_array();
    if let [Pushed::New(id) | Pushed::Existing(id)] = answers {
        out.key("id");
        out.uint(id.get());
    }
    out.key("existing");
    out.begin_array();
    for answer in answers {
        if let Pushed::Existing(id) = answer {
            out.uint(id.get());
        }
    }
    out.end_array();
    if answers.iter().any(|answer| matches!(answer, Pushed::Refused(_))) {
        out.key("refused");
        refused(out, answers);
    }
    out.end_map();
}

fn refused(out: &mut Out, answers: &[Pushed]) {
    out.begin_array();
    for (index, answer) in answers.iter().enumerate() {
        let Pushed::Refused(refused) = answer else { continue };
        let error = ApiError::from(*refused);
        out.begin_map();
        out.key("index");
        out.uint(index as u64);
        out.key("code");
        out.str(error.code);
        out.key("message");
        out.str(&error.message);
        if let Some(id) = error.id {
            out.key("id");
            out.uint(id.get());
        }
        out.end_map();
    }
    out.end_array();
}

/// A job as its worker gets it. The only place where a token leaves the server.
pub fn claimed(out: &mut Out, job: &Job) {
    let spec = &job.spec;
    out.begin_map();
    out.key("id");
    out.uint(job.id.get());
    if let Some(lease) = job.state().lease() {
        out.key("token");
        out.uint(lease.token.number());
        out.key("lease_until");
        match lease.until {
            Some(until) => out.int(until.calendar_ms()),
            None => out.null(),
        }
    }
    out.key("name");
    out.str(&spec.name);
    out.key("queue");
    out.str(&spec.queue);
    out.payload("payload", &spec.payload);
    out.key("attempt");
    out.uint(job.progress.attempts.into());
    out.key("priority");
    out.int(spec.priority.into());
    out.key("created_at");
    out.int(spec.created_at.calendar_ms());
    out.key("run_at");
    out.int(job.progress.due_at.calendar_ms());
    tags(out, job);
    progress(out, job);
    out.end_map();
}

fn tags(out: &mut Out, job: &Job) {
    if !job.spec.tags().is_empty() {
        out.key("tags");
        out.begin_array();
        job.spec.tags().iter().for_each(|tag| out.str(tag));
        out.end_array();
    }
}

fn progress(out: &mut Out, job: &Job) {
    let Some(body) = job.body.as_ref().filter(|body| body.percent.is_some() || body.note.is_some()) else {
        return;
    };
    out.key("progress");
    out.begin_map();
    out.opt_int("percent", body.percent.map(i64::from));
    out.opt_str("note", body.note.as_deref());
    out.end_map();
}

pub fn settled(out: &mut Out, id: JobId, answer: &Result<Settled, VerbError>) {
    out.begin_map();
    entry(out, id, answer.as_ref().map(drop).map_err(|e| *e));
    if let Ok(settled) = answer {
        out.key("state");
        out.str(settled.state.map_or("gone", StateName::as_str));
        out.opt_int("run_at", settled.run_at.map(Timestamp::as_millis));
    }
    out.end_map();
}

pub fn extended(out: &mut Out, id: JobId, answer: &Result<Extended, VerbError>) {
    out.begin_map();
    entry(out, id, answer.as_ref().map(drop).map_err(|e| *e));
    if let Ok(extended) = answer {
        out.key("lease_until");
        match extended.until {
            Some(until) => out.int(until.calendar_ms()),
            None => out.null(),
        }
        out.key("cancel");
        out.bool(extended.cancel_asked);
    }
    out.end_map();
}

fn entry(out: &mut Out, id: JobId, answer: Result<(), VerbError>) {
    out.key("id");
    out.uint(id.get());
    out.key("ok");
    out.bool(answer.is_ok());
    if let Err(error) = answer {
        out.key("error");
        ApiError::from(error).write(out);
    }
}

/// Why a job is not running, where that takes more than a look at the job itself.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub now: Timestamp,
    pub queue_is_paused: bool,
    /// The limit that lets it not start now.
    pub held_by: Option<String>,
}

/// Everything about one job but its token, and what it works on where that is `hidden`.
pub fn job(out: &mut Out, job: &Job, around: Option<&Surroundings>, hidden: bool) {
    out.begin_map();
    job_fields(out, job, around, hidden);
    out.end_map();
}

pub fn job_fields(out: &mut Out, job: &Job, around: Option<&Surroundings>, hidden: bool) {
    let spec = &job.spec;
    out.key("id");
    out.uint(job.id.get());
    for (key, text) in [("name", &*spec.name), ("queue", &*spec.queue), ("tenant", &*spec.tenant)] {
        out.key(key);
        out.str(text);
    }
    out.key("state");
    out.str(job.state().name().as_str());
    out.key("priority");
    out.int(spec.priority.into());
    if hidden {
        out.key("hidden");
        out.bool(true);
    } else {
        out.payload("payload", &spec.payload);
    }
    attempts_and_times(out, job);
    lease(out, job);
    // Words and results of a worker tell of the payload.
    if !hidden {
        progress(out, job);
        if let Some(body) = &job.body {
            errors(out, &body.errors);
            if let Some(last) = &body.outcome {
                outcome(out, last);
            }
        }
        // A page of jobs would become a page of their data.
        if around.is_some() {
            ports(out, job);
        }
    }
    rare(out, job);
    tags(out, job);
    if let Some(around) = around {
        waiting_for(out, job, around);
    }
}

/// Values shown of one port: enough to see what flows; all of them can be read through the dialect that has ports.
const PORT_VALUES_SHOWN: usize = 100;
/// Bytes of values shown of one port, for the same reason.
const PORT_BYTES_SHOWN: usize = 64 << 10;

/// Ports and state of long-lived jobs; nothing for the others.
fn ports(out: &mut Out, job: &Job) {
    let Some(ports) = job.ports() else { return };
    out.key("ports");
    out.begin_map();
    for (key, side) in [("inports", Side::In), ("outports", Side::Out)] {
        out.key(key);
        out.begin_map();
        for (name, shown) in ports.iter(side) {
            out.key(name);
            port(out, shown);
        }
        out.end_map();
    }
    out.end_map();
    out.key("custom_state");
    out.begin_map();
    for (key, value) in ports.state() {
        out.key(key);
        out.json(value.as_str());
    }
    out.end_map();
}

fn port(out: &mut Out, port: &Port) {
    out.begin_map();
    out.key("size");
    out.uint(port.size() as u64);
    if let Some(default) = port.default_value() {
        out.key("default");
        out.json(default.as_str());
    }
    out.key("values");
    out.begin_array();
    let mut bytes = 0;
    for value in port.items().take(PORT_VALUES_SHOWN) {
        bytes += value.as_str().len();
        if bytes > PORT_BYTES_SHOWN {
            break;
        }
        out.json(value.as_str());
    }
    out.end_array();
    out.end_map();
}

fn attempts_and_times(out: &mut Out, job: &Job) {
    let progress = &job.progress;
    out.key("attempts");
    out.uint(progress.attempts.into());
    out.opt_int("max_attempts", job.spec.policy.retry.max_attempts.map(i64::from));
    let run_at = job.state().claimable_at().unwrap_or(progress.due_at);
    for (key, at) in
        [("created_at", job.spec.created_at), ("run_at", run_at), ("updated_at", progress.updated_at)]
    {
        out.key(key);
        out.int(at.calendar_ms());
    }
    out.opt_int("started_at", progress.started_at.map(Timestamp::as_millis));
    out.opt_int("finished_at", progress.finished_at.map(Timestamp::as_millis));
    out.opt_int("expires_at", job.expires_at().map(Timestamp::as_millis));
}

fn lease(out: &mut Out, job: &Job) {
    let Some(lease) = job.state().lease() else { return };
    out.key("lease");
    out.begin_map();
    out.opt_str("worker", lease.worker.as_deref());
    out.key("granted_at");
    out.int(lease.granted_at.calendar_ms());
    out.opt_int("until", lease.until.map(Timestamp::as_millis));
    out.key("cancel_asked");
    out.bool(lease.cancel_asked);
    out.end_map();
}

fn errors(out: &mut Out, errors: &[AttemptError]) {
    if errors.is_empty() {
        return;
    }
    out.key("errors");
    out.begin_array();
    for error in errors {
        out.begin_map();
        out.key("attempt");
        out.uint(error.attempt.into());
        out.key("at");
        out.int(error.at.calendar_ms());
        out.key("message");
        out.str(&error.message);
        out.opt_int("started_at", error.started_at.map(Timestamp::as_millis));
        out.opt_str("worker", error.worker.as_deref());
        out.end_map();
    }
    out.end_array();
}

fn outcome(out: &mut Out, outcome: &Outcome) {
    if let Some(result) = &outcome.result {
        out.payload("result", result);
    }
    if let Some(error) = &outcome.error {
        out.payload("error", error);
    }
    out.opt_str("message", outcome.message.as_deref());
    out.opt_str("code", outcome.code.as_deref());
    out.opt_int("exit_code", outcome.exit_code.map(i64::from));
}

/// The dialect it came by.
pub fn origin(job: &Job) -> &str {
    job.spec.extras.as_ref().and_then(|extras| extras.origin.as_deref()).unwrap_or("native")
}

fn rare(out: &mut Out, job: &Job) {
    let spec = &job.spec;
    if let Some(repeat) = &spec.policy.repeat {
        out.key("repeat");
        out.str(repeat.text());
    }
    out.key("origin");
    out.str(origin(job));
    out.opt_str("alias", spec.alias());
    if let Some(unique) = spec.unique() {
        out.key("unique");
        out.begin_map();
        out.key("key");
        out.str(&unique.key);
        out.key("on_conflict");
        out.str(match unique.on_conflict {
            OnConflict::Return => "return",
            OnConflict::Update => "update",
            OnConflict::Refuse => "refuse",
        });
        out.key("held_until");
        out.str(match unique.held_until {
            HeldUntil::Settled => "settled",
            HeldUntil::Started => "started",
            HeldUntil::Forgotten => "forgotten",
        });
        out.end_map();
    }
    if let Some(Family { parent, child_name, .. }) = spec.family() {
        out.key("parent");
        out.uint(parent.get());
        out.opt_str("child_name", child_name.as_deref());
    }
    if job.progress.pending_children > 0 {
        out.key("pending_children");
        out.uint(job.progress.pending_children.into());
    }
}

/// One sentence's worth of why nobody is working on it.
fn waiting_for(out: &mut Out, job: &Job, around: &Surroundings) {
    let reason = match job.state() {
        JobState::Ready { run_at, .. } if *run_at > around.now => "due",
        JobState::Ready { .. } | JobState::Terminating { .. } if around.queue_is_paused => "paused queue",
        JobState::Ready { .. } | JobState::Terminating { .. } => match &around.held_by {
            Some(limit) => return out.opt_str("waiting_for", Some(&format!("limit {limit}"))),
            None => "a worker",
        },
        JobState::Waiting if job.progress.pending_children > 0 => {
            let children = format!("children {}", job.progress.pending_children);
            return out.opt_str("waiting_for", Some(&children));
        }
        JobState::Waiting => "parent",
        JobState::Suspended => "being run",
        JobState::Running(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Cancelled { .. }
        | JobState::Terminated { .. } => return,
    };
    out.opt_str("waiting_for", Some(reason));
}

/// How a job ended, for those who wait for it.
pub fn result(out: &mut Out, job: &Job, hidden: bool) {
    out.begin_map();
    out.key("id");
    out.uint(job.id.get());
    out.key("state");
    out.str(job.state().name().as_str());
    if !hidden {
        progress(out, job);
    }
    if job.state().is_settled()
        && !hidden
        && let Some(last) = job.body.as_ref().and_then(|body| body.outcome.as_ref())
    {
        outcome(out, last);
    }
    out.opt_int("finished_at", job.progress.finished_at.map(Timestamp::as_millis));
    out.end_map();
}

pub fn queue(out: &mut Out, counts: &QueueCounts, flow: Option<Flow>, now: Timestamp) {
    out.begin_map();
    out.key("queue");
    out.str(&counts.queue);
    out.key("tenant");
    out.str(&counts.tenant);
    out.key("paused");
    out.bool(counts.paused);
    states(out, counts);
    out.key("oldest_ms");
    match counts.oldest_due {
        Some(due) => out.int(now.since_ms(due)),
        None => out.null(),
    }
    let flow = flow.unwrap_or_default();
    out.key("pushed_per_s");
    out.float(flow.pushed_per_s);
    out.key("claimed_per_s");
    out.float(flow.claimed_per_s);
    let ready = counts.of(StateName::Ready).saturating_sub(counts.delayed);
    out.opt_int("empty_in_ms", flow.empties_in_ms(ready).filter(|_| !counts.paused));
    out.end_map();
}

/// Counts by state. `ready` could be claimed now; `delayed` is ready but for its time.
pub fn states(out: &mut Out, counts: &QueueCounts) {
    for state in StateName::ALL {
        let count = match state {
            StateName::Ready => counts.of(state).saturating_sub(counts.delayed),
            _ => counts.of(state),
        };
        out.key(state.as_str());
        out.uint(count);
    }
    out.key("delayed");
    out.uint(counts.delayed);
}
