"""Plays one scenario in a sandbox: its actions in order, then its expectations. README.md describes both."""

import contextlib
import http.client
import json
import signal
import time
import uuid
from urllib.parse import quote

from expand import filled
from sandbox import Trouble

WITHIN_S = 30.0
RETRY = {"max_attempts": 5, "backoff": {"fixed_ms": 50}}
SETTLED = {"completed", "failed", "cancelled", "terminated"}
UNSETTLED = "state:ready,delayed,retrying,running,waiting,suspended"


def fits(wanted, found):
    """True if a value fits: maps may have more fields than are wanted, lists have exactly the items."""
    if isinstance(wanted, dict):
        if wanted and set(wanted) <= CONDITIONS.keys():
            return all(CONDITIONS[word](found, value) for word, value in wanted.items())
        return isinstance(found, dict) and all(fits(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(fits, wanted, found))
    return type(wanted) is type(found) and wanted == found if isinstance(wanted, bool) else wanted == found


def same(wanted, found):
    """True if two values are equal as JSON; to Python alone, true is 1."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(same(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    return wanted == found and isinstance(wanted, bool) == isinstance(found, bool)


def lost_leases(job):
    return sum(error.get("class") == "LeaseExpired" for error in job.get("errors") or [])


CONDITIONS = {
    "at_least": lambda found, value: found is not None and found >= value,
    "at_most": lambda found, value: found is not None and found <= value,
    "contains": lambda found, value: value in (found if isinstance(found, str) else json.dumps(found)),
    "not": lambda found, value: not fits(value, found),
    "size": lambda found, value: fits(value, len(found or [])),
}


class Play:
    def __init__(self, scenario, box, restart_database, one_restart, patience):
        self.scenario, self.box, self.restart_database = scenario, box, restart_database
        # Held during a call that no other lane's restart of the database may interrupt.
        self.undisturbed = one_restart if scenario.get("needs") == "database" else contextlib.nullcontext()
        self.jobs, self.names = {}, {}
        self.began, self.frozen = time.monotonic(), False
        self.within_s = patience * scenario.get("within_s", WITHIN_S)
        self.end = self.began + self.within_s

    def run(self):
        """Plays the scenario; raises `Trouble` if something is not as expected."""
        if "flow" in self.scenario:
            self.do_push({"ops": self.scenario["flow"], **self.scenario.get("push", {})}, {})
        for number, action in enumerate(self.scenario.get("do", []), 1):
            word, value = next(iter(action.items()))
            try:
                # The names of jobs and leases are known only now.
                action = filled(action, self.names)
                getattr(self, f"do_{word}")(action[word], action)
            except Trouble as trouble:
                raise Trouble(f"action {number}, {word}: {trouble}") from None
        self.check(self.scenario.get("expect", {}))
        self.check_workers()

    def is_over(self):
        """True if nothing is left in the sandbox that could disturb the next scenario."""
        if self.frozen or self.box.wanted != 1:
            return False
        return self.ask("GET", f"/api/v1/jobs/count?search={quote(UNSETTLED)}")[1]["count"] == 0

    # Requests

    def left(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise Trouble(f"not at its end after {self.within_s} s; {self.box.deaths} workers died; jobs: {self.states()}")
        if self.box.trouble:
            raise Trouble(self.box.trouble)
        return left

    def ask(self, method, path, body=None):
        """Sends a request that may be repeated, until the server answers it."""
        while True:
            self.left()
            try:
                status, answer = self.box.call(method, path, body)
                if status not in (500, 502, 503, 504):
                    return status, answer
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)

    def once(self, method, path, body):
        """Sends a request that must not be done twice; again only if the server says that it is not done."""
        while True:
            # On a new connection: an old one may be closed by the server in the same moment.
            self.box.disconnect()
            status, answer = self.box.call(method, path, body)
            if status != 503:
                return status, answer
            time.sleep(min(0.05, self.left()))

    def job(self, name="job"):
        return self.read(self.jobs[name][0])

    def read(self, id):
        return self.ask("GET", f"/api/v1/jobs/{id}")[1]

    def states(self):
        try:
            ids = [id for ids in self.jobs.values() for id in ids][:5]
            fields = ("state", "attempts", "lease", "wait", "waiting_for", "errors", "steps")
            views = [(id, self.box.call("GET", f"/api/v1/jobs/{id}")[1]) for id in ids]
            return json.dumps({id: {field: view.get(field) for field in fields if view.get(field)} for id, view in views})[:3000]
        except (OSError, http.client.HTTPException) as error:
            return f"the server does not answer: {error}"

    def answered(self, status, answer, action, default):
        """Checks the answer of a request against `status`, `code` and `answer` of the action."""
        wanted = action.get("status", default)
        if not fits(wanted, status):
            raise Trouble(f"status {status} instead of {wanted}: {json.dumps(answer)[:1000]}")
        code = ((answer or {}).get("error") or {}).get("code") if isinstance(answer, dict) else None
        if action.get("code", code) != code:
            raise Trouble(f"code {code} instead of {action['code']}: {answer}")
        if not fits(action.get("answer", {}), answer if answer is not None else {}):
            raise Trouble(f"answer {json.dumps(answer)[:2000]} instead of {json.dumps(action['answer'])[:2000]}")

    def do_call(self, line, action):
        method, path = line.split(" ", 1)
        self.answered(*self.ask(method, quote(path, safe="/?=&:,"), action.get("body")), action, 200)

    # Jobs

    def do_push(self, ask, action):
        ask = dict(ask)
        name, count, same_as = ask.pop("as", "job"), ask.pop("count", None), ask.pop("same_as", None)
        body = {"name": "flow", "retry": RETRY, **ask}
        if "ops" in body:
            body["payload"] = {"ops": body.pop("ops")}
        if count:
            body = {"jobs": [body] * count}
        elif self.scenario.get("needs") == "database":
            # The answer may get lost.
            body.setdefault("idempotency_key", f"{name}-{uuid.uuid4()}")
        status, answer = self.ask("POST", "/api/v1/jobs", body) if "idempotency_key" in body else self.once("POST", "/api/v1/jobs", body)
        self.answered(status, answer, action, 201)
        if status == 201:
            self.jobs[name] = answer["ids"]
            self.names[name] = answer["ids"][0]
        if same_as and self.jobs[name] != self.jobs[same_as]:
            raise Trouble(f"the push made job {self.jobs[name]} instead of giving {self.jobs[same_as]}")

    def do_children(self, names, action):
        """Names the children of a job, in the order of their ids."""
        path = f"/api/v1/jobs/{self.jobs[action.get('of', 'job')][0]}/children"
        while True:
            ids = sorted(job["id"] for job in self.ask("GET", path)[1]["jobs"])
            if len(ids) >= len(names):
                break
            time.sleep(min(0.02, self.left()))
        for name, id in zip(names, ids):
            self.jobs[name], self.names[name] = [id], id

    def on_job(self, verb, name, action, body=None, default=200):
        self.answered(*self.ask("POST", f"/api/v1/jobs/{self.jobs[name][0]}/{verb}", body), action, default)

    def do_signal(self, name, action):
        id = self.jobs[action.get("of", "job")][0]
        # A signal is kept as often as it is sent.
        with self.undisturbed:
            status, answer = self.once("POST", f"/api/v1/jobs/{id}/signal/{quote(name, safe='')}", action.get("payload"))
        if "woken" in action:
            action = {**action, "answer": {"woken": action["woken"]}}
        self.answered(status, answer, action, 202)

    def do_signals(self, ask, action):
        """Sends a signal several times, with its number as payload."""
        for number in range(1, ask["count"] + 1):
            self.do_signal(ask["name"], {**action, "payload": number})

    def do_cancel(self, name, action):
        self.on_job("cancel", name, action, {"now": True} if action.get("now") else None)

    def do_retry(self, name, action):
        self.on_job("retry", name, action, {"from_step": action["from_step"]} if "from_step" in action else None)

    def do_run(self, name, action):
        self.on_job("run", name, action)

    def do_edit(self, name, action):
        body = {"payload": {"ops": action["ops"]}}
        self.answered(*self.ask("PATCH", f"/api/v1/jobs/{self.jobs[name][0]}", body), action, 200)

    # Runs by hand, with the runner as the worker

    def do_claim(self, ask, action):
        ask = {"name": "hand", "wait_ms": 10_000, "worker": "runner", "lease_ms": 30_000, **ask}
        name = ask.pop("as", "run")
        jobs = self.ask("POST", "/api/v1/claim", ask)[1]["jobs"]
        if len(jobs) != 1:
            raise Trouble(f"{len(jobs)} jobs were claimed instead of one")
        self.names[name], self.jobs[name] = jobs[0]["token"], [jobs[0]["id"]]
        if not fits(action.get("finds", {}), jobs[0]):
            raise Trouble(f"the claimed job is {json.dumps(jobs[0])[:2000]} instead of {action['finds']}")

    def do_keep(self, ask, action):
        """Keeps the steps s1, s2, … with their numbers as results, several in each call."""
        for first in range(1, ask["of"] + 1, ask["each"]):
            steps = [{"name": f"s{number}", "result": number} for number in range(first, first + ask["each"])]
            body = {"token": self.names["run"], "steps": steps}
            self.answered(*self.ask("POST", f"/api/v1/jobs/{self.jobs['run'][0]}/steps", body), action, 200)

    def do_settle(self, entry, action):
        run = action.get("of", "run")
        entry = {"id": self.jobs[run][0], "token": self.names[run], **entry}
        status, answer = self.ask("POST", "/api/v1/settle", {"settle": [entry]})
        if status != 200:
            return self.answered(status, answer, action, 200)
        entry = answer["settled"][0]
        code = (entry.get("error") or {}).get("code")
        if action.get("code") != code or not fits(action.get("answer", {}), entry):
            raise Trouble(f"{entry} instead of {action.get('code') or action.get('answer') or 'ok'}")

    # Processes

    def do_kill(self, what, _action):
        if what == "database":
            self.restart_database("kill")
        else:
            self.box.kill_server() if what == "server" else self.box.kill_worker()

    def do_start(self, what, _action):
        self.box.start_server() if what == "server" else self.box.start_worker()

    def do_restart(self, what, _action):
        if what == "database":
            return self.restart_database("restart")
        self.do_kill(what, {})
        self.do_start(what, {})

    def do_stop(self, _worker, _action):
        self.box.stop_worker()

    def do_freeze(self, _worker, _action):
        self.frozen = True
        self.box.signal_worker(0, signal.SIGSTOP)

    def do_thaw(self, _worker, _action):
        self.box.signal_worker(0, signal.SIGCONT)

    # Waits

    def holds(self, wanted, name):
        """True if all conditions hold now."""
        wanted = dict(wanted)
        for label, count in wanted.pop("effects", {}).items():
            if self.box.effects().get(label, 0) < count:
                return False
        if self.box.deaths < wanted.pop("deaths", 0):
            return False
        if not wanted:
            return True
        job = self.job(name)
        step = wanted.pop("step", None)
        if step and step not in [kept["name"] for kept in job.get("steps") or []]:
            return False
        return fits(wanted, job)

    def do_until(self, wanted, action):
        while not self.holds(wanted, action.get("of", "job")):
            time.sleep(min(0.01, self.left()))

    def do_still(self, wanted, action):
        """Checks that the conditions hold, and go on to hold for a while."""
        end = time.monotonic() + action["for_ms"] / 1000
        while time.monotonic() < end:
            if not self.holds(wanted, action.get("of", "job")):
                raise Trouble(f"no longer {wanted}: {self.states()}")
            time.sleep(min(0.02, self.left()))

    # Expectations

    def check(self, expect):
        expect = dict(expect)
        also = expect.pop("also", {})
        effects, deaths = expect.pop("effects", {}), expect.pop("deaths", None)
        lasted_ms, more = expect.pop("lasted_ms", 0), expect.pop("more_per_lost_lease", 0)
        wanted = {"job": {"state": "completed", **expect}} if "job" in self.jobs else {}
        wanted |= {name: {"state": "completed", **fields} for name, fields in also.items()}
        for name, fields in wanted.items():
            for id in self.jobs[name]:
                self.until_end(id, fields["state"])
                try:
                    self.check_job(id, fields, bool(more))
                except Trouble as trouble:
                    raise Trouble(f"job {name} ({id}): {trouble}") from None
        took_ms = (time.monotonic() - self.began) * 1000
        if took_ms < lasted_ms:
            raise Trouble(f"it took {took_ms:.0f} ms instead of at least {lasted_ms}")
        if more:
            more *= lost_leases(self.job())
        self.check_effects(effects, more)
        if deaths is not None and self.box.deaths != deaths:
            raise Trouble(f"{self.box.deaths} workers died instead of {deaths}")

    def check_workers(self):
        """Gives the workers one more job: a worker that crashed with the end of the last one does not do it."""
        if self.box.wanted:
            body = {"name": "flow", "payload": {"ops": []}, "idempotency_key": f"last-{uuid.uuid4()}"}
            self.until_end(self.ask("POST", "/api/v1/jobs", body)[1]["ids"][0], "completed")
        self.box.check_workers()

    def until_end(self, id, state):
        """Waits for the end of a job by long polls; for a state that is no end by reading the job."""
        while True:
            wait_ms = int(min(self.left(), 5.0) * 1000) if state in SETTLED else 0
            status, answer = self.ask("GET", f"/api/v1/jobs/{id}/result?wait_ms={wait_ms}")
            if status == 200 or (status == 202 and answer["state"] == state):
                return
            if status not in (200, 202):
                raise Trouble(f"the result of job {id}: {status} {answer}")
            time.sleep(0.01)

    def check_job(self, id, fields, may_lose_leases=False):
        fields, job = dict(fields), self.read(id)
        if job["state"] != fields.pop("state"):
            raise Trouble(f"the state is {job['state']}: {json.dumps(job)[:2000]}")
        if "result" in fields:
            wanted = fields.pop("result")
            if not same(wanted, job.get("result")):
                raise Trouble(f"the result is {json.dumps(job.get('result'))[:1500]} instead of {json.dumps(wanted)[:1500]}")
        self.check_steps(job, fields)
        if "children" in fields:
            children = self.ask("GET", f"/api/v1/jobs/{id}/children")[1]["jobs"]
            children.sort(key=lambda child: child["id"])
            if not fits(fields["children"], children):
                brief = [{key: child.get(key) for key in ("id", "state", "result", "attempts", "message")} for child in children]
                raise Trouble(f"the children are {json.dumps(brief)[:2000]} instead of {json.dumps(fields['children'])[:1000]}")
            del fields["children"]
        if may_lose_leases and "attempts" in fields:
            fields["attempts"] = {"at_least": fields["attempts"], "at_most": fields["attempts"] + lost_leases(job)}
        for field, wanted in fields.items():
            if not fits(wanted, job.get(field)):
                raise Trouble(f"{field} is {json.dumps(job.get(field))[:1500]} instead of {json.dumps(wanted)[:1500]}; {self.states()}")

    def check_steps(self, job, fields):
        kept = job.get("steps") or []
        names = [step["name"] for step in kept]
        if len(set(names)) != len(names):
            raise Trouble(f"a step is kept twice: {names}")
        if "steps" in fields:
            wanted = fields.pop("steps")
            if isinstance(wanted, dict) and set(wanted) == {"in_any_order"}:
                wanted, kept = sorted(wanted["in_any_order"]), sorted(kept, key=lambda step: step["name"])
            if isinstance(wanted, list):
                wanted = [{"name": step, "kind": "run"} if isinstance(step, str) else step for step in wanted]
            if not fits(wanted, kept):
                raise Trouble(f"the kept steps are {json.dumps(kept)[:2000]} instead of {json.dumps(wanted)[:1500]}")
        at = {step["name"]: step["at"] for step in kept}
        for first, second, at_least_ms in fields.pop("apart", []):
            if at[second] - at[first] < at_least_ms:
                raise Trouble(f"{second} was kept {at[second] - at[first]} ms after {first} instead of at least {at_least_ms}")

    def check_effects(self, wanted, more):
        """`more`: how many effects may be there besides, because their runs lost the lease."""
        found = self.box.effects()
        for label in {**found, **wanted}:
            count = wanted.get(label, 0)
            least, most = count if isinstance(count, list) else (count, count)
            spare = min(more, max(0, found.get(label, 0) - most)) if label in wanted else 0
            more -= spare
            if not least <= found.get(label, 0) <= most + spare:
                raise Trouble(f"the effect {label} happened {found.get(label, 0)} times instead of {count}: {found}")
