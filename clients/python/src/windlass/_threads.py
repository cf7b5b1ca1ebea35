"""Threads for handlers that are plain functions, and exceptions that interrupt them."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable


class Threads:
    """Pool of daemon threads: a handler that never ends does not keep the process alive."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, call: Callable[[], None]) -> None:
        """Runs the call in a thread; the call must not raise."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._calls.put(call)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Ends idle threads."""
        for _ in range(self._threads):
            self._calls.put(None)


class Interruptible:
    """Thread section that another thread can interrupt with an exception."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    def enter(self) -> None:
        self._thread = threading.get_ident()

    def leave(self) -> None:
        """Ends the section; an exception that has not been raised yet is withdrawn."""
        with self._lock:
            if self._thread is not None:
                _set_exception(self._thread, None)
            self._thread = None

    def interrupt(self, exception: type[BaseException]) -> None:
        """Raises the exception in the thread, as soon as it executes Python code."""
        with self._lock:
            if self._thread is not None:
                _set_exception(self._thread, exception)


def _set_exception(thread: int, exception: type[BaseException] | None) -> None:
    wanted = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), wanted)
