"""Connections to hubs: in clear, under TLS or in WebSocket frames.

A hub sends INFO in clear text and TLS follows if it requires it, or TLS comes first if the remote is configured so.
The link is made when there is a connection, and decides when TLS begins. Over WebSocket, TLS always comes first, then
the request, and the link is made when it was accepted. `lost` is done when the transport has closed.

A remote's task repeats: take the next url, dial, wait for the end of the transport, wait a little. A dial that fails
waits `reconnect` and a random part of it more; a connection that ended waits `reconnect`, or as long as its link asks
for after a loop or a violation; one that the hub refused waits twice as long each time, bounded. Start-up never waits
for any of it.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, RejectConnection, Request
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason as Status
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.api.units import SECOND
from natsctl.broker.deferred_work import cut
from natsctl.broker.leaf.handshake import RemoteCredentialsError, RemoteOptions, Signer
from natsctl.broker.refusals import CloseReason
from natsctl.server.files import read_file
from natsctl.server.leaf.dialing import HANDSHAKE_S, dial_text, open_tunnel, reason_of
from natsctl.server.listener import WRITE_BUFFER_BYTES, peer_of
from natsctl.server.options import LeafRemoteOptions
from natsctl.server.tls.connection import SecuredConnection
from natsctl.server.tls.contexts import Layer, TlsLayer, client_context
from natsctl.server.websocket.protocol import BoundedDeflate, FrameError
from natsctl.wire.client import NO_CREDENTIALS, ClientCredentials
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    from natsctl.broker.leaf.leaf_nodes import SolicitedLink
    from natsctl.server.leaf.nodes import LeafShell
    from natsctl.server.options import TlsOptions

LinkMaker = Callable[[str, int, str, bool], "SolicitedLink"]
"""Called with host, port, kind of transport, and whether TLS is under it."""
ContextMaker = Callable[[], ssl.SSLContext]


class RemoteConnection(SecuredConnection):
    __slots__ = ("_context", "_first", "_hostname", "_leaf_shell", "_make_link", "_timeout_s", "_tls", "link", "lost")

    mark: ClassVar = "lid"
    peer_kind: ClassVar = "Leafnode"
    peer_is_server: ClassVar = True

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
        self.link: SolicitedLink | None = None
        self.lost: asyncio.Future[None] = leaf_shell.loop.create_future()

    @property
    def name(self) -> str:
        return self.link.label if self.link is not None else f"{self._hostname} - lid:0"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = self.transport = cast(asyncio.Transport, transport)
        self.raw.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._first:
            self._begin_handshake()
        else:
            self._ready()

    def _ready(self) -> None:
        self._open_link("tls" if self._secure else "tcp")

    def _open_link(self, kind: str) -> None:
        host, port = peer_of(self.raw)
        self.link = self._make_link(host, port, kind, self._secure)
        self._leaf_shell.adopt(self, self.link)
        self._leaf_shell.wake()

    # TLS

    def _begin_handshake(self) -> None:
        self.ready = False
        try:
            self._layer = TlsLayer(self._context(), self._hostname)
        except (OSError, ValueError) as error:
            self._refuse(str(error))
            return
        self._after(self._timeout_s, self._refuse, "i/o timeout")
        super().data_received(b"")

    @property
    def _tls_options(self) -> TlsOptions | None:
        return self._tls

    def _secured(self, layer: Layer) -> bool:
        self._stop_timer()
        self._secure_transport(layer)
        self.ready = True
        if self.link is None:
            self._ready()
        else:
            self.link.secured()
        if self.link is not None:
            self.link.tls = layer.facts(self._first)
        return True

    def _broken(self, layer: Layer, error: ssl.SSLError, size: int) -> None:
        self.raw.write(layer.take())
        self._refuse(reason_of(error))

    def _refuse(self, fault: str) -> None:
        self._leaf_shell.log.error(f"{self.name} - TLS leafnode handshake error: {fault}")
        if self.link is not None:
            self.link.close(CloseReason.TLS_HANDSHAKE_ERROR)
        self.raw.close()

    def _ended(self) -> None:
        self.raw.close()

    # Bytes

    def _arrived(self, clear: bytes) -> None:
        if self.link is None or self.closing:
            return
        self._received(clear)
        if self.link.wants_tls and self._layer is None and self.link.close_reason is None:
            self._begin_handshake()

    def eof_received(self) -> bool:
        return self.link is not None and super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        if self.link is not None:
            super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)


INFLATE_BYTES: Final = 4096
"""Bytes of compressed frames that are inflated at once."""

PATH = "leafnode"
"""The header that identifies a leaf node to the listener."""


class WebSocketRemoteConnection(RemoteConnection):
    __slots__ = ("_patience_s", "_request", "_ws")

    def __init__(
        self,
        leaf_shell: LeafShell,
        remote: LeafRemoteOptions,
        url: ServerUrl,
        context: ContextMaker,
        make_link: LinkMaker,
    ) -> None:
        super().__init__(leaf_shell, remote, url, context, make_link)
        # One wss:// counts for all urls. Source: nats-server, newLeafNodeCfg.
        self._first = remote.tls is not None or any(known.scheme == "wss" for known in (url, *remote.urls))
        extensions: list[Extension] = []
        if remote.ws_compression:
            extensions.append(BoundedDeflate(leaf_shell.leafs.broker.options.max_pending))
        target = "/".join(part for part in ("", url.path.strip("/"), PATH) if part or not url.path.strip("/"))
        self._request = Request(host=url.address, target=f"/{target.strip('/')}", extensions=extensions)
        self._patience_s = remote.first_info_timeout_s
        self._ws = WSConnection(ConnectionType.CLIENT)

    def _ready(self) -> None:
        self._after(self._patience_s, self._refused, "no answer in time")
        self.transport.write(self._ws.send(self._request))

    def _refused(self, why: str) -> None:
        self._leaf_shell.log.error(f"{self.name} - Error soliciting websocket connection: {why}")
        self.raw.abort()

    def _arrived(self, clear: bytes) -> None:
        events = self._events(clear)
        if self.link is None:
            for _ in events:
                if self.link is not None:
                    break
        if self.link is not None:
            self._leaf_shell.received_pieces(self, events, len(clear))

    def _failed(self) -> None:
        if self.link is None:
            self._refused("invalid websocket connection")
        self.raw.abort()

    def _events(self, clear: bytes) -> Iterator[bytes]:
        """Handle the events in the input, and yield the pieces of messages.

        Few bytes are inflated at once: each may become a thousand.
        """
        try:
            for start in range(0, len(clear), INFLATE_BYTES):
                self._ws.receive_data(clear[start : start + INFLATE_BYTES])
                for event in self._ws.events():
                    if self.closing:
                        return
                    if isinstance(event, Message):
                        yield from cut(event.data.encode() if isinstance(event.data, str) else bytes(event.data))
                    else:
                        self._on_event(event)
                        yield b""
        except (RemoteProtocolError, LocalProtocolError, FrameError):
            self._failed()

    def _on_event(self, event: object) -> None:
        if isinstance(event, AcceptConnection):
            self._stop_timer()
            self._open_link("websocket")
        elif isinstance(event, RejectConnection):
            self._refused("invalid websocket connection")
        elif isinstance(event, Ping):
            self.transport.write(self._ws.send(event.response()))
        elif isinstance(event, CloseConnection):
            if self._ws.state is ConnectionState.REMOTE_CLOSING:
                self.transport.write(self._ws.send(event.response()))
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if self._ws.state is ConnectionState.OPEN:
            self.transport.write(self._ws.send(BytesMessage(data=data)))

    def _hang_up(self) -> None:
        if self._ws.state is ConnectionState.OPEN and not self.transport.is_closing():
            self.transport.write(self._ws.send(CloseConnection(code=Status.NORMAL_CLOSURE)))
        super()._hang_up()


_PARTS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")
"""A creds file holds the user's JWT, then its seed, each between two lines of dashes."""


