"""Outcome of a run. Shared by threads and asyncio."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import traceback
from collections.abc import Mapping
from typing import Protocol

from . import _calls as calls
from ._calls import Ask, Claimed, Json, Write
from ._errors import NotFound, SideJobError, Stale, Suspend, Unreachable, is_outage
from ._registry import Registered

log = logging.getLogger("windlass.sidejob")

# How long a claim waits at the server. It ends early when there is something; a shorter one makes stopping quicker.
CLAIM_WAIT_S = 2.0
# Between tries while the server is away: from, to.
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
# A run is refreshed this many times within its lease: two signs of life may get lost.
BEATS_PER_LEASE = 3
# How long a sign of life may take.
BEAT_WITHIN_S = 5.0
# Before the next run after one that an outage ended: what comes back may not stand firmly yet.
AFTER_OUTAGE_S = 1.0


class Running(Protocol):
    """Current run, of a thread or a task."""

    _claimed: Claimed
    _writes: list[Write]
    _is_lost: bool


def worker_name() -> str:
    """Name of this worker, shown with its runs. Unique, so that runs of different workers are not confused."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def configs(classes: Mapping[str, Registered]) -> dict[str, Mapping[str, Json]]:
    """Registration of the classes of a queue."""
    return {name: registered.config for name, registered in classes.items()}


def finish(run: Running, error: BaseException | None, url: str) -> Ask[str] | None:
    """Call that ends the run; `None` if there is nothing to end. `url` is the URL of the server."""
    claimed = run._claimed
    if error is None:
        return calls.finish(claimed.job, claimed.token, "completed", writes=run._writes)
    if isinstance(error, Suspend):
        return calls.finish(claimed.job, claimed.token, "suspended", writes=run._writes)
    if isinstance(error, Stale):
        log.warning("job %s: the lease of this run is lost", claimed.job)
        return None
    if is_outage(error, url):
        log.warning("job %s %s will run again: the server was unreachable: %s", claimed.job, claimed.cls, error)
        return give_back(claimed)
    log.error("job %s %s failed: %r", claimed.job, claimed.cls, error)
    backtrace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = str(error) or type(error).__name__
    return calls.finish(claimed.job, claimed.token, "failed", error=message, backtrace=backtrace)


def give_back(claimed: Claimed) -> Ask[str]:
    """Call that releases the run."""
    return calls.finish(claimed.job, claimed.token, "queued")


def instead(claimed: Claimed, ask: Ask[str], error: SideJobError) -> Ask[str] | None:
    """Call that fails a run whose outcome the server refused, for example because a port is full."""
    is_over = isinstance(error, (NotFound, Stale, Unreachable))
    if is_over or ask.body is None or ask.body.get("status") not in ("completed", "suspended"):
        return None
    log.error("job %s %s failed: the server did not accept its outcome: %s", claimed.job, claimed.cls, error)
    return calls.finish(claimed.job, claimed.token, "failed", error=str(error))


def unheard(claimed: Claimed, error: SideJobError) -> None:
    """Logs that the server refused the outcome of a run."""
    if isinstance(error, NotFound):
        log.info("job %s was deleted while it ran", claimed.job)
    elif isinstance(error, Stale):
        log.warning("job %s ended too late: its lease had expired", claimed.job)
    else:
        log.error("job %s: the server did not accept its outcome: %s", claimed.job, error)
