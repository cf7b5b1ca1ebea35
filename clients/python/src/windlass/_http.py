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


class Transport:
    """Transport for threads: one connection per thread."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address, self.timeout_s = address, timeout_s
        self._local = threading.local()
        self._all: weakref.WeakSet[http.client.HTTPConnection] = weakref.WeakSet()

    def send(self, ask: Ask[T]) -> T:
        status, body = self._exchange(ask.method, self.address.path + ask.path, ask.encoded(), ask.waits)
        return self.address.answer(ask, status, body)

    def lines(self, ask: Ask[None]) -> Iterator[bytes]:
        """Yields lines of an endless response; its end counts as an outage."""
        connection = self._connect()
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

    def _exchange(self, method: str, path: str, body: bytes | None, waits_s: float) -> tuple[int, bytes]:
        connection = self._kept() or self._connect()
        try:
            connection.timeout = self.timeout_s + waits_s
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            connection.request(method, path, body, self.address.headers)
            response = connection.getresponse()
            answer = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self.address.unreachable(error) from error
        self._local.connection = connection
        return answer

    def _kept(self) -> http.client.HTTPConnection | None:
        """Connection of this thread; a new one if the server has closed it, so that no request is sent twice."""
        connection: http.client.HTTPConnection | None = self._local.__dict__.pop("connection", None)
        if connection is None or connection.sock is None:
            return connection
        # Nothing is to be read on an idle connection but its end.
        if select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.address.is_tls else http.client.HTTPConnection
        connection = kind(self.address.host, self.address.port, timeout=self.timeout_s)
        self._all.add(connection)
        return connection

    def close_own(self) -> None:
        """Closes the connection of this thread."""
        connection: http.client.HTTPConnection | None = self._local.__dict__.pop("connection", None)
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


class AsyncTransport:
    """Transport for asyncio: connections are shared by the tasks of one event loop."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address, self.timeout_s = address, timeout_s
        self._idle: list[Streams] = []
        self._busy: set[asyncio.StreamWriter] = set()
        self._is_over = False

    async def send(self, ask: Ask[T]) -> T:
        head = self._head(ask)
        try:
            status, body = await asyncio.wait_for(self._exchange(head), self.timeout_s + ask.waits)
        except (OSError, EOFError, ValueError, IndexError, asyncio.TimeoutError, asyncio.LimitOverrunError) as error:
            # What cannot be understood is the piece of an answer.
            raise self.address.unreachable(error) from error
        return self.address.answer(ask, status, body)

    def _head(self, ask: Ask[T]) -> bytes:
        address, body = self.address, ask.encoded() or b""
        lines = [f"{ask.method} {address.path}{ask.path} HTTP/1.1", f"Host: {address.host}:{address.port}"]
        lines += [f"{name}: {value}" for name, value in address.headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = self._kept() or await self._connect()
        is_kept = False
        self._busy.add(writer)
        try:
            if self._is_over:
                raise EOFError("the connection was closed")
            writer.write(request)
            await writer.drain()
            first = await self._line(reader)
            status, headers = int(first.split(b" ", 2)[1]), await self._headers(reader)
            body = await self._body(reader, headers)
            is_kept = headers.get("connection", "").lower() != "close"
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

    async def _headers(self, reader: asyncio.StreamReader) -> dict[str, str]:
        headers = {}
        while line := (await self._line(reader)).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return headers

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = []
            while size := int((await self._line(reader)).split(b";")[0], 16):
                chunks.append(await reader.readexactly(size))
                await reader.readexactly(2)
            await reader.readline()
            return b"".join(chunks)
        length = int(headers.get("content-length", "0"))
        if length > BODY_BYTES_MAX:
            raise ValueError(f"a response of {length} bytes is too large")
        return await reader.readexactly(length)

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
