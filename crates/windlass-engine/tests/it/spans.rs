//! Spans of traced jobs: who gets one, and how they hang together.

use crate::world::*;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use windlass_core::event::RetryWish;
use windlass_core::repeat::Repeat;
use windlass_core::trace::{TAG, TraceContext};
use windlass_core::{Holder, JobId, Outcome};
use windlass_engine::spans::{JobSpan, SpanPart};
use windlass_engine::*;
use windlass_store::faulty::{Call, Kind};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn traced_world(share: f64) -> (World, Receiver<JobSpan>) {
    let world = World::new().await;
    let spans = world.engine.record_spans(share, 100).unwrap();
    (world, spans)
}

fn tagged(mut push: Push, parent: &str) -> Push {
    push.extras.get_or_insert_default().tags.push(format!("{TAG}{parent}").into());
    push
}

fn drain(spans: &mut Receiver<JobSpan>) -> Vec<JobSpan> {
    std::iter::from_fn(|| spans.try_recv().ok()).collect()
}

/// Part, times since the start, attempt, outcome and error of each span.
fn shown(spans: &[JobSpan]) -> Vec<String> {
    let shown = |span: &JobSpan| {
        let times = [span.from, span.until].map(|at| at.as_millis() - START_MS);
        let error = span.error.as_ref().map_or("", |error| &error.message);
        let attempt = span.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string());
        let part = span.part.as_str();
        format!("{part} {}-{} a{attempt} {} {error}", times[0], times[1], span.outcome.unwrap_or("-"))
            .trim_end()
            .to_owned()
    };
    spans.iter().map(shown).collect()
}

async fn tags_of(world: &World, id: JobId) -> Vec<Arc<str>> {
    world.job(id).await.unwrap().spec.tags().to_vec()
}

#[tokio::test]
async fn a_job_is_traced_from_its_push_to_its_end() {
    let (world, mut spans) = traced_world(0.0).await;
    world.push(tagged(tries(job("a"), 3), PARENT)).await;
    world.pass(10).await;
    let first = world.claim_one().await;
    world.pass(20).await;
    let outcome = Outcome {
        message: Some("no route".to_owned()),
        class: Some("IOError".to_owned()),
        ..Outcome::default()
    };
    world.settle(&first, Event::fail(Holder::Anyone, outcome, RetryWish::Policy)).await.unwrap();
    let second = world.claim_one().await;
    world.pass(5).await;
    world.finish(&second).await;
    let spans = drain(&mut spans);
    let expected = [
        "push 0-0 a- -",
        "wait 0-10 a1 -",
        "run 10-30 a1 retried no route",
        "settle 30-30 a1 retried",
        "wait 30-30 a2 -",
        "run 30-35 a2 completed",
        "settle 35-35 a2 completed",
    ];
    assert_eq!(shown(&spans), expected);
    let client = TraceContext::parse(PARENT).unwrap();
    assert!(spans.iter().all(|span| span.trace_id == client.trace_id));
    let [push, wait, run, settle, wait2, run2, settle2] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(push.parent, Some(client.span_id));
    assert_eq!([wait, run, wait2, run2].map(|span| span.parent), [Some(push.span_id); 4]);
    assert_eq!((settle.parent, settle2.parent), (Some(run.span_id), Some(run2.span_id)));
    assert!(run.span_id != run2.span_id && wait.span_id != wait2.span_id);
    assert_eq!(run.error.as_ref().unwrap().class.as_deref(), Some("IOError"));
    assert_eq!(run.worker.as_deref(), Some("w"));
    assert_eq!(world.engine.trace_within(&first).unwrap().span_id, run.span_id);
}

#[tokio::test]
async fn the_server_begins_a_trace_for_a_share_of_the_other_jobs() {
    let (world, mut spans) = traced_world(1.0).await;
    let id = world.push(job("a")).await;
    let [push] = &drain(&mut spans)[..] else { panic!("one span") };
    let context = TraceContext::of_tags(&tags_of(&world, id).await).unwrap();
    assert_eq!((push.trace_id, push.span_id, push.parent), (context.trace_id, context.span_id, None));
    let jobs = vec![job("a"), tagged(job("b"), &PARENT.replace("-01", "-00"))];
    let world = World::new().await;
    let mut spans = world.engine.record_spans(0.0, 100).unwrap();
    for pushed in world.push_all(jobs).await {
        assert!(tags_of(&world, pushed.id().unwrap()).await.len() <= 1);
    }
    for held in world.claim(2).await {
        world.finish(&held).await;
    }
    assert_eq!(shown(&drain(&mut spans)), [""; 0], "neither is sampled");
}

#[tokio::test]
async fn without_an_exporter_no_job_changes() {
    let world = World::new().await;
    let id = world.push(job("a")).await;
    assert!(tags_of(&world, id).await.is_empty());
    let spans = world.engine.record_spans(1.0, 100);
    assert!(spans.is_some() && world.engine.record_spans(1.0, 100).is_none(), "they are recorded once");
}

