use super::*;
use std::collections::BTreeSet;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn spec(tags: &[&str]) -> JobSpec {
    let extras = crate::Extras { tags: tags.iter().map(|tag| (*tag).into()).collect(), ..Default::default() };
    JobSpec {
        tenant: crate::Tenant::default(),
        queue: crate::Queue::default(),
        name: crate::Name::new("a").unwrap(),
        payload: crate::Payload::default(),
        priority: 0,
        created_at: Timestamp::from_millis(1_000),
        policy: Arc::default(),
        extras: Some(Box::new(extras)),
    }
}

fn id(number: u64) -> JobId {
    JobId::new(number).unwrap()
}

#[test]
fn a_context_is_read_and_written_as_the_standard_says() {
    let context = TraceContext::parse(PARENT).unwrap();
    assert_eq!(context.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    assert_eq!((context.span_id, context.is_sampled()), (0xb7ad_6b71_6920_3331, true));
    assert_eq!(context.to_string(), PARENT);
    let zeros = (0..32).map(|_| '0').collect::<String>();
    for (text, is_valid) in [
        (PARENT.replace("-01", "-00"), true),
        (PARENT.replace("00-0af", "01-0af"), true),
        (PARENT.replace("00-0af", "cc-0af") + "-more", true),
        (PARENT.to_owned() + "-more", false),
        (PARENT.replace("00-0af", "cc-0af") + "more", false),
        (PARENT.replace("00-0af", "ff-0af"), false),
        (PARENT.replace("0af7", "0AF7"), false),
        (PARENT.replace("0af7", "+af7"), false),
        (PARENT.replace("0af7651916cd43dd8448eb211c80319c", &zeros), false),
        (PARENT.replace("b7ad6b7169203331", "0000000000000000"), false),
        (PARENT.replace('-', "_"), false),
        (PARENT.replace("0af7", "ä f"), false),
        (String::new(), false),
        (PARENT[..54].to_owned(), false),
    ] {
        assert_eq!(TraceContext::parse(&text).is_some(), is_valid, "{text}");
    }
}

#[test]
fn the_share_decides_by_the_lower_half_of_the_id() {
    let half = u128::from(u64::MAX / 2);
    for (trace_id, share, expected) in [
        (1, 0.0, false),
        (1, 0.01, true),
        (half - 1, 0.5, true),
        (half + 2, 0.5, false),
        (u128::MAX, 1.0, true),
        (u128::MAX, 0.99, false),
        (1 << 64, 0.000_001, true),
    ] {
        assert_eq!(is_chosen(trace_id, share), expected, "{trace_id:x} with {share}");
    }
    let chosen = (0..10_000_u64).filter(|n| is_chosen(u128::from(mixed(&[*n])), 0.25)).count();
    assert!((2_300..2_700).contains(&chosen), "{chosen} of 10000");
}

#[test]
fn spans_of_a_job_have_ids_of_their_own() {
    let traced = spec(&["x", &format!("{TAG}{PARENT}")]);
    let trace = JobTrace::of(&traced, id(1)).unwrap();
    assert_eq!((trace.trace_id >> 96, trace.outer), (0x0af7_6519, Some(0xb7ad_6b71_6920_3331)));
    let other = JobTrace::of(&traced, id(2)).unwrap();
    let ids = [trace, other].into_iter().flat_map(|trace| {
        let of = |token| [trace.wait_span(token), trace.run_span(token), trace.settle_span(token)];
        trace.push.into_iter().chain(of(65_536)).chain(of(65_537)).collect::<Vec<u64>>()
    });
    let ids: Vec<u64> = ids.collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert_eq!(JobTrace::of(&traced, id(1)), Some(trace), "another server finds the same");
    let context = trace.within_run(65_536);
    assert_eq!((context.trace_id, context.span_id), (trace.trace_id, trace.run_span(65_536)));
}

#[test]
fn a_job_that_is_not_sampled_has_no_trace() {
    for tags in
        [vec![], vec!["traceparent=".to_owned()], vec![format!("{TAG}{}", PARENT.replace("-01", "-00"))]]
    {
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        assert_eq!(JobTrace::of(&spec(&tags), id(1)), None, "{tags:?}");
    }
}

#[test]
fn the_push_is_the_first_span_of_a_trace_that_the_server_begins() {
    let context = TraceContext::begin([3, 4]);
    let trace = JobTrace::of(&spec(&[&context.tag()]), id(1)).unwrap();
    assert_eq!((trace.outer, trace.push), (None, Some(context.span_id)));
    assert_eq!(trace.trace_id, 3 << 64 | 4);
    assert!(TraceContext::parse(&TraceContext::begin([0, 0]).to_string()).is_some());
}
