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
    """The server did not answer, or was too busy to. Whether it did what was asked is not known."""

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(status, message)


class Empty(LookupError):
    """A port has neither a value nor a default."""


class Suspend(Exception):  # noqa: N818 (it is not an error)
    """Ends a run; the job waits to be run again. Raised by `suspend()` and by `for_inputs`: let it pass."""


def refusal(status: int, message: str) -> SideJobError:
    """The exception for an answer that says no."""
    if status == 404:
        return NotFound(status, message)
    if status == 409:
        return Stale(status, message)
    if status >= 500 or status == 429:
        return Unreachable(message, status)
    return SideJobError(status, message)
