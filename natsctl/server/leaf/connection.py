"""Connections to hubs: in clear, under TLS or in WebSocket frames.

A hub sends INFO in clear text and TLS follows if it requires it, or TLS comes first if the remote is configured so.
The link is made when there is a connection, and decides when TLS begins. Over WebSocket, TLS always comes first, then
the request, and the link is made when it was accepted. `lost` is done when the transport has closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final, cast

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, RejectConnection, Request
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason as Status
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from natsctl.broker.deferred_work import cut
from natsctl.broker.refusals import CloseReason
from natsctl.server.leaf.dialing import HANDSHAKE_S, reason_of
from natsctl.server.listener import WRITE_BUFFER_BYTES, peer_of
from natsctl.server.tls.connection import SecuredConnection
from natsctl.server.tls.contexts import Layer, TlsLayer
from natsctl.server.websocket.protocol import BoundedDeflate, FrameError

if TYPE_CHECKING:
    from natsctl.broker.leaf.solicited import SolicitedLink
    from natsctl.server.leaf.listener import LeafShell
    from natsctl.server.options import LeafRemoteOptions, TlsOptions
    from natsctl.wire.server_url import ServerUrl


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
        if self.link is not None:
            self.flush()
        return False

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

    def close(self) -> None:
        if self._ws.state is ConnectionState.OPEN and not self.transport.is_closing():
            self.transport.write(self._ws.send(CloseConnection(code=Status.NORMAL_CLOSURE)))
        super().close()
