"""`app.testing()`: jobs, delays and durable steps without a server."""

from __future__ import annotations

import asyncio
import unittest
from typing import Any

from windlass import ChildFailed, Context, Fail, Job, JobFailed, Retry, Snooze, StepsChanged, SyncContext, Windlass


def application() -> Windlass:
    # Nothing listens there: a call that reaches for a server fails.
    return Windlass("http://127.0.0.1:1", patience=0)


class Inline(unittest.TestCase):
    def test_jobs_run_at_once_and_so_do_the_jobs_they_push(self) -> None:
        app = application()
        seen: list[str] = []

        @app.task
        async def welcome(to: str) -> str:
            await send.push(to=to, template="hi")
            return to.upper()

        @app.task
        def send(to: str, template: str, *, job: Job) -> None:
            job.log(f"to {to}")
            seen.append(to)

        with app.testing() as box:
            self.assertEqual(welcome.push("ann").wait(), "ANN")
            self.assertEqual(box.assert_pushed(send, to="ann").log, ["to ann"])
            box.assert_not_pushed(send, to="bob")
            with self.assertRaises(AssertionError):
                box.assert_pushed(send, to="bob")
            with self.assertRaises(AssertionError):
                box.assert_not_pushed(send)
            with self.assertRaises(AssertionError):
                box.assert_pushed(send, times=2)
            send.push_many([("x", "y"), {"to": "z", "template": "t"}])
            box.assert_pushed(send, times=3)
        self.assertEqual(seen, ["ann", "x", "z"])

    def test_in_a_coroutine(self) -> None:
        app = application()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        @app.task
        async def total(numbers: list[int]) -> int:
            first = await add.push(numbers[0], numbers[1]).wait()
            return int(first) + numbers[2]

        async def test() -> None:
            async with app.testing() as box:
                self.assertEqual(await total.push([1, 2, 3]).wait(), 6)
                await add.delay(hours=1).push(1, 1)
                await box.advance(hours=1)
                self.assertEqual([job.state for job in box.jobs_of(add)], ["completed"] * 2)

        asyncio.run(test())

    def test_errors_are_raised_where_the_job_runs(self) -> None:
        app = application()

        @app.task(retry=1)
        def broken() -> None:
            raise ValueError("broken")

        with app.testing():
            with self.assertRaises(ValueError):
                broken.push()
        with app.testing(raises=False) as box:
            with self.assertRaises(JobFailed):
                broken.push().wait()
            self.assertEqual(box.jobs[0].state, "failed")

    def test_arguments_must_be_json(self) -> None:
        app = application()

        @app.task
        def work(value: Any) -> Any:
            return value

        with app.testing():
            self.assertEqual(work.push((1, 2)).wait(), [1, 2])
            with self.assertRaises(TypeError):
                work.push(object())
            with self.assertRaises(TypeError):
                work.push(1, 2, 3)

    def test_the_real_client_comes_back(self) -> None:
        app = application()
        real = app.client
        with app.testing():
            self.assertIsNot(app.client, real)
        self.assertIs(app.client, real)


class Time(unittest.TestCase):
    def test_collected_jobs_run_when_asked_to(self) -> None:
        app = application()
        seen: list[int] = []

        @app.task
        def work(n: int) -> None:
            seen.append(n)

        with app.testing(inline=False) as box:
            work.push(1)
            work.delay("1h").push(2)
            self.assertEqual(seen, [])
            box.run()
            self.assertEqual(seen, [1])
            box.advance("59m")
            box.run()
            self.assertEqual(seen, [1])
            box.advance("1m")
            self.assertEqual(seen, [1])
            box.run()
            self.assertEqual(seen, [1, 2])

    def test_retries_take_their_time(self) -> None:
        app = application()
        tries: list[int] = []

        @app.task(retry=3, backoff="10m")
        def work(*, job: Job) -> str:
            tries.append(job.attempt)
            if job.attempt < 3:
                raise Retry("not yet")
            return "done"

        @app.task(retry=1)
        def snooze() -> str:
            if len(tries) < 4:
                tries.append(0)
                raise Snooze(hours=1)
            return "awake"

        with app.testing() as box:
            job = work.push()
            with self.assertRaises(TimeoutError):
                job.wait()
            box.advance("10m")
            self.assertEqual(tries, [1, 2])
            box.advance("10m")
            self.assertEqual((tries, job.wait()), ([1, 2, 3], "done"))
            sleepy = snooze.push()
            box.advance(hours=1)
            self.assertEqual(sleepy.wait(), "awake")

    def test_unique_jobs(self) -> None:
        app = application()

        @app.task(unique=lambda to, **_: to)
        def send(to: str) -> None: ...

        with app.testing(inline=False) as box:
            self.assertEqual(send.push("a").id, send.push("a").id)
            box.run()
            self.assertNotEqual(send.push("a").id, 1)


