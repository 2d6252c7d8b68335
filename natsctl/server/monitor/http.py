"""The HTTP listener of monitoring: requests framed by h11, answered by a function, bodies written piece by piece.

Theory of operation. One task serves one connection, one request at a time; pipelined input waits in
h11. A body may be an iterator: its pieces are made while it is written, so that a slow reader holds no more than a
chunk of it. All connections together parse one request, or work on one answer, at a time, for a slice of time each, so
that between two slices the loop has served the other connections, however many there are. When every place is taken,
the connection that has been idle for longest makes room; if none is idle the new one gets status 503. A client that
takes too long for a request, or takes too little of an answer, is cut off.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple

import h11
import msgspec

from natsctl.server.sockets import bind

MAX_HEAD_BYTES: Final = 32 * 1024
"""Longest request line with headers: to parse that many bytes of short headers takes 10 ms."""

MAX_BODY_BYTES: Final = 64 * 1024
"""Maximum unread body bytes for keeping a connection."""

MAX_CONNECTIONS: Final = 512
"""Connections at one time."""

HEAD_S: Final = 5.0
"""Time limit of a request's arrival, and of a TLS handshake. Source: nats-server, ReadHeaderTimeout."""

IDLE_S: Final = 120.0
"""Time that a connection may stay idle between two requests."""

WRITE_S: Final = 30.0
"""Time limit for the client to take a chunk of an answer."""

CHUNK_BYTES: Final = 64 * 1024
"""Bytes of an answer that are gathered before they are written."""

SLICE_S: Final = 0.002
"""Time slice of one answer before others have their turn."""

READ_BYTES: Final = 8 * 1024
"""Bytes of requests that are read, and parsed, at once."""

Body = bytes | Iterator[bytes]


class HttpRequest(NamedTuple):
    """Method and target as in the request line, and the headers that distinguish a browser's page from its owner."""

    method: str
    target: str
    host: str = ""
    """The header Host, or ""."""
    origin: str = ""
    """The header Origin, or ""."""
    loopback: bool = False
    """True for a request over a loopback address."""


class HttpPage(msgspec.Struct, frozen=True):
    """One answer; pieces of an iterator are made while it is sent."""

    status: int
    body: Body
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Answerer = Callable[[HttpRequest], HttpPage]
Fault = Callable[[str, Exception], object]
Admission = Callable[[asyncio.StreamWriter], Awaitable[bool]]


