"""A connection that we make to a hub through its WebSocket listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.server.leaf.dial import ContextMaker, LinkMaker, RemoteConnection
from natsctl.server.leaf.options import LeafRemoteOptions, LeafUrl

if TYPE_CHECKING:
    from natsctl.server.leaf.listener import LeafDoor

PATH = "leafnode"
"""What tells the listener that the one who comes is no client."""


class WebSocketRemoteConnection(RemoteConnection):
    """The transport side of a link behind WebSocket frames."""

    __slots__ = ("_patience_s", "_request", "_waiting", "_ws")

    def __init__(
        self, door: LeafDoor, remote: LeafRemoteOptions, url: LeafUrl, context: ContextMaker, make_link: LinkMaker
    ) -> None:
        super().__init__(door, remote, url, context, make_link)
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
        self._timer = self._door.loop.call_later(self._patience_s, self._refused, "no answer in time")
        self.transport.write(self._ws.send(self._request))

    def _refused(self, why: str) -> None:
        self._door.log.error(f"{self.name} - Error soliciting websocket connection: {why}")
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
        """Say that the connection ends, and close."""
        if self._ws.state is ConnectionState.OPEN and not self.transport.is_closing():
            self.transport.write(self._ws.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE)))
        super().close()
