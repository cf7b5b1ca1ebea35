#!/usr/bin/env python3
"""Pictures of the web UI: benchmarks/ui_pictures.py [path to a binary] [--into FOLDER] [--fill ADDRESS]

Starts a server of its own on loopback with a temporary store, fills it with 5,000 jobs as a shop might have them, and takes
pictures of every page in headless Chromium, 1400 and 390 pixels wide, light and dark. With --fill, only fills the server at
that address (127.0.0.1:7373). Everything it starts is gone at the end.
"""
import base64
import http.client
import pathlib
import random
import shutil
import sys
import tempfile
import time
import urllib.parse

from ui import ROOT, Browser, Server, wait_for

JOBS = 5_000
WIDTHS = {"desk": (1400, 900), "phone": (390, 844)}
# Name, queue, share of the jobs, payload.
KINDS = [
    ("mail.send", "mail", 30, lambda n: {"to": f"customer{n}@example.org", "template": random.choice(["welcome", "receipt", "reminder"]), "order": 4_000 + n}),
    ("image.resize", "images", 20, lambda n: {"path": f"/photos/{n // 7}/{n}.jpg", "sizes": [160, 480, 1200]}),
    ("webhook.deliver", "webhooks", 18, lambda n: {"url": f"http://hooks.example.org/{n % 40}", "event": "order.paid", "order": 4_000 + n}),
    ("search.index", "index", 14, lambda n: {"kind": "product", "id": n}),
    ("invoice.create", "billing", 10, lambda n: {"order": 4_000 + n, "currency": "EUR", "total": f"{n % 900}.90"}),
    ("report.daily", "reports", 4, lambda n: {"day": f"2026-11-{1 + n % 15:02}", "team": n % 12}),
    ("video.transcode", "video", 4, lambda n: {"source": f"/uploads/{n}.mov", "formats": ["1080p", "720p"]}),
]
# Name, class, message, backtrace, and how many of the jobs fail that way.
FAILURES = [
    ("mail.send", "SMTPServerDisconnected", "Connection unexpectedly closed", 212, [
        "Traceback (most recent call last):", '  File "/srv/shop/workers/mail.py", line 88, in handle', "    smtp.send_message(message)",
        '  File "/usr/lib/python3.13/smtplib.py", line 992, in send_message', "    return self.sendmail(from_addr, to_addrs, flatmsg, mail_options,",
        '  File "/usr/lib/python3.13/smtplib.py", line 405, in getreply', '    raise SMTPServerDisconnected("Connection unexpectedly closed")',
        "smtplib.SMTPServerDisconnected: Connection unexpectedly closed"]),
    ("webhook.deliver", "HTTPError", "503 Service Unavailable for url: http://hooks.example.org/17", 96, [
        "Error: 503 Service Unavailable", "    at deliver (/srv/shop/src/webhooks.ts:41:11)", "    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)",
        "    at async Worker.run (/srv/shop/node_modules/windlass/dist/worker.js:77:7)"]),
    ("invoice.create", "KeyError", "'vat_number'", 31, ["Traceback (most recent call last):", '  File "/srv/shop/workers/billing.py", line 30, in handle', "    vat = customer['vat_number']", "KeyError: 'vat_number'"]),
    ("image.resize", "DecodeError", "/photos/12/89.jpg: not a JPEG file (starts with 0x52 0x49)", 18, []),
    ("video.transcode", None, "exit code 137 after 612 s", 6, []),
    ("report.daily", "TimeoutError", "statement timeout: SELECT sum(total) FROM orders WHERE day = $1", 4, ["TimeoutError: statement timeout", "  at Pool.query (/srv/shop/db.js:12:9)"]),
]


def claim(server, name, count, worker):
    """Claims by name, in the order of the pushes."""
    return server.call("POST", "claim", {"name": name, "limit": count, "worker": worker, "lease_ms": 3_600_000})["jobs"]


def settle(server, jobs, outcome):
    server.call("POST", "settle", {"settle": [{"id": one["id"], "token": one["token"], **outcome} for one in jobs]})


def push_all(server):
    random.seed(18)
    kinds = random.choices(KINDS, weights=[kind[2] for kind in KINDS], k=JOBS)
    jobs = [{"name": name, "queue": queue, "payload": make(n), "retry": {"max_attempts": 5, "backoff": {"fixed_ms": 600_000}}, "keep": {"completed_ms": 86_400_000}, **({"tags": ["vip"]} if n % 23 == 0 else {}),
             **({"alias": f"order-{4_000 + n}"} if name == "invoice.create" else {})} for n, (name, queue, _, make) in enumerate(kinds)]
    for start in range(0, JOBS, 1_000):
        server.call("POST", "jobs", {"jobs": jobs[start:start + 1_000]})


