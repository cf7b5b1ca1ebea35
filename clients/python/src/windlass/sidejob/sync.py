"""Jobs, their ports, and workers, for threads."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from . import _calls as calls
from ._calls import MISSING, Claimed, Declared, JobInfo, Json, PortInfo, Side, Write
from ._errors import Empty, NotFound, Suspend
from ._http import URL, Address, Transport


class Client:
    """Makes jobs and finds them. May be shared by threads."""

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 30.0) -> None:
        self._transport = Transport(Address(url, token), timeout)
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
        """Makes a job and runs it, at once or at a time. `args` are what `perform` gets, each time."""
        parent_id = parent.id if isinstance(parent, Job) else parent
        asked = calls.create(
            queue, cls, args, parent=parent_id, name=name, by=by, at=at, wait=wait, inports=inports, outports=outports
        )
        return Job(self, self._send(asked))

    def job(self, id: int) -> Job:
        """That job, whether there is one or not."""
        return Job(self, id)

    def find(self, id: int) -> Job | None:
        """That job, if there is one."""
        job = self.job(id)
        return job if job.exists() else None

    def register(self, queue: str, classes: Mapping[str, Mapping[str, Json]]) -> None:
        """All classes of a queue. `serve` does it for you."""
        self._send(calls.register(queue, classes))

    def registered(self, queue: str) -> dict[str, Json]:
        """The classes of a queue."""
        return self._send(calls.registered(queue))

    def logs(self, *, limit: int | None = None, after: int | None = None) -> list[dict[str, Json]]:
        """What happened, oldest first."""
        return self._send(calls.logs(limit, after))

    def clear_logs(self) -> list[dict[str, Json]]:
        """What happened; exactly that is gone from the log then."""
        return self._send(calls.clear_logs())

    def log(self, **entry: Json) -> None:
        """Adds an entry."""
        self._send(calls.log(entry))

    @contextmanager
    def log_context(self, **fields: Json) -> Iterator[None]:
        """Within it, all entries that come of this thread's calls carry these fields."""
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
    """A job. Two are equal if they are the same job."""

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
        """All about it."""
        return self._send(calls.info(self.id))

    def exists(self) -> bool:
        """Whether there is such a job."""
        try:
            self.info()
        except NotFound:
            return False
        return True

    @property
    def status(self) -> str:
        """queued, running, suspended, completed, failed, terminating or terminated."""
        return self.info().status

    def set_status(self, status: str) -> str:
        """Puts it into a status; during a run that holds when the run ends."""
        return self._send(calls.set_status(self.id, status))

    def wait(self, *statuses: str, within: float = 30.0) -> str:
        """Waits until it is in one of these statuses; `TimeoutError` if that takes longer."""
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
        """Runs it, or its parent; answers who was run. One that failed or is terminated is only run with `force`."""
        ran = self._send(calls.run(self.id, force=force, at=at, wait=wait, parent=parent))
        return None if ran is None else Job(self.client, ran)

    def terminate(self, *, recursive: bool = False) -> str:
        """Gives it its last run, and with `recursive` all its descendants theirs."""
        return self._send(calls.terminate(self.id, recursive=recursive))

    def delete(self) -> bool:
        """Deletes it with all its descendants, if all of them are terminated."""
        return self._send(calls.delete(self.id))

    def state(self) -> dict[str, Json]:
        """What it keeps, and what the server keeps of it."""
        return self._send(calls.state(self.id))

    def get(self, key: str, otherwise: Json = None) -> Json:
        """One value of its state."""
        return self.state().get(key, otherwise)

    def set(self, **values: Json) -> None:
        """Sets values of its state; others stay."""
        self._send(calls.set_state(self.id, values))

    def unset(self, *keys: str) -> None:
        """Forgets values of its state."""
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
        """Makes a child. Whenever it has run, its parent is run."""
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
        """Its children by name."""
        return {name: Job(self.client, id) for name, id in self._send(calls.children(self.id)).items()}

    def child(self, name: str) -> Job | None:
        """One child."""
        id = self._send(calls.child(self.id, name))
        return None if id is None else Job(self.client, id)

    def parent(self) -> Job | None:
        """Its parent."""
        id = self.info().parent
        return None if id is None else Job(self.client, id)

    def adopt(self, orphan: Job, name: str) -> None:
        """Makes a job without a parent its child."""
        self._send(calls.adopt(self.id, orphan.id, name))

    def disown(self, child: Job | str) -> None:
        """Lets a child go, by its name or itself."""
        self._send(calls.disown(self.id, child if isinstance(child, str) else child.id))

    def input(self, name: str) -> Port:
        """An input port. What is written to it runs the job."""
        return Port(self, "inports", name)

    def output(self, name: str) -> Port:
        """An output port. What is written to it runs the parent."""
        return Port(self, "outports", name)

    def set_ports(self, *, inports: Declared | None = None, outports: Declared | None = None) -> None:
        """All ports there are to be, beside those of its class."""
        self._send(calls.set_ports(self.id, inports, outports))

    def lock(self, ttl: float) -> str | None:
        """Keeps workers away for so many seconds. Answers with the key, or `None` if somebody else has one."""
        return self._send(calls.lock(self.id, ttl))

    def refresh_lock(self, token: str, ttl: float) -> bool:
        """More time for a lock."""
        return self._send(calls.refresh_lock(self.id, token, ttl))

    def unlock(self, token: str) -> bool:
        """Lets workers in again."""
        return self._send(calls.unlock(self.id, token))

    def _write(self, port: Port, values: Sequence[Json]) -> None:
        self._send(calls.write(self.id, port.side, port.name, values))


