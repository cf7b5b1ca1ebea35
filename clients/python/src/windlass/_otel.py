"""OpenTelemetry, if it is installed: the trace context travels in a tag of the job."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

PREFIX = "traceparent="

_modules: tuple[Any, Any] | None = None
_is_looked_for = False


def _otel() -> tuple[Any, Any] | None:
    """Modules `trace` and `propagate`, or `None` if OpenTelemetry is not installed."""
    global _modules, _is_looked_for
    if not _is_looked_for:
        _is_looked_for = True
        with contextlib.suppress(ImportError):
            trace = importlib.import_module("opentelemetry.trace")
            propagate = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
            _modules = trace, propagate.TraceContextTextMapPropagator()
    return _modules


def is_active() -> bool:
    """True if OpenTelemetry is installed."""
    return _otel() is not None


def tags() -> list[str]:
    """Tag with the current trace context; none outside of a trace."""
    modules = _otel()
    if modules is None:
        return []
    carrier: dict[str, str] = {}
    modules[1].inject(carrier)
    parent = carrier.get("traceparent")
    return [] if parent is None else [PREFIX + parent]


@contextlib.contextmanager
def span(name: str, id: int, attempt: int, tags: Sequence[str]) -> Iterator[None]:
    """Span of a run, a child of the span in which the job was pushed."""
    modules = _otel()
    if modules is None:
        yield
        return
    trace, propagator = modules
    parent = next((tag[len(PREFIX) :] for tag in tags if tag.startswith(PREFIX)), None)
    context = None if parent is None else propagator.extract({"traceparent": parent})
    attributes = {"messaging.system": "windlass", "messaging.operation.name": "process", "windlass.task": name}
    with trace.get_tracer("windlass").start_as_current_span(
        f"process {name}",
        context=context,
        kind=trace.SpanKind.CONSUMER,
        attributes={**attributes, "windlass.job.id": id, "windlass.job.attempt": attempt},
    ):
        yield
