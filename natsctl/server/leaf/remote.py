"""Remotes of a leaf node: connections to hubs in clear, under TLS or in WebSocket frames, made again for ever.

Theory of operation. A task goes round: take the next url, dial, wait until the transport is gone, wait a little. A dial
that fails waits `reconnect` and a random part of it more; a connection that ended waits `reconnect`, or as long as its
link asks for after a loop or a violation; one that the hub refused waits twice as long each time, bounded. Start-up
never waits for any of it.

A hub sends INFO in clear and TLS follows where it asks for it, or TLS comes first where the remote is configured so.
The link is made when there is a connection, and decides when TLS begins. Over WebSocket, TLS always comes first, then
the request, and the link is made when it was accepted. `lost` is done when the transport is gone.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import random
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

from natsctl.api.units import SECOND
from natsctl.broker.leaf.handshake import RemoteCredentialsError, RemoteOptions, Signer
from natsctl.broker.refusals import CloseReason
from natsctl.server.conf.syntax import read_file
from natsctl.server.listener import WRITE_BUFFER_BYTES, ClientConnection, peer_of
from natsctl.server.options import LeafRemoteOptions, TlsOptions
from natsctl.server.tls.contexts import SecureTransport, TlsLayer, client_context, error_text
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    from natsctl.broker.leaf.solicited import SolicitedLink
    from natsctl.server.leaf.nodes import LeafShell


HANDSHAKE_S: Final = 2.0
"""Default time limit of the TLS handshake. Source: nats-server, DEFAULT_LEAF_TLS_TIMEOUT."""

LinkMaker = Callable[[str, int, str, bool], "SolicitedLink"]
"""Called with host, port, kind of transport, and whether TLS is under it."""
ContextMaker = Callable[[], ssl.SSLContext]


class RemoteConnection(ClientConnection):
    """The transport side of a link that we asked for."""

    __slots__ = (
        "_context",
        "_first",
        "_hostname",
        "_layer",
        "_leaf_shell",
        "_make_link",
        "_raw",
        "_secure",
        "_shaking",
        "_timeout_s",
        "_timer",
        "_tls",
        "link",
        "lost",
    )  # fmt: skip
    mark: ClassVar = "lid"

    def __init__(
        self, leaf_shell: LeafShell, remote: LeafRemoteOptions, url: ServerUrl, context: ContextMaker,
        make_link: LinkMaker,
    ) -> None:  # fmt: skip
        super().__init__(leaf_shell.as_shell)
        self._leaf_shell = leaf_shell
        self._context = context
        self._hostname = url.host
        self._make_link = make_link
        self._timeout_s = remote.tls.timeout_s if remote.tls is not None else HANDSHAKE_S
        self._first = remote.tls is not None and remote.tls.handshake_first
        self._tls = remote.tls
        self._raw: asyncio.Transport
        self._layer: TlsLayer | None = None
        self._shaking = False
        self._secure = False
        self._timer: asyncio.TimerHandle | None = None
        self.link: SolicitedLink | None = None
        self.lost: asyncio.Future[None] = leaf_shell.loop.create_future()

    @property
    def name(self) -> str:
        """The name of this connection in log lines."""
        return self.link.label if self.link is not None else f"{self._hostname} - lid:0"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for INFO, or begin with TLS."""
        self._raw = self.transport = cast(asyncio.Transport, transport)
        self._raw.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._first:
            self._begin_handshake()
        else:
            self._ready()

    def _ready(self) -> None:
        """Pass the bytes that follow to the link."""
        self._open_link("tls" if self._secure else "tcp")

    def _open_link(self, kind: str) -> None:
        host, port = peer_of(self._raw)
        self.link = self._make_link(host, port, kind, self._secure)
        self._leaf_shell.adopt(self, self.link)
        self._leaf_shell.wake()

    # --- TLS

    def _begin_handshake(self) -> None:
        """Begin the handshake."""
        self.ready = False
        try:
            self._layer = TlsLayer(self._context(), self._hostname)
        except (OSError, ValueError) as error:
            self._broken(str(error))
            return
        self._shaking = True
        self._timer = self._leaf_shell.loop.call_later(self._timeout_s, self._broken, "i/o timeout")
        self._decrypt(b"")

    def _decrypt(self, data: bytes) -> None:
        layer = self._layer
        assert layer is not None
        try:
            clear = layer.feed(data)
        except ssl.SSLError as error:
            self._raw.write(layer.take())
            self._broken(reason_of(error))
            return
        if layer.done and self._shaking and self._tls is not None and self._tls.checks_peers:
            self._check_peer(layer, self._tls, clear)
            return
        self._answer(layer, layer.take(), clear)

    def _answer(self, layer: TlsLayer, answer: bytes, clear: bytes) -> None:
        """Send what TLS has to send, and pass on what was received."""
        if answer:
            self._raw.write(answer)
        if layer.done and self._shaking:
            self._secured(layer)
        if clear:
            self._arrived(clear)
        if layer.ended:
            self._raw.close()

    def _check_peer(self, layer: TlsLayer, options: TlsOptions, clear: bytes) -> None:
        """Check the hub's certificates at their responders; the end of the handshake waits for it too."""
        if self._timer is not None:
            self._timer.cancel()
        peers = self._leaf_shell.peers
        assert peers is not None and options.ocsp_peer is not None
        chain = [] if options.insecure else layer.verified_chain()  # of a hub that is not verified there is none
        verdict = peers.verdict(chain, options.ocsp_peer, "Leafnode", of_server=True)
        self._hold(verdict, partial(self._checked, layer, layer.take(), clear))

    def _checked(self, layer: TlsLayer, answer: bytes, clear: bytes, fault: str, kept: bytes) -> None:
        """Continue after the check, or end the connection."""
        if fault:
            self._broken(fault)
            return
        self._answer(layer, answer, clear)
        if kept:
            self.data_received(kept)

    def _secured(self, layer: TlsLayer) -> None:
        """Continue under TLS."""
        self._shaking = False
        self._secure = True
        if self._timer is not None:
            self._timer.cancel()
        self.transport = SecureTransport(self._raw, layer)
        self.ready = True
        if self.link is None:
            self._ready()
        else:
            self.link.secured()
        if self.link is not None:
            self.link.tls = layer.facts(self._first)

    def _broken(self, why: str) -> None:
        """End a connection whose handshake failed."""
        self._shaking = False
        self._leaf_shell.log.error(f"{self.name} - TLS leafnode handshake error: {why}")
        if self.link is not None:
            self.link.close(CloseReason.TLS_HANDSHAKE_ERROR)
        self._raw.close()

    # --- bytes

    def data_received(self, data: bytes) -> None:
        """Take a chunk, through TLS where there is one."""
        if self._held is not None:
            self._held.keep(data)
        elif self._layer is not None:
            self._decrypt(data)
        else:
            self._arrived(data)

    def _arrived(self, clear: bytes) -> None:
        if self.link is None or self.closing:
            return
        super().data_received(clear)
        if self.link.wants_tls and self._layer is None and self.link.close_reason is None:
            self._begin_handshake()

    def eof_received(self) -> bool:
        """Close when the hub has closed its side."""
        if self.link is not None:
            self.flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the link."""
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            self._held.cancel()
        if self.link is not None:
            super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)


def reason_of(error: ssl.SSLError) -> str:
    """Return nats-server's text for a fault of a certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    return error_text(error)