class HttpServer:
    def __init__(
        self,
        host: str,
        port: int,
        answer: Answerer,
        fault: Fault = lambda where, error: None,
        context: ssl.SSLContext | None = None,
        admit: Admission | None = None,
    ) -> None:
        """Prepare to listen on `host`:`port`, under TLS with `context`.

        `answer` runs on the event loop and must be quick; `fault` is called when it, or a body, raised. With `admit`,
        a connection is served after its handshake only if it returns True.
        """
        self._host = host
        self._port = port
        self._answer = answer
        self._fault = fault
        self._context = context
        self._admit = admit
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}
        self._turn = asyncio.Semaphore()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1]) if self._server and self._server.sockets else 0

    async def start(self) -> None:
        timeout = HEAD_S if self._context is not None else None
        self._server = await asyncio.start_server(
            self._serve,
            sock=bind(self._host, self._port),
            limit=MAX_BODY_BYTES,
            ssl=self._context,
            ssl_handshake_timeout=timeout,
        )

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        self.stop_accepting()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        full = len(self._tasks) >= MAX_CONNECTIONS and not self._make_room()
        self._tasks.add(task)
        conversation = _Conversation(
            h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES), reader, writer
        )
        try:
            with suppress(ConnectionError, TimeoutError, asyncio.CancelledError, h11.ProtocolError, ssl.SSLError):
                if self._admit is None or await self._admit(writer):
                    await (conversation.refuse(503) if full else self._converse(conversation, task))
        finally:
            self._tasks.discard(task)
            self._idle.pop(task, None)
            conversation.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; return False if none is idle."""
        oldest = next(iter(self._idle), None)
        if oldest is None:
            return False
        del self._idle[oldest]
        oldest.cancel()
        return True

    async def _converse(self, conversation: _Conversation, task: asyncio.Task[None]) -> None:
        wait_s = HEAD_S
        while True:
            self._idle[task] = None
            request = await conversation.request(wait_s, self._turn)
            self._idle.pop(task, None)
            if request is None:
                return
            try:
                async with self._turn:
                    page = self._page(request)
                    await asyncio.sleep(0)  # kept over a round of the loop: else all would have theirs in the same one
                await conversation.reply(request.method, page, self._turn)
            except (OSError, TimeoutError):
                raise
            except Exception as error:  # the outermost call of a request: the server goes on
                self._fault(f"the answer to {request.method} {request.target}", error)
                conversation.abort()
                return
            if not await conversation.next(self._turn):
                return
            wait_s = IDLE_S

    def _page(self, request: HttpRequest) -> HttpPage:
        try:
            return self._answer(request)
        except Exception as error:  # the outermost call of an answer: the server goes on
            self._fault(f"the answer to {request.method} {request.target}", error)
            return HttpPage(500, b"Internal Server Error\n", "text/plain; charset=utf-8")


class _Conversation:
    __slots__ = ("_reader", "_wire", "_writer")

    def __init__(self, wire: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._wire = wire
        self._reader = reader
        self._writer = writer

    async def request(self, wait_s: float, turn: asyncio.Semaphore) -> HttpRequest | None:
        """Return the next request, parsed while `turn` is held, or None at the end; raises TimeoutError."""
        loop = asyncio.get_running_loop()
        end_s, begun = loop.time() + wait_s, bool(self._wire.trailing_data[0])
        while True:
            try:
                event = await self._parsed(turn)
            except h11.RemoteProtocolError as error:
                await self.refuse(error.error_status_hint)
                return None
            if isinstance(event, h11.Request):
                return self._request(event)
            if event is not h11.NEED_DATA:
                return None
            if await self._read(end_s) and not begun:
                begun, end_s = True, loop.time() + HEAD_S

    async def _parsed(self, turn: asyncio.Semaphore) -> object:
        """Return the next event that is no part of a body."""
        if self._wire.their_state is h11.IDLE and self._wire.trailing_data == (b"", False):
            return h11.NEED_DATA
        async with turn:
            try:
                while isinstance(event := self._wire.next_event(), h11.Data):
                    pass
                return event
            finally:
                await asyncio.sleep(0)  # as for answers

    async def _read(self, end_s: float) -> int:
        async with asyncio.timeout_at(end_s):
            data = await self._reader.read(READ_BYTES)
        self._wire.receive_data(data)
        return len(data)

    def _request(self, event: h11.Request) -> HttpRequest:
        headers = {name: value.decode("latin-1") for name, value in event.headers}
        address = str((self._writer.get_extra_info("sockname") or ("",))[0]).partition("%")[0]
        with suppress(ValueError):
            ip = ip_address(address)
            ip = getattr(ip, "ipv4_mapped", None) or ip
            return HttpRequest(
                event.method.decode("latin-1"),
                event.target.decode("latin-1"),
                headers.get(b"host", ""),
                headers.get(b"origin", ""),
                ip.is_loopback,
            )
        return HttpRequest(event.method.decode("latin-1"), event.target.decode("latin-1"))

    async def refuse(self, status: int) -> None:
        if self._wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        reason = _reason(status)
        text = f"{status} {reason}".encode()
        head = b"HTTP/1.1 %b\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%b" % (text, text)
        await self._write(head)

    async def reply(self, method: str, page: HttpPage, turn: asyncio.Semaphore) -> None:
        """Send a page; its pieces are made while `turn` is held. Raises the body's errors."""
        body = page.body
        if isinstance(body, bytes):
            await self._whole(page, body, method)
            return
        if method == "HEAD":
            await self._send(page, [], b"", end=True)
            return
        begun = False
        async for gathered in _chunks(body, turn):
            if len(gathered) < CHUNK_BYTES and not begun:
                await self._whole(page, gathered, method)
                return
            await self._send(None if begun else page, [], gathered, end=len(gathered) < CHUNK_BYTES)
            begun = True

    async def _whole(self, page: HttpPage, body: bytes, method: str) -> None:
        length = [("Content-Length", str(len(body)))]
        await self._send(page, length, b"" if method == "HEAD" else body, end=True)

    async def _send(self, page: HttpPage | None, more: list[tuple[str, str]], data: bytes, *, end: bool) -> None:
        """Write a part of an answer: its head where `page` is given, then data, then its end."""
        parts: list[bytes | None] = []
        if page is not None:
            kind = [("Content-Type", page.content_type)] if page.content_type else []
            fixed = [*page.headers, *kind, ("Date", formatdate(usegmt=True))]
            reason = _reason(page.status).encode()
            parts.append(self._wire.send(h11.Response(status_code=page.status, headers=fixed + more, reason=reason)))
        if data:
            parts.append(self._wire.send(h11.Data(data=data)))
        if end:
            parts.append(self._wire.send(h11.EndOfMessage()))
        await self._write(b"".join(part for part in parts if part))

    async def _write(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._writer.write(data)
        async with asyncio.timeout(WRITE_S):
            await self._writer.drain()

    async def next(self, turn: asyncio.Semaphore) -> bool:
        """Read the rest of the request and return whether another may follow; raises TimeoutError."""
        if self._wire.they_are_waiting_for_100_continue:
            return False
        left, end_s = MAX_BODY_BYTES, asyncio.get_running_loop().time() + HEAD_S
        while self._wire.their_state is h11.SEND_BODY and left >= 0:
            if await self._parsed(turn) is h11.NEED_DATA:
                left -= await self._read(end_s)
        if self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
            return False
        self._wire.start_next_cycle()
        await asyncio.sleep(0)
        return True

    def close(self) -> None:
        self._writer.close()
        asyncio.get_running_loop().call_later(WRITE_S, self.abort)

    def abort(self) -> None:
        self._writer.transport.abort()


async def _chunks(body: Iterator[bytes], turn: asyncio.Semaphore) -> AsyncIterator[bytes]:
    """Yield a body in chunks of the full size, and last one below it, maybe empty."""
    loop, gathered, more = asyncio.get_running_loop(), bytearray(), True
    while more:
        async with turn:
            since, more = loop.time(), False
            for piece in body:
                gathered += piece
                if len(gathered) >= CHUNK_BYTES or loop.time() - since > SLICE_S:
                    more = True
                    break
            await asyncio.sleep(0)
        if len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase
