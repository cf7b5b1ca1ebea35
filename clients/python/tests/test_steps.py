"""Durable steps against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import asyncio
import logging
import unittest
from typing import Any

from common import PATIENCE_S, Gate, ServerTest, eventually, info

from windlass import ChildFailed, Context, Fail, JobFailed, StepsChanged, SyncContext, _wire
from windlass._task import OnChange

logging.getLogger("windlass").setLevel(logging.CRITICAL)


def names(job: dict[str, Any]) -> list[str]:
    return [step["name"] for step in job["steps"]]


class Flows(ServerTest):
    def test_an_order_from_its_charge_to_its_parcels(self) -> None:
        app = self.application()
        charges: list[int] = []

        async def charge_card(total: int) -> str:
            charges.append(total)
            return "ch_1"

        @app.task(queue=self.queue)
        def pack(item: str) -> str:
            return item.upper()

        @app.task(queue=self.queue, version=2)
        async def order(items: list[str], *, ctx: Context) -> Any:
            charge = await ctx.step("charge", charge_card, 5)
            await ctx.sleep(milliseconds=50)
            ok = await ctx.wait_for("approval", timeout="7d")
            parts = await ctx.all(pack.call(item) for item in items)
            again = await ctx.all(pack.call(item) for item in "xy")
            return [charge, ok, parts, again, ctx.version]

        with app.working(2):
            job = order.push(["a", "b", "c"])
            waiting = eventually(lambda: (found := info(app, job.id)).get("wait", {}).get("signal") and found)
            self.assertEqual(waiting["state"], "suspended")
            self.assertTrue(job.signal("approval", {"by": "ann"}))
            self.assertEqual(job.wait(PATIENCE_S), ["ch_1", {"by": "ann"}, ["A", "B", "C"], ["X", "Y"], 2])
        self.assertEqual(charges, [5])
        ended = info(app, job.id)
        self.assertEqual(names(ended), ["@version", "charge", "sleep", "wait:approval", "all", "all#2"])
        self.assertEqual(len(job.children()), 5)

    def test_plain_functions_have_steps_too(self) -> None:
        app = self.application()
        calls: list[str] = []

        def pair() -> tuple[int, int]:
            calls.append("first")
            return 1, 2

        @app.task(queue=self.queue)
        def flow(*, ctx: SyncContext) -> Any:
            first = ctx.step("first", pair)
            ctx.sleep(milliseconds=10)
            return first, ctx.wait_for("go", timeout="20ms", default="nothing")

        with app.working(2):
            self.assertEqual(flow.push().wait(PATIENCE_S), [[1, 2], "nothing"])
        self.assertEqual(calls, ["first"])

    def test_a_failed_run_goes_on_where_it_was(self) -> None:
        app = self.application()
        calls: list[str] = []

        @app.task(queue=self.queue, retry=3, backoff="none")
        async def flow(*, ctx: Context) -> Any:
            async def effect(name: str) -> str:
                calls.append(name)
                return name

            async def unsteady() -> str:
                calls.append("unsteady")
                if calls.count("unsteady") < 3:
                    raise ValueError("not yet")
                return "steady"

            first = await ctx.step("first", effect, "first")
            both = await asyncio.gather(ctx.step("part", effect, "a"), ctx.step("part", effect, "b"))
            return [first, both, await ctx.step("unsteady", unsteady)]

        with app.working(2):
            job = flow.push()
            self.assertEqual(job.wait(PATIENCE_S), ["first", ["a", "b"], "steady"])
        self.assertEqual(calls, ["first", "a", "b", "unsteady", "unsteady", "unsteady"])
        self.assertEqual(info(app, job.id)["attempts"], 3)

    def test_children_that_fail(self) -> None:
        app = self.application()

        @app.task(queue=self.queue, retry=1)
        def child(n: int) -> int:
            if n < 0:
                raise Fail("negative")
            return n

        @app.task(queue=self.queue, retry=1)
        async def strict(*, ctx: Context) -> Any:
            return await ctx.all([child.call(1), child.call(-1)])

        @app.task(queue=self.queue, retry=1)
        async def lenient(*, ctx: Context) -> Any:
            results = await ctx.all([child.call(1), child.call(-1)], return_exceptions=True)
            return [getattr(result, "message", result) for result in results]

        with app.working(2):
            with self.assertRaises(JobFailed) as caught:
                strict.push().wait(PATIENCE_S)
            self.assertEqual(caught.exception.kind, ChildFailed.__name__)
            self.assertIn("negative", caught.exception.message)
            self.assertEqual(lenient.push().wait(PATIENCE_S), [1, "negative"])

    def test_children_of_a_unique_task(self) -> None:
        app = self.application()

        @app.task(queue=self.queue, unique=True)
        def pack(item: str) -> str:
            return item.upper()

        @app.task(queue=self.queue, retry=1)
        async def order(*, ctx: Context) -> Any:
            return await ctx.all([pack.call("a"), pack.options(unique="k").call("b"), pack.call("a")])

        # A job that holds the unique key of the children.
        pack.delay(hours=1).push("a")
        with app.working(2):
            self.assertEqual(order.push().wait(PATIENCE_S), ["A", "B", "A"])

    def test_retry_from_a_step(self) -> None:
        app = self.application()
        calls: list[str] = []

        @app.task(queue=self.queue, retry=1)
        async def flow(*, ctx: Context) -> int:
            for name in ("a", "b", "c"):
                await ctx.step(name, calls.append, name)
            return len(calls)

        with app.working(2):
            job = flow.push()
            self.assertEqual(job.wait(PATIENCE_S), 3)
            job.retry(from_step="b")
            eventually(lambda: info(app, job.id).get("result") == 5)
        self.assertEqual(calls, ["a", "b", "c", "b", "c"])

    def test_changed_code(self) -> None:
        choices: list[OnChange] = ["warn", "refuse"]
        for on_change in choices:
            app = self.application()
            steps = ["a", "b"]

            @app.task(name=f"flow-{on_change}", queue=self.queue, retry=1, on_change=on_change)
            async def flow(*, ctx: Context) -> str:
                for name in steps:
                    await ctx.step(name, lambda: None)
                await ctx.wait_for("go")
                return "done"

            with app.working(2):
                job = flow.push()
                eventually(lambda: info(app, job.id)["state"] == "suspended")
                steps[:] = ["a", "c"]
                job.signal("go")
                if on_change == "warn":
                    self.assertEqual(job.wait(PATIENCE_S), "done")
                    self.assertIn("b", str(info(app, job.id)["log"]))
                else:
                    with self.assertRaises(JobFailed) as caught:
                        job.wait(PATIENCE_S)
                    self.assertEqual(caught.exception.kind, StepsChanged.__name__)

    def test_a_thousand_steps(self) -> None:
        app = self.application()
        calls: list[int] = []

        @app.task(queue=self.queue, retry=2, backoff="none")
        async def flow(*, ctx: Context) -> int:
            async def effect(n: int) -> int:
                calls.append(n)
                return n

            total = sum(await asyncio.gather(*(ctx.step("part", effect, n) for n in range(1000))))
            if ctx.attempt == 1:
                raise ValueError("once more")
            return total

        with app.working(2):
            self.assertEqual(flow.push().wait(PATIENCE_S), sum(range(1000)))
        self.assertEqual(sorted(calls), list(range(1000)))

    def test_more_children_than_a_list_shows(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        async def child(n: int) -> int:
            return n

        @app.task(queue=self.queue)
        async def parent(*, ctx: Context) -> Any:
            return await ctx.all(child.call(n) for n in range(1010))

        with app.working(200):
            self.assertEqual(parent.push().wait(PATIENCE_S), list(range(1010)))

    def test_a_lost_lease_stops_the_run(self) -> None:
        app = self.application()
        gate = Gate()
        calls: list[str] = []

        @app.task(queue=self.queue, retry=1)
        def flow(*, ctx: SyncContext) -> None:
            ctx.step("first", gate.pass_through)
            calls.append("beyond")

        with app.working(2):
            job = flow.push()
            gate.await_arrival()
            app.client.send(_cancel_now(job.id))
            gate.opened.set()
        self.assertEqual(calls, [])
        ended = info(app, job.id)
        self.assertEqual((ended["state"], ended.get("steps") or []), ("cancelled", []))


def _cancel_now(id: Any) -> Any:
    return _wire.act(id, "cancel", {"now": True})


if __name__ == "__main__":
    unittest.main()
