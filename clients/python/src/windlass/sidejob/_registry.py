"""Which classes work on which queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ._calls import Declared, Json, declared

W = TypeVar("W", bound=type)


@dataclass(frozen=True)
class Registered:
    """A class, and what the server is told of it."""

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
    """Makes a subclass of `Worker` or `AsyncWorker` the one that works on jobs of its name in this queue.

    Ports are names (`["a", "b"]`) or names with options (`{"b": {"default": 10}}`); the name `*` stands for every name.
    Whatever else is given is kept by the server with the class, for others to read.
    """

    def register(cls: W) -> W:
        called = name or cls.__name__
        taken = _queues.get(queue, {}).get(called)
        # A module that is loaded anew registers the same class again.
        if taken is not None and (taken.cls.__module__, taken.cls.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{called} in queue {queue} is {taken.cls.__qualname__} already")
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
    """Those that work on this queue."""
    found = _queues.get(queue)
    if not found:
        raise LookupError(f'no class works on the queue {queue!r}: decorate one with @worker("{queue}")')
    return found
