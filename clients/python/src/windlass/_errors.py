"""Errors of calls, and the outcomes that a handler can raise."""

from __future__ import annotations

import asyncio
from typing import Any

from ._http import Outage
from ._time import Duration, seconds


class WindlassError(Exception):
    """Failed call of the server."""

    #: True if the same call may succeed later.
    retryable = False

    def __init__(self, message: str, *, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        #: Code of the server for programs, such as `lease_lost`.
        self.code = code
        #: HTTP status; 0 if there was no response.
        self.status = status


class Unreachable(WindlassError, Outage):
    """The server did not respond, or is temporarily unavailable. Whether the call took effect is unknown.

    If it leaves a handler, the run is released and does not count as a failed attempt.
    """

    retryable = True

    def __init__(self, message: str, *, code: str = "unreachable", status: int = 0) -> None:
        WindlassError.__init__(self, message, code=code, status=status)


class Refused(WindlassError):
    """The server refused the call."""


class BadRequest(Refused):
    """The call is malformed or too large."""


class Busy(Refused):
    """Too many calls or jobs at the moment: a quota or a limit of the server."""

    retryable = True


class NotFound(WindlassError):
    """The job does not exist."""


class Conflict(WindlassError):
    """The state of the job does not allow the call, or another job holds the key."""

    def __init__(self, message: str, *, code: str = "", status: int = 409, id: int | None = None) -> None:
        super().__init__(message, code=code, status=status)
        #: Conflicting job.
        self.id = id


class LeaseLost(Conflict):
    """The lease of the run is lost: it expired, or the job was given to another worker."""


class JobFailed(WindlassError):
    """The awaited job failed."""

    def __init__(self, id: int, outcome: dict[str, Any]) -> None:
        kind, message = outcome.get("class"), outcome.get("message") or "no message"
        super().__init__(f"job {id} failed: {kind + ': ' if kind else ''}{message}", code="job_failed")
        #: Id of the job.
        self.id = id
        #: Kind of error, such as the name of an exception.
        self.kind: str | None = kind
        #: Message of the error.
        self.message: str = message
        #: Lines of the backtrace.
        self.backtrace: list[str] = outcome.get("backtrace") or []


class JobCancelled(WindlassError):
    """The awaited job was cancelled."""

    def __init__(self, id: int) -> None:
        super().__init__(f"job {id} was cancelled", code="job_cancelled")
        #: Id of the job.
        self.id = id


class ChildFailed(WindlassError):
    """At least one child of `ctx.all` failed or was cancelled."""

    def __init__(self, failures: list[WindlassError], results: list[Any]) -> None:
        super().__init__("; ".join(str(failure) for failure in failures), code="child_failed")
        #: Errors of the failed children.
        self.failures = failures
        #: Results in the order of the calls; `None` for failed children.
        self.results = results


# --- outcomes ---------------------------------------------------------------------------------------------------------


class Outcome(Exception):  # noqa: N818 (not all of them are errors)
    """Base of the outcomes that a handler can raise."""


class Retry(Outcome):
    """Failed attempt; the next one starts after the given time.

    `raise Retry("mailbox busy", after="10m")`; without `after` the retry policy of the job decides.
    """

    def __init__(self, message: str = "retry requested", *, after: Duration | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else seconds(after)


class Fail(Outcome):
    """The job fails for good, even if attempts are left: `raise Fail("no such customer")`."""

    def __init__(self, message: str = "failed for good") -> None:
        super().__init__(message)


class StepsChanged(Fail):
    """The code of the task no longer fits the kept steps of the job (`on_change="refuse"`)."""


class BadPayload(Fail):
    """The payload does not fit the parameters of the task."""


class Snooze(Outcome):
    """The run ends and does not count; the job runs again later: `raise Snooze(minutes=5)`, `raise Snooze("5m")`."""

    def __init__(self, duration: Duration | None = None, **units: float) -> None:
        self.duration = seconds(duration, **units)
        super().__init__(self.duration)

    def __str__(self) -> str:
        return f"snoozed for {self.duration:g} s"


class ProcessDied(Exception):
    """The process of a task with `process=True` ended before the task did, for example for lack of memory."""


class Cancelled(asyncio.CancelledError):
    """The run has to stop: the job was cancelled, its time is over, or the worker shuts down.

    Raised in handlers that are plain functions. Coroutines get `asyncio.CancelledError`, its base class.
    """


class Suspended(BaseException):  # noqa: N818 (it is not an error)
    """Ends a run that waits for a time, a signal or children. Raised by the library; do not catch it."""

    def __init__(
        self,
        step: str | None = None,
        *,
        delay_ms: int | None = None,
        until: int | str | None = None,
        signal: str | None = None,
        children: bool = False,
    ) -> None:
        super().__init__(step)
        fields = {"step": step, "delay_ms": delay_ms, "until": until, "signal": signal}
        self.fields: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
        if children:
            self.fields["children"] = True


# Responses of a server whose store is unavailable, or of a proxy in front of it: they pass.
PASSING = (0, 502, 503, 504)


def is_passing(error: BaseException) -> bool:
    """True if the call should be repeated soon: connection errors, and a server that is temporarily unavailable."""
    return isinstance(error, Unreachable) and error.status in PASSING


def may_succeed_later(error: WindlassError) -> bool:
    """True if an idempotent call is worth repeating: a server that is away, full or busy, or a token that is refused."""
    return error.retryable or (isinstance(error, Refused) and not isinstance(error, BadRequest))


def meant(error: BaseException) -> BaseException:
    """The error itself, or the first of its group if that is an outcome or an error of the library.

    `asyncio.TaskGroup` raises groups; as with `asyncio.gather`, the first error decides.
    """
    first = error
    while isinstance(inner := getattr(first, "exceptions", None), tuple) and inner:
        first = inner[0]
    return first if isinstance(first, (Suspended, Outcome, LeaseLost, Unreachable)) else error


def is_outage(error: BaseException | None, url: str) -> bool:
    """True if the error, or its cause, is that the server at `url` was unreachable."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Unreachable) and error.url == url:
            return True
        error = error.__cause__ or error.__context__
    return False


def refusal(status: int, code: str, message: str, id: int | None = None) -> WindlassError:
    """Exception for an error response."""
    if status >= 500:
        return Unreachable(message, code=code, status=status)
    if status == 404:
        return NotFound(message, code=code, status=status)
    if code == "lease_lost":
        return LeaseLost(message, code=code, status=status, id=id)
    if status == 409:
        return Conflict(message, code=code, status=status, id=id)
    if status == 429:
        return Busy(message, code=code, status=status)
    kind = BadRequest if status in (400, 413, 415, 422) else Refused
    return kind(message, code=code, status=status)
