"""The job as its handler sees it: `job`, and `ctx` with durable steps."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from ._errors import Cancelled, Outcome
from ._steps import Steps, now_ms
from ._task import Call
from ._time import Duration, Moment, moment, seconds

if TYPE_CHECKING:
    from ._run import Run

T = TypeVar("T")

_current: ContextVar[Job] = ContextVar("windlass_job")

# Further tries of a step: the pauses double from the first to the longest.
STEP_PAUSE_S, STEP_PAUSE_MAX_S = 0.1, 60.0


def current_job() -> Job | None:
    """Job whose handler is running here; `None` outside of a handler."""
    return _current.get(None)


class _Done:
    """Awaitable that is done: `job.log(…)` may be awaited and need not be."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE = _Done()


class Job:
    """Run of a job, passed to the handler as `job`."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> int:
        """Id of the job."""
        return self._run.id

    @property
    def name(self) -> str:
        """Name of the task."""
        return cast(str, self._run.claimed["name"])

    @property
    def queue(self) -> str:
        """Queue of the job."""
        return cast(str, self._run.claimed["queue"])

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return cast(int, self._run.claimed["attempt"])

    @property
    def payload(self) -> Any:
        """Payload as it was pushed."""
        return self._run.claimed.get("payload")

    @property
    def tags(self) -> list[str]:
        """Tags of the job."""
        return list(self._run.claimed.get("tags") or ())

    @property
    def cancelled(self) -> bool:
        """True if the run has to stop: cancelled, out of time, lease lost, or the worker shuts down."""
        return self._run.reason is not None

    def check(self) -> None:
        """Raises `Cancelled` if the run has to stop."""
        if self._run.reason is not None:
            raise Cancelled(self._run.reason.value)

    def progress(self, percent: float, note: str | None = None) -> _Done:
        """Reports progress: 0 to 100 percent, and a note for people. Sent in the background, within moments."""
        self._run.set_progress(max(0, min(100, round(percent))), note)
        return DONE

    def log(self, text: str) -> _Done:
        """Adds lines to the log of the job. Sent in the background, at the latest with the end of the run."""
        self._run.add_lines(text.splitlines() or [""])
        return DONE

    def __repr__(self) -> str:
        return f"<job {self.id} {self.name}, attempt {self.attempt}>"


class _Durable(Job):
    """Common part of the two contexts."""

    __slots__ = ("_made",)

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._made: Steps | None = None

    @property
    def _steps(self) -> Steps:
        if self._made is None:
            self._made = self._run.make_steps(self.log)
        return self._made

    @property
    def version(self) -> Any:
        """Version of the task (`version=`) with which the job made its first step."""
        return self._steps.version


class Context(_Durable):
    """Job with durable steps, passed to a coroutine as `ctx`."""

    __slots__ = ()

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        retry: int = 0,
        backoff: Duration | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        retry: int = 0,
        backoff: Duration | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        retry: int = 0,
        backoff: Duration | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Runs `fn(*args, **kwargs)` and keeps its result; once it is kept, the function is not run again.

        `fn` is a coroutine function, or a plain function, which runs in a thread. If it raises, it is tried again up to
        `retry` times in this run, after pauses that begin with `backoff` and double. Then the exception leaves `step`.
        """
        return self._step(*self._steps.open(name), lambda: fn(*args, **kwargs), _is_async(fn), retry, backoff)

    async def _step(
        self,
        name: str,
        kept: dict[str, Any] | None,
        call: Callable[[], Any],
        is_async: bool,
        retry: int,
        backoff: Duration | None,
    ) -> Any:
        if kept is not None:
            return kept.get("result")
        await self._steps.enter(name)
        with self._steps.executing():
            started_ms = now_ms()
            pauses = step_pauses(retry, backoff)
            while True:
                try:
                    value = call() if is_async else await self._run.in_step_thread(call)
                    if inspect.isawaitable(value):
                        value = await value
                    break
                except Outcome:
                    raise
                except Exception:
                    pause = next(pauses, None)
                    if pause is None:
                        raise
                await asyncio.sleep(pause)
            return await self._steps.keep(name, value, started_ms)

    async def sleep(self, duration: Duration | None = None, *, until: Moment | None = None, **units: float) -> None:
        """Waits without holding a worker: `await ctx.sleep(days=3)`, `await ctx.sleep("3d")`."""
        name, kept = self._steps.open("sleep")
        if kept is None:
            await self._steps.suspend(name, **until_when(duration, until, units))

    async def wait_for(self, signal: str, *, timeout: Duration | None = None, default: Any = None) -> Any:
        """Waits for a signal without holding a worker; returns its payload, or `default` after `timeout`."""
        name, kept = self._steps.open(f"wait:{signal}")
        if kept is None:
            await self._steps.suspend(name, signal=signal, delay_ms=in_ms(timeout))
        return signal_of(kept, default)

    async def all(self, calls: Iterable[Call[T]], *, return_exceptions: bool = False) -> list[T]:
        """Runs children and waits for them without holding a worker: `await ctx.all(pack.call(i) for i in items)`.

        Raises `ChildFailed` if one of them failed or was cancelled; with `return_exceptions`, the list contains
        the errors instead.
        """
        name, kept = self._steps.open("all")
        return await self._steps.all(
            name, list(calls), kept, return_exceptions=return_exceptions
        )


