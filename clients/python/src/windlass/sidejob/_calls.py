"""Calls of the protocol: request, and parser of the response. Shared by both clients; sends nothing itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from .._http import Address
from ._errors import Unreachable, refusal

#: Address of a server with default settings.
URL = "http://127.0.0.1:7373/sidejob"

#: A value that JSON can hold. (`Any`, because readers know what they expect, and checkers do not.)
Json: TypeAlias = Any
#: Ports to be declared: names, or names with options such as `{"default": 10}`.
Declared: TypeAlias = Iterable[str] | Mapping[str, Mapping[str, Json]]
Side: TypeAlias = Literal["inports", "outports"]

T = TypeVar("T")

_log_context: ContextVar[Mapping[str, Json]] = ContextVar("windlass_sidejob_log_context", default={})


class _Missing:
    """Marker for a missing value, different from `None`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True)
class Ask(Generic[T]):
    """One call."""

    method: str
    path: str
    read: Callable[[Json], T]
    body: Mapping[str, Json] | None = None
    #: Seconds the server may wait before it answers, beside those it needs.
    waits: float = 0.0

    def encoded(self) -> bytes | None:
        """Request body; calls that change something include the current log context."""
        if self.method == "GET":
            return None
        body = dict(self.body or {})
        context = _log_context.get()
        if context and self.method == "POST":
            body["log_context"] = {**context, **body.get("log_context", {})}
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()

    def answer(self, status: int, body: bytes) -> T:
        """Returns the result of the call, or raises its error."""
        try:
            said = json.loads(body) if body else None
        except ValueError as error:
            # As what stands between us and the server answers in its place.
            raise refusal(status, f"the response is not JSON: {body[:200]!r}") from error
        if 200 <= status < 300:
            return self.read(said)
        message = said.get("error") if isinstance(said, dict) else None
        raise refusal(status, str(message or f"the server responded with status {status}"))


@dataclass(frozen=True)
class PortInfo:
    """Size and default of a port."""

    size: int
    #: Whether there is one; `None` is a default, too.
    has_default: bool
    default: Json = None


@dataclass(frozen=True)
class JobInfo:
    """Status, state, ports and children of a job."""

    id: int
    status: str
    queue: str
    cls: str
    args: list[Json] | None
    created_by: str | None
    created_at: str
    ran_at: str | None
    parent: int | None
    #: All of it, what the job itself keeps included.
    state: dict[str, Json]
    inports: dict[str, PortInfo]
    outports: dict[str, PortInfo]
    children: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Claimed:
    """Claimed run."""

    job: int
    cls: str
    args: list[Json]
    kind: str
    token: str
    lease_s: float
    state: dict[str, Json]


@dataclass(frozen=True)
class Inputs:
    """Response of `for_inputs`."""

    next: str
    values: tuple[Json, ...]
    defaults: bool


Write: TypeAlias = dict[str, Json]


def address(url: str, token: str | None) -> Address:
    """Address of the server, whose outages are raised as `Unreachable`."""
    return Address(url, token, Unreachable)


# --- reading answers --------------------------------------------------------------------------------------------------


def _nothing(_: Json) -> None:
    return None


def _port_info(said: Json) -> PortInfo:
    return PortInfo(size=said["size"], has_default="default" in said, default=said.get("default"))


def _ports(said: Json) -> dict[str, PortInfo]:
    return {name: _port_info(port) for name, port in said.items()}


def _job_info(said: Json) -> JobInfo:
    state = said["state"]
    return JobInfo(
        id=said["job"],
        status=said.get("status", state.get("status")),
        queue=state["queue"],
        cls=state["class"],
        args=state.get("args"),
        created_by=state.get("created_by"),
        created_at=state["created_at"],
        ran_at=state.get("ran_at"),
        parent=state.get("parent"),
        state=state,
        inports=_ports(said["inports"]),
        outports=_ports(said["outports"]),
        children=dict(said.get("children", {})),
    )


