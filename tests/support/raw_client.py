"""The least NATS client that can judge a server: it shares no code with it, hides nothing and never reconnects.

Messages are handed on in the order of their arrival, inside the call that read them.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import orjson

OnMessage = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply, header block and payload."""

CONNECT_WITHIN_S: Final = 30.0
ANSWER_WITHIN_S: Final = 30.0


class Disconnected(ConnectionError):
    """The server has gone while something was awaited from it."""


class RawClient(asyncio.Protocol):
    """One connection; `closed` is set when it has ended."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.errors: list[bytes] = []
        self._inbox = b"_INBOX." + secrets.token_hex(8).encode()
        self._numbers = itertools.count(1)
        self._handlers: dict[bytes, OnMessage] = {}
        self._requests: dict[bytes, asyncio.Future[tuple[bytes, bytes]]] = {}
        self._pongs: list[asyncio.Future[None]] = []
        self._buffer = b""
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, url: str, **login: str) -> RawClient:
        """Return a client connected to `nats://[token@]host:port`; raises OSError or TimeoutError.

        `login` are fields of CONNECT.
        """
        parts = urlsplit(url)
        async with asyncio.timeout(CONNECT_WITHIN_S):
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(cls, parts.hostname or "127.0.0.1", parts.port or 4222)
            options: dict[str, object] = {
                "verbose": False,
                "pedantic": False,
                "headers": True,
                "no_responders": True,
                "protocol": 1,
                **login,
            }
            if parts.username:
                options["auth_token"] = parts.username
            client.send(b"CONNECT " + orjson.dumps(options) + b"\r\n")
            client.subscribe(client._inbox + b".*", client._answered)
            await client.flush()
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(Disconnected("connection lost"))
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(Disconnected("connection lost"))

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def publish(self, subject: bytes, payload: bytes, reply: bytes = b"", header: bytes = b"") -> None:
        if header:
            sizes = b"%d %d" % (len(header), len(header) + len(payload))
            self.send(b"HPUB %s %s %s\r\n%s%s\r\n" % (subject, reply, sizes, header, payload))
        else:
            self.send(b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(payload), payload))

    def subscribe(self, subject: bytes, on_message: OnMessage) -> bytes:
        sid = b"%d" % next(self._numbers)
        self._handlers[sid] = on_message
        self.send(b"SUB %s %s\r\n" % (subject, sid))
        return sid

    def subscribe_all(self, subjects: Sequence[bytes], queue: bytes, on_message: OnMessage) -> None:
        """Subscribe to many subjects in one queue group, in one write, as a client does that comes back."""
        lines = []
        for subject in subjects:
            sid = b"%d" % next(self._numbers)
            self._handlers[sid] = on_message
            lines.append(b"SUB %s %s %s\r\n" % (subject, queue, sid))
        self.send(b"".join(lines))

    def unsubscribe(self, sid: bytes) -> None:
        self._handlers.pop(sid, None)
        self.send(b"UNSUB %s\r\n" % sid)

    async def flush(self) -> None:
        """Return when the server has read everything sent so far; raises Disconnected."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closed.is_set():
            raise Disconnected("connection lost")
        self._pongs.append(future)
        self.send(b"PING\r\n")
        await future

    async def request(
        self, subject: bytes, payload: bytes = b"", timeout_s: float = ANSWER_WITHIN_S, header: bytes = b""
    ) -> tuple[bytes, bytes]:
        """Return header and payload of the answer; raises Disconnected or TimeoutError."""
        if self.closed.is_set():
            raise Disconnected("connection lost")
        reply = b"%s.%d" % (self._inbox, next(self._numbers))
        future: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self._requests[reply] = future
        self.publish(subject, payload, reply, header)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        finally:
            del self._requests[reply]

    async def close(self) -> None:
        self._transport.close()
        await self.closed.wait()

    def _answered(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        future = self._requests.get(subject)
        if future is not None and not future.done():
            future.set_result((header, payload))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        start = 0
        while (end := buffer.find(b"\r\n", start)) >= 0:
            line = buffer[start:end]
            if line[:4] == b"MSG " or line[:5] == b"HMSG ":
                after = self._message(line, buffer, end + 2)
                if after < 0:
                    break
                start = after
                continue
            start = end + 2
            self._control(line)
        self._buffer = buffer[start:]

    def _message(self, line: bytes, buffer: bytes, start: int) -> int:
        fields = line.split()
        size = int(fields[-1])
        if len(buffer) < start + size + 2:
            return -1
        headers = int(fields[-2]) if fields[0] == b"HMSG" else 0
        reply = fields[3] if len(fields) == (6 if headers else 5) else b""
        handler = self._handlers.get(fields[2])
        if handler is not None:
            handler(fields[1], reply, buffer[start : start + headers], buffer[start + headers : start + size])
        return start + size + 2

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line == b"PONG" and self._pongs:
            future = self._pongs.pop(0)
            if not future.done():
                future.set_result(None)
        elif line.startswith(b"-ERR"):
            self.errors.append(line)
