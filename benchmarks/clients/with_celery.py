"""Celery on Redis, as compare.py starts it: `ACTION COUNT RESULT_FILE`. `REDIS_URL` is the broker."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from celery import Celery, group
from common import PAYLOAD, measured, say

app = Celery("bench", broker=os.environ["REDIS_URL"])
# Results are not kept, as with the others; messages are fetched ahead of time.
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, broker_connection_retry_on_startup=True)
count = int(sys.argv[2])
lock = threading.Lock()
started = 0.0
left = count


@app.task(name="noop")
def noop(data: str) -> None:
    global started, left
    with lock:
        started = started or time.perf_counter()
        left -= 1
        if left == 0:
            say(count, time.perf_counter() - started)


def push_each() -> None:
    for _ in range(count):
        noop.delay(PAYLOAD)


def push_shared() -> None:
    """With one producer for all messages, the quickest way of `apply_async`."""
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async((PAYLOAD,), producer=producer)


def push_group() -> None:
    for start in range(0, count, 1_000):
        group(noop.s(PAYLOAD) for _ in range(min(1_000, count - start))).apply_async()


def work(*pool: str) -> Any:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    return app.worker_main(["worker", *quiet, *pool])


match sys.argv[1]:
    case "push each":
        measured(count, push_each)
    case "push shared":
        measured(count, push_shared)
    case "push group":
        measured(count, push_group)
    case "work solo":
        work("--pool=solo")
    case "work threads":
        work("--pool=threads", "--concurrency=20")
    case "work prefork":
        work("--pool=prefork", "--concurrency=1")
