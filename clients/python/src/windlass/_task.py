"""Tasks: functions that run as jobs, and the ways to push them."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from . import _keys, _otel, _sql
from ._client import in_coroutine
from ._codec import dumps, sendable
from ._handle import JobHandle, JobHandles
from ._signature import Parameters
from ._time import Duration, Moment, milliseconds, moment, seconds

if TYPE_CHECKING:
    from ._app import Windlass

R = TypeVar("R")

#: Delay between attempts: `"none"`, a fixed duration, or a mapping such as `{"base_ms": 1000, "cap_ms": 60000}`.
BackoffRule: TypeAlias = Duration | Mapping[str, Any]
#: Retention after the end: one duration, or a mapping such as `{"completed_ms": 0, "failed_ms": "ever"}`.
Keep: TypeAlias = Duration | Mapping[str, Any]
# Results of children are kept until the last child has ended.
CHILD_KEEP: Mapping[str, Any] = {"completed_ms": 30 * 86_400_000}
OnChange: TypeAlias = Literal["warn", "refuse"]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a push; `None` leaves the default of the task or the server."""

    queue: str | None = None
    priority: int | None = None
    delay: Duration | None = None
    at: Moment | None = None
    #: Total number of attempts, or a whole retry policy of the API.
    retry: int | Mapping[str, Any] | None = None
    backoff: BackoffRule | None = None
    unique: str | None = None
    idempotency_key: str | None = None
    alias: str | None = None
    tags: Sequence[str] = ()
    parent: int | None = None
    keep: Keep | None = None
    lease: Duration | None = None

    def fields(self) -> dict[str, Any]:
        """Fields of the API, except keys, which differ from job to job."""
        fields: dict[str, Any] = {}
        for name in ("queue", "priority", "alias", "parent"):
            value = getattr(self, name)
            if value is not None:
                fields[name] = value
        if self.at is not None:
            fields["run_at"] = moment(self.at)
        if self.delay is not None:
            fields["delay_ms"] = milliseconds(self.delay)
        if self.lease is not None:
            fields["lease_ms"] = milliseconds(self.lease)
        if self.retry is not None or self.backoff is not None:
            fields["retry"] = retry_policy(self.retry, self.backoff)
        if self.keep is not None:
            fields["keep"] = keep_times(self.keep)
        return fields


def retry_policy(retry: int | Mapping[str, Any] | None, backoff: BackoffRule | None) -> Any:
    """Retry policy as the API takes it."""
    policy: dict[str, Any] = dict(retry) if isinstance(retry, Mapping) else {}
    if isinstance(retry, int):
        policy["max_attempts"] = retry
    if isinstance(backoff, Mapping) or backoff == "none":
        policy["backoff"] = backoff
    elif backoff is not None:
        policy["backoff"] = {"fixed_ms": milliseconds(backoff)}
    return policy


def keep_times(keep: Keep) -> Any:
    """Retention as the API takes it."""
    if isinstance(keep, Mapping):
        return dict(keep)
    return dict.fromkeys(("completed_ms", "failed_ms", "cancelled_ms"), milliseconds(keep))


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """Options of a task that concern its runs and its keys."""

    timeout_s: float | None = None
    #: True: one live job per set of arguments. A function: from the arguments to the key, or `None`.
    unique: bool | Callable[..., Any] = False
    unique_until: str = "settled"
    on_conflict: str = "return"
    version: int | str | None = None
    on_change: OnChange = "warn"
    process: bool = False
    #: Exceptions after which no further attempt is made.
    give_up_on: tuple[type[BaseException], ...] = ()
    #: Repeat rule of a task of `cron`.
    repeat: str | None = None


