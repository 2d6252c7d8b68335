"""Requests to OCSP responders over HTTP, each bounded in time, in bytes and in redirections.

Source of what is sent: nats-server, ocsp.go and certidp/ocsp_responder.go. The system's name server is asked in a
thread of the loop's own, and all else is done on the loop: a slow responder delays only those who wait for it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import h11

from natsctl.server.ocsp.responses import MAX_RESPONSE_BYTES
from natsctl.server.options import joined

MAX_REQUESTS: Final = 64
"""Requests at the same time, of all connections; more of them wait, within their time limits."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Longest head of an answer."""
MAX_REDIRECTIONS: Final = 9
"""Redirections that are followed. Source: Go's net/http."""
READ_BYTES: Final = 16 * 1024

_REDIRECTED: Final = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD: Final = frozenset({307, 308})


class ResponderError(OSError):
    """A responder that gave no answer; the text says why."""

    def __str__(self) -> str:
        return str(self.args[0])


class Answer:
    """The status and the body of an answer."""

    __slots__ = ("body", "location", "status")

    def __init__(self, status: int, location: str, body: bytes) -> None:
        self.status = status
        self.location = location
        self.body = body


class Responders:
    """Requests of one server to responders."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_REQUESTS)

    async def get(self, url: str, timeout_s: float, accepted: Callable[[int], str]) -> bytes:
        """Return the body of the answer; raises ResponderError, with the text of `accepted` for a status."""
        return await self._ask("GET", url, b"", timeout_s, accepted)

    async def post(self, url: str, body: bytes, timeout_s: float, accepted: Callable[[int], str]) -> bytes:
        """Return the body of the answer to a request in the body; raises ResponderError as `get` does."""
        return await self._ask("POST", url, body, timeout_s, accepted)

    async def _ask(self, method: str, url: str, body: bytes, timeout_s: float, accepted: Callable[[int], str]) -> bytes:
        what = f'{method.title()} "{url}"'
        try:
            async with asyncio.timeout(timeout_s), self._places:
                answer = await _followed(method, url, body)
        except TimeoutError:
            raise ResponderError(f"{what}: context deadline exceeded (Client.Timeout exceeded)") from None
        except (OSError, ValueError, h11.ProtocolError) as why:
            raise ResponderError(f"{what}: {why}") from why
        if refusal := accepted(answer.status):
            raise ResponderError(refusal)
        return answer.body


async def _followed(method: str, url: str, body: bytes) -> Answer:
    """Return the first answer that is no redirection."""
    for _ in range(1 + MAX_REDIRECTIONS):
        answer = await _exchange(method, urlsplit(url), body)
        if answer.status not in _REDIRECTED or not answer.location:
            return answer
        url = urljoin(url, answer.location)
        if answer.status not in _KEEPS_METHOD:
            method, body = "GET", b""
    raise ResponderError(f"stopped after {MAX_REDIRECTIONS + 1} redirects")


async def _exchange(method: str, url: SplitResult, body: bytes) -> Answer:
    """Send one request over a connection of its own; raises OSError, ValueError or h11.ProtocolError."""
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ResponderError(f'unsupported protocol scheme "{url.scheme}"')
    port = url.port or (443 if url.scheme == "https" else 80)
    reader, writer = await _connected(url.hostname, port, url.scheme == "https")
    try:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = [("Host", url.netloc.rpartition("@")[2]), ("Connection", "close"), ("User-Agent", "natsctl")]
        if method == "POST":
            headers += [
                ("Content-Type", "application/ocsp-request"),
                ("Accept", "application/ocsp-response"),
                ("Content-Length", str(len(body))),
            ]
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        request = h11.Request(method=method, target=target, headers=headers)
        parts = [connection.send(request), connection.send(h11.Data(data=body)) if body else b""]
        writer.write(b"".join(part or b"" for part in [*parts, connection.send(h11.EndOfMessage())]))
        return await _answer(connection, reader)
    finally:
        writer.transport.abort()


async def _connected(host: str, port: int, secure: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; raises ResponderError with Go's text."""
    context = ssl.create_default_context() if secure else None
    try:
        return await asyncio.open_connection(host, port, limit=MAX_RESPONSE_BYTES, ssl=context)
    except (socket.gaierror, UnicodeError) as why:
        raise ResponderError(f"dial tcp: lookup {host}: no such host") from why
    except ssl.SSLError as why:
        raise ResponderError(f"tls: {why.reason or why}") from why
    except OSError as why:
        refused = why.errno == errno.ECONNREFUSED or "refused" in str(why)
        text = "connection refused" if refused else (why.strerror or str(why)).lower()
        raise ResponderError(f"dial tcp {joined(host, port)}: connect: {text}") from why


async def _answer(connection: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    """Return the answer that comes; raises ResponderError where it is too long."""
    status, location, body = 0, "", bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            if not data and not status:
                raise ResponderError("EOF")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
            location = next((value.decode("latin-1") for name, value in event.headers if name == b"location"), "")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_RESPONSE_BYTES:
                raise ResponderError(f"the answer is longer than {MAX_RESPONSE_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, location, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise ResponderError("EOF")
