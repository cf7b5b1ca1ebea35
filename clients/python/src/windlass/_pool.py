"""Processes for CPU-bound tasks (`process=True`). Each runs one job at a time; its death concerns no other job."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import pickle
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ._errors import Cancelled, Fail, ProcessDied
from ._run import Run
from ._threads import Threads

# How long a process has for its end.
JOIN_S = 5.0


class ProcessJob:
    """Job as a handler in another process sees it."""

    def __init__(self, connection: Connection, fields: dict[str, Any]) -> None:
        self._connection = connection
        self.id: int = fields["id"]
        self.name: str = fields["name"]
        self.queue: str = fields["queue"]
        self.attempt: int = fields["attempt"]
        self.payload: Any = fields.get("payload")
        self.tags: list[str] = list(fields.get("tags") or ())
        #: Always false: a cancelled process is ended.
        self.cancelled = False

    def check(self) -> None:
        """Does nothing: a cancelled process is ended."""

    def progress(self, percent: float, note: str | None = None) -> None:
        """Reports progress."""
        self._connection.send(("progress", max(0, min(100, round(percent))), note))

    def log(self, text: str) -> None:
        """Adds lines to the log of the job."""
        self._connection.send(("log", text.splitlines() or [""]))


class RemoteTraceback(Exception):
    """Traceback in the other process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Child:
    """One process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(JOIN_S)


class Pool:
    """Processes, started when they are needed and used again."""

    def __init__(self, size: int) -> None:
        self._threads = Threads(size, "windlass-process")
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: dict[Run, Child | None] = {}
        self._is_closed = False

    def start(self, run: Run, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Runs the task in a process; its end is told to the run."""
        with self._lock:
            self._busy[run] = None
        self._threads.submit(lambda: self._serve(run, args, kwargs))

    def kill(self, run: Run) -> None:
        """Ends the process of the run."""
        with self._lock:
            child = self._busy.get(run)
            if child is not None:
                child.process.kill()

    def close(self) -> None:
        """Ends all processes."""
        with self._lock:
            self._is_closed = True
            children = [*self._idle, *(child for child in self._busy.values() if child is not None)]
            self._idle = []
        for child in children:
            child.close()
        self._threads.close()

    def _serve(self, run: Run, args: list[Any], kwargs: dict[str, Any]) -> None:
        child: Child | None = None
        try:
            child = self._take(run)
            is_good, value = _talk(child, run, args, kwargs)
        except Exception as error:
            is_good, value = False, error
        with self._lock:
            self._busy.pop(run, None)
            is_kept = child is not None and child.process.is_alive() and not self._is_closed and run.reason is None
            if is_kept and child is not None:
                self._idle.append(child)
        if not is_kept and child is not None:
            child.close()
        with contextlib.suppress(RuntimeError):
            run.loop.call_soon_threadsafe(run.ended, is_good, value)

    def _take(self, run: Run) -> Child:
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or Child()
        with self._lock:
            self._busy[run] = child
            if self._is_closed or run.reason is not None:
                child.process.kill()
        return child


def _talk(child: Child, run: Run, args: list[Any], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Sends the call and reads messages until the end of the handler."""
    task, claimed = run.work, dict(run.claimed)
    wants_job = kwargs.pop("job", None) is not None
    try:
        child.connection.send((task.fn.__module__, task.fn.__qualname__, args, kwargs, claimed if wants_job else None))
        while True:
            kind, *rest = child.connection.recv()
            if kind == "progress":
                run.set_progress(*rest)
            elif kind == "log":
                run.add_lines(*rest)
            elif kind == "done":
                return True, rest[0]
            else:
                return False, _raised(*rest)
    except (EOFError, OSError) as error:
        if run.reason is not None:
            return False, Cancelled(run.reason.value)
        child.process.join(JOIN_S)
        died = ProcessDied(f"the process ended with code {child.process.exitcode}")
        died.__cause__ = error
        return False, died


def _raised(pickled: bytes | None, kind: str, message: str, trace: str) -> BaseException:
    """Exception of the other process."""
    error: BaseException | None = None
    if pickled is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(pickled)
    if error is None:
        error = type(kind, (Exception,), {})(message)
    error.__cause__ = RemoteTraceback(trace)
    return error


# --- in the process ---------------------------------------------------------------------------------------------------


def work(connection: Connection) -> None:
    """Runs tasks until the connection is closed."""
    # Ctrl-C reaches the whole group; the worker decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            module, name, args, kwargs, fields = connection.recv()
        except (EOFError, OSError):
            return
        if fields is not None:
            kwargs["job"] = ProcessJob(connection, fields)
        try:
            answer: tuple[Any, ...] = "done", _function(module, name)(*args, **kwargs)
        except BaseException as error:
            answer = _error(error)
        try:
            connection.send(answer)
        except OSError:
            return
        except Exception as error:  # A result that cannot be pickled.
            connection.send(_error(error))


def _function(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise Fail(f"the process does not find {module}.{name}; define the task at the top level") from error
    return getattr(found, "fn", found)


def _error(error: BaseException) -> tuple[Any, ...]:
    pickled = None
    with contextlib.suppress(Exception):
        pickled = pickle.dumps(error)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return "error", pickled, type(error).__name__, str(error), trace
