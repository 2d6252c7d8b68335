"""Remotes of a leaf node: connections to hubs in clear text, with TLS or in WebSocket frames, with endless reconnects.

Theory of operation. A task repeats: take the next url, dial, wait for the end of the transport, wait a little. A dial
that fails waits `reconnect` and a random part of it more; a connection that ended waits `reconnect`, or as long as its
link asks for after a loop or a violation; one that the hub refused waits twice as long each time, bounded. Start-up
never waits for any of it.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsctl.api.units import SECOND
from natsctl.broker.leaf.handshake import RemoteCredentialsError, RemoteOptions, Signer
from natsctl.broker.refusals import CloseReason
from natsctl.server.files import read_file
from natsctl.server.leaf.connection import RemoteConnection, WebSocketRemoteConnection
from natsctl.server.leaf.dialing import dial_text, open_tunnel
from natsctl.server.options import LeafRemoteOptions
from natsctl.server.tls.contexts import client_context
from natsctl.wire.client import NO_CREDENTIALS, ClientCredentials
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    from natsctl.broker.leaf.solicited import SolicitedLink
    from natsctl.server.leaf.listener import LeafShell


_PARTS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")
"""A creds file holds the user's JWT, then its seed, each between two lines of dashes."""


def signer_of(remote: LeafRemoteOptions, url: ServerUrl) -> Signer:
    """Return the signer of a hub's nonce; it reads its files at each use, so that renewed credentials are found."""

    def sign(nonce: bytes) -> Mapping[str, str]:
        login, fault = NO_CREDENTIALS, ""
        if remote.creds is not None:
            jwt, seed = read_creds(remote.creds)
            login, fault = ClientCredentials(jwt=jwt, seed=seed), "Credentials file has malformed seed"
        elif remote.nkey:
            login, fault = ClientCredentials(seed=remote.nkey), "Remote nkey has malformed seed"
        try:
            return {**login.fields(nonce.decode()), **_user(remote, url)}
        except ValueError as error:
            raise RemoteCredentialsError(fault) from error

    return sign


def read_creds(path: Path) -> tuple[str, str]:
    try:
        content = read_file(path)
    except OSError as error:
        raise RemoteCredentialsError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    parts = _PARTS.findall(content)
    if len(parts) < 2:
        raise RemoteCredentialsError("Credentials file malformed")
    return parts[0].decode(), parts[1].decode()


def _user(remote: LeafRemoteOptions, url: ServerUrl) -> dict[str, str]:
    """Return user and password of the url, or of the first one that has some where the hub has offered this one."""
    named = url if url.user else next((known for known in remote.urls if known.user), url)
    if not named.user:
        return {}
    if named.password is None:
        return {"user": named.user, "auth_token": named.user}
    return {"user": named.user, "password": named.password}


REFUSED_MAX_S: Final = 30.0
"""Maximum wait after a hub refused the login."""
MAX_OFFERED_URLS: Final = 64
"""Maximum number of advertised urls kept per hub."""


