"""The library against a real server: `SIDEJOB=http://127.0.0.1:7373/sidejob python -m unittest discover tests`.

The server is to have a lease of a few seconds (`sidejob.lease_s`), since some of these wait for one to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import workers
from workers import URL, happened

from windlass.sidejob import (
    AsyncClient,
    Client,
    Empty,
    Job,
    NotFound,
    SideJobError,
    Stale,
    Unreachable,
    Worker,
    serve,
    serve_async,
    worker,
)
from windlass.sidejob._errors import is_outage

# Nothing takes nearly as long; a busy machine may.
PATIENCE_S = 60.0


def eventually(look: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError("waited in vain")
        time.sleep(0.05)


@contextmanager
def serving(*queues: str, concurrency: int = 2) -> Iterator[None]:
    stop = threading.Event()
    options: dict[str, Any] = {"url": URL, "concurrency": concurrency, "stop": stop}
    thread = threading.Thread(target=serve, args=queues, kwargs=options)
    thread.start()
    try:
        with Client(URL) as client:
            eventually(lambda: all(client.registered(queue) for queue in queues))
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def process(*args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, workers.__file__, *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


class WithServer(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(URL)
        self.addCleanup(self.client.close)

    def ended(self, job: Job, status: str = "completed") -> None:
        self.assertEqual(job.wait("completed", "suspended", "failed", "terminated", within=PATIENCE_S), status)


class Examples(WithServer):
    def test_the_sum_of_two_numbers(self) -> None:
        with serving("sum"):
            job = self.client.queue("sum", "Add")
            job.input("a").write(1)
            self.assertEqual(eventually(lambda: job.output("sum").entries()), [11], "b has a default")
            job.input("b").write(2, 3)
            job.input("a").write(40)
            job.input("a").write(50)
            eventually(lambda: job.output("sum").size() == 2)
            self.assertEqual(job.output("sum").entries(), [42, 53])
            self.ended(job)

    def test_the_sum_of_two_numbers_with_asyncio(self) -> None:
        async def main() -> None:
            stop = asyncio.Event()
            working = asyncio.create_task(serve_async("sum-async", url=URL, stop=stop))
            client = AsyncClient(URL)
            while not await client.registered("sum-async"):
                await asyncio.sleep(0.05)
            jobs = await asyncio.gather(*(client.queue("sum-async", "AddAsync") for _ in range(10)))
            for n, job in enumerate(jobs):
                await job.input("a").write(n)
                await job.input("b").write(100)
            for n, job in enumerate(jobs):
                while not await job.output("sum").size():
                    await asyncio.sleep(0.05)
                self.assertEqual(await job.output("sum").read(), n + 100)
                self.assertEqual(await job.wait("completed", within=PATIENCE_S), "completed")
            stop.set()
            await working
            await client.close()

        asyncio.run(main())

    def test_fibonacci_by_children(self) -> None:
        with serving("fib", concurrency=4):
            job = self.client.queue("fib", "Fib", 6)
            eventually(lambda: job.output("num").size())
            self.assertEqual(job.output("num").read(), 8)
            self.ended(job)
            left = job.child("left")
            assert left is not None
            self.assertEqual((left.parent(), left.info().created_by), (job, f"job:{job.id}"))
            self.assertEqual(set(job.children()), {"left", "right"})

    def test_fibonacci_by_children_with_asyncio(self) -> None:
        async def main() -> None:
            stop = asyncio.Event()
            working = asyncio.create_task(serve_async("fib-async", url=URL, stop=stop))
            client = AsyncClient(URL)
            while not await client.registered("fib-async"):
                await asyncio.sleep(0.05)
            job = await client.queue("fib-async", "FibAsync", 6)
            while not await job.output("num").size():
                await asyncio.sleep(0.05)
            self.assertEqual(await job.output("num").read(), 8)
            self.assertEqual(await job.wait("completed", within=PATIENCE_S), "completed")
            stop.set()
            await working
            await client.close()

        asyncio.run(main())

    def test_a_parent_that_suspends_is_woken(self) -> None:
        with serving("family"):
            job = self.client.queue("family", "Parent")
            self.ended(job, "suspended")
            job.input("ready").write(1)
            eventually(lambda: job.output("out").size())
            self.assertEqual(job.output("out").entries(), [11])
            self.ended(job, "suspended")


class Runs(WithServer):
    def test_an_iteration_happens_as_a_whole_or_not_at_all(self) -> None:
        with serving("careful"):
            job = self.client.queue("careful", "Careful")
            job.input("n").write(2, 4, 5, 6)
            self.ended(job, "failed")
            self.assertEqual(job.output("out").entries(), [2, 4])
            self.assertEqual(job.output("half").entries(), [1, 2], "what the failed one wrote is not there")
            self.assertEqual(job.input("n").size(), 2, "what it read is there again")
            entry = [entry for entry in self.client.logs() if entry.get("error") == "5 is odd"][-1]
            self.assertEqual(entry["job"], job.id)
            self.assertIn("ValueError: 5 is odd", entry["backtrace"])
            job.set(is_tolerant=True)
            self.assertIsNone(job.run(), "one that failed is only run by force")
            self.assertEqual(job.run(force=True), job)
            self.ended(job)
            self.assertEqual(job.output("out").entries(), [5, 6])

    def test_reads_and_writes_of_an_iteration_are_one_entry_of_the_log(self) -> None:
        with serving("sum"):
            job = self.client.queue("sum", "Add")
            job.input("a").write(3)
            eventually(lambda: job.output("sum").size())
            found = [entry for entry in self.client.logs() if entry.get("job") == job.id and entry.get("read")]
            self.assertEqual(
                [(sorted(part["inport"] for part in entry["read"]), entry["write"]) for entry in found],
                [(["a", "b"], [{"job": job.id, "outport": "sum", "data": [13]}])],
            )

    def test_a_run_whose_end_is_refused_has_failed(self) -> None:
        with serving("verbose"):
            job = self.client.queue("verbose", "Verbose", 10_001)
            job.input("n").write(1)
            self.ended(job, "failed")
            self.assertEqual(job.input("n").size(), 1, "what it read is there again")
            entry = [entry for entry in self.client.logs() if entry.get("job") == job.id][-1]
            self.assertIn("outport out would contain 10001 values; the maximum is 10000", entry["error"])

    def test_the_last_run_is_shutdown_and_only_where_there_is_one(self) -> None:
        with serving("ends"):
            job, plain = self.client.queue("ends", "Ends"), self.client.queue("ends", "JustEnds", 1, {"k": [None]})
            self.ended(job, "suspended")
            self.ended(plain)
            self.assertFalse(job.delete(), "only what is terminated")
            job.terminate()
            plain.terminate()
            self.ended(job, "terminated")
            self.ended(plain, "terminated")
            self.assertEqual([what for what in happened if what[1] == job.id][-1], ("shutdown", job.id))
            self.assertEqual([what for what in happened if what[1] == job.id].count(("shutdown", job.id)), 1)
            self.assertEqual(
                [what for what in happened if what[1] == plain.id], [("perform", plain.id, [1, {"k": [None]}])]
            )
            self.assertTrue(job.delete())
            self.assertIsNone(self.client.find(job.id))

    def test_signs_of_life_keep_a_run_that_is_longer_than_its_lease(self) -> None:
        with serving("slow"):
            lease_s = 6.0
            job = self.client.queue("slow", "Slow", 1.5 * lease_s)
            self.ended(job)
            self.assertEqual(job.output("runs").entries(), [os.getpid()], "run once")
            self.assertEqual(job.get("is_lost"), False)

    def test_both_kinds_of_classes_work_on_one_queue_either_way(self) -> None:
        def outs() -> list[Any]:
            jobs = [self.client.queue("mixed", cls, 7) for cls in ("InThread", "InLoop")]
            ports = [job.output("out") for job in jobs]
            eventually(lambda: all(port.size() for port in ports))
            return [port.read() for port in ports]

        with serving("mixed"):
            self.assertEqual(outs(), [["thread", 7], ["loop", 7]])
        with process("mixed", "--async") as started:
            self.assertEqual(outs(), [["thread", 7], ["loop", 7]])
            started.send_signal(signal.SIGTERM)
            self.assertEqual(started.wait(PATIENCE_S), 0)


class Processes(WithServer):
    def begun(self, queue: str, cls: str, seconds: float) -> Job:
        eventually(lambda: self.client.registered(queue))
        job = self.client.queue(queue, cls, seconds)
        eventually(lambda: job.output("runs").size())
        return job

    def test_what_a_killed_worker_ran_is_run_by_another(self) -> None:
        with process("killed") as first:
            job = self.begun("killed", "Slow", 3600)
            first.kill()
        with process("killed") as second:
            eventually(lambda: job.output("runs").size() == 2)
            self.assertEqual(job.output("runs").entries(), [first.pid, second.pid])
            self.assertEqual(job.status, "running")

    def test_a_worker_told_to_stop_ends_what_it_has(self) -> None:
        for queue, cls, args in (("slow", "Slow", []), ("slow-async", "SlowAsync", ["--async"])):
            with self.subTest(queue), process(queue, *args) as started:
                # Long enough to still run when the signal is there.
                job = self.begun(queue, cls, 5)
                started.send_signal(signal.SIGTERM)
                self.assertEqual(started.wait(PATIENCE_S), 0)
                self.assertEqual(job.status, "completed")
                assert started.stderr is not None
                self.assertIn("shutting down: waiting for 1 runs", started.stderr.read())

    def test_what_is_not_done_in_the_grace_time_is_given_back(self) -> None:
        for queue, cls, args in (("impatient", "Slow", []), ("impatient-async", "SlowAsync", ["--async"])):
            with self.subTest(queue), process(queue, "--impatient", *args) as started:
                job = self.begun(queue, cls, 3600)
                started.send_signal(signal.SIGTERM)
                self.assertEqual(started.wait(PATIENCE_S), 0)
                self.assertEqual(job.status, "queued")


class Outages(unittest.TestCase):
    def test_what_is_raised_because_the_server_was_away_is_an_outage(self) -> None:
        def raised(error: BaseException, url: str | None = "here") -> BaseException:
            if isinstance(error, Unreachable):
                error.url = url
            return error

        def on_top(error: BaseException) -> BaseException:
            try:
                try:
                    raise error
                except BaseException as first:
                    raise RuntimeError("on top") from first
            except RuntimeError as second:
                return second

        away = [raised(Unreachable("gone", status)) for status in (429, 502, 503, 504, 507)]
        for error, expected in [
            *((error, True) for error in away),
            (on_top(raised(Unreachable("gone"))), True),
            (on_top(on_top(raised(Unreachable("gone")))), True),
            (raised(Unreachable("a fault of the server", 500)), False),
            (raised(Unreachable("another one's", 503), "elsewhere"), False),
            (raised(SideJobError(422, "no")), False),
            (on_top(ValueError("odd")), False),
            (OSError("a file is missing"), False),
        ]:
            with self.subTest(repr(error)):
                self.assertEqual(is_outage(error, "here"), expected)

    def test_half_an_answer_is_an_outage(self) -> None:
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n" + b" " * 39 + b"1"
        page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html"
        answers = [*(whole[:length] for length in (0, 5, 11, 14, 19, 35, 50)), page]
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/sidejob"

            def answer() -> None:
                for text in answers:
                    for _ in range(2):
                        peer, _ = listener.accept()
                        with peer:
                            peer.recv(65536)
                            peer.sendall(text)

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            for text in answers:
                with self.subTest(text):
                    with Client(url) as client, self.assertRaises(Unreachable) as raised:
                        client.job(1).state()
                    self.assertTrue(is_outage(raised.exception, url))
                    with self.assertRaises(Unreachable) as raised:
                        asyncio.run(AsyncClient(url).job(1).state())
                    self.assertTrue(is_outage(raised.exception, url))
            thread.join(PATIENCE_S)


class Calls(WithServer):
    def setUp(self) -> None:
        super().setUp()
        # Nobody works on this one.
        self.client.register("idle", {"W": {}, "Dyn": {"inports": {"*": {"default": 5}}, "outports": {"o": {}}}})

    def test_a_job_tells_what_it_was_made_with(self) -> None:
        job = self.client.queue("idle", "W", 1, {"k": [True, None]}, by="user:42", inports=["x"], wait=1000)
        info = job.info()
        self.assertEqual((info.queue, info.cls, info.args), ("idle", "W", [1, {"k": [True, None]}]))
        self.assertEqual((info.status, info.created_by, info.ran_at, info.parent), ("queued", "user:42", None, None))
        self.assertEqual(list(info.inports), ["x"])
        self.assertEqual(self.client.find(job.id), job)

    def test_state_is_kept_as_it_was_written(self) -> None:
        job = self.client.queue("idle", "W")
        big = 12345678901234567890123456789
        job.set(a=1, b=[1, [2]], c=None, big=big)
        job.unset("a", "never there")
        state = job.state()
        self.assertEqual((state["b"], state["c"], state["big"]), ([1, [2]], None, big))
        self.assertEqual((job.get("a"), job.get("a", "else"), "a" in state), (None, "else", False))

    def test_ports_hold_values_and_defaults(self) -> None:
        job = self.client.queue("idle", "Dyn", outports={"p": {"default": None}})
        port = job.input("any")
        port.write("abc", None, {"b": 1, "a": "ü"})
        self.assertEqual(port.read(), "abc")
        self.assertEqual(port.entries(), [None, {"b": 1, "a": "ü"}])
        self.assertEqual((port.read(), port.read(), port.size()), (5, 5, 0), "a default is not used up")
        port.clear_default()
        self.assertEqual(port.read(otherwise="nothing"), "nothing")
        with self.assertRaises(Empty):
            port.read()
        self.assertIsNone(job.output("p").read())
        self.assertTrue(job.output("p").info().has_default)
        self.assertFalse(job.output("o").info().has_default)
        job.output("o").write(1, [2, 3])
        other = self.client.queue("idle", "Dyn")
        self.assertEqual(job.output("o").connect(other.input("x"), other.input("y")), [1, [2, 3]])
        self.assertEqual((other.input("x").entries(), other.input("y").entries()), ([1, [2, 3]], [1, [2, 3]]))

    def test_families_are_made_and_parted(self) -> None:
        job, orphan = self.client.queue("idle", "W"), self.client.queue("idle", "W")
        child = job.queue("idle", "W", name="first")
        job.adopt(orphan, "second")
        self.assertEqual(job.children(), {"first": child, "second": orphan})
        job.disown("first")
        job.disown(orphan)
        self.assertEqual((job.children(), child.parent(), job.child("first")), ({}, None, None))

    def test_a_lock_has_a_key(self) -> None:
        job = self.client.queue("idle", "W")
        key = job.lock(60)
        assert key is not None
        self.assertIsNone(job.lock(60))
        self.assertTrue(job.refresh_lock(key, 60))
        self.assertFalse(job.unlock("another"))
        self.assertTrue(job.unlock(key))

    def test_entries_of_the_log_carry_their_context(self) -> None:
        with self.client.log_context(user="x"):
            with self.client.log_context(request=7):
                self.client.log(what="inner")
            self.client.log(what="outer", user="y")
        self.client.log(what="none")
        ours = [entry for entry in self.client.logs() if entry.get("what") in ("inner", "outer", "none")][-3:]
        for entry in ours:
            entry.pop("timestamp")
        expected = [{"what": "inner", "user": "x", "request": 7}, {"what": "outer", "user": "y"}, {"what": "none"}]
        self.assertEqual(ours, expected)

    def test_what_goes_wrong_is_said_in_the_servers_words(self) -> None:
        with self.assertRaisesRegex(SideJobError, "^No worker registered for Nobody in queue idle$") as raised:
            self.client.queue("idle", "Nobody")
        self.assertEqual(raised.exception.status, 422)
        with self.assertRaisesRegex(NotFound, "^Job 999999 does not exist!$"):
            self.client.job(999999).set(a=1)
        job = self.client.queue("idle", "W")
        with self.assertRaisesRegex(SideJobError, f"^Job {job.id} does not have inport x!$"):
            job.input("x").write(1)
        with self.assertRaisesRegex(SideJobError, "^Invalid port name: a b$"):
            job.input("a b").write(1)
        with self.assertRaises(ValueError):
            job.set(a=float("nan"))
        with self.assertRaises(TimeoutError):
            job.wait("completed", within=0.1)

    def test_a_server_that_is_not_there_is_said_so(self) -> None:
        with self.assertRaisesRegex(Unreachable, "^cannot call http://127.0.0.1:9/sidejob: "):
            Client("http://127.0.0.1:9/sidejob").job(1).info()
        with self.assertRaises(Unreachable):
            asyncio.run(AsyncClient("http://127.0.0.1:9/sidejob").job(1).info())
        with self.assertRaises(ValueError):
            Client("127.0.0.1:7373")

    def test_a_run_that_is_over_cannot_be_ended_again(self) -> None:
        with serving("sum"):
            job = self.client.queue("sum", "Add")
            self.ended(job)
        from windlass.sidejob import _calls

        with self.assertRaises(Stale):
            self.client._send(_calls.finish(job.id, "1", "completed"))


class Registering(unittest.TestCase):
    def test_a_queue_without_classes_is_a_mistake(self) -> None:
        with self.assertRaisesRegex(LookupError, '@worker\\("empty"\\)'):
            serve("empty", url=URL)
        with self.assertRaises(ValueError):
            serve(url=URL)

    def test_two_classes_of_one_name_are_a_mistake(self) -> None:
        @worker("twice", name="Same")
        class One(Worker):
            pass

        with self.assertRaisesRegex(ValueError, "Same in queue twice is already registered by .*One"):

            @worker("twice", name="Same")
            class Two(Worker):
                pass

    def test_what_else_is_known_of_a_class_is_kept(self) -> None:
        with serving("sum"), Client(URL) as client:
            told = client.registered("sum")["Add"]
        expected = {"inports": {"a": {}, "b": {"default": 10}}, "outports": {"sum": {}}, "shutdown": False}
        self.assertEqual(told, {**expected, "note": "adds"})


if __name__ == "__main__":
    unittest.main()
