"""Working on queues with asyncio."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

from . import _calls as calls
from . import _ending as ending
from ._calls import URL, Ask, Claimed, address
from ._ending import log
from ._errors import SideJobError, Unreachable, is_outage
from ._presence import Presence
from ._registry import Registered, classes_of
from ._serve import perform_async
from .aio import AsyncClient, AsyncWorker
from .sync import Client


async def serve_async(
    *queues: str,
    url: str = URL,
    token: str | None = None,
    concurrency: int = 16,
    grace: float = 30.0,
    lease: float | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Runs jobs of these queues until SIGTERM, Ctrl-C, or until `stop` is set.

    If the process dies, its connection ends, and other workers get its runs within a second or two. If it hangs or is
    cut off, they get them after `lease` seconds; the server has a default for it.

    Each queue gets `concurrency` tasks. All classes decorated for a queue are registered with the server and replace
    the classes registered before; subclasses of `Worker` run in threads. At shutdown no more runs are claimed; current
    runs have `grace` seconds to end, and are then cancelled and released for other workers.
    """
    if not queues or concurrency < 1:
        raise ValueError("serve_async requires at least one queue and at least one task")
    stop = stop or asyncio.Event()
    server = AsyncServer(url, token, {queue: classes_of(queue) for queue in queues}, stop, lease)
    told = _stop_on_signals(stop)
    try:
        await server.register()
        await asyncio.to_thread(server.presence.open)
        tasks = [asyncio.create_task(server.work(queue)) for queue in queues for _ in range(concurrency)]
        await stop.wait()
        await server.drain(tasks, grace)
    finally:
        stop.set()
        for number in told:
            asyncio.get_running_loop().remove_signal_handler(number)
        await server.close()
    if server.trouble is not None:
        raise server.trouble


class AsyncServer:
    """Worker tasks of the queues."""

    def __init__(
        self,
        url: str,
        token: str | None,
        queues: dict[str, dict[str, Registered]],
        stop: asyncio.Event,
        lease_s: float | None,
    ) -> None:
        self.url, self.queues, self.stop, self.lease_s = url, queues, stop, lease_s
        self.worker = ending.worker_name()
        self.presence = Presence(address(url, token), self.worker)
        self.client = AsyncClient(url, token=token)
        self.beats = AsyncClient(url, token=token, timeout=ending.BEAT_WITHIN_S)
        #: For classes that know nothing of asyncio.
        self.threads = Client(url, token=token)
        #: Why it cannot go on.
        self.trouble: SideJobError | None = None
        self.running = 0

    async def close(self) -> None:
        self.presence.close()
        await self.client.close()
        await self.beats.close()
        self.threads.close()

    async def register(self) -> None:
        """Registers the classes; waits until the server is reachable."""
        for queue, classes in self.queues.items():
            await self._insist(calls.register(queue, ending.configs(classes)), until=None)

    async def drain(self, tasks: list[asyncio.Task[None]], grace_s: float) -> None:
        """Waits for current runs; releases runs that do not end in time."""
        if self.running:
            log.info("shutting down: waiting for %d runs", self.running)
        # Claims that wait at the server end first: one of them could get a run that is released here.
        _, left = await asyncio.wait(tasks, timeout=max(grace_s, ending.CLAIM_WAIT_S))
        for task in left:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def work(self, queue: str) -> None:
        classes = self.queues[queue]
        claim = calls.claim(
            queue, wait=ending.CLAIM_WAIT_S, worker=self.worker, classes=list(classes), lease=self.lease_s
        )
        while not self.stop.is_set():
            try:
                claimed = await self.client._send(claim)
            except Unreachable as error:
                log.warning("%s; retrying", error)
                # One that comes back may be another one, which knows nothing of our classes.
                await asyncio.sleep(ending.PAUSE_S)
                await self.register()
                continue
            except SideJobError as error:
                self.trouble = self.trouble or error
                self.stop.set()
                return
            if claimed is not None:
                await self._run(classes[claimed.cls], claimed)

    async def _run(self, registered: Registered, claimed: Claimed) -> None:
        log.info("job %s %s: %s", claimed.job, claimed.cls, claimed.kind)
        is_async = issubclass(registered.cls, AsyncWorker)
        run = registered.cls(self.client if is_async else self.threads, claimed)
        alive = asyncio.create_task(self._keep_alive(run))
        self.running += 1
        try:
            if is_async:
                error = await perform_async(self.client, run, claimed)
            else:
                error = await asyncio.to_thread(self._perform, run, claimed)
            ask = ending.finish(run, error, self.url)
            if ask is not None:
                await self._tell(claimed, ask)
        except asyncio.CancelledError:
            log.warning("job %s is not finished in time; it is released for another worker", claimed.job)
            await self._tell(claimed, ending.give_back(claimed))
            raise
        finally:
            self.running -= 1
            alive.cancel()
        if is_outage(error, self.url):
            await asyncio.sleep(ending.AFTER_OUTAGE_S)

    def _perform(self, run: Any, claimed: Claimed) -> BaseException | None:
        try:
            with self.threads.log_context(job=claimed.job):
                if claimed.kind == "shutdown":
                    run.shutdown()
                else:
                    run.perform(*claimed.args)
        except BaseException as raised:
            return raised
        return None

    async def _tell(self, claimed: Claimed, ask: Ask[str]) -> None:
        """Retries while the server is unreachable, until the lease has expired."""
        until = time.monotonic() + claimed.lease_s
        try:
            try:
                await self._insist(ask, until)
            except SideJobError as error:
                instead = ending.instead(claimed, ask, error)
                if instead is None:
                    raise
                await self._insist(instead, until)
        except SideJobError as error:
            ending.unheard(claimed, error)

    async def _insist(self, ask: Ask[Any], until: float | None) -> None:
        pause = ending.PAUSE_S
        while True:
            try:
                await self.client._send(ask)
                return
            except Unreachable as error:
                if until is None and self.stop.is_set():
                    return
                if until is not None and time.monotonic() + pause > until:
                    raise
                log.warning("%s; retrying", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, ending.PAUSE_MAX_S)

    async def _keep_alive(self, run: Any) -> None:
        """Sends heartbeats until cancelled at the end of the run."""
        claimed = run._claimed
        while not run._is_lost:
            await asyncio.sleep(claimed.lease_s / ending.BEATS_PER_LEASE)
            try:
                run._is_lost = not await self.beats._send(
                    calls.refresh_lock(claimed.job, claimed.token, claimed.lease_s)
                )
            except Unreachable as error:
                log.warning("job %s: cannot send a heartbeat: %s", claimed.job, error)
            except SideJobError:
                run._is_lost = True
        log.warning("job %s: the lease of this run is lost", claimed.job)


def _stop_on_signals(stop: asyncio.Event) -> list[signal.Signals]:
    """Returns the signals that are handled."""
    told = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        except (NotImplementedError, RuntimeError, ValueError):
            # Not on this system, or not in this thread.
            continue
        told.append(number)
    return told
