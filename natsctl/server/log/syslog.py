"""Lines to syslog: the one of this machine, or one at an address.

A line never waits: a receiver that does not read, or that went away, loses lines and holds up nothing else. Of a line
that a stream took in part the rest goes first, so that what arrives are whole lines.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any, Final

FACILITY: Final = 3 << 3
"""The facility of system daemons. Source: nats-server, logger/syslog.go."""
LOCAL_SYSLOG: Final = ("/dev/log", "/var/run/syslog")
CONNECT_S: Final = 2.0
"""Time limit of the first connection, and so of a start and of a reload."""
RETRY_S: Final = 1.0
"""Time between connections to a receiver that went away."""


class Syslog:
    """A connection to syslog: the one of this machine, or of `udp://HOST:PORT`, `tcp://…` or `unix:PATH`."""

    def __init__(self, url: str = "") -> None:
        local = next((path for path in LOCAL_SYSLOG if os.path.exists(path)), LOCAL_SYSLOG[0])  # noqa: PTH110
        network, address = parse_syslog_url(url) if url else ("unix", local)
        kinds = {"tcp": [socket.SOCK_STREAM], "udp": [socket.SOCK_DGRAM]}
        self._ways: list[tuple[socket.AddressFamily, socket.SocketKind, Any]]
        if isinstance(address, str):
            self._ways = [(socket.AF_UNIX, kind, address) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
        else:
            found = socket.getaddrinfo(*address, type=kinds[network][0])
            self._ways = [(family, kind, place) for family, kind, _, _, place in found]
        self._head = f"nats-server[{os.getpid()}]: "
        self._rest = b""
        self._connected_s = time.monotonic()
        self._socket = self._first(address)

    def _first(self, address: object) -> socket.socket:
        """Return the first working connection, and use its kind from now on; raises OSError."""
        fault: OSError = OSError("no address")
        for way in self._ways:
            connection = socket.socket(*way[:2])
            connection.settimeout(CONNECT_S)
            try:
                connection.connect(way[2])
            except OSError as error:
                connection.close()
                fault = error
                continue
            connection.setblocking(False)
            self._ways = [way]
            return connection
        raise ConnectionRefusedError(f"no syslog at {address}: {fault}") from fault

    def _connect(self) -> None:
        self._connected_s, self._rest = time.monotonic(), b""
        self._socket.close()
        ((family, kind, place),) = self._ways
        self._socket = socket.socket(family, kind)
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            self._socket.connect(place)

    def send(self, priority: int, text: str) -> None:
        """Send a line of one line; raises OSError where nobody takes it now."""
        line = f"<{FACILITY | priority}>{self._head}{text}".encode()
        is_stream = self._socket.type is socket.SOCK_STREAM
        try:
            self._put(line, is_stream)
        except BlockingIOError:
            raise
        except OSError:
            # A receiver of datagrams that has started again is there at once.
            if is_stream and time.monotonic() < self._connected_s + RETRY_S:
                raise
            self._connect()
            self._put(line, is_stream)

    def _put(self, line: bytes, is_stream: bool) -> None:
        if not is_stream:
            self._socket.send(line)
            return
        while self._rest:
            self._rest = self._rest[self._socket.send(self._rest) :]
        line += b"\n"
        self._rest = line[self._socket.send(line) :]

    def close(self) -> None:
        self._socket.close()


def parse_syslog_url(url: str) -> tuple[str, str | tuple[str, int]]:
    """Return network and address of `udp://HOST[:PORT]`, `tcp://HOST[:PORT]` or `unix:PATH`; raises ValueError."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme in ("unix", "unixgram") and parts.path:
        return "unix", parts.path
    if parts.scheme in ("udp", "tcp") and parts.hostname:
        return parts.scheme, (parts.hostname, parts.port or 514)
    raise ValueError(f"invalid address of syslog {url!r}: expected udp://HOST:PORT, tcp://HOST:PORT or unix:PATH")