def _claimed(said: Json) -> Claimed | None:
    if not said:
        return None
    return Claimed(
        job=said["job"],
        cls=said["class"],
        args=said.get("args") or [],
        kind=said["kind"],
        token=str(said["token"]),
        lease_s=float(said.get("lease", 60)),
        state=said.get("state", {}),
    )


def _inputs(said: Json) -> Inputs:
    return Inputs(said["next"], tuple(said.get("values", ())), bool(said.get("defaults", False)))


# --- writing what is asked --------------------------------------------------------------------------------------------


def declared(ports: Declared | None) -> dict[str, Json] | None:
    """Ports with their options."""
    if ports is None:
        return None
    if isinstance(ports, Mapping):
        return {name: dict(options) for name, options in ports.items()}
    return {name: {} for name in ports}


def moment(at: datetime | float | None) -> Json:
    """Seconds since 1970."""
    return at.timestamp() if isinstance(at, datetime) else at


def _given(**fields: Json) -> dict[str, Json]:
    return {key: value for key, value in fields.items() if value is not None}


def _job(id: int, *rest: str) -> str:
    return "/".join(["/jobs", str(int(id)), *(quote(part, safe="*") for part in rest)])


def register(queue: str, classes: Mapping[str, Mapping[str, Json]]) -> Ask[None]:
    return Ask("PUT", f"/workers/{quote(queue, safe='')}", _nothing, dict(classes))


def registered(queue: str) -> Ask[dict[str, Json]]:
    return Ask("GET", f"/workers/{quote(queue, safe='')}", dict)


def create(
    queue: str,
    cls: str,
    args: Sequence[Json],
    *,
    parent: int | None,
    name: str | None,
    by: str | None,
    at: datetime | float | None,
    wait: float | None,
    inports: Declared | None,
    outports: Declared | None,
    token: str | None = None,
) -> Ask[int]:
    body = _given(
        parent=parent,
        name=name,
        by=by,
        at=moment(at),
        wait=wait,
        inports=declared(inports),
        outports=declared(outports),
        token=token,
    )
    if args:
        body["args"] = list(args)
    body |= {"queue": queue, "class": cls}
    return Ask("POST", "/jobs", lambda said: int(said["job"]), body)


def info(id: int) -> Ask[JobInfo]:
    return Ask("GET", _job(id), _job_info)


def delete(id: int) -> Ask[bool]:
    return Ask("DELETE", _job(id), lambda said: bool(said["delete"]))


def run(id: int, *, force: bool, at: datetime | float | None, wait: float | None, parent: bool) -> Ask[int | None]:
    body = _given(at=moment(at), wait=wait) | {"force": force, "parent": parent}
    return Ask("POST", _job(id, "run"), lambda said: said["run"], body)


def terminate(id: int, *, recursive: bool) -> Ask[str]:
    return Ask("POST", _job(id, "terminate"), lambda said: str(said["status"]), {"recursive": recursive})


def set_status(id: int, status: str) -> Ask[str]:
    return Ask("POST", _job(id, "status"), lambda said: str(said["status"]), {"status": status})


def state(id: int) -> Ask[dict[str, Json]]:
    return Ask("GET", _job(id, "state"), dict)


def set_state(id: int, values: Mapping[str, Json]) -> Ask[None]:
    return Ask("POST", _job(id, "state"), _nothing, dict(values))


def unset(id: int, keys: Sequence[str]) -> Ask[None]:
    return Ask("POST", _job(id, "unset"), _nothing, {"keys": list(keys)})


def children(id: int) -> Ask[dict[str, int]]:
    return Ask("GET", _job(id, "children"), dict)


def child(id: int, name: str) -> Ask[int | None]:
    return Ask("GET", _job(id, "child", name), lambda said: said.get("job"))


def adopt(id: int, child: int, name: str) -> Ask[None]:
    return Ask("POST", _job(id, "adopt"), _nothing, {"child": child, "name": name})


def disown(id: int, child: int | str) -> Ask[None]:
    body: dict[str, Json] = {"name": child} if isinstance(child, str) else {"child": child}
    return Ask("POST", _job(id, "disown"), _nothing, body)


