"""Windlass for Python: tasks, workers and durable steps.

    from windlass import Windlass

    app = Windlass()  # WINDLASS_SERVER, WINDLASS_TOKEN

    @app.task(queue="mail", retry=5, timeout="2m", unique=lambda to, **_: to)
    async def send(to: str, template: str, *, job): ...

    await send.push(to="a@example.org", template="hi")  # in a coroutine
    send.push(to="a@example.org", template="hi")        # elsewhere; blocks until the job is stored

    app.work(concurrency=20)                            # or: windlass-worker module:app

**One rule for both worlds:** in a coroutine, calls that reach the server are awaited; elsewhere the same calls block.

`windlass.testing` runs jobs without a server, `windlass.dev` starts a real one, and `windlass.sidejob` is the library
for long-lived jobs with ports.
"""

from ._app import Windlass
from ._context import Context, Job, SyncContext, current_job
from ._errors import (
    BadPayload,
    BadRequest,
    Busy,
    Cancelled,
    ChildFailed,
    Conflict,
    Fail,
    JobCancelled,
    JobFailed,
    LeaseLost,
    NotFound,
    ProcessDied,
    Refused,
    Retry,
    Snooze,
    StepsChanged,
    Suspended,
    Unreachable,
    WindlassError,
)
from ._handle import JobHandle, JobHandles
from ._logging import JobLogHandler
from ._task import Call, Options, Sender, Task
from ._worker import Worker

__version__ = "0.1.0"

__all__ = [
    "BadPayload",
    "BadRequest",
    "Busy",
    "Call",
    "Cancelled",
    "ChildFailed",
    "Conflict",
    "Context",
    "Fail",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobHandles",
    "JobLogHandler",
    "LeaseLost",
    "NotFound",
    "Options",
    "ProcessDied",
    "Refused",
    "Retry",
    "Sender",
    "Snooze",
    "StepsChanged",
    "Suspended",
    "SyncContext",
    "Task",
    "Unreachable",
    "Windlass",
    "WindlassError",
    "Worker",
    "current_job",
]