class SyncContext(_Durable):
    """Job with durable steps, passed to a plain function as `ctx`. The same as `Context`, without `await`."""

    __slots__ = ()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self.check()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._run.loop).result()
        except concurrent.futures.CancelledError as error:
            raise Cancelled("the run has to stop") from error

    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        retry: int = 0,
        backoff: Duration | None = None,
        **kwargs: Any,
    ) -> T:
        """Runs `fn(*args, **kwargs)` and keeps its result; once it is kept, the function is not run again."""
        name, kept = self._steps.open(name)
        if kept is not None:
            return cast(T, kept.get("result"))
        self._wait(self._steps.enter(name))
        started_ms = now_ms()
        pauses = step_pauses(retry, backoff)
        while True:
            try:
                value = fn(*args, **kwargs)
                break
            except Outcome:
                raise
            except Exception:
                pause = next(pauses, None)
                if pause is None:
                    raise
            time.sleep(pause)
        return cast(T, self._wait(self._steps.keep(name, value, started_ms)))

    def sleep(self, duration: Duration | None = None, *, until: Moment | None = None, **units: float) -> None:
        """Waits without holding a worker: `ctx.sleep(days=3)`, `ctx.sleep("3d")`."""
        name, kept = self._steps.open("sleep")
        if kept is None:
            self._wait(self._steps.suspend(name, **until_when(duration, until, units)))

    def wait_for(self, signal: str, *, timeout: Duration | None = None, default: Any = None) -> Any:
        """Waits for a signal without holding a worker; returns its payload, or `default` after `timeout`."""
        name, kept = self._steps.open(f"wait:{signal}")
        if kept is None:
            self._wait(self._steps.suspend(name, signal=signal, delay_ms=in_ms(timeout)))
        return signal_of(kept, default)

    def all(self, calls: Iterable[Call[T]], *, return_exceptions: bool = False) -> list[T]:
        """Runs children and waits for them without holding a worker: `ctx.all(pack.call(i) for i in items)`."""
        name, kept = self._steps.open("all")
        waits = self._steps.all(name, list(calls), kept, return_exceptions=return_exceptions)
        return self._wait(waits)


def _is_async(fn: Callable[..., Any]) -> bool:
    while hasattr(fn, "func"):
        fn = fn.func  # A partial function.
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))


def step_pauses(retry: int, backoff: Duration | None) -> Iterator[float]:
    """Pauses before the further tries of a step."""
    pause_s = STEP_PAUSE_S if backoff is None else seconds(backoff)
    for _ in range(retry):
        yield pause_s
        pause_s = min(2 * pause_s, STEP_PAUSE_MAX_S)


def in_ms(duration: Duration | None) -> int | None:
    return None if duration is None else round(seconds(duration) * 1000)


def until_when(duration: Duration | None, until: Moment | None, units: dict[str, float]) -> dict[str, Any]:
    """End of a sleep: a point in time, or a duration."""
    if until is not None:
        return {"until": moment(until)}
    return {"delay_ms": round(seconds(duration, **units) * 1000)}


def signal_of(kept: dict[str, Any] | None, default: Any) -> Any:
    """Payload of a kept signal."""
    if kept is None or kept.get("timed_out"):
        return default
    return kept.get("result")