class Steps(unittest.TestCase):
    def test_an_order_from_its_charge_to_its_parcels(self) -> None:
        app = application()
        charges: list[int] = []

        async def charge_card(total: int) -> str:
            charges.append(total)
            return "ch_1"

        @app.task
        def pack(item: str) -> str:
            return item.upper()

        @app.task
        async def order(items: list[str], *, ctx: Context) -> Any:
            charge = await ctx.step("charge", charge_card, 5)
            await ctx.sleep(days=3)
            ok = await ctx.wait_for("approval", timeout="7d")
            parts = await ctx.all(pack.call(item) for item in items)
            return [charge, ok, parts]

        with app.testing() as box:
            job = order.push(["a", "b"])
            self.assertEqual(box.jobs[0].state, "suspended")
            box.advance(days=3)
            self.assertEqual(box.jobs[0].wait["signal"], "approval")
            box.signal(job, "approval", {"by": "ann"})
            self.assertEqual(job.wait(), ["ch_1", {"by": "ann"}, ["A", "B"]])
            self.assertEqual(charges, [5])
            names = [step["name"] for step in box.jobs[0].steps]
            self.assertEqual(names, ["charge", "sleep", "wait:approval", "all"])
            late = order.push([])
            box.advance(days=10)
            self.assertEqual(late.wait(), ["ch_1", None, []])

    def test_plain_functions_have_steps_too(self) -> None:
        app = application()
        calls: list[str] = []

        @app.task
        def child(n: int) -> int:
            if n < 0:
                raise Fail("negative")
            return n

        def pair() -> tuple[int, int]:
            calls.append("first")
            return 1, 2

        @app.task(retry=1)
        def flow(numbers: list[int], *, ctx: SyncContext) -> Any:
            first = ctx.step("first", pair)
            ctx.sleep("1h")
            return first, ctx.wait_for("go"), ctx.all(child.call(n) for n in numbers)

        with app.testing(raises=False) as box:
            job = flow.push([1, 2])
            box.signal(job, "go", 7)  # Before it waits for it.
            box.advance("1h")
            self.assertEqual(job.wait(), [[1, 2], 7, [1, 2]])
            failing = flow.push([1, -1])
            box.signal(failing, "go")
            box.advance("1h")
            with self.assertRaises(JobFailed) as caught:
                failing.wait()
            self.assertEqual(caught.exception.kind, ChildFailed.__name__)
            self.assertIn("negative", caught.exception.message)
            self.assertEqual(calls, ["first", "first"])

    def test_results_look_the_same_in_every_run(self) -> None:
        app = application()
        seen: list[Any] = []

        @app.task
        async def flow(*, ctx: Context) -> None:
            seen.append(await ctx.step("pair", lambda: (1, {2: 3})))
            await ctx.sleep(1)

        with app.testing() as box:
            flow.push()
            box.advance(1)
        self.assertEqual(seen, [[1, {"2": 3}]] * 2)

    def test_steps_are_tried_again(self) -> None:
        app = application()
        tries: list[int] = []

        def unsteady() -> str:
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError("reset")
            return "done"

        @app.task(retry=1)
        async def flow(*, ctx: Context) -> str:
            return await ctx.step("unsteady", unsteady, retry=2, backoff="1ms")

        with app.testing():
            self.assertEqual(flow.push().wait(), "done")
            tries.clear()

            @app.task(retry=1)
            async def stubborn(*, ctx: Context) -> None:
                await ctx.step("unsteady", unsteady, retry=1, backoff="1ms")

            with self.assertRaises(ConnectionError):
                stubborn.push()
            self.assertEqual(len(tries), 2)

    def test_steps_at_the_same_time_share_a_call(self) -> None:
        app = application()

        @app.task
        async def flow(*, ctx: Context) -> list[int]:
            async def later(n: int) -> int:
                await asyncio.sleep(0)
                return n

            return list(await asyncio.gather(*(ctx.step("part", later, n) for n in range(5))))

        with app.testing() as box:
            calls: list[str] = []
            real = box.server.call

            def counted(method: str, path: str, body: bytes | None) -> tuple[int, Any]:
                calls.append(path)
                return real(method, path, body)

            box.server.call = counted  # type: ignore[method-assign]
            self.assertEqual(flow.push().wait(), [0, 1, 2, 3, 4])
            self.assertEqual(len([path for path in calls if path.endswith("/steps")]), 1)
            names = [step["name"] for step in box.jobs[0].steps]
            self.assertEqual(names, ["part", "part#2", "part#3", "part#4", "part#5"])

    def test_a_step_that_runs_is_kept_before_the_run_waits(self) -> None:
        app = application()
        effects: list[str] = []

        async def slow() -> str:
            await asyncio.sleep(0.01)
            effects.append("slow")
            return "slow"

        @app.task
        async def flow(*, ctx: Context) -> Any:
            done, _ = await asyncio.gather(ctx.step("slow", slow), ctx.sleep(5))
            return done

        with app.testing() as box:
            job = flow.push()
            self.assertEqual([step["name"] for step in box.jobs[0].steps], ["slow"])
            box.advance(5)
            self.assertEqual((job.wait(), effects), ("slow", ["slow"]))


