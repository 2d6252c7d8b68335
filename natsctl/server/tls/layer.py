"""TLS between a transport and what runs on it, one step for each chunk.

asyncio's own start_tls is handed a transport and nothing that was read before, and waits in a task of its own: bytes
that came with the first look at a connection, greetings that leave in clear, and a handshake that may never come ask
for the layer itself. It is the same pair of memory buffers around OpenSSL that asyncio uses.

A client whose certificate is verified shows it in every handshake: OpenSSL resumes a session by what it remembers, and
looks neither at the certificate's dates nor at the authorities again. Python can turn off resumption in TLS 1.3 alone,
so a `spare` context stands by, with keys and a cache of its own. A ClientHello that would resume a session of the first
context is answered by the spare, which does not know the session and asks for everything, and the other way round.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final

from natsctl.broker.auth.credentials import TlsFacts
from natsctl.server.tls.names import suite_name

READ_BYTES: Final = 64 * 1024
"""Most plaintext taken from OpenSSL by one call."""


class TlsLayer:
    """One side of a TLS connection, without I/O."""

    __slots__ = ("_hello", "_incoming", "_outgoing", "_spare", "connection", "done", "ended")

    def __init__(
        self, context: ssl.SSLContext, hostname: str | None = None, spare: ssl.SSLContext | None = None
    ) -> None:
        """Prepare the server's side; with `hostname`, the client's side, whose first `feed` is empty.

        With `spare`, a context like the first, no session is resumed.
        """
        self._begin(context, hostname)
        self._spare = spare
        self._hello: bytes | None = b"" if spare is not None else None
        """The ClientHello, until it is answered; OpenSSL limits its length."""
        self.done = False
        """The handshake is complete."""
        self.ended = False
        """The other side has sent its closing alert."""

    def _begin(self, context: ssl.SSLContext, hostname: str | None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, hostname is None, hostname)

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the transport and return what they say in clear; raises ssl.SSLError.

        Afterwards, also after an error, `take` has what TLS wants to answer.
        """
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self.done:
                self._shake(data)
            while part := self.connection.read(READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def _shake(self, data: bytes) -> None:
        """Continue the handshake; raises ssl.SSLWantReadError where more input is needed, and ssl.SSLError."""
        spare = self._spare
        if self._hello is not None:
            self._hello += data
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            hello = self._hello
            if spare is None or hello is None or not self._outgoing.pending:
                raise
            self._hello = None
            if not self.connection.session_reused:
                raise
            self._begin(spare, None)
            self._incoming.write(hello)
            self.connection.do_handshake()
        if spare is not None and self.connection.session_reused:
            raise ssl.SSLError("a session was resumed where certificates are verified")
        self.done = True

    def take(self) -> bytes:
        """Return the bytes to be written to the transport."""
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
        """Return the results of the handshake; certificates are read by the caller."""
        cipher = self.connection.cipher()
        version = (self.connection.version() or "").removeprefix("TLSv")
        return TlsFacts(version, suite_name(cipher[0]) if cipher else "", first)


class SecureTransport(asyncio.Transport):
    """The transport under a `TlsLayer`, as protocols above it see it."""

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
        """Send the closing alert and close after all output was written."""
        if not self._raw.is_closing():
            self._raw.write(self._layer.farewell())
        self._raw.close()

    def abort(self) -> None:
        """Cut the connection."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Return whether it is being closed."""
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
        """Set the limits of the write buffer."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return extra information of the transport."""
        return self._raw.get_extra_info(name, default)
