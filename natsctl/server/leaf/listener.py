"""Connections between servers that somebody makes to us, and what all connections between servers have in common.

Theory of operation. A connection of a server is treated like one of a client, by the same turn of the loop and the same
TLS; only its session is a link, and its log lines are the links' own. `LeafDoor` is what such a connection sees of the
shell.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from natsctl.server.endpoint import TransportEndpoint
from natsctl.server.listener import ClientConnection
from natsctl.server.process.log import Log
from natsctl.server.shell import Shell
from natsctl.server.tls.listener import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from natsctl.broker.leaf.leafs import Leafs
    from natsctl.broker.session import Session
    from natsctl.server.tls.gate import TlsGate


class LeafDoor:
    """The part of the shell that a connection talks to, for links instead of sessions."""

    def __init__(self, shell: Shell, leafs: Leafs) -> None:
        self._shell = shell
        self.leafs = leafs
        self.loop: asyncio.AbstractEventLoop = shell.loop
        self.log: Log = shell.log
        self.wake: Callable[[], None] = shell.wake
        self.received: Callable[[ClientConnection, bytes], None] = shell.received
        self.blocked: Callable[[ClientConnection], float] = shell.blocked

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
        """Let the shell look after a connection."""
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


class LeafEndpoint(TransportEndpoint):
    """The listener for leaf nodes."""

    def __init__(self, host: str, port: int, door: LeafDoor, gate: TlsGate) -> None:
        """Prepare to listen."""
        super().__init__(host, port, lambda: leaf_connection(door, gate))
        self._name = host
        self._log = door.log

    async def start(self) -> None:
        """Listen; raises OSError when the address can not be used."""
        await super().start()
        host = f"[{self._name}]" if ":" in self._name else self._name
        self._log.info(f"Listening for leafnode connections on {host}:{self.port}")


def leaf_connection(door: LeafDoor, gate: TlsGate) -> ClientConnection:
    """Return the protocol of a new connection, as the gate is now."""
    return LeafConnection(door.as_shell) if gate.options is None else SecureLeafConnection(door.as_shell, gate)