def signer_of(remote: LeafRemoteOptions, url: ServerUrl) -> Signer:
    """Return the signer of a hub's nonce; it reads its files at each use, so that renewed credentials are found."""

    def sign(nonce: bytes) -> Mapping[str, str]:
        login, fault = NO_CREDENTIALS, ""
        if remote.creds is not None:
            jwt, seed = read_creds(remote.creds)
            login, fault = ClientCredentials(jwt=jwt, seed=seed), "Credentials file has malformed seed"
        elif remote.nkey:
            login, fault = ClientCredentials(seed=remote.nkey), "Remote nkey has malformed seed"
        try:
            return {**login.fields(nonce.decode()), **_user(remote, url)}
        except ValueError as error:
            raise RemoteCredentialsError(fault) from error

    return sign


def read_creds(path: Path) -> tuple[str, str]:
    try:
        content = read_file(path)
    except OSError as error:
        raise RemoteCredentialsError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    parts = _PARTS.findall(content)
    if len(parts) < 2:
        raise RemoteCredentialsError("Credentials file malformed")
    return parts[0].decode(), parts[1].decode()


def _user(remote: LeafRemoteOptions, url: ServerUrl) -> dict[str, str]:
    """Return user and password of the url, or of the first one that has some where the hub has offered this one."""
    named = url if url.user else next((known for known in remote.urls if known.user), url)
    if not named.user:
        return {}
    if named.password is None:
        return {"user": named.user, "auth_token": named.user}
    return {"user": named.user, "password": named.password}


REFUSED_MAX_S: Final = 30.0
"""Maximum wait after a hub refused the login."""
MAX_OFFERED_URLS: Final = 64
"""Maximum number of advertised urls kept per hub."""


class LeafRemote:
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
        return self._connection.link if self._connection is not None else None

    def start(self) -> None:
        if self._task is None and self.options.urls and not self.options.disabled:
            self._task = self._leaf_shell.loop.create_task(self._run())

    def stop(self, reason: CloseReason = CloseReason.SERVER_SHUTDOWN) -> None:
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
            except (OSError, UnicodeError) as error:  # an invalid name is not a text for the resolver
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
            return await open_tunnel(self.options.proxy, url.address, factory, self._dial_timeout_s)
        async with asyncio.timeout(self._dial_timeout_s):
            _, connection = await self._leaf_shell.loop.create_connection(factory, url.host, url.port)
        return connection

    def _factory(self, url: ServerUrl) -> Callable[[], RemoteConnection]:
        kind = WebSocketRemoteConnection if url.is_websocket else RemoteConnection
        name = self._tls_names[0] if self._tls_names and _is_ip(url.host) else url.host
        known = url._replace(host=name)

        def make(host: str, port: int, transport: str, secured: bool) -> SolicitedLink:
            return self._leaf_shell.leafs.solicit(self._link_options(url), host, port, transport, secured=secured)

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
        url = self._urls.pop(0)
        self._urls.append(url)
        return url

    def _take_offers(self, link: SolicitedLink) -> None:
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
