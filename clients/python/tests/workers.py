"""Workers for the tests, and as a program: `workers.py QUEUE…` serves these queues, `--async` with asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from windlass.sidejob import AsyncWorker, Worker, serve, serve_async, worker

URL = os.environ.get("SIDEJOB", "http://127.0.0.1:7373/sidejob")

# What happened in this process, for tests that serve in a thread of their own.
happened: list[Any] = []


@worker("sum", inports={"a": {}, "b": {"default": 10}}, outports=["sum"], note="adds")
class Add(Worker):
    def perform(self) -> None:
        for a, b in self.for_inputs("a", "b"):
            self.output("sum").write(a + b)


@worker("sum-async", inports=["a", "b"], outports=["sum"])
class AddAsync(AsyncWorker):
    async def perform(self) -> None:
        async for a, b in self.for_inputs("a", "b"):
            await self.output("sum").write(a + b)


@worker("fib", outports=["num"])
class Fib(Worker):
    def perform(self, n: int) -> None:
        # A child that ends its run after we have read what it wrote runs us once more.
        if self.get("is_done"):
            return
        if n <= 2:
            number = 1
        else:
            left = self.child("left") or self.queue("fib", "Fib", n - 1, name="left")
            right = self.child("right") or self.queue("fib", "Fib", n - 2, name="right")
            numbers = [child.output("num") for child in (left, right)]
            if not all(port.size() for port in numbers):
                self.suspend()
            number = sum(port.read() for port in numbers)
        self.set(is_done=True)
        self.output("num").write(number)


@worker("fib-async", outports=["num"])
class FibAsync(AsyncWorker):
    async def perform(self, n: int) -> None:
        if await self.get("is_done"):
            return
        number = 1
        if n > 2:
            children = []
            for name, less in (("left", 1), ("right", 2)):
                child = await self.child(name)
                children.append(child or await self.queue("fib-async", "FibAsync", n - less, name=name))
            numbers = [child.output("num") for child in children]
            if not all([await port.size() for port in numbers]):
                self.suspend()
            number = sum([await port.read() for port in numbers])
        await self.set(is_done=True)
        await self.output("num").write(number)


@worker("family", inports=["a", "b"], outports=["sum"])
class Sum(Worker):
    def perform(self) -> None:
        for a, b in self.for_inputs("a", "b"):
            self.output("sum").write(a + b)


@worker("family", inports=["ready"], outports=["out"])
class Parent(Worker):
    def perform(self) -> None:
        child = self.child("sum") or self.queue("family", "Sum", name="sum")
        if self.input("ready").read(None):
            child.input("a").write(5)
            child.input("b").write(6)
        child.output("sum").connect(self.output("out"))
        self.suspend()


@worker("careful", inports=["n"], outports=["out", "half"])
class Careful(Worker):
    """Fails on odd numbers, until it is told to be tolerant."""

    def perform(self) -> None:
        for (n,) in self.for_inputs("n"):
            self.output("half").write(n // 2)
            if n % 2 and not self.get("is_tolerant"):
                raise ValueError(f"{n} is odd")
            self.output("out").write(n)


@worker("ends")
class Ends(Worker):
    def perform(self) -> None:
        happened.append(("perform", self.id))
        self.suspend()

    def shutdown(self) -> None:
        happened.append(("shutdown", self.id))


@worker("ends")
class JustEnds(Worker):
    def perform(self, *args: Any, **kwargs: Any) -> None:
        happened.append(("perform", self.id, list(args)))


@worker("steady", inports=["n"], outports=["out"])
class Steady(Worker):
    """Hands on what it gets, with a call to the server on the way."""

    def perform(self) -> None:
        for (n,) in self.for_inputs("n"):
            time.sleep(0.02)
            self.set(last=n)
            self.output("out").write(n)


@worker("steady-async", inports=["n"], outports=["out"])
class SteadyAsync(AsyncWorker):
    async def perform(self) -> None:
        async for (n,) in self.for_inputs("n"):
            await asyncio.sleep(0.02)
            try:
                await self.set(last=n)
            except ConnectionError as error:
                # As programs do: what was raised by it is no other matter.
                raise RuntimeError("no state") from error
            await self.output("out").write(n)


@worker("verbose", inports=["n"], outports=["out"])
class Verbose(Worker):
    """Writes more than a port may hold."""

    def perform(self, count: int) -> None:
        for (n,) in self.for_inputs("n"):
            self.output("out").write(*[n] * count)
            # Written with the end of the run.
            return


# Each test has a queue of its own: what one leaves behind is in nobody's way.
@worker("slow", outports=["runs"])
@worker("killed", outports=["runs"])
@worker("impatient", outports=["runs"])
class Slow(Worker):
    def perform(self, seconds: float) -> None:
        self.output("runs").write(os.getpid())
        time.sleep(seconds)
        self.set(is_lost=self.is_lost)


@worker("marked", outports=["runs"])
class Marked(Worker):
    """Runs as long as a file is there, and calls the server only before it makes the file."""

    def perform(self, mark: str) -> None:
        self.output("runs").write(os.getpid())
        Path(mark).touch()
        until = time.monotonic() + 60
        while Path(mark).exists() and time.monotonic() < until:
            time.sleep(0.02)


@worker("slow-async", outports=["runs"])
@worker("impatient-async", outports=["runs"])
class SlowAsync(AsyncWorker):
    async def perform(self, seconds: float) -> None:
        await self.output("runs").write(os.getpid())
        await asyncio.sleep(seconds)


@worker("mixed", outports=["out"])
class InThread(Worker):
    def perform(self, value: Any) -> None:
        self.output("out").write(["thread", value])


@worker("mixed", outports=["out"])
class InLoop(AsyncWorker):
    async def perform(self, value: Any) -> None:
        await self.output("out").write(["loop", value])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    queues = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    grace = 0.2 if "--impatient" in sys.argv else 30.0
    leases = [float(argument.removeprefix("--lease=")) for argument in sys.argv if argument.startswith("--lease=")]
    lease = leases[0] if leases else None
    if "--async" in sys.argv:
        asyncio.run(serve_async(*queues, url=URL, grace=grace, lease=lease))
    else:
        serve(*queues, url=URL, grace=grace, lease=lease)
