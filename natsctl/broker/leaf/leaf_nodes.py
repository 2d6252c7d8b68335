"""All leaf node connections of one server.

Theory of operation. The shell makes a link per connection, `accept` for one that came and `solicit` for one that it
made, and treats it like a client's session from then on. A link is in `links` until its transport is closed; it serves
an account once it is `registered`. What all links of an account share, its loop detection subject, is here too.

On a connection that this server makes, nothing is sent before the other side's INFO: the remote's credentials sign the
nonce in it. A second INFO names our account over there and what we may send and receive; this server obeys it by
itself, because it would be cut off otherwise. Servers that do not send it are served by their first INFO.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.subject_index import Steps
from natsctl.api.units import SECOND
from natsctl.api.versions import API_LEVEL
from natsctl.broker.auth.credentials import Answer, Authenticator, Credentials, Grant
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, UNLIMITED
from natsctl.broker.leaf.accepted import RESERVED_CLUSTER, AcceptedLink, keep_domains_apart
from natsctl.broker.leaf.handshake import (
    PROTOCOL,
    LeafConnect,
    LeafInfo,
    LeafOptions,
    LinkLog,
    RemoteCredentialsError,
    RemoteOptions,
    SubjectLists,
    parse_body,
)
from natsctl.broker.leaf.leaf_interest import LOOP_PREFIX
from natsctl.broker.leaf.link import DELAY_NS, LeafLink, rule_sets
from natsctl.broker.refusals import CloseReason
from natsctl.broker.timers import NEVER_NS
from natsctl.wire.client import TlsNotOfferedError, starts_tls
from natsctl.wire.leaf import LeafParser, leaf_limits
from natsctl.wire.ops import encode_info

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
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
            self.incomplete = self._following(info)

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

    def _following(self, info: LeafInfo) -> Steps[None]:
        if info.import_ is not None or info.export is not None:
            yield from self._hold_to(info)
            if self.close_reason is not None:
                return
        self.remote_account = info.remote_account or self.remote_account
        if info.connect_info and not self._registered:
            self._finish()

    def _hold_to(self, info: LeafInfo) -> Steps[None]:
        """Apply the other side's permissions in addition to our own."""
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


NONCE_BITS: Final = 88
LOOP_ID_BITS: Final = 128


