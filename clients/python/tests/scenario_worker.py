"""Worker of the scenarios: runs flows that are written as data, so that all libraries are tried with the same file.

`WINDLASS_SERVER` is the address of the server, `SCENARIO_DIR` a folder for effects and marks.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from windlass import Context, Fail, Retry, Snooze, Windlass

app = Windlass()
folder = Path(os.environ.get("SCENARIO_DIR", "."))

Op = dict[str, Any]
Out = dict[str, Any]


def append(name: str, text: str) -> None:
    """One write, so that lines of several processes do not mix."""
    file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def is_first(mark: str) -> bool:
    """True once per mark."""
    try:
        os.close(os.open(folder / mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


def kill_once(mark: str) -> None:
    if is_first(mark):
        os.kill(os.getpid(), signal.SIGKILL)


async def perform(op: Op) -> Any:
    """Body of a step."""
    name = op["step"]
    if op.get("kill") == "before":
        kill_once(f"killed-{name}-before")
    if op.get("effect") is not None:
        append("effects", f"{op['effect']}\n")
    if op.get("kill") == "after":
        kill_once(f"killed-{name}-after")
    failed = folder / f"failed-{name}"
    if op.get("fail_times", 0) > (failed.stat().st_size if failed.exists() else 0):
        append(failed.name, "x")
        raise RuntimeError(f"step {name} fails")
    if op.get("sleep_ms"):
        await asyncio.sleep(op["sleep_ms"] / 1000)
    return op.get("returns")


class Names:
    """Names of the steps of a run, as the library gives them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, base: str) -> str:
        number = self._counts[base] = self._counts.get(base, 0) + 1
        return base if number == 1 else f"{base}#{number}"


async def step(ctx: Context, names: Names, op: Op, out: Out) -> None:
    name = names.next(op["step"])
    out[name] = await ctx.step(op["step"], perform, op, retry=op.get("retry", 0), backoff="10ms")


async def waits(ctx: Context, names: Names, op: Op, out: Out) -> None:
    """Operations that suspend the job."""
    if "sleep_ms" in op:
        await ctx.sleep(milliseconds=op["sleep_ms"])
    elif "wait_for" in op:
        name = names.next(f"wait:{op['wait_for']}")
        timeout = op["timeout_ms"] / 1000 if op.get("timeout_ms") is not None else None
        out[name] = await ctx.wait_for(op["wait_for"], timeout=timeout)
    else:
        name = names.next("all")
        out[name] = await ctx.all(flow.call(ops=ops) for ops in op["all"])


async def until_cancelled(op: Op) -> None:
    try:
        await asyncio.sleep(op["until_cancelled_ms"] / 1000)
    except asyncio.CancelledError:
        append("effects", "cancelled\n")
        raise


def raises(op: Op) -> None:
    """Operations that end the run with an exception."""
    if "raise" in op:
        raise RuntimeError(op["raise"])
    if "raise_once" in op and is_first(f"raised-{op['id']}"):
        raise RuntimeError(op["raise_once"])
    if "fail" in op:
        raise Fail(op["fail"])
    if "retry_after_ms" in op and is_first(f"retried-{op['id']}"):
        raise Retry(after=op["retry_after_ms"] / 1000)
    if "snooze_ms" in op and is_first(f"snoozed-{op['id']}"):
        raise Snooze(op["snooze_ms"] / 1000)


async def do(ctx: Context, names: Names, op: Op, out: Out) -> None:
    """One operation, except `return`."""
    if "step" in op:
        await step(ctx, names, op, out)
    elif "together" in op:
        await asyncio.gather(*(step(ctx, names, each, out) for each in op["together"]))
    elif "sleep_ms" in op or "wait_for" in op or "all" in op:
        await waits(ctx, names, op, out)
    elif "kill" in op:
        kill_once(f"killed-{op['kill']}")
    elif "effect" in op:
        append("effects", f"{op['effect']}\n")
    elif "progress" in op:
        ctx.progress(op["progress"], op.get("note"))
    elif "log" in op:
        ctx.log(op["log"])
    elif "until_cancelled_ms" in op:
        await until_cancelled(op)
    else:
        raises(op)


@app.task(retry=5, backoff="50ms")
async def flow(ops: list[Op], *, ctx: Context) -> Any:
    out: Out = {}
    names = Names()
    for op in ops:
        if "return" in op:
            return op["return"]
        await do(ctx, names, op, out)
    return out


if __name__ == "__main__":
    app.work(concurrency=4, lease="5s", grace="5s")
