"""Workers and servers that die, against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from common import PATIENCE_S, Gate, ServerTest, eventually, info

from windlass import Context, Job, JobFailed, Unreachable, Windlass, dev

logging.getLogger("windlass").setLevel(logging.CRITICAL)


class Outages(ServerTest):
    def test_a_run_outlives_the_server(self) -> None:
        """Coroutine, function, and a job in a step: none of them runs twice, none fails."""
        app = self.application()
        gates = [Gate(), Gate(), Gate()]
        runs: list[str] = []

        async def passing(gate: Gate) -> None:
            await asyncio.get_running_loop().run_in_executor(None, gate.pass_through)

        @app.task(queue=self.queue, retry=1)
        async def coroutine() -> str:
            runs.append("coroutine")
            await passing(gates[0])
            return "coroutine"

        @app.task(queue=self.queue, retry=1)
        def function() -> str:
            runs.append("function")
            gates[1].pass_through()
            return "function"

        @app.task(queue=self.queue, retry=1)
        async def steps(*, ctx: Context) -> str:
            await ctx.step("slow", passing, gates[2])
            runs.append("steps")
            return "steps"

        with app.working(4) as worker:
            jobs = [coroutine.push(), function.push(), steps.push()]
            for gate in gates:
                gate.await_arrival()
            self.server.kill()
            for gate in gates:
                gate.opened.set()
            # Two handlers end and cannot be reported; the third one cannot keep its step.
            eventually(lambda: worker.active == 1)
            self.assertEqual(sorted(runs), ["coroutine", "function"])
            self.server.start()
            results = [job.wait(PATIENCE_S) for job in jobs]
        self.assertEqual(results, ["coroutine", "function", "steps"])
        self.assertEqual(sorted(runs), ["coroutine", "function", "steps"])
        self.assertEqual([info(app, job.id)["attempts"] for job in jobs], [1, 1, 1])

    def test_an_outage_that_leaves_the_handler_is_no_failure(self) -> None:
        app = Windlass(self.server.url, patience=0)
        gate, runs = Gate(), []

        @app.task(queue=self.queue, retry=1)
        def producer() -> str:
            runs.append("run")
            if len(runs) == 1:
                gate.pass_through()
                try:
                    producer.options(queue="elsewhere").push()
                except Unreachable as error:
                    raise RuntimeError("cannot push") from error
            return "done"

        with app.working(1):
            job = producer.push()
            gate.await_arrival()
            self.server.kill()
            gate.opened.set()
            eventually(lambda: len(runs) == 1)
            self.server.start()
            self.assertEqual(Windlass(self.server.url).job(job.id).wait(PATIENCE_S), "done")
        self.assertEqual(runs, ["run", "run"])
        self.assertEqual(info(Windlass(self.server.url), job.id)["attempts"], 1)

    def test_a_push_waits_for_the_server(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def work() -> None: ...

        self.server.kill()
        starting = threading.Timer(0.5, self.server.start)
        starting.start()
        try:
            job = work.push()
        finally:
            starting.join()
        self.assertEqual(info(app, job.id)["state"], "ready")
        impatient = Windlass("http://127.0.0.1:1", patience=0)
        with self.assertRaises(Unreachable):
            impatient.job(1).info()

    def test_a_busy_event_loop_keeps_its_leases(self) -> None:
        app = self.application()
        runs: list[int] = []

        @app.task(queue=self.queue, retry=2)
        async def blocking(*, job: Job) -> int:
            runs.append(job.attempt)
            # Bad style: nothing else runs in the event loop meanwhile.
            threading.Event().wait(1.5)
            return job.attempt

        with app.working(1, lease="500ms"), app.working(1, lease="500ms"):
            self.assertEqual(blocking.push().wait(PATIENCE_S), 1)
        self.assertEqual(runs, [1])


class Ends(ServerTest):
    def worker(self, folder: str, server: dev.Server) -> subprocess.Popen[bytes]:
        program = Path(__file__).with_name("scenario_worker.py")
        environment = {**os.environ, "WINDLASS_SERVER": server.url, "SCENARIO_DIR": folder}
        worker = subprocess.Popen([sys.executable, str(program)], env=environment, stderr=subprocess.DEVNULL)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        return worker

    def flow(self) -> Any:
        app = self.application()

        @app.task(name="flow", retry=5, backoff="50ms")
        def flow(ops: list[Any]) -> None: ...

        return flow

    def test_a_killed_worker_loses_no_step_and_repeats_none(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ops = [
                {"step": "charge", "effect": "charge", "returns": 1},
                {"kill": "here"},
                {"step": "ship", "effect": "ship", "kill": "before", "returns": 2},
                {"sleep_ms": 10},
                {"together": [{"step": "x", "effect": "x"}, {"step": "y", "effect": "y"}]},
            ]
            job = self.flow().push(ops)
            workers = [self.worker(folder, self.server)]
            while len(workers) < 3:
                self.assertEqual(workers[-1].wait(PATIENCE_S), -signal.SIGKILL)
                workers.append(self.worker(folder, self.server))
            self.assertEqual(job.wait(PATIENCE_S), {"charge": 1, "ship": 2, "x": None, "y": None})
            effects = sorted(Path(folder, "effects").read_text().split())
            self.assertEqual(effects, ["charge", "ship", "x", "y"])

    def test_sigterm_lets_running_jobs_end(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            worker = self.worker(folder, self.server)
            job = self.flow().push([{"effect": "begun"}, {"step": "slow", "sleep_ms": 1000, "returns": 3}])
            eventually(lambda: Path(folder, "effects").exists())
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(PATIENCE_S), 0)
            self.assertEqual(info(job._app, job.id)["state"], "completed")

    def test_what_exceeds_the_grace_is_released(self) -> None:
        app = self.application()
        gate, seen = Gate(), []

        @app.task(queue=self.queue, retry=1)
        async def endless() -> None:
            gate.reached.set()
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                seen.append("stopped")
                raise

        with app.working(1, grace="50ms") as worker:
            job = endless.push()
            gate.await_arrival()
            worker.stop()
        self.assertEqual(seen, ["stopped"])
        released = info(app, job.id)
        self.assertEqual((released["state"], released["attempts"]), ("ready", 0))

    def test_a_cancelled_worker_releases_its_jobs(self) -> None:
        app = self.application()
        gate = Gate()

        @app.task(queue=self.queue, retry=1)
        async def endless() -> None:
            gate.reached.set()
            await asyncio.sleep(PATIENCE_S)

        async def inside_another_program() -> Any:
            work = asyncio.ensure_future(app.work(2, signals=False))
            job = await endless.push()
            await asyncio.get_running_loop().run_in_executor(None, gate.await_arrival)
            work.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await work
            return (await job.info())["state"]

        self.assertEqual(asyncio.run(inside_another_program()), "ready")

    def test_a_thread_that_does_not_react(self) -> None:
        app = self.application()
        gate, second = Gate(), Gate()

        @app.task(queue=self.queue, retry=1, timeout="50ms")
        def stuck() -> None:
            gate.reached.set()
            gate.opened.wait(PATIENCE_S)

        @app.task(queue=self.queue)
        def other() -> str:
            second.reached.set()
            return "done"

        with mock.patch("windlass._run.UNWIND_S", 0.05), app.working(1):
            with self.assertRaises(JobFailed) as caught:
                stuck.push().wait(PATIENCE_S)
            self.assertEqual(caught.exception.kind, "Timeout")
            # Its slot is free when the thread has ended.
            later = other.push()
            self.assertFalse(second.reached.is_set())
            gate.opened.set()
            self.assertEqual(later.wait(PATIENCE_S), "done")

    def test_a_thread_that_does_not_react_does_not_keep_the_worker(self) -> None:
        app = self.application()
        gate = Gate()

        @app.task(queue=self.queue, retry=1)
        def stuck() -> None:
            gate.reached.set()
            gate.opened.wait(PATIENCE_S)

        with mock.patch("windlass._run.UNWIND_S", 0.05):
            with app.working(1, grace=0):
                job = stuck.push()
                gate.await_arrival()
            self.assertFalse(gate.opened.is_set())
        gate.opened.set()
        self.assertEqual(info(app, job.id)["state"], "ready")

    def test_a_coroutine_that_does_not_react(self) -> None:
        app = self.application()
        gate = Gate()

        async def deaf() -> None:
            gate.reached.set()
            until = time.monotonic() + PATIENCE_S
            while not gate.opened.is_set() and time.monotonic() < until:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.02)

        late = app.task(name="late", queue=self.queue, retry=1, timeout="50ms")(deaf)
        stuck = app.task(name="stuck", queue=self.queue, retry=1)(deaf)

        @app.task(queue=self.queue)
        async def other() -> str:
            return "done"

        with mock.patch("windlass._run.UNWIND_S", 0.05):
            with app.working(1, grace=0):
                with self.assertRaises(JobFailed) as caught:
                    late.push().wait(PATIENCE_S)
                self.assertEqual(caught.exception.kind, "Timeout")
                self.assertEqual(other.push().wait(PATIENCE_S), "done")
                gate.reached.clear()
                job = stuck.push()
                gate.await_arrival()
            # The worker has ended although the coroutines have not.
            self.assertFalse(gate.opened.is_set())
        self.assertEqual(info(app, job.id)["state"], "ready")

    def test_an_idle_worker_stops_at_once_and_takes_nothing_with_it(self) -> None:
        app = self.application()

        @app.task(queue=self.queue)
        def work() -> None: ...

        for _ in range(20):
            with app.working(1):
                pass
        job = work.push()
        self.assertEqual(info(app, job.id)["state"], "ready")


if __name__ == "__main__":
    unittest.main()
