"""Runs under awkward answers of the server, with a scripted one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

from common import Gate, eventually
from test_calls import Answer, Scripted, refusal

from windlass import Context, Job, Windlass

logging.getLogger("windlass").setLevel(logging.CRITICAL)


class Bench:
    """Scripted server that hands out jobs and takes their ends; `answers` replaces the answer of a path's last part."""

    def __init__(self, test: unittest.TestCase, *jobs: dict[str, Any], **answers: Callable[[Any], Answer]) -> None:
        self.jobs = list(jobs)
        self.answers = answers
        self.ends: list[dict[str, Any]] = []
        self.server = Scripted(self._handle)
        test.addCleanup(self.server.close)
        self.app = Windlass(self.server.url)
        test.addCleanup(self.app.close)

    def calls(self, part: str) -> list[Any]:
        """Bodies of the calls whose path ends with this."""
        return [body for path, body in self.server.calls if path.endswith(part)]

    def ended(self) -> bool:
        return len(self.ends) > 0

    def _handle(self, path: str, body: Any) -> Answer:
        part = path.rpartition("/")[2]
        if part in self.answers:
            return self.answers[part](body)
        if part == "claim":
            jobs, self.jobs = self.jobs, []
            if not jobs:
                threading.Event().wait(0.05)
            return 200, {"jobs": jobs}
        if part == "extend":
            return 200, {"extended": [{"id": entry["id"], "ok": True} for entry in body["extend"]]}
        if part == "settle":
            self.ends += body["settle"]
            return 200, {"settled": [{"id": entry["id"], "ok": True} for entry in body["settle"]], "jobs": []}
        if part == "steps":
            return 200, {"steps": [{"name": step["name"], "kept": True} for step in body["steps"]]}
        return 200, {}


def claimed(id: int = 1, token: int = 1, **fields: Any) -> dict[str, Any]:
    """Job as a claim hands it out."""
    return {"id": id, "token": token, "name": "work", "queue": "default", "attempt": 1, "payload": {}, **fields}


class Leases(unittest.TestCase):
    def test_tokens_belong_to_their_jobs(self) -> None:
        bench = Bench(self, claimed(1, 7), claimed(2, 7))
        gate = Gate()

        @bench.app.task
        def work(*, job: Job) -> int:
            if job.id == 1:
                gate.pass_through()
            return job.id

        with bench.app.working(2, lease="300ms") as worker:
            eventually(bench.ended)
            # The first job still runs: its lease is extended, and the worker waits for its end.
            seen = len(bench.calls("/extend"))
            eventually(lambda: len(bench.calls("/extend")) > seen + 1)
            self.assertEqual([entry["id"] for entry in bench.calls("/extend")[-1]["extend"]], [1])
            worker.stop()
            gate.opened.set()
        self.assertEqual([(entry["id"], entry["outcome"]) for entry in bench.ends], [(2, "finish"), (1, "finish")])

    def test_a_lost_lease_is_that_of_its_run(self) -> None:
        lost = {"id": 1, "ok": False, "error": {"code": "lease_lost", "message": "lost"}}

        def extend(body: Any) -> Answer:
            entries = body["extend"]
            return 200, {"extended": [lost if entry["token"] == 7 else {"id": 1, "ok": True} for entry in entries]}

        # The job was lost and is claimed again by the same worker while its first run is still there.
        bench = Bench(self, claimed(1, 7), claimed(1, 8), extend=extend)
        started: list[Job] = []

        @bench.app.task
        async def work(*, job: Job) -> None:
            started.append(job)
            while not job.cancelled:
                await asyncio.sleep(0.01)

        with bench.app.working(2, lease="300ms", grace=0):
            eventually(lambda: len(started) == 2 and started[0].cancelled)
            seen = len(bench.calls("/extend"))
            eventually(lambda: len(bench.calls("/extend")) > seen + 1)
            self.assertFalse(started[1].cancelled)
        self.assertEqual([(entry["token"], entry["outcome"]) for entry in bench.ends], [(8, "release")])

    def beats(self, extend: Callable[[int], Answer], count: int) -> list[float]:
        """Times of the first heartbeats within a lease of 1.2 s, which are answered by their number."""
        times: list[float] = []
        gate = Gate()

        def answer(body: Any) -> Answer:
            times.append(time.monotonic())
            return extend(len(times))

        bench = Bench(self, claimed(), extend=answer)

        @bench.app.task
        def work() -> None:
            gate.pass_through()

        with bench.app.working(1, lease="1200ms"):
            gate.await_arrival()
            try:
                eventually(lambda: len(times) >= count)
            finally:
                gate.opened.set()
        return times

    def test_a_heartbeat_that_hangs_does_not_delay_the_next(self) -> None:
        alive = (200, {"extended": [{"id": 1, "ok": True}]})
        over = threading.Event()
        self.addCleanup(over.set)

        def extend(number: int) -> Answer:
            if number == 2:
                over.wait(20)
            return alive

        times = self.beats(extend, 3)
        # Two intervals of 0.4 s; waiting for the answer and then for the next interval would be 1.8 s.
        self.assertLess(times[2] - times[0], 1.5)

    def test_heartbeats_go_on_after_any_answer(self) -> None:
        odd: list[Answer] = [(200, {}), (200, {"extended": [None]}), (200, {"extended": 5}), (404, []), b"HTTP/1.1 x"]
        self.beats(lambda number: odd[number % len(odd)], len(odd) + 1)


