//! Trace context of a job, in the form of W3C Trace Context, and the ids of the spans about it. The context is kept in a
//! tag of the job, where the client libraries read and write it.
//!
//! Span ids are computed from the job and its lease, not stored: each server of a store finds the same ids.

use crate::{Job, JobId, JobSpec, Timestamp};
use std::fmt;
use std::sync::Arc;

/// Beginning of the tag that carries the trace context of a job.
pub const TAG: &str = "traceparent=";

const SAMPLED: u8 = 1;
/// Length of `00-<32 digits>-<16 digits>-<2 digits>`. Later versions of the format may append more.
const TEXT_BYTES: usize = 55;

/// Trace, span and flags as in a `traceparent` header. Neither id is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

impl TraceContext {
    /// Parses a `traceparent` header. Of versions after 00 the known part is read, as the standard requires.
    pub fn parse(text: &str) -> Option<TraceContext> {
        let version = u8::try_from(hex(text.get(..2)?)?).ok()?;
        let is_complete = match version {
            0xff => false,
            0 => text.len() == TEXT_BYTES,
            _ => text.len() == TEXT_BYTES || text.as_bytes().get(TEXT_BYTES) == Some(&b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|place| text.as_bytes().get(*place) == Some(&b'-'));
        if !is_complete || !dashes {
            return None;
        }
        let trace_id = hex(text.get(3..35)?)?;
        let span_id = u64::try_from(hex(text.get(36..52)?)?).ok()?;
        let flags = u8::try_from(hex(text.get(53..55)?)?).ok()?;
        (trace_id != 0 && span_id != 0).then_some(TraceContext { trace_id, span_id, flags })
    }

    /// Context in the tags of a job.
    pub fn of_tags(tags: &[Arc<str>]) -> Option<TraceContext> {
        tags.iter().find_map(|tag| TraceContext::parse(tag.strip_prefix(TAG)?))
    }

    /// First context of a new trace that the server begins; `random`: two random numbers.
    pub fn begin(random: [u64; 2]) -> TraceContext {
        let trace_id = (u128::from(random[0]) << 64 | u128::from(random[1])).max(1);
        TraceContext { trace_id, span_id: root_span(trace_id), flags: SAMPLED }
    }

    pub fn tag(&self) -> Arc<str> {
        format!("{TAG}{self}").into()
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// True if the server itself began the trace: its first span is then the push.
    fn is_own(&self) -> bool {
        self.span_id == root_span(self.trace_id)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// Lower-case hexadecimal digits only, as in the standard.
fn hex(text: &str) -> Option<u128> {
    let is_hex = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// True if a new trace with this id belongs to the recorded share. Decided by the lower half of the id, like the samplers
/// of OpenTelemetry, so that programs with equal shares agree.
pub fn is_chosen(trace_id: u128, share: f64) -> bool {
    const ALL: f64 = (1_u64 << 63) as f64;
    // The product fits into 64 bits: at most 2^63, which is above every place.
    let (place, bound) = ((trace_id as u64) >> 1, (share * ALL) as u64);
    place < bound
}

/// Trace of one job, with the ids of its spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTrace {
    pub trace_id: u128,
    /// Span outside of the server in which the job was pushed.
    pub outer: Option<u64>,
    /// Span of the push; `None`: the trace begins with a run.
    pub push: Option<u64>,
    seed: u64,
}

impl JobTrace {
    /// Trace that the job's tag says is recorded.
    pub fn of(spec: &JobSpec, id: JobId) -> Option<JobTrace> {
        let context = TraceContext::of_tags(spec.tags())?;
        context.is_sampled().then(|| JobTrace::new(&context, id, spec.created_at))
    }

    /// Trace of a claimed job. A repeating job without a tag has a trace per run, of which `share` are recorded: one trace
    /// for all its runs would never end.
    pub fn of_claimed(job: &Job, share: f64) -> Option<JobTrace> {
        if let Some(context) = TraceContext::of_tags(job.spec.tags()) {
            return context.is_sampled().then(|| JobTrace::new(&context, job.id, job.spec.created_at));
        }
        let token = job.state().lease()?.token.number();
        job.spec.policy.repeat.as_ref()?;
        let created_ms = job.spec.created_at.as_millis().cast_unsigned();
        let upper = mixed(&[job.id.get(), created_ms, token]);
        let context = TraceContext::begin([upper, mixed(&[upper, token])]);
        let trace = JobTrace::new(&context, job.id, job.spec.created_at);
        is_chosen(context.trace_id, share).then_some(JobTrace { push: None, ..trace })
    }

    fn new(context: &TraceContext, id: JobId, created_at: Timestamp) -> JobTrace {
        let created_ms = created_at.as_millis().cast_unsigned();
        let seed = mixed(&[context.span_id, id.get(), created_ms]);
        let outer = (!context.is_own()).then_some(context.span_id);
        let push = Some(outer.map_or(context.span_id, |_| mixed(&[seed, 1])));
        JobTrace { trace_id: context.trace_id, outer, push, seed }
    }

    /// Parent of the span of a wait: the push, or the run for which the job waited.
    pub fn wait_parent(&self, token: u64) -> u64 {
        self.push.unwrap_or_else(|| self.run_span(token))
    }

    pub fn wait_span(&self, token: u64) -> u64 {
        mixed(&[self.seed, 2, token])
    }

    pub fn run_span(&self, token: u64) -> u64 {
        mixed(&[self.seed, 3, token])
    }

    pub fn settle_span(&self, token: u64) -> u64 {
        mixed(&[self.seed, 4, token])
    }

    /// Context inside a run, for the programs that it calls.
    pub fn within_run(&self, token: u64) -> TraceContext {
        TraceContext { trace_id: self.trace_id, span_id: self.run_span(token), flags: SAMPLED }
    }
}

/// Span id of the push in a trace that the server began.
fn root_span(trace_id: u128) -> u64 {
    mixed(&[(trace_id >> 64) as u64, trace_id as u64])
}

/// Mixes numbers into one that is not zero. Must never change: several servers of different versions share a store.
fn mixed(parts: &[u64]) -> u64 {
    // The finalizer of SplitMix64 after each part.
    let mixed = parts.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |sum, part| {
        let mut x = sum.wrapping_add(*part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    });
    mixed.max(1)
}

#[cfg(test)]
mod tests;
