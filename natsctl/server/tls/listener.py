"""A client connection that begins, or may begin, with a TLS handshake.

The session exists from the first moment, so that it counts and is seen; its output stays in it until it is clear how
to send it.  A connection waits (for a handshake before INFO), sniffs (the first byte distinguishes TLS from clear),
shakes hands, and is then open; only an open one has a running clock of its own.  Every state but the last is left after
a bounded time.
"""

from __future__ import annotations

import asyncio
import ssl
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, cast

from natsctl.broker.refusals import CloseReason
from natsctl.server.listener import WRITE_BUFFER_BYTES, is_gone, peer_of
from natsctl.server.options import TLS_TIMEOUT_S, TlsOptions, joined
from natsctl.server.tls.connection import SecuredConnection
from natsctl.server.tls.contexts import Layer, error_text, is_probe
from natsctl.server.tls.listener_tls import RATE_WINDOW_S, ListenerTls

if TYPE_CHECKING:
    from natsctl.server.shell import Shell


HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a TLS handshake."""

THROTTLED: Final = "Connection throttling is active. Please try again later."


class Stage(Enum):
    WAITING = 1
    SNIFFING = 2
    HANDSHAKE = 3
    OPEN = 4


class TlsConnection(SecuredConnection):
    __slots__ = ("_first", "_greeted", "_listener_tls", "_options", "_stage")

    kind = "tls"
    handshake_names: ClassVar = ("TLS", "TLS client connection handshake")
    """The beginning of log lines about failed handshakes, and the name of one that begins."""

    def __init__(self, shell: Shell, tls: ListenerTls) -> None:
        super().__init__(shell)
        assert tls.options is not None
        self._listener_tls = tls
        self._options: TlsOptions = tls.options
        self._stage = Stage.WAITING
        self._first = self._greeted = False
        self.ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = self.transport = cast(asyncio.Transport, transport)
        if is_gone(self.raw):
            return
        self.raw.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        host, port = peer_of(self.raw)
        self.session = self._shell.opened(self, host, port, self.kind)
        self.session.hold_timers()
        if self.session.close_reason is not None:  # refused: reported in clear
            if self._options.handshake_first:
                *_, why = self.session.take_output()
                self.session.write(why)
            self._stage, self.ready = Stage.OPEN, True
            self._shell.wake()
        elif not self._options.handshake_first:
            self._greet()
        elif self._options.fallback_s > 0:
            self._after(self._options.fallback_s, self._greet)
        else:
            self.expect_handshake()

    @property
    def _timeout_s(self) -> float:
        return self._options.timeout_s or TLS_TIMEOUT_S

    def _greet(self) -> None:
        self._greeted = True
        self.raw.write(b"".join(self.session.take_output()))
        self.proceed()

    def handshake_comes_first(self) -> bool:
        """Return whether something arrived before INFO was sent; INFO then waits for the handshake."""
        if not self._greeted:
            self._stop_timer()
        return not self._greeted

    def expect_handshake(self) -> None:
        self._first = True
        self._begin_handshake()

    def proceed(self) -> None:
        """Continue after INFO, according to the listener's settings and the client's first byte."""
        if self._listener_tls.allow_non_tls:
            self._stage = Stage.SNIFFING
            self._after(self._timeout_s, self._open)
        else:
            self._begin_handshake()

    def _begin_handshake(self) -> None:
        if not self._listener_tls.admits():
            if self._listener_tls.blocked == 1:
                self._shell.loop.call_later(RATE_WINDOW_S, self._listener_tls.log_blocked, self._shell.log)
            self._stage = Stage.OPEN
            self.session.take_output()
            self.ready = True
            self.session.close(CloseReason.MAX_CONNECTIONS_EXCEEDED, THROTTLED)
            self._shell.wake()
            return
        self._shell.log.debug(f"{self.name} - Starting {self.handshake_names[1]}")
        self._stage = Stage.HANDSHAKE
        self._after(self._timeout_s, self._late)
        self._accept_handshake(self._listener_tls)

    @property
    def _shakes_hands(self) -> bool:
        return self._stage is not Stage.OPEN

    def shake_hands(self, data: bytes) -> None:
        if self._stage is Stage.WAITING:
            self.expect_handshake()
        elif self._stage is Stage.SNIFFING:
            if data[:1] == HANDSHAKE_RECORD:
                self._begin_handshake()
            else:
                self._open()
        super().shake_hands(data)

    @property
    def _tls_options(self) -> TlsOptions:
        return self._options

    def _arrived(self, clear: bytes) -> None:
        if self._layer is not None or not self.closing:
            self._received(clear)

    def _ended(self) -> None:
        if not self.closing and not self.eof_received():
            self.transport.close()

    def _refuse(self, fault: str) -> None:
        self._fail(fault, loud=True)

    def _secured(self, layer: Layer) -> bool:
        session = self.session
        if fault := self._identify(layer, layer.facts(self._first)):
            self._refuse(fault)
            return False
        self._secure_transport(layer)
        if self._shell.log.debugging and session.tls is not None:
            self._shell.log.debug(f"{self.name} - TLS handshake complete")
            facts = session.tls
            self._shell.log.debug(f"{self.name} - TLS version {facts.version}, cipher suite {facts.cipher}")
        if self._first:
            session.take_output()
            session.send_info()
        self._open()
        return True

    def _open(self) -> None:
        self._stop_timer()
        self._stage = Stage.OPEN
        self.ready = True
        self.session.start_timers()
        self.flush()

    def _broken(self, layer: Layer, error: ssl.SSLError, size: int) -> None:
        """End a connection that sent `size` bytes of other data than TLS, after the alert about it."""
        alert = b"" if is_probe(error) else layer.take()
        if is_probe(error):
            self.session.unread = size
        if alert:
            self.raw.write(alert)
        if self._stage is Stage.HANDSHAKE:
            self._fail(error_text(error), loud=not is_probe(error))
        else:
            self.session.close(CloseReason.READ_ERROR)
            self._cut()

    def _late(self) -> None:
        self._fail(f"{self._reading}: i/o timeout", loud=False)
        self._shell.log.debug(f"{self.name} - TLS handshake timeout")

    @property
    def _reading(self) -> str:
        return f"read tcp {joined(*local_of(self.raw))}->{joined(self.session.host, self.session.port)}"

    def _fail(self, why: str, *, loud: bool) -> None:
        log_line = self._shell.log.error if loud else self._shell.log.debug
        log_line(f"{self.name} - {self.handshake_names[0]} handshake error: {why}")
        self.session.close(CloseReason.TLS_HANDSHAKE_ERROR)
        self._cut()

    def _cut(self) -> None:
        self._let_go()
        self.ready = False
        self.session.take_output()
        self._unsent.clear()
        self.transport = self.raw
        if not self.closing:
            self.close()

    def eof_received(self) -> bool:
        """Close; a handshake that the other side broke off has failed."""
        if self._stage is Stage.HANDSHAKE:
            self._fail("EOF", loud=True)
            return False
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        if self._stage is Stage.HANDSHAKE and self.session.close_reason is None:
            why = f"{self._reading}: read: {text_of(exc)}" if exc is not None else "EOF"
            self._shell.log.error(f"{self.name} - {self.handshake_names[0]} handshake error: {why}")
            self.session.close(CloseReason.TLS_HANDSHAKE_ERROR)
        super().connection_lost(exc)


def text_of(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def local_of(transport: asyncio.Transport) -> tuple[str, int]:
    name = transport.get_extra_info("sockname")
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("", 0)
