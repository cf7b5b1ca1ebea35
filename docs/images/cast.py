#!/usr/bin/env python3
"""Makes cast.svg: an animated picture of three terminals, from what the program really prints.

    docs/images/cast.py target/release/windlass > docs/images/cast.svg

The port 7373 must be free. Commands are typed at a fixed speed; output appears when it came.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass, field
from html import escape

COLUMNS = 92
CHAR, LINE, PAD, TITLE = 8.0, 18, 14, 24
TYPING_S = 0.028
SETTLE_S = 0.7
#: The whole picture is shown before and after the recording, so that the first frame says something.
LEAD_S, HOLD_S = 3.0, 5.0

SEND_MAIL = """#!/bin/sh
[ "$WINDLASS_JOB_ATTEMPT" -lt 3 ] && { echo "smtp: connection refused" >&2; exit 1; }
echo "sent to $(cat)"
"""

#: Pane and command; `&` leaves it running.
SCRIPT = [
    ("server", "windlass &"),
    ("worker", "windlass work mail --concurrency 8 -- ./send-mail &"),
    ("you", "windlass push mail ann@example.org --wait"),
    ("you", "windlass push report --repeat 'TZ=Europe/Berlin 0 9 * * MON-FRI'"),
    ("you", "windlass push mail bob@example.org --delay 1h --unique welcome-bob"),
    ("you", "windlass push mail bob@example.org --delay 1h --unique welcome-bob"),
    ("you", "windlass jobs"),
]

CSS = """
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:var(--fg);white-space:pre}
.t{fill:var(--dim);font-size:11px}.b{font-weight:700}.d{fill:var(--dim)}.p{fill:var(--dim)}
.r{fill:var(--red)}.g{fill:var(--green)}.y{fill:var(--yellow)}.c{fill:var(--cyan)}
.pane{fill:var(--bg);stroke:var(--line)}.cover{fill:var(--bg)}
svg{--bg:#f6f8fa;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--red:#b3261e;--green:#1a7f37;--yellow:#7d4e00;--cyan:#0b6a8f}
@media(prefers-color-scheme:dark){svg{--bg:#151b23;--fg:#e6edf3;--dim:#9198a1;--line:#3d444d;--red:#ff8e86;--green:#57d364;--yellow:#e3b341;--cyan:#6cc7ee}}
@media(prefers-reduced-motion:reduce){*{animation:none!important}.cover{display:none}}
"""
CODES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c", "90": "d"}


@dataclass
class Line:
    """Line of a terminal, with the time at which it appears."""

    at: float
    text: str
    typed_until: float | None = None


@dataclass
class Pane:
    """Terminal with its lines so far."""

    name: str
    lines: list[Line] = field(default_factory=list)
    rest: str = ""

    def print(self, at: float, data: bytes) -> None:
        """Adds output; a line appears when it is complete."""
        self.rest += data.decode()
        *complete, self.rest = self.rest.split("\n")
        # A progress line is erased before the next one; the last one stays.
        self.lines.extend(Line(at, line.split("\x1b[2K")[-1].rstrip("\r")) for line in complete)


class Recorder:
    """Runs the script and records the terminals."""

    def __init__(self, program: str, folder: str) -> None:
        self.started = time.monotonic()
        self.panes = {name: Pane(name) for name, _ in SCRIPT}
        self.folder = folder
        self.is_over = False
        self.left: list[subprocess.Popen[bytes]] = []
        path = os.path.dirname(os.path.abspath(program))
        self.environment = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "HOME": folder,
            "TERM": "xterm-256color",
            "WINDLASS_LOG_LEVEL": "warn",
            "WINDLASS_BEDROCK": "off",
            "WINDLASS_MDNS": "off",
        }

    def now(self) -> float:
        return time.monotonic() - self.started

    def run(self) -> float:
        """Runs all commands; returns the time at the end."""
        try:
            for name, command in SCRIPT:
                pane = self.panes[name]
                is_left = command.endswith(" &")
                command = command.removesuffix(" &")
                line = Line(self.now(), f"$ {command}")
                pane.lines.append(line)
                time.sleep(TYPING_S * len(command))
                line.typed_until = self.now()
                self.start(pane, command, is_left=is_left)
                time.sleep(SETTLE_S)
            self.is_over = True
            return self.now()
        finally:
            for process in reversed(self.left):
                process.terminate()
                process.wait()

    def start(self, pane: Pane, command: str, *, is_left: bool) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self.folder, env=self.environment,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        reader = threading.Thread(target=self.read, args=(pane, ours), daemon=True)
        reader.start()
        if is_left:
            self.left.append(process)
        else:
            process.wait(timeout=60)
            reader.join()

    def read(self, pane: Pane, ours: int) -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # The other side is closed.
                return
            if self.is_over:
                return
            pane.print(self.now(), data)


def segments(text: str) -> list[tuple[int, str, str]]:
    """Column, class and text of each part of a line in one colour."""
    found, column, style = [], 0, ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b["):
            style = " ".join(CODES.get(code, "") for code in part[2:-1].split(";")).strip()
            continue
        for piece in re.finditer(r"\S+(?: \S+)*", part):
            found.append((column + piece.start(), style, piece.group()))
        column += len(part)
    return found


def tag(column: int, y: float, style: str, text: str) -> str:
    attribute = f' class="{style}"' if style else ""
    length = f"{len(text) * CHAR:g}"
    return f'<text x="{PAD + column * CHAR:g}" y="{y:g}" textLength="{length}"{attribute}>{escape(text, quote=False)}</text>'


def draw(panes: list[Pane], end: float) -> str:
    """The picture. Everything is visible without animation."""
    total = LEAD_S + end + HOLD_S
    body, rules, y = [], [], 0.0
    width = COLUMNS * CHAR + 2 * PAD

    def percent(at: float) -> str:
        return f"{(LEAD_S + at) / total * 100:.2f}%"

    for number, pane in enumerate(panes):
        height = TITLE + len(pane.lines) * LINE + 12
        body.append(f'<rect class="pane" x=".5" y="{y + 0.5:g}" width="{width - 1:g}" height="{height:g}" rx="8"/>')
        body.append(f'<text class="t" x="{PAD}" y="{y + 17:g}">{pane.name}</text>')
        for index, line in enumerate(pane.lines):
            base = y + TITLE + index * LINE + 14
            name = f"l{number}-{index}"
            hidden = f"{percent(-0.01)}{{opacity:1}}{percent(0)},{percent(line.at)}{{opacity:0}}"
            rules.append(f"@keyframes {name}{{0%,{hidden}{percent(line.at + 0.01)},to{{opacity:1}}}}")
            body.append(f'<g style="animation:{name} {total:.1f}s infinite">')
            if line.typed_until is None:
                body.extend(tag(column, base, style, text) for column, style, text in segments(line.text))
            else:
                body.append(tag(0, base, "p", "$") + tag(2, base, "", line.text[2:]))
                length = (len(line.text) - 2) * CHAR + 4
                gone = f"{{transform:translateX({length:g}px)}}"
                steps = f"{{transform:none;animation-timing-function:steps({len(line.text) - 2})}}"
                covered = f"0%,{percent(-0.01)}{gone}{percent(0)}{{transform:none}}{percent(line.at)}{steps}"
                rules.append(f"@keyframes t{name}{{{covered}{percent(line.typed_until)},to{gone}}}")
                body.append(f'<svg x="{PAD + 2 * CHAR:g}" y="{base - 14:g}" width="{length:g}" height="{LINE}">')
                body.append(
                    f'<rect class="cover" width="{length:g}" height="{LINE}" '
                    f'style="transform:translateX({length:g}px);animation:t{name} {total:.1f}s infinite"/></svg>'
                )
            body.append("</g>")
        y += height + 10
    label = "Three terminals: a server, a worker whose job fails twice and then succeeds, and commands that push and list jobs"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {y - 8:g}" width="{width:g}" role="img" aria-label="{label}">'
    return f"{head}<style>{CSS}{''.join(rules)}</style>{''.join(body)}</svg>\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "send-mail")
        with open(script, "w") as file:
            file.write(SEND_MAIL)
        os.chmod(script, 0o755)
        recorder = Recorder(sys.argv[1], folder)
        end = recorder.run()
        print(draw(list(recorder.panes.values()), end), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