def fail_some(server):
    for name, kind, message, count, trace in FAILURES:
        worker = f"{name.split('.')[0]}-{random.randint(1, 4)}"
        claimed = claim(server, name, count, worker)
        failure = {"outcome": "fail", "message": message, **({"class": kind} if kind else {}), **({"backtrace": trace} if trace else {})}
        retrying, failed = claimed[:count // 6], claimed[count // 6:]
        settle(server, retrying, failure)
        settle(server, failed, {**failure, "retry": False})
    # Further attempts of some jobs, each with its own failure.
    server.call("POST", "jobs/bulk", {"action": "priority", "priority": -10, "search": "state:retrying name:mail.send"})
    for message in ("Connection unexpectedly closed", "please run connect() first"):
        server.call("POST", "jobs/bulk", {"action": "run", "search": "state:retrying name:mail.send"})
        again = claim(server, "mail.send", FAILURES[0][3] // 6, "mail-2")
        settle(server, again, {"outcome": "fail", "class": "SMTPServerDisconnected", "message": message, "backtrace": FAILURES[0][4]})


def finish_most(server):
    for name, _, share, _ in KINDS:
        for part in range(3):
            claimed = claim(server, name, JOBS * share // 420, f"{name.split('.')[0]}-{part + 1}")
            time.sleep(0.01 * part)
            settle(server, claimed, {"outcome": "finish", "result": {"ok": True, "ms": 12 * share}})
        claim(server, name, 3, f"{name.split('.')[0]}-1")


def schedules_and_families(server):
    for name, rule, queue in (("report.nightly", "0 4 * * *", "reports"), ("cache.warm", "every 5m", "index"), ("backup.run", "30 2 * * 0", "maintenance"), ("currency.fetch", "every 1h", "billing")):
        server.call("POST", "jobs", {"name": name, "queue": queue, "repeat": rule, "payload": {"by": "schedule"}})
    for name, outcome in (("cache.warm", {"outcome": "finish"}), ("currency.fetch", {"outcome": "fail", "class": "ConnectTimeout", "message": "rates.example.org:443", "retry": False})):
        settle(server, claim(server, name, 1, "cron-1"), outcome)
    parent = server.call("POST", "jobs", {"name": "import.catalog", "queue": "import", "payload": {"file": "catalog.csv"}})["id"]
    held = claim(server, "import.catalog", 1, "import-1")
    children = server.call("POST", "jobs", {"jobs": [{"name": f"import.{part}", "queue": "import", "parent": parent} for part in ("products", "prices", "stock", "images")]})["ids"]
    settle(server, held, {"outcome": "finish"})
    middle = claim(server, "import.images", 1, "import-2")
    server.call("POST", "jobs", {"jobs": [{"name": "image.resize", "queue": "import", "parent": children[3], "payload": {"n": n}} for n in range(6)]})
    settle(server, middle, {"outcome": "finish"})
    settle(server, claim(server, "import.products", 1, "import-2"), {"outcome": "finish"})
    server.call("PUT", "limits/webhooks-per-host", {"matcher": {"queue": "webhooks"}, "max_running": 4, "group_by": [["url"]]})
    server.call("PUT", "limits/mail-rate", {"matcher": {"name_glob": "mail*"}, "rate": {"per_second": 20, "burst": 40}})
    return parent


def fill(server):
    push_all(server)
    fail_some(server)
    finish_most(server)
    return schedules_and_families(server)


def first_of(server, search):
    return server.call("GET", "jobs?limit=1&search=" + urllib.parse.quote(search))["jobs"][0]["id"]


def pages_of(server, parent):
    failed, retrying = first_of(server, "state:failed name:mail.send"), first_of(server, "state:retrying name:mail.send")
    return [("overview", ""), ("jobs", "jobs"), ("failed-jobs", "jobs?search=state%3Afailed"), ("failures", "failures"), ("job-failed", f"job/{failed}"), ("job-retrying", f"job/{retrying}"),
            ("family", f"job/{parent}"), ("queues", "queues"), ("queue", "queue/mail"), ("schedules", "schedules"), ("limits", "limits"), ("workers", "workers"), ("audit", "audit"),
            ("push", "push"), ("missing", "no/such/page")]


def take(browser, address, pages, folder):
    for width, (x, y) in WIDTHS.items():
        for theme in ("light", "dark"):
            browser.devtools("Emulation.setDeviceMetricsOverride", {"width": x, "height": y, "deviceScaleFactor": 1, "mobile": False})
            browser.devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
            for name, path in pages:
                browser.tell("POST", "/url", {"url": f"http://{address}/ui/#/{path}"})
                wait_for(f"{name} is drawn", lambda: browser.js("document.querySelector('main h1') !== null"))
                time.sleep(0.7)
                picture = base64.b64decode(browser.tell("GET", "/screenshot", None))
                (folder / f"{name}-{width}-{theme}.png").write_bytes(picture)


def option(args, name):
    if name not in args:
        return None
    at = args.index(name)
    value = args[at + 1]
    del args[at:at + 2]
    return value


def main():
    args = sys.argv[1:]
    address, into = option(args, "--fill"), pathlib.Path(option(args, "--into") or ROOT / "target/pictures")
    if address:
        server = Server.__new__(Server)
        server.connection = http.client.HTTPConnection(*address.rsplit(":", 1))
        print(f"filled; the parent of a family is job {fill(server)}")
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="windlass-ui-"))
    into.mkdir(parents=True, exist_ok=True)
    server = browser = None
    try:
        server = Server(args[0] if args else str(ROOT / "target/debug/windlass"), folder)
        parent = fill(server)
        browser = Browser(folder)
        take(browser, server.address, pages_of(server, parent), into)
    finally:
        if browser:
            browser.close()
        if server:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
