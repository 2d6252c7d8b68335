"""A client connection that begins, or may begin, with a TLS handshake.

The session exists from the first moment, so that it counts and is seen; its output stays in it until it is clear how
to send it.  A connection waits (for a handshake before INFO), sniffs (the first byte distinguishes TLS from clear),
shakes hands, and is then open; only an open one has a running clock of its own.  Every state but the last is left after
a bounded time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from natsctl.broker.refusals import CloseReason
from natsctl.server.listener import WRITE_BUFFER_BYTES, ClientConnection, is_gone, peer_of
from natsctl.server.options import TLS_TIMEOUT_S, TlsOptions, joined
from natsctl.server.tls.contexts import (
    BAD_CERTIFICATE,
    INTERNAL_ERROR,
    RATE_WINDOW_S,
    Layer,
    SecureTransport,
    error_text,
    is_probe,
)

if TYPE_CHECKING:
    from natsctl.server.shell import Shell
    from natsctl.server.tls.contexts import ListenerTls


HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a TLS handshake."""

THROTTLED: Final = "Connection throttling is active. Please try again later."


class Stage(Enum):
    """Stages of a connection; `OPEN` with and without TLS."""

    WAITING = 1
    SNIFFING = 2
    HANDSHAKE = 3
    OPEN = 4


