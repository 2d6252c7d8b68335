"""The leaf nodes of one server: its listener, its remotes, and the events of both.

Theory of operation. A connection of a server is treated like one of a client, by the same turn of the loop and the same
TLS; only its session is a link, and its log lines are the links' own. `LeafShell` is such a connection's view of the
shell.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, ClassVar, Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, RejectConnection, Request
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason as Status
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.api.units import SECOND
from natsctl.broker.auth.static_auth import StaticAuthenticator
from natsctl.broker.deferred_work import cut
from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.refusals import CloseReason
from natsctl.server.leaf.remote import ContextMaker, LeafRemote, LinkMaker, RemoteConnection
from natsctl.server.listener import ClientConnection, TransportEndpoint, named
from natsctl.server.options import UNSPECIFIED, LeafNodesOptions, LeafRemoteOptions, joined
from natsctl.server.process.log import Log
from natsctl.server.shell import Shell
from natsctl.server.tls.contexts import ListenerTls
from natsctl.server.tls.listener import TlsConnection
from natsctl.server.websocket.protocol import BoundedDeflate, FrameError
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from natsctl.broker.session import Session
    from natsctl.server.ocsp.peers import PeerVerifier
    from natsctl.server.options import ServerOptions
    from natsctl.server.tls.contexts import TlsContexts


class LeafShell:
    """The part of the shell that a connection talks to, for links instead of sessions."""

    def __init__(self, shell: Shell, leafs: LeafLinks) -> None:
        self._shell = shell
        self.leafs = leafs
        self.loop: asyncio.AbstractEventLoop = shell.loop
        self.log: Log = shell.log
        self.wake: Callable[[], None] = shell.wake
        self.received: Callable[[ClientConnection, bytes], None] = shell.received
        self.received_pieces: Callable[[ClientConnection, Iterator[bytes], int], None] = shell.received_pieces
        self.blocked: Callable[[ClientConnection], float] = shell.blocked

    @property
    def peers(self) -> PeerVerifier | None:
        """The checks of other sides' certificates."""
        return self._shell.peers

    @property
    def as_shell(self) -> Shell:
        """This object, as connections are typed: they use nothing else of a shell."""
        return cast(Shell, self)

    def opened(self, connection: ClientConnection, host: str, port: int, kind: str) -> Session:
        """Return the link of a connection that was made to us."""
        link = self.leafs.accept(host, port, kind)
        self.adopt(connection, link)
        return link

    def adopt(self, connection: ClientConnection, session: Session) -> None:
        """Register a connection with the shell."""
        connection.session = session
        self._shell.connections[session] = connection

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection whose transport is gone."""
        session = connection.session
        self._shell.logins.forget(session)
        if self._shell.connections.pop(session, None) is not None:
            session.closed()
            self.wake()


class LeafConnection(ClientConnection):
    """The transport side of a link in clear."""

    __slots__ = ()
    mark: ClassVar = "lid"


class SecureLeafConnection(TlsConnection):
    """The transport side of a link under TLS."""

    __slots__ = ()
    mark: ClassVar = "lid"
    peer_kind: ClassVar = "Leafnode"
    handshake_names: ClassVar = ("TLS leafnode", "TLS leafnode server handshake")


class LeafEndpoint(TransportEndpoint):
    """The listener for leaf nodes."""

    def __init__(self, host: str, port: int, leaf_shell: LeafShell, tls: ListenerTls) -> None:
        """Prepare to listen."""
        super().__init__(host, port, lambda: leaf_connection(leaf_shell, tls))
        self._name = host
        self._log = leaf_shell.log

    async def start(self) -> None:
        """Listen; raises OSError when the address cannot be used."""
        await super().start()
        host = f"[{self._name}]" if ":" in self._name else self._name
        self._log.info(f"Listening for leafnode connections on {host}:{self.port}")


def leaf_connection(leaf_shell: LeafShell, tls: ListenerTls) -> ClientConnection:
    """Return the protocol of a new connection, for the current TLS of the listener."""
    return (
        LeafConnection(leaf_shell.as_shell) if tls.options is None else SecureLeafConnection(leaf_shell.as_shell, tls)
    )


INFLATE_BYTES: Final = 4096
"""Bytes of compressed frames that are inflated at once."""

PATH = "leafnode"
"""The header by which the listener recognises a leaf node."""


class WebSocketRemoteConnection(RemoteConnection):
    """The transport side of a link behind WebSocket frames."""

    __slots__ = ("_patience_s", "_request", "_waiting", "_ws")

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
        """Ask for the upgrade."""
        self._timer = self._leaf_shell.loop.call_later(self._patience_s, self._refused, "no answer in time")
        self.transport.write(self._ws.send(self._request))

    def _refused(self, why: str) -> None:
        self._leaf_shell.log.error(f"{self.name} - Error soliciting websocket connection: {why}")
        self._raw.abort()

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
        self._raw.abort()

    def _events(self, clear: bytes) -> Iterator[bytes]:
        """Handle the events in what has arrived, and yield the pieces of messages.

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
            if self._timer is not None:
                self._timer.cancel()
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

    def close(self) -> None:
        """Send a close frame, and close."""
        if self._ws.state is ConnectionState.OPEN and not self.transport.is_closing():
            self.transport.write(self._ws.send(CloseConnection(code=Status.NORMAL_CLOSURE)))
        super().close()


