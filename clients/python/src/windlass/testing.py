"""Tests without a server.

    def test_welcome():
        with app.testing() as box:
            welcome.push(to="ann@example.org")           # runs at once
            box.assert_pushed(send, to="ann@example.org")
            box.advance(days=3)                          # delays and sleeps are over
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _wire as wire
from ._client import Client, in_coroutine
from ._codec import dumps, plain
from ._errors import Fail, Outcome, Suspended
from ._memory import MemoryJob, MemoryServer
from ._outcome import Reason
from ._run import Processes, Run
from ._task import Sender, Task
from ._threads import Threads
from ._time import Duration, seconds
from ._wire import Ask

if TYPE_CHECKING:
    from ._app import Windlass

T = TypeVar("T")

# Runs of one drain; a job that keeps pushing itself would not end.
RUNS_MAX = 100_000


class MemoryClient(Client):
    """Client of a server in memory."""

    def __init__(self, box: Testing) -> None:
        super().__init__("http://testing.invalid", None)
        self._box = box

    def send(self, ask: Ask[T], patience_s: float | None = None) -> T:
        if ask.waits:
            self._box._run_now()
        return self._answer(ask)

    async def send_async(self, ask: Ask[T], patience_s: float | None = None) -> T:
        if ask.waits:
            await self._box._drain()
        return self._answer(ask)

    def _answer(self, ask: Ask[T]) -> T:
        status, said = self._box.server.call(ask.method, ask.path, ask.encoded())
        if ask.waits and status == 202:
            raise TimeoutError(f"job {said['id']} is {said['state']}; move the clock with `advance`, or send a signal")
        return ask.answer(status, json.dumps(said).encode())

    def push(self, jobs: Iterable[str]) -> list[int]:
        ids = super().push(jobs)
        if self._box.inline and not self._box.is_draining:
            self._box._run_now()
        return ids

    async def push_async(self, jobs: Iterable[str]) -> list[int]:
        ids = await super().push_async(jobs)
        if self._box.inline and not self._box.is_draining:
            await self._box._drain()
        return ids

    def push_soon(self, job: str) -> asyncio.Future[int]:
        return asyncio.ensure_future(self._push_one(job))

    async def _push_one(self, job: str) -> int:
        return (await self.push_async([job]))[0]


class Inline:
    """Tasks with `process=True` run in a thread of this process."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def start(self, run: Run, args: list[Any], kwargs: dict[str, Any]) -> None:
        def work() -> None:
            try:
                ended = True, run.work.fn(*args, **kwargs)
            except BaseException as error:
                ended = False, error
            run.loop.call_soon_threadsafe(run.ended, *ended)

        self._threads.submit(work)

    def kill(self, run: Run) -> None:
        """A thread cannot be ended."""


class Host:
    """Surroundings of the runs of one drain."""

    def __init__(self, box: Testing) -> None:
        self.client: Client = box.client
        self.hooks = box.app.hooks
        self.loop = asyncio.get_running_loop()
        self.threads = Threads(8, "windlass-test")
        self.step_threads = Threads(32, "windlass-test-step")
        self.processes: Processes = Inline(self.threads)
        self._server = box.server

    def note(self, run: Run) -> None:
        progress, lines = run.take_notes()
        job = self._server.jobs[run.id]
        job.log += lines
        if progress is not None:
            job.progress = {"percent": progress[0], "note": progress[1]}
        if job.cancel_asked:
            self.loop.call_soon_threadsafe(run.interrupt, Reason.CANCEL)

    def freed(self) -> None:
        """Slots are not counted."""

    def given_up(self, run: Run, entry: bytes | None) -> None:
        """A test waits for its coroutines."""

    def close(self) -> None:
        self.threads.close()
        self.step_threads.close()


