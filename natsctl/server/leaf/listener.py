"""Accepted connections of leaf nodes, and the parts that all connections between servers share.

Theory of operation. A connection of a server is treated like one of a client, by the same turn of the loop and the same
TLS; only its session is a link, and its log lines are the links' own. `LeafShell` is such a connection's view of the
shell.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, RejectConnection, Request
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.server.endpoint import TransportEndpoint
from natsctl.server.leaf.dial import ContextMaker, LinkMaker, RemoteConnection
from natsctl.server.leaf.options import LeafRemoteOptions, LeafUrl
from natsctl.server.listener import ClientConnection
from natsctl.server.process.log import Log
from natsctl.server.shell import Shell
from natsctl.server.tls.listener import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from natsctl.broker.leaf.leaf_nodes import LeafLinks
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


PATH = "leafnode"
"""The header by which the listener recognises a leaf node."""


class WebSocketRemoteConnection(RemoteConnection):
    """The transport side of a link behind WebSocket frames."""

    __slots__ = ("_patience_s", "_request", "_waiting", "_ws")

    def __init__(
        self,
        leaf_shell: LeafShell,
        remote: LeafRemoteOptions,
        url: LeafUrl,
        context: ContextMaker,
        make_link: LinkMaker,
    ) -> None:
        super().__init__(leaf_shell, remote, url, context, make_link)
        self._first = url.scheme == "wss" or remote.tls is not None
        extensions: list[Extension] = []
        if remote.ws_compression:
            extensions.append(PerMessageDeflate(client_no_context_takeover=True, server_no_context_takeover=True))
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
        try:
            self._ws.receive_data(clear)
            for event in self._ws.events():
                self._on_event(event)
        except (RemoteProtocolError, LocalProtocolError):
            if self.link is None:
                self._refused("invalid websocket connection")
            self._raw.abort()

    def _on_event(self, event: object) -> None:
        if isinstance(event, AcceptConnection):
            if self._timer is not None:
                self._timer.cancel()
            self._open_link("websocket")
        elif isinstance(event, RejectConnection):
            self._refused("invalid websocket connection")
        elif isinstance(event, Message):
            chunk = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
            if chunk:
                super()._arrived(chunk)
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
            self.transport.write(self._ws.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE)))
        super().close()