class Port:
    """A queue of values, with a default for when it is empty."""

    def __init__(self, job: Job, side: Side, name: str) -> None:
        self.job, self.side, self.name = job, side, name

    def __repr__(self) -> str:
        return f"{self.job!r}.{self.side}.{self.name}"

    def info(self) -> PortInfo:
        """How it is."""
        return self.job._send(calls.port_info(self.job.id, self.side, self.name))

    def size(self) -> int:
        """Values that wait; a default is none of them."""
        return self.info().size

    def read(self, otherwise: Json = MISSING) -> Json:
        """The oldest value, else the default, else `otherwise`; without that, `Empty` is raised."""
        value = self.job._send(calls.read(self.job.id, self.side, self.name))
        if value is not MISSING:
            return value
        if otherwise is not MISSING:
            return otherwise
        raise Empty(f"{self!r} is empty")

    def entries(self) -> list[Json]:
        """All values, oldest first; the port is empty then."""
        return self.job._send(calls.entries(self.job.id, self.side, self.name))

    def write(self, *values: Json) -> None:
        """Appends, and runs who is to hear of it. Within an iteration of `for_inputs` it happens when that has ended."""
        if values:
            self.job._write(self, values)

    def set_default(self, default: Json) -> None:
        """What is read when it is empty; `None` is a value like others. Runs nobody."""
        self.job._send(calls.set_default(self.job.id, self.side, self.name, default))

    def clear_default(self) -> None:
        """From now on there is none."""
        self.job._send(calls.set_default(self.job.id, self.side, self.name, MISSING))

    def connect(self, *to: Port) -> list[Json]:
        """Moves all values, and copies the default, to each of these ports. Answers with what was moved."""
        ports = [calls.port_at(port.job.id, port.side, port.name) for port in to]
        return self.job._send(calls.connect(self.job.id, self.side, self.name, ports))


class Worker(Job):
    """A job while it runs. Subclass it, decorate it with `@worker("queue")`, and write `perform`."""

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
        """The last run of a job that is terminated."""

    @classmethod
    def wants_shutdown(cls) -> bool:
        """Whether it has a `shutdown` of its own."""
        return cls.shutdown is not Worker.shutdown

    @property
    def is_lost(self) -> bool:
        """Whether the run is not this worker's any more: then it may as well stop."""
        return self._is_lost

    def suspend(self) -> None:
        """Ends the run here; the job waits to be run again."""
        raise Suspend

    def for_inputs(self, *names: str) -> Iterator[tuple[Json, ...]]:
        """One value of each input, again and again, until there are no more sets of them.

        If some inputs have values and others have neither values nor a default, the job is suspended. What an iteration
        writes to the job's own ports is written when it ends, in one step with having read its inputs: it happens as a
        whole or, if it fails, not at all, and the inputs are there again.
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
        """Makes a child. Whenever it has run, this job is run."""
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
