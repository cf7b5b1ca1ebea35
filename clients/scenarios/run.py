#!/usr/bin/env python3
"""Runs the scenarios of this folder against a real server, with the worker program of a language.

    run.py --server-bin target/release/windlass --worker 'python3 reference_worker.py'

Several lanes work at once; each has a server and a worker of its own, which its scenarios kill and start again.
Exit code 0: all scenarios went as expected. README.md describes the format of the scenarios.
"""

import argparse
import contextlib
import fnmatch
import os
import queue
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

from expand import load
from play import Play
from sandbox import Sandbox, Trouble


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server-bin", required=True, help="the program windlass")
    parser.add_argument("--worker", required=True, help="command of the worker program; no shell")
    parser.add_argument("--only", action="append", help="name of a scenario or a file, with * for any text; several times")
    parser.add_argument("--store", help="postgres://…: each lane gets a schema of its own")
    parser.add_argument("--database", action="store_true", help="also scenarios that restart the database: prints `restart database` and waits for a line on standard input")
    parser.add_argument("--flag", action="append", default=[], help="further argument of the server; several times")
    parser.add_argument("--jobs", type=int, default=12, help="scenarios that run at once (12)")
    parser.add_argument("--within", type=float, default=300, help="seconds for all scenarios together (300)")
    parser.add_argument("--patience", type=float, default=1.0, help="factor for the times within which scenarios must end (1)")
    parser.add_argument("--folder", default=Path(__file__).parent, help="folder of the scenarios")
    parser.add_argument("--list", action="store_true", help="prints the names and ends")
    parser.add_argument("--keep", action="store_true", help="keeps the folders of failed scenarios")
    return parser.parse_args()


class Runner:
    def __init__(self, args, scenarios):
        self.args = args
        # The slowest first, so that none of them is alone at the end.
        self.todo = queue.Queue()
        for scenario in sorted(scenarios, key=lambda scenario: -scenario.get("within_s", 0)):
            self.todo.put(scenario)
        self.lock, self.boxes = threading.Lock(), set()
        self.failed, self.passed, self.closing = [], 0, False
        self.one_restart, self.lanes = threading.Lock(), []

    def restart_database(self, how):
        """Asks the caller of this program to restart the database."""
        with self.one_restart:
            print(f"{how} database", flush=True)
            if not sys.stdin.readline():
                raise Trouble("nobody restarts the database")

    def new_box(self):
        schema = f"scenarios_{uuid.uuid4().hex}" if self.args.store else None
        box = Sandbox(os.path.abspath(self.args.server_bin), self.args.worker, self.args.store, schema, self.args.flag)
        # Known before it has processes, so that `close` finds them.
        with self.lock:
            self.boxes.add(box)
        # Not while the database is away: a new server has to make its tables.
        with self.one_restart if self.args.database else contextlib.nullcontext():
            try:
                if self.closing:
                    raise Trouble("the runner ends")
                box.start()
            except BaseException:
                self.drop(box)
                raise
        return box

    def drop(self, box, keep=False):
        with self.lock:
            self.boxes.discard(box)
        box.close(keep)

    def lane(self):
        box = None
        while not self.closing:
            try:
                scenario = self.todo.get_nowait()
            except queue.Empty:
                break
            box = self.play(scenario, box)
        if box:
            self.drop(box)

    def play(self, scenario, box):
        """Plays a scenario; the sandbox for the next one, if this one has left it clean."""
        began, trouble, is_over = time.monotonic(), None, False
        try:
            if box is None:
                box = self.new_box()
            play = Play(scenario, box, self.restart_database, self.one_restart, self.args.patience)
            play.run()
            is_over = play.is_over()
        except Trouble as error:
            trouble = str(error)
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        self.tell(scenario, trouble, time.monotonic() - began, box)
        if is_over and not trouble:
            box.clear()
            return box
        if box:
            self.drop(box, keep=bool(trouble) and self.args.keep)
        return None

    def tell(self, scenario, trouble, took_s, box):
        with self.lock:
            if trouble is None:
                self.passed += 1
                print(f"ok      {took_s:6.2f} s  {scenario['name']}", flush=True)
                return
            self.failed.append(scenario["name"])
            print(f"FAILED  {took_s:6.2f} s  {scenario['name']} ({scenario['file']}.yaml): {trouble}", flush=True)
            if box:
                for name in ("worker.log", "server.log"):
                    text = box.tail(name, 12)
                    if text:
                        print(f"    {name}:\n" + "\n".join(f"        {line[:300]}" for line in text.splitlines()), flush=True)
                if self.args.keep:
                    print(f"    folder {box.folder}", flush=True)

    def close(self):
        """Ends all lanes with their processes."""
        self.closing, end = True, time.monotonic() + 3
        with self.lock:
            boxes = list(self.boxes)
        for box in boxes:
            self.drop(box)
        # A lane may be starting a server.
        for lane in self.lanes:
            lane.join(max(0.0, end - time.monotonic()))

    def run(self):
        """True if all scenarios went as expected, within the time."""
        lanes = self.lanes = [threading.Thread(target=self.lane, daemon=True) for _ in range(min(self.args.jobs, self.todo.qsize()))]
        end = time.monotonic() + self.args.within
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join(max(0.0, end - time.monotonic()))
        is_over = not any(lane.is_alive() for lane in lanes)
        if not is_over:
            print(f"FAILED: not at the end after {self.args.within} s", flush=True)
        return is_over and not self.failed and not self.todo.qsize()


def is_wanted(scenario, only):
    return not only or any(fnmatch.fnmatch(name, pattern) for pattern in only for name in (scenario["name"], scenario["file"]))


def end(*_):
    """Ends in order; a second signal does not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def main():
    args = arguments()
    scenarios = [scenario for scenario in load(args.folder) if is_wanted(scenario, args.only)]
    scenarios = [scenario for scenario in scenarios if scenario.get("needs") in (None, args.database and "database")]
    if args.list:
        print("\n".join(f"{scenario['file']}: {scenario['name']}" for scenario in scenarios))
        return 0
    if not scenarios:
        print("no scenario has this name")
        return 2
    signal.signal(signal.SIGTERM, end)
    runner, began = Runner(args, scenarios), time.monotonic()
    try:
        is_well = runner.run()
    finally:
        runner.close()
    is_well = is_well and runner.passed == len(scenarios)
    print(f"{runner.passed} of {len(scenarios)} scenarios passed in {time.monotonic() - began:.1f} s; failed: {', '.join(runner.failed) or 'none'}", flush=True)
    # Threads that are still waiting for something end with the process.
    sys.stdout.flush()
    os._exit(0 if is_well else 1)


if __name__ == "__main__":
    sys.exit(main())
