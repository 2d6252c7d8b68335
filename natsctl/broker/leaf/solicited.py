"""Leaf node connection that this server makes: the other side's INFO, our CONNECT, its answer.

Theory of operation. Nothing is sent before the other side's INFO. It has a nonce, which the remote's credentials
sign. A second INFO names our account over there and what we may send and receive; this server obeys it by itself,
because it would be cut off otherwise. Servers that do not send it are served by their first INFO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.subject_index import Steps
from natsctl.api.units import SECOND
from natsctl.broker.leaf.accepted import RESERVED_CLUSTER, keep_domains_apart
from natsctl.broker.leaf.handshake import (
    PROTOCOL,
    LeafConnect,
    LeafInfo,
    RemoteCredentialsError,
    RemoteOptions,
    SubjectLists,
    parse_body,
)
from natsctl.broker.leaf.link import DELAY_NS, LeafLink, rule_sets
from natsctl.broker.refusals import CloseReason
from natsctl.wire.client import TlsNotOfferedError, starts_tls
from natsctl.wire.leaf import LeafParser, leaf_limits

if TYPE_CHECKING:
    from natsctl.broker.leaf.leaf_nodes import LeafLinks
    from natsctl.wire.ops import Op

ANSWER_NS: Final = 2 * SECOND
"""Time within which the other side must answer CONNECT. Source: nats-server, connectProcessTimeout."""
OLD_VERSION_DELAY_NS: Final = 5 * SECOND
"""Delay where the other side wants a newer server."""


class SolicitedLink(LeafLink):
    """The connecting side of a connection."""

    __slots__ = ("_apart", "_remote", "_secured", "leafnode_urls", "wants_tls", "ws_urls")

    def __init__(
        self, leafs: LeafLinks, remote: RemoteOptions, cid: int, host: str, port: int, kind: str, *, secured: bool
    ) -> None:
        self._remote = remote
        super().__init__(leafs, cid, host, port, kind)
        self._secured = secured
        self._apart: tuple[list[str], ...] = ([], [])
        """Subjects that the domains deny for sending and for interest, whatever the hub allows."""
        self.solicited = True
        self.is_spoke = not remote.hub
        self.isolated = self.isolated or remote.isolate
        self.account = leafs.broker.account(remote.account)
        self.login.authenticated = True
        self.leafnode_urls: list[str] = []
        """Other addresses of the hub."""
        self.ws_urls: list[str] = []
        self.wants_tls = False
        """The shell is to put TLS under the link, and to say `secured` then."""
        self.rules.send.forbid(remote.deny_exports)
        self.rules.ask.forbid(remote.deny_imports)
        self._leafs.log.info(f"{self.label} - Leafnode connection created for account: {self._account_label} ")

    @property
    def _account_label(self) -> str:
        shown = self.account.config.display_name
        return f"{self.account.name}/{shown}" if shown else self.account.name

    @property
    def patience_ns(self) -> int:
        return self._remote.first_info_ns

    def run_out_of_patience(self) -> None:
        self.close(CloseReason.STALE_CONNECTION, "Stale Leaf Node Connection - Closing")

    def _take_info(self, body: bytes) -> None:
        info = parse_body(body, LeafInfo)
        if info is None:
            self.close(CloseReason.PROTOCOL_VIOLATION)
            return
        self.leafnode_urls = info.leafnode_urls or self.leafnode_urls
        self.ws_urls = info.ws_connect_urls or self.ws_urls
        if not self.login.connected:
            self._first_info(info)
        else:
            self._later_info(info)

    def _first_info(self, info: LeafInfo) -> None:
        if not info.client_id or not (info.leafnode_urls or info.info_on_connect):
            self._leafs.log.error(f"{self.label} - attempted to connect to wrong port")
            self.close(CloseReason.WRONG_PORT)
            return
        if " " in info.cluster or info.cluster == RESERVED_CLUSTER:
            wrong = "is reserved" if info.cluster == RESERVED_CLUSTER else "cannot contain spaces"
            self.fail(CloseReason.PROTOCOL_VIOLATION, f"cluster name {wrong}")
            return
        self.login.connected = True
        self.headers = info.headers
        self.traces = info.proto >= PROTOCOL
        self.version = info.version
        self.remote_server = info.server_name or info.server_id
        self.remote_domain, self.remote_cluster = info.domain, info.cluster
        self.name = self.remote_server
        self.login.nonce = info.nonce.encode()
        try:
            offer = {"tls_required": info.tls_required, "tls_available": info.tls_available}
            self.wants_tls = starts_tls(offer, wanted=self._remote.tls, secured=self._secured)
        except TlsNotOfferedError as fault:
            self._leafs.log.error(f"{self.label} - TLS leafnode handshake error: {fault}")
            self.close(CloseReason.TLS_HANDSHAKE_ERROR)
            return
        if not self.wants_tls:
            self._connect(info)

    def _operate(self, op: Op) -> None:
        """Carry out an operation; one sent in clear text after an INFO that requires TLS closes the connection."""
        if self.wants_tls:
            self._leafs.log.error(f"{self.label} - TLS leafnode handshake error: data in clear after INFO")
            self.close(CloseReason.TLS_HANDSHAKE_ERROR)
            return
        super()._operate(op)

    def secured(self) -> None:
        """Send the CONNECT prepared at INFO, now that TLS is established."""
        self.wants_tls = False
        self._secured = True
        self._reader = LeafParser(leaf_limits(self.broker.options.limits))  # drops data received in clear text
        self._connect(LeafInfo(info_on_connect=True))

    def _connect(self, info: LeafInfo) -> None:
        """Send CONNECT with this side's name and credentials."""
        leafs, remote = self._leafs, self._remote
        try:
            shown = remote.signer(self.login.nonce)
        except RemoteCredentialsError as fault:
            leafs.log.error(f"{self.label} - {fault}")
            self.close(CloseReason.WRITE_ERROR)
            return
        options = self.broker.options
        body = LeafConnect(
            version=options.version,
            server_id=self._leafs.broker.server_id,
            domain=options.domain,
            name=self.broker.server_name,
            is_hub=remote.hub,
            cluster=leafs.options.cluster,
            headers=self.headers,
            jetstream=self.account.config.jetstream is not None or options.jetstream,
            deny_pub=list(remote.deny_imports) or None,
            isolate=remote.request_isolation,
            compress_mode="off",
            remote_account=self.account.name,
            protocol=PROTOCOL,
        )
        for key, value in shown.items():
            setattr(body, key, value)
        self.write(b"CONNECT %b\r\n" % msgspec.json.encode(body))
        self.timers.wait(ANSWER_NS)
        leafs.log.debug(f"{self.label} - Remote leafnode connect msg sent")
        if not info.info_on_connect:
            self._finish()

    def _later_info(self, info: LeafInfo) -> None:
        self.incomplete = self._following(info)

    def _following(self, info: LeafInfo) -> Steps[None]:
        if info.import_ is not None or info.export is not None:
            yield from self._hold_to(info)
            if self.close_reason is not None:
                return
        self.remote_account = info.remote_account or self.remote_account
        if info.connect_info and not self._registered:
            self._finish()

    def _hold_to(self, info: LeafInfo) -> Steps[None]:
        """Apply the other side's permissions in addition to those of this side."""
        rules, remote = self.rules, self._remote
        for direction, lists, mine in (
            (rules.send, info.export, remote.deny_exports),
            (rules.ask, info.import_, remote.deny_imports),
        ):
            direction.restrict(*(yield from rule_sets(lists or SubjectLists())))
            direction.forbid(mine)
        if self._registered:
            rules.send.forbid(self._apart[0])
            rules.ask.forbid(self._apart[1])
            yield from self.local_interest.withhold()

    def _finish(self) -> None:
        leafs = self._leafs
        if self.remote_cluster and leafs.knows_cluster(self):
            self.loop_found(notify=True)
            return
        if leafs.is_full(self.account, self):
            text = "maximum account active connections exceeded"
            self.fail(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, text)
            return
        before = [direction.denied() for direction in (self.rules.send, self.rules.ask)]
        keep_domains_apart(leafs, self)
        after = [direction.denied() for direction in (self.rules.send, self.rules.ask)]
        self._apart = tuple(
            [deny.decode() for deny in sorted(now - then)] for then, now in zip(before, after, strict=True)
        )
        self.start_announcing()
        leafs.joined(self)

    def _take_error(self, text: str) -> None:
        super()._take_error(text)
        if "remote leafnode has same cluster name" in text:
            self._come_back_later("same cluster name error", "dropped with", DELAY_NS)
        elif "connection rejected since minimum version required is" in text:
            self._come_back_later("minimum version requirement", "dropped due to", OLD_VERSION_DELAY_NS)

    def _come_back_later(self, why: str, how: str, delay_ns: int) -> None:
        self.reconnect_delay_ns = delay_ns
        seconds = delay_ns // SECOND
        self._leafs.log.error(
            f"{self.label} - Leafnode connection {how} {why}. Delaying attempt to reconnect for {seconds}s"
        )
