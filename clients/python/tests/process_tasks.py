"""Tasks that run in processes; the processes import this module."""

from __future__ import annotations

import os
import signal
from typing import Any

from windlass import Windlass

app = Windlass("http://127.0.0.1:1")


@app.task(process=True)
def square(n: int) -> tuple[int, int]:
    return os.getpid(), n * n


@app.task(process=True)
def broken() -> None:
    raise ValueError("broken here")


@app.task(process=True)
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(process=True)
def endless(*, job: Any) -> None:
    job.progress(5, "started")
    while True:
        sum(range(1000))
