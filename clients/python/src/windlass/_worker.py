"""Worker: claims jobs, runs them, reports their ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _outcome
from . import _wire as wire
from ._client import Backoff
from ._cron import register
from ._errors import BadRequest, LeaseLost, NotFound, Refused, Unreachable, WindlassError
from ._heartbeat import Heartbeat
from ._http import AsyncTransport
from ._outcome import Reason
from ._pool import Pool
from ._run import Processes, Run
from ._threads import Threads

if TYPE_CHECKING:
    from ._app import Windlass

log = logging.getLogger("windlass")

# How long a claim waits at the server; it ends early when there are jobs.
CLAIM_WAIT_S = 20.0
# Notes of all runs are sent together this long after the first.
NOTES_AFTER_S = 0.1
# How long the last reports of a worker that shuts down may take.
LAST_REPORTS_S = 10.0
# Plain functions of steps that run at once.
STEP_THREADS = 32


class Report:
    """End of a run, until the server has taken it."""

    __slots__ = ("entry", "run")

    def __init__(self, run: Run, entry: bytes) -> None:
        self.run, self.entry = run, entry


class Worker:
    """Worker of an application. `run` works until `stop` is called or a signal arrives."""

    def __init__(
        self,
        app: Windlass,
        *,
        concurrency: int = 10,
        queues: Sequence[str] | None = None,
        lease_s: float = 30.0,
        grace_s: float = 30.0,
        name: str | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if not app.tasks:
            raise ValueError("the application has no tasks; decorate a function with @app.task")
        self.app, self.client, self.hooks = app, app.client, app.hooks
        self.concurrency, self.lease_s, self.grace_s = concurrency, lease_s, grace_s
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._wanted: dict[str, Any] = {
            "names": sorted(app.tasks),
            "queues": sorted(queues or {task.queue for task in app.tasks.values()}),
            "lease_ms": round(lease_s * 1000),
            "worker": self.name,
        }
        self.threads = Threads(concurrency, "windlass-task")
        self.step_threads = Threads(STEP_THREADS, "windlass-step")
        # One process per slot: the timeout of a task must not pass while it waits for a process.
        self._pool = Pool(concurrency)
        self.processes: Processes = self._pool
        #: Runs whose end the server has not taken yet, by job and lease token.
        self.held: dict[tuple[int, int], Run] = {}
        #: Handlers that are running.
        self.active = 0
        self._reports: list[Report] = []
        self._noted: set[Run] = set()
        self._backoff = Backoff()
        self._poll: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._stop_asked = threading.Event()
        self._is_connected = False
        self._trouble: BaseException | None = None

    # --- life

    async def run(self, *, signals: bool = False) -> None:
        """Works until the worker is stopped or the coroutine is cancelled; with `signals`, until SIGTERM or Ctrl-C."""
        self.loop = asyncio.get_running_loop()
        self._wake, self._stopped, self._noting = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._poller = AsyncTransport(self.client.address, self.client.timeout_s)
        self._reporter = AsyncTransport(self.client.address, self.client.timeout_s)
        heartbeat = Heartbeat(self, self.lease_s)
        taken = self._listen_to_signals() if signals else []
        try:
            await register(self)
            heartbeat.start()
            if self._stop_asked.is_set():
                self._begin_stop()
            log.info("working on %s as %s", ", ".join(self._wanted["names"]), self.name)
            await self._work()
            await self._shut_down()
        except asyncio.CancelledError:
            self.grace_s = 0.0
            self._begin_stop()
            await self._shut_down()
            raise
        finally:
            heartbeat.stop()
            for number in taken:
                self.loop.remove_signal_handler(number)
            self.threads.close()
            self.step_threads.close()
            await self.loop.run_in_executor(None, self._pool.close)
            await self._poller.close()
            await self._reporter.close()
            await self.client.leave_loop()
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """Ends the work: no more claims, running jobs have their grace. Called from any thread."""
        self._stop_asked.set()
        loop = getattr(self, "loop", None)
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._begin_stop)

    @property
    def is_stopping(self) -> bool:
        """True from the first request to stop."""
        return self._is_stopping or self._stop_asked.is_set()

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._stopped.set()
        self._poller.hang_up()
        self._wake.set()

    def _listen_to_signals(self) -> list[int]:
        if threading.current_thread() is not threading.main_thread():
            return []
        taken: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError):
                self.loop.add_signal_handler(number, self._signalled)
                taken.append(number)
        return taken

    def _signalled(self) -> None:
        if self._is_stopping or self._stop_asked.is_set():
            log.info("second signal: running jobs are released")
            self.grace_s = 0.0
            self._interrupt_all()
            return
        log.info("shutting down: waiting for %d running jobs", self.active)
        self._stop_asked.set()
        self._begin_stop()

    async def _shut_down(self) -> None:
        """Waits for running jobs, releases the rest, sends the last reports."""
        timer = self.loop.call_later(self.grace_s, self._interrupt_all)
        # Held runs without a report are running; threads that do not react are not waited for.
        while len(self.held) > len(self._reports) or self._poll is not None:
            await self._next_event()
            with contextlib.suppress(WindlassError):
                await self._report(claims=False)
        timer.cancel()
        until = self.loop.time() + LAST_REPORTS_S
        while self._reports and self.loop.time() < until:
            try:
                await self._report(claims=False)
            except WindlassError:
                await asyncio.sleep(self._backoff.pause())
        if self._reports:
            log.warning("%d reports could not be sent; their leases expire", len(self._reports))

    def _interrupt_all(self) -> None:
        for run in list(self.held.values()):
            run.interrupt(Reason.SHUTDOWN)

    # --- the loop

    async def _work(self) -> None:
        while not self._is_stopping:
            try:
                if self._reports:
                    await self._report(claims=self._poll is None and self.active < self.concurrency)
                elif self._poll is None and self.active < self.concurrency:
                    self._poll = self.loop.create_task(self._claim(self.concurrency - self.active))
                else:
                    await self._next_event()
            except WindlassError as error:
                # Also a refused token: reports are kept until the server takes them.
                await self._pause(error)

    async def _next_event(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    async def _pause(self, error: WindlassError) -> None:
        """Waits before the next try, or until the worker stops; running handlers go on."""
        pause_s = self._backoff.pause()
        log.warning("%s; trying again in %.1f s", error, pause_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), pause_s)

    async def _claim(self, limit: int) -> None:
        """Long poll: waits at the server for jobs."""
        try:
            jobs = await self._poller.send(wire.claim(self._wanted, limit, CLAIM_WAIT_S))
            self._connected()
            self._start(jobs)
        except WindlassError as error:
            if not self._is_stopping:
                if isinstance(error, Refused) and not error.retryable and not self._is_connected:
                    self._trouble = error
                    self._is_stopping = True
                else:
                    await self._pause(error)
        finally:
            self._poll = None
            self._wake.set()

    def _connected(self) -> None:
        self._is_connected = True
        self._backoff.reset()

    # --- runs

    def _start(self, jobs: list[dict[str, Any]]) -> None:
        for claimed in jobs:
            run = Run(self, claimed, self.app.tasks[claimed["name"]])
            self.held[run.key] = run
            self.active += 1
            if self._is_stopping:
                self._ended(run, _outcome.entry(run.id, run.token, {"outcome": "release"}))
            else:
                run.task = self.loop.create_task(self._execute(run))

    async def _execute(self, run: Run) -> None:
        entry = None
        try:
            entry = await run.execute()
        finally:
            if not run.is_given_up:
                self._ended(run, entry)

    def given_up(self, run: Run, entry: bytes | None) -> None:
        """A coroutine does not end: its run is reported without it, and its slot is free."""
        self._ended(run, entry)

    def _ended(self, run: Run, entry: bytes | None) -> None:
        if not run.abandoned:
            self.active -= 1
        if entry is None:
            self.held.pop(run.key, None)
        else:
            self._reports.append(Report(run, entry))
        self._wake.set()

    def freed(self) -> None:
        """A thread whose run was reported without it has ended."""
        self.active -= 1
        self._wake.set()

    # --- reports

    async def _report(self, claims: bool) -> None:
        """Sends pending reports, and claims the next jobs in the same call."""
        batch: list[Report] = []
        size = 0
        for report in self._reports[: wire.BATCH_MAX]:
            size += len(report.entry)
            if batch and size > wire.BATCH_BYTES_MAX:
                break
            batch.append(report)
        if not batch:
            return
        noted = [report.run for report in batch if report.run.has_notes()]
        if noted or self._noting.locked():
            # Lines and progress are taken only before the end of a run.
            await self._send_notes(noted)
        free = self.concurrency - self.active
        claim = {**self._wanted, "limit": free, "wait_ms": 0} if claims and free > 0 else None
        try:
            said = await self._reporter.send(wire.settle([report.entry for report in batch], claim))
        except BadRequest:
            await self._report_singly(batch)
            return
        del self._reports[: len(batch)]
        self._connected()
        for report, answer in zip(batch, said["settled"]):
            self._reported(report, answer)
        self._start(said.get("jobs") or [])

    def _reported(self, report: Report, answer: dict[str, Any]) -> None:
        run = report.run
        if not answer["ok"]:
            error = wire.entry_error(answer)
            if error.code == "payload_too_large":
                self._replace(report, error)
                return
            log.warning("job %s %s: the server did not take its outcome: %s", run.id, run.work.name, error)
        self.held.pop(run.key, None)

    async def _report_singly(self, batch: list[Report]) -> None:
        """The server refused the whole batch: sends its reports one by one, so that one does not hold up the rest."""
        for report in batch:
            try:
                said = await self._reporter.send(wire.settle([report.entry], None))
            except BadRequest as error:
                self._reports.remove(report)
                self._replace(report, error)
                continue
            self._reports.remove(report)
            self._reported(report, said["settled"][0])

    def _replace(self, report: Report, error: WindlassError) -> None:
        """Fails a run whose outcome the server refused, for example because its result is too large."""
        run = report.run
        log.error("job %s %s failed: the server did not take its outcome: %s", run.id, run.work.name, error)
        if b'"outcome":"fail"' in report.entry[:64]:
            self.held.pop(run.key, None)
            return
        fields = {"outcome": "fail", "retry": False, "class": type(error).__name__, "message": str(error)}
        self._reports.append(Report(run, _outcome.entry(run.id, run.token, fields)))

    # --- notes and heartbeats

    def note(self, run: Run) -> None:
        """Progress or lines of the log wait to be sent. Called from any thread."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._note, run)

    def _note(self, run: Run) -> None:
        if not self._noted:
            self.loop.call_later(NOTES_AFTER_S, self._flush_notes)
        self._noted.add(run)

    def _flush_notes(self) -> None:
        if self._noted:
            self._flushing = self.loop.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            await self._send_notes(list(self._noted))
        except Unreachable:
            self.loop.call_later(self._backoff.pause(), self._flush_notes)

    async def _send_notes(self, runs: list[Run]) -> None:
        """Sends progress and lines of these runs."""
        async with self._noting:
            for run in runs:
                self._noted.discard(run)
                await self._send_notes_of(run)

    async def _send_notes_of(self, run: Run) -> None:
        progress, lines = run.take_notes()
        try:
            if lines:
                await self._reporter.send(wire.log(run.id, run.token, lines))
                lines = []
            if progress is not None:
                note = {} if progress[1] is None else {"note": progress[1]}
                entry = {"id": run.id, "token": run.token, "progress": progress[0], **note}
                self.beaten([run], await self._reporter.send(wire.extend([entry])))
        except Unreachable:
            run.return_notes(progress, lines)
            self._noted.add(run)
            raise
        except Exception as error:
            log.debug("job %s: the server did not take a note: %s", run.id, error)

    def beaten(self, runs: Sequence[Run], answers: Sequence[dict[str, Any]]) -> None:
        """Answers to heartbeats, in the order of the runs: cancellations and lost leases."""
        for run, answer in zip(runs, answers):
            if run.key not in self.held:
                continue
            if answer.get("cancel"):
                run.interrupt(Reason.CANCEL)
            elif not answer.get("ok") and isinstance(wire.entry_error(answer), (NotFound, LeaseLost)):
                log.warning("job %s %s: the lease is lost", run.id, run.work.name)
                run.interrupt(Reason.LOST)
