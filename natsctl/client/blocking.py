"""A blocking connection to a NATS server, over the protocol of `wire/client.py`: requests, and raw bytes.

Theory of operation. Received and unused bytes are in `_rest`; it always begins with a frame. `answer` and `flush` take
whole frames from it, answer PINGs on the way and keep messages of other subscriptions and answers to other open
requests. A caller that needs bytes as fast as they arrive calls `read`, cuts them into frames itself, passes lines that
are not messages to `handle_line`, and returns the rest with `unread` before any other request.

Failures are TimeoutError, ServerLineError, ConnectionError and ValueError. This module imports only `wire` and
`hints`, because Spark carries it to executors that have no natsctl.
"""

from __future__ import annotations

import _socket  # `socket` makes enumerations of its constants: a fifth of the start of an empty Python
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine

from natsctl.hints import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar
from natsctl.wire.client import ClientCredentials, ClientProtocol, encode_pub, encode_sub, encode_unsub
from natsctl.wire.server_frames import PING_LINE, BrokenFrameError, FrameBuffer, frames

if TYPE_CHECKING:
    import socket

T = TypeVar("T")

READ_BYTES: Final = 1 << 20
FIRST_READ_BYTES: Final = 1 << 16
"""Size of the first read for one message; the allocator maps and unmaps memory for larger buffers each time."""
MAX_MESSAGE_BYTES: Final = 64 << 20
"""Largest `max_payload` of nats-server."""
SEND_WITHIN_S: Final = 60.0
"""Time within which a server must read more; it reads at any time, unless it hangs."""
ANSWERS: Final = b"1"
"""Subscription of the answers to requests."""
_SHORTEST_S: Final = 1e-4
"""Timeout of a read that does not wait; 0 would make the socket non-blocking, with other exceptions."""


