"""One client connection over WebSocket, with or without TLS under it.

First a TLS handshake where the listener has one, then an HTTP request, then frames; the session opens when the request
was accepted.  From then on each piece of a message goes to the session as it arrives, so that no message is held in
memory as a whole, and each turn's output leaves as one binary message.  One timer bounds everything before the session.
"""

from __future__ import annotations

import asyncio
import ssl
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, cast

import h11
from wsproto.frame_protocol import CloseReason as Status
from wsproto.frame_protocol import Opcode

from natsctl.broker.deferred_work import cut
from natsctl.broker.refusals import CloseReason
from natsctl.server.listener import MUCH_READ_BYTES, WRITE_BUFFER_BYTES, is_gone, peer_of
from natsctl.server.options import TlsOptions, joined
from natsctl.server.tls.connection import SecuredConnection
from natsctl.server.tls.contexts import Layer, error_text
from natsctl.server.tls.listener_tls import ListenerTls
from natsctl.server.websocket.protocol import (
    FINAL,
    MAX_CONTROL_BYTES,
    STATUSES,
    FrameError,
    Upgrade,
    UpgradeError,
    Upgrader,
    WebSocketReader,
    WebSocketWriter,
    close_answer,
    close_frame,
    frame,
    nonsense,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from natsctl.server.shell import Shell


MAX_REQUEST_BYTES: Final = 64 * 1024
"""Longest request with its headers."""

COMPRESSED_SLICE_BYTES: Final = 128 << 10
"""Bytes of large output that are compressed at once: about a millisecond."""

MAX_WAITING: Final = 8192
"""Connections that may be without a session at the same time; the next one is closed at once."""


class WebSocketConnection(SecuredConnection):
    __slots__ = (
        "_address", "_goodbye", "_http", "_listener_tls", "_pong", "_reader", "_upgrade", "_upgrader", "_writer",
    )  # fmt: skip

    def __init__(self, shell: Shell, tls: ListenerTls, upgrader: Upgrader) -> None:
        super().__init__(shell)
        self._listener_tls = tls
        self._upgrader = upgrader
        self._http: h11.Connection | None = None
        """Reads the request; None before its first byte and after its last."""
        self._upgrade: Upgrade | None = None
        self._reader: WebSocketReader
        self._writer: WebSocketWriter
        self._goodbye = False
        """A close frame has left."""
        self._pong: bytes | None = None
        """The answer to the last ping, where the client does not take its output."""
        self._address = ("", 0)
        """Host and port of the other side: a reset socket does not know them any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = self.transport = cast(asyncio.Transport, transport)
        if is_gone(self.raw):
            return
        self._address = peer_of(self.raw)
        self.raw.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if len(self._upgrader.waiting) >= MAX_WAITING:
            self.raw.abort()
            return
        self._upgrader.waiting.add(self.raw)
        self._shell.add_silent(self)
        self._start_timer()
        if self._listener_tls.options is not None:
            self._accept_handshake(self._listener_tls)

    def _start_timer(self) -> None:
        self._after(self._upgrader.options.handshake_timeout_s, self.raw.abort)

    def _settled(self) -> None:
        self._stop_timer()
        self._upgrader.waiting.discard(self.raw)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settled()
        self._let_go()
        if self._upgrade is not None:
            super().connection_lost(exc)
        else:
            self._shell.remove_silent(self)

    def eof_received(self) -> bool:
        return super().eof_received() if self._upgrade is not None else False

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if len(data) >= MUCH_READ_BYTES:
            self._give_way()
        super().data_received(data)

    @property
    def _shakes_hands(self) -> bool:
        return self._upgrade is None

    @property
    def _tls_options(self) -> TlsOptions | None:
        return self._listener_tls.options

    def _secured(self, layer: Layer) -> bool:
        self._secure_transport(layer)
        return True

    def _ended(self) -> None:
        if not self.closing and (self._upgrade is None or self.session.deferred is None):
            self.transport.close()

    def _checked(self, layer: Layer, answer: bytes, clear: bytes, fault: str, kept: bytes) -> None:
        if not fault:
            self._start_timer()
        super()._checked(layer, answer, clear, fault, kept)

    def _refuse(self, fault: str) -> None:
        self._complain(f"websocket: http: TLS handshake error from {self._peer}: {fault}")
        self.raw.close()

    def _broken(self, layer: Layer, error: ssl.SSLError, size: int) -> None:
        if alert := layer.take():
            self.raw.write(alert)
        if self._upgrade is None:
            self._refuse(error_text(error))
            return
        self._end(CloseReason.READ_ERROR)
        self.raw.close()

    def _arrived(self, clear: bytes) -> None:
        if self._upgrade is None:
            self._shell.remove_silent(self)
            if self._http is None:
                self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
            self._http.receive_data(clear)
            self._read_request(self._http)
            return
        self._shell.received_pieces(self, self._pieces(clear), len(clear))

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Read the frames of a chunk, and yield the messages in them in pieces, empty ones for other frames."""
        try:
            for opcode, payload in self._reader.feed(data):
                if self.closing or self.session.close_reason is not None:
                    return
                if opcode.iscontrol():
                    self._on_control(opcode, payload)
                    yield b""
                    continue
                pieces = self.traced(payload) if self._shell.log.tracing else cut(payload)
                yield from pieces if payload else (b"",)
        except FrameError as fault:
            self._complain(f"{self.name} - read error: {fault}")
            self._say_goodbye(close_frame(fault.status, str(fault)))
            self._end(CloseReason.READ_ERROR)
        if self._layer is not None and self._layer.ended and not self.closing:
            self.transport.close()

    def _on_control(self, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.PING:
            self._answer_ping(payload)
        elif opcode is Opcode.CLOSE:
            answer = close_answer(payload)
            self.flush()
            self._say_goodbye(answer)
            self._end(CloseReason.CLIENT_CLOSED)

    def _end(self, reason: CloseReason) -> None:
        self.session.close(reason)
        self._shell.wake()

    def _answer_ping(self, payload: bytes) -> None:
        """Answer a ping; while the client does not read, only the last one is answered."""
        if self.blocked_since:
            self._pong = payload[:MAX_CONTROL_BYTES]
        else:
            self.transport.write(frame(FINAL | Opcode.PONG, payload))

    # The request

    @property
    def _peer(self) -> str:
        return joined(*self._address)

    def _complain(self, text: str) -> None:
        self._shell.log.error(text)

    def _read_request(self, http: h11.Connection) -> None:
        """Answer the request once it is whole; another may follow one that was refused."""
        request: h11.Request | None = None
        try:
            while True:
                event = http.next_event()
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.EndOfMessage) and request is not None:
                    self._answer_request(request, http.trailing_data[0])
                    return
                elif isinstance(event, h11.Data):
                    self._too_early()
                    return
                elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                    if request is not None:
                        self._too_early()  # its body is still to come
                    return
        except h11.RemoteProtocolError as error:
            text = ": missing required Host header" if "Missing mandatory Host" in str(error) else ""
            self.transport.write(nonsense(error.error_status_hint, text))
            self.transport.close()

    def _too_early(self) -> None:
        self._complain(f"{self._peer} - websocket handshake error: client sent data before handshake is complete")
        self.transport.close()

    def _answer_request(self, request: h11.Request, rest: bytes) -> None:
        try:
            upgrade = self._upgrader.upgrade(request, self._layer is not None)
        except UpgradeError as error:
            self._refuse_request(request, rest, error)
            return
        if rest or any(
            name == b"transfer-encoding" for name, _ in request.headers
        ):  # even an empty body came too early
            self._too_early()
            return
        self.transport.write(upgrade.answer)
        if upgrade.leaf and self._shell.leaf_shell is not None:
            self._shell = self._shell.leaf_shell
        elif upgrade.leaf:
            self._complain("Not configured to accept leaf node connections")
            self.transport.close()
            return
        self._open(upgrade)

    def _refuse_request(self, request: h11.Request, rest: bytes, error: UpgradeError) -> None:
        self._complain(f"{self._peer} - websocket handshake error: {error}")
        old = request.http_version < b"1.1"
        closing = any(name == b"connection" and b"close" in value.lower() for name, value in request.headers)
        head, now = request.method == b"HEAD", formatdate(usegmt=True)
        self.transport.write(refusal(error.status, now, old=old, head=head, closing=closing))
        if old or closing:
            self.transport.close()
            return
        self._http = None
        if rest:
            self._arrived(rest)

    def _open(self, upgrade: Upgrade) -> None:
        self._settled()
        self._upgrade = upgrade
        limit = self._upgrader.max_payload
        self._reader = WebSocketReader(compressed=upgrade.compressed, masked=upgrade.masked, limit=limit)
        deflater = self._upgrader.deflater if upgrade.compressed else None
        self._writer = WebSocketWriter(deflater, browser=upgrade.browser, whole=upgrade.whole)
        self._http = None
        session = self._shell.opened(self, *self._address, "websocket")
        if not upgrade.leaf:
            session.login.cookies = upgrade.cookies
        if self._layer is not None and (fault := self._identify(self._layer, self._layer.facts(first=False))):
            self._complain(f"{self.name} - TLS handshake error: {fault}")
            session.close(CloseReason.TLS_HANDSHAKE_ERROR)
        self._shell.wake()

    @property
    def name(self) -> str:
        """The name of this connection in log lines; a proxy's client comes before the proxy."""
        session, upgrade = self.session, self._upgrade
        before = upgrade.forwarded_for if upgrade is not None else ""
        proxied = f"[{before}]/" if ":" in before else f"{before}/" if before else ""
        mark = "lid_ws" if upgrade is not None and upgrade.leaf else "wid"
        return f"{proxied}{joined(session.host, session.port)} - {mark}:{session.cid}"

    # Bytes out

    def resume_writing(self) -> None:
        if self._pong is not None:
            pong, self._pong = self._pong, None
            self.transport.write(frame(FINAL | Opcode.PONG, pong))
        if self._upgrade is not None:
            super().resume_writing()
        else:
            self.blocked_since = self.flush_since = 0.0

    @property
    def slice_bytes(self) -> int:
        """Bytes that may be written at once."""
        usual = super().slice_bytes
        return min(COMPRESSED_SLICE_BYTES, usual) if self._upgrade is not None and self._upgrade.compressed else usual

    def _write(self, data: bytes) -> None:
        if not self._goodbye:
            self.transport.write(self._writer.messages(data))

    def _say_goodbye(self, data: bytes) -> None:
        if not self._goodbye and not self.transport.is_closing():
            self._goodbye = True
            self.transport.write(data)

    def _hang_up(self) -> None:
        reason = self.session.close_reason or CloseReason.SERVER_SHUTDOWN
        self._say_goodbye(close_frame(STATUSES.get(reason, Status.INTERNAL_ERROR), reason.value))
        super()._hang_up()
