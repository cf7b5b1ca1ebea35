//! Spans in OTLP's JSON encoding (`ExportTraceServiceRequest`).

use super::json::{KeyValue, Resource, ResourceJson, Scope, nanos, number, text};
use serde::Serialize;
use windlass_engine::spans::{JobSpan, SpanPart};

/// Numbers of `SpanKind`.
const INTERNAL: u8 = 1;
const PRODUCER: u8 = 4;
const CONSUMER: u8 = 5;
/// Number of `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// Flag of a sampled trace.
const SAMPLED: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: ResourceJson<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<Span<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    flags: u32,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u8,
    message: &'a str,
}

pub(super) fn encode(resource: &Resource, spans: &[JobSpan]) -> Vec<u8> {
    let spans = spans.iter().map(span).collect();
    let scope_spans = [ScopeSpans { scope: resource.scope(), spans }];
    let request = Request { resource_spans: [ResourceSpans { resource: resource.json(), scope_spans }] };
    // Cannot fail: the keys are texts, and no number is a fraction.
    serde_json::to_vec(&request).unwrap_or_default()
}

fn span(span: &JobSpan) -> Span<'_> {
    Span {
        trace_id: format!("{:032x}", span.trace_id),
        span_id: format!("{:016x}", span.span_id),
        parent_span_id: span.parent.map(|parent| format!("{parent:016x}")),
        flags: SAMPLED,
        name: format!("{} {}", span.part.as_str(), span.name),
        kind: match span.part {
            SpanPart::Push => PRODUCER,
            SpanPart::Run => CONSUMER,
            SpanPart::Wait | SpanPart::Settle => INTERNAL,
        },
        start_time_unix_nano: nanos(span.from.calendar_ms()),
        end_time_unix_nano: nanos(span.until.calendar_ms()),
        attributes: attributes(span),
        status: span.error.as_ref().map(|error| Status { code: ERROR, message: &error.message }),
    }
}

/// Attributes by the conventions for messaging, and those of jobs under `windlass.`.
fn attributes(span: &JobSpan) -> Vec<KeyValue<'_>> {
    let mut attributes = vec![
        text("messaging.system", "windlass"),
        text("messaging.operation.name", span.part.as_str()),
        text("messaging.destination.name", &span.queue),
        text("windlass.tenant", &span.tenant),
        text("windlass.job.name", &span.name),
        number("windlass.job.id", span.id.get()),
    ];
    let kind = match span.part {
        SpanPart::Push => Some("send"),
        SpanPart::Run => Some("process"),
        SpanPart::Settle => Some("settle"),
        SpanPart::Wait => None,
    };
    attributes.extend(kind.map(|kind| text("messaging.operation.type", kind)));
    attributes.extend(span.attempt.map(|attempt| number("windlass.job.attempt", attempt.into())));
    attributes.extend(span.worker.as_deref().map(|worker| text("messaging.client.id", worker)));
    attributes.extend(span.outcome.map(|outcome| text("windlass.outcome", outcome)));
    let class = span.error.as_ref().map(|error| error.class.as_deref().unwrap_or("_OTHER"));
    attributes.extend(class.map(|class| text("error.type", class)));
    attributes
}
