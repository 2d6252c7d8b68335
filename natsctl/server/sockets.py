"""Sockets of listeners: connections wait in them until an event loop accepts them, possibly much later."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, Final

from natsctl.server.options import UNSPECIFIED, ServerOptions

BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""


def listen(options: ServerOptions) -> dict[str, socket.socket]:
    """Return sockets that listen on the addresses of clients, by kind; failed ones are left out."""
    addresses = {"clients": (options.host, options.port)}
    if options.websocket is not None:
        addresses["websocket"] = (options.websocket.host, options.websocket.port)
    found = {}
    for kind, address in addresses.items():
        with suppress(OSError):
            found[kind] = bind(*address)
    return found


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; raises OSError when it is in use or not this machine's.

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
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