_PARTS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")
"""A creds file holds the user's JWT, then its seed, each between two lines of dashes."""


def signer_of(remote: LeafRemoteOptions, url: ServerUrl) -> Signer:
    """Return the signer of a hub's nonce; it reads its files at each use, so that renewed credentials are found."""

    def sign(nonce: bytes) -> Mapping[str, str]:
        shown: dict[str, str] = {}
        if remote.creds is not None:
            jwt, seed = read_creds(remote.creds)
            shown = {"jwt": jwt, "sig": _signature(seed, nonce, "Credentials file has malformed seed")[1]}
        elif remote.nkey:
            public, signature = _signature(remote.nkey.encode(), nonce, "Remote nkey has malformed seed")
            shown = {"nkey": public, "sig": signature}
        return {**shown, **_user(remote, url)}

    return sign


def read_creds(path: Path) -> tuple[str, bytes]:
    """Return JWT and seed of a creds file; raises RemoteCredentialsError."""
    try:
        content = read_file(path)
    except OSError as error:
        raise RemoteCredentialsError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    parts = _PARTS.findall(content)
    if len(parts) < 2:
        raise RemoteCredentialsError("Credentials file malformed")
    return parts[0].decode(), parts[1]


def _signature(seed: bytes, nonce: bytes, fault: str) -> tuple[str, str]:
    """Return the public key of a seed and its signature, as CONNECT has them; raises RemoteCredentialsError."""
    import nkeys

    try:
        pair = nkeys.from_seed(bytearray(seed))
        signature = base64.urlsafe_b64encode(pair.sign(nonce)).rstrip(b"=").decode()
        public = pair.public_key.decode()
        pair.wipe()
    except (nkeys.NkeysError, ValueError) as error:
        raise RemoteCredentialsError(fault) from error
    return public, signature


