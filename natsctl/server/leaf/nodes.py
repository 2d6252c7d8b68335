"""The leaf nodes of one server: its listener, its remotes, and the events of both.

Theory of operation. A connection of a server is treated like one of a client, by the same turn of the loop and the same
TLS; only its session is a link, and its log lines are the links' own.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from natsctl.api.units import SECOND
from natsctl.broker.auth.static_auth import StaticAuthenticator
from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.refusals import CloseReason
from natsctl.server.leaf.listener import LeafEndpoint, LeafShell
from natsctl.server.leaf.remote import LeafRemote
from natsctl.server.listener import named
from natsctl.server.options import UNSPECIFIED, LeafNodesOptions, ServerOptions, joined
from natsctl.server.tls.contexts import ListenerTls, TlsContexts

if TYPE_CHECKING:
    from natsctl.server.shell import Shell


class LeafNodes:
    def __init__(self, options: ServerOptions, shell: Shell) -> None:
        """Prepare; nothing listens or connects before `start` and the endpoint's own."""
        assert options.leafnodes is not None
        self.options: LeafNodesOptions = options.leafnodes
        self._server = options
        self._shell = shell
        shell.leaf_write_deadline_s = self.options.write_deadline_s
        shell.leaf_write_retry = self.options.write_timeout != "close"
        self.leafs = LeafLinks(shell.broker, LeafOptions(), shell.log)
        self.leaf_shell = LeafShell(shell, self.leafs)
        self.tls = ListenerTls(self.options.tls)
        self.endpoint: LeafEndpoint | None = None
        self.remotes: list[LeafRemote] = []
        if self.options.port:
            self.endpoint = LeafEndpoint(self.options.host, self.options.port, self.leaf_shell, self.tls)
            with named("leafnodes"):
                self.endpoint.bind()
            shell.leaf_shell = self.leaf_shell.as_shell
        self.leafs.options = self._link_options()

    def start(self) -> None:
        """Begin to connect to the hubs; it is never waited for."""
        self.remotes = [self._remote(index) for index in range(len(self.options.remotes))]
        for remote in self.remotes:
            remote.start()

    def _remote(self, index: int) -> LeafRemote:
        options = self.options
        return LeafRemote(
            self.leaf_shell, options.remotes[index], options.reconnect_s, options.dial_timeout_s, self._reports
        )

    def _reports(self, first: bool, attempt: int) -> bool:
        every = self._server.connect_error_reports if first else self._server.reconnect_error_reports
        return attempt == 1 or attempt % max(every, 1) == 0

    def stop_connecting(self) -> None:
        for remote in self.remotes:
            if remote.link is None:
                remote.stop()

    def stop(self) -> None:
        for remote in self.remotes:
            remote.stop()
        for link in tuple(self.leafs.links.values()):
            link.close(CloseReason.SERVER_SHUTDOWN)

    def apply(self, options: ServerOptions, contexts: TlsContexts | None) -> None:
        """Apply options that a running server can change: users, TLS (with prepared `contexts`) and remotes."""
        before, self._server = self.options, options
        self.options = options.leafnodes or LeafNodesOptions(host=before.host, port=before.port)
        self.tls.replace(self.options.tls, contexts=contexts)
        self.leafs.options = self._link_options()
        self.leafs.review()
        self._follow_remotes()

    def _follow_remotes(self) -> None:
        """Add and remove remotes; the connection of one that stays is kept, unless it is disabled."""
        wanted = {found.key: index for index, found in enumerate(self.options.remotes)}
        kept: list[LeafRemote] = []
        for remote in self.remotes:
            index = wanted.pop(remote.options.key, None)
            if index is None:
                remote.stop(CloseReason.CLIENT_CLOSED)
            else:
                remote.follow(self.options.remotes[index])
                kept.append(remote)
        fresh = [self._remote(index) for index in wanted.values()]
        self.remotes = kept + fresh
        for remote in fresh:
            remote.start()

    def _link_options(self) -> LeafOptions:
        options = self.options
        host, port = self._advertised()
        address = joined(host, port)
        return LeafOptions(
            host=host,
            port=port,
            urls=() if options.no_advertise or not port else (address,),
            cluster=self._shell.broker.server_name if options.remotes else "",
            tls_required=options.tls is not None,
            tls_verify=options.tls is not None and options.tls.verify,
            auth=self._authenticator(),
            account=options.account,
            auth_timeout_ns=round(options.login_timeout_s * SECOND),
            min_version=options.min_version,
            isolate=options.isolate,
            undivided=frozenset(name for name, domain in self._server.default_js_domain if not domain),
        )

    def _authenticator(self) -> StaticAuthenticator | None:
        users = self.options.users
        if not users:
            return None
        mapped = self.options.tls is not None and self.options.tls.verify_and_map
        return StaticAuthenticator(users=users, map_certificates=mapped, proxy_required=self.options.proxy_required)

    def _advertised(self) -> tuple[str, int]:
        options = self.options
        port = self.endpoint.port if self.endpoint is not None else 0
        if options.advertise:
            host, colon, given = options.advertise.rpartition(":")
            if colon and given.isdecimal():
                return host.strip("[]"), int(given)
            return options.advertise, port
        return (_public_address() if options.host in UNSPECIFIED else options.host), port


def _public_address() -> str:
    """Return an address of this machine that others may reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
