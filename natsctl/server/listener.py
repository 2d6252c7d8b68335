"""Listeners of a server, and one client connection: bytes into a broker session, and the session's output back.

There is one endpoint for each kind of peer, all opened, closed and named the same way. The protocol is the session's.
The buffers are here: output stays in the session while the transport is full, so that the session's own pending bytes
reveal a slow consumer; reading stops while too much that this client published awaits a sync.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from natsctl.server.options import joined
from natsctl.server.sockets import BACKLOG, bind

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.server.log.lines import Log
    from natsctl.server.log.trace import ProtocolTrace
    from natsctl.server.monitor.http import HttpServer
    from natsctl.server.shell import Shell


WRITE_BUFFER_BYTES: Final = 1 << 20
"""Bytes that the transport may hold before output waits in the session instead."""

LARGE_BYTES: Final = 64 << 10
"""Output that may leave in slices: an answer may be tens of megabytes long."""
SLICE_BYTES: Final = 1 << 20
"""Bytes of it that are written at once: less than a millisecond, under TLS too."""
SMALL_BYTES: Final = 1024
"""Average size of parts of output that are joined before they are cut into slices."""

MAPPED: Final = "::ffff:"
"""The prefix of an IPv4 address on a listener of both families."""

MUCH_UNREAD_BYTES: Final = 512
"""Input left when a connection is closed that makes the close a reset.

Source: nats-server reads this much at first, and data left in the socket then resets the connection.
"""

CLOSE_WAIT_S: Final = 2.0
"""Time for the last output of a closing connection to leave before the transport is cut."""
MUCH_READ_BYTES: Final = 128_000
"""Size of a chunk after which other connections are read first.

After a read that fills the buffer, libuv reads the same socket again, up to 32 times.
"""
TRACED_BYTES: Final = 2 << 10
"""Size of pieces of input and of output while the protocol is traced: up to 340 lines of the log, of 4 µs each."""


class ClientConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_held", "_shell", "_traces", "_unsent", "blocked_bytes", "blocked_since", "closing", "flush_since", "paused",
        "ready", "session", "slow_since", "transport",
    )  # fmt: skip

    mark: ClassVar = "cid"
    """The label before the connection's number in log lines."""
    kind: ClassVar = "tcp"
    """The session's kind."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._held: HeldInput | None = None
        """The input, while a step of a handshake takes time."""
        self._traces: tuple[ProtocolTrace, ProtocolTrace] | None = None
        """The traces of input and output, once the log shows them."""
        self._unsent: list[bytes | memoryview] = []
        """Large output that leaves in slices, the last part first; the session's later output waits for its end."""
        self.session: Session
        self.transport: asyncio.Transport
        self.blocked_since = 0.0
        self.blocked_bytes = 0
        """Bytes that had left the session and waited at that time."""
        self.flush_since = 0.0
        """Time since which large output leaves more slowly than it is written: it has one write deadline in all."""
        self.slow_since = 0.0
        """Time of the first missed write deadline, while the client is still kept."""
        self.closing = False
        self.paused = False
        self.ready = True
        """The session's output may leave."""

    def _hold(self, step: Coroutine[Any, Any, str], then: Callable[[str, bytes], None]) -> None:
        def ended(fault: str, kept: bytes) -> None:
            self._held = None
            then(fault, kept)

        self._held = HeldInput(self, self._shell.loop, self._shell.log, step, ended)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if is_gone(self.transport):
            return
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, self.kind)
        self._shell.wake()

    @property
    def name(self) -> str:
        return f"{joined(self.session.host, self.session.port)} - {self.mark}:{self.session.cid}"

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shell.read_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._shell.take_read(nbytes))

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def shake_hands(self, data: bytes) -> None:
        """Continue with a part of a handshake that the shell has kept for a later turn."""
        self._received(data)

    def _received(self, data: bytes) -> None:
        self._shell.received(self, data)
        if len(data) >= MUCH_READ_BYTES:
            self._give_way()

    def _give_way(self) -> None:
        if not self.paused and not self.transport.is_closing():
            self.transport.pause_reading()
            self._shell.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Read again, unless something else has paused this connection meanwhile."""
        if not self.paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        """Close when the client has closed its side, after the answers up to here; return True if that takes turns."""
        self.flush()
        if self._unsent and not self.closing:
            self.close()
        return bool(self._unsent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unsent.clear()
        self._shell.closed(self)

    def pause_writing(self) -> None:
        """Record the time since which the client does not take its output."""
        if not self.flush_since:
            self.flush_since, self.blocked_bytes = self._shell.loop.time(), self.waiting_bytes
        self.blocked_since = self.flush_since
        self._shell.blocked(self)

    def resume_writing(self) -> None:
        self.blocked_since = 0.0
        if not self._unsent:
            self._caught_up()
        self.flush()

    def _caught_up(self) -> None:
        self.flush_since = 0.0
        if self.slow_since:
            took_s, self.slow_since = self._shell.loop.time() - self.slow_since, 0.0
            self._shell.log.info(f"{self.name} - Slow Consumer Recovered: Flush took {took_s:.3f}s")

    def flush(self) -> None:
        """Move the session's output to the transport unless that is full, and close when the session asks for it."""
        session = self.session
        if self.ready and not self.blocked_since:
            if self._unsent:
                self._shell.write_large(self)
            else:
                size = session.pending_bytes
                parts = session.take_output()
                if parts and not self.transport.is_closing():
                    if (size <= LARGE_BYTES and not self._shell.log.tracing) or (
                        size <= self.slice_bytes and self._shell.may_write(size / self.slice_bytes)
                    ):
                        self._send(parts)
                    else:
                        self._unsent += reversed(parts) if size > SMALL_BYTES * len(parts) else (b"".join(parts),)
                        self._shell.write_large(self)
        if session.close_reason is not None and not self.closing:
            self.close()

    def _send(self, parts: Sequence[bytes | memoryview]) -> None:
        data = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
        if self._shell.log.tracing:
            self._trace(data, sent=True)
        self._write(data)

    @property
    def slice_bytes(self) -> int:
        """Bytes that may be written at once."""
        return TRACED_BYTES if self._shell.log.tracing else SLICE_BYTES

    @property
    def may_send_more(self) -> bool:
        """Whether large output waits, and the transport has room for it."""
        return bool(self._unsent) and not self.blocked_since

    @property
    def waiting_bytes(self) -> int:
        """Size of the output that has left the session and waits here or in the transport."""
        return self.transport.get_write_buffer_size() + sum(map(len, self._unsent))

    def write_slice(self) -> None:
        """Write the next bytes of large output; after the last ones close, or flush later output."""
        unsent, left, parts = self._unsent, self.slice_bytes, list[bytes | memoryview]()
        while unsent and left:
            part = unsent.pop()
            if len(part) > left:
                view = memoryview(part)
                unsent.append(view[left:])
                part = view[:left]
            left -= len(part)
            parts.append(part)
        if self.transport.is_closing():
            unsent.clear()
        elif parts:
            self._send(parts)
            if not unsent:
                if not self.blocked_since:
                    self._caught_up()
                (self._hang_up if self.closing else self.flush)()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)

    def traced(self, data: bytes) -> Iterator[bytes]:
        """Yield input in small pieces, and log each before that."""
        for at in range(0, len(data), TRACED_BYTES):
            piece = data[at : at + TRACED_BYTES]
            if self.session.close_reason is None:
                self._trace(piece, sent=False)
            yield piece

    def _trace(self, data: bytes, *, sent: bool) -> None:
        log = self._shell.log
        if self._traces is None:
            from natsctl.server.log.trace import ProtocolTrace

            self._traces = ProtocolTrace(sent=False), ProtocolTrace(sent=True)
        name = self.session.log_name
        for line in self._traces[sent].lines(data, log.traced_bytes):
            log.trace(f"{name} - {line}")

    def close(self) -> None:
        """Close after the output that has left the session is sent, or after a bounded wait."""
        self.closing = True
        self._shell.loop.call_later(CLOSE_WAIT_S, lambda: self.transport.abort())
        if not self._unsent:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.session.unread > MUCH_UNREAD_BYTES:
            reset_at_close(self.transport)
        self.transport.close()

    def pause(self) -> None:
        """Stop reading until the shell's `resume`."""
        if not self.paused and not self.transport.is_closing():
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()