# Text of a file name that is not UTF-8.
ODD = "caf\udce9"


class OddText(unittest.TestCase):
    """Text that has no encoding."""

    def worked(self, handler: Callable[..., Any]) -> tuple[Bench, dict[str, Any]]:
        bench = Bench(self, claimed())
        bench.app.task(name="work")(handler)
        with bench.app.working(1):
            eventually(bench.ended)
        return bench, bench.ends[0]

    def test_notes(self) -> None:
        def work(*, job: Job) -> str:
            job.log(ODD)
            job.progress(5, ODD)
            return "done"

        bench, end = self.worked(work)
        self.assertEqual(end["outcome"], "finish")
        self.assertEqual(bench.calls("/log")[0]["lines"], ["caf?"])
        self.assertEqual(bench.calls("/extend")[0]["extend"][0]["note"], "caf?")

    def test_results_of_steps(self) -> None:
        async def work(*, ctx: Context) -> str:
            with self.assertRaises(UnicodeEncodeError):
                await ctx.step("odd", lambda: ODD)
            return await ctx.step("plain", lambda: "café")

        _, end = self.worked(work)
        self.assertEqual((end["outcome"], end.get("result")), ("finish", "café"))

    def test_pushes(self) -> None:
        bench = Bench(self, jobs=lambda body: (201, {"ids": [7] * len(body["jobs"])}))

        @bench.app.task
        def work(text: str) -> None: ...

        async def push() -> Any:
            good = work.push("café")
            with self.assertRaises(UnicodeEncodeError):
                work.push(ODD)
            return (await asyncio.wait_for(good, 20)).id

        self.assertEqual(asyncio.run(push()), 7)


class Keeping(unittest.TestCase):
    """Results of steps that the server does not keep at once."""

    def effects(self, answer: Answer) -> tuple[int, dict[str, Any]]:
        """Number of effects, and the end of the run, if keeping is answered with this at first."""
        answers, effects = [answer], list[int]()

        def steps(body: Any) -> Answer:
            return answers.pop() if answers else (200, {"steps": [{"name": "pay", "kept": True}]})

        bench = Bench(self, claimed(), steps=steps)

        @bench.app.task
        async def work(*, ctx: Context) -> None:
            await ctx.step("pay", effects.append, 1)

        with bench.app.working(1):
            eventually(bench.ended)
        return len(effects), bench.ends[0]

    def test_keeping_is_repeated_instead_of_the_effect(self) -> None:
        for status in (401, 403, 429, 500, 503, 507):
            with self.subTest(status):
                effects, end = self.effects(refusal(status, "x"))
                self.assertEqual((effects, end["outcome"]), (1, "finish"))

    def test_a_refused_result_is_an_error_of_the_step(self) -> None:
        for status in (400, 409, 413):
            with self.subTest(status):
                self.assertEqual(self.effects(refusal(status, "x"))[1]["outcome"], "fail")


class Branches(unittest.TestCase):
    """Coroutines of one run that go on at the same time."""

    def test_a_branch_that_loads_its_children_is_not_over(self) -> None:
        entered = threading.Event()

        def children(body: Any) -> Answer:
            # The other branch has reached its new step, and would have given its verdict.
            entered.wait(20)
            threading.Event().wait(0.05)
            tags = ["windlass.step=all", "windlass.index=0"]
            return 200, {"jobs": [{"id": 5, "state": "completed", "result": "A", "tags": tags}]}

        kept = [{"name": "all", "kind": "children"}, {"name": "after", "kind": "run", "result": "B"}]
        bench = Bench(self, claimed(steps=kept), children=children)

        @bench.app.task
        def child() -> str:
            return "A"

        @bench.app.task(on_change="refuse")
        async def work(*, ctx: Context) -> Any:
            async def first() -> Any:
                return [await ctx.all([child.call()]), await ctx.step("after", lambda: None)]

            async def second() -> Any:
                await asyncio.sleep(0.01)
                entered.set()
                return await ctx.step("new", lambda: "C")

            return await asyncio.gather(first(), second())

        with bench.app.working(1):
            eventually(bench.ended)
        self.assertEqual(bench.ends[0].get("result"), [[["A"], "B"], "C"], bench.ends[0])

    @unittest.skipUnless(hasattr(asyncio, "TaskGroup"), "needs Python 3.11")
    def test_a_task_group_suspends(self) -> None:
        bench = Bench(self, claimed())
        errors: list[BaseException] = []
        bench.app.error(lambda job, error: errors.append(error))

        @bench.app.task
        async def work(*, ctx: Context) -> None:
            async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined, unused-ignore]
                group.create_task(ctx.sleep(days=1))
                group.create_task(asyncio.sleep(60))

        with bench.app.working(1):
            eventually(bench.ended)
        self.assertEqual((bench.ends[0]["outcome"], bench.ends[0].get("step")), ("suspend", "sleep"))
        self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
