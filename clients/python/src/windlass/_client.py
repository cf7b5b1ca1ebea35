"""Sending calls: blocking, and with asyncio. Calls are repeated while the server is unreachable."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from . import _wire as wire
from ._errors import BadRequest, Unreachable, WindlassError, is_passing
from ._http import Address, AsyncTransport, Transport
from ._wire import Ask

T = TypeVar("T")

#: Sequence of calls: yields a call, gets its result, returns the result of the whole.
Flow: TypeAlias = Generator[Ask[Any], Any, T]

# Between tries while the server is unreachable: from, to.
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
# Pushes of one event loop that are on their way at once; further ones are collected into the next batch.
FLIGHTS_MAX = 4


class Backoff:
    """Pauses between tries: doubling, with jitter."""

    def __init__(self, first_s: float = PAUSE_S, longest_s: float = PAUSE_MAX_S) -> None:
        self.first_s, self.longest_s, self.next_s = first_s, longest_s, first_s

    def pause(self) -> float:
        """Seconds until the next try: half to all of the current pause."""
        pause, self.next_s = self.next_s, min(2 * self.next_s, self.longest_s)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.next_s = self.first_s


def in_coroutine() -> bool:
    """True if an event loop runs in this thread: then calls are awaited; otherwise they block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def batches(jobs: Iterable[str]) -> Iterator[list[str]]:
    """Jobs in batches that one call can carry."""
    batch: list[str] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) >= wire.BATCH_MAX or size + len(job) > wire.BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += len(job)
    if batch:
        yield batch


class Client:
    """Connection to a server, shared by threads and event loops."""

    def __init__(self, server: str, token: str | None, *, timeout_s: float = 30.0, patience_s: float = 30.0) -> None:
        self.address = Address(server, token, Unreachable)
        self.timeout_s, self.patience_s = timeout_s, patience_s
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._threads = Transport(self.address, self.timeout_s)
        self._loops: dict[asyncio.AbstractEventLoop, LoopLink] = {}

    @property
    def url(self) -> str:
        return self.address.url

    def send(self, ask: Ask[T], patience_s: float | None = None) -> T:
        """Sends a call and blocks until its response."""
        if self._pid != os.getpid():
            # Connections of the parent process must not be used after a fork.
            self._open()
        until, backoff = time.monotonic() + (self.patience_s if patience_s is None else patience_s), Backoff()
        while True:
            try:
                return self._threads.send(ask)
            except Unreachable as error:
                pause = backoff.pause()
                if not is_passing(error) or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)

    async def send_async(self, ask: Ask[T], patience_s: float | None = None) -> T:
        """Sends a call and waits for its response."""
        until, backoff = time.monotonic() + (self.patience_s if patience_s is None else patience_s), Backoff()
        link = self._link()
        await link.open()
        while True:
            try:
                return await link.transport.send(ask)
            except Unreachable as error:
                pause = backoff.pause()
                if not is_passing(error) or time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)

    def _link(self) -> LoopLink:
        """Connections of the running event loop."""
        if self._pid != os.getpid():
            self._open()
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for other in [other for other in self._loops if other.is_closed()]:
                del self._loops[other]
            found = self._loops[loop] = LoopLink(self)
        return found

    def run(self, flow: Flow[T]) -> T:
        """Runs a flow; blocks."""
        try:
            ask = next(flow)
            while True:
                try:
                    said = self.send(ask)
                except WindlassError as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(said)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def run_async(self, flow: Flow[T]) -> T:
        """Runs a flow with asyncio."""
        try:
            ask = next(flow)
            while True:
                try:
                    said = await self.send_async(ask)
                except WindlassError as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(said)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def perform(self, flow: Flow[T]) -> Any:
        """Runs a flow: an awaitable in a coroutine, its result elsewhere."""
        return self.run_async(flow) if in_coroutine() else self.run(flow)

    def push(self, jobs: Iterable[str]) -> list[int]:
        """Pushes jobs in batches; blocks."""
        return [id for batch in batches(jobs) for id in _ids(self.send(wire.push(batch)))]

    async def push_async(self, jobs: Iterable[str]) -> list[int]:
        """Pushes jobs in batches."""
        ids: list[int] = []
        for batch in batches(jobs):
            ids += _ids(await self.send_async(wire.push(batch)))
        return ids

    def push_soon(self, job: str) -> asyncio.Future[int]:
        """Pushes a job together with others of this event loop."""
        return self._link().pusher.push(job)

    def close(self) -> None:
        """Closes the connections of threads."""
        self._threads.close()

    async def close_async(self) -> None:
        """Closes the connections of the running event loop, and of threads."""
        await self.leave_loop()
        self.close()

    async def leave_loop(self) -> None:
        """Closes the connections of the running event loop."""
        link = self._loops.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.transport.close()


def _ids(pushed: wire.Pushed) -> list[int]:
    ids: list[int] = []
    for answer in pushed:
        if isinstance(answer, WindlassError):
            raise answer
        ids.append(answer)
    return ids


class LoopLink:
    """Connections and pushes of one event loop."""

    def __init__(self, client: Client) -> None:
        self.transport = AsyncTransport(client.address, client.timeout_s)
        self.pusher = Pusher(client)
        self._life: AsyncGenerator[None, None] | None = None

    async def open(self) -> None:
        """Makes sure that the connections are closed together with the event loop."""
        if self._life is None:
            self._life = self._live()
            await self._life.__anext__()

    async def _live(self) -> AsyncGenerator[None, None]:
        # An event loop closes its generators when it ends.
        try:
            yield
        finally:
            await self.transport.close()


class Pusher:
    """Collects the pushes of an event loop: pushes that are made at the same time share a call."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pending: list[tuple[str, asyncio.Future[int]]] = []
        self._flights: set[asyncio.Task[None]] = set()

    def push(self, job: str) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._pending.append((job, future))
        # The first push of a round starts a flight; it leaves with the next turn of the event loop.
        if len(self._pending) == 1 and len(self._flights) < FLIGHTS_MAX:
            flight = loop.create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return future

    async def _fly(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, []
            done = 0
            for batch in batches(job for job, _ in pending):
                await self._send(batch, [future for _, future in pending[done : done + len(batch)]])
                done += len(batch)

    async def _send(self, batch: list[str], futures: list[asyncio.Future[int]]) -> None:
        answers: list[Any]
        try:
            answers = await self._client.send_async(wire.push(batch))
        except BadRequest as error:
            if len(batch) > 1:
                # One of them is malformed; the others have nothing to do with it.
                for job, future in zip(batch, futures):
                    await self._send([job], [future])
                return
            answers = [error]
        except Exception as error:
            answers = [error] * len(batch)
        for future, answer in zip(futures, answers):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
