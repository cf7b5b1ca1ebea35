"""A complete JQ worker: `pip install msgpack`, then run it and enqueue `add`, `divide`, `flaky` or `sleep`.

    JQ=http://127.0.0.1:7373/jq python jq_worker.py --max-jobs 8

It registers, pings, and registers anew when the server has let it go; runs at most `--max-jobs` handlers at once; retries what
may work the next time and gives up on what will not; and when it is told to stop (SIGTERM, Ctrl-C) it gets nothing more, ends
what it has, and leaves. Told a second time, it stops at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgpack

log = logging.getLogger("jq_worker")

# The server lets a worker go after ten seconds of silence.
PING_EVERY_S = 4.0
# How long the server may take to answer.
WITHIN_S = 10.0
# What the server keeps of a failure's message.
MESSAGE_BYTES_MAX = 16 * 1024


class GiveUp(Exception):
    """Trying again is of no use."""


class Refused(Exception):
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Job:
    id: str
    name: str
    argument: dict[str, Any]
    timeout_s: float
    attempt: int


# --- what this worker can do ------------------------------------------------------------------------------------------


def number(job: Job, key: str) -> float:
    """An argument that has to be there, and a number: one that is not will not be the next time either."""
    value = job.argument.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise GiveUp(f"the argument `{key}` must be a number, not {value!r}")
    return value


def add(job: Job) -> Any:
    return number(job, "a") + number(job, "b")


def divide(job: Job) -> Any:
    quotient, rest = divmod(number(job, "a"), number(job, "b"))
    return {"quotient": quotient, "rest": rest}


def flaky(job: Job) -> Any:
    if job.attempt < number(job, "works_at"):
        raise ConnectionError(f"no luck with attempt {job.attempt}")
    return job.attempt


def sleep(job: Job) -> Any:
    time.sleep(number(job, "s"))
    return "slept"


HANDLERS: dict[str, Callable[[Job], Any]] = {"add": add, "divide": divide, "flaky": flaky, "sleep": sleep}
# What is the pusher's fault, not the moment's.
HOPELESS = (GiveUp, ZeroDivisionError, TypeError, KeyError)


# --- the worker -------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, server: str, name: str, max_jobs: int, token: str | None) -> None:
        self.server, self.name, self.max_jobs, self.token = server, name, max_jobs, token
        self.id: str | None = None
        self.registered = threading.Event()
        self.stopping = threading.Event()
        self.leaving = False
        self.places = threading.BoundedSemaphore(max_jobs)
        self.idle = threading.Condition()
        self.running = 0
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True

    # The server's calls.

    def handler(worker) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (the inner class has a self of its own)
        class Calls(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, message = worker.take(self.path, self.headers.get("worker-id"), body)
                said = b"" if status == 202 else msgpack.packb({"error": "refused", "message": message})
                self.send_response(status)
                self.send_header("Content-Type", "application/msgpack")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, text: str, *args: Any) -> None:
                log.debug("called: " + text, *args)

        return Calls

    def take(self, path: str, meant: str | None, body: bytes) -> tuple[int, str]:
        """What to say to a job that the server sends: at once, the work comes afterwards."""
        if not path.endswith("/worker-job"):
            return 404, "not found; a worker accepts only POST /worker-job"
        # The first job may come before the answer to the registration.
        self.registered.wait(4)
        if self.leaving or meant != self.id:
            return 503, "this worker is shutting down, or has another id"
        try:
            fields = msgpack.unpackb(body, strict_map_key=False)
            timeout_s = fields["timeout"] if fields["timeout"] is not None else float("inf")
            job = Job(fields["job_id"], fields["name"], fields["argument"], timeout_s, fields["attempt"])
        except Exception as error:
            return 400, f"invalid body: {error}"
        if job.name not in HANDLERS:
            return 404, f"no handler for {job.name}"
        if not self.places.acquire(blocking=False):
            return 503, "this worker has reached its maximum number of jobs"
        with self.idle:
            self.running += 1
        threading.Thread(target=self.run, args=(job, meant), name=f"job-{job.id}", daemon=True).start()
        return 202, ""

    def run(self, job: Job, worker_id: str) -> None:
        started = time.monotonic()
        try:
            log.info("job %s %s started, attempt %d", job.id, job.name, job.attempt)
            end = outcome(job)
            # Before the server hears of it: it may send the next one at once.
            self.places.release()
            self.tell(job, worker_id, end, until=started + job.timeout_s)
        finally:
            with self.idle:
                self.running -= 1
                self.idle.notify_all()

    def tell(self, job: Job, worker_id: str, end: dict[str, Any], until: float) -> None:
        """Again and again while the server is away, for as long as it would still listen."""
        pause = 0.1
        while True:
            try:
                self.call("POST", "/done", end, worker_id)
                log.info("job %s %s", job.id, "done" if end["type"] == "success" else f"failed: {end['message']}")
                return
            except Refused as refused:
                if refused.status in (400, 413) and end["type"] == "success":
                    end = failure(job, f"the server refused the result: {refused}", should_retry=False)
                    continue
                log.warning("the server did not accept the outcome of job %s: %s", job.id, refused)
                return
            except OSError as error:
                if time.monotonic() + pause > until:
                    log.error("cannot report the outcome of job %s: %s", job.id, error)
                    return
                time.sleep(pause)
                pause = min(2 * pause, 3.0)

    # Our calls.

    def call(self, method: str, path: str, body: Any = None, worker_id: str | None = None) -> Any:
        headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
        if worker_id:
            headers["worker-id"] = worker_id
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else msgpack.packb(body)
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read()
            if error.code >= 500:
                # The same may work in a moment.
                raise ConnectionError(f"the server responded with status {error.code}") from error
            try:
                raise Refused(error.code, msgpack.unpackb(said)["message"]) from error
            except (ValueError, KeyError, TypeError):
                raise Refused(error.code, repr(said[:200])) from error
        return msgpack.unpackb(said) if said else None

    def register(self) -> None:
        """Until it works. Nothing is taken before the first ping: from then on the server notices if this process dies."""
        self.registered.clear()
        asked = {"name": self.name, "max_jobs": self.max_jobs, "port": self.http.server_port}
        while not self.stopping.is_set():
            try:
                self.id = self.call("POST", "/worker", asked)["worker_id"]
                self.call("POST", "/worker/ping", worker_id=self.id)
                self.registered.set()
                log.info("registered as %s", self.id)
                return
            except OSError as error:
                log.warning("cannot register yet: %s", error)
                self.stopping.wait(1)

    def keep_alive(self) -> None:
        while not self.stopping.wait(PING_EVERY_S):
            try:
                self.call("POST", "/worker/ping", worker_id=self.id)
            except Refused as refused:
                if refused.status == 404 and not self.leaving:
                    log.warning("the server has removed this worker; registering again")
                    self.register()
            except OSError as error:
                log.warning("the server does not respond; running jobs continue: %s", error)

    def live(self) -> None:
        try:
            self.register()
            self.keep_alive()
        except Refused as refused:
            log.error("the server refuses this worker: %s", refused)
            os._exit(2)

    def leave(self, grace_s: float) -> None:
        """In good order: nothing more, then the end of what runs. What is not done in time is tried again elsewhere."""
        try:
            self.call("DELETE", "/worker?drain=true", worker_id=self.id)
        except (OSError, Refused) as error:
            log.warning("cannot tell the server that this worker is shutting down: %s", error)
        self.leaving = True
        with self.idle:
            log.info("shutting down: waiting for %d jobs", self.running)
            is_done = self.idle.wait_for(lambda: self.running == 0, timeout=grace_s)
        if not is_done:
            log.warning("%d jobs are not finished; other workers retry them", self.running)
            try:
                self.call("DELETE", "/worker", worker_id=self.id)
            except (OSError, Refused) as error:
                log.warning("cannot unregister: %s", error)


def outcome(job: Job) -> dict[str, Any]:
    """Runs the handler; whatever it does, there is an end to tell of."""
    try:
        result = HANDLERS[job.name](job)
        end = {"job_id": job.id, "attempt": job.attempt, "type": "success", "finished_at": now(), "result": result}
        msgpack.packb(end)
        return end
    except HOPELESS as error:
        return failure(job, f"{type(error).__name__}: {error}", should_retry=False)
    except Exception as error:
        log.exception("job %s failed", job.id)
        return failure(job, f"{type(error).__name__}: {error}", should_retry=True)


def failure(job: Job, message: str, should_retry: bool) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "attempt": job.attempt,
        "type": "failure",
        "reason": "other",
        "finished_at": now(),
        "should_retry": should_retry,
        "message": message.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore"),
        "error": {"name": job.name, "argument": sorted(job.argument, key=str)},
    }


def now() -> str:
    return datetime.now(timezone.utc).isoformat()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", default=os.environ.get("JQ", "http://127.0.0.1:7373/jq"))
    parser.add_argument("--token", default=os.environ.get("JQ_TOKEN"))
    parser.add_argument("--name", default="python")
    parser.add_argument("--max-jobs", type=int, default=4)
    parser.add_argument("--grace", type=float, default=30.0, help="seconds for running jobs to finish at shutdown")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    worker = Worker(options.server, options.name, options.max_jobs, options.token)
    told = threading.Event()

    def stop(number: int, _frame: Any) -> None:
        if told.is_set():
            os._exit(1)
        log.info("shutting down after %s; send the signal again to exit at once", signal.Signals(number).name)
        told.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=worker.http.serve_forever, name="http", daemon=True).start()
    threading.Thread(target=worker.live, name="alive", daemon=True).start()
    # A plain wait() would keep some systems from seeing the signal.
    while not told.wait(0.5):
        pass
    worker.leave(options.grace)
    worker.stopping.set()
    worker.http.shutdown()
    log.info("stopped")


if __name__ == "__main__":
    main()
