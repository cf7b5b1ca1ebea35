"""Report of a run: from the end of a handler to an entry of `settle`. Pure functions."""

from __future__ import annotations

import asyncio
import enum
import os
import traceback
from types import TracebackType
from typing import Any

from ._codec import dumps
from ._errors import Cancelled, Fail, LeaseLost, Outcome, Retry, Snooze, Suspended, is_outage, meant

_PACKAGE = os.path.dirname(__file__)
# Before the next run after an outage: the server may not be stable yet.
AFTER_OUTAGE_MS = 1_000


class Reason(enum.Enum):
    """Reason for which a run is interrupted."""

    CANCEL = "the job was cancelled"
    TIMEOUT = "the time of the run is over"
    SHUTDOWN = "the worker shuts down"
    LOST = "the lease is lost"


def finished(id: int, token: int, result: Any) -> bytes:
    """Entry of a run that ended with a result. Raises `TypeError` or `ValueError` if it is not JSON."""
    if result is None:
        return b'{"id":%d,"token":%d,"outcome":"finish"}' % (id, token)
    return b'{"id":%d,"token":%d,"outcome":"finish","result":%b}' % (id, token, dumps(result).encode())


def entry(id: int, token: int, fields: dict[str, Any]) -> bytes:
    """Entry with these fields."""
    # Error messages may contain lone surrogates, which have no encoding.
    return dumps({"id": id, "token": token, **fields}).encode(errors="replace")


def fields_of(
    error: BaseException,
    *,
    reason: Reason | None = None,
    url: str = "",
    give_up_on: tuple[type[BaseException], ...] = (),
    timeout_s: float | None = None,
) -> dict[str, Any] | None:
    """Fields of the report for an exception; `None` if there is nothing to report."""
    error = meant(error)
    if reason is Reason.LOST or isinstance(error, LeaseLost):
        return None
    if isinstance(error, Suspended):
        return {"outcome": "suspend", **error.fields}
    if isinstance(error, (asyncio.CancelledError, Cancelled)) and reason is not None:
        if reason is Reason.TIMEOUT:
            message = f"the run exceeded its timeout of {timeout_s:g} s"
            return {"outcome": "fail", "class": "Timeout", "message": message}
        return {"outcome": "release"}
    if isinstance(error, Snooze):
        return {"outcome": "release", "delay_ms": round(error.duration * 1000)}
    # What the handler says of the job holds, also if an outage made it say so.
    if not isinstance(error, Outcome) and is_outage(error, url):
        return {"outcome": "release", "delay_ms": AFTER_OUTAGE_MS}
    fields = _failure(error)
    if isinstance(error, Retry) and error.after is not None:
        fields["delay_ms"] = round(error.after * 1000)
    elif isinstance(error, Fail) or isinstance(error, give_up_on):
        fields["retry"] = False
    return fields


def _failure(error: BaseException) -> dict[str, Any]:
    kind = type(error).__name__
    fields: dict[str, Any] = {"outcome": "fail", "class": kind, "message": str(error) or kind}
    if not isinstance(error, (Retry, Fail)):
        fields["backtrace"] = "".join(
            traceback.format_exception(type(error), error, _of_handler(error.__traceback__))
        ).splitlines()
    return fields


def _of_handler(trace: TracebackType | None) -> TracebackType | None:
    """Traceback without the frames of the library that lead to the handler."""
    whole = trace
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace or whole
