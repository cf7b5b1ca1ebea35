"""Exceptions."""

from __future__ import annotations

from .._http import Outage


class SideJobError(Exception):
    """The server refused the call; carries its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        #: The HTTP status.
        self.status = status


class NotFound(SideJobError):
    """The job does not exist."""


class Stale(SideJobError):
    """The lease of the run is lost; another worker may have the job."""


class Unreachable(SideJobError, Outage):
    """The server did not respond, or is temporarily unavailable. Whether the call took effect is unknown."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(status, message)
        #: The server's address.
        self.url: str | None = None


class Empty(LookupError):
    """A port has neither a value nor a default."""


class Suspend(Exception):  # noqa: N818 (it is not an error)
    """Ends a run as suspended. Raised by `suspend()` and `for_inputs`; do not catch it."""


# Said by a server whose store is away or full, or in its place: it may work in a moment. Others are faults that stay.
_PASSING = (429, 502, 503, 504, 507)


def is_outage(error: BaseException | None, url: str) -> bool:
    """True if the error, or its cause, is that the server at `url` or its store was unreachable."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Unreachable) and error.url == url and error.status in _PASSING:
            return True
        error = error.__cause__ or error.__context__
    return False


def refusal(status: int, message: str) -> SideJobError:
    """Exception for an error response."""
    if status == 404:
        return NotFound(status, message)
    if status == 409:
        return Stale(status, message)
    if status >= 500 or status == 429:
        return Unreachable(message, status)
    return SideJobError(status, message)
