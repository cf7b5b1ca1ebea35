#!/usr/bin/env python3
"""What the web UI costs: benchmarks/ui.py [path to a release binary] [--jobs N]

Starts a server of its own on loopback with a temporary store, fills it with jobs in every state, and measures
  * the time of every call the pages make (server and loopback, without a browser),
  * how long the overview takes from nothing to usable in headless Chromium, and how many bytes that loads,
  * how much CPU time of the server an open overview takes, while nothing happens and while jobs come and go.
Prints a table as Markdown. Needs chromium and chromedriver (Debian: chromium, chromium-driver) and nothing else; everything
it starts is gone at the end.
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROUNDS = 20
WATCHED_S = 30
LOADS = 7
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Server:
    def __init__(self, binary, folder):
        ready = folder / "ready.json"
        command = [binary, "serve", "--data", folder / "data", "--http", "127.0.0.1:0", "--bedrock", "off", "--mdns", "off",
                   "--ready-file", ready]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the server is ready", lambda: ready.exists() and ready.read_text().strip())
        self.address = json.loads(ready.read_text())["http"]
        host, port = self.address.rsplit(":", 1)
        self.connection = http.client.HTTPConnection(host, int(port))

    def call(self, method, path, body=None):
        headers = {"content-type": "application/json"} if body is not None else {}
        self.connection.request(method, f"/api/v1/{path}", json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text)

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Browser:
    """As much of WebDriver as is needed here."""

    def __init__(self, folder):
        self.profile = str(folder / "profile")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.session = ""
        port = None
        for line in self.driver.stdout:
            if "successfully on port " in line:
                port = int(line.rsplit("port ", 1)[1].strip(" .\n"))
                break
        if port is None:
            raise SystemExit("chromedriver does not say where it listens")
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        threading.Thread(target=lambda: [None for _ in self.driver.stdout], daemon=True).start()
        args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={self.profile}"]
        options = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}}
        self.session = "/session/" + self.ask("POST", "/session", options)["sessionId"]

    def ask(self, method, path, body):
        self.connection.request(method, path, json.dumps(body) if body is not None else None)
        answer = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise SystemExit(f"{path}: {answer['message']}")
        return answer

    def tell(self, method, path, body):
        return self.ask(method, self.session + path, body)

    def js(self, expression):
        return self.tell("POST", "/execute/sync", {"script": f"return ({expression})", "args": []})

    def devtools(self, command, params):
        return self.tell("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def close(self):
        try:
            if self.session:
                self.ask("DELETE", self.session, None)
        finally:
            self.driver.kill()
            self.driver.wait()
            # A browser that would not end is known by its profile.
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if self.profile.encode() in (process / "cmdline").read_bytes():
                        os.kill(int(process.name), signal.SIGKILL)
                except (OSError, ValueError):
                    pass


def wait_for(what, look, seconds=60):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"waited in vain until {what}")


def fill(server, count):
    """Ready jobs, and some of every other kind."""
    job = lambda n: {"name": f"n{n % 50}", "queue": f"q{n % 8}", "payload": {"user_id": n, "to": "somebody@example.org"}}
    for start in range(0, count, 10_000):
        server.call("POST", "jobs", {"jobs": [job(n) for n in range(start, min(count, start + 10_000))]})
    for outcome, some in (("finish", 5_000), ("fail", 5_000)):
        claimed = server.call("POST", "claim", {"queue": "q1", "limit": some, "worker": "w"})["jobs"]
        end = {"outcome": outcome, **({"error": "it broke", "retry": False} if outcome == "fail" else {})}
        server.call("POST", "settle", {"settle": [{"id": one["id"], "token": one["token"], **end} for one in claimed]})
    server.call("POST", "claim", {"queue": "q2", "limit": 500, "worker": "w1", "lease_ms": 3_600_000})
    server.call("POST", "jobs", {"jobs": [{"name": f"tick{n}", "repeat": "0 4 * * *"} for n in range(200)]})
    server.call("PUT", "limits/slow", {"matcher": {"queue": "q3"}, "max_running": 1})
    server.call("POST", "claim", {"queue": "q3", "limit": 5, "worker": "w2", "lease_ms": 3_600_000})
    parent = server.call("POST", "jobs", {"name": "parent", "queue": "family"})["id"]
    server.call("POST", "claim", {"queue": "family", "worker": "w3", "lease_ms": 3_600_000})
    server.call("POST", "jobs", {"jobs": [{"name": "child", "parent": parent} for _ in range(1_000)]})
    return parent


def time_calls(server, parent):
    search = lambda words: "jobs?limit=50&search=" + urllib.parse.quote(words)
    calls = [
        ("overview", ["stats", "queues", "history?span=15m", "history?span=30d", "me"]),
        ("jobs", [search(""), search("state:ready"), search("state:failed"), search("queue:q3 name:n3*"), search("age>1h"),
                  search("args.user_id:77"), search("zzz"), "jobs/count?search=state:ready", "jobs/count?search=name:n3*"]),
        ("a job", ["jobs/5", f"jobs/{parent}", f"jobs/{parent}/family"]),
        ("queues", ["queues"]), ("schedules", ["schedules"]), ("limits", ["limits"]), ("workers", ["workers"]), ("blobs", ["blobs"]),
    ]
    rows = []
    for page, paths in calls:
        for path in paths:
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                server.call("GET", path)
                times.append((time.perf_counter() - began) * 1000)
            rows.append((page, urllib.parse.unquote(path), statistics.median(times), max(times)))
    return rows


def time_first_loads(server, browser):
    """From the start of the navigation to tiles with numbers in them, nothing in any cache."""
    browser.devtools("Network.enable", {})
    browser.devtools("Network.setCacheDisabled", {"cacheDisabled": True})
    watch = """
      const look = () => {
        if (/[0-9]/.test(document.querySelector('[data-state=ready] .value')?.textContent ?? '')) window.usableAt = performance.now();
        else requestAnimationFrame(look);
      };
      look();"""
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", {"source": watch})
    times = []
    for _ in range(LOADS):
        browser.tell("POST", "/url", {"url": "about:blank"})
        browser.tell("POST", "/url", {"url": f"http://{server.address}/ui/"})
        wait_for("the overview shows its numbers", lambda: browser.js("window.usableAt ?? 0"))
        times.append(browser.js("window.usableAt"))
    kinds = "['script', 'link', 'img', 'css', 'other']"
    size = f"""performance.getEntriesByType('resource').filter((one) => {kinds}.includes(one.initiatorType))
      .concat(performance.getEntriesByType('navigation')).reduce((sum, one) => sum + one.transferSize, 0)"""
    return times, browser.js(size)


def cpu_of_an_open_overview(server, busy):
    stop = threading.Event()

    def come_and_go():
        host, port = server.address.rsplit(":", 1)
        other = Server.__new__(Server)
        other.connection = http.client.HTTPConnection(host, int(port))
        while not stop.wait(0.1):
            other.call("POST", "jobs", {"name": "traffic", "queue": "traffic", "keep": {"completed_ms": 0}})
            claimed = other.call("POST", "claim", {"queue": "traffic"})["jobs"]
            other.call("POST", "settle", {"settle": [{"id": one["id"], "token": one["token"], "outcome": "finish"} for one in claimed]})

    thread = threading.Thread(target=come_and_go) if busy else None
    if thread:
        thread.start()
    time.sleep(3)
    began, before = time.monotonic(), server.cpu_s()
    time.sleep(WATCHED_S)
    percent = (server.cpu_s() - before) / (time.monotonic() - began) * 100
    stop.set()
    if thread:
        thread.join()
    return percent


def main():
    args = [arg for arg in sys.argv[1:]]
    count = int(args.pop(args.index("--jobs") + 1)) if "--jobs" in args else 1_000_000
    args = [arg for arg in args if arg != "--jobs"]
    binary = args[0] if args else str(ROOT / "target/release/windlass")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="windlass-ui-"))
    server = browser = None
    try:
        server = Server(binary, folder)
        parent = fill(server, count)
        rows = time_calls(server, parent)
        quiet, traffic = (cpu_of_an_open_overview(server, busy) for busy in (False, True))
        browser = Browser(folder)
        loads, size = time_first_loads(server, browser)
        open_quiet, open_traffic = (cpu_of_an_open_overview(server, busy) for busy in (False, True))
    finally:
        if browser:
            browser.close()
        if server:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    load = os.getloadavg()
    print(f"{count:,} jobs; load average at the end {load[0]:.1f}\n")
    print("| page | call | median ms | longest ms |\n|---|---|---:|---:|")
    for page, path, median, longest in rows:
        print(f"| {page} | `{path}` | {median:.1f} | {longest:.1f} |")
    print(f"\nFirst load of the overview, nothing cached: usable after {statistics.median(loads):.0f} ms (median of {LOADS}; "
          f"longest {max(loads):.0f} ms), {size / 1000:.0f} kB.\n")
    print("| server's CPU time, % of a core | nothing happens | 10 jobs/s come and go |\n|---|---:|---:|")
    print(f"| nobody looks | {quiet:.2f} | {traffic:.2f} |")
    print(f"| one open overview | {open_quiet:.2f} | {open_traffic:.2f} |")
    print(f"| what the overview costs | {open_quiet - quiet:.2f} | {open_traffic - traffic:.2f} |")


if __name__ == "__main__":
    main()
