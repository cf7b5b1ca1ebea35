"""Trace context of jobs, with the part of OpenTelemetry's interface that the library uses."""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from unittest import mock

from windlass import Windlass, _otel

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Telemetry:
    """Tracer, propagator and modules."""

    def __init__(self) -> None:
        self.current: ContextVar[str | None] = ContextVar("span", default=None)
        self.spans: list[dict[str, Any]] = []
        trace = types.ModuleType("opentelemetry.trace")
        trace.get_tracer = lambda name: self  # type: ignore[attr-defined]
        trace.SpanKind = types.SimpleNamespace(CONSUMER="consumer")  # type: ignore[attr-defined]
        context = types.ModuleType("opentelemetry.trace.propagation.tracecontext")
        context.TraceContextTextMapPropagator = lambda: self  # type: ignore[attr-defined]
        self.modules = {
            "opentelemetry": types.ModuleType("opentelemetry"),
            "opentelemetry.trace": trace,
            "opentelemetry.trace.propagation": types.ModuleType("opentelemetry.trace.propagation"),
            "opentelemetry.trace.propagation.tracecontext": context,
        }

    def inject(self, carrier: dict[str, str]) -> None:
        span = self.current.get()
        if span is not None:
            carrier["traceparent"] = span

    def extract(self, carrier: dict[str, str]) -> str:
        return carrier["traceparent"]

    @contextlib.contextmanager
    def start_as_current_span(self, name: str, *, context: str | None, kind: str, attributes: Any) -> Iterator[None]:
        self.spans.append({"name": name, "parent": context, "kind": kind, **attributes})
        reset = self.current.set(context)
        try:
            yield
        finally:
            self.current.reset(reset)


class Tracing(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(self.forget)
        self.forget()

    def forget(self) -> None:
        _otel._modules, _otel._is_looked_for = None, False

    def test_the_context_travels_in_a_tag(self) -> None:
        telemetry = Telemetry()
        app = Windlass("http://127.0.0.1:1")

        @app.task(tags=["x"])
        async def parent() -> None:
            await child.push()

        @app.task
        def child() -> None: ...

        with mock.patch.dict(sys.modules, telemetry.modules), app.testing() as box:
            parent.push()
            self.assertEqual(box.assert_pushed(parent).tags, ["x"])
            telemetry.spans.clear()
            telemetry.current.set(PARENT)
            parent.push()
            self.assertEqual(box.assert_pushed(parent).tags, ["x", f"traceparent={PARENT}"])
            self.assertEqual(box.assert_pushed(child).tags, [f"traceparent={PARENT}"])
        names = [(span["name"], span["parent"], span["kind"]) for span in telemetry.spans]
        self.assertEqual(names, [("process parent", PARENT, "consumer"), ("process child", PARENT, "consumer")])

    def test_without_opentelemetry_there_are_no_tags(self) -> None:
        missing = dict.fromkeys(["opentelemetry", "opentelemetry.trace"])
        with mock.patch.dict(sys.modules, missing):
            self.assertFalse(_otel.is_active())
            self.assertEqual(_otel.tags(), [])


if __name__ == "__main__":
    unittest.main()
