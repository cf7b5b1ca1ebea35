"""Measures the libraries of Windlass beside Celery and BullMQ: no-op jobs, one producer and one worker process each.

Started by compare-celery-bullmq.sh, which says where the programs are. Every contestant has servers of its own, on free loopback ports
with temporary folders; they are measured in turns, and the best of all rounds counts for each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass import dev

HERE = Path(__file__).parent
# Longest time of one measurement, and of the end of a program after it.
WITHIN_S, END_S = 300.0, 20.0
TICKS = os.sysconf("SC_CLK_TCK")
# Above this share of other work a comparison says nothing.
OTHERS_MAX = 0.10

Running = tuple[int, dict[str, str]]
"""Process id of a server, and the environment for its clients."""


@contextlib.contextmanager
def windlass(durability: str) -> Iterator[Running]:
    with dev.server(["--durability", durability]) as server:
        process = server._process
        assert process is not None
        yield process.pid, {"WINDLASS_SERVER": server.url}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def redis(*flags: str) -> Iterator[Running]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *flags]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + END_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.02)
            yield process.pid, {"REDIS_URL": f"redis://127.0.0.1:{port}/0", "REDIS_PORT": str(port)}
        finally:
            # Without a snapshot of what is thrown away.
            process.kill()
            process.wait()


@dataclass
class Contestant:
    """Library with a server. Each list of actions gets a new server."""

    name: str
    language: str
    command: list[str]
    server: Callable[[], contextlib.AbstractContextManager[Running]]
    plan: list[list[str]]
    figures: dict[str, list[Figure]] = field(default_factory=dict)


@dataclass
class Figure:
    jobs_per_s: float
    server_us: float
    client_us: float
    others: float

    def shown(self) -> str:
        return f"{self.jobs_per_s:,.0f}"


def cpu_of(pid: int) -> float:
    """CPU time of a running process and its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of_machine() -> float:
    fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def run(contestant: Contestant, running: Running, action: str, count: int) -> Figure:
    """Runs one action in a process of its own."""
    pid, environment = running
    before = cpu_of(pid), cpu_of_children(), cpu_of_machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        result = Path(folder) / "result.json"
        command = [*contestant.command, action, str(count), str(result)]
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL
        )
        try:
            while not result.exists():
                if process.poll() is not None and not result.exists():
                    raise RuntimeError(f"{contestant.name}, {action}: ended with {process.returncode}")
                if time.monotonic() - before[3] > WITHIN_S:
                    raise RuntimeError(f"{contestant.name}, {action}: not done after {WITHIN_S:.0f} s")
                time.sleep(0.02)
            seconds = json.loads(result.read_text())["seconds"]
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    server, client = cpu_of(pid) - before[0], cpu_of_children() - before[1]
    elapsed = (time.monotonic() - before[3]) * (os.cpu_count() or 1)
    others = max(0.0, cpu_of_machine() - before[2] - server - client) / elapsed
    return Figure(count / seconds, server / count * 1e6, client / count * 1e6, others)


def contestants(node_modules: str, celery: str) -> list[Contestant]:
    python, node = [sys.executable, str(HERE / "with_windlass.py")], ["node", str(HERE / "with_windlass.mjs")]
    of_celery, of_bullmq = [celery, str(HERE / "with_celery.py")], ["node", str(HERE / "with_bullmq.mjs")]
    os.environ["MODULES"] = node_modules
    in_python = [["push each"], ["push many", "work"], ["push at once", "work functions"]]
    in_celery = [["push each"], ["push shared", "work solo"], ["push group", "work threads"], ["push shared", "work prefork"]]
    in_node = [["push each"], ["push many", "work"], ["push at once", "work"]]
    always = ["--appendonly", "yes", "--appendfsync", "always"]
    return [
        Contestant("Windlass", "Python", python, lambda: windlass("full"), in_python),
        Contestant("Windlass, relaxed", "Python", python, lambda: windlass("relaxed"), in_python),
        Contestant("Celery", "Python", of_celery, redis, in_celery),
        Contestant("Celery, appendfsync always", "Python", of_celery, lambda: redis(*always), in_celery),
        Contestant("Windlass", "Node", node, lambda: windlass("full"), in_node),
        Contestant("Windlass, relaxed", "Node", node, lambda: windlass("relaxed"), in_node),
        Contestant("BullMQ", "Node", of_bullmq, redis, in_node),
        Contestant("BullMQ, appendfsync always", "Node", of_bullmq, lambda: redis(*always), in_node),
    ]