class LeafNodes:
    """Leaf nodes from the start of a server to its end."""

    def __init__(self, options: ServerOptions, shell: Shell) -> None:
        """Prepare; nothing listens or connects before `start` and the endpoint's own."""
        assert options.leafnodes is not None
        self.options: LeafNodesOptions = options.leafnodes
        self._server = options
        self._shell = shell
        shell.leaf_write_deadline_s = self.options.write_deadline_s
        shell.leaf_write_retry = self.options.write_timeout != "close"
        self.leafs = LeafLinks(shell.broker, LeafOptions(), shell.log)
        self.leaf_shell = LeafShell(shell, self.leafs)
        self.tls = ListenerTls(self.options.tls)
        self.endpoint: LeafEndpoint | None = None
        self.remotes: list[LeafRemote] = []
        if self.options.port:
            self.endpoint = LeafEndpoint(self.options.host, self.options.port, self.leaf_shell, self.tls)
            with named("leafnodes"):
                self.endpoint.bind()
            shell.leaf_shell = self.leaf_shell.as_shell
        self.leafs.options = self._link_options()

    def start(self) -> None:
        """Begin to connect to the hubs; it is never waited for."""
        self.remotes = [self._remote(index) for index in range(len(self.options.remotes))]
        for remote in self.remotes:
            remote.start()

    def _remote(self, index: int) -> LeafRemote:
        options = self.options
        return LeafRemote(
            self.leaf_shell, options.remotes[index], options.reconnect_s, options.dial_timeout_s, self._reports
        )

    def _reports(self, first: bool, attempt: int) -> bool:
        every = self._server.connect_error_reports if first else self._server.reconnect_error_reports
        return attempt == 1 or attempt % max(every, 1) == 0

    def stop_connecting(self) -> None:
        """Make no new connections; those that are there stay."""
        for remote in self.remotes:
            if remote.link is None:
                remote.stop()

    def stop(self) -> None:
        """End all connections."""
        for remote in self.remotes:
            remote.stop()
        for link in tuple(self.leafs.links.values()):
            link.close(CloseReason.SERVER_SHUTDOWN)

    def apply(self, options: ServerOptions, contexts: TlsContexts | None) -> None:
        """Apply other options, as far as a running server can: users, TLS (its `contexts` made before) and remotes."""
        before, self._server = self.options, options
        self.options = options.leafnodes or LeafNodesOptions(host=before.host, port=before.port)
        self.tls.replace(self.options.tls, contexts=contexts)
        self.leafs.options = self._link_options()
        self.leafs.review()
        self._follow_remotes()

    def _follow_remotes(self) -> None:
        """Add and remove remotes; the connection of one that stays is kept, unless it is disabled."""
        wanted = {found.key: index for index, found in enumerate(self.options.remotes)}
        kept: list[LeafRemote] = []
        for remote in self.remotes:
            index = wanted.pop(remote.options.key, None)
            if index is None:
                remote.stop(CloseReason.CLIENT_CLOSED)
            else:
                remote.follow(self.options.remotes[index])
                kept.append(remote)
        fresh = [self._remote(index) for index in wanted.values()]
        self.remotes = kept + fresh
        for remote in fresh:
            remote.start()

    def _link_options(self) -> LeafOptions:
        options = self.options
        host, port = self._advertised()
        address = joined(host, port)
        return LeafOptions(
            host=host,
            port=port,
            urls=() if options.no_advertise or not port else (address,),
            cluster=self._shell.broker.server_name if options.remotes else "",
            tls_required=options.tls is not None,
            tls_verify=options.tls is not None and options.tls.verify,
            auth=self._authenticator(),
            account=options.account,
            auth_timeout_ns=round(options.login_timeout_s * SECOND),
            min_version=options.min_version,
            isolate=options.isolate,
            undivided=frozenset(name for name, domain in self._server.default_js_domain if not domain),
        )

    def _authenticator(self) -> StaticAuthenticator | None:
        users = self.options.users
        if not users:
            return None
        mapped = self.options.tls is not None and self.options.tls.verify_and_map
        return StaticAuthenticator(users=users, map_certificates=mapped, proxy_required=self.options.proxy_required)

    def _advertised(self) -> tuple[str, int]:
        """Return the addresses that are advertised to leaf nodes."""
        options = self.options
        port = self.endpoint.port if self.endpoint is not None else 0
        if options.advertise:
            host, colon, given = options.advertise.rpartition(":")
            if colon and given.isdecimal():
                return host.strip("[]"), int(given)
            return options.advertise, port
        return (_public_address() if options.host in UNSPECIFIED else options.host), port


def _public_address() -> str:
    """Return an address of this machine that others may reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
