"""Connections of other servers to this one: links instead of sessions, in the same turn of the loop, with the same TLS.

`LeafShell` is such a connection's view of the shell.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.server.listener import ClientConnection, TransportEndpoint
from natsctl.server.log.lines import Log
from natsctl.server.shell import PeerCheck, Shell
from natsctl.server.tls.listener import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from natsctl.broker.session import Session
    from natsctl.server.tls.contexts import ListenerTls


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
