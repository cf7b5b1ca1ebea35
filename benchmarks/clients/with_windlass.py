"""Windlass in Python, as compare.py starts it: `ACTION COUNT RESULT_FILE`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from common import PAYLOAD, measured, say

from windlass import Windlass

app = Windlass()
action, count = sys.argv[1], int(sys.argv[2])
lock = threading.Lock()
started = 0.0
left = count


def counted() -> None:
    global started, left
    with lock:
        started = started or time.perf_counter()
        left -= 1
        if left == 0:
            worker.stop()


async def coroutine(data: str) -> None:
    counted()


def function(data: str) -> None:
    counted()


noop = app.task(name="noop", queue="bench", keep=0)(function if action == "work functions" else coroutine)
worker = app.worker(concurrency=100)


def push_each() -> None:
    for _ in range(count):
        noop.push(data=PAYLOAD)


async def push_at_once() -> None:
    for start in range(0, count, 1_000):
        await asyncio.gather(*(noop.push(data=PAYLOAD) for _ in range(min(1_000, count - start))))
    await app.aclose()


match action:
    case "push each":
        measured(count, push_each)
    case "push many":
        measured(count, lambda: noop.push_many({"data": PAYLOAD} for _ in range(count)))
    case "push at once":
        measured(count, lambda: asyncio.run(push_at_once()))
    case _:
        asyncio.run(worker.run())
        # When every report has arrived.
        say(count, time.perf_counter() - started)
