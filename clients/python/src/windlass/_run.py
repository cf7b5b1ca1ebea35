"""Execution of one claimed job, from the claim to the entry of its report."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from . import _otel, _outcome
from ._client import Client
from ._context import Context, Job, SyncContext, _current, _Durable
from ._errors import BadPayload, Cancelled, Suspended, meant
from ._outcome import Reason
from ._steps import Steps
from ._task import Task
from ._threads import Interruptible, Threads

log = logging.getLogger("windlass")

# Lines of the log that wait to be sent; of more the oldest are dropped.
LINES_MAX = 1_000
# How long an interrupted handler has for its end; then its run is reported without it.
UNWIND_S = 5.0

Hook = Callable[..., Any]


class Hooks:
    """Functions that are called around each run."""

    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.error: list[Hook] = []


class Processes(Protocol):
    """Processes for tasks with `process=True`."""

    def start(self, run: Run, args: list[Any], kwargs: dict[str, Any]) -> None: ...

    def kill(self, run: Run) -> None: ...


class Host(Protocol):
    """Surroundings of a run: its worker, or a test."""

    client: Client
    loop: asyncio.AbstractEventLoop
    threads: Threads
    step_threads: Threads
    processes: Processes
    hooks: Hooks

    def note(self, run: Run) -> None:
        """Progress or lines of the log wait to be sent. Called from any thread."""

    def freed(self) -> None:
        """A thread whose run was reported without it has ended."""

    def given_up(self, run: Run, entry: bytes | None) -> None:
        """A coroutine does not end: its run is reported without it, with this entry."""


class Run:
    """One claimed job."""

    __slots__ = (
        "abandoned", "claimed", "context", "end", "error", "host", "id", "interruptible", "is_given_up", "lines", "lock",
        "loop", "progress", "reason", "task", "timer", "token", "work",
    )  # fmt: skip

    def __init__(self, host: Host, claimed: dict[str, Any], work: Task[Any]) -> None:
        self.host, self.claimed, self.work = host, claimed, work
        self.loop = host.loop
        self.id: int = claimed["id"]
        self.token: int = claimed["token"]
        #: Why the handler was told to stop.
        self.reason: Reason | None = None
        #: Task of the event loop that executes the run.
        self.task: asyncio.Task[Any] | None = None
        self.context: _Durable = Context(self) if work.is_async else SyncContext(self)
        #: End of the handler in a thread or a process.
        self.end: asyncio.Future[tuple[bool, Any]] | None = None
        self.interruptible: Interruptible | None = None
        #: A thread runs on although its run was reported.
        self.abandoned = False
        #: A coroutine runs on although its run was reported.
        self.is_given_up = False
        #: Exception that left the handler.
        self.error: BaseException | None = None
        self.timer: asyncio.TimerHandle | None = None
        # Not sent yet.
        self.lines: list[str] = []
        self.progress: tuple[int, str | None] | None = None
        self.lock = threading.Lock()

    @property
    def key(self) -> tuple[int, int]:
        """Job and lease token: tokens are unique only among the runs of one job."""
        return self.id, self.token

    # --- execution

    async def execute(self) -> bytes | None:
        """Runs the handler; returns the entry of its report, or `None` if there is nothing to report."""
        work, rules = self.work, self.work.rules
        if rules.timeout_s is not None:
            self.timer = self.loop.call_later(rules.timeout_s, self.interrupt, Reason.TIMEOUT)
        try:
            _current.set(self.context)
            if _otel.is_active():
                with _otel.span(work.name, self.id, self.context.attempt, self.context.tags):
                    result = await self._handled()
            else:
                result = await self._handled()
            return _outcome.finished(self.id, self.token, result)
        except BaseException as error:
            return None if self.is_given_up else self._failed(error)
        finally:
            if self.timer is not None:
                self.timer.cancel()

    def _failed(self, error: BaseException) -> bytes | None:
        """Entry of a run that ended with an exception."""
        self.error = meant(error)
        rules = self.work.rules
        fields = _outcome.fields_of(
            error,
            reason=self.reason,
            url=self.host.client.url,
            give_up_on=rules.give_up_on,
            timeout_s=rules.timeout_s,
        )
        self._tell(error, fields)
        return None if fields is None else _outcome.entry(self.id, self.token, fields)

    async def _handled(self) -> Any:
        """Handler with its hooks and the end of its steps."""
        hooks, job = self.host.hooks, self.context
        try:
            args, kwargs = self.work.parameters.call(self.claimed.get("payload"))
            for name in self.work.parameters.injected:
                kwargs[name] = job
            for hook in hooks.before:
                await _called(hook, job)
            result = await self._called(args, kwargs)
            if job._made is not None:
                job._made.check("the run ends")
            for hook in hooks.after:
                await _called(hook, job, result)
            return result
        except BaseException as error:
            if job._made is not None and self.reason is None:
                # Steps of other coroutines are kept before the run ends.
                await job._made.drain()
            if not isinstance(meant(error), Suspended):
                for hook in hooks.error:
                    await _called(hook, job, error)
            raise

    async def _called(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.work.is_async:
            return await self.work.fn(*args, **kwargs)
        self.end = self.loop.create_future()
        if self.work.rules.process:
            self.host.processes.start(self, args, kwargs)
        else:
            self.interruptible = Interruptible()
            context = contextvars.copy_context()
            self.host.threads.submit(lambda: self._in_thread(context, args, kwargs))
        # Not cancelled from outside: an interruption reaches the thread or the process.
        is_good, value = await self.end
        if is_good:
            return value
        raise value

    def _in_thread(self, context: contextvars.Context, args: list[Any], kwargs: dict[str, Any]) -> None:
        assert self.interruptible is not None
        try:
            self.interruptible.enter()
            try:
                self.context.check()
                ended = True, context.run(self.work.fn, *args, **kwargs)
            finally:
                self.interruptible.leave()
        except BaseException as error:
            ended = False, error
        with contextlib.suppress(RuntimeError):  # The event loop is closed: the worker is gone.
            self.loop.call_soon_threadsafe(self.ended, *ended)

    def ended(self, is_good: bool, value: Any) -> None:
        """The handler in a thread or a process has ended."""
        if self.end is not None and not self.end.done():
            self.end.set_result((is_good, value))
        elif self.abandoned:
            self.host.freed()

    async def in_step_thread(self, call: Callable[[], Any]) -> Any:
        """Runs a plain function of a step in a thread."""
        future: asyncio.Future[tuple[bool, Any]] = self.loop.create_future()
        context = contextvars.copy_context()

        def land(is_good: bool, value: Any) -> None:
            if not future.done():
                future.set_result((is_good, value))

        def work() -> None:
            try:
                ended = True, context.run(call)
            except BaseException as error:
                ended = False, error
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(land, *ended)

        self.host.step_threads.submit(work)
        is_good, value = await future
        if is_good:
            return value
        raise value

    # --- interruption

    def interrupt(self, reason: Reason) -> None:
        """Tells the handler to stop. Called in the event loop."""
        if self.reason is not None:
            return
        self.reason = reason
        if self.context._made is not None:
            self.context._made.abort()
        if self.end is None:
            if self.task is not None:
                self.task.cancel()
                self.loop.call_later(UNWIND_S, self._give_up)
        elif self.work.rules.process:
            self.host.processes.kill(self)
        elif self.interruptible is not None:
            self.interruptible.interrupt(Cancelled)
            self.loop.call_later(UNWIND_S, self._abandon)

    def _abandon(self) -> None:
        """The thread does not react: its run is reported without it."""
        if self.end is not None and not self.end.done():
            self.abandoned = True
            self.end.set_result((False, Cancelled("the thread did not stop")))

    def _give_up(self) -> None:
        """The coroutine does not react: its run is reported without it."""
        if self.task is None or self.task.done() or self.end is not None:
            return
        self.is_given_up = True
        # Programs end although it does not: `asyncio.run` waits for all tasks that are registered.
        asyncio._unregister_task(self.task)
        log.warning("job %s %s: the coroutine does not react to its cancellation", self.id, self.work.name)
        self.host.given_up(self, self._failed(Cancelled("the coroutine did not stop")))

    # --- notes

    def set_progress(self, percent: int, note: str | None) -> None:
        with self.lock:
            self.progress = percent, note
        self.host.note(self)

    def add_lines(self, lines: list[str]) -> None:
        with self.lock:
            self.lines = (self.lines + lines)[-LINES_MAX:]
        self.host.note(self)

    def take_notes(self) -> tuple[tuple[int, str | None] | None, list[str]]:
        """Progress and lines that have not been sent; from now on they count as sent."""
        with self.lock:
            taken = self.progress, self.lines
            self.progress, self.lines = None, []
        return taken

    def return_notes(self, progress: tuple[int, str | None] | None, lines: list[str]) -> None:
        """Takes back progress and lines that could not be sent."""
        with self.lock:
            self.progress = self.progress or progress
            self.lines = (lines + self.lines)[-LINES_MAX:]

    def has_notes(self) -> bool:
        return self.progress is not None or bool(self.lines)

    def make_steps(self, warn: Callable[[str], Any]) -> Steps:
        kept = self.claimed.get("steps") or ()
        generation = self.claimed.get("generation", 0)
        return Steps(self.host.client, self.id, self.token, kept, self.work.rules, warn, generation)

    def _tell(self, error: BaseException, fields: dict[str, Any] | None) -> None:
        if fields is None:
            log.warning("job %s %s: the lease of this run is lost", self.id, self.work.name)
        elif fields["outcome"] == "fail":
            level = logging.ERROR if fields.get("retry") is False else logging.WARNING
            info = error if log.isEnabledFor(logging.DEBUG) and not isinstance(error, BadPayload) else None
            log.log(level, "job %s %s failed: %r", self.id, self.work.name, error, exc_info=info)


async def _called(hook: Hook, *args: Any) -> None:
    said = hook(*args)
    if inspect.isawaitable(said):
        await said


__all__ = ["Hooks", "Host", "Job", "Processes", "Run"]