class LeafLinks:
    def __init__(self, broker: Broker, options: LeafOptions, log: LinkLog) -> None:
        self.broker = broker
        self.options = options
        self.log = log
        self.links: dict[int, LeafLink] = {}
        self.slow_consumers = 0
        self.stale_connections = 0
        self.on_joined: Callable[[LeafLink], None] = lambda link: None
        """Called with each link when it begins to serve its account."""
        self._loop_subjects: dict[str, bytes] = {}
        broker.on_tick.append(self.tick)
        broker.alarms.append(self.alarm_ns)

    def accept(self, host: str, port: int, kind: str = "tcp") -> LeafLink:
        """Return the link of a connection that was made to us; its INFO waits to be written."""
        link = AcceptedLink(self, self.broker.next_cid(), host, port, kind)
        full = len(self.links) >= self.broker.options.max_connections
        self.links[link.cid] = link
        link.send_info()
        if full:
            link.fail(CloseReason.MAX_CONNECTIONS_EXCEEDED, "maximum connections exceeded")
        return link

    def solicit(
        self, remote: RemoteOptions, host: str, port: int, kind: str = "tcp", *, secured: bool = False
    ) -> SolicitedLink:
        """Return the link of a connection that we made; with `secured` TLS is under it already."""
        link = SolicitedLink(self, remote, self.broker.next_cid(), host, port, kind, secured=secured)
        self.links[link.cid] = link
        return link

    def registered(self) -> list[LeafLink]:
        return [link for link in self.links.values() if link.registered]

    def tick(self) -> None:
        for link in tuple(self.links.values()):
            link.tick()

    def alarm_ns(self) -> int:
        """Return when the first link has had its time for the handshake, or credentials of one end."""
        return min((link.timers.alarm_ns for link in self.links.values()), default=NEVER_NS)

    @property
    def authenticator(self) -> Authenticator | None:
        """Authenticator, None if every leaf node is accepted."""
        return self.options.auth or self.broker.options.auth

    @property
    def open_grant(self) -> Grant:
        """Grant of every leaf node if no users are configured."""
        return Grant("", self.options.account or GLOBAL_ACCOUNT)

    def accepted(self) -> list[AcceptedLink]:
        """Return the links that other servers opened."""
        return [link for link in self.links.values() if isinstance(link, AcceptedLink)]

    def review(self) -> None:
        """Close accepted links with a login that would no longer get the same grant."""
        for link in self.accepted():
            if link.registered and not link.still_holds():
                link.fail(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")

    def authenticate(self, credentials: Credentials) -> Answer:
        """Return the grant for a login, its refusal, or what decides about it."""
        auth = self.authenticator
        return auth.authenticate(credentials) if auth is not None else self.open_grant

    def info(self, link: LeafLink) -> LeafInfo:
        own, options = self.options, self.broker.options
        return LeafInfo(
            server_id=self.broker.server_id,
            server_name=self.broker.server_name,
            version=options.version,
            proto=PROTOCOL,
            go=options.go,
            host=own.host,
            port=own.port,
            headers=True,
            auth_required=True,
            tls_required=own.tls_required,
            tls_verify=own.tls_verify,
            max_payload=options.limits.max_payload,
            jetstream=options.jetstream,
            ip=f"[{own.host}]:{own.port}" if ":" in own.host else f"{own.host}:{own.port}",
            client_id=link.cid,
            cluster=own.cluster,
            domain=options.domain,
            ws_connect_urls=list(options.ws_connect_urls) or None,
            api_lvl=API_LEVEL,
            info_on_connect=True,
            leafnode_urls=list(own.urls) or None,
        )

    def encoded(self, info: LeafInfo) -> bytes:
        return encode_info(msgspec.json.encode(info))

    def new_nonce(self) -> bytes:
        raw = self.broker.secret_rng.getrandbits(NONCE_BITS).to_bytes(NONCE_BITS // 8, "big")
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    def loop_subject(self, account: Account) -> bytes:
        """Return the subject of an account that no other server subscribes to, except through a loop."""
        known = self._loop_subjects.get(account.name)
        if known is None:
            known = LOOP_PREFIX + b"%032x" % self.broker.rng.getrandbits(LOOP_ID_BITS)
            self._loop_subjects[account.name] = known
        return known

    def is_full(self, account: Account, but: LeafLink) -> bool:
        """Return whether an account has as many links as it may, not counting one."""
        most = account.config.limits.max_leafnodes
        return (
            most != UNLIMITED and sum(link.account is account and link is not but for link in self.registered()) >= most
        )

    def knows_cluster(self, link: LeafLink) -> bool:
        """Return whether the cluster that a link leads to is connected to its account from the other side already."""
        return any(
            other is not link and not other.is_spoke and other.account is link.account
            and other.remote_cluster == link.remote_cluster
            for other in self.registered()
        )  # fmt: skip

    def replace_stale(self, link: LeafLink) -> None:
        """Close the connection that the same server made earlier for the same account: it lost it before we did."""
        for other in self.registered():
            if (
                link.remote_server and link.remote_account and not other.solicited and other is not link
                and (other.remote_server, other.remote_cluster, other.remote_account, other.account)
                == (link.remote_server, link.remote_cluster, link.remote_account, link.account)
            ):  # fmt: skip
                reason = CloseReason.DUPLICATE_REMOTE_LEAFNODE
                other.fail(reason, reason.value)
                self.log.warn(f"{link.label} - Replacing connection from same server")

    def joined(self, link: LeafLink) -> None:
        self.broker.leafs[link.cid] = link
        self.broker.event_listener.connected(link)
        self.on_joined(link)

    def forget(self, link: LeafLink) -> bool:
        """Remove a link; return False if it was not there."""
        self.broker.leafs.pop(link.cid, None)
        return self.links.pop(link.cid, None) is not None
