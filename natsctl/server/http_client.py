"""Requests of the server over HTTP, each bounded in time, in bytes and in redirections.

OCSP responders and account servers are asked with it. The time limit covers all of a request: the name server,
redirections, and peers that send one byte at a time. The system's name server is asked in a thread of the loop's own,
and all else is done on the loop: a slow peer delays only those who wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import socket
import ssl
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote_to_bytes, urljoin, urlsplit

import h11

from natsctl.server.options import joined

MAX_HEAD_BYTES: Final = 16 * 1024
"""Longest head of an answer."""
MAX_REDIRECTIONS: Final = 9
"""Redirections that are followed. Source: Go's net/http."""
READ_BYTES: Final = 64 * 1024

_REDIRECTED: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})


class HttpError(OSError):
    """A request without an answer; the text says why."""

    def __str__(self) -> str:
        return str(self.args[0])


class HttpAnswer(NamedTuple):
    status: int
    reason: str
    location: str
    body: bytes


async def request(
    method: str,
    url: str,
    body: bytes = b"",
    *,
    timeout_s: float,
    max_bytes: int,
    headers: tuple[tuple[str, str], ...] = (),
    context: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Return the answer, with at most `max_bytes` of a body; raises HttpError.

    Redirections to http and https are followed. `headers` go with a body; `context` decides about https, None: the
    system's authorities.
    """
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(1 + MAX_REDIRECTIONS):
                answer = await _exchange(method, urlsplit(url), body, headers, max_bytes, context)
                if answer.status not in _REDIRECTED or not answer.location:
                    return answer
                url = urljoin(url, answer.location)
                if answer.status not in _KEEPS_METHOD:
                    method, body = "GET", b""
    except TimeoutError:
        raise HttpError("context deadline exceeded (Client.Timeout exceeded)") from None
    except (OSError, ValueError, h11.ProtocolError) as why:
        raise HttpError(str(why)) from why
    raise HttpError(f"stopped after {MAX_REDIRECTIONS + 1} redirects")


def in_own_loop(work: Coroutine[Any, Any, HttpAnswer]) -> HttpAnswer:
    """Run a request to its end in a thread, whether a loop runs in this one or not; raises HttpError."""
    from concurrent.futures import ThreadPoolExecutor

    def run() -> HttpAnswer:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(work)
        finally:
            loop.run_until_complete(asyncio.sleep(0))  # which closes the sockets
            loop.close()  # without waiting for the name server, unlike asyncio.run

    with ThreadPoolExecutor(1, "natsctl-http") as thread:
        return thread.submit(run).result()


async def _exchange(
    method: str,
    url: SplitResult,
    body: bytes,
    headers: tuple[tuple[str, str], ...],
    max_bytes: int,
    context: ssl.SSLContext | None,
) -> HttpAnswer:
    """Send one request over a connection of its own; raises OSError, ValueError or h11.ProtocolError."""
    if url.scheme not in ("http", "https") or not url.hostname:
        raise HttpError(f'unsupported protocol scheme "{url.scheme}"')
    port = url.port or (443 if url.scheme == "https" else 80)
    secure = (context or ssl.create_default_context()) if url.scheme == "https" else None
    reader, writer = await _connected(url.hostname, port, secure)
    try:
        login, at, host = url.netloc.rpartition("@")
        sent = [("Host", host), ("Connection", "close"), ("User-Agent", "natsctl")]
        if at:
            sent.append(("Authorization", "Basic " + base64.b64encode(unquote_to_bytes(login)).decode()))
        if body:
            sent += [*headers, ("Content-Length", str(len(body)))]
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        parts = [connection.send(h11.Request(method=method, target=target, headers=sent))]
        parts += [connection.send(h11.Data(data=body)) if body else b"", connection.send(h11.EndOfMessage())]
        writer.write(b"".join(part or b"" for part in parts))
        return await _answer(connection, reader, max_bytes)
    finally:
        writer.transport.abort()


async def _connected(
    host: str, port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(host, port, limit=READ_BYTES, ssl=context)
    except (socket.gaierror, UnicodeError) as why:
        raise HttpError(f"dial tcp: lookup {host}: no such host") from why
    except ssl.SSLError as why:
        raise HttpError(f"tls: {(why.reason or str(why)).lower().replace('_', ' ')}") from why
    except OSError as why:
        refused = why.errno == errno.ECONNREFUSED or "refused" in str(why)
        text = "connection refused" if refused else (why.strerror or str(why)).lower()
        raise HttpError(f"dial tcp {joined(host, port)}: connect: {text}") from why


async def _answer(connection: h11.Connection, reader: asyncio.StreamReader, max_bytes: int) -> HttpAnswer:
    answer, body = HttpAnswer(0, "", "", b""), bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            if not data and not answer.status:
                raise HttpError("EOF")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            location = next((value.decode("latin-1") for name, value in event.headers if name == b"location"), "")
            answer = HttpAnswer(event.status_code, event.reason.decode("latin-1"), location, b"")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > max_bytes:
                raise HttpError(f"the answer is longer than {max_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return answer._replace(body=bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise HttpError("EOF")
