"""One client connection over WebSocket: wsproto's frames between the transport and a session.

The session opens when the handshake is done; from then on each chunk of a message goes to it as it arrives, so that no
message is held in memory as a whole, and each turn's output leaves as one binary message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, Request
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.server.listener import WRITE_BUFFER_BYTES, ClientConnection, peer_of

if TYPE_CHECKING:
    from natsctl.server.shell import Shell

HANDSHAKE_S: Final = 2.0
"""How long a client may take for its request. Source: reference, websocket handshake_timeout."""

MAX_REQUEST_BYTES: Final = 16 * 1024
"""Longest request with its headers."""


class WebSocketConnection(ClientConnection):
    """The transport side of one session behind WebSocket frames."""

    __slots__ = ("_compression", "_handshake", "_open", "_request_bytes", "_ws")

    def __init__(self, shell: Shell, compression: bool) -> None:
        super().__init__(shell, None)
        self._compression = compression
        self._ws = WSConnection(ConnectionType.SERVER)
        self._open = False
        self._request_bytes = 0
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._handshake = self._shell.loop.call_later(HANDSHAKE_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the session, if there is one."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._open:
            super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Close when the client has closed its side."""
        return super().eof_received() if self._open else False

    def data_received(self, data: bytes) -> None:
        """Take frames apart and do what each says."""
        if not self._open:
            self._request_bytes += len(data)
            if self._request_bytes > MAX_REQUEST_BYTES:
                self.transport.abort()
                return
        try:
            self._ws.receive_data(data)
            for event in self._ws.events():
                self._on_event(event)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._shell.log.debug(f"{peer_of(self.transport)} - WebSocket error: {error}")
            self.transport.abort()

    def _on_event(self, event: object) -> None:
        if isinstance(event, Request):
            self._accept()
        elif isinstance(event, Message):
            chunk = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
            if chunk and not self.closing:
                super().data_received(chunk)
        elif isinstance(event, Ping):
            self.transport.write(self._ws.send(event.response()))
        elif isinstance(event, CloseConnection):
            if self._ws.state is ConnectionState.REMOTE_CLOSING:
                self.transport.write(self._ws.send(event.response()))
            self.transport.close()

    def _accept(self) -> None:
        extensions: list[Extension] = [PerMessageDeflate()] if self._compression else []
        self.transport.write(self._ws.send(AcceptConnection(extensions=extensions)))
        if self._handshake is not None:
            self._handshake.cancel()
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, "websocket")
        self._open = True
        self._shell.wake()

    def _write(self, data: bytes) -> None:
        if self._ws.state is ConnectionState.OPEN:
            self.transport.write(self._ws.send(BytesMessage(data=data)))

    def close(self) -> None:
        """Say that the connection ends, and close."""
        if self._ws.state is ConnectionState.OPEN and not self.transport.is_closing():
            self.transport.write(self._ws.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE)))
        super().close()
