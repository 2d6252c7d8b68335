"""A connection that may be under TLS, on either side of it: handshake, certificates, and records taken apart.

A step of the handshake may take time: a staple is fetched for it, or the other side's certificates are checked at their
OCSP responders. Nothing is read meanwhile, and what had been read is kept.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from natsctl.server.listener import ClientConnection
from natsctl.server.tls.contexts import BAD_CERTIFICATE, INTERNAL_ERROR, Layer, SecureTransport
from natsctl.server.tls.listener_tls import ListenerTls

if TYPE_CHECKING:
    from natsctl.broker.auth.credentials import TlsFacts
    from natsctl.server.options import TlsOptions
    from natsctl.server.shell import Shell


class SecuredConnection(ClientConnection):
    """The transport side of one session, with a `Layer` between them once a handshake has begun."""

    __slots__ = ("_layer", "_secure", "_timer", "raw")

    peer_kind: ClassVar = "Client"
    """The kind of connection in events about certificates."""
    peer_is_server: ClassVar = False

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._layer: Layer | None = None
        self._secure = False
        """The handshake is complete, and the other side's certificates are accepted."""
        self._timer: asyncio.TimerHandle | None = None
        self.raw: asyncio.Transport

    # Hooks for the kinds of connections

    @property
    def _tls_options(self) -> TlsOptions | None:
        raise NotImplementedError

    def _secured(self, layer: Layer) -> bool:
        """Continue after the handshake; False if the connection ends with it."""
        raise NotImplementedError

    def _arrived(self, clear: bytes) -> None:
        raise NotImplementedError

    def _broken(self, layer: Layer, error: ssl.SSLError, size: int) -> None:
        """End a connection after `size` bytes that are not TLS, or a failed handshake."""
        raise NotImplementedError

    def _refuse(self, fault: str) -> None:
        """End a connection with certificates that are not accepted, or that have no staple."""
        raise NotImplementedError

    def _ended(self) -> None:
        raise NotImplementedError

    # Time limits

    def _after(self, seconds: float, step: Callable[..., object], *args: object) -> None:
        self._stop_timer()
        self._timer = self._shell.loop.call_later(seconds, step, *args)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _let_go(self) -> None:
        self._stop_timer()
        if self._held is not None:
            self._held.cancel()

    # The handshake

    def _accept_handshake(self, tls: ListenerTls) -> None:
        """Begin the server's side of the handshake, once its staples are there."""
        if tls.contexts.ready:
            self._layer = tls.contexts.layer()
        else:
            self._hold(tls.contexts.prepare(), partial(self._stapled, tls))

    def _stapled(self, tls: ListenerTls, fault: str, kept: bytes) -> None:
        if fault and not tls.contexts.ready:
            self.raw.write(INTERNAL_ERROR)
            self._refuse(fault)
            return
        self._layer = tls.contexts.layer()
        if kept:
            self.data_received(kept)

    @property
    def _shakes_hands(self) -> bool:
        """Whether the next input is a step of a handshake: about a millisecond of work."""
        return self._layer is not None and not self._secure

    def data_received(self, data: bytes) -> None:
        """Take records apart, if the connection is under TLS."""
        if self._held is not None or not self._shakes_hands or not self._shell.postpones(self, data):
            self.shake_hands(data)

    def shake_hands(self, data: bytes) -> None:
        """Continue with the handshake, or with what follows it."""
        layer = self._layer
        if self._held is not None:
            self._held.keep(data)
            return
        if layer is None:
            self._arrived(data)
            return
        try:
            clear = layer.feed(data)
        except ssl.SSLError as error:
            self._broken(layer, error, len(data))
            return
        options = self._tls_options
        if layer.done and not self._secure and options is not None and options.checks_peers:
            self._check_peer(layer, options, clear)
        else:
            self._answer(layer, layer.take(), clear)

    def _answer(self, layer: Layer, answer: bytes, clear: bytes) -> None:
        """Send the output of TLS, and forward its input."""
        if answer:
            self.raw.write(answer)
        if layer.done and not self._secure:
            self._secure = True
            if not self._secured(layer):
                return
        if clear:
            self._arrived(clear)
        if layer.ended:
            self._ended()

    def _check_peer(self, layer: Layer, options: TlsOptions, clear: bytes) -> None:
        """Check the other side's certificates at their responders before anything else happens.

        The end of the handshake waits too: where TLS 1.2 sends it, a refused client gets an alert in its place.
        """
        self._stop_timer()
        check = self._shell.check_peer
        assert check is not None and options.ocsp_peer is not None
        unverified = self.peer_is_server and options.insecure
        chain = [] if unverified else layer.verified_chain()
        verdict = check(chain, options.ocsp_peer, self.peer_kind, self.peer_is_server)
        self._hold(verdict, partial(self._checked, layer, layer.take(), clear))

    def _checked(self, layer: Layer, answer: bytes, clear: bytes, fault: str, kept: bytes) -> None:
        if fault:
            if not self.peer_is_server and layer.facts(first=False).version == "1.2":
                self.raw.write(BAD_CERTIFICATE)
            self._refuse(fault)
            return
        self._answer(layer, answer, clear)
        if kept:
            self.data_received(kept)

    def _identify(self, layer: Layer, facts: TlsFacts) -> str:
        """Give the session the facts of the handshake and the client's certificates; return their fault."""
        from natsctl.server.tls.certificates import identity, shown_chain

        session, options, chain = self.session, self._tls_options, layer.chain()
        if session.broker.callouts is not None:
            session.login.chain = shown_chain(layer.verified_chain() if chain else [], chain)
        pinned = options.pinned_certs if options is not None else frozenset()
        fault, session.tls, session.login.certificate = identity(chain, pinned, facts)
        return fault

    def _secure_transport(self, layer: Layer) -> None:
        self.transport = SecureTransport(self.raw, layer)
