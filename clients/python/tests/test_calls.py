"""Calls whose answers are lost, late or refused, with a scripted server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import unittest
from collections.abc import Callable
from typing import Any

from common import eventually

from windlass import BadRequest, Busy, Conflict, Job, Refused, Unreachable, Windlass

logging.getLogger("windlass").setLevel(logging.CRITICAL)

#: Answer to a call: status and body, bytes that end the connection, or `None`, which ends it at once.
Answer = tuple[int, Any] | bytes | None
Handler = Callable[[str, Any], Answer]


class Scripted:
    """Server of one test: answers come from a function of path and body."""

    def __init__(self, handler: Handler) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.connections = self.ended = 0
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while first := reader.readline():
                length = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                body = json.loads(reader.read(length) or b"null")
                path = first.split()[1].decode()
                self.calls.append((path, body))
                answer = self._handler(path, body)
                if answer is None:
                    return
                if isinstance(answer, bytes):
                    connection.sendall(answer)
                    return
                connection.sendall(_http(*answer))
            self.ended += 1


def _http(status: int, body: Any) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text)


def refusal(status: int, code: str) -> Answer:
    return status, {"error": {"code": code, "message": code}}


class Calls(unittest.TestCase):
    def serving(self, handler: Handler, **options: Any) -> tuple[Scripted, Windlass]:
        server = Scripted(handler)
        self.addCleanup(server.close)
        app = Windlass(server.url, **options)
        self.addCleanup(app.close)
        return server, app

    def in_both_worlds(self, handler: Callable[[], Handler], check: Callable[[Scripted, Any], None]) -> None:
        """Pushes a job, blocking and with asyncio."""
        for world in ("blocking", "asyncio"):
            server, app = self.serving(handler(), patience=5)

            @app.task
            def work(n: int) -> None: ...

            async def push() -> Any:
                return (await work.push(1)).id

            try:
                said: Any = asyncio.run(push()) if world == "asyncio" else work.push(1).id
            except Exception as error:
                said = error
            check(server, said)

    def test_a_push_is_repeated_with_its_key(self) -> None:
        broken: list[Answer] = [
            None,
            b"HTTP/1.1 201 X\r\nContent-Length: 99\r\n\r\n{",
            b"HTTP/1.1 201 X\r\nContent-Le",
            refusal(503, "store_unavailable"),
            (502, "a proxy"),
        ]
        for first in broken:

            def handler(first: Answer = first) -> Handler:
                answers = [first, (201, {"ids": [7], "existing": []})]
                return lambda path, body: answers.pop(0)

            def check(server: Scripted, said: Any) -> None:
                self.assertEqual(said, 7)
                keys = [body["jobs"][0]["idempotency_key"] for _, body in server.calls]
                self.assertEqual(len(keys), 2)
                self.assertEqual(keys[0], keys[1])

            self.in_both_worlds(handler, check)

    def test_refusals_are_not_repeated(self) -> None:
        table: list[tuple[Answer, type[Exception]]] = [
            (refusal(400, "bad_request"), BadRequest),
            (refusal(403, "forbidden"), Refused),
            (refusal(429, "quota_exceeded"), Busy),
            (refusal(500, "outcome_unknown"), Unreachable),
            ((201, {"ids": [None], "refused": [{"index": 0, "code": "duplicate", "message": "x", "id": 3}]}), Conflict),
        ]
        for answer, kind in table:

            def check(server: Scripted, said: Any, kind: type[Exception] = kind) -> None:
                self.assertIs(type(said), kind)
                self.assertEqual(len(server.calls), 1)

            self.in_both_worlds(lambda answer=answer: lambda path, body: answer, check)  # type: ignore[misc]

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_process_has_its_own_connection(self) -> None:
        server, app = self.serving(lambda path, body: (201, {"ids": [1], "existing": []}))

        @app.task
        def work(n: int) -> None: ...

        work.push(1)
        child = os.fork()
        if child == 0:
            try:
                work.push(2)
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        work.push(3)
        self.assertEqual(server.connections, 2)
        self.assertEqual([body["jobs"][0]["payload"]["n"] for _, body in server.calls], [1, 2, 3])
        self.assertEqual(len({body["jobs"][0]["idempotency_key"] for _, body in server.calls}), 3)

    def test_connections_end_with_their_event_loop(self) -> None:
        server, app = self.serving(lambda path, body: (201, {"ids": [1], "existing": []}))

        @app.task
        def work(n: int) -> None: ...

        async def push() -> None:
            await work.push(1)
            await work.push(2)

        for _ in range(3):
            asyncio.run(push())
        self.assertEqual(server.connections, 3)
        eventually(lambda: server.ended == 3)
        self.assertLessEqual(len(app.client._loops), 1)

    def test_chunked_answers(self) -> None:
        chunked = b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ids\r\n8\r\n\":[7,8]}\r\n0\r\n\r\n"
        self.in_both_worlds(lambda: lambda path, body: chunked, lambda server, said: self.assertEqual(said, 7))


class Reports(unittest.TestCase):
    """Ends of runs that the server does not take at once."""

    def worked(self, settle: Callable[[Any, int], Answer], result: Any = "done") -> list[Any]:
        """Runs two jobs; `settle` answers a report by its body and number. Returns all reports."""
        settled: list[Any] = []
        given: list[int] = []
        over = threading.Event()

        def handler(path: str, body: Any) -> Answer:
            if path.endswith("/claim"):
                if given:
                    over.wait(0.2)
                    return 200, {"jobs": []}
                given.append(1)
                job = {"name": "work", "queue": "default", "attempt": 1, "payload": {}}
                return 200, {"jobs": [{"id": n, "token": 10 + n, **job} for n in (1, 2)]}
            if path.endswith("/extend"):
                return 200, {"extended": [{"id": entry["id"], "ok": True} for entry in body["extend"]]}
            settled.append(body["settle"])
            return settle(body, len(settled))

        server = Scripted(handler)
        self.addCleanup(server.close)
        app = Windlass(server.url)

        @app.task
        async def work(*, job: Job) -> Any:
            return result

        with app.working(5) as worker:
            eventually(lambda: settled and not worker.held)
            over.set()
        return settled

    def taken(self, body: Any) -> Answer:
        return 200, {"settled": [{"id": entry["id"], "ok": True} for entry in body["settle"]], "jobs": []}

    def outcomes(self, reports: list[Any]) -> list[list[str]]:
        return [[entry["outcome"] for entry in report] for report in reports]

    def test_ends_at_the_same_time_share_a_report(self) -> None:
        reports = self.worked(lambda body, number: self.taken(body))
        self.assertEqual(self.outcomes(reports), [["finish", "finish"]])

    def test_reports_are_kept_until_the_server_takes_them(self) -> None:
        for answer in (None, refusal(401, "unauthorized"), refusal(429, "busy"), refusal(503, "store_unavailable")):

            def settle(body: Any, number: int, answer: Answer = answer) -> Answer:
                return answer if number < 3 else self.taken(body)

            reports = self.worked(settle)
            self.assertEqual(self.outcomes(reports), [["finish", "finish"]] * 3)

    def test_a_refused_report_does_not_hold_up_others(self) -> None:
        def settle(body: Any, number: int) -> Answer:
            is_bad = any(entry["id"] == 1 and entry["outcome"] == "finish" for entry in body["settle"])
            return refusal(400, "bad_request") if is_bad else self.taken(body)

        reports = self.worked(settle)
        ends = [(entry["id"], entry["outcome"], entry.get("retry")) for report in reports for entry in report]
        self.assertEqual(ends[-2:], [(2, "finish", None), (1, "fail", False)])

    def test_a_lost_lease_ends_the_report(self) -> None:
        lost = {"ok": False, "error": {"code": "lease_lost", "message": "lost"}}

        def settle(body: Any, number: int) -> Answer:
            return 200, {"settled": [{"id": entry["id"], **lost} for entry in body["settle"]], "jobs": []}

        reports = self.worked(settle)
        self.assertEqual(len(reports), 1)


if __name__ == "__main__":
    unittest.main()
