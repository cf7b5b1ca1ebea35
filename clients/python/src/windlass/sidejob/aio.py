"""Jobs, their ports, and workers, for asyncio. The same as `sync.py`, with `await`."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from .._http import AsyncTransport
from . import _calls as calls
from ._calls import MISSING, URL, Claimed, Declared, JobInfo, Json, PortInfo, Side, Write, address
from ._errors import Empty, NotFound, Suspend


class AsyncClient:
    """Client: creates and looks up jobs. Belongs to one event loop."""

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 30.0) -> None:
        self._transport = AsyncTransport(address(url, token), timeout)
        self._send = self._transport.send

    async def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        parent: AsyncJob | int | None = None,
        name: str | None = None,
        by: str | None = None,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> AsyncJob:
        """Creates a job and runs it, now or at the given time. `args` are passed to `perform` in every run."""
        parent_id = parent.id if isinstance(parent, AsyncJob) else parent
        asked = calls.create(
            queue, cls, args, parent=parent_id, name=name, by=by, at=at, wait=wait, inports=inports, outports=outports
        )
        return AsyncJob(self, await self._send(asked))

    def job(self, id: int) -> AsyncJob:
        """Returns the job with this id, without checking that it exists."""
        return AsyncJob(self, id)

    async def find(self, id: int) -> AsyncJob | None:
        """Returns the job with this id, or `None` if it does not exist."""
        job = self.job(id)
        return job if await job.exists() else None

    async def register(self, queue: str, classes: Mapping[str, Mapping[str, Json]]) -> None:
        """Registers all classes of a queue. `serve` does this itself."""
        await self._send(calls.register(queue, classes))

    async def registered(self, queue: str) -> dict[str, Json]:
        """Returns the registered classes of a queue."""
        return await self._send(calls.registered(queue))

    async def logs(self, *, limit: int | None = None, after: int | None = None) -> list[dict[str, Json]]:
        """Returns log entries, oldest first."""
        return await self._send(calls.logs(limit, after))

    async def clear_logs(self) -> list[dict[str, Json]]:
        """Returns the log entries and deletes exactly these."""
        return await self._send(calls.clear_logs())

    async def log(self, **entry: Json) -> None:
        """Adds an entry to the log."""
        await self._send(calls.log(entry))

    @contextmanager
    def log_context(self, **fields: Json) -> Iterator[None]:
        """Context manager: log entries caused by calls of this task carry these fields."""
        reset = calls._log_context.set({**calls._log_context.get(), **fields})
        try:
            yield
        finally:
            calls._log_context.reset(reset)

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncJob:
    """A job. Two objects are equal if they have the same id."""

    def __init__(self, client: AsyncClient, id: int) -> None:
        self.client, self.id = client, id
        self._send = client._send

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJob) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"job:{self.id}"

    async def info(self) -> JobInfo:
        """Returns status, state, ports and children."""
        return await self._send(calls.info(self.id))

    async def exists(self) -> bool:
        """True if the job exists."""
        try:
            await self.info()
        except NotFound:
            return False
        return True

    async def status(self) -> str:
        """Returns queued, running, suspended, completed, failed, terminating or terminated."""
        return (await self.info()).status

    async def set_status(self, status: str) -> str:
        """Sets the status; during a run, this takes effect when the run ends."""
        return await self._send(calls.set_status(self.id, status))

    async def wait(self, *statuses: str, within: float = 30.0) -> str:
        """Waits until the job has one of these statuses; raises `TimeoutError` after `within` seconds."""
        until = time.monotonic() + within
        while (status := await self.status()) not in statuses:
            if time.monotonic() > until:
                raise TimeoutError(f"{self!r} is {status} after {within} s, not {' or '.join(statuses)}")
            await asyncio.sleep(0.05)
        return status

    async def run(
        self,
        *,
        force: bool = False,
        at: datetime | float | None = None,
        wait: float | None = None,
        parent: bool = False,
    ) -> AsyncJob | None:
        """Runs the job, or its parent; returns the job that runs. A failed or terminated job runs only with `force`."""
        ran = await self._send(calls.run(self.id, force=force, at=at, wait=wait, parent=parent))
        return None if ran is None else AsyncJob(self.client, ran)

    async def terminate(self, *, recursive: bool = False) -> str:
        """Terminates the job, and with `recursive` all its descendants."""
        return await self._send(calls.terminate(self.id, recursive=recursive))

    async def delete(self) -> bool:
        """Deletes the job and its descendants if all of them are terminated."""
        return await self._send(calls.delete(self.id))

    async def state(self) -> dict[str, Json]:
        """Returns the whole state: the job's own keys and those of the server."""
        return await self._send(calls.state(self.id))

    async def get(self, key: str, otherwise: Json = None) -> Json:
        """Returns one value of the state."""
        return (await self.state()).get(key, otherwise)

    async def set(self, **values: Json) -> None:
        """Sets values of the state; other keys do not change."""
        await self._send(calls.set_state(self.id, values))

    async def unset(self, *keys: str) -> None:
        """Deletes keys of the state."""
        await self._send(calls.unset(self.id, keys))

    async def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        name: str,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> AsyncJob:
        """Creates a child. Each time a run of the child ends, its parent runs."""
        return await self.client.queue(
            queue,
            cls,
            *args,
            parent=self,
            name=name,
            by=f"job:{self.id}",
            at=at,
            wait=wait,
            inports=inports,
            outports=outports,
        )

    async def children(self) -> dict[str, AsyncJob]:
        """Returns the children by name."""
        return {name: AsyncJob(self.client, id) for name, id in (await self._send(calls.children(self.id))).items()}

    async def child(self, name: str) -> AsyncJob | None:
        """Returns a child by name, or `None`."""
        id = await self._send(calls.child(self.id, name))
        return None if id is None else AsyncJob(self.client, id)

    async def parent(self) -> AsyncJob | None:
        """Returns the parent, or `None`."""
        id = (await self.info()).parent
        return None if id is None else AsyncJob(self.client, id)

    async def adopt(self, orphan: AsyncJob, name: str) -> None:
        """Adopts a job that has no parent."""
        await self._send(calls.adopt(self.id, orphan.id, name))

    async def disown(self, child: AsyncJob | str) -> None:
        """Disowns a child, given by name or as a job."""
        await self._send(calls.disown(self.id, child if isinstance(child, str) else child.id))

    def input(self, name: str) -> AsyncPort:
        """Returns an input port. A write to it runs the job."""
        return AsyncPort(self, "inports", name)

    def output(self, name: str) -> AsyncPort:
        """Returns an output port. A write to it runs the parent."""
        return AsyncPort(self, "outports", name)

    async def set_ports(self, *, inports: Declared | None = None, outports: Declared | None = None) -> None:
        """Sets the complete list of ports, in addition to those of the class."""
        await self._send(calls.set_ports(self.id, inports, outports))

    async def lock(self, ttl: float) -> str | None:
        """Locks the job against workers for `ttl` seconds. Returns the token, or `None` if the job is locked."""
        return await self._send(calls.lock(self.id, ttl))

    async def refresh_lock(self, token: str, ttl: float) -> bool:
        """Extends a lock."""
        return await self._send(calls.refresh_lock(self.id, token, ttl))

    async def unlock(self, token: str) -> bool:
        """Unlocks the job."""
        return await self._send(calls.unlock(self.id, token))

    async def _write(self, port: AsyncPort, values: Sequence[Json]) -> None:
        await self._send(calls.write(self.id, port.side, port.name, values))


