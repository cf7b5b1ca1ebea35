"""Server in memory for tests: the part of the API that the library uses, on a clock that is moved by hand."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ._codec import loads
from ._handle import SETTLED
from ._time import moment_ms

ATTEMPTS = 10
BACKOFF = {"base_ms": 1_000, "cap_ms": 3_600_000}
WAITS = ("ready", "delayed", "retrying")


@dataclass
class MemoryJob:
    """Job in memory."""

    id: int
    name: str
    queue: str
    payload: Any
    run_at: int
    created_at: int
    priority: int = 0
    retry: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    alias: str | None = None
    unique: str | None = None
    idempotency_key: str | None = None
    parent: int | None = None
    state: str = "ready"
    attempts: int = 0
    token: int | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    signals: list[tuple[str, Any]] = field(default_factory=list)
    wait: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    cancel_asked: bool = False

    def view(self) -> dict[str, Any]:
        """Job as the API shows it."""
        fields = ["id", "name", "queue", "payload", "priority", "state", "attempts", "run_at", "created_at", "tags"]
        fields += ["alias", "parent", "steps", "wait", "errors", "progress"]
        shown = {name: getattr(self, name) for name in fields}
        shown["signals"] = [{"name": name} for name, _ in self.signals]
        return {**shown, **self.outcome}


class Refusal(Exception):
    """Error response."""

    def __init__(self, status: int, code: str, message: str, id: int | None = None) -> None:
        super().__init__(message)
        self.status, self.body = status, {"error": {"code": code, "message": message, "id": id}}


class MemoryServer:
    """The server. `call` is the whole of its HTTP interface; may be called from any thread."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.jobs: dict[int, MemoryJob] = {}
        self._tokens = 0
        self._lock = threading.RLock()
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., tuple[int, Any]]]] = [
            ("POST", re.compile(r"/jobs"), self._push),
            ("POST", re.compile(r"/claim"), self._claim),
            ("POST", re.compile(r"/settle"), self._settle),
            ("POST", re.compile(r"/extend"), self._extend),
            ("POST", re.compile(r"/jobs/([^/]+)/log"), self._log),
            ("POST", re.compile(r"/jobs/([^/]+)/steps"), self._keep_steps),
            ("POST", re.compile(r"/jobs/([^/]+)/signal/([^/]+)"), self._signal),
            ("POST", re.compile(r"/jobs/([^/]+)/(cancel|retry|run)"), self._act),
            ("GET", re.compile(r"/jobs/([^/]+)/children"), self._children),
            ("GET", re.compile(r"/(?:jobs|aliases)/([^/]+)"), self._info),
            ("GET", re.compile(r"/jobs/([^/]+)/result"), self._result),
        ]

    def call(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        """Status and response of a call."""
        path = path.removeprefix("/api/v1").partition("?")[0]
        with self._lock:
            for wanted, pattern, handle in self._routes:
                match = pattern.fullmatch(path) if wanted == method else None
                if match is not None:
                    try:
                        return handle(loads(body) if body else None, *(unquote(part) for part in match.groups()))
                    except Refusal as refused:
                        return refused.status, refused.body
        raise NotImplementedError(f"{method} {path} is not available in tests")

    def next_time(self) -> int | None:
        """Next time at which something is due."""
        times = [job.run_at for job in self.jobs.values() if job.state in WAITS]
        times += [job.wait["until"] for job in self.jobs.values() if job.state == "suspended" and "until" in job.wait]
        return min(times, default=None)

    def move(self, now_ms: int) -> None:
        """Moves the clock; jobs whose time has come are woken."""
        with self._lock:
            self.now_ms = max(self.now_ms, now_ms)
            for job in list(self.jobs.values()):
                if job.state == "suspended" and job.wait.get("until", self.now_ms + 1) <= self.now_ms:
                    self._wake(job, timed_out=True)

    # --- pushes and claims

    def _push(self, body: Any) -> tuple[int, Any]:
        ids, existing = [], []
        for ask in body["jobs"] if "jobs" in body else [body]:
            found = self._holder(ask)
            if found is not None:
                existing.append(found.id)
            ids.append((found or self._create(ask)).id)
        return 201, {"ids": ids, "id": ids[0] if len(ids) == 1 else None, "existing": existing}

    def _holder(self, ask: dict[str, Any]) -> MemoryJob | None:
        """Job that holds a key of the push."""
        unique = ask.get("unique")
        rules = unique if isinstance(unique, dict) else {"key": unique}
        for job in self.jobs.values():
            for name in ("idempotency_key", "alias"):
                if ask.get(name) is not None and getattr(job, name) == ask[name]:
                    return job
            is_live = job.state not in SETTLED and (rules.get("held_until") != "started" or job.state != "running")
            if rules["key"] is not None and job.unique == rules["key"] and is_live:
                if rules.get("on_conflict") == "refuse":
                    raise Refusal(409, "duplicate", f"job {job.id} has this unique key", job.id)
                if rules.get("on_conflict") == "update":
                    job.payload = ask.get("payload")
                return job
        return None

    def _create(self, ask: dict[str, Any]) -> MemoryJob:
        run_at = self.now_ms + ask.get("delay_ms", 0)
        if "run_at" in ask:
            at = ask["run_at"]
            run_at = at if isinstance(at, int) else moment_ms(at)
        unique = ask.get("unique")
        given = {name: ask[name] for name in ("priority", "tags", "alias", "idempotency_key", "parent") if name in ask}
        retry = ask.get("retry") or {}
        job = MemoryJob(
            id=len(self.jobs) + 1,
            name=ask["name"],
            queue=ask.get("queue", "default"),
            payload=ask.get("payload"),
            run_at=run_at,
            created_at=self.now_ms,
            retry={"max_attempts": retry} if isinstance(retry, int) else retry,
            unique=unique.get("key") if isinstance(unique, dict) else unique,
            state="delayed" if run_at > self.now_ms else "ready",
            **given,
        )
        if job.parent is not None and self.jobs[job.parent].state == "running":
            job.state = "waiting"
        self.jobs[job.id] = job
        return job

    def _claim(self, body: Any) -> tuple[int, Any]:
        names = body.get("names")
        due = [
            job
            for job in self.jobs.values()
            if job.state in WAITS and job.run_at <= self.now_ms and (names is None or job.name in names)
        ]
        due.sort(key=lambda job: (job.priority, job.run_at, job.id))
        return 200, {"jobs": [self._lease(job) for job in due[: body.get("limit", 1)]]}

    def _lease(self, job: MemoryJob) -> dict[str, Any]:
        self._tokens += 1
        job.state, job.token, job.attempts = "running", self._tokens, job.attempts + 1
        claimed = {"id": job.id, "token": job.token, "name": job.name, "queue": job.queue, "attempt": job.attempts}
        return {**claimed, "payload": job.payload, "tags": job.tags, "steps": list(job.steps)}

    # --- runs

    def _held(self, id: int, token: int) -> MemoryJob:
        job = self.jobs[id]
        if job.state != "running" or job.token != token:
            raise Refusal(409, "lease_lost", "the lease is lost")
        return job

    def _settle(self, body: Any) -> tuple[int, Any]:
        answers = []
        for entry in body["settle"]:
            try:
                job = self._held(entry["id"], entry["token"])
                getattr(self, f"_end_{entry['outcome']}")(job, entry)
                answers.append({"id": job.id, "ok": True, "state": job.state})
            except Refusal as refused:
                answers.append({"id": entry["id"], "ok": False, **refused.body})
        return 200, {"settled": answers}

    def _end_finish(self, job: MemoryJob, entry: dict[str, Any]) -> None:
        job.outcome = {"result": entry.get("result")}
        self._settled(job, "completed")

    def _end_fail(self, job: MemoryJob, entry: dict[str, Any]) -> None:
        told: dict[str, Any] = {name: entry[name] for name in ("class", "message", "backtrace") if name in entry}
        job.errors.append({**told, "attempt": job.attempts})
        attempts = job.retry.get("max_attempts", ATTEMPTS)
        if job.cancel_asked:
            self._settled(job, "cancelled")
        elif entry.get("retry") is False or (attempts is not None and job.attempts >= attempts):
            job.outcome = told
            self._settled(job, "failed")
        else:
            delay_ms = entry.get("delay_ms", self._backoff_ms(job))
            job.state, job.run_at = "retrying", self.now_ms + delay_ms

    def _backoff_ms(self, job: MemoryJob) -> int:
        rule = job.retry.get("backoff", BACKOFF)
        if rule == "none":
            return 0
        if "fixed_ms" in rule:
            return int(rule["fixed_ms"])
        return int(min(rule["base_ms"] * 2 ** (job.attempts - 1), rule.get("cap_ms", BACKOFF["cap_ms"])))

    def _end_release(self, job: MemoryJob, entry: dict[str, Any]) -> None:
        if job.cancel_asked:
            self._settled(job, "cancelled")
            return
        delay_ms = entry.get("delay_ms", 0)
        job.attempts -= 1
        job.run_at = self.now_ms + delay_ms
        job.state = "delayed" if delay_ms else "ready"

    def _end_suspend(self, job: MemoryJob, entry: dict[str, Any]) -> None:
        job.state = "suspended"
        job.wait = {name: entry[name] for name in ("step", "signal", "children") if name in entry}
        if "delay_ms" in entry:
            job.wait["until"] = self.now_ms + entry["delay_ms"]
        elif "until" in entry:
            until = entry["until"]
            job.wait["until"] = until if isinstance(until, int) else moment_ms(until)
        self._release_children(job)
        kept = next((signal for signal in job.signals if signal[0] == entry.get("signal")), None)
        if kept is not None:
            job.signals.remove(kept)
            self._wake(job, result=kept[1])
        elif entry.get("children") and not self._pending_children(job):
            self._wake(job)
        elif job.wait.get("until", self.now_ms + 1) <= self.now_ms:
            self._wake(job, timed_out=True)

    def _wake(self, job: MemoryJob, result: Any = None, timed_out: bool = False) -> None:
        wait, job.wait = job.wait, {}
        kind = "signal" if "signal" in wait else "children" if "children" in wait else "sleep"
        if "step" in wait:
            step = {"name": wait["step"], "kind": kind, "result": result, "at": self.now_ms}
            job.steps.append({**step, "timed_out": True} if timed_out and kind != "sleep" else step)
        job.state, job.run_at, job.attempts = "ready", self.now_ms, 0

    def _pending_children(self, job: MemoryJob) -> list[MemoryJob]:
        return [child for child in self.jobs.values() if child.parent == job.id and child.state not in SETTLED]

    def _release_children(self, job: MemoryJob) -> None:
        for child in self._pending_children(job):
            if child.state == "waiting":
                child.state = "delayed" if child.run_at > self.now_ms else "ready"

    def _settled(self, job: MemoryJob, state: str) -> None:
        job.state = state
        self._release_children(job)
        parent = self.jobs.get(job.parent or 0)
        if parent is not None and parent.state == "suspended" and parent.wait.get("children"):
            if not self._pending_children(parent):
                self._wake(parent)

    def _extend(self, body: Any) -> tuple[int, Any]:
        answers = []
        for entry in body["extend"]:
            job = self._held(entry["id"], entry["token"])
            if "progress" in entry:
                job.progress = {"percent": entry["progress"], "note": entry.get("note")}
            answers.append({"id": job.id, "ok": True, "cancel": job.cancel_asked})
        return 200, {"extended": answers}

    def _log(self, body: Any, id: str) -> tuple[int, Any]:
        self._held(int(id), body["token"]).log += body["lines"]
        return 200, {"id": int(id), "ok": True}

    def _keep_steps(self, body: Any, id: str) -> tuple[int, Any]:
        job, answers = self._held(int(id), body["token"]), []
        for step in body["steps"]:
            kept = next((found for found in job.steps if found["name"] == step["name"]), None)
            if kept is not None:
                answers.append({"name": step["name"], "kept": False, "result": kept["result"]})
                continue
            job.steps.append({"name": step["name"], "kind": "run", "result": step.get("result"), "at": self.now_ms})
            answers.append({"name": step["name"], "kept": True})
        return 200, {"steps": answers}

    # --- jobs

    def find(self, id: str) -> MemoryJob:
        """Job with this id or alias."""
        for job in self.jobs.values():
            if str(job.id) == id or job.alias == id:
                return job
        raise Refusal(404, "not_found", "job not found")

    def _info(self, _: Any, id: str) -> tuple[int, Any]:
        return 200, self.find(id).view()

    def _result(self, _: Any, id: str) -> tuple[int, Any]:
        job = self.find(id)
        return (200 if job.state in SETTLED else 202), {"id": job.id, "state": job.state, **job.outcome}

    def _children(self, _: Any, id: str) -> tuple[int, Any]:
        parent = self.find(id)
        return 200, {"jobs": [job.view() for job in self.jobs.values() if job.parent == parent.id]}

    def _signal(self, body: Any, id: str, name: str) -> tuple[int, Any]:
        job = self.find(id)
        if job.state in SETTLED:
            raise Refusal(409, "settled", f"the job is already {job.state}")
        is_awaited = job.state == "suspended" and job.wait.get("signal") == name
        if is_awaited:
            self._wake(job, result=body)
        else:
            job.signals.append((name, body))
        return 202, {"id": job.id, "woken": is_awaited}

    def _act(self, body: Any, id: str, action: str) -> tuple[int, Any]:
        job = self.find(id)
        if action == "cancel":
            if job.state == "running":
                job.cancel_asked = True
            else:
                self._settled(job, "cancelled")
        elif action == "retry":
            self._retry(job, (body or {}).get("from_step"))
        elif job.state == "suspended":
            self._wake(job)
        else:
            job.state, job.run_at = "ready", self.now_ms
        return 200, job.view()

    def _retry(self, job: MemoryJob, from_step: str | None) -> None:
        names = [step["name"] for step in job.steps]
        if from_step is not None and from_step not in names:
            raise Refusal(404, "not_found", f"the job has no step {from_step}")
        if from_step is not None:
            job.steps = job.steps[: names.index(from_step)]
        elif job.state == "completed":
            job.steps = []
        job.state, job.run_at, job.attempts, job.outcome, job.cancel_asked = "ready", self.now_ms, 0, {}, False
