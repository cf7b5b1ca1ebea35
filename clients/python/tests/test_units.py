"""Rules of the library that need no server."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import pickle
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from windlass import (
    BadPayload,
    BadRequest,
    Busy,
    Cancelled,
    Conflict,
    Fail,
    LeaseLost,
    NotFound,
    Refused,
    Retry,
    Snooze,
    StepsChanged,
    Suspended,
    Unreachable,
    Windlass,
    WindlassError,
)
from windlass import _keys, _outcome, _wire
from windlass._client import Backoff, batches
from windlass._codec import dumps, plain
from windlass._context import step_pauses
from windlass._cron import rule
from windlass._errors import is_outage, refusal
from windlass._outcome import Reason, fields_of
from windlass._signature import Parameters
from windlass._steps import StepLog
from windlass._task import Options
from windlass._time import moment, seconds

URL = "http://127.0.0.1:1"


class Times(unittest.TestCase):
    def test_durations(self) -> None:
        table: list[tuple[Any, float]] = [
            (5, 5.0),
            (0.25, 0.25),
            ("90s", 90.0),
            ("1h30m", 5400.0),
            ("1h 30m", 5400.0),
            ("500ms", 0.5),
            ("7d", 604800.0),
            ("2w", 1209600.0),
            ("1.5h", 5400.0),
            (timedelta(minutes=2), 120.0),
        ]
        for said, meant in table:
            self.assertEqual(seconds(said), meant, said)
        self.assertEqual(seconds(minutes=5, seconds=1), 301.0)
        for wrong in ["", "5", "5 apples", "m", "-1s", "1s2"]:
            with self.assertRaises(ValueError, msg=wrong):
                seconds(wrong)
        with self.assertRaises(ValueError):
            seconds(-1)

    def test_moments(self) -> None:
        at = datetime(2027, 1, 1, 9, tzinfo=timezone.utc)
        self.assertEqual(moment(at), 1798794000000)
        self.assertEqual(moment(1798794000.5), 1798794000500)
        self.assertEqual(moment("2027-01-01T09:00:00Z"), "2027-01-01T09:00:00Z")

    def test_pauses_double_and_vary(self) -> None:
        backoff = Backoff(0.1, 5.0)
        for expected in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]:
            pause = backoff.pause()
            self.assertTrue(expected / 2 <= pause <= expected, (pause, expected))
        backoff.reset()
        self.assertLessEqual(backoff.pause(), 0.1)
        self.assertEqual(list(step_pauses(3, "1s")), [1.0, 2.0, 4.0])
        self.assertEqual(list(step_pauses(0, None)), [])


class Ends(unittest.TestCase):
    """Reports of exceptions."""

    def unreachable(self, url: str) -> Unreachable:
        error = Unreachable("away")
        error.url = url
        return error

    def caused(self) -> Exception:
        try:
            try:
                raise self.unreachable(URL)
            except Unreachable as cause:
                raise ValueError("wrapped") from cause
        except ValueError as error:
            return error

    def test_reports_of_exceptions(self) -> None:
        cancel = asyncio.CancelledError()
        release = {"outcome": "release"}
        table: list[tuple[BaseException, Reason | None, dict[str, Any] | None]] = [
            (Suspended("sleep", delay_ms=5), None, {"outcome": "suspend", "step": "sleep", "delay_ms": 5}),
            (Suspended("all", children=True), None, {"outcome": "suspend", "step": "all", "children": True}),
            (cancel, Reason.CANCEL, release),
            (cancel, Reason.SHUTDOWN, release),
            (Cancelled(), Reason.SHUTDOWN, release),
            (cancel, Reason.LOST, None),
            (ValueError("late"), Reason.LOST, None),
            (LeaseLost("gone"), None, None),
            (Snooze("5m"), None, {"outcome": "release", "delay_ms": 300_000}),
            (self.unreachable(URL), None, {"outcome": "release", "delay_ms": 1000}),
            (self.caused(), None, {"outcome": "release", "delay_ms": 1000}),
            (Retry("busy"), None, {"outcome": "fail", "class": "Retry", "message": "busy"}),
            (Retry("x", after="1s"), None, {"outcome": "fail", "class": "Retry", "message": "x", "delay_ms": 1000}),
            (Fail("no"), None, {"outcome": "fail", "class": "Fail", "message": "no", "retry": False}),
            (StepsChanged("x"), None, {"outcome": "fail", "class": "StepsChanged", "message": "x", "retry": False}),
        ]
        for error, reason, expected in table:
            self.assertEqual(fields_of(error, reason=reason, url=URL), expected, (error, reason))

    def test_ordinary_exceptions_fail_the_attempt(self) -> None:
        def broken() -> None:
            raise KeyError("x")

        try:
            broken()
        except KeyError as error:
            fields = fields_of(error, url=URL)
            final = fields_of(error, url=URL, give_up_on=(LookupError,))
        assert fields is not None and final is not None
        self.assertEqual((fields["outcome"], fields["class"], fields["message"]), ("fail", "KeyError", "'x'"))
        self.assertNotIn("retry", fields)
        self.assertIn("broken", "\n".join(fields["backtrace"]))
        self.assertIs(final["retry"], False)
        # The cancellation of something else is no cancellation of the job.
        fields = fields_of(asyncio.CancelledError(), url=URL)
        self.assertEqual((fields or {})["outcome"], "fail")

    def test_timeout(self) -> None:
        fields = fields_of(asyncio.CancelledError(), reason=Reason.TIMEOUT, timeout_s=2.0)
        self.assertEqual((fields or {})["class"], "Timeout")
        self.assertIn("2 s", (fields or {})["message"])

    def test_an_outage_of_another_server_is_an_error(self) -> None:
        self.assertFalse(is_outage(self.unreachable("http://other"), URL))
        fields = fields_of(self.unreachable("http://other"), url=URL)
        self.assertEqual((fields or {})["outcome"], "fail")

    def test_an_outcome_holds_although_an_outage_caused_it(self) -> None:
        table: list[tuple[Exception, dict[str, Any]]] = [
            (Retry("r", after="1s"), {"outcome": "fail", "delay_ms": 1000}),
            (Fail("f"), {"outcome": "fail", "retry": False}),
            (Snooze("2s"), {"outcome": "release", "delay_ms": 2000}),
            (RuntimeError("e"), {"outcome": "release", "delay_ms": _outcome.AFTER_OUTAGE_MS}),
        ]
        for error, expected in table:
            error.__cause__ = self.unreachable(URL)
            fields = fields_of(error, url=URL) or {}
            self.assertEqual({**fields, **expected}, fields, error)

    @unittest.skipUnless(hasattr(builtins, "ExceptionGroup"), "needs Python 3.11")
    def test_the_first_of_a_group_decides(self) -> None:
        group: Any = getattr(builtins, "BaseExceptionGroup", None)
        table: list[tuple[list[BaseException], str, str | None]] = [
            ([Suspended("sleep"), ValueError()], "suspend", None),
            ([group("g", [Suspended("sleep")])], "suspend", None),
            ([ValueError(), Suspended("sleep")], "fail", "BaseExceptionGroup"),
            ([ValueError()], "fail", "ExceptionGroup"),
            ([Fail("f")], "fail", "Fail"),
            ([Snooze("1s")], "release", None),
            ([self.unreachable(URL)], "release", None),
        ]
        for inner, outcome, kind in table:
            fields = fields_of(group("g", inner), url=URL) or {}
            self.assertEqual((fields["outcome"], fields.get("class")), (outcome, kind), inner)

    def test_entries_are_json(self) -> None:
        self.assertEqual(json.loads(_outcome.finished(1, 2, None)), {"id": 1, "token": 2, "outcome": "finish"})
        said = json.loads(_outcome.finished(1, 2, {"ü": [1]}))
        self.assertEqual(said, {"id": 1, "token": 2, "outcome": "finish", "result": {"ü": [1]}})
        self.assertIn(b"?", _outcome.entry(1, 2, {"message": "\ud800"}))
        with self.assertRaises(TypeError):
            _outcome.finished(1, 2, object())

    def test_outcomes_travel_between_processes(self) -> None:
        snooze = pickle.loads(pickle.dumps(Snooze(minutes=5)))
        self.assertEqual(snooze.duration, 300.0)
        self.assertEqual(pickle.loads(pickle.dumps(Retry("x", after=3))).after, 3.0)


class Refusals(unittest.TestCase):
    def test_errors_by_status_and_code(self) -> None:
        table: list[tuple[int, str, type[WindlassError], bool]] = [
            (400, "malformed", BadRequest, False),
            (401, "unauthorized", Refused, False),
            (403, "forbidden", Refused, False),
            (404, "not_found", NotFound, False),
            (409, "lease_lost", LeaseLost, False),
            (409, "duplicate", Conflict, False),
            (413, "payload_too_large", BadRequest, False),
            (429, "quota_exceeded", Busy, True),
            (500, "outcome_unknown", Unreachable, True),
            (503, "store_unavailable", Unreachable, True),
        ]
        for status, code, kind, retryable in table:
            error = refusal(status, code, "said")
            self.assertIs(type(error), kind, code)
            self.assertEqual((error.retryable, error.code, error.status), (retryable, code, status))

    def test_responses_of_a_proxy(self) -> None:
        ask = _wire.info(1)
        with self.assertRaises(Unreachable):
            ask.answer(502, b"<html>")
        with self.assertRaises(Unreachable):
            ask.answer(200, b"<html>")
        with self.assertRaises(BadRequest):
            ask.answer(400, b"<html>")
        with self.assertRaises(Conflict) as caught:
            ask.answer(409, b'{"error":{"code":"duplicate","message":"job 9 has this unique key","id":9}}')
        self.assertEqual(caught.exception.id, 9)


@dataclass
class Order:
    card: str
    total: int = 0


class Payloads(unittest.TestCase):
    def both_ways(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        parameters = Parameters(fn)
        payload = plain(parameters.payload(args, kwargs))
        given, named = parameters.call(payload)
        return fn(*given, **named)

    def test_arguments_travel_by_name(self) -> None:
        def f(a: Any, b: int = 2, *, c: int = 3, job: Any = None) -> Any:
            return a, b, c

        self.assertEqual(Parameters(f).payload((1,), {"c": 5}), {"a": 1, "c": 5})
        self.assertEqual(self.both_ways(f, 1, c=5), (1, 2, 5))
        self.assertEqual(Parameters(f).injected, ["job"])
        with self.assertRaises(TypeError):
            Parameters(f).payload((), {})
        with self.assertRaises(TypeError):
            Parameters(f).payload((1,), {"nope": 1})

    def test_variable_arguments(self) -> None:
        def f(a: int, *rest: int, k: int = 0, **more: int) -> Any:
            return a, rest, k, more

        self.assertEqual(self.both_ways(f, 1, 2, 3, k=4, x=5), (1, (2, 3), 4, {"x": 5}))
        self.assertEqual(self.both_ways(f, 1), (1, (), 0, {}))

        def positional(a: int, /, b: int) -> Any:
            return a, b

        self.assertEqual(self.both_ways(positional, 1, 2), (1, 2))

    def test_payloads_of_other_clients(self) -> None:
        def f(a: int, b: int = 2) -> Any:
            return a, b

        parameters = Parameters(f)
        self.assertEqual(parameters.call([1, 3]), ([], {"a": 1, "b": 3}))
        self.assertEqual(parameters.call("x"), ([], {"a": "x"}))
        self.assertEqual(Parameters(lambda: None).call(None), ([], {}))
        for wrong in [{}, {"a": 1, "z": 2}, [1, 2, 3], None]:
            with self.assertRaises(BadPayload, msg=str(wrong)):
                if wrong is None:
                    Parameters(positional_pair).call(wrong)
                else:
                    parameters.call(wrong)

    def test_dataclasses_are_rebuilt(self) -> None:
        seen: list[Order] = []

        def f(order: Order) -> None:
            seen.append(order)

        self.both_ways(f, Order("visa", 5))
        self.assertEqual(seen, [Order("visa", 5)])

    def test_values_without_a_json_form(self) -> None:
        values = {"at": datetime(2027, 1, 1), "who": {2, 1}}
        self.assertEqual(plain(values), {"at": "2027-01-01T00:00:00", "who": [1, 2]})
        with self.assertRaises(TypeError):
            dumps(object())
        with self.assertRaises(ValueError):
            dumps(float("nan"))


def positional_pair(a: int, b: int) -> None: ...


class Pushes(unittest.TestCase):
    def test_options_as_the_api_takes_them(self) -> None:
        table: list[tuple[Options, dict[str, Any]]] = [
            (Options(), {}),
            (Options(queue="mail", priority=-5), {"queue": "mail", "priority": -5}),
            (Options(delay="5m"), {"delay_ms": 300_000}),
            (Options(at="2027-01-01T00:00:00Z"), {"run_at": "2027-01-01T00:00:00Z"}),
            (Options(retry=5), {"retry": {"max_attempts": 5}}),
            (Options(retry=5, backoff="50ms"), {"retry": {"max_attempts": 5, "backoff": {"fixed_ms": 50}}}),
            (Options(backoff="none"), {"retry": {"backoff": "none"}}),
            (Options(backoff={"base_ms": 10}), {"retry": {"backoff": {"base_ms": 10}}}),
            (Options(keep={"completed_ms": 0}), {"keep": {"completed_ms": 0}}),
            (Options(lease=2), {"lease_ms": 2000}),
        ]
        for options, fields in table:
            self.assertEqual(options.fields(), fields)

    def test_every_push_has_its_own_idempotency_key(self) -> None:
        app = Windlass(URL)

        @app.task(unique=lambda to, **_: to)
        def send(to: str, n: int = 0) -> None: ...

        first, second = (json.loads(send.call(to="a").encoded()) for _ in range(2))
        self.assertNotEqual(first["idempotency_key"], second["idempotency_key"])
        self.assertEqual(first["unique"], "send:a")
        given = json.loads(send.options(idempotency_key="k", tags=["x"]).call("b", n=1).encoded())
        self.assertEqual((given["idempotency_key"], given["tags"], given["payload"]), ("k", ["x"], {"to": "b", "n": 1}))

    def test_a_delay_needs_a_duration(self) -> None:
        app = Windlass(URL)

        @app.task
        def send() -> None: ...

        with self.assertRaisesRegex(TypeError, r"delay needs a duration; to push now write \.push"):
            send.delay()
        self.assertEqual(json.loads(send.delay(0).call().encoded())["delay_ms"], 0)

    def test_a_given_key_is_numbered_among_many(self) -> None:
        app = Windlass(URL)

        @app.task
        def send(to: str) -> None: ...

        with app.testing(inline=False) as box:
            for _ in range(2):
                send.options(idempotency_key="k").push_many(["a", "b"])
            send.options(idempotency_key="k").push("c")
            shared = send.options(idempotency_key="s")
            app.push_many([shared.call("d"), send.options(idempotency_key="t").call("e"), shared.call("f")])
            pushed = [(job.idempotency_key, job.payload["to"]) for job in box.server.jobs.values()]
        self.assertEqual(pushed, [("k/0", "a"), ("k/1", "b"), ("k", "c"), ("s/0", "d"), ("t", "e"), ("s/1", "f")])

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_process_has_other_keys(self) -> None:
        before = _keys.fresh().rpartition("-")[0]
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(theirs, _keys.fresh().encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(theirs)
        said = os.read(ours, 200).decode()
        os.close(ours)
        self.assertNotEqual(said.rpartition("-")[0], before)
        self.assertEqual(_keys.fresh().rpartition("-")[0], before)

    def test_unique_by_all_arguments(self) -> None:
        app = Windlass(URL)

        @app.task(unique=True, unique_until="started")
        def sync(a: int, b: int) -> None: ...

        arguments = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 2}]
        keys = [json.loads(sync.call(**each).encoded())["unique"] for each in arguments]
        self.assertEqual(keys[0], keys[1])
        self.assertNotEqual(keys[0], keys[2])
        self.assertEqual(keys[0]["held_until"], "started")

    def test_batches_are_bounded(self) -> None:
        sizes = [len(batch) for batch in batches(["x"] * 4500)]
        self.assertEqual(sizes, [2000, 2000, 500])
        sizes = [len(batch) for batch in batches(["x" * 3_000_000] * 3)]
        self.assertEqual(sizes, [1, 1, 1])

    def test_tasks_that_cannot_be(self) -> None:
        app = Windlass(URL)
        app.task(positional_pair)
        with self.assertRaises(ValueError):
            app.task(positional_pair)
        with self.assertRaises(TypeError):
            app.task(process=True)(lambda: None)
        with self.assertRaises(ValueError):
            Windlass("127.0.0.1:7373")
        with self.assertRaises(ValueError):
            Windlass(URL).work()

    def test_repeat_rules_with_a_time_zone(self) -> None:
        self.assertEqual(rule("0 9 * * MON-FRI", "Europe/Berlin"), "TZ=Europe/Berlin 0 9 * * MON-FRI")
        self.assertEqual(rule("every 5m", None), "every 5m")


class StepNames(unittest.TestCase):
    def test_a_name_used_again_gets_a_number(self) -> None:
        log = StepLog([])
        self.assertEqual([log.open(name) for name in ["a", "b", "a", "a"]], ["a", "b", "a#2", "a#3"])

    def test_kept_steps_that_were_not_reached(self) -> None:
        log = StepLog([{"name": "@version", "result": 2}, {"name": "a", "result": 1}, {"name": "b", "result": None}])
        self.assertEqual(log.unvisited(), ["a", "b"])
        log.open("a")
        self.assertEqual(log.unvisited(), ["b"])


if __name__ == "__main__":
    unittest.main()
