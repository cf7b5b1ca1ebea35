"""Python's side of a context: waits for orders, runs the handler's code, says how it ended.

Standard input is a socket to the server; what is said on it is described in frames.rs. The handler's code never sees it: the
socket is moved away, standard input becomes empty, and what is printed goes to the server with the job that printed it.

The parts of a handler are statements. before, beforeEach and afterEach are run as a module is, so what they define is there for
all; the body is made a function of (payload, job), so it can return, and its own names are its own.
"""

import ast
import io
import json
import os
import sys
import threading
import traceback
from time import monotonic

# Output is sent in pieces of this size, so that endless output takes no memory here.
PIECE_BYTES = 64 * 1024
RESULT_BYTES_MAX = int(os.environ["WINDLASS_RESULT_MAX"])
# Jobs that were sent together are begun for this long; the rest go back to the server, which may have others to run.
PART_SECONDS = 0.02

line = os.dup(0)
os.set_inheritable(line, False)
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
orders = open(line, "rb", buffering=PIECE_BYTES, closefd=False)
own_pid = os.getpid()
speaking = threading.RLock()


def say(header, body=b""):
    """Writes one frame. Threads of the handler may print while a reply is on its way."""
    frame = b"%s %d\n%s" % (header, len(body), body)
    with speaking:
        if os.getpid() != own_pid:
            return  # A copy of this process has nothing to say for it.
        while frame:
            frame = frame[os.write(line, frame):]


class Printed(io.RawIOBase):
    """Where print() and sys.stdout.buffer lead to."""

    def __init__(self, stream):
        super().__init__()
        self.header = b"+ %d" % stream
        self.stream = stream

    def writable(self):
        return True

    def fileno(self):
        return self.stream

    def write(self, data):
        data = bytes(data)
        for at in range(0, len(data), PIECE_BYTES):
            say(self.header, data[at:at + PIECE_BYTES])
        return len(data)


def printing_to(stream):
    raw = io.BufferedWriter(Printed(stream), PIECE_BYTES)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", newline="\n")


# Kept here as well: a handler may put something else in their place, or close them.
streams = {}


def renew_streams():
    for stream, name in ((1, "stdout"), (2, "stderr")):
        if stream not in streams or streams[stream].closed:
            streams[stream] = printing_to(stream)
        setattr(sys, name, streams[stream])


def flush_streams():
    """What a job has printed is told before how it ended."""
    for stream in streams.values():
        try:
            stream.flush()
        except ValueError:
            pass  # The handler has closed it.
    for current in (sys.stdout, sys.stderr):
        if current not in streams.values():
            try:
                current.flush()
            except Exception:
                pass
    if sys.stdout is not streams[1] or sys.stderr is not streams[2] or streams[1].closed or streams[2].closed:
        renew_streams()


def as_bytes(data):
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    return json.dumps(data).encode()


def status_of(value):
    """What a body gave back: nothing, a status, a result, or (status, result)."""
    if value is None:
        return b"200", b""
    if isinstance(value, tuple) and len(value) == 2 and type(value[0]) is int:
        status, data = value
        value, data = status, b"" if data is None else as_bytes(data)
    elif type(value) is int:
        data = b""
    else:
        return b"200", as_bytes(value)
    if 100 <= value <= 599:
        return b"%d" % value, data
    return b"?", b"%d is no status from 100 to 599" % value


def exit_code(stop):
    """What sys.exit() was called with, as Python itself would understand it."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def attempt(what, work, *arguments):
    """Runs one part and tells how it ended. Whether it went well."""
    try:
        status, data = status_of(work(*arguments))
    except SystemExit as stop:
        status, data = b"x%d" % exit_code(stop), b""
    except BaseException as error:
        if os.getpid() == own_pid:
            tell_exception(error)
        status, data = b"!", ("%s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")[:4096]
    if os.getpid() != own_pid:
        os._exit(0)  # The handler forked and its copy came back here: one of us is enough.
    flush_streams()
    if len(data) > RESULT_BYTES_MAX:
        status, data = b">", b""
    say(b"= %s %s" % (what, status), data)
    return status[:1] == b"2" or status == b"x0"


def tell_exception(error):
    # The shim's own frames say nothing to the author of a handler.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    try:
        traceback.print_exception(type(error), error, trace)
    except Exception:
        pass


# What the parts of all handlers of this context see as their module.
shared = {"__name__": "__handler__", "__builtins__": __builtins__}


def module_part(name, source):
    code = compile(source, "<%s>" % name, "exec")
    return lambda: exec(code, shared)


def body_part(source, parameters):
    tree = ast.parse(source, "<body>")
    function = ast.parse("def body(%s): pass" % parameters).body[0]
    function.body = tree.body or function.body
    tree.body = [function]
    scope = {}
    exec(compile(ast.fix_missing_locations(tree), "<body>", "exec"), shared, scope)
    return scope["body"]


class Handler:
    def __init__(self, parts):
        self.parts = parts
        self.body = self.whole = None

    def begin(self):
        """Its before, and whatever can be wrong with its other parts."""
        if self.parts["before"] is not None:
            module_part("before", self.parts["before"])()
        self.before_each = self.part("beforeEach")
        self.after_each = self.part("afterEach")
        self.body = body_part(self.parts["body"], "payload, job")
        self.whole = body_part(self.parts["body"], "payloads, jobs")

    def part(self, name):
        return None if self.parts[name] is None else module_part(name, self.parts[name])


def read_job(jobtype):
    _, job, attempt_number, length = orders.readline().split()
    payload = orders.read(int(length)).decode("utf-8", "surrogateescape")
    return payload, {"id": job.decode(), "attempt": int(attempt_number), "jobtype": jobtype}


def run_part(handler, count):
    """At least one job is run; what is not begun in time is thrown away here and sent again by the server."""
    began = monotonic()
    for number in range(count):
        payload, job = read_job(handler.parts["jobtype"])
        if number > 0 and monotonic() - began > PART_SECONDS:
            for _ in range(number + 1, count):
                read_job("")
            say(b"= c 200")
            return
        attempt(b"%d" % number, handler.body, payload, job)


def run_batch(handler, count, mode):
    jobtype = handler.parts["jobtype"]
    if handler.before_each is not None and not attempt(b"e", handler.before_each):
        # The server ends this context; nothing may be run in it.
        orders.read()
        return
    if mode == b"all":
        payloads, jobs = zip(*(read_job(jobtype) for _ in range(count)))
        attempt(b"B", handler.whole, list(payloads), list(jobs))
    else:
        run_part(handler, count)


def main():
    handlers = {}
    current = None
    renew_streams()
    say(b"# ready")
    while True:
        order = orders.readline().split()
        if not order:
            os._exit(0)
        if order[0] == b"H":
            handler = handlers[order[1]] = Handler(json.loads(orders.read(int(order[2]))))
            attempt(b"b", handler.begin)
        elif order[0] == b"B":
            current = handlers[order[1]]
            run_batch(current, int(order[2]), order[3])
        elif order[0] == b"M":
            run_part(current, int(order[1]))
        elif order[0] == b"E":
            attempt(b"a", current.after_each)


main()
