"""Server and worker program of a lane: processes in a folder of their own, that scenarios kill and start again."""

import http.client
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

START_S = 30.0
# Below the range from which systems choose ports themselves, so that nobody takes the port of a killed server.
PORTS = (15_000, 32_000)


class Trouble(Exception):
    """A scenario that did not go as expected."""


class Sandbox:
    """Folder, server and workers. `deaths` counts the workers that died by SIGKILL, `kills` the kills of the server."""

    def __init__(self, server_bin, worker, store=None, flags=()):
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-scenario-"))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.server_bin, self.command, self.store, self.flags = server_bin, shlex.split(worker), store, flags
        self.lock = threading.RLock()
        self.server, self.port, self.deaths, self.trouble, self.kills = None, 0, 0, None, 0
        self.workers, self.watchers, self.wanted = [], [], 0
        self.connections = threading.local()
        try:
            self.start_server()
            self.start_worker()
        except BaseException:
            self.close()
            raise

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # The server

    def start_server(self):
        """Starts the server on the port it had; a first start chooses one."""
        # A process that the killed server has just started may hold the port for another moment.
        ports = [self.port] * 20 if self.port else random.sample(range(*PORTS), 20)
        for port in ports:
            ready = self.folder / "ready.json"
            ready.unlink(missing_ok=True)
            line = [self.server_bin, "serve", "--http", f"127.0.0.1:{port}", "--bedrock", "off", "--mdns", "off"]
            line += ["--ready-file", str(ready), "--store", self.store] if self.store else ["--ready-file", str(ready), "--data", "data"]
            env = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
            with open(self.folder / "server.log", "ab") as log:
                self.server = subprocess.Popen([*line, *self.flags], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if self.until_ready(ready):
                self.port = port
                return
            time.sleep(0.1)
        raise Trouble(f"the server does not start:\n{self.tail('server.log')}")

    def until_ready(self, ready):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if ready.exists():
                return True
            if self.server.poll() is not None:
                return False
            time.sleep(0.005)
        return False

    def kill_server(self):
        self.kills += 1
        self.server.kill()
        self.server.wait()
        self.disconnect()

    # Workers

    def start_worker(self):
        with self.lock:
            self.wanted += 1
            self.spawn()

    def spawn(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        env.update(WINDLASS_SERVER=self.url(), SCENARIO_DIR=str(self.files))
        with open(self.folder / "worker.log", "ab") as log:
            child = subprocess.Popen(self.command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.workers.append(child)
        watcher = threading.Thread(target=self.watch, args=(child,), daemon=True)
        self.watchers.append(watcher)
        watcher.start()

    def watch(self, child):
        """Starts a worker again that died by SIGKILL while it was wanted."""
        code = child.wait()
        with self.lock:
            if child not in self.workers:
                return
            self.workers.remove(child)
            if code == -signal.SIGKILL:
                self.deaths += 1
                if len(self.workers) < self.wanted:
                    self.spawn()
            else:
                self.trouble = f"a worker ended by itself with code {code}:\n{self.tail('worker.log')}"

    def signal_worker(self, number, which):
        with self.lock:
            self.workers[number].send_signal(which)

    def kill_worker(self):
        """Kills the first worker; it is started again."""
        deaths = self.deaths
        self.signal_worker(0, signal.SIGKILL)
        self.until(lambda: self.deaths > deaths, "the killed worker is gone")

    def stop_worker(self):
        """Asks the first worker to stop, and waits until it has."""
        with self.lock:
            child = self.workers.pop(0)
            self.wanted -= 1
        child.send_signal(signal.SIGTERM)
        try:
            code = child.wait(START_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise Trouble("a worker does not end after SIGTERM") from None
        if code != 0:
            raise Trouble(f"a worker ended with code {code} after SIGTERM:\n{self.tail('worker.log')}")

    def until(self, is_so, what, within_s=START_S):
        end = time.monotonic() + within_s
        while not is_so():
            if self.trouble:
                raise Trouble(self.trouble)
            if time.monotonic() > end:
                raise Trouble(f"not so within {within_s} s: {what}")
            time.sleep(0.01)

    # Requests

    def call(self, method, path, body=None, timeout=30.0):
        """Sends one request: status and answer."""
        connection = getattr(self.connections, "open", None)
        if connection is None:
            connection = self.connections.open = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            self.disconnect()
            raise
        return answer.status, json.loads(data) if data else None

    def disconnect(self):
        connection, self.connections.open = getattr(self.connections, "open", None), None
        if connection:
            connection.close()

    # The files of the worker program

    def effects(self):
        """How often each label is in the file `effects`."""
        file, counts = self.files / "effects", {}
        for label in file.read_text().splitlines() if file.exists() else []:
            counts[label] = counts.get(label, 0) + 1
        return counts

    def clear(self):
        """Removes the files of the last scenario, for the next one."""
        self.deaths, self.trouble, self.kills = 0, None, 0
        for file in self.files.iterdir():
            file.unlink()

    def tail(self, name, lines=25):
        file = self.folder / name
        text = file.read_text(errors="replace") if file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self, keep=False):
        """Ends all processes; removes the folder unless it is to be kept."""
        with self.lock:
            self.wanted, children = 0, [*self.workers, self.server]
            self.workers = []
        for child in filter(None, children):
            if child.poll() is None:
                child.kill()
            child.wait()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
