"""Trace context of jobs with the real OpenTelemetry (`opentelemetry-sdk`), against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import importlib
import unittest
from typing import Any

from windlass import Windlass, dev

PATIENCE_S = 60.0


class Tracing(unittest.TestCase):
    def test_a_run_continues_the_trace_of_its_push(self) -> None:
        trace: Any = importlib.import_module("opentelemetry.trace")
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        tracer = trace.get_tracer("test")
        with dev.server() as server:
            app = Windlass(server.url)
            self.addCleanup(app.close)

            @app.task
            def plain() -> str:
                return str(trace.format_trace_id(trace.get_current_span().get_span_context().trace_id))

            @app.task(retry=1)
            async def parent() -> str:
                with tracer.start_as_current_span("inside"):
                    child = await plain.push()
                return str(await child.wait(PATIENCE_S))

            @app.task(retry=1)
            async def broken() -> None:
                raise ValueError("no luck")

            with app.working(4):
                with tracer.start_as_current_span("request"):
                    job, other = parent.push(), broken.push()
                id = job.wait(PATIENCE_S)
                with self.assertRaises(Exception):
                    other.wait(PATIENCE_S)
        spans = {span.name: span for span in exporter.get_finished_spans()}
        self.assertEqual(set(spans), {"request", "process parent", "inside", "process plain", "process broken"})
        for name, before in (("process parent", "request"), ("inside", "process parent"), ("process plain", "inside")):
            self.assertEqual(spans[name].parent.span_id, spans[before].context.span_id, name)
        self.assertEqual(id, trace.format_trace_id(spans["request"].context.trace_id), "the handler is in the trace")
        self.assertEqual(spans["process parent"].kind, trace.SpanKind.CONSUMER)
        self.assertEqual(spans["process parent"].attributes["windlass.job.id"], job.id)
        self.assertEqual(spans["process broken"].status.status_code, trace.StatusCode.ERROR)


if __name__ == "__main__":
    unittest.main()
