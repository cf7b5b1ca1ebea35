"""A real server for the tests of a module, and patience."""

from __future__ import annotations

import os
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any, TypeVar

from windlass import Windlass, dev

T = TypeVar("T")

# Nothing takes nearly as long; a busy machine may.
PATIENCE_S = 60.0


def eventually(look: Callable[[], T]) -> T:
    """First true value of `look`."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain; last seen: {found!r}")
        time.sleep(0.02)


class ServerTest(unittest.TestCase):
    """Tests against one real server, whose binary is `WINDLASS_BIN`."""

    server: dev.Server

    @classmethod
    def setUpClass(cls) -> None:
        if not os.environ.get("WINDLASS_BIN"):
            raise unittest.SkipTest("WINDLASS_BIN is not set")
        cls.server = dev.Server()
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def application(self) -> Windlass:
        """Application of this test; its tasks have a queue of their own."""
        app = Windlass(self.server.url)
        self.addCleanup(app.close)
        return app

    @property
    def queue(self) -> str:
        """Queue of this test."""
        return self.id().rpartition(".")[2]


class Gate:
    """Point that a handler reaches, and at which it waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        if not self.opened.wait(PATIENCE_S):
            raise AssertionError("the gate was not opened")

    def await_arrival(self) -> None:
        if not self.reached.wait(PATIENCE_S):
            raise AssertionError("no handler reached the gate")


def info(app: Windlass, id: Any) -> dict[str, Any]:
    """Job as the server shows it."""
    return app.job(id).info()  # type: ignore[no-any-return]
