"""HTTP transports with kept-alive connections, for threads and asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Bytes of one line of a response's head, and of the body; responses of the server are far smaller.
LINE_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 256 * 1024 * 1024


class Ask(Protocol[T_co]):
    """Call of the server: its request, and the parser of its response."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def waits(self) -> float:
        """Seconds for which the server may delay its response."""

    def encoded(self) -> bytes | None:
        """Request body."""

    def answer(self, status: int, body: bytes) -> T_co:
        """Returns the result of the call, or raises its error."""


class Outage(ConnectionError):
    """Unreachable server. Each library has its own subclass."""

    url: str | None = None


class Address:
    """Server URL and access token. `outage` makes the exception for an unreachable server."""

    def __init__(self, url: str, token: str | None, outage: Callable[[str], Outage]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server URL must have the form http://127.0.0.1:7373, not {url!r}")
        self.url, self.outage = url, outage
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.is_tls else 80)
        self.path = parts.path.rstrip("/")
        self.headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"Host: {host}:{self.port}", *(f"{name}: {value}" for name, value in self.headers.items())]
        self._head = "\r\n".join(lines)

    def request(self, ask: Ask[T]) -> bytes:
        """Bytes of a request."""
        body = ask.encoded() or b""
        first = f"{ask.method} {self.path}{ask.path} HTTP/1.1\r\n"
        return f"{first}{self._head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def unreachable(self, error: BaseException) -> Outage:
        raised = self.outage(f"cannot call {self.url}: {error or type(error).__name__}")
        raised.url = self.url
        return raised

    def answer(self, ask: Ask[T], status: int, body: bytes) -> T:
        """Returns the result of the call, or raises its error with the URL of the server."""
        if not body:
            # All answers have one: this is the piece of an answer, of which the head was cut off.
            raise self.unreachable(EOFError("the connection was closed"))
        try:
            return ask.answer(status, body)
        except Outage as error:
            error.url = self.url
            raise


def read_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of a response; names of headers in small letters. Raises `ValueError` if it is none."""
    lines = head.split(b"\r\n")
    version, _, rest = lines[0].partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise ValueError("the response is not HTTP")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.lower()] = value.strip()
    return int(rest[:3]), headers


def body_bytes(headers: dict[bytes, bytes]) -> int | None:
    """Length of the body; `None` if it comes in chunks."""
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return None
    length = int(headers.get(b"content-length", b"0"))
    if length > BODY_BYTES_MAX:
        raise ValueError(f"a response of {length} bytes is too large")
    return length


def is_kept_alive(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"connection", b"").lower() != b"close"


class Connection:
    """Connection of a thread."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.sock: socket.socket = socket.create_connection((address.host, address.port), timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.is_tls:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=address.host)
        self._reader = self.sock.makefile("rb", LINE_BYTES_MAX)

    def exchange(self, request: bytes) -> tuple[int, bytes, bool]:
        """Status and body of the response, and whether the connection can be used again."""
        self.sock.sendall(request)
        head = []
        while (line := self._line()) != b"\r\n":
            head.append(line)
        status, headers = read_head(b"".join(head))
        length = body_bytes(headers)
        return status, self._chunks() if length is None else self._exactly(length), is_kept_alive(headers)

    def _line(self) -> bytes:
        """Reads a complete line: a truncated number would be another number."""
        line: bytes = self._reader.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line

    def _exactly(self, length: int) -> bytes:
        data: bytes = self._reader.read(length)
        if len(data) < length:
            raise EOFError("the connection was closed")
        return data

    def _chunks(self) -> bytes:
        chunks = []
        while size := int(self._line().split(b";")[0], 16):
            chunks.append(self._exactly(size))
            self._exactly(2)
        self._line()
        return b"".join(chunks)

    def is_closed(self) -> bool:
        """True if the server has closed an idle connection: nothing else is to be read on it."""
        if hasattr(select, "poll"):
            # Unlike `select`, for any number of open files.
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self.sock], [], [], 0)[0])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._reader.close()
        self.sock.close()


