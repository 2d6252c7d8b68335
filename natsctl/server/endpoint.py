"""Listeners of a server: one endpoint per kind of peer, all opened, closed and named the same way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""

UNSPECIFIED: Final = ("", "0.0.0.0", "::")
"""Hosts that mean every address of the machine."""


class Endpoint(Protocol):
    """Something that listens; `port` is the one it has, also where any free one was asked for."""

    @property
    def port(self) -> int:
        """The port, 0 before `start`."""

    async def start(self) -> None:
        """Listen; raises OSError when the address cannot be used."""

    def stop_accepting(self) -> None:
        """Close the listener; existing connections stay."""

    async def stop(self) -> None:
        """Close the listener, and those connections that no other part of the server closes."""


class TransportEndpoint:
    """A listener of connections that the shell looks after."""

    def __init__(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None = None
    ) -> None:
        """Prepare to listen on `host`:`port`; `factory` makes one protocol a connection, under TLS with `context`."""
        self._host = host
        self._port = port
        self._factory = factory
        self._context = context
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port, 0 before the address was taken."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    def bind(self) -> None:
        """Take the address without listening yet; raises OSError."""
        if self._socket is None:
            self._socket = bind(self._host, self._port)

    async def start(self) -> None:
        """Listen; raises OSError when the address cannot be used."""
        self.bind()
        assert self._socket is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._factory, sock=self._socket, backlog=BACKLOG, ssl=self._context
        )

    def stop_accepting(self) -> None:
        """Close the listener; existing connections stay."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    async def stop(self) -> None:
        """Close the listener."""
        self.stop_accepting()


@contextmanager
def named(kind: str) -> Iterator[None]:
    """Note on an OSError which kind of listener it is about."""
    try:
        yield
    except OSError as error:
        error.add_note(kind)
        raise


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; raises OSError when it is in use or not this machine's.

    An unspecified address, `0.0.0.0` too, is every one of the machine, IPv6 included. Source: nats-server.
    """
    if host in UNSPECIFIED and socket.has_dualstack_ipv6():
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bound(sock, ("::", max(port, 0)))
    name = host.encode() if host.isascii() else host  # a text would load the codec of international names
    family, kind, protocol, _, address = socket.getaddrinfo(
        name, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return _bound(socket.socket(family, kind, protocol), address)


def _bound(sock: socket.socket, address: tuple[Any, ...]) -> socket.socket:
    try:
        # Reuse lets a restart follow at once. Set before the bind, "any free port" could be one that another is taking.
        if address[1] > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
