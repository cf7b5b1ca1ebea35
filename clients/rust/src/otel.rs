//! Trace context of OpenTelemetry, with the feature `opentelemetry`: it travels in a tag of the job.

use crate::outcome::HandlerError;
use crate::run::{Job, Running, caught};
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, global};

/// Trace context of the current span in the format of W3C; `None` outside of a trace.
pub(crate) fn current() -> Option<String> {
    let context = Context::current();
    let span = context.span();
    let of = span.span_context();
    of.is_valid().then(|| format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags()))
}

/// Context of the span in which the job was pushed.
fn parent(traceparent: &str) -> Option<Context> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    let of = SpanContext::new(trace, span, flags, true, TraceState::default());
    of.is_valid().then(|| Context::new().with_remote_span_context(of))
}

/// Handler within a span, a child of the span in which the job was pushed.
pub(crate) fn traced(job: &Job, traceparent: Option<&str>, handler: Running) -> Running {
    let parent = traceparent.and_then(parent).unwrap_or_default();
    let tracer = global::tracer("windlass");
    let builder = tracer.span_builder(format!("process {}", job.name)).with_kind(SpanKind::Consumer);
    let attributes = [
        KeyValue::new("messaging.system", "windlass"),
        KeyValue::new("messaging.operation.name", "process"),
        KeyValue::new("windlass.task", job.name.clone()),
        KeyValue::new("windlass.job.id", i64::try_from(job.id).unwrap_or(i64::MAX)),
        KeyValue::new("windlass.job.attempt", i64::from(job.attempt)),
    ];
    let span = builder.with_attributes(attributes).start_with_context(&tracer, &parent);
    let context = parent.with_span(span);
    Box::pin(async move {
        let ended = caught(handler).with_context(context.clone()).await;
        if let Err(HandlerError { error, .. }) = &ended
            && !matches!(error.downcast_ref(), Some(crate::Error::Suspended))
        {
            context.span().set_status(Status::error(error.to_string()));
        }
        context.span().end();
        ended
    })
}