class Transport:
    """Transport for threads: one connection per thread."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address, self.timeout_s = address, timeout_s
        self._local = threading.local()
        self._all: weakref.WeakSet[Connection | http.client.HTTPConnection] = weakref.WeakSet()

    def send(self, ask: Ask[T]) -> T:
        status, body = self._exchange(self.address.request(ask), self.timeout_s + ask.waits)
        return self.address.answer(ask, status, body)

    def lines(self, ask: Ask[None]) -> Iterator[bytes]:
        """Yields lines of an endless response; its end counts as an outage."""
        kind = http.client.HTTPSConnection if self.address.is_tls else http.client.HTTPConnection
        connection = kind(self.address.host, self.address.port, timeout=self.timeout_s)
        self._all.add(connection)
        try:
            connection.request(ask.method, self.address.path + ask.path, ask.encoded(), self.address.headers)
            response = connection.getresponse()
            if response.status != 200:
                self.address.answer(ask, response.status, response.read())
            while line := response.readline():
                yield line
            raise EOFError("the connection was closed")
        except (OSError, EOFError, http.client.HTTPException, ValueError, AttributeError) as error:
            # The last two are raised if it is closed by another thread.
            if isinstance(error, Outage):
                raise
            raise self.address.unreachable(error) from error
        finally:
            connection.close()

    def _exchange(self, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        connection = self._kept()
        try:
            if connection is None:
                connection = Connection(self.address, self.timeout_s)
                self._all.add(connection)
            connection.sock.settimeout(timeout_s)
            status, body, is_kept = connection.exchange(request)
        except BaseException as error:
            # Also if the thread is interrupted: an unread response must not be taken for that of the next request.
            if connection is not None:
                connection.close()
            if isinstance(error, (OSError, EOFError, ValueError)):
                raise self.address.unreachable(error) from error
            raise
        if is_kept:
            self._local.connection = connection
        else:
            connection.close()
        return status, body

    def _kept(self) -> Connection | None:
        """Connection of this thread, unless the server has closed it, so that no request is sent twice."""
        connection: Connection | None = self._local.__dict__.pop("connection", None)
        if connection is None or connection.sock.fileno() < 0:
            return None
        if connection.is_closed():
            connection.close()
            return None
        return connection

    def close_own(self) -> None:
        """Closes the connection of this thread."""
        connection: Connection | None = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def hang_up(self) -> None:
        """Closes all connections, also those on which another thread waits for a response."""
        for connection in list(self._all):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes all connections; the next call opens a new one."""
        for connection in list(self._all):
            connection.close()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Timer:
    """Ends a call that takes too long, by closing its connection."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._handle: asyncio.TimerHandle | None = None
        #: Set when the time is over.
        self.error: asyncio.TimeoutError | None = None

    def start(self, writer: asyncio.StreamWriter) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._within_s, self._expire, writer)

    def _expire(self, writer: asyncio.StreamWriter) -> None:
        self.error = asyncio.TimeoutError(f"no response within {self._within_s:g} s")
        writer.transport.abort()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class AsyncTransport:
    """Transport for asyncio: connections are shared by the tasks of one event loop."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address, self.timeout_s = address, timeout_s
        self._idle: list[Streams] = []
        self._busy: set[asyncio.StreamWriter] = set()
        self._is_over = False

    async def send(self, ask: Ask[T]) -> T:
        timer = _Timer(self.timeout_s + ask.waits)
        try:
            status, body = await self._exchange(self.address.request(ask), timer)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError) as error:
            # A response that cannot be parsed is a part of one.
            raise self.address.unreachable(timer.error or error) from error
        finally:
            timer.stop()
        return self.address.answer(ask, status, body)

    async def _exchange(self, request: bytes, timer: _Timer) -> tuple[int, bytes]:
        kept = self._kept()
        reader, writer = kept if kept is not None else await asyncio.wait_for(self._connect(), self.timeout_s)
        is_kept = False
        self._busy.add(writer)
        timer.start(writer)
        try:
            if self._is_over:
                raise EOFError("the connection was closed")
            writer.write(request)
            await writer.drain()
            status, headers = read_head(await reader.readuntil(b"\r\n\r\n"))
            length = body_bytes(headers)
            body = await self._chunks(reader) if length is None else await reader.readexactly(length)
            is_kept = is_kept_alive(headers)
            return status, body
        finally:
            # Also when the task is cancelled: an unread response must not be taken for that of the next request.
            self._busy.discard(writer)
            if is_kept:
                self._idle.append((reader, writer))
            else:
                writer.close()

    def _kept(self) -> Streams | None:
        """Returns a connection that the server has not closed, so that no request is sent twice."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _connect(self) -> Streams:
        tls = ssl.create_default_context() if self.address.is_tls else None
        return await asyncio.open_connection(self.address.host, self.address.port, ssl=tls, limit=LINE_BYTES_MAX)

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        """Reads a complete line: a truncated number would be another number."""
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        chunks = []
        while size := int((await self._line(reader)).split(b";")[0], 16):
            chunks.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readline()
        return b"".join(chunks)

    def hang_up(self) -> None:
        """Ends calls that wait for a response, and makes no more. A response that is on its way is still read."""
        self._is_over = True
        for writer in list(self._busy):
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()

    async def close(self) -> None:
        """Closes all connections."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