class BlockingConnection:
    """One connection, made by `connect`."""

    def __init__(self, inbox_prefix: str = "_INBOX") -> None:
        self._inbox_prefix = inbox_prefix
        self._protocol = ClientProtocol(ClientCredentials(), name="")
        self._wire: _socket.socket | None = None
        self._rest = b""
        self._inbox = ""
        self._requests = 0
        self._open: dict[bytes, tuple[bytes, bytes, bytes, bytes] | None] = {}
        """Requests without a reader yet, by reply subject, and the answers that have arrived."""
        self._sids = int(ANSWERS)
        self._left: set[bytes] = set()

    def connect(
        self,
        host: str | bytes,
        port: int,
        protocol: ClientProtocol,
        encrypt: Callable[[socket.socket], socket.socket],
        *,
        timeout_s: float,
        tls_first: bool = False,
    ) -> None:
        """Connect and log in; `encrypt` establishes TLS, before INFO if `tls_first`.

        Raises OSError, and as `ClientProtocol.receive`.
        """
        deadline_s = time.monotonic() + timeout_s
        wire = _connected(host, port, timeout_s)
        try:
            wire.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            if tls_first:
                wire = encrypt(_whole(wire))
            while not protocol.ready:
                wire.settimeout(max(deadline_s - time.monotonic(), _SHORTEST_S))
                data = wire.recv(READ_BYTES)
                if not data and not protocol.info:
                    raise ValueError("the connection ended before INFO")
                if not data:
                    raise ConnectionError("the server closed the connection")
                answer = protocol.receive(data)
                if protocol.starts_tls:
                    wire = encrypt(_whole(wire))
                    answer = protocol.secured()
                if answer:
                    wire.sendall(answer)
        except BaseException:
            wire.close()
            raise
        self._wire, self._protocol, self._rest = wire, protocol, protocol.rest

    def close(self) -> None:
        """End the connection; no-op if it has ended."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None
        self._rest = b""
        self._inbox = ""

    @property
    def info(self) -> dict[str, Any]:
        return self._protocol.info

    # Raw bytes

    def send(self, data: bytes) -> None:
        """Send protocol lines; raises OSError, also if the server reads nothing for long."""
        wire = self._open_wire()
        wire.settimeout(SEND_WITHIN_S)
        wire.sendall(data)

    def read(self, timeout_s: float, max_bytes: int = READ_BYTES) -> bytes:
        """Return received bytes, possibly ending within a frame; raises TimeoutError, ConnectionError, OSError."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        return self._received(lambda wire: wire.recv(max_bytes), timeout_s)

    def read_into(self, room: memoryview, timeout_s: float) -> int:
        """Receive bytes into `room` and return their number; raises as `read`."""
        if self._rest:
            data, self._rest = self._rest[: len(room)], self._rest[len(room) :]
            room[: len(data)] = data
            return len(data)
        return self._received(lambda wire: wire.recv_into(room), timeout_s)

    def _received(self, receive: Callable[[_socket.socket], T], timeout_s: float) -> T:
        wire = self._open_wire()
        wire.settimeout(max(timeout_s, _SHORTEST_S))
        received = receive(wire)
        if not received:
            raise ConnectionError("the server closed the connection")
        return received

    def unread(self, data: bytes) -> None:
        """Put back unused bytes of `read`; they begin with a frame."""
        self._rest = data + self._rest

    def handle_line(self, line: bytes) -> None:
        """Handle a line between messages; raises ServerLineError, ValueError, and as `send`."""
        if answer := self._protocol.handle_line(line):
            self.send(answer)

    # Messages

    def new_inbox(self) -> str:
        return f"{self._inbox_prefix}.{os.urandom(11).hex()}"

    def new_sid(self) -> int:
        self._sids += 1
        return self._sids

    def subscribe(self, subject: str) -> int:
        """Return the number of a new subscription."""
        sid = self.new_sid()
        self.send(encode_sub(subject.encode(), b"", b"%d" % sid))
        return sid

    def unsubscribe(self, sid: int) -> None:
        """End a subscription; its messages that still arrive are dropped by `exchange` and `flush`."""
        self._left.add(b"%d" % sid)
        self.send(encode_unsub(b"%d" % sid, 0))

    def exchange(self, subject: str, body: bytes, header: bytes, timeout_s: float) -> tuple[bytes, bytes]:
        """Return header block and body of the first answer to a request."""
        reply = self.ask(subject, body, header)
        try:
            return self.answer(reply, timeout_s)
        finally:
            self.forget(reply)

    def ask(self, subject: str, body: bytes, header: bytes) -> bytes:
        """Send a request and return its reply subject; several requests can be open until `forget`."""
        begin, subject_bytes = b"", subject.encode()
        if not self._inbox:
            self._inbox = self.new_inbox()
            begin = encode_sub(f"{self._inbox}.*".encode(), b"", ANSWERS)
        self._requests += 1
        reply = f"{self._inbox}.{self._requests:x}".encode()
        self.send(begin + encode_pub(subject_bytes, reply, header, body))
        self._open[reply] = None
        return reply

    def answer(self, reply: bytes, timeout_s: float) -> tuple[bytes, bytes]:
        """Return header block and body of the first answer to an open request."""
        message = self._open[reply] or self._wait(ANSWERS, reply, time.monotonic() + timeout_s)
        return message[2:]

    def forget(self, reply: bytes) -> None:
        """Close a request; an answer that still arrives is dropped."""
        self._open.pop(reply, None)

    def next_of(self, sid: int, timeout_s: float) -> tuple[bytes, bytes, bytes, bytes]:
        """Return subject, reply, header block and body of the next message of a subscription."""
        return self._wait(b"%d" % sid, b"", time.monotonic() + timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Return when the server has read everything that was sent."""
        self.send(PING_LINE)
        self._wait(b"", b"PONG", time.monotonic() + timeout_s)

    def _wait(self, awaited_sid: bytes, awaited: bytes, deadline_s: float) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the next message of a subscription, on a subject unless that is empty.

        Without a subscription wait for a line.

        Late answers and messages of ended subscriptions are dropped; other messages wait in `_rest` for their reader.
        """
        buffer, others = FrameBuffer(), list[bytes]()
        data, at, max_bytes = b"", 0, FIRST_READ_BYTES
        try:
            while True:
                data, at = buffer.join(self.read(deadline_s - time.monotonic(), max_bytes)), 0
                max_bytes = READ_BYTES
                for end, sid, subject, reply, header, body in frames(data):
                    begin, at = at, end
                    if sid == awaited_sid and subject == (awaited or subject):
                        return subject, reply, header, body
                    if not sid:
                        self.handle_line(subject)
                    elif sid == ANSWERS:
                        if self._open.get(subject, awaited) is None:
                            self._open[subject] = subject, reply, header, body
                    elif sid not in self._left:
                        others.append(data[begin:end])
                buffer.keep(data, at)
                at = len(data)
                if buffer.missing > MAX_MESSAGE_BYTES:
                    raise BrokenFrameError(f"a message of more than {MAX_MESSAGE_BYTES} bytes")
        finally:
            self.unread(b"".join(others) + buffer.kept + data[at:])

    def _open_wire(self) -> _socket.socket:
        if self._wire is None:
            raise ConnectionError("the connection is closed")
        return self._wire


def _connected(host: str | bytes, port: int, timeout_s: float) -> _socket.socket:
    """Return a socket that is connected to the first address of a host that answers; raises OSError."""
    failure = OSError("the host has no address")
    for family, kind, protocol, _, address in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
        wire = _socket.socket(family, kind, protocol)
        wire.settimeout(timeout_s)
        try:
            wire.connect(address)
        except OSError as reason:
            wire.close()
            failure = reason
        else:
            return wire
    raise failure


def _whole(wire: _socket.socket) -> socket.socket:
    """Return a socket as the class that TLS needs."""
    import socket

    timeout_s = wire.gettimeout()
    whole = socket.socket(fileno=wire.detach())
    whole.settimeout(timeout_s)
    return whole


@coroutine
def turn() -> Generator[None]:
    """Suspend work that has sent a request, so that other work can send its own before the answer is awaited."""
    yield


def completed(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that is suspended by `turn` only; raises RuntimeError otherwise."""
    steps = work.__await__()
    try:
        while next(steps) is None:
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("only requests on a plain connection can be awaited here")


class StartedWork(Generic[T]):
    """Work that has run up to its first `turn`; awaited, it runs to its end."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._steps = work.__await__()
        self._ended: Callable[[], T] | None = None
        try:
            next(self._steps)
        except StopIteration as end:
            result: T = end.value
            self._ended = lambda: result
        except Exception as failure:
            self._ended = partial(_raise, failure)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._ended() if self._ended is not None else (yield from self._steps)

    def cancel(self) -> None:
        self._work.close()


def _raise(failure: Exception) -> NoReturn:
    raise failure
