"""Texts of failed connections to hubs, and connections through an HTTP proxy.

A request CONNECT opens a tunnel, and the hub is at its other end. The proxy's answer is bounded in length and time;
everything after it comes from the hub. Source: nats-server, leafnode.go establishHTTPProxyTunnel.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import re
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from natsctl.server.options import LeafProxyOptions, joined
from natsctl.server.tls.contexts import client_context, error_text

if TYPE_CHECKING:
    from natsctl.server.listener import ClientConnection

HANDSHAKE_S: Final = 2.0
"""Default time limit of the TLS handshake. Source: nats-server, DEFAULT_LEAF_TLS_TIMEOUT."""

MAX_ANSWER_BYTES: Final = 16 << 10
"""Longest answer of a proxy, its headers included."""
_STATUS: Final = re.compile(r"HTTP/1\.[01] (\d{3}(?: [^\r\n]*)?)\r\n")


class TunnelError(OSError):
    """A proxy that makes no tunnel; the text is nats-server's."""

    def __str__(self) -> str:
        return str(self.args[0])


def dial_text(host: str, address: str, error: OSError | UnicodeError) -> str:
    if isinstance(error, TunnelError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"lookup {host}: no such host"
    refused = error.errno == errno.ECONNREFUSED or "refused" in str(error)
    text = "connection refused" if refused else (error.strerror or str(error)).lower()
    return f"dial tcp {address}: connect: {text}"


def reason_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    return error_text(error)


Hub = TypeVar("Hub", bound="ClientConnection")


class Tunnel(asyncio.Protocol, Generic[Hub]):
    """The request to a proxy; `opened` is done when its answer is there, and has the connection to the hub."""

    def __init__(self, request: bytes, factory: Callable[[], Hub]) -> None:
        """Prepare to send `request`; `factory` makes the protocol of the connection to the hub."""
        self.opened: asyncio.Future[Hub] = asyncio.get_running_loop().create_future()
        self._request = request
        self._factory = factory
        self._answer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
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


async def open_tunnel(proxy: LeafProxyOptions, address: str, factory: Callable[[], Hub], dial_timeout_s: float) -> Hub:
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
    proxy: LeafProxyOptions, request: bytes, factory: Callable[[], Hub], timeout_s: float
) -> Tunnel[Hub]:
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
