#!/usr/bin/env python3
"""Worker program of the scenarios in plain HTTP, with Python's standard library alone.

It shows what a library has to do for durable steps: README.md describes the operations of the task `flow`. The environment
gives the server (WINDLASS_SERVER) and the folder of the files (SCENARIO_DIR). It works until SIGTERM.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.parse
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

SERVER = urllib.parse.urlsplit(os.environ.get("WINDLASS_SERVER", "http://127.0.0.1:7373"))
FOLDER = Path(os.environ["SCENARIO_DIR"])
WORKER = f"reference-{os.getpid()}"
CONCURRENCY, LEASE_MS, GRACE_S, PATIENCE_S = 4, 5_000, 30.0, 30.0
CHILD = {"name": "flow", "retry": {"max_attempts": 5, "backoff": {"fixed_ms": 50}}, "keep": {"completed_ms": 30 * 86_400_000}}
local = threading.local()


class Suspend(BaseException):
    """Unwinds a run that is to wait; the argument is the entry for `settle`."""


class Lost(BaseException):
    """Unwinds a run whose lease is lost: nothing is reported."""


class Cancelled(BaseException):
    """Unwinds a run after its cancellation has arrived."""


class Report(Exception):
    """Ends a run with this entry for `settle`."""


class ChildFailed(Exception):
    pass


class Returned(BaseException):
    pass


def send(method, path, body):
    """Sends a request on the connection of this thread: status and answer."""
    if getattr(local, "connection", None) is None:
        local.connection = http.client.HTTPConnection(SERVER.hostname, SERVER.port, timeout=40)
    text = None if body is None else json.dumps(body)
    try:
        local.connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = local.connection.getresponse()
        data = answer.read()
    except BaseException:
        local.connection.close()
        local.connection = None
        raise
    return answer.status, json.loads(data) if data else None


def call(method, path, body=None):
    """Sends a request again and again while the server cannot be reached, for as long as `PATIENCE_S`."""
    end, pause = time.monotonic() + PATIENCE_S, 0.05
    while True:
        try:
            status, answer = send(method, path, body)
            if status not in (500, 502, 503, 504):
                return status, answer
            problem = ConnectionError(f"{method} {path}: {status}")
        except (OSError, http.client.HTTPException) as error:
            problem = error
        if time.monotonic() + pause > end:
            raise ConnectionError(str(problem))
        time.sleep(pause)
        pause = min(2 * pause, 0.2)


class Run:
    """One run of a job: replays its kept steps and keeps the new ones."""

    def __init__(self, job):
        self.id, self.token, self.ops = job["id"], job["token"], job["payload"]["ops"]
        self.kept = {step["name"]: step for step in job.get("steps") or []}
        self.unseen = set(self.kept)
        self.used = {}
        self.out = {}
        self.cancelled, self.lost = threading.Event(), False

    def report(self):
        """Runs the operations: entry for `settle`, or none if the lease is lost."""
        try:
            for op in self.ops:
                self.perform(op)
            self.warn()
            return {"outcome": "finish", "result": self.out}
        except Returned as end:
            self.warn()
            return {"outcome": "finish", "result": end.args[0]}
        except (Suspend, Report) as end:
            return end.args[0]
        except Cancelled:
            return {"outcome": "release"}
        except Lost:
            return None
        except ConnectionError:
            return {"outcome": "release"}
        except Exception as error:
            return {"outcome": "fail", "class": type(error).__name__, "message": str(error)}

    def named(self, name):
        """The name of the next step: a name that is used again gets a number."""
        self.used[name] = self.used.get(name, 0) + 1
        return name if self.used[name] == 1 else f"{name}#{self.used[name]}"

    def found(self, name):
        """The kept step of this name, if there is one; a new step while kept ones are unseen is a change of the code."""
        if name in self.kept:
            self.unseen.discard(name)
            return self.kept[name]
        self.warn()
        return None

    def warn(self):
        if self.unseen:
            gone, self.unseen = ", ".join(sorted(self.unseen)), set()
            self.guarded("log", {"lines": [f"steps changed: {gone} kept, but not reached by this run"]})

    def guarded(self, path, body):
        """A call that needs the lease."""
        status, answer = call("POST", f"/api/v1/jobs/{self.id}/{path}", {"token": self.token, **body})
        if status == 200:
            return answer
        code = answer["error"]["code"]
        if code in ("lease_lost", "not_found"):
            raise Lost()
        raise RuntimeError(f"{code}: {answer['error']['message']}")

    def wait(self, name, **until):
        """A wait that the server keeps as a step: suspends the run unless it is over."""
        step = self.found(name)
        if step is None:
            raise Suspend({"outcome": "suspend", "step": name, **until})
        return step

    def perform(self, op):
        if "step" in op:
            self.steps([op])
        elif "together" in op:
            self.steps(op["together"])
        elif "kill" in op:
            once(f"killed-{op['kill']}", kill)
        elif "sleep_ms" in op:
            self.wait(self.named("sleep"), delay_ms=op["sleep_ms"])
        elif "wait_for" in op:
            name, until = self.named(f"wait:{op['wait_for']}"), {"signal": op["wait_for"]}
            if op.get("timeout_ms") is not None:
                until["delay_ms"] = op["timeout_ms"]
            self.out[name] = self.wait(name, **until).get("result")
        elif "all" in op:
            name = self.named("all")
            self.out[name] = self.children(name, op["all"])
        elif "effect" in op:
            effect(op["effect"])
        elif "progress" in op:
            beat = {"id": self.id, "token": self.token, "progress": op["progress"], "note": op.get("note")}
            call("POST", "/api/v1/extend", {"extend": [beat]})
        elif "log" in op:
            self.guarded("log", {"lines": [op["log"]]})
        elif "raise" in op:
            raise RuntimeError(op["raise"])
        elif "raise_once" in op:
            once(f"raised-{op['id']}", lambda: throw(RuntimeError(op["raise_once"])))
        elif "fail" in op:
            raise Report({"outcome": "fail", "class": "Fail", "message": op["fail"], "retry": False})
        elif "retry_after_ms" in op:
            entry = {"outcome": "fail", "class": "Retry", "message": "asked for", "delay_ms": op["retry_after_ms"]}
            once(f"retried-{op['id']}", lambda: throw(Report(entry)))
        elif "snooze_ms" in op:
            entry = {"outcome": "release", "delay_ms": op["snooze_ms"]}
            once(f"snoozed-{op['id']}", lambda: throw(Report(entry)))
        elif "until_cancelled_ms" in op:
            if self.cancelled.wait(op["until_cancelled_ms"] / 1000):
                effect("cancelled")
                raise Cancelled()
        elif "return" in op:
            raise Returned(op["return"])
        else:
            raise RuntimeError(f"unknown operation {op}")

    def steps(self, ops):
        """Runs steps at the same time. Names are given in order, before any of them runs."""
        named = [(self.named(op["step"]), op) for op in ops]
        new = []
        for name, op in named:
            if name in self.kept:
                self.unseen.discard(name)
                self.out[name] = self.kept[name].get("result")
            else:
                new.append((name, op))
        if new:
            self.warn()
        began = round(time.time() * 1000)
        if len(new) == 1:
            ((name, op),) = new
            return self.keep([{"name": name, "result": tried(op), "started_at": began}])
        with ThreadPoolExecutor(min(len(new), 32) or 1) as pool:
            running = {pool.submit(tried, op): name for name, op in new}
            while running:
                done = wait(running, return_when=FIRST_COMPLETED).done
                # Results that are there at the same time are kept in one call.
                results = {running.pop(end): end.result() for end in done}
                self.keep([{"name": name, "result": result, "started_at": began} for name, result in results.items()])

    def keep(self, steps):
        answers = self.guarded("steps", {"steps": steps})["steps"]
        for step, kept in zip(steps, answers):
            self.out[step["name"]] = step["result"] if kept["kept"] else kept.get("result")

    def children(self, name, lists):
        """Pushes the children once and waits for them; yields their results in the order of the lists."""
        tag = f"step={name}"
        if self.found(name) is None and lists:
            jobs = [
                {**CHILD, "payload": {"ops": ops}, "parent": self.id, "tags": [tag], "idempotency_key": f"{self.id}/{name}/{index}"}
                for index, ops in enumerate(lists)
            ]
            status, answer = call("POST", "/api/v1/jobs", {"jobs": jobs})
            if status >= 300:
                raise RuntimeError(f"children: {answer}")
        self.wait(name, children=True)
        listed = call("GET", f"/api/v1/jobs/{self.id}/children")[1]["jobs"]
        mine = sorted((job for job in listed if tag in (job.get("tags") or [])), key=lambda job: job["id"])
        for job in mine:
            if job["state"] != "completed":
                raise ChildFailed(f"child {job['id']} is {job['state']}: {job.get('message')}")
        return [job.get("result") for job in mine]


def tried(op):
    """Runs the work of a step, again after an error if the step has retries."""
    for left in range(op.get("retry") or 0, -1, -1):
        try:
            return body_of(op)
        except RuntimeError:
            if left == 0:
                raise
            time.sleep(0.01)


def body_of(op):
    """The work of a step."""
    name = op["step"]
    if op.get("kill") == "before":
        once(f"killed-{name}-before", kill)
    if "effect" in op:
        effect(op["effect"])
    if op.get("kill") == "after":
        once(f"killed-{name}-after", kill)
    if op.get("fail_times"):
        file = FOLDER / f"failed-{name}"
        if (file.stat().st_size if file.exists() else 0) < op["fail_times"]:
            append(file, b".")
            raise RuntimeError(f"step {name} fails")
    time.sleep((op.get("sleep_ms") or 0) / 1000)
    return op.get("returns")


def throw(error):
    raise error


def kill():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def once(file, act):
    """Acts unless the file is there, and makes it."""
    try:
        os.close(os.open(FOLDER / file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    act()


def append(file, data):
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(descriptor, data)
    os.close(descriptor)


def effect(label):
    append(FOLDER / "effects", f"{label}\n".encode())


class Worker:
    def __init__(self):
        self.lock, self.runs = threading.Lock(), {}
        self.slots = threading.Semaphore(CONCURRENCY)
        self.stopping = threading.Event()

    def claim_forever(self):
        while not self.stopping.is_set():
            self.slots.acquire()
            free = 1
            while self.slots.acquire(blocking=False):
                free += 1
            jobs = []
            try:
                ask = {"names": ["flow"], "queues": ["default"], "limit": free, "lease_ms": LEASE_MS, "wait_ms": 20_000, "worker": WORKER}
                jobs = (call("POST", "/api/v1/claim", ask)[1] or {}).get("jobs") or []
            except (ConnectionError, AttributeError) as error:
                print(f"claim: {error}", file=sys.stderr)
            for job in jobs:
                threading.Thread(target=self.work, args=(Run(job),), daemon=True).start()
            self.slots.release(free - len(jobs)) if free > len(jobs) else None

    def work(self, run):
        with self.lock:
            # By the token as well: the next run of a job may begin before the one that lost its lease has ended.
            self.runs[run.id, run.token] = run
        try:
            entry = run.report()
            if entry is not None:
                call("POST", "/api/v1/settle", {"settle": [{"id": run.id, "token": run.token, **entry}]})
        finally:
            with self.lock:
                self.runs.pop((run.id, run.token), None)
            self.slots.release()

    def beat_forever(self):
        while True:
            time.sleep(LEASE_MS / 3000)
            with self.lock:
                runs = list(self.runs.values())
            if not runs:
                continue
            ask = [{"id": run.id, "token": run.token, "lease_ms": LEASE_MS} for run in runs]
            try:
                status, answer = call("POST", "/api/v1/extend", {"extend": ask})
            except ConnectionError:
                continue
            for run, entry in zip(runs, (answer or {}).get("extended") or []):
                if entry.get("cancel"):
                    run.cancelled.set()

    def main(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        for target in (self.claim_forever, self.beat_forever):
            threading.Thread(target=target, daemon=True).start()
        self.stopping.wait()
        end = time.monotonic() + GRACE_S
        while self.runs and time.monotonic() < end:
            time.sleep(0.02)
        os._exit(0)


if __name__ == "__main__":
    Worker().main()
