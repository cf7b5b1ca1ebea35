"""A real server for tests and for trying things out.

    import pytest
    from windlass import Windlass, dev

    @pytest.fixture
    def app():
        with dev.server() as server:
            yield Windlass(server.url)

The binary is `WINDLASS_BIN`, else `windlass` on the path. Its data is in a temporary folder, its port is a free one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

# Until a server accepts connections, and until it has ended.
START_S, STOP_S = 60.0, 30.0


def binary() -> str:
    """Path of the server's binary."""
    found = os.environ.get("WINDLASS_BIN") or shutil.which("windlass")
    if found is None:
        raise FileNotFoundError("there is no windlass on the path; set WINDLASS_BIN")
    return found


class Server:
    """Real server on a temporary store; `url` is its address."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._folder = tempfile.TemporaryDirectory(prefix="windlass-dev-")
        self._process: subprocess.Popen[bytes] | None = None
        self._http = "127.0.0.1:0"
        self.url = ""

    def start(self) -> None:
        """Starts the server; a second time with the same data and the same address."""
        folder = Path(self._folder.name)
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [binary(), "serve", "--data", str(folder / "data"), "--http", self._http, "--bedrock", "off"]
        command += ["--mdns", "off", "--ready-file", str(ready), *self._arguments]
        with open(folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"the server did not start:\n{(folder / 'log').read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)
        self._http = json.loads(ready.read_text())["http"]
        self.url = f"http://{self._http}"

    def stop(self) -> None:
        """Ends the server in good order."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """Kills the server, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()


@contextlib.contextmanager
def server(arguments: Sequence[str] = ()) -> Iterator[Server]:
    """Context manager: a real server, for example `server(["--store", "memory:"])`."""
    with Server(*arguments) as started:
        yield started