class AsyncPort:
    """A port: a queue of values, with an optional default that is read when the queue is empty."""

    def __init__(self, job: AsyncJob, side: Side, name: str) -> None:
        self.job, self.side, self.name = job, side, name

    def __repr__(self) -> str:
        return f"{self.job!r}.{self.side}.{self.name}"

    async def info(self) -> PortInfo:
        """Returns size and default."""
        return await self.job._send(calls.port_info(self.job.id, self.side, self.name))

    async def size(self) -> int:
        """Returns the number of queued values, without the default."""
        return (await self.info()).size

    async def read(self, otherwise: Json = MISSING) -> Json:
        """Takes the oldest value, else returns the default, else `otherwise`; raises `Empty` if there is none."""
        value = await self.job._send(calls.read(self.job.id, self.side, self.name))
        if value is not MISSING:
            return value
        if otherwise is not MISSING:
            return otherwise
        raise Empty(f"{self!r} is empty")

    async def entries(self) -> list[Json]:
        """Takes all values, oldest first."""
        return await self.job._send(calls.entries(self.job.id, self.side, self.name))

    async def write(self, *values: Json) -> None:
        """Appends values and runs the job or its parent; within `for_inputs`, when the iteration ends."""
        if values:
            await self.job._write(self, values)

    async def set_default(self, default: Json) -> None:
        """Sets the default, which may be `None`. Runs no job."""
        await self.job._send(calls.set_default(self.job.id, self.side, self.name, default))

    async def clear_default(self) -> None:
        """Removes the default."""
        await self.job._send(calls.set_default(self.job.id, self.side, self.name, MISSING))

    async def connect(self, *to: AsyncPort) -> list[Json]:
        """Moves all values to each of these ports, and copies the default. Returns the moved values."""
        ports = [calls.port_at(port.job.id, port.side, port.name) for port in to]
        return await self.job._send(calls.connect(self.job.id, self.side, self.name, ports))


