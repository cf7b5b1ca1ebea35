"""Jobs, their ports, and workers, for threads."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from .._http import Transport
from . import _calls as calls
from ._calls import MISSING, URL, Claimed, Declared, JobInfo, Json, PortInfo, Side, Write, address
from ._errors import Empty, NotFound, Suspend


class Client:
    """Client: creates and looks up jobs. Can be shared by threads."""

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 30.0) -> None:
        self._transport = Transport(address(url, token), timeout)
        self._send = self._transport.send

    def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        parent: Job | int | None = None,
        name: str | None = None,
        by: str | None = None,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> Job:
        """Creates a job and runs it, now or at the given time. `args` are passed to `perform` in every run."""
        parent_id = parent.id if isinstance(parent, Job) else parent
        asked = calls.create(
            queue, cls, args, parent=parent_id, name=name, by=by, at=at, wait=wait, inports=inports, outports=outports
        )
        return Job(self, self._send(asked))

    def job(self, id: int) -> Job:
        """Returns the job with this id, without checking that it exists."""
        return Job(self, id)

    def find(self, id: int) -> Job | None:
        """Returns the job with this id, or `None` if it does not exist."""
        job = self.job(id)
        return job if job.exists() else None

    def register(self, queue: str, classes: Mapping[str, Mapping[str, Json]]) -> None:
        """Registers all classes of a queue. `serve` does this itself."""
        self._send(calls.register(queue, classes))

    def registered(self, queue: str) -> dict[str, Json]:
        """Returns the registered classes of a queue."""
        return self._send(calls.registered(queue))

    def logs(self, *, limit: int | None = None, after: int | None = None) -> list[dict[str, Json]]:
        """Returns log entries, oldest first."""
        return self._send(calls.logs(limit, after))

    def clear_logs(self) -> list[dict[str, Json]]:
        """Returns the log entries and deletes exactly these."""
        return self._send(calls.clear_logs())

    def log(self, **entry: Json) -> None:
        """Adds an entry to the log."""
        self._send(calls.log(entry))

    @contextmanager
    def log_context(self, **fields: Json) -> Iterator[None]:
        """Context manager: log entries caused by calls of this thread carry these fields."""
        reset = calls._log_context.set({**calls._log_context.get(), **fields})
        try:
            yield
        finally:
            calls._log_context.reset(reset)

    def close(self) -> None:
        """Closes all connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Job:
    """A job. Two objects are equal if they have the same id."""

    def __init__(self, client: Client, id: int) -> None:
        self.client, self.id = client, id
        self._send = client._send

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"job:{self.id}"

    def info(self) -> JobInfo:
        """Returns status, state, ports and children."""
        return self._send(calls.info(self.id))

    def exists(self) -> bool:
        """True if the job exists."""
        try:
            self.info()
        except NotFound:
            return False
        return True

    @property
    def status(self) -> str:
        """Returns queued, running, suspended, completed, failed, terminating or terminated."""
        return self.info().status

    def set_status(self, status: str) -> str:
        """Sets the status; during a run, this takes effect when the run ends."""
        return self._send(calls.set_status(self.id, status))

    def wait(self, *statuses: str, within: float = 30.0) -> str:
        """Waits until the job has one of these statuses; raises `TimeoutError` after `within` seconds."""
        until = time.monotonic() + within
        while (status := self.status) not in statuses:
            if time.monotonic() > until:
                raise TimeoutError(f"{self!r} is {status} after {within} s, not {' or '.join(statuses)}")
            time.sleep(0.05)
        return status

    def run(
        self,
        *,
        force: bool = False,
        at: datetime | float | None = None,
        wait: float | None = None,
        parent: bool = False,
    ) -> Job | None:
        """Runs the job, or its parent; returns the job that runs. A failed or terminated job runs only with `force`."""
        ran = self._send(calls.run(self.id, force=force, at=at, wait=wait, parent=parent))
        return None if ran is None else Job(self.client, ran)

    def terminate(self, *, recursive: bool = False) -> str:
        """Terminates the job, and with `recursive` all its descendants."""
        return self._send(calls.terminate(self.id, recursive=recursive))

    def delete(self) -> bool:
        """Deletes the job and its descendants if all of them are terminated."""
        return self._send(calls.delete(self.id))

    def state(self) -> dict[str, Json]:
        """Returns the whole state: the job's own keys and those of the server."""
        return self._send(calls.state(self.id))

    def get(self, key: str, otherwise: Json = None) -> Json:
        """Returns one value of the state."""
        return self.state().get(key, otherwise)

    def set(self, **values: Json) -> None:
        """Sets values of the state; other keys do not change."""
        self._send(calls.set_state(self.id, values))

    def unset(self, *keys: str) -> None:
        """Deletes keys of the state."""
        self._send(calls.unset(self.id, keys))

    def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        name: str,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> Job:
        """Creates a child. Each time a run of the child ends, its parent runs."""
        return self.client.queue(
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

    def children(self) -> dict[str, Job]:
        """Returns the children by name."""
        return {name: Job(self.client, id) for name, id in self._send(calls.children(self.id)).items()}

    def child(self, name: str) -> Job | None:
        """Returns a child by name, or `None`."""
        id = self._send(calls.child(self.id, name))
        return None if id is None else Job(self.client, id)

    def parent(self) -> Job | None:
        """Returns the parent, or `None`."""
        id = self.info().parent
        return None if id is None else Job(self.client, id)

    def adopt(self, orphan: Job, name: str) -> None:
        """Adopts a job that has no parent."""
        self._send(calls.adopt(self.id, orphan.id, name))

    def disown(self, child: Job | str) -> None:
        """Disowns a child, given by name or as a job."""
        self._send(calls.disown(self.id, child if isinstance(child, str) else child.id))

    def input(self, name: str) -> Port:
        """Returns an input port. A write to it runs the job."""
        return Port(self, "inports", name)

    def output(self, name: str) -> Port:
        """Returns an output port. A write to it runs the parent."""
        return Port(self, "outports", name)

    def set_ports(self, *, inports: Declared | None = None, outports: Declared | None = None) -> None:
        """Sets the complete list of ports, in addition to those of the class."""
        self._send(calls.set_ports(self.id, inports, outports))

    def lock(self, ttl: float) -> str | None:
        """Locks the job against workers for `ttl` seconds. Returns the token, or `None` if the job is locked."""
        return self._send(calls.lock(self.id, ttl))

    def refresh_lock(self, token: str, ttl: float) -> bool:
        """Extends a lock."""
        return self._send(calls.refresh_lock(self.id, token, ttl))

    def unlock(self, token: str) -> bool:
        """Unlocks the job."""
        return self._send(calls.unlock(self.id, token))

    def _write(self, port: Port, values: Sequence[Json]) -> None:
        self._send(calls.write(self.id, port.side, port.name, values))


class Port:
    """A port: a queue of values, with an optional default that is read when the queue is empty."""

    def __init__(self, job: Job, side: Side, name: str) -> None:
        self.job, self.side, self.name = job, side, name

    def __repr__(self) -> str:
        return f"{self.job!r}.{self.side}.{self.name}"

    def info(self) -> PortInfo:
        """Returns size and default."""
        return self.job._send(calls.port_info(self.job.id, self.side, self.name))

    def size(self) -> int:
        """Returns the number of queued values, without the default."""
        return self.info().size

    def read(self, otherwise: Json = MISSING) -> Json:
        """Takes the oldest value, else returns the default, else `otherwise`; raises `Empty` if there is none."""
        value = self.job._send(calls.read(self.job.id, self.side, self.name))
        if value is not MISSING:
            return value
        if otherwise is not MISSING:
            return otherwise
        raise Empty(f"{self!r} is empty")

    def entries(self) -> list[Json]:
        """Takes all values, oldest first."""
        return self.job._send(calls.entries(self.job.id, self.side, self.name))

    def write(self, *values: Json) -> None:
        """Appends values and runs the job or its parent; within `for_inputs`, when the iteration ends."""
        if values:
            self.job._write(self, values)

    def set_default(self, default: Json) -> None:
        """Sets the default, which may be `None`. Runs no job."""
        self.job._send(calls.set_default(self.job.id, self.side, self.name, default))

    def clear_default(self) -> None:
        """Removes the default."""
        self.job._send(calls.set_default(self.job.id, self.side, self.name, MISSING))

    def connect(self, *to: Port) -> list[Json]:
        """Moves all values to each of these ports, and copies the default. Returns the moved values."""
        ports = [calls.port_at(port.job.id, port.side, port.name) for port in to]
        return self.job._send(calls.connect(self.job.id, self.side, self.name, ports))


class Worker(Job):
    """A job during a run. Subclass it, decorate the class with `@worker("queue")`, and define `perform`."""

    def __init__(self, client: Client, claimed: Claimed) -> None:
        super().__init__(client, claimed.job)
        #: What it was made with.
        self.args = claimed.args
        self._claimed = claimed
        self._is_lost = False
        self._is_iterating = False
        self._writes: list[Write] = []

    def perform(self, *args: Any, **kwargs: Any) -> None:
        """One run. Returning completes it, `suspend()` suspends it, an exception fails it."""
        raise NotImplementedError(f"{type(self).__name__} has no perform")

    def shutdown(self) -> None:
        """Last run of a terminated job."""

    @classmethod
    def wants_shutdown(cls) -> bool:
        """True if the class defines `shutdown`."""
        return cls.shutdown is not Worker.shutdown

    @property
    def is_lost(self) -> bool:
        """True if the lease of the run is lost; the run should then stop."""
        return self._is_lost

    def suspend(self) -> None:
        """Ends the run; the job is suspended until its next run."""
        raise Suspend

    def for_inputs(self, *names: str) -> Iterator[tuple[Json, ...]]:
        """Yields one value of each input per iteration, until an input is empty.

        If some inputs have values and others have neither values nor a default, the job is suspended. Values that an
        iteration writes to the job's own ports are written when it ends, atomically with reading its inputs. If the
        iteration fails, nothing is written and the inputs return to their ports.
        """
        while True:
            writes, self._writes, self._is_iterating = self._writes, [], False
            inputs = self._send(calls.for_inputs(self.id, self._claimed.token, names, writes))
            if inputs.next == "suspend":
                raise Suspend
            if inputs.next != "call":
                return
            self._is_iterating = True
            yield inputs.values

    def queue(
        self,
        queue: str,
        cls: str,
        *args: Json,
        name: str,
        at: datetime | float | None = None,
        wait: float | None = None,
        inports: Declared | None = None,
        outports: Declared | None = None,
    ) -> Job:
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
        return Job(self.client, self._send(asked))

    def _write(self, port: Port, values: Sequence[Json]) -> None:
        if not self._is_iterating:
            return super()._write(port, values)
        self._writes.append({port.side.removesuffix("s"): port.name, "list": copy.deepcopy(list(values))})
        return None
