//! Metrics in OTLP's JSON encoding (`ExportMetricsServiceRequest`). Names stay as Prometheus has them, so that a dashboard
//! works whichever way the numbers came.

use super::json::{KeyValue, Resource, ResourceJson, Scope, nanos, text};
use super::page::{Buckets, Family, Kind, Reading, Series};
use serde::Serialize;

/// Number of `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_metrics: [ResourceMetrics<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMetrics<'a> {
    resource: ResourceJson<'a>,
    scope_metrics: [ScopeMetrics<'a>; 1],
}

#[derive(Serialize)]
struct ScopeMetrics<'a> {
    scope: Scope,
    metrics: Vec<Metric<'a>>,
}

#[derive(Serialize)]
struct Metric<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(flatten)]
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Data<'a> {
    Gauge { data_points: Vec<NumberPoint<'a>> },
    Sum { data_points: Vec<NumberPoint<'a>>, aggregation_temporality: u8, is_monotonic: bool },
    Histogram { data_points: Vec<HistogramPoint<'a>>, aggregation_temporality: u8 },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NumberPoint<'a> {
    attributes: Vec<KeyValue<'a>>,
    start_time_unix_nano: &'a str,
    time_unix_nano: &'a str,
    as_double: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HistogramPoint<'a> {
    attributes: Vec<KeyValue<'a>>,
    start_time_unix_nano: &'a str,
    time_unix_nano: &'a str,
    count: String,
    sum: f64,
    /// Values of each bucket; the last one has no upper bound.
    bucket_counts: Vec<String>,
    explicit_bounds: Vec<f64>,
}

/// Start of the counters and time of the reading, in nanoseconds.
struct Times {
    start: String,
    now: String,
}

pub(super) fn encode(resource: &Resource, families: &[Family], (start_ms, now_ms): (i64, i64)) -> Vec<u8> {
    let times = Times { start: nanos(start_ms), now: nanos(now_ms.max(start_ms)) };
    let metrics = families.iter().filter(|family| !family.series.is_empty());
    let metrics = metrics.map(|family| metric(family, &times)).collect();
    let scope_metrics = [ScopeMetrics { scope: resource.scope(), metrics }];
    let request =
        Request { resource_metrics: [ResourceMetrics { resource: resource.json(), scope_metrics }] };
    // Cannot fail: the keys are texts. Numbers that are not finite do not occur, and would become null.
    serde_json::to_vec(&request).unwrap_or_default()
}

fn metric<'a>(family: &'a Family, times: &'a Times) -> Metric<'a> {
    let numbers = || family.series.iter().filter_map(|series| number(series, times)).collect();
    let data = match family.kind {
        Kind::Gauge => Data::Gauge { data_points: numbers() },
        Kind::Counter => {
            Data::Sum { data_points: numbers(), aggregation_temporality: CUMULATIVE, is_monotonic: true }
        }
        Kind::Histogram => Data::Histogram {
            data_points: family.series.iter().filter_map(|series| histogram(series, times)).collect(),
            aggregation_temporality: CUMULATIVE,
        },
    };
    Metric { name: &family.name, description: &family.help, unit: unit(&family.name), data }
}

/// Unit that the name ends with.
fn unit(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches("_total");
    [("_seconds", "s"), ("_bytes", "By")].iter().find(|(end, _)| name.ends_with(end)).map(|(_, unit)| *unit)
}

fn attributes(series: &Series) -> Vec<KeyValue<'_>> {
    series.labels.iter().map(|(label, value)| text(label, value)).collect()
}

fn number<'a>(series: &'a Series, times: &'a Times) -> Option<NumberPoint<'a>> {
    let Reading::Number(value) = series.value else { return None };
    Some(NumberPoint {
        attributes: attributes(series),
        start_time_unix_nano: &times.start,
        time_unix_nano: &times.now,
        as_double: value,
    })
}

fn histogram<'a>(series: &'a Series, times: &'a Times) -> Option<HistogramPoint<'a>> {
    let Reading::Histogram(Buckets { cumulative, sum, count }) = &series.value else { return None };
    let before = std::iter::once(0).chain(cumulative.iter().map(|(_, at_most)| *at_most));
    let counts = cumulative.iter().zip(before).map(|((_, at_most), before)| at_most.saturating_sub(before));
    let bounds = cumulative.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
    Some(HistogramPoint {
        attributes: attributes(series),
        start_time_unix_nano: &times.start,
        time_unix_nano: &times.now,
        count: count.to_string(),
        sum: *sum,
        bucket_counts: counts.map(|count| count.to_string()).collect(),
        explicit_bounds: bounds.collect(),
    })
}
