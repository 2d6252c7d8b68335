"""Documents that a server applies before it accepts clients, and this step of the start.

The meaning of documents is not known here: the caller that starts the process brings a `Provisioner`. It reads the
documents before anything listens, and returns the step that applies them through the connection that it is given.

That connection is made through an in-process listener on the loopback, open only for that time. It accepts the one
token that was drawn for it, into one account with every permission of it. A client cannot distinguish it from any other
server. Connections are IN_PROCESS, as configuration and JWTs call them, so that neither the listener's TLS nor its
users apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.subject_index import finish
from natsctl.broker.auth.credentials import Credentials, Grant, LoginRefusal
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.server.listener import ClientConnection, TransportEndpoint, peer_of
from natsctl.server.process.flags import NotProvisionedError, StartDocuments

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.jwt.authenticator import JwtAuthenticator
    from natsctl.server.instance import ServerInstance
    from natsctl.server.log.lines import Log
    from natsctl.server.options import ServerOptions
    from natsctl.server.shell import Shell


Apply = Callable[["InProcessAddress", Callable[[str], None]], Awaitable[None]]
"""Applies the documents through an in-process listener, and logs each change; raises NatsctlError."""
Provisioner = Callable[[StartDocuments], Apply]
"""Reads documents; raises UsageError with all their faults."""
Preparation = Callable[["ServerInstance", "Log"], Awaitable[None]]
"""A step before the server listens; it logs its changes."""


async def provision(documents: StartDocuments, carry: Apply, server: ServerInstance, log: Log) -> None:
    """Apply the documents to a server that does not listen yet; raises NotProvisionedError."""
    try:
        account = _account(server.options, server.broker, documents.account)
        async with InProcessListener(server.broker, server.shell, account) as address:
            await carry(address, log.info)
    except NatsctlError as failure:
        raise NotProvisionedError(failure) from failure


def _account(options: ServerOptions, broker: Broker, named: str) -> str:
    """Return the named account, or the only one that has JetStream; raises UsageError."""
    from natsctl.broker.jwt.authenticator import JwtAuthenticator
    from natsctl.server.broker_setup import jetstream_accounts

    auth = broker.options.auth
    if isinstance(auth, JwtAuthenticator):
        return _operated_account(auth, broker, named)
    having = jetstream_accounts(options)
    known = [GLOBAL_ACCOUNT] if having is None else list(having)
    if named in known or (not named and len(known) == 1):
        return named or known[0]
    if not known:
        raise UsageError("--apply: no account has JetStream", hint="say `jetstream: enabled` in the account's block")
    text = f"--apply_account: no account {named} has JetStream" if named else "--apply needs --apply_account"
    raise UsageError(text, hint=f"--apply_account takes one of {', '.join(sorted(known))}")


def _operated_account(auth: JwtAuthenticator, broker: Broker, named: str) -> str:
    """Return an account of an operator, alive; raises UsageError."""
    from natsctl.api.jwt_token import JwtError

    if not named:
        raise UsageError("--apply needs --apply_account", hint="--apply_account takes the public key of an account")
    try:
        return finish(auth.book.look_up(named, broker.clock.now_ns())).name
    except JwtError as failure:
        raise UsageError(f"--apply_account {named}: {failure}") from failure


HOST: Final = "127.0.0.1"
KIND: Final = "inprocess"
TYPE: Final = "IN_PROCESS"
TOKEN_BYTES: Final = 24


class InProcessAddress(NamedTuple):
    url: str
    token: str


class _TokenAuthenticator:
    required = True
    wants_nonce = False
    default = None

    def __init__(self, token: str, account: str) -> None:
        self._token = token
        self._grant = Grant("", account)

    def authenticate(self, credentials: Credentials) -> Grant | LoginRefusal:
        from secrets import compare_digest  # slow to import

        shown = credentials.options.auth_token
        return self._grant if compare_digest(shown.encode(), self._token.encode()) else LoginRefusal()

    def still_holds(self, grant: Grant, credentials: Credentials) -> bool:
        return grant == self._grant


class _InProcessConnection(ClientConnection):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        host, port = peer_of(self.transport)
        self.session = self._shell.opened(self, host, port, KIND)
        self._shell.wake()


class InProcessListener:
    """An async context manager that listens while its context lasts; entering returns the address."""

    def __init__(self, broker: Broker, shell: Shell, account: str) -> None:
        from secrets import token_urlsafe  # slow to import

        self._broker = broker
        self._token = token_urlsafe(TOKEN_BYTES)
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
