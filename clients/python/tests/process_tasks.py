"""Tasks that run in processes; the processes import this module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from windlass import Windlass

app = Windlass("http://127.0.0.1:1")


@app.task(process=True)
def square(n: int) -> tuple[int, int]:
    return os.getpid(), n * n


@app.task(process=True)
def meets(folder: str, name: str, other: str) -> None:
    """Ends when both are there."""
    Path(folder, name).touch()
    until = time.monotonic() + 60
    while not Path(folder, other).exists():
        if time.monotonic() > until:
            raise TimeoutError(other)
        time.sleep(0.01)


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
