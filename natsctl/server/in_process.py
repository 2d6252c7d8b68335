"""The in-process listener: this process connects to its own server as a client, before the server listens for others.

It listens on the loopback for as long as it is open and accepts the one token that was drawn for it, into
one account with every permission of it. What is done through it is the protocol's: a client cannot tell it from any
other server. Connections are IN_PROCESS, as configuration and JWTs call them, so that neither the listener's TLS nor
its users are asked.
"""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from natsctl.broker.auth.credentials import Credentials, Grant, Refusal
from natsctl.server.endpoint import TransportEndpoint
from natsctl.server.listener import ClientConnection, peer_of

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.shell import Shell

HOST: Final = "127.0.0.1"
KIND: Final = "inprocess"
TYPE: Final = "IN_PROCESS"
TOKEN_BYTES: Final = 24


class InProcessAddress(NamedTuple):
    """The address of an in-process listener, and the token that it accepts."""

    url: str
    token: str


class _TokenAuthenticator:
    """Authenticator of one token, for one account."""

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
        """Return whether this authenticator let the client in."""
        return grant == self._grant


class _InProcessConnection(ClientConnection):
    """The transport side of an in-process session."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the session as one of this process."""
        self.transport = cast(asyncio.Transport, transport)
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, KIND)
        self._shell.wake()


class InProcessListener:
    """An async context manager that listens while its context lasts; entering returns the address."""

    def __init__(self, broker: Broker, shell: Shell, account: str) -> None:
        """Prepare a listener for an account that exists."""
        self._broker = broker
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._authenticator = _TokenAuthenticator(self._token, account)
        self._endpoint = TransportEndpoint(HOST, 0, lambda: _InProcessConnection(shell))

    async def __aenter__(self) -> InProcessAddress:
        self._broker.options.listener_auth[TYPE] = self._authenticator
        await self._endpoint.start()
        return InProcessAddress(f"nats://{HOST}:{self._endpoint.port}", self._token)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._endpoint.stop()
        self._broker.options.listener_auth.pop(TYPE, None)