class Changes(unittest.TestCase):
    """The code of a task changes while a job waits."""

    def deployed(self, on_change: Any, first: list[str], second: list[str], **options: Any) -> tuple[Any, Any]:
        app = application()
        steps = list(first)

        @app.task(retry=1, on_change=on_change, **options)
        async def flow(*, ctx: Context) -> Any:
            for name in steps:
                if name == "sleep":
                    await ctx.sleep(1)
                else:
                    await ctx.step(name, lambda: name)
            return ctx.version

        with app.testing(raises=False) as box:
            job = flow.push()
            steps[:] = second
            box.advance(1)
            return job, box.jobs[0]

    def test_steps_that_are_gone(self) -> None:
        table = [
            (["a", "sleep"], ["a", "sleep", "b"], None),
            (["a", "sleep"], ["sleep", "b"], "a"),
            (["a", "b", "sleep"], ["b", "a", "sleep"], None),
            (["a", "b", "sleep"], ["a"], "b"),
            (["a", "sleep"], ["renamed", "sleep"], "a"),
        ]
        for first, second, missing in table:
            _, job = self.deployed("warn", first, second)
            self.assertEqual(job.state, "completed")
            self.assertEqual(len(job.log), 0 if missing is None else 1, (first, second, job.log))
            if missing is not None:
                self.assertIn(missing, job.log[0])
            _, job = self.deployed("refuse", first, second)
            self.assertEqual(job.state, "completed" if missing is None else "failed")
            self.assertEqual(job.outcome.get("class"), None if missing is None else StepsChanged.__name__)

    def test_the_version_of_the_first_step_counts(self) -> None:
        job, kept = self.deployed("warn", ["a", "sleep"], ["a", "sleep"], version=3)
        self.assertEqual([step["name"] for step in kept.steps], ["@version", "a", "sleep"])
        kept = self.deployed("warn", ["sleep"], ["sleep"], version=3)[1]
        self.assertEqual([step["name"] for step in kept.steps], ["@version", "sleep"])
        self.assertEqual(kept.outcome["result"], 3)
        app = application()

        @app.task(version=2)
        async def flow(*, ctx: Context) -> Any:
            await ctx.sleep(1)
            return ctx.version

        with app.testing() as box:
            pushed = flow.push()
            box.jobs[0].steps[0]["result"] = 1
            box.advance(1)
            self.assertEqual(pushed.wait(), 1)

    def test_steps_of_several_coroutines_are_no_change(self) -> None:
        app = application()
        died: list[str] = []

        @app.task(retry=2, backoff="none", on_change="refuse")
        async def flow(*, ctx: Context) -> list[str]:
            async def branch(name: str) -> str:
                for number in range(3):
                    await ctx.step(f"{name}{number}", lambda: None)
                return name

            async def dying() -> str:
                if not died:
                    died.append("x")
                    await asyncio.sleep(0.05)
                    raise ValueError("once")
                await ctx.step("late", lambda: None)
                return "late"

            return list(await asyncio.gather(dying(), branch("a"), branch("b")))

        with app.testing(raises=False):
            self.assertEqual(flow.push().wait(), ["late", "a", "b"])


if __name__ == "__main__":
    unittest.main()
