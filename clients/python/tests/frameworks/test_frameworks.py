"""Programs of frameworks.md, run with the real frameworks against a real server (`WINDLASS_BIN`).

The frameworks are installed apart from the library: `fastapi`, `uvicorn`, `flask` and `django`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from windlass import Windlass, dev

PYTHON = Path(__file__).parent.parent.parent
PAGE = (PYTHON / "frameworks.md").read_text()
PROGRAM = re.compile(r"```python\n# ([\w/]+\.py)\n(.*?)```", re.DOTALL)
PROGRAMS = {name: text for name, text in PROGRAM.findall(PAGE)}
PATIENCE_S = 60.0

# What `django-admin startproject` makes, as far as the page needs it.
DJANGO = {
    "shop/__init__.py": "",
    "site_settings.py": """
from pathlib import Path
SECRET_KEY, ALLOWED_HOSTS, ROOT_URLCONF = "of this test", ["127.0.0.1"], "site_urls"
INSTALLED_APPS, DEFAULT_AUTO_FIELD = ["shop"], "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "shop.db", "OPTIONS": {"timeout": 30}}}
""",
    "site_urls.py": """
from django.urls import path
from shop import views
urlpatterns = [path("orders", views.order), path("orders/<int:order>", views.result)]
""",
}


def called(url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status of a call and its response; the response of an error only if it is JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Frameworks(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in {**PROGRAMS, **DJANGO}.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        self.server = dev.Server()
        self.server.start()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.app = Windlass(self.server.url)
        self.addCleanup(self.app.close)
        path = os.pathsep.join([str(PYTHON / "src"), str(self.folder)])
        self.environment = {
            **os.environ,
            "WINDLASS_SERVER": self.server.url,
            "PYTHONPATH": path,
            "DJANGO_SETTINGS_MODULE": "site_settings",
        }

    def started(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Program of Python, whose output is in a file and is shown if a test fails."""
        log = open(self.folder / "log", "ab")  # noqa: SIM115 (the process has it)
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment, stdout=log, stderr=log
        )
        log.close()
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4_000:]

    def serving(self, port: int, *arguments: str) -> subprocess.Popen[bytes]:
        """Web server, when it accepts connections."""
        process, until = self.started(*arguments), time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            except OSError:
                self.assertIsNone(process.poll(), self.said())
                self.assertLess(time.monotonic(), until, self.said())
                time.sleep(0.05)

    def working(self, target: str) -> None:
        self.started("-m", "windlass._cli", target, "--concurrency", "4")

    def pushes_and_waits(self, port: int) -> None:
        """Mail of the page, by the calls that FastAPI and Flask have in common."""
        mail, headers = f"http://127.0.0.1:{port}/mail", {"Idempotency-Key": "order-1"}
        status, pushed = called(mail, {"to": "ann@example.org"}, headers)
        self.assertEqual(status, 202, self.said())
        self.assertEqual(called(mail, {"to": "ann@example.org"}, headers), (202, pushed), "the same job")
        status, other = called(mail, {"to": "bob@example.org"})
        self.assertNotEqual(other["id"], pushed["id"])
        self.assertEqual(called(f"{mail}/999999"), (404, {"code": "not_found"}))
        self.working("jobs:app")
        self.app.job(other["id"]).wait(PATIENCE_S)
        self.app.job(pushed["id"]).wait(PATIENCE_S)
        self.assertEqual(called(f"{mail}/{pushed['id']}"), (200, {"sent": "ann@example.org"}))

    def test_the_page_has_all_programs(self) -> None:
        shop = ["shop_worker.py", "shop/jobs.py", "shop/models.py", "shop/views.py"]
        self.assertEqual(list(PROGRAMS), ["jobs.py", "fastapi_server.py", "flask_server.py", *shop])

    def test_fastapi(self) -> None:
        port = free_port()
        web = self.serving(port, "-m", "uvicorn", "fastapi_server:web", "--port", str(port))
        status, pushed = called(f"http://127.0.0.1:{port}/mail", {"to": "eve@example.org"})
        self.assertEqual(status, 202, self.said())
        mail = f"http://127.0.0.1:{port}/mail/{pushed['id']}"
        self.assertEqual(called(f"{mail}/state"), (200, {"state": "ready"}))
        self.assertEqual(called(mail), (202, {"state": "not yet"}))
        self.pushes_and_waits(port)
        web.send_signal(signal.SIGINT)
        web.wait(PATIENCE_S)
        self.assertNotIn("ERROR", self.said(), "connections are closed at the end")

    def test_flask(self) -> None:
        port = free_port()
        self.serving(port, "-m", "flask", "--app", "flask_server:web", "run", "--port", str(port))
        self.pushes_and_waits(port)

    def test_django(self) -> None:
        made = self.started("-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")
        self.assertEqual(made.wait(PATIENCE_S), 0, self.said())
        port = free_port()
        self.serving(port, "-m", "django", "runserver", "--noreload", f"127.0.0.1:{port}")
        orders = f"http://127.0.0.1:{port}/orders"
        self.assertEqual(called(orders, {"item": "lamp"}), (202, {"order": 1}), self.said())
        self.assertEqual(called(orders, {"item": ""})[0], 500, "the transaction is undone")
        self.assertEqual(called(orders, {"item": "chair"})[0], 202)
        listed = called(f"{self.server.url}/api/v1/jobs")[1]["jobs"]
        self.assertEqual([job["name"] for job in listed], ["confirm", "confirm"])
        self.working("shop_worker:app")
        self.app.job("order-1").wait(PATIENCE_S)
        self.assertEqual(called(f"{orders}/1"), (200, {"confirmed": "lamp"}), self.said())
        program = "import django; django.setup(); from shop.models import Order; print(Order.objects.get(pk=1).is_confirmed)"
        read = subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=self.environment, capture_output=True)
        self.assertEqual(read.stdout, b"True\n", read.stderr)


if __name__ == "__main__":
    unittest.main()
