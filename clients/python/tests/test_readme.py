"""Programs of the README, against a real server (`WINDLASS_BIN`)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from common import PATIENCE_S, ServerTest

README = Path(__file__).parent.parent / "README.md"
SOURCE = Path(__file__).parent.parent / "src"
PROGRAM = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


class Programs(ServerTest):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in PROGRAM.findall(README.read_text()):
            (self.folder / name).write_text(text)
        path = os.pathsep.join([str(SOURCE), str(self.folder)])
        self.environment = {**os.environ, "WINDLASS_SERVER": self.server.url, "PYTHONPATH": path}

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.addCleanup(process.kill)
        return process

    def test_the_application_its_worker_and_its_producer(self) -> None:
        worker = self.started("-m", "windlass._cli", "shop:app", "--concurrency", "20")
        said, trouble = self.started("produce.py").communicate(timeout=PATIENCE_S)
        self.assertEqual(said, "welcome sent to ann@example.org\nwelcome sent to joe@example.org\n", trouble)
        worker.send_signal(signal.SIGTERM)
        trouble = worker.communicate(timeout=PATIENCE_S)[1]
        self.assertEqual(worker.returncode, 0, trouble)

    def test_the_tests(self) -> None:
        for name, test in (("test_orders", "test_an_order"), ("test_with_server", "test_on_a_real_server")):
            program = f"import {name}; {name}.{test}(); print('passed')"
            said, trouble = self.started("-c", program).communicate(timeout=PATIENCE_S)
            self.assertEqual(said, "passed\n", trouble)


if __name__ == "__main__":
    unittest.main()