class AsyncWorker(AsyncJob):
    """A job during a run. Subclass it, decorate the class with `@worker("queue")`, and define `perform`."""

    def __init__(self, client: AsyncClient, claimed: Claimed) -> None:
        super().__init__(client, claimed.job)
        #: What it was made with.
        self.args = claimed.args
        self._claimed = claimed
        self._is_lost = False
        self._is_iterating = False
        self._writes: list[Write] = []

    async def perform(self, *args: Any, **kwargs: Any) -> None:
        """One run. Returning completes it, `suspend()` suspends it, an exception fails it."""
        raise NotImplementedError(f"{type(self).__name__} has no perform")

    async def shutdown(self) -> None:
        """Last run of a terminated job."""

    @classmethod
    def wants_shutdown(cls) -> bool:
        """True if the class defines `shutdown`."""
        return cls.shutdown is not AsyncWorker.shutdown

    @property
    def is_lost(self) -> bool:
        """True if the lease of the run is lost; the run should then stop."""
        return self._is_lost

    def suspend(self) -> None:
        """Ends the run; the job is suspended until its next run."""
        raise Suspend

    async def for_inputs(self, *names: str) -> AsyncIterator[tuple[Json, ...]]:
        """Yields one value of each input per iteration, until an input is empty.

        If some inputs have values and others have neither values nor a default, the job is suspended. Values that an
        iteration writes to the job's own ports are written when it ends, atomically with reading its inputs. If the
        iteration fails, nothing is written and the inputs return to their ports.
        """
        while True:
            writes, self._writes, self._is_iterating = self._writes, [], False
            inputs = await self._send(calls.for_inputs(self.id, self._claimed.token, names, writes))
            if inputs.next == "suspend":
                raise Suspend
            if inputs.next != "call":
                return
            self._is_iterating = True
            yield inputs.values

    async def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        name: str,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> AsyncJob:
        """Creates a child. Each time a run of the child ends, this job runs."""
        asked = calls.create(
            queue,
            cls,
            args,
            parent=self.id,
            name=name,
            by=None,
            at=at,
            wait=wait,
            inports=inports,
            outports=outports,
            token=self._claimed.token,
        )
        return AsyncJob(self.client, await self._send(asked))

    async def _write(self, port: AsyncPort, values: Sequence[Json]) -> None:
        if not self._is_iterating:
            return await super()._write(port, values)
        self._writes.append({port.side.removesuffix("s"): port.name, "list": copy.deepcopy(list(values))})
        return None
