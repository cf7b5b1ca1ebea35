"""Repeating jobs, registered when a worker starts."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from . import _keys
from . import _wire as wire
from ._client import Flow
from ._errors import NotFound, Refused, Unreachable
from ._task import Task

if TYPE_CHECKING:
    from ._worker import Worker

log = logging.getLogger("windlass")


def rule(repeat: str, tz: str | None) -> str:
    """Repeat rule with its time zone."""
    return repeat if tz is None else f"TZ={tz} {repeat}"


def schedule(task: Task[Any]) -> Flow[int]:
    """Creates the schedule of a task, or changes its rule; any number of workers may do so."""
    repeat = task.rules.repeat
    unique = {"key": f"cron:{task.name}", "on_conflict": "return"}
    job = {"name": task.name, "payload": {}, **task._options.fields(), "repeat": repeat, "unique": unique}
    said = yield wire.push_full({**job, "idempotency_key": _keys.fresh()})
    id: int = said["id"]
    if id not in said["existing"]:
        return id
    try:
        found = yield wire.info(id)
        if found.get("repeat") != repeat:
            # Also moves the next run.
            yield wire.change_schedule(id, str(repeat))
    except NotFound:
        return id
    except Refused:
        # The token may not change schedules: the rule holds from the next run on.
        changed = {**job, "unique": {**unique, "on_conflict": "update"}, "idempotency_key": _keys.fresh()}
        yield wire.push_full(changed)
    return id


async def register(worker: Worker) -> None:
    """Registers the schedules of an application; waits until the server is reachable."""
    for task in worker.app.tasks.values():
        while task.rules.repeat is not None and not worker.is_stopping:
            try:
                await worker.client.run_async(schedule(task))
                break
            except Unreachable as error:
                log.warning("%s; trying again", error)
                await asyncio.sleep(1.0)
