"""What can go wrong, and the one exception that is no error."""

from __future__ import annotations


class SideJobError(Exception):
    """The server said no; its words are the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        #: The HTTP status.
        self.status = status


class NotFound(SideJobError):
    """There is no such job, or not any more."""


class Stale(SideJobError):
    """The run is not this worker's any more: its lease has ended, and another one may have it."""


class Unreachable(SideJobError, ConnectionError):
    """The server did not answer, or could not do it now. Whether it did what was asked is not known."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(status, message)
        #: The server's address.
        self.url: str | None = None


class Empty(LookupError):
    """A port has neither a value nor a default."""


class Suspend(Exception):  # noqa: N818 (it is not an error)
    """Ends a run; the job waits to be run again. Raised by `suspend()` and by `for_inputs`: let it pass."""


# Said by a server whose store is away or full, or in its place: it may work in a moment. Others are faults that stay.
_PASSING = (429, 502, 503, 504, 507)


def is_outage(error: BaseException | None, url: str) -> bool:
    """Whether this was raised because the server at `url`, or its store, was away; also if it was raised on top of that."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Unreachable) and error.url == url and error.status in _PASSING:
            return True
        error = error.__cause__ or error.__context__
    return False


def refusal(status: int, message: str) -> SideJobError:
    """The exception for an answer that says no."""
    if status == 404:
        return NotFound(status, message)
    if status == 409:
        return Stale(status, message)
    if status >= 500 or status == 429:
        return Unreachable(message, status)
    return SideJobError(status, message)
