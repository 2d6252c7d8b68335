"""Connections of leaf nodes through an HTTP proxy: a request CONNECT opens a tunnel, and the hub is at its other end.

The proxy's answer is bounded in length and time. What follows it is the hub's already. Source: nats-server,
leafnode.go establishHTTPProxyTunnel.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from natsctl.server.leaf.remote import (
    HANDSHAKE_S,
    RemoteConnection,
    TunnelError,
    dial_text,
    reason_of,
)
from natsctl.server.options import joined
from natsctl.server.tls.contexts import client_context

if TYPE_CHECKING:
    from natsctl.server.options import LeafProxyOptions


MAX_ANSWER_BYTES: Final = 16 << 10
"""Longest answer of a proxy, its headers included."""
_STATUS: Final = re.compile(r"HTTP/1\.[01] (\d{3}(?: [^\r\n]*)?)\r\n")


class Tunnel(asyncio.Protocol):
    """The request to a proxy; `opened` is done when its answer is there, and has the connection to the hub."""

    def __init__(self, request: bytes, factory: Callable[[], RemoteConnection]) -> None:
        """Prepare to send `request`; `factory` makes the protocol of the connection to the hub."""
        self.opened: asyncio.Future[RemoteConnection] = asyncio.get_running_loop().create_future()
        self._request = request
        self._factory = factory
        self._answer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the tunnel."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Gather the answer, and hand the connection over once it is whole."""
        if self.opened.done():
            return
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if not end:
            if len(self._answer) > MAX_ANSWER_BYTES:
                self._fail("failed to read proxy response: the answer is too long")
            return
        text = head.decode("latin-1") + "\r\n"
        status = _STATUS.match(text)
        if status is None:
            self._fail(f"failed to read proxy response: malformed HTTP response {text.partition(chr(13))[0][:80]!r}")
        elif not status[1].startswith("200"):
            self._fail(f"proxy CONNECT failed: {status[1]}")
        else:
            connection = self._factory()
            self.transport.set_protocol(connection)
            connection.connection_made(self.transport)
            if rest:
                connection.data_received(rest)
            self.opened.set_result(connection)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report a proxy that hangs up before its answer is whole."""
        self._fail(f"failed to read proxy response: {'unexpected EOF' if exc is None else str(exc).lower()}")

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(TunnelError(why))
            self.transport.abort()


async def open_tunnel(
    proxy: LeafProxyOptions, address: str, factory: Callable[[], RemoteConnection], dial_timeout_s: float
) -> RemoteConnection:
    """Return the connection to the hub at `address` through a proxy; raises TunnelError."""
    timeout_s = proxy.timeout_s or dial_timeout_s
    tunnel = await _connect(proxy, _request(proxy, address), factory, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return await tunnel.opened
    except TimeoutError:
        raise TunnelError("failed to read proxy response: i/o timeout") from None
    finally:
        if not tunnel.opened.done() or tunnel.opened.cancelled():
            tunnel.transport.abort()


async def _connect(
    proxy: LeafProxyOptions, request: bytes, factory: Callable[[], RemoteConnection], timeout_s: float
) -> Tunnel:
    handshake_s = (proxy.tls.timeout_s if proxy.tls is not None else 0.0) or HANDSHAKE_S
    try:
        context = client_context(proxy.tls) if proxy.secure else None
        async with asyncio.timeout(timeout_s + (handshake_s if context else 0.0)):
            _, tunnel = await asyncio.get_running_loop().create_connection(
                lambda: Tunnel(request, factory),
                proxy.host,
                proxy.port,
                ssl=context,
                server_hostname=proxy.host if context else None,
                ssl_handshake_timeout=handshake_s if context else None,
            )
    except ssl.SSLError as error:
        raise TunnelError(f"proxy TLS handshake failed: {reason_of(error)}") from error
    except (OSError, UnicodeError) as error:
        why = dial_text(proxy.host, joined(proxy.host, proxy.port), error)
        raise TunnelError(f"failed to connect to proxy: {why}") from error
    return tunnel


def _request(proxy: LeafProxyOptions, address: str) -> bytes:
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    if proxy.username:
        login = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
