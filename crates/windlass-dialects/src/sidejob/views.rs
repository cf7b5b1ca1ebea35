//! JSON of a job in this protocol.

use super::ports;
use super::runs::status;
use crate::codec::{Encoding, Out};
use std::sync::Arc;
use windlass_core::lease::RunKind;
use windlass_core::ports::Side;
use windlass_core::{Format, Job};

/// Keys of the state that only the server sets.
pub(super) const OWN_KEYS: [&str; 9] =
    ["queue", "class", "args", "status", "created_by", "created_at", "ran_at", "parent", "for_inputs"];
/// Fact that names the creator of the job.
pub(super) const BY: &str = "sidejob.by";

pub(super) fn text(out: Out) -> String {
    // JSON output is valid UTF-8.
    String::from_utf8(out.into_bytes()).unwrap_or_default()
}

/// Formats a job, with the sizes of its ports in place of their values.
pub(super) fn job(job: &Job, children: &[Arc<Job>]) -> String {
    let mut out = Out::new(Encoding::Json, 512);
    out.begin_map();
    out.key("job");
    out.uint(job.id.get());
    out.key("status");
    out.str(status(job));
    out.key("state");
    state(&mut out, job);
    let has = job.ports().map(|ports| &**ports);
    out.key("inports");
    ports::all_shown(&mut out, has, Side::In);
    out.key("outports");
    ports::all_shown(&mut out, has, Side::Out);
    out.key("children");
    family(&mut out, children);
    out.end_map();
    text(out)
}

/// Writes the server's keys and the keys set by clients as one object.
pub(super) fn state(out: &mut Out, job: &Job) {
    let spec = &job.spec;
    out.begin_map();
    for (key, text) in [("queue", &*spec.queue), ("class", &*spec.name)] {
        out.key(key);
        out.str(text);
    }
    out.key("args");
    args(out, job);
    out.key("status");
    out.str(status(job));
    out.key("created_by");
    match spec.fact(BY) {
        Some(by) => out.str(by),
        None => out.null(),
    }
    out.key("created_at");
    out.str(&spec.created_at.to_string());
    out.opt_str("ran_at", job.progress.started_at.map(|at| at.to_string()).as_deref());
    if let Some(family) = spec.family() {
        out.key("parent");
        out.uint(family.parent.get());
    }
    for (key, value) in job.ports().into_iter().flat_map(|ports| ports.state()) {
        out.key(key);
        out.json(value.as_str());
    }
    out.end_map();
}

/// Arguments as given, or null. The payload of a job from another dialect is its only argument.
fn args(out: &mut Out, job: &Job) {
    let payload = &job.spec.payload;
    let is_ours =
        payload.format == Format::Json && matches!(payload.bytes.trim_ascii().first(), Some(b'[' | b'n'));
    if is_ours {
        return out.content(payload);
    }
    out.begin_array();
    out.content(payload);
    out.end_array();
}

pub(super) fn family(out: &mut Out, children: &[Arc<Job>]) {
    out.begin_map();
    for child in children {
        let name = child.spec.family().and_then(|family| family.child_name.clone());
        out.key(&name.map_or_else(|| child.id.to_string(), |name| name.to_string()));
        out.uint(child.id.get());
    }
    out.end_map();
}

/// Formats a run for its worker.
pub(super) fn run(job: &Job) -> String {
    let mut out = Out::new(Encoding::Json, 512);
    out.begin_map();
    out.key("job");
    out.uint(job.id.get());
    out.key("class");
    out.str(&job.spec.name);
    out.key("args");
    match &*job.spec.payload.bytes {
        b"null" => {
            out.begin_array();
            out.end_array();
        }
        _ => args(&mut out, job),
    }
    if let Some(lease) = job.state().lease() {
        out.key("kind");
        out.str(match lease.kind {
            RunKind::Perform => "perform",
            RunKind::Shutdown => "shutdown",
        });
        out.key("token");
        out.str(&lease.token.number().to_string());
        if let Some(until) = lease.until {
            out.key("lease");
            out.float(until.since_ms(lease.granted_at) as f64 / 1_000.0);
        }
    }
    out.key("state");
    state(&mut out, job);
    out.end_map();
    text(out)
}
