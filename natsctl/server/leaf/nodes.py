"""The leaf nodes of one server: its listener, its remotes, and the events of both.

Theory of operation. A connection of a server is treated like one of a client, by the same turn of the loop and the same
TLS; only its session is a link, and its log lines are the links' own.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, ClassVar, cast

from natsctl.api.units import SECOND
from natsctl.broker.auth.static_auth import StaticAuthenticator
from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.refusals import CloseReason
from natsctl.server.leaf.connection import LeafRemote
from natsctl.server.listener import ClientConnection, TransportEndpoint, named
from natsctl.server.log.lines import Log
from natsctl.server.options import UNSPECIFIED, LeafNodesOptions, ServerOptions, joined
from natsctl.server.shell import PeerCheck, Shell
from natsctl.server.tls.contexts import TlsContexts
from natsctl.server.tls.listener import TlsConnection
from natsctl.server.tls.listener_tls import ListenerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from natsctl.broker.session import Session


class LeafShell:
    """The part of the shell that a connection talks to, for links instead of sessions."""

    def __init__(self, shell: Shell, leafs: LeafLinks) -> None:
        self._shell = shell
        self.leafs = leafs
        self.loop: asyncio.AbstractEventLoop = shell.loop
        self.log: Log = shell.log
        self.wake: Callable[[], None] = shell.wake
        self.read_buffer: Callable[[], memoryview] = shell.read_buffer
        self.take_read: Callable[[int], bytes] = shell.take_read
        self.received: Callable[[ClientConnection, bytes], None] = shell.received
        self.received_pieces: Callable[[ClientConnection, Iterator[bytes], int], None] = shell.received_pieces
        self.may_write: Callable[[float], bool] = shell.may_write
        self.write_large: Callable[[ClientConnection], None] = shell.write_large
        self.blocked: Callable[[ClientConnection], float] = shell.blocked
        self.postpones: Callable[[ClientConnection, bytes], bool] = shell.postpones

    @property
    def check_peer(self) -> PeerCheck | None:
        return self._shell.check_peer

    @property
    def as_shell(self) -> Shell:
        """This object, as connections are typed: they use nothing else of a shell."""
        return cast(Shell, self)

    def opened(self, connection: ClientConnection, host: str, port: int, kind: str) -> Session:
        link = self.leafs.accept(host, port, kind)
        self.adopt(connection, link)
        return link

    def adopt(self, connection: ClientConnection, session: Session) -> None:
        connection.session = session
        self._shell.connections[session] = connection

    def closed(self, connection: ClientConnection) -> None:
        session = connection.session
        self._shell.logins.forget(session)
        if self._shell.connections.pop(session, None) is not None:
            session.closed()
            self.wake()


class LeafConnection(ClientConnection):
    __slots__ = ()
    mark: ClassVar = "lid"


class SecureLeafConnection(TlsConnection):
    __slots__ = ()
    mark: ClassVar = "lid"
    peer_kind: ClassVar = "Leafnode"
    handshake_names: ClassVar = ("TLS leafnode", "TLS leafnode server handshake")


class LeafEndpoint(TransportEndpoint):
    def __init__(self, host: str, port: int, leaf_shell: LeafShell, tls: ListenerTls) -> None:
        shell = leaf_shell.as_shell
        super().__init__(
            host, port, lambda: LeafConnection(shell) if tls.options is None else SecureLeafConnection(shell, tls)
        )
        self._name = host
        self._log = leaf_shell.log

    async def start(self) -> None:
        await super().start()
        host = f"[{self._name}]" if ":" in self._name else self._name
        self._log.info(f"Listening for leafnode connections on {host}:{self.port}")


class LeafNodes:
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
        for remote in self.remotes:
            if remote.link is None:
                remote.stop()

    def stop(self) -> None:
        for remote in self.remotes:
            remote.stop()
        for link in tuple(self.leafs.links.values()):
            link.close(CloseReason.SERVER_SHUTDOWN)

    def apply(self, options: ServerOptions, contexts: TlsContexts | None) -> None:
        """Apply options that a running server can change: users, TLS (with prepared `contexts`) and remotes."""
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
