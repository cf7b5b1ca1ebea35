"""Working on queues with threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from . import _calls as calls
from . import _ending as ending
from ._calls import URL, Ask, Claimed, address
from ._ending import log
from ._errors import SideJobError, Unreachable, is_outage
from ._presence import Presence
from ._registry import Registered, classes_of
from .aio import AsyncClient, AsyncWorker
from .sync import Client


def serve(
    *queues: str,
    url: str = URL,
    token: str | None = None,
    concurrency: int = 1,
    grace: float = 30.0,
    lease: float | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Runs jobs of these queues until SIGTERM, Ctrl-C, or until `stop` is set.

    If the process dies, its connection ends, and other workers get its runs within a second or two. If it hangs or is
    cut off, they get them after `lease` seconds; the server has a default for it.

    Each queue gets `concurrency` threads. All classes decorated for a queue are registered with the server, and replace
    the classes registered before. At shutdown no more runs are claimed; current runs have `grace` seconds to end and
    are then released for other workers. A second signal ends the waiting.
    """
    if not queues or concurrency < 1:
        raise ValueError("serve requires at least one queue and at least one thread")
    stop = stop or threading.Event()
    server = Server(url, token, {queue: classes_of(queue) for queue in queues}, stop, lease)
    restore = _stop_on_signals(stop)
    try:
        server.register()
        server.presence.open()
        server.start(concurrency)
        # With a bound, so that signals are seen on every system.
        while not stop.wait(0.5):
            pass
        server.drain(grace)
    finally:
        stop.set()
        server.presence.close()
        restore()
    if server.trouble is not None:
        raise server.trouble