class Sender(Generic[R]):
    """Task with options of a push: `send.options(priority=-5).push(…)`, `send.delay(minutes=5).push(…)`."""

    def __init__(self, task: Task[R], options: Options) -> None:
        self._task, self._options = task, options
        fields = {"name": task.name, **options.fields()}
        self._head = dumps(fields)[:-1]

    # --- options

    def options(self, **changes: Any) -> Sender[R]:
        """Same task with other options: the fields of `Options`."""
        return Sender(self._task, dataclasses.replace(self._options, **changes))

    def delay(self, duration: Duration | None = None, **units: float) -> Sender[R]:
        """Runs later: `send.delay(minutes=5).push(…)`, `send.delay("5m").push(…)`."""
        if duration is None and not units:
            raise TypeError("delay needs a duration; to push now write .push(…)")
        return self.options(delay=seconds(duration, **units))

    def at(self, time: Moment) -> Sender[R]:
        """Runs at this time or later: `send.at(datetime(2027, 1, 1, 9)).push(…)`."""
        return self.options(at=time)

    def within(self, connection: Any, *, schema: str = "windlass") -> Within[R]:
        """Pushes in the transaction of this psycopg connection: `send.within(connection).push(…)`.

        Needs the PostgreSQL store. The job exists if and only if the transaction commits.
        """
        return Within(self, connection, schema)

    # --- pushes

    def push(self, *args: Any, **kwargs: Any) -> JobHandle[R]:
        """Pushes a job with these arguments.

        In a coroutine: `job = await send.push(…)`; elsewhere: `job = send.push(…)`, which blocks.
        """
        app = self._task.app
        job = self._encoded(self._task.parameters.payload(args, kwargs))
        if in_coroutine():
            return JobHandle(app, None, app.client.push_soon(job))
        return JobHandle(app, app.client.push([job])[0])

    def push_many(self, items: Iterable[Any]) -> JobHandles[R]:
        """Pushes one job per item, in large batches.

        An item is a mapping (arguments by name), a tuple (arguments in order), or any other value (the only argument).
        A given idempotency key is numbered: `key/0`, `key/1`, …
        """
        app = self._task.app
        jobs = [self._encoded(self._payload(item), index) for index, item in enumerate(items)]
        if in_coroutine():
            handles: JobHandles[R] = JobHandles([])
            handles._pending = asyncio.ensure_future(self._push_all(jobs, handles))
            return handles
        return JobHandles([JobHandle(app, id) for id in app.client.push(jobs)])

    async def _push_all(self, jobs: list[str], handles: JobHandles[R]) -> None:
        app = self._task.app
        handles.extend(JobHandle(app, id) for id in await app.client.push_async(jobs))

    def call(self, *args: Any, **kwargs: Any) -> Call[R]:
        """Task with arguments, to be run as a child: `await ctx.all(pack.call(item) for item in items)`."""
        return Call(self, self._task.parameters.payload(args, kwargs))

    def _payload(self, item: Any) -> dict[str, Any]:
        if isinstance(item, Mapping):
            return self._task.parameters.payload((), item)
        return self._task.parameters.payload(item if isinstance(item, tuple) else (item,), {})

    # --- encoding

    def _encoded(self, payload: dict[str, Any], index: int | None = None, *, is_child: bool = False) -> str:
        """Job as JSON text, with keys of its own; `index` is its place among jobs for which one key was given."""
        parts, more = [self._head, ',"payload":', dumps(payload)], dict[str, Any]()
        key = self._options.idempotency_key
        if key is None:
            parts += [',"idempotency_key":"', _keys.fresh(), '"']
        else:
            more["idempotency_key"] = key if index is None else f"{key}/{index}"
        # A child is pushed once by its idempotency key; a job elsewhere with its unique key would not be a child.
        unique = None if is_child else self._unique(payload)
        if unique is not None:
            more["unique"] = unique
        if self._options.tags or _otel.is_active():
            tags = [*self._options.tags, *_otel.tags()]
            if tags:
                more["tags"] = tags
        if more:
            parts += [",", dumps(more)[1:-1]]
        parts.append("}")
        return sendable("".join(parts))

    def _unique(self, payload: dict[str, Any]) -> Any:
        rules, key = self._task.rules, self._options.unique
        if key is None and rules.unique is True:
            key = hashlib.sha256(dumps(dict(sorted(payload.items()))).encode()).hexdigest()[:32]
        elif key is None and callable(rules.unique):
            made = rules.unique(**payload)
            key = None if made is None else str(made)
        if key is None:
            return None
        # Keys belong to the whole tenant: tasks must not get in the way of each other.
        key = f"{self._task.name}:{key}"
        if rules.unique_until == "settled" and rules.on_conflict == "return":
            return key
        return {"key": key, "held_until": rules.unique_until, "on_conflict": rules.on_conflict}

    def _fields(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Options of a push from SQL."""
        fields = self._options.fields()
        unique = self._unique(payload)
        if unique is not None:
            fields["unique"] = unique
        tags = [*self._options.tags, *_otel.tags()]
        if tags:
            fields["tags"] = tags
        return fields


class Task(Sender[R]):
    """Function that runs as a job. Made by `@app.task`; calling it runs the function here and now."""

    def __init__(
        self, app: Windlass, fn: Callable[..., Any], name: str, options: Options, rules: TaskOptions
    ) -> None:
        self.app, self.fn, self.name, self.rules = app, fn, name, rules
        self.parameters = Parameters(fn)
        self.queue = options.queue or "default"
        self.is_async = inspect.iscoroutinefunction(fn)
        if rules.process and (self.is_async or "ctx" in self.parameters.injected):
            raise TypeError(f"{name}: a task with process=True must be a plain function without `ctx`")
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__
        self.__qualname__, self.__wrapped__ = fn.__qualname__, fn
        super().__init__(self, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class Call(Generic[R]):
    """Task with arguments."""

    def __init__(self, sender: Sender[R], payload: dict[str, Any]) -> None:
        self.sender, self.payload = sender, payload

    def encoded(self, index: int | None = None) -> str:
        """Job as JSON text; `index` is its place among calls for which the same idempotency key was given."""
        return self.sender._encoded(self.payload, index)

    @property
    def given_key(self) -> str | None:
        """Idempotency key of its options."""
        return self.sender._options.idempotency_key

    def as_child(self, parent: int, step: str, index: int) -> str:
        """Job as JSON text, as a child that is pushed once and can be found by its tags and its alias."""
        options, key = self.sender._options, child_key(parent, step, index)
        keep = CHILD_KEEP if options.keep is None else options.keep
        tags = (*options.tags, *child_tags(step, index))
        options = dataclasses.replace(options, parent=parent, keep=keep, tags=tags, alias=key, idempotency_key=key)
        return Sender(self.sender._task, options)._encoded(self.payload, is_child=True)


def child_label(step: str, generation: int) -> str:
    """Name of a step of `ctx.all` in the keys and tags of its children: a step that is executed again has others."""
    return f"{step}@{generation}" if generation else step


def child_key(parent: int, step: str, index: int) -> str:
    """Idempotency key and alias of a child of `ctx.all`."""
    return f"{parent}/{step}/{index}"


def child_tags(step: str, index: int) -> tuple[str, str]:
    """Tags by which a child of `ctx.all` is found; the libraries of all languages use the same."""
    return f"windlass.step={step}", f"windlass.index={index}"


class Within(Generic[R]):
    """Pushes in the transaction of a connection."""

    def __init__(self, sender: Sender[R], connection: Any, schema: str) -> None:
        self._sender, self._connection, self._schema = sender, connection, schema

    def push(self, *args: Any, **kwargs: Any) -> JobHandle[R]:
        """Pushes a job; with an asynchronous connection it has to be awaited."""
        task = self._sender._task
        payload = task.parameters.payload(args, kwargs)
        statement = _sql.push(self._schema, task.name, dumps(payload), dumps(self._sender._fields(payload)))
        answer = _sql.execute(self._connection, statement)
        if inspect.isawaitable(answer):
            return JobHandle(task.app, None, asyncio.ensure_future(answer))
        return JobHandle(task.app, answer)