def _user(remote: LeafRemoteOptions, url: ServerUrl) -> dict[str, str]:
    """Return user and password of the url, or of the first one that has some where the hub has offered this one."""
    named = url if url.user else next((known for known in remote.urls if known.user), url)
    if not named.user:
        return {}
    if named.password is None:
        return {"user": named.user, "auth_token": named.user}
    return {"user": named.user, "password": named.password}


REFUSED_MAX_S: Final = 30.0
"""Longest wait after a hub that does not let us in."""
MAX_OFFERED_URLS: Final = 64
"""Limit of the urls that are kept of those that a hub advertises."""


class LeafRemote:
    """The state of one remote."""

    def __init__(
        self,
        leaf_shell: LeafShell,
        options: LeafRemoteOptions,
        reconnect_s: float,
        dial_timeout_s: float,
        reports: Callable[[bool, int], bool],
    ) -> None:
        """Prepare to connect; `reports` returns whether the failure of an attempt, by number, is logged as an error."""
        self.options = options
        self._leaf_shell = leaf_shell
        self._reconnect_s = reconnect_s
        self._dial_timeout_s = options.dial_timeout_s or dial_timeout_s
        self._reports = reports
        self._urls = list(options.urls)
        self._rng = random.SystemRandom()
        if not options.no_randomize:
            self._rng.shuffle(self._urls)
        self._tls_names = [url.host for url in options.urls if not _is_ip(url.host)]
        self._task: asyncio.Task[None] | None = None
        self._connection: RemoteConnection | None = None
        self._refusals = 0

    @property
    def link(self) -> SolicitedLink | None:
        """The link, where there is a connection."""
        return self._connection.link if self._connection is not None else None

    def start(self) -> None:
        """Begin to connect."""
        if self._task is None and self.options.urls and not self.options.disabled:
            self._task = self._leaf_shell.loop.create_task(self._run())

    def stop(self, reason: CloseReason = CloseReason.SERVER_SHUTDOWN) -> None:
        """Connect no more, and end the connection."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.link is not None:
            self.link.close(reason)

    def follow(self, options: LeafRemoteOptions) -> None:
        """Apply other options of the same remote: its TLS from the next connection on, and whether it is disabled."""
        before, self.options = self.options, options
        if options.disabled and not before.disabled:
            self.stop(CloseReason.CLIENT_CLOSED)
        else:
            self.start()

    async def _run(self) -> None:
        first = True
        while True:
            connection = await self._connect(first)
            first = False
            self._connection = connection
            await connection.lost
            if connection.link is not None:
                self._take_offers(connection.link)
            await asyncio.sleep(self._pause_s(connection.link))
            self._connection = None

    def _pause_s(self, link: SolicitedLink | None) -> float:
        """Return how long to wait before connecting again."""
        if link is not None and link.reconnect_delay_ns:
            return link.reconnect_delay_ns / SECOND
        if link is None or not link.was_registered:
            self._refusals += 1
        else:
            self._refusals = 0
        waited: float = self._reconnect_s * 2 ** min(max(self._refusals - 1, 0), 16)
        return min(waited, max(REFUSED_MAX_S, self._reconnect_s))

    async def _connect(self, first: bool) -> RemoteConnection:
        attempts = 0
        while True:
            url = self._next_url()
            self._leaf_shell.log.debug(f'Trying to connect as leafnode to remote server on "{url.address}"')
            try:
                return await self._dial(url)
            except (OSError, UnicodeError) as error:  # a name that is none is no text for the resolver
                attempts += 1
                log_line = self._leaf_shell.log.error if self._reports(first, attempts) else self._leaf_shell.log.debug
                log_line(
                    f'Error trying to connect as leafnode to remote server "{url.address}" (attempt {attempts}): '
                    f"{dial_text(url.host, url.address, error)}"
                )
                await asyncio.sleep(self._reconnect_s * (1 + self._rng.random()))

    async def _dial(self, url: ServerUrl) -> RemoteConnection:
        factory = self._factory(url)
        if self.options.proxy is not None:
            from natsctl.server.leaf.tunnel import open_tunnel

            return await open_tunnel(self.options.proxy, url.address, factory, self._dial_timeout_s)
        async with asyncio.timeout(self._dial_timeout_s):
            _, connection = await self._leaf_shell.loop.create_connection(factory, url.host, url.port)
        return connection

    def _factory(self, url: ServerUrl) -> Callable[[], RemoteConnection]:
        kind: type[RemoteConnection] = RemoteConnection
        if url.is_websocket:
            from natsctl.server.leaf.nodes import WebSocketRemoteConnection

            kind = WebSocketRemoteConnection
        name = self._tls_names[0] if self._tls_names and _is_ip(url.host) else url.host
        known = url._replace(host=name)

        def make(host: str, port: int, kind: str, secured: bool) -> SolicitedLink:
            return self._leaf_shell.leafs.solicit(self._link_options(url), host, port, kind, secured=secured)

        return lambda: kind(self._leaf_shell, self.options, known, lambda: client_context(self.options.tls), make)

    def _link_options(self, url: ServerUrl) -> RemoteOptions:
        options = self.options
        return RemoteOptions(
            account=options.account,
            hub=options.hub,
            deny_imports=options.deny_imports,
            deny_exports=options.deny_exports,
            isolate=options.isolate,
            request_isolation=options.request_isolation,
            first_info_ns=round(options.first_info_timeout_s * SECOND),
            tls=options.tls is not None or any(known.scheme == "tls" for known in options.urls),
            signer=signer_of(options, url),
        )

    def _next_url(self) -> ServerUrl:
        """Return the next url, of those that are configured and those that the hub has offered."""
        url = self._urls.pop(0)
        self._urls.append(url)
        return url

    def _take_offers(self, link: SolicitedLink) -> None:
        """Put the addresses that the hub advertises before the configured ones."""
        if self.options.ignore_discovered_servers:
            return
        websocket = self.options.urls[0].is_websocket
        scheme = self.options.urls[0].scheme if websocket else "nats-leaf"
        known = {url.address for url in self.options.urls}
        offered = [
            ServerUrl(scheme, host.strip("[]"), int(port))
            for text in (link.ws_urls if websocket else link.leafnode_urls)[:MAX_OFFERED_URLS]
            for host, _, port in [text.rpartition(":")]
            if host and port.isdecimal() and text not in known
        ]
        if offered:
            self._urls = [*offered, *(url for url in self._urls if url in self.options.urls)]


def _is_ip(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False


class TunnelError(OSError):
    """A proxy that makes no tunnel; the text is nats-server's."""

    def __str__(self) -> str:
        return str(self.args[0])


def dial_text(host: str, address: str, error: OSError | UnicodeError) -> str:
    """Return why a connection could not be made, in nats-server's words."""
    if isinstance(error, TunnelError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"lookup {host}: no such host"
    refused = error.errno == errno.ECONNREFUSED or "refused" in str(error)
    text = "connection refused" if refused else (error.strerror or str(error)).lower()
    return f"dial tcp {address}: connect: {text}"