#[tokio::test]
async fn the_context_of_the_request_is_used_if_the_job_has_none() {
    let world = World::new().await;
    let context = TraceContext::parse(PARENT);
    let engine = world.engine.clone().in_trace(context);
    let other = PARENT.replace("0af7", "1111");
    let repeating = with_policy(job("c"), |policy| policy.repeat = Some(Repeat::parse("every 1h").unwrap()));
    let jobs = vec![job("a"), tagged(job("b"), &other), repeating];
    let pushed = engine.push(&tenant(), jobs).await.unwrap();
    let mut found = Vec::new();
    for pushed in pushed {
        found.push(TraceContext::of_tags(&tags_of(&world, pushed.id().unwrap()).await));
    }
    assert_eq!(found, [context, TraceContext::parse(&other), None]);
    let held = world.claim_one().await;
    assert_eq!(world.engine.trace_within(&held), context, "passed on even without an exporter");
}

#[tokio::test]
async fn each_run_of_a_repeating_job_is_a_trace() {
    let (world, mut spans) = traced_world(1.0).await;
    let push = with_policy(job("a"), |policy| policy.repeat = Some(Repeat::parse("every 1s").unwrap()));
    let id = world.push(push).await;
    for _ in 0..2 {
        let held = world.claim_one().await;
        world.finish(&held).await;
        world.pass(1_000).await;
    }
    assert!(tags_of(&world, id).await.is_empty());
    let spans = drain(&mut spans);
    let parts: Vec<SpanPart> = spans.iter().map(|span| span.part).collect();
    assert_eq!(parts, [SpanPart::Wait, SpanPart::Run, SpanPart::Settle].repeat(2));
    let [wait, run, settle, .., last] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((wait.parent, run.parent, settle.parent), (Some(run.span_id), None, Some(run.span_id)));
    assert!(run.trace_id == wait.trace_id && run.trace_id != last.trace_id);
}

#[tokio::test]
async fn a_lost_lease_is_an_error_and_a_deleted_job_keeps_its_spans() {
    let (world, mut spans) = traced_world(1.0).await;
    world.push(tries(job("a"), 2)).await;
    let first = world.claim_one().await;
    let lease_ms = first.state().lease().unwrap().until.unwrap().since_ms(world.engine.now());
    world.pass(lease_ms).await;
    let lapsed = drain(&mut spans);
    assert!(shown(&lapsed)[2].ends_with("a1 lapsed the lease expired"), "{:?}", shown(&lapsed));
    world.push(with_policy(job("b"), |policy| policy.keep = keep_nothing())).await;
    for held in world.claim(2).await {
        world.finish(&held).await;
    }
    let ended = drain(&mut spans);
    let ended: Vec<&JobSpan> = ended.iter().filter(|span| span.part == SpanPart::Run).collect();
    assert_eq!(ended.iter().map(|span| span.outcome).collect::<Vec<_>>(), [Some("completed"); 2]);
}

#[tokio::test]
async fn a_full_queue_drops_spans_and_counts_them() {
    let world = World::new().await;
    let mut spans = world.engine.record_spans(1.0, 2).unwrap();
    world.push_all((0..5).map(|_| job("a")).collect()).await;
    assert_eq!((drain(&mut spans).len(), world.engine.meters().spans_dropped.get()), (2, 3));
    drop(spans);
    let held = world.claim_one().await;
    world.finish(&held).await;
    assert_eq!(world.engine.meters().spans_dropped.get(), 6, "nobody reads them any more");
}

#[tokio::test]
async fn errors_of_the_store_are_counted_by_kind() {
    let (world, faults) = faulty_world().await;
    faults.fail_next_call(Call::Commit, 1, Kind::BeforeDoing);
    assert!(world.engine.push(&tenant(), vec![job("a")]).await.is_err());
    let counted: Vec<(&str, u64)> = world.engine.meters().store_errors.all().collect();
    assert_eq!(counted, [("full", 0), ("unavailable", 1), ("outcome_unknown", 0), ("damaged", 0)]);
}

#[tokio::test]
async fn no_wait_is_recorded_where_its_begin_is_not_known() {
    let (world, mut spans) = traced_world(1.0).await;
    let every_hour =
        |push| with_policy(push, |policy| policy.repeat = Some(Repeat::parse("every 1h").unwrap()));
    let id = world.push(every_hour(tries(job("a"), 2))).await;
    let slot = world.claim_one().await;
    world.finish(&slot).await;
    drain(&mut spans);
    // A requested turn runs ahead of its slot.
    world.apply(id, Event::Run { at: world.after(0), force: false }).await.unwrap();
    let ahead = world.claim_one().await;
    world.finish(&ahead).await;
    let parts: Vec<SpanPart> = drain(&mut spans).iter().map(|span| span.part).collect();
    assert_eq!(parts, [SpanPart::Run, SpanPart::Settle]);
    // A retried turn keeps its slot, in which it ran already.
    world.pass(3_600_000).await;
    let first = world.claim_one().await;
    world.pass(10).await;
    world.settle(&first, fail("no")).await.unwrap();
    world.pass(600_000).await;
    let second = world.claim_one().await;
    world.finish(&second).await;
    let parts: Vec<SpanPart> = drain(&mut spans).iter().map(|span| span.part).collect();
    let attempt = [SpanPart::Run, SpanPart::Settle];
    assert_eq!(parts, [&[SpanPart::Wait][..], &attempt, &attempt].concat());
}