class HeldInput:
    """The input of a connection during a long step of its handshake: nothing is read, earlier input is kept."""

    __slots__ = ("_connection", "_kept", "_log", "_task", "_then")

    def __init__(
        self, connection: ClientConnection, loop: asyncio.AbstractEventLoop, log: Log,
        step: Coroutine[Any, Any, str], then: Callable[[str, bytes], None],
    ) -> None:  # fmt: skip
        """Begin a step (it bounds its own time); `then` gets its result, "" for success, and the input."""
        self._connection = connection
        self._log = log
        self._then = then
        self._kept = b""
        connection.pause()
        self._task = loop.create_task(step)
        self._task.add_done_callback(self._done)

    def keep(self, data: bytes) -> None:
        self._kept += data

    def cancel(self) -> None:
        self._task.cancel()

    def _done(self, task: asyncio.Task[str]) -> None:
        if task.cancelled() or self._connection.closing:
            return
        fault = task.exception()
        if fault is not None:
            self._log.error(f"internal fault in a handshake: {fault!r}")
        self._connection.resume()
        self._then("internal error" if fault is not None else task.result(), self._kept)


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


def peer_of(transport: asyncio.Transport) -> tuple[str, int]:
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple) and len(peer) >= 2:
        return str(peer[0]).removeprefix(MAPPED), int(peer[1])
    return "", 0


class TransportEndpoint:
    def __init__(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket | None = None,
    ) -> None:
        """Prepare to listen on `host`:`port`; `factory` makes one protocol a connection.

        `sock` is a socket that listens there already.
        """
        self._host = host
        self._port = port
        self._factory = factory
        self._socket = sock
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    def bind(self) -> None:
        """Take the address: connections wait until `start`, or are closed by `stop_accepting`; raises OSError."""
        if self._socket is None:
            self._socket = bind(self._host, self._port)

    async def start(self) -> None:
        self.bind()
        assert self._socket is not None
        self._server = await asyncio.get_running_loop().create_server(self._factory, sock=self._socket, backlog=BACKLOG)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    async def stop(self) -> None:
        self.stop_accepting()


ListeningEndpoint: TypeAlias = "TransportEndpoint | HttpServer"


@contextmanager
def named(kind: str) -> Iterator[None]:
    """Note on an OSError which kind of listener it is about."""
    try:
        yield
    except OSError as error:
        error.add_note(kind)
        raise