class TlsConnection(ClientConnection):
    """The transport side of one session on a listener with TLS."""

    __slots__ = ("_first", "_greeted", "_layer", "_listener_tls", "_options", "_stage", "_timer", "raw")

    kind = "tls"
    peer_kind: ClassVar = "Client"
    """The kind of connection in events about certificates."""
    handshake_names: ClassVar = ("TLS", "TLS client connection handshake")
    """The beginning of log lines about failed handshakes, and the name of one that begins."""

    def __init__(self, shell: Shell, tls: ListenerTls) -> None:
        super().__init__(shell)
        assert tls.options is not None
        self._listener_tls = tls
        self._options: TlsOptions = tls.options
        self._layer: Layer | None = None
        self._stage = Stage.WAITING
        self._first = self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self.raw: asyncio.Transport
        self.ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the session, and greet the client where the handshake does not come first."""
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

    def _after(self, seconds: float, step: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._shell.loop.call_later(seconds, step)

    @property
    def _timeout_s(self) -> float:
        return self._options.timeout_s or TLS_TIMEOUT_S

    def _greet(self) -> None:
        """Send INFO in clear, and continue."""
        self._greeted = True
        self.raw.write(b"".join(self.session.take_output()))
        self.proceed()

    def handshake_comes_first(self) -> bool:
        """Return whether something arrived before INFO was sent, which then waits for the handshake."""
        if not self._greeted and self._timer is not None:
            self._timer.cancel()
        return not self._greeted

    def expect_handshake(self) -> None:
        """Begin with the handshake, before INFO."""
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
        """Begin the handshake, unless there are too many."""
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
        if self._listener_tls.unready():
            self._hold(self._listener_tls.made_ready(), self._stapled)
        else:
            self._layer = self._listener_tls.layer()

    def _stapled(self, fault: str, kept: bytes) -> None:
        """Continue the handshake with the responses that were fetched for it."""
        if fault and self._listener_tls.unready():
            self.raw.write(INTERNAL_ERROR)
            self._fail(fault, loud=True)
            return
        self._layer = self._listener_tls.layer()
        if kept:
            self.data_received(kept)

    def data_received(self, data: bytes) -> None:
        """Take records apart; before that, find out whether they are any."""
        if self._stage is Stage.WAITING:
            self.expect_handshake()
        elif self._stage is Stage.SNIFFING:
            if data[:1] == HANDSHAKE_RECORD:
                self._begin_handshake()
            else:
                self._open()
        if self._held is not None:
            self._held.keep(data)
            return
        layer = self._layer
        if layer is None:
            if not self.closing:
                super().data_received(data)
            return
        try:
            clear = layer.feed(data)
        except ssl.SSLError as error:
            self._broken(layer, error, len(data))
            return
        if layer.done and self._stage is Stage.HANDSHAKE and self._options.checks_peers:
            self._check_peer(layer, clear)
            return
        self._answer(layer, layer.take(), clear)

    def _answer(self, layer: Layer, answer: bytes, clear: bytes) -> None:
        """Send what TLS has to send, and pass on what was received."""
        if answer:
            self.raw.write(answer)
        if layer.done and self._stage is Stage.HANDSHAKE and not self._secured(layer):
            return
        if clear:
            super().data_received(clear)
        if layer.ended and not self.closing:
            self.eof_received()
            self.transport.close()

    def _check_peer(self, layer: Layer, clear: bytes) -> None:
        """Check the client's certificates at their responders before anything else happens.

        The end of the handshake waits too: where TLS 1.2 sends it, a refused client gets an alert in its place.
        """
        if self._timer is not None:
            self._timer.cancel()
        peers, options = self._shell.peers, self._options.ocsp_peer
        assert peers is not None and options is not None
        verdict = peers.verdict(layer.verified_chain(), options, self.peer_kind)
        self._hold(verdict, partial(self._checked, layer, layer.take(), clear))

    def _checked(self, layer: Layer, answer: bytes, clear: bytes, fault: str, kept: bytes) -> None:
        """Continue after the check, or end the connection."""
        if fault:
            if layer.facts(first=False).version == "1.2":
                self.raw.write(BAD_CERTIFICATE)
            self._fail(fault, loud=True)
            return
        self._answer(layer, answer, clear)
        if kept:
            self.data_received(kept)

    def _secured(self, layer: Layer) -> bool:
        """Continue under TLS; False where the client's certificate is refused."""
        from natsctl.server.tls.certificates import identity, shown_chain

        session = self.session
        chain = layer.chain()
        if session.broker.callouts is not None:
            session.login.chain = shown_chain(layer.verified_chain() if chain else [], chain)
        session.tls = layer.facts(self._first)
        if chain or self._options.pinned_certs:
            fault, session.tls, session.login.certificate = identity(chain, self._options.pinned_certs, session.tls)
            if fault:
                self._fail(fault, loud=True)
                return False
        self.transport = SecureTransport(self.raw, layer)
        if self._shell.log.debugging:
            self._shell.log.debug(f"{self.name} - TLS handshake complete")
            facts = session.tls
            self._shell.log.debug(f"{self.name} - TLS version {facts.version}, cipher suite {facts.cipher}")
        if self._first:
            session.take_output()
            session.send_info()
        self._open()
        return True

    def _open(self) -> None:
        """Open the session, and start its timers."""
        if self._timer is not None:
            self._timer.cancel()
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
        """nats-server's name for a read of this connection."""
        return f"read tcp {joined(*local_of(self.raw))}->{joined(self.session.host, self.session.port)}"

    def _fail(self, why: str, *, loud: bool) -> None:
        """End a connection whose handshake failed."""
        log_line = self._shell.log.error if loud else self._shell.log.debug
        log_line(f"{self.name} - {self.handshake_names[0]} handshake error: {why}")
        self.session.close(CloseReason.TLS_HANDSHAKE_ERROR)
        self._cut()

    def _cut(self) -> None:
        """Close without another word of the session."""
        if self._held is not None:
            self._held.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.ready = False
        self.session.take_output()
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
        """Drop the session."""
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            self._held.cancel()
        if self._stage is Stage.HANDSHAKE and self.session.close_reason is None:
            why = f"{self._reading}: read: {text_of(exc)}" if exc is not None else "EOF"
            self._shell.log.error(f"{self.name} - {self.handshake_names[0]} handshake error: {why}")
            self.session.close(CloseReason.TLS_HANDSHAKE_ERROR)
        super().connection_lost(exc)


def text_of(error: Exception) -> str:
    """Return the system's text for an error of a socket."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def local_of(transport: asyncio.Transport) -> tuple[str, int]:
    """Return host and port of this side."""
    name = transport.get_extra_info("sockname")
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("", 0)
