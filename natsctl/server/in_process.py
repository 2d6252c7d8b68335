"""A door by which this process comes in as a client of its own server, whoever else may and before anybody else can.

The door listens on the loopback for as long as it is open and lets in who shows its token, drawn for this once, into
one account with every permission of it. What is done through it is the protocol's: a client cannot tell it from any
other server. Connections are IN_PROCESS, as configuration and JWTs call them, so that neither the listener's TLS nor
its users are asked.
"""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from natsctl.broker.auth.grant import Credentials, Grant, Refusal
from natsctl.server.endpoint import TransportEndpoint
from natsctl.server.listener import ClientConnection, peer_of

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.shell import Shell

HOST: Final = "127.0.0.1"
KIND: Final = "inprocess"
TYPE: Final = "IN_PROCESS"
TOKEN_BYTES: Final = 24


class Way(NamedTuple):
    """Where a door is, and what it wants to be shown."""

    url: str
    token: str


class _Doorkeeper:
    """Knows one token, and the account that it stands for."""

    required = True
    wants_nonce = False
    default = None

    def __init__(self, token: str, account: str) -> None:
        self._token = token
        self._grant = Grant("", account)

    def authenticate(self, credentials: Credentials) -> Grant | Refusal:
        """Return the account for the token."""
        shown = credentials.options.auth_token
        return self._grant if secrets.compare_digest(shown.encode(), self._token.encode()) else Refusal()

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        """Return whether this door let the client in."""
        return grant == self._grant


class _InProcessConnection(ClientConnection):
    """The transport side of a session that came through the door."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the session as one of this process."""
        self.transport = cast(asyncio.Transport, transport)
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, KIND)
        self._shell.wake()


class InProcessDoor:
    """Open while its context lasts; entering tells the way in."""

    def __init__(self, broker: Broker, shell: Shell, account: str) -> None:
        """Prepare a door into an account that exists."""
        self._broker = broker
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._keeper = _Doorkeeper(self._token, account)
        self._endpoint = TransportEndpoint(HOST, 0, lambda: _InProcessConnection(shell))

    async def __aenter__(self) -> Way:
        self._broker.options.listener_auth[TYPE] = self._keeper
        await self._endpoint.start()
        return Way(f"nats://{HOST}:{self._endpoint.port}", self._token)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._endpoint.stop()
        self._broker.options.listener_auth.pop(TYPE, None)
