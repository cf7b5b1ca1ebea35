"""Registry of worker classes by queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ._calls import Declared, Json, declared

W = TypeVar("W", bound=type)


@dataclass(frozen=True)
class Registered:
    """Worker class with its configuration."""

    cls: type[Any]
    config: Mapping[str, Json]


_queues: dict[str, dict[str, Registered]] = {}


def worker(
    queue: str,
    *,
    name: str | None = None,
    inports: Declared | None = None,
    outports: Declared | None = None,
    **config: Json,
) -> Callable[[W], W]:
    """Decorator: registers a subclass of `Worker` or `AsyncWorker` for jobs of its name in this queue.

    Ports are names (`["a", "b"]`) or names with options (`{"b": {"default": 10}}`); the name `*` stands for every name.
    Further keyword arguments are stored by the server with the class.
    """

    def register(cls: W) -> W:
        called = name or cls.__name__
        taken = _queues.get(queue, {}).get(called)
        # A module that is loaded anew registers the same class again.
        if taken is not None and (taken.cls.__module__, taken.cls.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{called} in queue {queue} is already registered by {taken.cls.__qualname__}")
        told: dict[str, Json] = dict(config)
        if inports is not None:
            told["inports"] = declared(inports)
        if outports is not None:
            told["outports"] = declared(outports)
        # Without such a method there is nothing to be done at the end, and the server need not ask for it.
        if not getattr(cls, "wants_shutdown", lambda: True)():
            told.setdefault("shutdown", False)
        _queues.setdefault(queue, {})[called] = Registered(cls, told)
        return cls

    return register


def classes_of(queue: str) -> dict[str, Registered]:
    """Classes of this queue."""
    found = _queues.get(queue)
    if not found:
        raise LookupError(f'no class works on the queue {queue!r}: decorate one with @worker("{queue}")')
    return found
