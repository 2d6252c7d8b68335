"""One client connection: bytes of a transport into a broker session, and the session's output back.

The session does the thinking.  Here are the buffers: output stays in the session while the transport is full, so that
the session's own pending bytes reveal a slow consumer; reading stops while too much that this client published awaits a
sync.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, ClassVar, Final, cast

from natsctl.broker.refusals import log_name

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.server.process.protocol_trace import ProtocolTrace
    from natsctl.server.shell import Shell
    from natsctl.server.tls.contexts import ListenerTls

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Bytes that the transport may hold before output waits in the session instead."""

MAPPED: Final = "::ffff:"
"""The prefix of an IPv4 address on a listener of both families."""

MUCH_UNREAD_BYTES: Final = 512
"""Input left when a connection is closed that makes the close a reset.

Source: nats-server reads this much at first, and what is still in the socket then resets the connection.
"""

CLOSE_WAIT_S: Final = 2.0
"""Time for the last output of a closing connection to leave before the transport is cut."""


class ClientConnection(asyncio.Protocol):
    """The transport side of one session."""

    __slots__ = ("_shell", "_traces", "blocked_since", "closing", "paused", "ready", "session", "transport")

    mark: ClassVar = "cid"
    """The label before the connection's number in log lines."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._traces: tuple[ProtocolTrace, ProtocolTrace] | None = None
        """The traces of input and output, once the log shows them."""
        self.session: Session
        self.transport: asyncio.Transport
        self.blocked_since = 0.0
        self.closing = False
        self.paused = False
        self.ready = True
        """The session's output may leave."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the session and greet the client."""
        self.transport = cast(asyncio.Transport, transport)
        if is_gone(self.transport):
            return
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, "tcp")
        self._shell.wake()

    @property
    def name(self) -> str:
        """The name of this connection in log lines."""
        return f"{joined(self.session.host, self.session.port)} - {self.mark}:{self.session.cid}"

    def data_received(self, data: bytes) -> None:
        """Pass a chunk to the session."""
        if self._shell.log.tracing:
            self._trace(data, sent=False)
        self._shell.received(self, data)

    def eof_received(self) -> bool:
        """Close when the client has closed its side, after the answers up to here."""
        self.flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the session with its subscriptions."""
        self._shell.closed(self)

    def pause_writing(self) -> None:
        """Record the time since which the client does not take its output."""
        self.blocked_since = self._shell.loop.time()
        self._shell.blocked(self)

    def resume_writing(self) -> None:
        """Resume with the input that has gathered in the session."""
        self.blocked_since = 0.0
        self.flush()

    def flush(self) -> None:
        """Move the session's output to the transport unless that is full, and close when the session asks for it."""
        session = self.session
        if self.ready and not self.blocked_since:
            parts = session.take_output()
            if parts and not self.transport.is_closing():
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                if self._shell.log.tracing:
                    self._trace(data, sent=True)
                self._write(data)
        if session.close_reason is not None and not self.closing:
            self.close()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)

    def _trace(self, data: bytes, *, sent: bool) -> None:
        """Log the operations in a chunk."""
        log = self._shell.log
        if self._traces is None:
            from natsctl.server.process.protocol_trace import ProtocolTrace

            self._traces = ProtocolTrace(sent=False), ProtocolTrace(sent=True)
        name = log_name(self.session)
        for line in self._traces[sent].lines(data, log.traced_bytes):
            log.trace(f"{name} - {line}")

    def close(self) -> None:
        """Close after the output that the transport holds has left, or after a bounded wait."""
        self.closing = True
        if self.session.unread > MUCH_UNREAD_BYTES:
            reset_at_close(self.transport)
        self.transport.close()
        self._shell.loop.call_later(CLOSE_WAIT_S, self._abort)

    def _abort(self) -> None:
        self.transport.abort()

    def pause(self) -> None:
        """Stop reading until the shell's `resume`."""
        if not self.paused and not self.transport.is_closing():
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.paused:
            self.paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()


def client_connection(shell: Shell, tls: ListenerTls) -> ClientConnection:
    """Return the protocol of a new connection, for the current TLS of the listener."""
    if tls.options is None:
        return ClientConnection(shell)
    from natsctl.server.tls.listener import TlsConnection

    return TlsConnection(shell, tls)


def is_gone(transport: asyncio.Transport) -> bool:
    """Return whether the other side reset the connection before it was accepted, and end it then without a trace.

    Its peer is unknown by now.
    """
    if peer_of(transport)[0]:
        return False
    transport.set_protocol(asyncio.Protocol())
    transport.abort()
    return True


def reset_at_close(transport: asyncio.Transport) -> None:
    """Reset the connection after the last output, so that a client that goes on writing notices at once."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def joined(host: str, port: int) -> str:
    """Return host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_of(transport: asyncio.Transport) -> tuple[str, int]:
    """Return host and port of the other side."""
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple) and len(peer) >= 2:
        return str(peer[0]).removeprefix(MAPPED), int(peer[1])
    return "", 0
