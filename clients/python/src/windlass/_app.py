"""The application: tasks, schedules, workers."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._client import Client, in_coroutine
from ._cron import rule
from ._handle import JobHandle, JobHandles
from ._run import Hooks
from ._task import BackoffRule, Call, Keep, OnChange, Options, Task, TaskOptions
from ._time import Duration, seconds
from ._worker import Worker

if TYPE_CHECKING:
    from .testing import Testing

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: Address of a server with default settings.
SERVER = "http://127.0.0.1:7373"


class Windlass:
    """Application: its tasks, and the connection to a server.

    `server` and `token` default to `WINDLASS_SERVER` and `WINDLASS_TOKEN`. Calls are repeated for up to `patience`
    while the server is unreachable.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        timeout: Duration = 30.0,
        patience: Duration = 30.0,
    ) -> None:
        server = server or os.environ.get("WINDLASS_SERVER") or SERVER
        token = token or os.environ.get("WINDLASS_TOKEN") or None
        self.client = Client(server, token, timeout_s=seconds(timeout), patience_s=seconds(patience))
        #: Tasks by name.
        self.tasks: dict[str, Task[Any]] = {}
        self.hooks = Hooks()

    # --- tasks

    @overload
    def task(self, fn: Callable[..., Coroutine[Any, Any, R]], /) -> Task[R]: ...

    @overload
    def task(self, fn: Callable[..., R], /) -> Task[R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: int | dict[str, Any] | None = None,
        backoff: BackoffRule | None = None,
        timeout: Duration | None = None,
        unique: bool | Callable[..., Any] = False,
        unique_until: str = "settled",
        on_conflict: str = "return",
        version: int | str | None = None,
        on_change: OnChange = "warn",
        process: bool = False,
        priority: int | None = None,
        keep: Keep | None = None,
        tags: Sequence[str] = (),
        give_up_on: tuple[type[BaseException], ...] = (),
    ) -> Decorator: ...

    def task(self, *functions: Callable[..., Any], **options: Any) -> Any:
        """Makes a function a task: `@app.task`, or with options `@app.task(queue="mail", retry=5)`.

        * `name`, `queue`, `priority`, `tags`, `keep`: of its jobs; the name of the function is the default name
        * `retry`: total number of attempts; `backoff`: delay between them, such as `"30s"`
        * `timeout`: longest time of one run; then it counts as failed
        * `unique`: at most one live job per key; true (key made of all arguments), or a function from the arguments to
          the key. `unique_until` (`settled`, `started`, `forgotten`) and `on_conflict` (`return`, `update`, `refuse`)
        * `version`, `on_change` (`warn`, `refuse`): for durable steps
        * `process`: runs in a process of its own, for CPU-bound work
        * `give_up_on`: exceptions after which no further attempt is made
        """
        if functions:
            return self._add(*functions, **options)
        return Decorator(lambda fn: self._add(fn, **options))

    def cron(self, repeat: str, *, tz: str | None = None, **options: Any) -> Decorator:
        """Makes a function a repeating job: `@app.cron("0 9 * * MON-FRI", tz="Europe/Berlin")`.

        Other rules are `every 5m` and `@daily`; without `tz`, cron rules are in UTC. The schedule is created when a
        worker starts, once for all workers. Takes the options of `task`.
        """
        return Decorator(lambda fn: self._add(fn, repeat=rule(repeat, tz), **options))

    def _add(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str = "default",
        retry: int | dict[str, Any] | None = None,
        backoff: BackoffRule | None = None,
        timeout: Duration | None = None,
        priority: int | None = None,
        keep: Keep | None = None,
        tags: Sequence[str] = (),
        **rules: Any,
    ) -> Task[Any]:
        name = name or fn.__name__
        if name in self.tasks:
            raise ValueError(f"there is already a task named {name}; give one of them another name")
        if rules.get("process") and "<locals>" in fn.__qualname__:
            raise TypeError(f"{name}: a task with process=True must be defined at the top level of a module")
        options = Options(queue=queue, priority=priority, retry=retry, backoff=backoff, keep=keep, tags=tuple(tags))
        timeout_s = None if timeout is None else seconds(timeout)
        task: Task[Any] = Task(self, fn, name, options, TaskOptions(timeout_s=timeout_s, **rules))
        self.tasks[name] = task
        return task

    # --- hooks

    def before(self, hook: F) -> F:
        """Decorator: called with the job before each run."""
        self.hooks.before.append(hook)
        return hook

    def after(self, hook: F) -> F:
        """Decorator: called with the job and its result after each successful run."""
        self.hooks.after.append(hook)
        return hook

    def error(self, hook: F) -> F:
        """Decorator: called with the job and the exception after each run that ended with one."""
        self.hooks.error.append(hook)
        return hook

    # --- jobs

    def job(self, id: int | str) -> JobHandle[Any]:
        """Job with this id or alias, without checking that it exists."""
        return JobHandle(self, id)

    def push_many(self, calls: Iterable[Call[Any]]) -> JobHandles[Any]:
        """Pushes jobs of different tasks: `app.push_many([send.call("a"), pack.call(1)])`.

        An idempotency key that is given for several of them is numbered: `key/0`, `key/1`, …
        """
        jobs = encoded(list(calls))
        if not in_coroutine():
            return JobHandles([JobHandle(self, id) for id in self.client.push(jobs)])
        handles: JobHandles[Any] = JobHandles([])

        async def push() -> None:
            handles.extend(JobHandle(self, id) for id in await self.client.push_async(jobs))

        handles._pending = asyncio.ensure_future(push())
        return handles

    # --- workers

    def worker(
        self,
        *,
        concurrency: int = 10,
        queues: Sequence[str] | None = None,
        lease: Duration = 30.0,
        grace: Duration = 30.0,
        name: str | None = None,
    ) -> Worker:
        """Worker of this application: `await worker.run()`, `worker.stop()`."""
        return Worker(
            self, concurrency=concurrency, queues=queues, lease_s=seconds(lease), grace_s=seconds(grace), name=name
        )

    def work(
        self,
        concurrency: int = 10,
        *,
        queues: Sequence[str] | None = None,
        lease: Duration = 30.0,
        grace: Duration = 30.0,
        name: str | None = None,
        signals: bool = True,
    ) -> Any:
        """Works until SIGTERM or Ctrl-C; has to be awaited in a coroutine, blocks elsewhere.

        Coroutines run in the event loop, plain functions in threads, tasks with `process=True` in processes. `queues`
        are the queues of the tasks unless given. At the end no more jobs are claimed; running ones have `grace` and are
        then released for other workers; a second signal releases them at once. If the process dies, other workers get
        its jobs after `lease`. `signals=False` leaves the signals to the program around it, such as a web server;
        cancelling the coroutine then ends the work and releases running jobs.
        """
        worker = self.worker(concurrency=concurrency, queues=queues, lease=lease, grace=grace, name=name)
        work = worker.run(signals=signals)
        return work if in_coroutine() else asyncio.run(work)

    @contextlib.contextmanager
    def working(self, concurrency: int = 10, **options: Any) -> Iterator[Worker]:
        """Works in a background thread: `with app.working(): …`. Takes the options of `work`."""
        worker = self.worker(concurrency=concurrency, **options)
        failed: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(worker.run())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="windlass-worker")
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join()
        if failed:
            raise failed[0]

    # --- tests

    def testing(self, *, inline: bool = True, raises: bool = True) -> Testing:
        """Runs without a server: `with app.testing() as box: …`.

        `inline`: pushed jobs run at once; otherwise they are collected until `box.run()`. `raises`: exceptions of
        handlers are raised by the call that runs them.
        """
        from .testing import Testing

        return Testing(self, inline=inline, raises=raises)

    # --- end

    def close(self) -> None:
        """Closes the connections of threads."""
        self.client.close()

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, and of threads."""
        await self.client.close_async()


def encoded(calls: list[Call[Any]]) -> list[str]:
    """Calls as JSON texts; keys that are given more than once are numbered."""
    given = collections.Counter(call.given_key for call in calls)
    numbers: collections.Counter[str | None] = collections.Counter()
    jobs: list[str] = []
    for call in calls:
        key = call.given_key
        jobs.append(call.encoded(None if given[key] == 1 else numbers[key]))
        numbers[key] += 1
    return jobs


class Decorator:
    """Decorator with options."""

    def __init__(self, add: Callable[[Callable[..., Any]], Task[Any]]) -> None:
        self._add = add

    @overload
    def __call__(self, fn: Callable[..., Coroutine[Any, Any, R]], /) -> Task[R]: ...

    @overload
    def __call__(self, fn: Callable[..., R], /) -> Task[R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        return self._add(fn)
