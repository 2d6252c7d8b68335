"""TLS between a transport and what runs on it, one step for each chunk.

asyncio's own start_tls is handed a transport and nothing that was read before, and waits in a task of its own: bytes
that came with the first look at a connection, greetings that leave in clear, and a handshake that may never come ask
for the layer itself. It is the same pair of memory buffers around OpenSSL that asyncio uses.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

from natsctl.broker.tls_facts import TlsFacts
from natsctl.server.tls.names import suite_name

READ_BYTES: Final = 64 * 1024
"""Most plaintext taken from OpenSSL by one call."""


class TlsLayer:
    """One side of a TLS connection, without I/O."""

    __slots__ = ("_incoming", "_outgoing", "connection", "done", "ended")

    def __init__(self, context: ssl.SSLContext, hostname: str | None = None) -> None:
        """Be the server; with `hostname`, the client of the server of that name, whose first `feed` is of nothing."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, hostname is None, hostname)
        self.done = False
        """The handshake is complete."""
        self.ended = False
        """The other side has said goodbye."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the transport and return what they say in clear; raises ssl.SSLError.

        Afterwards, also after an error, `take` has what TLS wants to answer.
        """
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self.done:
                self.connection.do_handshake()
                self.done = True
            while part := self.connection.read(READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def take(self) -> bytes:
        """Return what is to be written to the transport."""
        return self._outgoing.read()

    def wrap(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return clear bytes as TLS records."""
        view = memoryview(data)
        while view:
            view = view[self.connection.write(view) :]
        return self._outgoing.read()

    def farewell(self) -> bytes:
        """Return the record that ends a connection."""
        if self.done:
            with suppress(ssl.SSLError, OSError):  # the other side has not answered, or an alert has cut it off
                self.connection.unwrap()
        return self._outgoing.read()

    def facts(self, first: bool) -> TlsFacts:
        """Return what the handshake settled; certificates are left to those who read them."""
        cipher = self.connection.cipher()
        version = (self.connection.version() or "").removeprefix("TLSv")
        return TlsFacts(version, suite_name(cipher[0]) if cipher else "", first)


class SecureTransport(asyncio.Transport):
    """The transport under a `TlsLayer`, as what runs on it sees it."""

    __slots__ = ("_layer", "_raw")

    def __init__(self, raw: asyncio.Transport, layer: TlsLayer) -> None:
        super().__init__()
        self._raw = raw
        self._layer = layer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write records; nothing after the goodbye."""
        if not self._raw.is_closing():
            self._raw.write(self._layer.wrap(data))

    def close(self) -> None:
        """Say goodbye and close after what was written."""
        if not self._raw.is_closing():
            self._raw.write(self._layer.farewell())
        self._raw.close()

    def abort(self) -> None:
        """Cut the connection."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be written."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say how much may wait."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport knows."""
        return self._raw.get_extra_info(name, default)
