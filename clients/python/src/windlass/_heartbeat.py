"""Heartbeats of a worker, sent by a thread of their own: a busy event loop must not look like a dead process."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _wire as wire
from ._errors import WindlassError
from ._http import Transport
from ._run import Run

if TYPE_CHECKING:
    from ._worker import Worker

log = logging.getLogger("windlass")

# Heartbeats within one lease: two of them may be lost.
BEATS_PER_LEASE = 3


class Heartbeat:
    """Thread that extends the leases of all runs of a worker."""

    def __init__(self, worker: Worker, lease_s: float) -> None:
        self._worker = worker
        self._lease_ms = round(lease_s * 1000)
        self._pause_s = lease_s / BEATS_PER_LEASE
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="windlass-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _beat(self) -> None:
        # A heartbeat that hangs must not delay the next one.
        transport = Transport(self._worker.client.address, self._pause_s / 2)
        due = time.monotonic() + self._pause_s
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._pause_s, time.monotonic())
            runs = list(self._worker.held.values())
            for start in range(0, len(runs), wire.BATCH_MAX):
                try:
                    self._extend(transport, runs[start : start + wire.BATCH_MAX])
                except WindlassError as error:
                    log.warning("no heartbeat: %s", error)
                except Exception:
                    # Without this thread all leases would be lost.
                    log.exception("no heartbeat")
        transport.close()

    def _extend(self, transport: Transport, runs: list[Run]) -> None:
        entries = [{"id": run.id, "token": run.token, "lease_ms": self._lease_ms} for run in runs]
        self._tell(runs, transport.send(wire.extend(entries)))

    def _tell(self, runs: list[Run], answers: list[dict[str, Any]]) -> None:
        news = [pair for pair in zip(runs, answers) if pair[1].get("cancel") or not pair[1].get("ok")]
        if news:
            with contextlib.suppress(RuntimeError):  # The event loop is closed.
                self._worker.loop.call_soon_threadsafe(self._worker.beaten, *zip(*news))