KINDS = {"push, one at a time": ("push each",), "push, many": ("push many", "push at once", "push shared", "push group")}
WORK = "work"


def kind_of(action: str) -> str:
    return next((kind for kind, actions in KINDS.items() if action in actions), WORK)


def best(contestant: Contestant, kind: str) -> tuple[str, Figure]:
    """Quickest way of this kind, in the best of all rounds."""
    found = [(action, figure) for action, all in contestant.figures.items() if kind_of(action) == kind for figure in all]
    return max(found, key=lambda pair: pair[1].jobs_per_s)


def table(all: list[Contestant]) -> Iterator[str]:
    yield "| | library and server | best way | jobs/s | server CPU us/job | client CPU us/job | others' CPU % |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for kind in (*KINDS, WORK):
        for contestant in all:
            way, figure = best(contestant, kind)
            costs = f"{figure.server_us:.0f} | {figure.client_us:.0f} | {figure.others * 100:.0f}"
            yield f"| {kind} | {contestant.language}: {contestant.name} | {way} | {figure.shown()} | {costs} |"


def ratios(all: list[Contestant]) -> Iterator[str]:
    by = {(contestant.language, contestant.name): contestant for contestant in all}
    yield "| | Windlass, `full` | the other, as installed | ratio | target | |"
    yield "|---|---:|---:|---:|---:|---|"
    for language, other in (("Python", "Celery"), ("Node", "BullMQ")):
        for kind in (*KINDS, WORK):
            (_, ours), (_, theirs) = best(by[language, "Windlass"], kind), best(by[language, other], kind)
            ratio = ours.jobs_per_s / theirs.jobs_per_s
            word = "met" if ratio >= 2 else "missed"
            others = max(ours.others, theirs.others)
            note = f"; disturbed: {others * 100:.0f} % other work" if others > OTHERS_MAX else ""
            yield f"| {kind}, beside {other} | {ours.shown()} | {theirs.shown()} | {ratio:.2f}x | ≥ 2x | {word}{note} |"


def rounds(all: list[Contestant]) -> Iterator[str]:
    yield "Every round, in jobs/s:"
    yield ""
    for contestant in all:
        ways = (f"{action} " + " / ".join(figure.shown() for figure in found) for action, found in contestant.figures.items())
        yield f"* {contestant.language}: {contestant.name}: {', '.join(ways)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--each", type=int, default=4_000, help="jobs that are pushed one at a time")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs that are pushed together and worked on")
    parser.add_argument("--modules", required=True, help="folder with the npm package bullmq")
    parser.add_argument("--celery", required=True, help="Python with the package celery")
    parser.add_argument("--save", required=True, help="path of the result files, without ending")
    options = parser.parse_args()
    # Ends every program that was started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    all = contestants(options.modules, options.celery)
    for round in range(1, options.rounds + 1):
        for contestant in all:
            print(f"round {round}: {contestant.language}: {contestant.name}", file=sys.stderr)
            for actions in contestant.plan:
                with contestant.server() as running:
                    for action in actions:
                        count = options.each if action == "push each" else options.jobs
                        figure = run(contestant, running, action, count)
                        contestant.figures.setdefault(action, []).append(figure)
    lines = [*ratios(all), "", *table(all), "", *rounds(all)]
    Path(f"{options.save}.md").write_text("\n".join(lines) + "\n")
    saved: list[Any] = [
        {"name": c.name, "language": c.language, "figures": {a: [vars(f) for f in found] for a, found in c.figures.items()}}
        for c in all
    ]
    Path(f"{options.save}.json").write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
