"""Durable steps of a run: names, replay, detection of changed code, and keeping of results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _wire as wire
from ._client import Backoff, Client
from ._codec import dumps, loads, sendable
from ._errors import (
    ChildFailed,
    JobCancelled,
    JobFailed,
    NotFound,
    StepsChanged,
    Suspended,
    WindlassError,
    may_succeed_later,
)
from ._handle import SETTLED, outcome_of
from ._task import Call, TaskOptions, child_key, child_label, child_tags

log = logging.getLogger("windlass")

VERSION = "@version"
# Turns of the event loop without another replayed step, after which the replay counts as complete.
QUIET_TURNS = 3


class StepLog:
    """Kept steps of a job, and the names that this run has used. Pure."""

    def __init__(self, kept: Sequence[dict[str, Any]]) -> None:
        self.kept = {step["name"]: step for step in kept}
        self._unvisited = dict.fromkeys(name for name in self.kept if name != VERSION)
        #: Number of steps that this run has begun.
        self.begun = 0
        self._counts: dict[str, int] = {}

    def open(self, base: str) -> str:
        """Name of the next step with this base: `charge`, `charge#2`, …"""
        number = self._counts[base] = self._counts.get(base, 0) + 1
        name = base if number == 1 else f"{base}#{number}"
        self._unvisited.pop(name, None)
        self.begun += 1
        return name

    def unvisited(self) -> list[str]:
        """Kept steps that this run has not reached."""
        return list(self._unvisited)


class Steps:
    """Steps of one run. All coroutines run in the worker's event loop; `open` may be called from any thread."""

    def __init__(
        self,
        client: Client,
        id: int,
        token: int,
        kept: Sequence[dict[str, Any]],
        rules: TaskOptions,
        warn: Callable[[str], Any],
        generation: int = 0,
    ) -> None:
        self._client, self._id, self._token = client, id, token
        self.log, self._rules, self._warn = StepLog(kept), rules, warn
        self._generation = generation
        self._has_steps = bool(kept)
        self._is_warned = False
        self._is_closed = False
        self._in_flight = 0
        self._landed = asyncio.Event()
        self._loads = 0
        self._loaded = asyncio.Event()
        self._pending: list[tuple[str, asyncio.Future[Any]]] = []
        self._keeper: asyncio.Task[None] | None = None

    @property
    def version(self) -> Any:
        """Version of the task with which the job began."""
        if self._has_steps:
            return self.log.kept.get(VERSION, {}).get("result")
        return self._rules.version

    def open(self, base: str) -> tuple[str, dict[str, Any] | None]:
        """Name of the next step with this base, and the kept step if there is one."""
        if self._is_closed:
            raise Suspended()
        name = self.log.open(base)
        return name, self.log.kept.get(name)

    async def enter(self, name: str) -> None:
        """Call before a step that is not kept: checks that the replay used all kept steps."""
        if not self.log.unvisited():
            return
        # Steps of other coroutines of this run may still be replayed.
        quiet = 0
        while quiet < QUIET_TURNS and self.log.unvisited():
            before = self.log.begun
            if self._loads:
                # Children of another branch: steps after them are not replayed yet.
                await self._loaded.wait()
                quiet = 0
                continue
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.log.begun == before else 0
        self.check(f"the step {name!r} is new")

    def check(self, occasion: str) -> None:
        """Warns or refuses if kept steps were not reached."""
        missing = self.log.unvisited()
        if not missing or self._is_warned:
            return
        names = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        text = f"the code has changed: {occasion}, but kept steps were not reached: {names}"
        if self._rules.on_change == "refuse":
            raise StepsChanged(text)
        self._is_warned = True
        log.warning("job %s: %s", self._id, text)
        self._warn(text)

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        """Context of a replayed step that asks the server for its result: more replayed steps may follow it."""
        self._loads += 1
        self._loaded.clear()
        try:
            yield
        finally:
            self._loads -= 1
            if not self._loads:
                self._loaded.set()

    @contextlib.contextmanager
    def executing(self) -> Iterator[None]:
        """Context of a step that is being executed."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._landed.set()

    async def drain(self) -> None:
        """Waits for steps that are still being executed; no further one starts."""
        self._is_closed = True
        while self._in_flight:
            self._landed.clear()
            await self._landed.wait()

    def abort(self) -> None:
        """Gives up keeping results, because the run is interrupted."""
        self._is_closed = True
        if self._keeper is not None:
            self._keeper.cancel()

    # --- keeping

    async def keep(self, name: str, value: Any, started_ms: int) -> Any:
        """Keeps a result. Returns it as it is kept, so that a replay sees the same."""
        text = dumps(value)
        kept = await self._keep(sendable(f'{{"name":{dumps(name)},"result":{text},"started_at":{started_ms}}}'))
        return loads(text) if kept.get("kept", True) else kept.get("result")

    async def begin(self) -> None:
        """Keeps the version of the task, if this is the first step of the job."""
        if not self._has_steps and self._rules.version is not None:
            self._has_steps = True
            await self._keep(self._version())

    def _version(self) -> str:
        self.log.kept[VERSION] = {"name": VERSION, "result": self._rules.version}
        return f'{{"name":"{VERSION}","result":{dumps(self._rules.version)}}}'

    def _keep(self, step: str) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._pending.append((step, future))
        if self._keeper is None:
            self._keeper = loop.create_task(self._keep_all())
        return future

    async def _keep_all(self) -> None:
        """Keeps pending results; results that arrive during a call share the next one."""
        batch: list[tuple[str, asyncio.Future[Any]]] = []
        try:
            while self._pending:
                batch, self._pending = self._pending[: wire.BATCH_MAX], self._pending[wire.BATCH_MAX :]
                await self._keep_batch(batch)
        except asyncio.CancelledError:
            for _, future in [*batch, *self._pending]:
                future.cancel()
            raise
        finally:
            self._keeper = None

    async def _keep_batch(self, batch: list[tuple[str, asyncio.Future[Any]]]) -> None:
        texts = [text for text, _ in batch]
        if not self._has_steps and self._rules.version is not None:
            texts.insert(0, self._version())
        try:
            answers = (await self._insist(wire.keep_steps(self._id, self._token, texts)))[-len(batch) :]
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        self._has_steps = True
        for (_, future), answer in zip(batch, answers):
            if not future.done():
                future.set_result(answer)

    async def _insist(self, ask: wire.Ask[Any]) -> Any:
        """Repeats the call until the server takes or refuses the steps: their effects must not be repeated instead.

        It ends with the lease at the latest, or when the run is interrupted.
        """
        backoff = Backoff()
        while True:
            try:
                return await self._client.send_async(ask, 0.0)
            except WindlassError as error:
                if not may_succeed_later(error):
                    raise
            await asyncio.sleep(backoff.pause())

    # --- waits

    async def suspend(self, name: str, **until: Any) -> None:
        """Ends the run until something happens. Does not return."""
        await self.enter(name)
        await self.begin()
        raise Suspended(name, **until)

    async def all(
        self, name: str, calls: Sequence[Call[Any]], kept: dict[str, Any] | None, *, return_exceptions: bool
    ) -> list[Any]:
        """Runs children and returns their results, in the order of the calls."""
        if not calls:
            return []
        if kept is None:
            await self.enter(name)
            await self.begin()
            label = child_label(name, self._generation)
            await self._client.push_async(call.as_child(self._id, label, index) for index, call in enumerate(calls))
            raise Suspended(name, children=True)
        with self._loading():
            return await self._results(child_label(name, kept.get("generation", 0)), len(calls), return_exceptions)

    async def _results(self, label: str, count: int, return_exceptions: bool) -> list[Any]:
        """Results of children that have ended."""
        found = {_tags_of(child): child for child in await self._client.run_async(wire.children(self._id))}
        results: list[Any] = []
        failures: list[WindlassError] = []
        for index in range(count):
            try:
                child = found.get(frozenset(child_tags(label, index)))
                results.append(_result_of(child or await self._find(child_key(self._id, label, index))))
            except (JobFailed, JobCancelled, NotFound) as error:
                results.append(error if return_exceptions else None)
                failures.append(error)
        if failures and not return_exceptions:
            raise ChildFailed(failures, results)
        return results

    async def _find(self, alias: str) -> dict[str, Any]:
        """Child that the list, which is bounded, does not show."""
        return await self._client.send_async(wire.by_alias(alias))


def _tags_of(child: dict[str, Any]) -> frozenset[str]:
    """Tags that tell which child it is."""
    return frozenset(tag for tag in child.get("tags") or () if tag.startswith(("windlass.step=", "windlass.index=")))


def _result_of(child: dict[str, Any]) -> Any:
    if child["state"] not in SETTLED:
        raise NotFound(f"child {child['id']} is {child['state']} although all children ended", code="not_settled")
    return outcome_of(child)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return round(time.time() * 1000)