class Testing:
    """Server in memory for one application, made by `app.testing()`.

    In a coroutine `run`, `advance` and `signal` are awaited, as all calls of the library are.
    """

    __test__ = False  # For pytest, which collects classes with this name.

    def __init__(self, app: Windlass, *, inline: bool, raises: bool) -> None:
        self.app, self.inline, self.raises = app, inline, raises
        self.server = MemoryServer(round(time.time() * 1000))
        self.client = MemoryClient(self)
        self.is_draining = False
        self._host: Host | None = None
        self._depth = threading.local()

    def __enter__(self) -> Testing:
        self._real, self.app.client = self.app.client, self.client
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.app.client = self._real

    async def __aenter__(self) -> Testing:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    # --- pushed jobs

    @property
    def jobs(self) -> list[MemoryJob]:
        """All jobs in the order of their pushes."""
        return list(self.server.jobs.values())

    def jobs_of(self, task: Sender[Any], **arguments: Any) -> list[MemoryJob]:
        """Jobs of the task whose payload has these arguments."""
        name = task._task.name
        wanted = plain(arguments)
        return [job for job in self.jobs if job.name == name and wanted.items() <= _items(job.payload)]

    def assert_pushed(self, task: Task[Any], *, times: int | None = None, **arguments: Any) -> MemoryJob:
        """Asserts that a job with these arguments was pushed (exactly `times` of them); returns the last one."""
        found = self.jobs_of(task, **arguments)
        if not found or (times is not None and len(found) != times):
            others = [job.payload for job in self.jobs_of(task)]
            raise AssertionError(
                f"{len(found)} jobs {task.name} with {arguments} were pushed"
                + ("" if times is None else f", not {times}")
                + f"; payloads of all jobs {task.name}: {others}"
            )
        return found[-1]

    def assert_not_pushed(self, task: Task[Any], **arguments: Any) -> None:
        """Asserts that no job with these arguments was pushed."""
        found = self.jobs_of(task, **arguments)
        if found:
            raise AssertionError(f"{len(found)} jobs {task.name} with {arguments} were pushed: {found}")

    # --- runs and time

    def run(self) -> Any:
        """Runs all jobs that are due, and the jobs that they push."""
        return self._perform(self._drain())

    def advance(self, duration: Duration | None = None, **units: float) -> Any:
        """Moves the clock; inline, jobs run at their times: `box.advance(days=3)`."""
        return self._perform(self._advance(round(seconds(duration, **units) * 1000)))

    def signal(self, job: Any, name: str, payload: Any = None) -> Any:
        """Sends a signal to a job; inline, the job goes on at once."""
        return self._perform(self._signal(wire.signal(getattr(job, "id", job), name, payload)))

    def _perform(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        return coroutine if in_coroutine() else asyncio.run(coroutine)

    async def _signal(self, ask: Ask[bool]) -> bool:
        woken = await self.client.send_async(ask)
        if self.inline:
            await self._drain()
        return woken

    async def _advance(self, by_ms: int) -> None:
        target = self.server.now_ms + by_ms
        for _ in range(RUNS_MAX):
            due = self.server.next_time()
            if not self.inline or due is None or due > target:
                break
            self.server.move(due)
            await self._drain()
        self.server.move(target)

    def _run_now(self) -> None:
        """Runs due jobs from a thread without an event loop."""
        if self._host is None:
            asyncio.run(self._drain())
        else:
            asyncio.run_coroutine_threadsafe(self._drain(), self._host.loop).result()

    async def _drain(self) -> None:
        is_outermost = self._host is None
        if self._host is None:
            self._host, self.is_draining = Host(self), True
        try:
            for _ in range(RUNS_MAX):
                wanted = {"names": list(self.app.tasks), "limit": 1}
                claimed = self.server.call("POST", "/api/v1/claim", dumps(wanted).encode())[1]["jobs"]
                if not claimed:
                    return
                await self._run_one(self._host, claimed[0])
            raise RuntimeError(f"{RUNS_MAX} runs without an end: does a job push itself?")
        finally:
            if is_outermost:
                self._host.close()
                self._host, self.is_draining = None, False

    async def _run_one(self, host: Host, claimed: dict[str, Any]) -> None:
        run = Run(host, claimed, self.app.tasks[claimed["name"]])
        # A task of its own: with its own context, and to be interrupted.
        run.task = host.loop.create_task(run.execute())
        entry = await run.task
        if entry is not None:
            self.server.call("POST", "/api/v1/settle", b'{"settle":[' + entry + b"]}")
        error, job = run.error, self.server.jobs[run.id]
        is_planned = isinstance(error, (Suspended, Outcome)) and not isinstance(error, Fail)
        if self.raises and error is not None and not is_planned and job.state != "cancelled":
            raise error


def _items(payload: Any) -> Any:
    return payload.items() if isinstance(payload, dict) else {}.items()


__all__ = ["MemoryJob", "MemoryServer", "Testing"]
