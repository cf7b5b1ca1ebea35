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
    """Folder, server and workers. `deaths` counts the workers that died by SIGKILL."""

    def __init__(self, server_bin, worker, store=None, schema=None, flags=()):
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-scenario-"))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.server_bin, self.command, self.flags = server_bin, shlex.split(worker), flags
        self.store, self.schema = store, schema
        self.lock = threading.RLock()
        self.server, self.port, self.deaths, self.trouble, self.is_closed = None, 0, 0, None, False
        self.workers, self.watchers, self.wanted = [], [], 0
        self.connections = threading.local()

    def start(self):
        self.start_server()
        self.start_worker()

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
            line += ["--ready-file", str(ready), *(["--store", self.store_url()] if self.store else ["--data", "data"])]
            with self.lock:
                self.server = self.process([*line, *self.flags], "server.log", cwd=self.folder)
            if self.until_ready(ready):
                self.port = port
                return
            time.sleep(0.1)
        raise Trouble(f"the server does not start:\n{self.tail('server.log')}")

    def store_url(self):
        return f"{self.store}{'&' if '?' in self.store else '?'}schema={self.schema}"

    def process(self, line, log, cwd=None, **more):
        """Starts a process. The caller holds the lock: `close` ends all processes, and there are none after it."""
        if self.is_closed:
            raise Trouble("the runner ends")
        env = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")} | more
        with open(self.folder / log, "ab") as output:
            return subprocess.Popen(line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def until_ready(self, ready):
        """True as soon as the server is ready; false if it has ended. A server that does neither is killed."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if ready.exists():
                return True
            if self.server.poll() is not None:
                return False
            time.sleep(0.005)
        self.server.kill()
        self.server.wait()
        raise Trouble(f"the server is not ready after {START_S} s:\n{self.tail('server.log')}")

    def kill_server(self):
        self.server.kill()
        self.server.wait()
        self.disconnect()

    # Workers

    def start_worker(self):
        with self.lock:
            self.wanted += 1
            self.spawn()

    def spawn(self):
        child = self.process(self.command, "worker.log", WINDLASS_SERVER=self.url(), SCENARIO_DIR=str(self.files))
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
                self.trouble = self.ended(code)

    def ended(self, code):
        return f"a worker ended by itself with code {code}:\n{self.tail('worker.log')}"

    def check_workers(self):
        """Raises `Trouble` if a worker has ended by itself, also in this moment."""
        with self.lock:
            codes = [child.poll() for child in self.workers]
        trouble = self.trouble or next((self.ended(code) for code in codes if code not in (None, -signal.SIGKILL)), None)
        if trouble:
            raise Trouble(trouble)

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
        self.deaths = 0
        for file in self.files.iterdir():
            file.unlink()

    def tail(self, name, lines=25):
        file = self.folder / name
        text = file.read_text(errors="replace") if file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self, keep=False):
        """Ends all processes; removes the schema, and the folder unless both are to be kept."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed, self.wanted, children = True, 0, [*self.workers, self.server]
            self.workers = []
        for child in filter(None, children):
            if child.poll() is None:
                child.kill()
            child.wait()
        if not keep:
            self.drop_schema()
            shutil.rmtree(self.folder, ignore_errors=True)

    def drop_schema(self):
        if not self.schema:
            return
        line = ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", "SET client_min_messages = error", "-c", f"DROP SCHEMA IF EXISTS {self.schema} CASCADE", self.store]
        # The database may be starting again.
        for pause_s in (0.5, 1.0, 0.0):
            try:
                done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10.0)
            except (OSError, subprocess.TimeoutExpired) as error:
                problem = str(error)
                break
            if done.returncode == 0:
                return
            problem = done.stderr.strip()
            time.sleep(pause_s)
        print(f"schema left behind: {self.schema} ({problem})", flush=True)
