"""One remote: connects to its hub for ever, and again each time the connection ends.

Theory of operation. A task goes round: take the next url, dial, wait until the transport is gone, wait a little. A dial
that fails waits `reconnect` and a random part of it more; a connection that ended waits `reconnect`, or what its link
asks for after a loop or a violation; one that the hub refused waits twice as long each time, bounded. Start-up never
waits for any of it.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl.broker.broker_options import SECOND_NS
from natsctl.broker.leaf.handshake import RemoteOptions
from natsctl.broker.refusals import CloseReason
from natsctl.server.leaf.dial import RemoteConnection, client_context, signer_of
from natsctl.server.leaf.options import LeafRemoteOptions, LeafUrl

if TYPE_CHECKING:
    from natsctl.broker.leaf.solicited import SolicitedLink
    from natsctl.server.leaf.listener import LeafShell

REFUSED_MAX_S: Final = 30.0
"""Longest wait after a hub that does not let us in."""
MAX_OFFERED_URLS: Final = 64
"""Limit of the urls that are kept of those that a hub advertises."""


class LeafRemote:
    """The state of one remote."""

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
        """The link, where there is a connection."""
        return self._connection.link if self._connection is not None else None

    def start(self) -> None:
        """Begin to connect."""
        if self._task is None and self.options.urls and not self.options.disabled:
            self._task = self._leaf_shell.loop.create_task(self._run())

    def stop(self, reason: CloseReason = CloseReason.SERVER_SHUTDOWN) -> None:
        """Connect no more, and end the connection."""
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
        """Return how long to wait before connecting again."""
        if link is not None and link.reconnect_delay_ns:
            return link.reconnect_delay_ns / SECOND_NS
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
            except (OSError, UnicodeError) as error:  # a name that is none is no text for the resolver
                attempts += 1
                log_line = self._leaf_shell.log.error if self._reports(first, attempts) else self._leaf_shell.log.debug
                log_line(
                    f'Error trying to connect as leafnode to remote server "{url.address}" (attempt {attempts}): '
                    f"{_dial_text(url, error)}"
                )
                await asyncio.sleep(self._reconnect_s * (1 + self._rng.random()))

    async def _dial(self, url: LeafUrl) -> RemoteConnection:
        factory = self._factory(url)
        async with asyncio.timeout(self._dial_timeout_s):
            _, connection = await self._leaf_shell.loop.create_connection(factory, url.host, url.port)
        return connection

    def _factory(self, url: LeafUrl) -> Callable[[], RemoteConnection]:
        kind: type[RemoteConnection] = RemoteConnection
        if url.is_websocket:
            from natsctl.server.leaf.listener import WebSocketRemoteConnection

            kind = WebSocketRemoteConnection
        name = self._tls_names[0] if self._tls_names and _is_ip(url.host) else url.host
        known = replace(url, host=name)

        def make(host: str, port: int, kind: str, secured: bool) -> SolicitedLink:
            return self._leaf_shell.leafs.solicit(self._link_options(url), host, port, kind, secured=secured)

        return lambda: kind(self._leaf_shell, self.options, known, lambda: client_context(self.options.tls), make)

    def _link_options(self, url: LeafUrl) -> RemoteOptions:
        options = self.options
        return RemoteOptions(
            account=options.account,
            hub=options.hub,
            deny_imports=options.deny_imports,
            deny_exports=options.deny_exports,
            isolate=options.isolate,
            request_isolation=options.request_isolation,
            first_info_ns=round(options.first_info_timeout_s * SECOND_NS),
            signer=signer_of(options, url),
        )

    def _next_url(self) -> LeafUrl:
        """Return the next url, of those that are configured and those that the hub has offered."""
        url = self._urls.pop(0)
        self._urls.append(url)
        return url

    def _take_offers(self, link: SolicitedLink) -> None:
        """Put the addresses that the hub advertises before the configured ones."""
        if self.options.ignore_discovered_servers:
            return
        websocket = self.options.urls[0].is_websocket
        scheme = self.options.urls[0].scheme if websocket else "nats-leaf"
        known = {url.address for url in self.options.urls}
        offered = [
            LeafUrl(scheme, host.strip("[]"), int(port))
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


def _dial_text(url: LeafUrl, error: OSError | UnicodeError) -> str:
    """Return why a connection could not be made, in nats-server's words."""
    if isinstance(error, TimeoutError):
        return f"dial tcp {url.address}: i/o timeout"
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return f"lookup {url.host}: no such host"
    refused = error.errno == errno.ECONNREFUSED or "refused" in str(error)
    text = "connection refused" if refused else (error.strerror or str(error)).lower()
    return f"dial tcp {url.address}: connect: {text}"
