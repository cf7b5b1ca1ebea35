"""Calls of the API: requests, and parsers of their responses. Sends nothing itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from ._codec import dumps
from ._errors import WindlassError, refusal

T = TypeVar("T")

# Entries and bytes of one call. The server takes 10,000 entries; smaller commits let other calls pass.
BATCH_MAX = 2_000
BATCH_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True)
class Ask(Generic[T]):
    """One call."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: bytes | None = None
    #: Seconds for which the server may delay its response.
    waits: float = 0.0

    def encoded(self) -> bytes | None:
        return self.body

    def answer(self, status: int, body: bytes) -> T:
        """Returns the result of the call, or raises its error."""
        try:
            said = json.loads(body)
        except ValueError as error:
            raise refusal(status if status >= 400 else 502, "", f"no JSON in the response: {body[:200]!r}") from error
        if status < 300:
            return self.read(said)
        refused = said.get("error") if isinstance(said, dict) else None
        if not isinstance(refused, dict):
            raise refusal(status, "", f"the server responded with status {status}")
        raise refusal(status, str(refused.get("code", "")), str(refused.get("message", "")), refused.get("id"))


def _same(said: Any) -> Any:
    return said


def _post(path: str, body: Any, read: Callable[[Any], T], waits: float = 0.0, errors: str = "strict") -> Ask[T]:
    return Ask("POST", path, read, dumps(body).encode(errors=errors), waits)


def _job(id: int | str, *rest: str) -> str:
    return "/".join(["/api/v1/jobs", quote(str(id), safe=""), *(quote(part, safe="") for part in rest)])


def entry_error(entry: Mapping[str, Any]) -> WindlassError:
    """Error of one entry of a batch."""
    error = entry.get("error") or entry
    code = str(error.get("code", ""))
    status = {"not_found": 404, "no_parent": 404, "payload_too_large": 413}.get(code, 409)
    return refusal(status, code, str(error.get("message", "")), error.get("id"))


# --- pushes -----------------------------------------------------------------------------------------------------------

#: Ids of a push, or the errors of the jobs that were refused.
Pushed = list[int | WindlassError]


def _pushed(said: Any) -> Pushed:
    ids: Pushed = list(said["ids"])
    for entry in said.get("refused") or ():
        ids[entry["index"]] = entry_error(entry)
    return ids


def push(jobs: Iterable[str]) -> Ask[Pushed]:
    """Push of jobs, each as JSON text."""
    body = '{"jobs":[' + ",".join(jobs) + "]}"
    return Ask("POST", "/api/v1/jobs", _pushed, body.encode())


def push_full(job: Mapping[str, Any]) -> Ask[dict[str, Any]]:
    """Push of one job; the result is the response of the server."""
    return _post("/api/v1/jobs", job, _same)


# --- runs -------------------------------------------------------------------------------------------------------------


def claim(wanted: Mapping[str, Any], limit: int, wait: float) -> Ask[list[dict[str, Any]]]:
    body = {**wanted, "limit": limit, "wait_ms": round(wait * 1000)}
    return _post("/api/v1/claim", body, lambda said: list(said["jobs"]), waits=wait)


def settle(entries: Iterable[bytes], claims: Mapping[str, Any] | None) -> Ask[dict[str, Any]]:
    """Reports of ended runs; with `claims` also a claim of the next jobs."""
    more = b"" if claims is None else b',"claim":' + dumps(claims).encode()
    return Ask("POST", "/api/v1/settle", _same, b'{"settle":[' + b",".join(entries) + b"]" + more + b"}")


def extend(entries: list[dict[str, Any]]) -> Ask[list[dict[str, Any]]]:
    return _post("/api/v1/extend", {"extend": entries}, lambda said: list(said["extended"]), errors="replace")


def log(id: int, token: int, lines: list[str]) -> Ask[Any]:
    return _post(_job(id, "log"), {"token": token, "lines": lines}, _same, errors="replace")


def keep_steps(id: int, token: int, steps: Iterable[str]) -> Ask[list[dict[str, Any]]]:
    body = f'{{"token":{token},"steps":[{",".join(steps)}]}}'
    return Ask("POST", _job(id, "steps"), lambda said: list(said["steps"]), body.encode())


# --- jobs -------------------------------------------------------------------------------------------------------------


def info(id: int | str) -> Ask[dict[str, Any]]:
    return Ask("GET", _job(id), _same)


def by_alias(alias: str) -> Ask[dict[str, Any]]:
    return Ask("GET", f"/api/v1/aliases/{quote(alias, safe='')}", _same)


def result(id: int | str, wait: float) -> Ask[dict[str, Any]]:
    return Ask("GET", f"{_job(id, 'result')}?wait_ms={round(wait * 1000)}", _same, waits=wait)


def children(id: int | str) -> Generator[Ask[Any], Any, list[dict[str, Any]]]:
    """Calls for all children of a job, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        query = "" if cursor is None else f"?cursor={quote(cursor)}"
        page = yield Ask("GET", _job(id, "children") + query, _same)
        found += page["jobs"]
        cursor = page.get("next")
        if cursor is None:
            return found


def act(id: int | str, action: str, body: Mapping[str, Any] | None = None) -> Ask[dict[str, Any]]:
    """Action of an operator: cancel, retry, run."""
    return _post(_job(id, action), dict(body or {}), _same)


def signal(id: int | str, name: str, payload: Any) -> Ask[bool]:
    return _post(_job(id, "signal", name), payload, lambda said: bool(said["woken"]))


def change_schedule(id: int, repeat: str) -> Ask[dict[str, Any]]:
    return Ask("PATCH", f"/api/v1/schedules/{id}", _same, dumps({"repeat": repeat}).encode())
