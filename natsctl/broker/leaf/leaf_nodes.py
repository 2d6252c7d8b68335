"""All leaf node connections of one server.

Theory of operation. The shell makes a link per connection, `accept` for one that came and `solicit` for one that it
made, and treats it like a client's session from then on. A link is in `links` until its transport is closed; it serves
an account once it is `registered`. What all links of an account share, its loop detection subject, is here too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.versions import API_LEVEL
from natsctl.broker.auth.credentials import Answer, Authenticator, Credentials, Grant
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, UNLIMITED
from natsctl.broker.leaf.accepted import AcceptedLink
from natsctl.broker.leaf.handshake import PROTOCOL, LeafInfo, LeafOptions, LinkLog, RemoteOptions
from natsctl.broker.leaf.leaf_interest import LOOP_PREFIX
from natsctl.broker.leaf.link import LeafLink
from natsctl.broker.leaf.solicited import SolicitedLink
from natsctl.broker.refusals import CloseReason
from natsctl.broker.timers import NEVER_NS
from natsctl.wire.ops import encode_info

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker


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
        self.on_joined: Callable[[LeafLink], None] = _let_be
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


def _let_be(link: LeafLink) -> None:
    """Do nothing with a new link."""
