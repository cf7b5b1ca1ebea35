use super::page::{Buckets, Kind, Reading, parse};
use super::*;
use serde_json::{Value, json};
use windlass_core::{JobId, Name, Queue, Tenant, Timestamp};
use windlass_engine::spans::{SpanError, SpanPart};

fn resource() -> Resource {
    Resource { service_name: "shop".to_owned(), version: "1.2.3", instance: "77".to_owned() }
}

fn span(part: SpanPart) -> JobSpan {
    JobSpan {
        part,
        trace_id: 0xabc,
        span_id: 0xdef,
        parent: None,
        from: Timestamp::from_millis(1_700_000_000_001),
        until: Timestamp::from_millis(1_700_000_000_003),
        id: JobId::new(7).unwrap(),
        tenant: Tenant::default(),
        queue: Queue::new("mail").unwrap(),
        name: Name::new("send").unwrap(),
        attempt: None,
        worker: None,
        outcome: None,
        error: None,
    }
}

fn encoded(span: JobSpan) -> Value {
    let request: Value = serde_json::from_slice(&traces::encode(&resource(), &[span])).unwrap();
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"])
}

#[test]
fn a_span_has_hexadecimal_ids_and_times_as_strings() {
    let push = encoded(span(SpanPart::Push));
    assert_eq!(push["traceId"], "00000000000000000000000000000abc");
    assert_eq!((&push["spanId"], &push["parentSpanId"]), (&json!("0000000000000def"), &Value::Null));
    assert_eq!(push["startTimeUnixNano"], "1700000000001000000");
    assert_eq!(push["endTimeUnixNano"], "1700000000003000000");
    assert_eq!(
        (&push["name"], &push["kind"], &push["status"]),
        (&json!("push send"), &json!(4), &Value::Null)
    );
    assert_eq!(attribute(&push, "windlass.job.id"), &json!({"intValue": "7"}));
    assert_eq!(attribute(&push, "messaging.destination.name"), &json!({"stringValue": "mail"}));
    assert_eq!(attribute(&push, "windlass.job.attempt"), &Value::Null);
}

#[test]
fn a_failed_run_says_why() {
    let error = Some(SpanError { class: Some("IOError".to_owned()), message: "no route".to_owned() });
    let outcome = Some("retried");
    let run = JobSpan { parent: Some(1), attempt: Some(2), outcome, error, ..span(SpanPart::Run) };
    let run = encoded(run);
    assert_eq!((&run["kind"], &run["parentSpanId"]), (&json!(5), &json!("0000000000000001")));
    assert_eq!(run["status"], json!({"code": 2, "message": "no route"}));
    assert_eq!(attribute(&run, "error.type"), &json!({"stringValue": "IOError"}));
    assert_eq!(attribute(&run, "windlass.job.attempt"), &json!({"intValue": "2"}));
    assert_eq!(attribute(&run, "windlass.outcome"), &json!({"stringValue": "retried"}));
}

#[test]
fn the_resource_names_the_service() {
    let request: Value = serde_json::from_slice(&traces::encode(&resource(), &[])).unwrap();
    let attributes = &request["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(attributes[0], json!({"key": "service.name", "value": {"stringValue": "shop"}}));
}

const PAGE: &str = r#"# HELP a_total Some things.
# TYPE a_total counter
a_total 3
# HELP b_bytes Size.
# TYPE b_bytes gauge
b_bytes{tenant="x",queue="a\"} 1\nb\\"} 2.5
b_bytes{tenant="y",queue=""} 0
# HELP c_seconds Time.
# TYPE c_seconds histogram
c_seconds_bucket{name="n",le="0.5"} 1
c_seconds_bucket{name="n",le="1"} 4
c_seconds_bucket{name="n",le="+Inf"} 5
c_seconds_sum{name="n"} 7.25
c_seconds_count{name="n"} 5
# HELP d_total Nothing yet.
# TYPE d_total counter
"#;

#[test]
fn a_page_is_read_back_into_numbers() {
    let families = parse(PAGE);
    let names: Vec<(&str, Kind)> =
        families.iter().map(|family| (family.name.as_str(), family.kind)).collect();
    let expected = [
        ("a_total", Kind::Counter),
        ("b_bytes", Kind::Gauge),
        ("c_seconds", Kind::Histogram),
        ("d_total", Kind::Counter),
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (families[0].help.as_str(), &families[0].series[0].value),
        ("Some things.", &Reading::Number(3.0))
    );
    let labels: Vec<(&str, &str)> =
        families[1].series[0].labels.iter().map(|(label, text)| (label.as_str(), text.as_str())).collect();
    assert_eq!(labels, [("tenant", "x"), ("queue", "a\"} 1\nb\\")]);
    let cumulative = vec![(0.5, 1), (1.0, 4), (f64::INFINITY, 5)];
    assert_eq!(families[2].series[0].value, Reading::Histogram(Buckets { cumulative, sum: 7.25, count: 5 }));
    assert!(families[3].series.is_empty());
    for broken in ["", "x", "x{", "x{a} 1", "x{a=\"b} 1", "x y", "# TYPE x summary\nx 1", "x 1"] {
        assert_eq!(parse(broken), [], "{broken:?}");
    }
}

#[test]
fn metrics_keep_their_names_and_kinds() {
    let body = metrics::encode(&resource(), &parse(PAGE), (1_000, 2_000));
    let request: Value = serde_json::from_slice(&body).unwrap();
    let metrics = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    assert_eq!(metrics.len(), 3, "a family without series is left out");
    let point = json!({"attributes": [], "startTimeUnixNano": "1000000000", "timeUnixNano": "2000000000", "asDouble": 3.0});
    let sum = json!({"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": true});
    assert_eq!(metrics[0], json!({"name": "a_total", "description": "Some things.", "sum": sum}));
    assert_eq!(
        (&metrics[1]["unit"], &metrics[1]["gauge"]["dataPoints"][0]["asDouble"]),
        (&json!("By"), &json!(2.5))
    );
    let histogram = &metrics[2]["histogram"]["dataPoints"][0];
    assert_eq!(histogram["bucketCounts"], json!(["1", "3", "1"]));
    assert_eq!(histogram["explicitBounds"], json!([0.5, 1.0]));
    assert_eq!((&histogram["count"], &histogram["sum"]), (&json!("5"), &json!(7.25)));
    assert_eq!(
        (&metrics[2]["unit"], &metrics[2]["histogram"]["aggregationTemporality"]),
        (&json!("s"), &json!(2))
    );
}