class LeafRemote:
    def __init__(
        self,
        leaf_shell: LeafShell,
        options: LeafRemoteOptions,
        reconnect_s: float,
        dial_timeout_s: float,
        reports: Callable[[bool, int], bool],
    ) -> None:
        """Prepare to connect; `reports` returns whether the failure of an attempt, by number, is logged as an error."""
        self.options = options
        self._leaf_shell = leaf_shell
        self._reconnect_s = reconnect_s
        self._dial_timeout_s = options.dial_timeout_s or dial_timeout_s
        self._reports = reports
        self._urls = list(options.urls)
        self._rng = random.SystemRandom()
        if not options.no_randomize:
            self._rng.shuffle(self._urls)
        self._tls_names = [url.host for url in options.urls if not _is_ip(url.host)]
        self._task: asyncio.Task[None] | None = None
        self._connection: RemoteConnection | None = None
        self._refusals = 0

    @property
    def link(self) -> SolicitedLink | None:
        return self._connection.link if self._connection is not None else None

    def start(self) -> None:
        if self._task is None and self.options.urls and not self.options.disabled:
            self._task = self._leaf_shell.loop.create_task(self._run())

    def stop(self, reason: CloseReason = CloseReason.SERVER_SHUTDOWN) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.link is not None:
            self.link.close(reason)

    def follow(self, options: LeafRemoteOptions) -> None:
        """Apply other options of the same remote: its TLS from the next connection on, and whether it is disabled."""
        before, self.options = self.options, options
        if options.disabled and not before.disabled:
            self.stop(CloseReason.CLIENT_CLOSED)
        else:
            self.start()

    async def _run(self) -> None:
        first = True
        while True:
            connection = await self._connect(first)
            first = False
            self._connection = connection
            await connection.lost
            if connection.link is not None:
                self._take_offers(connection.link)
            await asyncio.sleep(self._pause_s(connection.link))
            self._connection = None

    def _pause_s(self, link: SolicitedLink | None) -> float:
        if link is not None and link.reconnect_delay_ns:
            return link.reconnect_delay_ns / SECOND
        if link is None or not link.was_registered:
            self._refusals += 1
        else:
            self._refusals = 0
        waited: float = self._reconnect_s * 2 ** min(max(self._refusals - 1, 0), 16)
        return min(waited, max(REFUSED_MAX_S, self._reconnect_s))

    async def _connect(self, first: bool) -> RemoteConnection:
        attempts = 0
        while True:
            url = self._next_url()
            self._leaf_shell.log.debug(f'Trying to connect as leafnode to remote server on "{url.address}"')
            try:
                return await self._dial(url)
            except (OSError, UnicodeError) as error:  # an invalid name is not a text for the resolver
                attempts += 1
                log_line = self._leaf_shell.log.error if self._reports(first, attempts) else self._leaf_shell.log.debug
                log_line(
                    f'Error trying to connect as leafnode to remote server "{url.address}" (attempt {attempts}): '
                    f"{dial_text(url.host, url.address, error)}"
                )
                await asyncio.sleep(self._reconnect_s * (1 + self._rng.random()))

    async def _dial(self, url: ServerUrl) -> RemoteConnection:
        factory = self._factory(url)
        if self.options.proxy is not None:
            return await open_tunnel(self.options.proxy, url.address, factory, self._dial_timeout_s)
        async with asyncio.timeout(self._dial_timeout_s):
            _, connection = await self._leaf_shell.loop.create_connection(factory, url.host, url.port)
        return connection

    def _factory(self, url: ServerUrl) -> Callable[[], RemoteConnection]:
        kind = WebSocketRemoteConnection if url.is_websocket else RemoteConnection
        name = self._tls_names[0] if self._tls_names and _is_ip(url.host) else url.host
        known = url._replace(host=name)

        def make(host: str, port: int, transport: str, secured: bool) -> SolicitedLink:
            return self._leaf_shell.leafs.solicit(self._link_options(url), host, port, transport, secured=secured)

        return lambda: kind(self._leaf_shell, self.options, known, lambda: client_context(self.options.tls), make)

    def _link_options(self, url: ServerUrl) -> RemoteOptions:
        options = self.options
        return RemoteOptions(
            account=options.account,
            hub=options.hub,
            deny_imports=options.deny_imports,
            deny_exports=options.deny_exports,
            isolate=options.isolate,
            request_isolation=options.request_isolation,
            first_info_ns=round(options.first_info_timeout_s * SECOND),
            tls=options.tls is not None or any(known.scheme == "tls" for known in options.urls),
            signer=signer_of(options, url),
        )

    def _next_url(self) -> ServerUrl:
        url = self._urls.pop(0)
        self._urls.append(url)
        return url

    def _take_offers(self, link: SolicitedLink) -> None:
        if self.options.ignore_discovered_servers:
            return
        websocket = self.options.urls[0].is_websocket
        scheme = self.options.urls[0].scheme if websocket else "nats-leaf"
        known = {url.address for url in self.options.urls}
        offered = [
            ServerUrl(scheme, host.strip("[]"), int(port))
            for text in (link.ws_urls if websocket else link.leafnode_urls)[:MAX_OFFERED_URLS]
            for host, _, port in [text.rpartition(":")]
            if host and port.isdecimal() and text not in known
        ]
        if offered:
            self._urls = [*offered, *(url for url in self._urls if url in self.options.urls)]


def _is_ip(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False
