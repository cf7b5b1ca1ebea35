"""Long-lived jobs with input and output ports, state and children, which run whenever a value arrives.

A worker:

    from windlass.sidejob import Worker, serve, worker

    @worker("math", inports=["a", "b"], outports=["sum"])
    class Add(Worker):
        def perform(self) -> None:
            for a, b in self.for_inputs("a", "b"):
                self.output("sum").write(a + b)

    serve("math", url="http://127.0.0.1:7373/sidejob")

A client:

    from windlass.sidejob import Client

    client = Client("http://127.0.0.1:7373/sidejob")
    job = client.queue("math", "Add")
    job.input("a").write(1)
    job.input("b").write(2)

`AsyncWorker`, `AsyncClient` and `serve_async` are the same for asyncio.
"""

from ._calls import Declared, JobInfo, Json, PortInfo
from ._errors import Empty, NotFound, SideJobError, Stale, Suspend, Unreachable
from ._registry import worker
from ._serve import serve
from ._serve_async import serve_async
from .aio import AsyncClient, AsyncJob, AsyncPort, AsyncWorker
from .sync import Client, Job, Port, Worker

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncPort",
    "AsyncWorker",
    "Client",
    "Declared",
    "Empty",
    "Job",
    "JobInfo",
    "Json",
    "NotFound",
    "Port",
    "PortInfo",
    "SideJobError",
    "Stale",
    "Suspend",
    "Unreachable",
    "Worker",
    "serve",
    "serve_async",
    "worker",
]
