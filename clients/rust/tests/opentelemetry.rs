//! Trace context of jobs, with a tracer that remembers its spans.

#![allow(clippy::unwrap_used, reason = "a test ends at the first error")]

use opentelemetry::context::FutureExt;
use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context as Otel, InstrumentationScope, KeyValue, global};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use windlass_client::{BoxError, Context, Error, Task, Windlass};

/// Span that has ended.
#[derive(Clone, Debug)]
struct Ended {
    name: String,
    kind: Option<SpanKind>,
    context: SpanContext,
    parent: SpanId,
    status: Status,
    attributes: Vec<KeyValue>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    ended: Arc<Mutex<Vec<Ended>>>,
    made: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Recorded {
    span: Ended,
    memory: Memory,
}

impl TracerProvider for Memory {
    type Tracer = Memory;

    fn tracer_with_scope(&self, _: InstrumentationScope) -> Memory {
        self.clone()
    }
}

impl Tracer for Memory {
    type Span = Recorded;

    fn build_with_context(&self, builder: SpanBuilder, parent: &Otel) -> Recorded {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let of = parent.span().span_context().clone();
        let trace = if of.is_valid() { of.trace_id() } else { TraceId::from(u128::from(number) << 64) };
        let flags = TraceFlags::SAMPLED;
        let context = SpanContext::new(trace, SpanId::from(number), flags, false, TraceState::default());
        let span = Ended {
            name: builder.name.into_owned(),
            kind: builder.span_kind,
            context,
            parent: of.span_id(),
            status: Status::Unset,
            attributes: builder.attributes.unwrap_or_default(),
        };
        Recorded { span, memory: self.clone() }
    }
}

impl Span for Recorded {
    fn add_event_with_timestamp<T>(&mut self, _: T, _: SystemTime, _: Vec<KeyValue>)
    where
        T: Into<Cow<'static, str>>,
    {
    }

    fn span_context(&self) -> &SpanContext {
        &self.span.context
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.span.attributes.push(attribute);
    }

    fn set_status(&mut self, status: Status) {
        self.span.status = status;
    }

    fn update_name<T>(&mut self, name: T)
    where
        T: Into<Cow<'static, str>>,
    {
        self.span.name = name.into().into_owned();
    }

    fn add_link(&mut self, _: SpanContext, _: Vec<KeyValue>) {}

    fn end_with_timestamp(&mut self, _: SystemTime) {
        self.memory.ended.lock().unwrap().push(self.span.clone());
    }
}

#[tokio::test]
async fn a_run_is_a_span_in_the_trace_of_its_push() {
    let memory = Memory::default();
    global::set_tracer_provider(memory.clone());
    let app = Windlass::new("http://127.0.0.1:9").unwrap();
    let test = app.testing();
    let broken = |(): (), _: Context| async { Err::<(), BoxError>("no luck".into()) };
    let broken: Task<(), ()> = app.task("broken", broken).retry(1).register();
    let handler = move |(): (), ctx: Context| {
        let broken = broken.clone();
        async move {
            broken.push(&()).await?;
            Ok::<_, Error>(ctx.traceparent().map(str::to_owned))
        }
    };
    let parent = app.task("parent", handler).register();

    let job = parent.push(&()).await.unwrap();
    test.run().await;
    assert_eq!(job.wait().await.unwrap(), None, "outside of a trace");
    memory.ended.lock().unwrap().clear();

    let tracer = global::tracer("test");
    let request = Otel::new().with_span(tracer.start("request"));
    let job = parent.push(&()).with_context(request.clone()).await.unwrap();
    test.run().await;
    let of = request.span().span_context().clone();
    let expected = format!("00-{}-{}-01", of.trace_id(), of.span_id());
    assert_eq!(job.wait().await.unwrap(), Some(expected));
    let spans = memory.ended.lock().unwrap().clone();
    let [first, second] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*first.name, first.parent), ("process parent", of.span_id()));
    assert_eq!((first.kind.clone(), &first.status), (Some(SpanKind::Consumer), &Status::Unset));
    assert!(first.attributes.contains(&KeyValue::new("windlass.task", "parent")), "{first:?}");
    assert_eq!(
        (&*second.name, second.parent),
        ("process broken", first.context.span_id()),
        "pushed in the handler"
    );
    assert_eq!(second.context.trace_id(), of.trace_id());
    assert_eq!(second.status, Status::error("no luck"));
    // A trace context that was given comes before that of the span.
    let push = parent.with().traceparent("00-11111111111111111111111111111111-2222222222222222-00");
    let job = push.push(&()).with_context(request).await.unwrap();
    test.run().await;
    assert!(job.wait().await.unwrap().unwrap().ends_with("2222222222222222-00"));
}
