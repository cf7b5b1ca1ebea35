"""Reads exported requests, one per line as `PATH JSON`, with the classes that are generated from OTLP's description."""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def with_base64_ids(value):
    """OTLP writes ids in hexadecimal, where protobuf's own JSON has base64."""
    if isinstance(value, list):
        return [with_base64_ids(one) for one in value]
    if isinstance(value, dict):
        ids = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
        for key in value:
            if key in ids:
                raw = bytes.fromhex(value[key])
                assert len(raw) == ids[key], f"{key}: {value[key]}"
                value[key] = base64.b64encode(raw).decode()
            else:
                value[key] = with_base64_ids(value[key])
    return value


def labels(attributes):
    return {attribute.key: attribute.value.string_value for attribute in attributes}


def service(resource):
    return labels(resource.attributes)["service.name"]


spans, traces, services, metrics = 0, set(), set(), {}
for line in sys.stdin:
    path, body = line.split(" ", 1)
    document = with_base64_ids(json.loads(body))
    # An unknown field or a value of the wrong type is an error.
    if path == "/v1/traces":
        for group in json_format.ParseDict(document, ExportTraceServiceRequest()).resource_spans:
            services.add(service(group.resource))
            for span in group.scope_spans[0].spans:
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 1_600_000_000 * 10**9, span
                traces.add(span.trace_id.hex())
                spans += 1
    else:
        assert path == "/v1/metrics", path
        for group in json_format.ParseDict(document, ExportMetricsServiceRequest()).resource_metrics:
            services.add(service(group.resource))
            for metric in group.scope_metrics[0].metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                assert metric.description and data.data_points, metric.name
                if kind != "gauge":
                    assert data.aggregation_temporality == 2, metric.name
                if kind == "sum":
                    assert data.is_monotonic, metric.name
                points = []
                for point in data.data_points:
                    assert point.time_unix_nano >= point.start_time_unix_nano > 0, metric.name
                    if kind == "histogram":
                        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric.name
                        assert sum(point.bucket_counts) == point.count, metric.name
                        points.append([labels(point.attributes), float(point.count)])
                    else:
                        points.append([labels(point.attributes), point.as_double])
                metrics[metric.name] = {"kind": kind, "points": points}
print(json.dumps({"spans": spans, "traces": sorted(traces), "services": sorted(services), "metrics": metrics}))