class Server:
    """Worker threads of the queues, and the heartbeat thread."""

    def __init__(
        self,
        url: str,
        token: str | None,
        queues: dict[str, dict[str, Registered]],
        stop: threading.Event,
        lease_s: float | None,
    ) -> None:
        self.url, self.token, self.queues, self.stop, self.lease_s = url, token, queues, stop, lease_s
        self.worker = ending.worker_name()
        self.presence = Presence(address(url, token), self.worker)
        self.client = Client(url, token=token)
        #: Why it cannot go on.
        self.trouble: SideJobError | None = None
        self.threads: list[threading.Thread] = []
        self.runs: dict[str, ending.Running] = {}
        self.changed = threading.Condition()
        self.is_over = threading.Event()

    def register(self) -> None:
        """Registers the classes; waits until the server is reachable."""
        for queue, classes in self.queues.items():
            self._insist(calls.register(queue, ending.configs(classes)), until=None)

    def start(self, concurrency: int) -> None:
        targets: list[Callable[[], None]] = [self._keep_alive]
        for queue in self.queues:
            targets += [lambda queue=queue: self._work(queue)] * concurrency  # type: ignore[misc]
        self.threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in self.threads:
            thread.start()

    def drain(self, grace_s: float) -> None:
        """Waits for current runs; releases runs that do not end in time."""
        with self.changed:
            if self.runs:
                log.info("shutting down: waiting for %d runs", len(self.runs))
            self.changed.wait_for(lambda: not self.runs, timeout=grace_s)
            left = list(self.runs.values())
        for run in left:
            log.warning("job %s is not finished in time; it is released for another worker", run._claimed.job)
            self._tell(run._claimed, ending.give_back(run._claimed))
        self.is_over.set()
        self._changed()
        # Those whose run was given back cannot be ended; the others only wait for jobs.
        for thread in self.threads:
            if not left:
                thread.join(timeout=ending.CLAIM_WAIT_S + ending.BEAT_WITHIN_S)
        self.client.close()

    def _changed(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _work(self, queue: str) -> None:
        classes = self.queues[queue]
        claim = calls.claim(
            queue, wait=ending.CLAIM_WAIT_S, worker=self.worker, classes=list(classes), lease=self.lease_s
        )
        while not self.stop.is_set():
            try:
                claimed = self.client._send(claim)
            except Unreachable as error:
                log.warning("%s; retrying", error)
                # One that comes back may be another one, which knows nothing of our classes.
                self.stop.wait(ending.PAUSE_S)
                self.register()
                continue
            except SideJobError as error:
                self._give_up(error)
                return
            if claimed is not None:
                self._run(classes[claimed.cls], claimed)
        self.client._transport.close_own()

    def _run(self, registered: Registered, claimed: Claimed) -> None:
        log.info("job %s %s: %s", claimed.job, claimed.cls, claimed.kind)
        if issubclass(registered.cls, AsyncWorker):
            asyncio.run(self._run_async(registered, claimed))
            return
        run = registered.cls(self.client, claimed)
        self._begun(run)
        error: BaseException | None = None
        try:
            with self.client.log_context(job=claimed.job):
                if claimed.kind == "shutdown":
                    run.shutdown()
                else:
                    run.perform(*claimed.args)
        except BaseException as raised:
            error = raised
        self._ended(run, error)

    async def _run_async(self, registered: Registered, claimed: Claimed) -> None:
        client = AsyncClient(self.url, token=self.token)
        run = registered.cls(client, claimed)
        self._begun(run)
        error = await perform_async(client, run, claimed)
        await client.close()
        self._ended(run, error)

    def _begun(self, run: ending.Running) -> None:
        with self.changed:
            self.runs[run._claimed.token] = run
            self.changed.notify_all()

    def _ended(self, run: ending.Running, error: BaseException | None) -> None:
        ask = ending.finish(run, error, self.url)
        if ask is not None:
            self._tell(run._claimed, ask)
        with self.changed:
            self.runs.pop(run._claimed.token, None)
            self.changed.notify_all()
        if is_outage(error, self.url):
            self.stop.wait(ending.AFTER_OUTAGE_S)

    def _tell(self, claimed: Claimed, ask: Ask[str]) -> None:
        """Retries while the server is unreachable, until the lease has expired."""
        until = time.monotonic() + claimed.lease_s
        try:
            try:
                self._insist(ask, until)
            except SideJobError as error:
                instead = ending.instead(claimed, ask, error)
                if instead is None:
                    raise
                self._insist(instead, until)
        except SideJobError as error:
            ending.unheard(claimed, error)

    def _insist(self, ask: Ask[Any], until: float | None) -> None:
        pause = ending.PAUSE_S
        while True:
            try:
                self.client._send(ask)
                return
            except Unreachable as error:
                is_over = self.stop.is_set() if until is None else time.monotonic() + pause > until
                if is_over:
                    if until is None:
                        return
                    raise
                log.warning("%s; retrying", error)
                if until is None:
                    self.stop.wait(pause)
                else:
                    time.sleep(pause)
                pause = min(2 * pause, ending.PAUSE_MAX_S)

    def _give_up(self, error: SideJobError) -> None:
        self.trouble = self.trouble or error
        self.stop.set()

    def _keep_alive(self) -> None:
        """Sends heartbeats for all runs, also during shutdown."""
        with Client(self.url, token=self.token, timeout=ending.BEAT_WITHIN_S) as client:
            while not self.is_over.is_set():
                with self.changed:
                    runs = list(self.runs.values())
                    if not runs:
                        self.changed.wait(ending.BEAT_WITHIN_S)
                        continue
                lease_s = min(run._claimed.lease_s for run in runs)
                self.is_over.wait(lease_s / ending.BEATS_PER_LEASE)
                self._beat(client, runs)

    def _beat(self, client: Client, runs: list[ending.Running]) -> None:
        for run in runs:
            claimed = run._claimed
            if claimed.token not in self.runs or run._is_lost or self.is_over.is_set():
                continue
            try:
                run._is_lost = not client._send(calls.refresh_lock(claimed.job, claimed.token, claimed.lease_s))
            except Unreachable as error:
                log.warning("job %s: cannot send a heartbeat: %s", claimed.job, error)
            except SideJobError:
                run._is_lost = True
            if run._is_lost and claimed.token in self.runs:
                log.warning("job %s: the lease of this run is lost", claimed.job)


async def perform_async(client: AsyncClient, run: Any, claimed: Claimed) -> BaseException | None:
    """Runs the job; returns the exception that it raised."""
    try:
        with client.log_context(job=claimed.job):
            if claimed.kind == "shutdown":
                await run.shutdown()
            else:
                await run.perform(*claimed.args)
    except asyncio.CancelledError:
        raise
    except BaseException as raised:
        return raised
    return None


def _stop_on_signals(stop: threading.Event) -> Callable[[], None]:
    """Returns a function that restores the previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def told(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.info("shutting down after %s; send the signal again to exit at once", signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
