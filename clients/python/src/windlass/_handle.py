"""Pushed jobs: waiting for results, signals, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _wire as wire
from ._client import Flow
from ._errors import JobCancelled, JobFailed
from ._time import Duration, seconds

if TYPE_CHECKING:
    from ._app import Windlass

T = TypeVar("T")
R = TypeVar("R")

# Longest wait of one call; the next one follows at once.
WAIT_S = 20.0


def outcome_of(said: dict[str, Any]) -> Any:
    """Result of a settled job; raises the error of a failed or cancelled one."""
    if said["state"] in ("completed", "terminated"):
        return said.get("result")
    if said["state"] == "cancelled":
        raise JobCancelled(said["id"])
    raise JobFailed(said["id"], said)


SETTLED = ("completed", "failed", "cancelled", "terminated")


def waiting(id: int | str, timeout: Duration | None) -> Flow[Any]:
    """Waits until the job is settled."""
    until = None if timeout is None else time.monotonic() + seconds(timeout)
    while True:
        wait_s = WAIT_S if until is None else min(WAIT_S, max(0.0, until - time.monotonic()))
        said = yield wire.result(id, wait_s)
        if said["state"] in SETTLED:
            return outcome_of(said)
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"job {id} is still {said['state']}")


def one(ask: wire.Ask[T]) -> Flow[T]:
    """Flow of a single call."""
    said: T = yield ask
    return said


class JobHandle(Generic[R]):
    """Job on the server, returned by `push`.

    In a coroutine everything here is awaited: `job = await send.push(…)`, `await job.wait()`, also
    `await send.push(…).wait()`. Elsewhere the same calls block: `job = send.push(…)`, `job.wait()`.
    """

    __slots__ = ("_app", "_id", "_pending")

    def __init__(self, app: Windlass, id: int | str | None, pending: asyncio.Future[int] | None = None) -> None:
        self._app, self._id, self._pending = app, id, pending

    @property
    def id(self) -> int | str:
        """Id of the job (or the alias by which it was looked up)."""
        if self._id is None:
            if self._pending is None or not self._pending.done():
                raise RuntimeError("the job is not pushed yet; write `job = await task.push(…)` in a coroutine")
            self._id = self._pending.result()
        return self._id

    def __await__(self) -> Generator[Any, None, JobHandle[R]]:
        if self._id is None and self._pending is not None:
            self._id = yield from self._pending.__await__()
        return self

    def __repr__(self) -> str:
        return f"<job {self._id if self._id is not None else '…'}>"

    def _perform(self, flow: Callable[[int | str], Flow[T]]) -> Any:
        if self._id is not None or self._pending is None or self._pending.done():
            return self._app.client.perform(flow(self.id))
        return self._when_pushed(flow)

    async def _when_pushed(self, flow: Callable[[int | str], Flow[T]]) -> T:
        await self
        return await self._app.client.run_async(flow(self.id))

    def wait(self, timeout: Duration | None = None) -> Any:
        """Waits for the end of the job and returns its result.

        Raises `JobFailed` or `JobCancelled`, and `TimeoutError` after `timeout`.
        """
        return self._perform(lambda id: waiting(id, timeout))

    def info(self) -> Any:
        """All about the job, as `GET /api/v1/jobs/{id}` shows it."""
        return self._perform(lambda id: one(wire.info(id)))

    def cancel(self) -> Any:
        """Cancels the job; a running handler is told with its next heartbeat."""
        return self._perform(lambda id: one(wire.act(id, "cancel")))

    def retry(self, *, from_step: str | None = None) -> Any:
        """Runs a settled job again; with `from_step`, that step and the ones after it run again."""
        body = {} if from_step is None else {"from_step": from_step}
        return self._perform(lambda id: one(wire.act(id, "retry", body)))

    def run(self) -> Any:
        """Runs a delayed or suspended job now."""
        return self._perform(lambda id: one(wire.act(id, "run")))

    def signal(self, name: str, payload: Any = None) -> Any:
        """Sends a signal, for which the job waits with `ctx.wait_for(name)`, now or later."""
        return self._perform(lambda id: one(wire.signal(id, name, payload)))

    def children(self) -> Any:
        """Children of the job."""
        return self._perform(wire.children)


class JobHandles(list[JobHandle[R]]):
    """Jobs of `push_many`. In a coroutine it has to be awaited."""

    def __init__(self, handles: list[JobHandle[R]], pending: asyncio.Future[Any] | None = None) -> None:
        super().__init__(handles)
        self._pending = pending

    def __hash__(self) -> int:  # type: ignore[override]
        # By identity: `asyncio.gather` needs it.
        return id(self)

    def __await__(self) -> Generator[Any, None, JobHandles[R]]:
        if self._pending is not None:
            yield from self._pending.__await__()
            self._pending = None
        return self