def set_ports(id: int, inports: Declared | None, outports: Declared | None) -> Ask[None]:
    body = _given(inports=declared(inports), outports=declared(outports))
    return Ask("POST", _job(id, "ports"), _nothing, body)


def lock(id: int, ttl: float) -> Ask[str | None]:
    return Ask("POST", _job(id, "lock"), lambda said: said["token"], {"ttl": ttl})


def refresh_lock(id: int, token: str, ttl: float) -> Ask[bool]:
    return Ask("POST", _job(id, "refresh_lock"), lambda said: bool(said["refresh"]), {"ttl": ttl, "token": token})


def unlock(id: int, token: str) -> Ask[bool]:
    return Ask("POST", _job(id, "unlock"), lambda said: bool(said["unlock"]), {"token": token})


# --- ports ------------------------------------------------------------------------------------------------------------


def port_info(id: int, side: Side, port: str) -> Ask[PortInfo]:
    return Ask("GET", _job(id, side, port), _port_info)


def read(id: int, side: Side, port: str) -> Ask[Json]:
    return Ask("POST", _job(id, side, port, "read"), lambda said: said.get("data", MISSING))


def entries(id: int, side: Side, port: str) -> Ask[list[Json]]:
    return Ask("POST", _job(id, side, port, "entries"), lambda said: list(said["entries"]))


def write(id: int, side: Side, port: str, values: Sequence[Json]) -> Ask[None]:
    body: dict[str, Json] = {"data": values[0]} if len(values) == 1 else {"list": list(values)}
    return Ask("POST", _job(id, side, port, "write"), _nothing, body)


def set_default(id: int, side: Side, port: str, default: Json) -> Ask[None]:
    body = {} if default is MISSING else {"default": default}
    return Ask("POST", _job(id, side, port, "default"), _nothing, body)


def connect(id: int, side: Side, port: str, to: Sequence[Mapping[str, Json]]) -> Ask[list[Json]]:
    return Ask("POST", _job(id, side, port, "connect"), lambda said: list(said["data"]), {"to": list(to)})


def port_at(job: int, side: Side, port: str) -> Write:
    """Port as it is written in a request body."""
    return {"job": job, side.removesuffix("s"): port}


# --- runs -------------------------------------------------------------------------------------------------------------


def presence(worker: str) -> Ask[None]:
    """Presence call; its response stays open while the worker lives."""
    return Ask("POST", "/presence", _nothing, {"worker": worker})


def claim(
    queue: str, *, wait: float, worker: str, classes: Sequence[str], lease: float | None = None
) -> Ask[Claimed | None]:
    body = _given(lease=lease) | {"wait": wait, "worker": worker, "classes": list(classes)}
    return Ask("POST", f"/queues/{quote(queue, safe='')}/claim", _claimed, body, waits=wait)


def for_inputs(id: int, token: str, names: Sequence[str], writes: Sequence[Write]) -> Ask[Inputs]:
    body = {"inports": list(names), "token": token, "writes": list(writes)}
    return Ask("POST", _job(id, "for_inputs"), _inputs, body)


def finish(
    id: int,
    token: str,
    status: str,
    *,
    error: str | None = None,
    backtrace: str | None = None,
    writes: Sequence[Write] = (),
) -> Ask[str]:
    body = _given(error=error, backtrace=backtrace) | {"token": token, "status": status}
    if writes:
        body["writes"] = list(writes)
    return Ask("POST", _job(id, "finish"), lambda said: str(said["status"]), body)


# --- the log ----------------------------------------------------------------------------------------------------------


def logs(limit: int | None, after: int | None) -> Ask[list[dict[str, Json]]]:
    query = "&".join(f"{key}={value}" for key, value in _given(limit=limit, after=after).items())
    return Ask("GET", "/logs" + (f"?{query}" if query else ""), list)


def clear_logs() -> Ask[list[dict[str, Json]]]:
    return Ask("DELETE", "/logs", list)


def log(entry: Mapping[str, Json]) -> Ask[None]:
    return Ask("POST", "/logs", _nothing, {"entry": dict(entry)})
