"""Presence connection: tells the server that this process is alive."""

from __future__ import annotations

import threading

from .._http import Address, Transport
from . import _calls as calls
from ._ending import PAUSE_MAX_S, PAUSE_S, log
from ._errors import SideJobError, Unreachable

# The server sends something every ten seconds.
SILENCE_S = 30.0
# How long the start of the work waits for the connection.
OPENED_WITHIN_S = 5.0


class Presence:
    """Connection that stays open while the process lives. When it ends, other workers get the runs of this worker.

    Kept by a separate thread, also with asyncio: a busy event loop must not look like a dead process.
    """

    def __init__(self, address: Address, worker: str) -> None:
        self._transport = Transport(address, SILENCE_S)
        self._worker = worker
        self._opened = threading.Event()
        self._is_over = threading.Event()

    def open(self) -> None:
        """Opens the connection; an unreachable server, or one without this call, does not delay the start."""
        threading.Thread(target=self._keep, daemon=True).start()
        self._opened.wait(OPENED_WITHIN_S)

    def close(self) -> None:
        """Closes the connection: other workers get the runs still held under this name."""
        self._is_over.set()
        self._transport.hang_up()

    def _keep(self) -> None:
        pause = PAUSE_S
        while not self._is_over.is_set():
            try:
                for _ in self._transport.lines(calls.presence(self._worker)):
                    self._opened.set()
                    pause = PAUSE_S
            except Unreachable as error:
                log.debug("%s; retrying", error)
            except SideJobError as error:
                # An older server: leases alone tell it who is alive.
                log.info("the server does not support presence connections: %s", error)
                self._opened.set()
                return
            self._is_over.wait(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
