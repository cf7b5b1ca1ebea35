"""Tasks, pushes and outcomes against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import unittest
from typing import Any

from common import PATIENCE_S, Gate, ServerTest, eventually, info

from windlass import (
    BadRequest,
    Cancelled,
    Conflict,
    Fail,
    Job,
    JobCancelled,
    JobFailed,
    JobLogHandler,
    NotFound,
    Retry,
    Snooze,
    Windlass,
    current_job,
)

logging.getLogger("windlass").setLevel(logging.CRITICAL)


class Pushing(ServerTest):
    def test_the_same_call_blocks_or_is_awaited(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        async def double(n: int, *, job: Job) -> int:
            return 2 * n

        @app.task(queue=self.queue)
        def triple(n: int) -> int:
            return 3 * n

        async def in_coroutine() -> list[int]:
            job = await double.push(4)
            chained = await triple.push(n=4).wait()
            await app.aclose()
            return [await app.job(job.id).wait(PATIENCE_S), chained]

        with app.working(2):
            self.assertEqual(double.push(n=3).wait(PATIENCE_S), 6)
            self.assertEqual(triple.push(3).wait(PATIENCE_S), 9)
            self.assertEqual(asyncio.run(in_coroutine()), [8, 12])
        self.assertEqual(triple(5), 15)

    def test_many_jobs_and_many_at_once(self) -> None:
        app = self.application()
        seen: list[int] = []

        @app.task(queue=self.queue)
        async def note(n: int) -> None:
            seen.append(n)

        async def push_at_once() -> list[Any]:
            jobs = await asyncio.gather(*(note.push(n) for n in range(3000, 3300)))
            many = await note.push_many({"n": n} for n in range(3300, 3400))
            await app.aclose()
            return [job.id for job in jobs] + [job.id for job in many]

        ids = [job.id for job in note.push_many(range(2500))]
        ids += [job.id for job in note.push_many((n,) for n in range(2500, 3000))]
        ids += asyncio.run(push_at_once())
        self.assertEqual(len(set(ids)), 3400)
        with app.working(100):
            eventually(lambda: len(seen) == 3400)
        self.assertEqual(sorted(seen), list(range(3400)))

    def test_delay_and_at(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def later(n: int) -> None: ...

        now_ms = time.time() * 1000
        delayed = info(app, later.delay(minutes=5).push(1).id)
        self.assertEqual(delayed["state"], "delayed")
        self.assertAlmostEqual(delayed["run_at"], now_ms + 300_000, delta=60_000)
        at = info(app, later.at(time.time() + 3600).push(2).id)
        self.assertAlmostEqual(at["run_at"], now_ms + 3_600_000, delta=60_000)

    def test_unique_and_idempotent_pushes(self) -> None:
        app = self.application()

        @app.task(queue=self.queue, unique=lambda to, **_: to)
        def send(to: str, n: int = 0) -> None: ...

        @app.task(queue=self.queue, unique=True, on_conflict="refuse")
        def once(n: int) -> None: ...

        self.assertEqual(send.push("a").id, send.push("a", n=1).id)
        self.assertNotEqual(send.push("a").id, send.push("b").id)
        keyed = send.options(idempotency_key="k-1", unique="other")
        self.assertEqual(keyed.push("c").id, keyed.push("d").id)
        first = once.push(1)
        with self.assertRaises(Conflict) as caught:
            once.push(1)
        self.assertEqual((caught.exception.code, caught.exception.id), ("duplicate", first.id))

    def test_a_repeated_push_after_a_lost_answer_makes_no_second_job(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def send(to: str) -> None: ...

        job = send.call("a").encoded()
        self.assertEqual(app.client.push([job]), app.client.push([job]))

    def test_a_malformed_push_does_not_spoil_others(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def good() -> None: ...

        async def push() -> list[Any]:
            bad = good.options(queue="x" * 1000).push()
            return list(await asyncio.gather(good.push(), bad, good.push(), return_exceptions=True))

        first, second, third = asyncio.run(push())
        self.assertIsInstance(second, BadRequest)
        self.assertEqual(info(app, first.id)["state"], "ready")
        self.assertEqual(info(app, third.id)["state"], "ready")

    def test_errors_of_calls(self) -> None:
        app = self.application()
        with self.assertRaises(NotFound):
            app.job(999_999_999).info()
        with self.assertRaises(NotFound):
            app.job(999_999_999).wait()

        @app.task(queue=self.queue)
        def idle() -> None: ...

        job = idle.push()
        with self.assertRaises(TimeoutError):
            job.wait("10ms")
        job.cancel()
        with self.assertRaises(JobCancelled):
            job.wait()
        with self.assertRaises(Conflict):
            job.cancel()

    def test_several_tasks_in_one_push(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def a(n: int) -> None: ...

        @app.task(queue=self.queue)
        def b() -> None: ...

        first, second = app.push_many([a.call(1), b.call()])
        self.assertEqual((info(app, first.id)["name"], info(app, second.id)["name"]), ("a", "b"))


class Outcomes(ServerTest):
    def test_exceptions_of_the_library_say_what_happens_next(self) -> None:
        app = self.application()
        tries: dict[str, int] = {}

        def count(name: str) -> int:
            tries[name] = tries.get(name, 0) + 1
            return tries[name]

        @app.task(queue=self.queue, retry=3, backoff="none")
        async def plain() -> None:
            count("plain")
            raise ValueError("no luck")

        @app.task(queue=self.queue, retry=3)
        def retry() -> int:
            if count("retry") < 3:
                raise Retry("not yet", after="10ms")
            return tries["retry"]

        @app.task(queue=self.queue, retry=3)
        def fail() -> None:
            count("fail")
            raise Fail("for good")

        @app.task(queue=self.queue, retry=1)
        def snooze() -> int:
            if count("snooze") < 4:
                raise Snooze(milliseconds=10)
            return tries["snooze"]

        @app.task(queue=self.queue, retry=3, give_up_on=(KeyError,))
        def give_up() -> None:
            count("give_up")
            raise KeyError("x")

        with app.working(4):
            jobs = [task.push() for task in (plain, retry, fail, snooze, give_up)]
            ends = []
            for job in jobs:
                try:
                    ends.append(job.wait(PATIENCE_S))
                except JobFailed as error:
                    ends.append((error.kind, error.message))
        expected = [("ValueError", "no luck"), 3, ("Fail", "for good"), 4, ("KeyError", "'x'")]
        self.assertEqual(ends, expected)
        self.assertEqual(tries, {"plain": 3, "retry": 3, "fail": 1, "snooze": 4, "give_up": 1})
        self.assertEqual(info(app, jobs[3].id)["attempts"], 1)
        backtrace = info(app, jobs[0].id)["errors"][0]
        self.assertEqual(backtrace["class"], "ValueError")

    def test_poison_pills_fail_for_good(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def pair(a: int, b: int) -> int:
            return a + b

        @app.task(queue=self.queue, retry=1)
        def unserializable() -> object:
            return object()

        other = Windlass(self.server.url)

        @other.task(name="pair", queue=self.queue)
        def wrong(z: int) -> None: ...

        with app.working(2):
            with self.assertRaises(JobFailed) as caught:
                wrong.push(1).wait(PATIENCE_S)
            self.assertEqual(caught.exception.kind, "BadPayload")
            with self.assertRaises(JobFailed) as caught:
                unserializable.push().wait(PATIENCE_S)
            self.assertEqual(caught.exception.kind, "TypeError")
            self.assertEqual(pair.push(1, 2).wait(PATIENCE_S), 3)

    def test_a_result_that_is_too_large_fails_the_job_and_no_other(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        async def large(n: int) -> str:
            return "x" * n

        with app.working(2):
            too_large, good = large.push(17 * 1024 * 1024), large.push(3)
            self.assertEqual(good.wait(PATIENCE_S), "xxx")
            with self.assertRaises(JobFailed):
                too_large.wait(PATIENCE_S)

    def test_timeouts(self) -> None:
        app = self.application()
        seen: list[str] = []

        @app.task(queue=self.queue, retry=1, timeout="100ms")
        async def slow() -> None:
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                seen.append("slow")
                raise

        @app.task(queue=self.queue, retry=1, timeout="100ms")
        def busy() -> None:
            try:
                until = time.monotonic() + PATIENCE_S
                while time.monotonic() < until:
                    time.sleep(0.001)
            except Cancelled:
                seen.append("busy")
                raise

        with app.working(2):
            for task in (slow, busy):
                with self.assertRaises(JobFailed) as caught:
                    task.push().wait(PATIENCE_S)
                self.assertEqual(caught.exception.kind, "Timeout")
        self.assertEqual(seen, ["slow", "busy"])

    def test_a_cancellation_reaches_the_handler(self) -> None:
        app = self.application()
        gates = {"coroutine": Gate(), "function": Gate()}
        seen: list[tuple[str, bool]] = []

        @app.task(queue=self.queue)
        async def coroutine(*, job: Job) -> None:
            gates["coroutine"].reached.set()
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                seen.append(("coroutine", job.cancelled))
                raise

        @app.task(queue=self.queue)
        def function(*, job: Job) -> None:
            gates["function"].reached.set()
            try:
                until = time.monotonic() + PATIENCE_S
                while time.monotonic() < until:
                    time.sleep(0.001)
            except Cancelled:
                seen.append(("function", job.cancelled))
                raise

        with app.working(2, lease="600ms"):
            for task in (coroutine, function):
                job = task.push()
                gates[task.name].await_arrival()
                job.cancel()
                with self.assertRaises(JobCancelled):
                    job.wait(PATIENCE_S)
        self.assertEqual(seen, [("coroutine", True), ("function", True)])

    def test_progress_and_log(self) -> None:
        app = self.application()
        gate = Gate()
        logger = logging.getLogger("shop")
        handler = JobLogHandler()
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

        @app.task(queue=self.queue)
        def work(*, job: Job) -> None:
            job.progress(40, "half way")
            job.log("first\nsecond")
            logger.warning("by logging")
            gate.pass_through()
            job.log("last words")
            assert current_job() is job

        @app.task(queue=self.queue)
        async def quick(*, job: Job) -> None:
            await job.log("only words")
            await job.progress(100)

        with app.working(2):
            job = work.push()
            shown = eventually(lambda: info(app, job.id).get("progress")) or {}
            self.assertEqual((shown["percent"], shown["note"]), (40, "half way"))
            gate.opened.set()
            job.wait(PATIENCE_S)
            ended = quick.push()
            ended.wait(PATIENCE_S)
        lines = json.dumps(info(app, job.id)["log"])
        for line in ("first", "second", "by logging", "last words"):
            self.assertIn(line, lines)
        self.assertIn("only words", json.dumps(info(app, ended.id)["log"]))
        self.assertIsNone(current_job())

    def test_hooks(self) -> None:
        app = self.application()
        seen: list[Any] = []

        @app.task(queue=self.queue, retry=1)
        async def work(is_good: bool) -> str:
            seen.append("runs")
            if not is_good:
                raise ValueError("bad")
            return "done"

        @app.before
        def before(job: Job) -> None:
            seen.append(("before", job.name))

        @app.after
        async def after(job: Job, result: Any) -> None:
            seen.append(("after", result))

        @app.error
        def error(job: Job, raised: BaseException) -> None:
            seen.append(("error", str(raised)))

        with app.working(1):
            work.push(True).wait(PATIENCE_S)
            with self.assertRaises(JobFailed):
                work.push(False).wait(PATIENCE_S)
        self.assertEqual(
            seen, [("before", "work"), "runs", ("after", "done"), ("before", "work"), "runs", ("error", "bad")]
        )


if __name__ == "__main__":
    unittest.main()
