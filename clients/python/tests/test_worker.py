"""Workers: processes, schedules, the command line. Against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from common import PATIENCE_S, ServerTest, eventually, info

import process_tasks
from windlass import JobCancelled, JobFailed, Refused, Windlass, dev
from windlass._wire import Ask

logging.getLogger("windlass").setLevel(logging.CRITICAL)


class Processes(ServerTest):
    def test_tasks_in_processes(self) -> None:
        app = Windlass(self.server.url)
        for task in process_tasks.app.tasks.values():
            app.task(name=f"{self.queue}.{task.name}", queue=self.queue, retry=1, process=True)(task.fn)
        tasks = {name.rpartition(".")[2]: task for name, task in app.tasks.items()}

        with app.working(2, lease="2s"):
            pid, result = tasks["square"].push(7).wait(PATIENCE_S)
            self.assertEqual(result, 49)
            self.assertNotEqual(pid, os.getpid())
            with self.assertRaises(JobFailed) as caught:
                tasks["broken"].push().wait(PATIENCE_S)
            self.assertEqual((caught.exception.kind, caught.exception.message), ("ValueError", "broken here"))
            self.assertIn("process_tasks.py", "\n".join(caught.exception.backtrace))
            with self.assertRaises(JobFailed) as caught:
                tasks["dies"].push().wait(PATIENCE_S)
            self.assertEqual(caught.exception.kind, "ProcessDied")
            job = tasks["endless"].push()
            eventually(lambda: (info(app, job.id).get("progress") or {}).get("percent") == 5)
            job.cancel()
            with self.assertRaises(JobCancelled):
                job.wait(PATIENCE_S)
            self.assertEqual(tasks["square"].push(8).wait(PATIENCE_S)[1], 64)


    def test_every_slot_has_a_process(self) -> None:
        app = Windlass(self.server.url)
        meets = app.task(name="meets", queue=self.queue, retry=1, process=True)(process_tasks.meets.fn)
        with tempfile.TemporaryDirectory() as folder, mock.patch("os.cpu_count", lambda: 1), app.working(2):
            for job in meets.push_many([(folder, "a", "b"), (folder, "b", "a")]):
                job.wait(PATIENCE_S)


class Schedules(ServerTest):
    def test_a_schedule_is_registered_once_and_changed(self) -> None:
        def application(repeat: str, tz: str | None) -> Windlass:
            app = self.application()

            @app.cron(repeat, tz=tz, name="nightly", queue=self.queue)
            def report() -> None: ...

            return app

        def schedules() -> list[Any]:
            found = app.client.send(_schedules())
            return [job for job in found if job["name"] == "nightly"]

        for _ in range(2):
            app = application("0 9 * * MON-FRI", "Europe/Berlin")
            with app.working(1):
                eventually(schedules)
        self.assertEqual([job["repeat"] for job in schedules()], ["TZ=Europe/Berlin 0 9 * * MON-FRI"])
        id = schedules()[0]["id"]
        app = application("30 8 * * *", None)
        with app.working(1):
            eventually(lambda: schedules()[0]["repeat"] == "30 8 * * *")
        self.assertEqual([job["id"] for job in schedules()], [id])

    def test_turns_run(self) -> None:
        app = self.application()
        turns = threading.Semaphore(0)

        @app.cron("every 100ms", queue=self.queue)
        async def tick() -> None:
            turns.release()

        with app.working(1):
            for _ in range(3):
                self.assertTrue(turns.acquire(timeout=PATIENCE_S))


def _schedules() -> Any:
    return Ask("GET", "/api/v1/schedules", lambda said: said["jobs"])


class CommandLine(ServerTest):
    def command(self, *arguments: str, effects: str = "/nonexistent") -> subprocess.Popen[bytes]:
        folder = Path(__file__).parent
        environment = {**os.environ, "WINDLASS_SERVER": self.server.url, "SCENARIO_DIR": effects}
        source = [sys.executable, "-m", "windlass._cli", *arguments]
        return subprocess.Popen(source, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_a_worker_works_until_sigterm(self) -> None:
        app = self.application()

        @app.task(name="flow")
        def flow(ops: list[Any]) -> None: ...

        worker = self.command("scenario_worker:app", "--concurrency", "2", "--lease", "5s")
        self.addCleanup(worker.kill)
        self.assertEqual(flow.push([{"return": 5}]).wait(PATIENCE_S), 5)
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(worker.returncode, 0, said)

    def test_a_second_signal_releases_running_jobs(self) -> None:
        app = self.application()

        @app.task(name="flow")
        def flow(ops: list[Any]) -> None: ...

        with tempfile.TemporaryDirectory() as folder:
            worker = self.command("scenario_worker:app", "--grace", "10m", effects=folder)
            self.addCleanup(worker.kill)
            job = flow.push([{"effect": "begun"}, {"until_cancelled_ms": 600_000}])
            eventually(lambda: Path(folder, "effects").exists())
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGINT)
            said = worker.communicate(timeout=PATIENCE_S)[0]
            self.assertEqual(worker.returncode, 0, said)
            self.assertEqual(Path(folder, "effects").read_text().split(), ["begun", "cancelled"])
        self.assertEqual(info(app, job.id)["state"], "ready")
        job.cancel()

    def test_bad_targets(self) -> None:
        for target in ("no_such_module:app", "scenario_worker:nothing"):
            worker = self.command(target)
            said = worker.communicate(timeout=PATIENCE_S)[0].decode()
            self.assertEqual(worker.returncode, 1, said)
            self.assertNotIn("Traceback", said)

    def test_a_refused_token_ends_the_worker(self) -> None:
        with dev.server(["--store", "memory:"]) as guarded:
            # The first token takes effect at once.
            create = Ask("POST", "/api/v1/tokens", lambda said: said, b'{"role":"admin"}')
            Windlass(guarded.url).client.send(create)
            app = Windlass(guarded.url, token="wl_not_a_token")

            @app.task
            def idle() -> None: ...

            with self.assertRaises(Refused), app.working() as worker:
                eventually(lambda: worker.is_stopping)


if __name__ == "__main__":
    unittest.main()
