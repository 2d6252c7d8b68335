"""Leaf node connection that another server made: our INFO, its CONNECT, our answer to it.

Theory of operation. This server sends INFO with a nonce and waits for CONNECT; anything else first is refused. The user
in CONNECT decides the account and the other side's permissions; a second INFO announces them. A slow login
is handled as a client's. Then interest flows. The other side may call itself the hub: then this
server is its spoke.

JetStream crosses a connection only as the domains of both sides allow. Source: nats-server, leafnode.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.subject_index import PatternSet, Steps
from natsctl.api.units import SECOND
from natsctl.broker.auth.credentials import (
    Answer,
    Authenticator,
    ConnectOptions,
    Credentials,
    Grant,
    LoginRefusal,
    parse_connect,
    proxy_of,
)
from natsctl.broker.auth.login import Login
from natsctl.broker.auth.permissions import Replies, SubjectRules
from natsctl.broker.leaf.handshake import PROTOCOL, LeafConnect, parse_body, subject_lists, version_at_least
from natsctl.broker.leaf.link import LeafLink, rule_sets
from natsctl.broker.refusals import CloseReason

if TYPE_CHECKING:
    from natsctl.broker.leaf.leaf_nodes import LeafLinks


class LinkLogin(Login):
    __slots__ = ("_link",)

    def __init__(self, link: AcceptedLink) -> None:
        super().__init__(link)
        self._link = link

    @property
    def authenticator(self) -> Authenticator | None:
        return self._link.authenticator

    def _authenticate(self) -> Answer:
        return self._link.authenticate()

    def ask(self, answer: Answer) -> None:
        """Apply an authenticator's answer, or wait for it."""
        self._follow(answer)

    def _prepared(self, answer: Answer) -> Answer:
        return answer  # the link makes an index of its own

    def _answered(self, answer: Grant | LoginRefusal) -> None:
        self._link.answered(answer)

    def refuse(self, refusal: LoginRefusal) -> None:
        self._link.refuse(refusal)


CLIENTS_API: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
"""Subjects that stay on each side: the other one's are reached by the name of its domain."""
SERVERS_API: Final = ("$JSC.>", "$NRG.>", *CLIENTS_API)


def keep_domains_apart(leafs: LeafLinks, link: LeafLink) -> None:
    """Apply the rules of the other side's domain to a link."""
    broker, log = leafs.broker, leafs.log
    local, remote = broker.options.domain, link.remote_domain
    is_system = link.account is broker.system_account
    undivided = leafs.options.undivided
    if link.account.name in undivided and not is_system:
        return
    if undivided and is_system:
        log.info(
            f'{link.label} - Not extending remote JetStream domain "{remote}" due to presence of empty default domain'
        )
    elif local == remote and (local or broker.options.jetstream):
        if is_system:
            log.warn(
                f'{link.label} - JetStream domain "{remote}" is not extended to {_decorated(link)}: '
                "JetStream of this server is one node; give each server a domain of its own"
            )
        else:
            link.rules.forbid_both(CLIENTS_API)
        return
    if is_system:
        log.info(f"{link.label} - System account connected from {_decorated(link)}")
        log.info(f"{link.label} - JetStream not extended, domains differ")
        link.rules.forbid_both(SERVERS_API)
    else:
        log.info(f'{link.label} - JetStream using domains: local "{local}", remote "{remote}"')
        link.rules.forbid_both(CLIENTS_API)
    if local and broker.options.jetstream:
        # Two servers with the same name would send each other their own messages.
        link.rules.send.forbid([f"$JS.{local}.API.>"])


def _decorated(link: LeafLink) -> str:
    return f"{link.remote_server}/{link.remote_cluster}" if link.remote_cluster else link.remote_server


REVIEW_NS: Final = 10 * SECOND
"""Interval of checks of a user with a JWT: accounts expire, users are revoked."""
RESERVED_CLUSTER: Final = "-"
"""The name that nats-server keeps for messages without an origin."""


class AcceptedLink(LeafLink):
    __slots__ = ("_config", "_connect", "_export", "_import", "_nonce", "_review_ns", "_shown")

    def __init__(self, leafs: LeafLinks, cid: int, host: str, port: int, kind: str) -> None:
        super().__init__(leafs, cid, host, port, kind)
        self.login: LinkLogin = LinkLogin(self)
        self._connect = LeafConnect()
        self._nonce = leafs.new_nonce()
        self._shown: Credentials | None = None
        self._config = self.account.config
        self._review_ns = 0
        self._import = self._export = SubjectRules()
        leafs.log.info(f"{self.label} - Leafnode connection created ")

    def send_info(self, *, connect_info: bool = False, lame_duck: bool = False) -> None:
        info = self._leafs.info(self)
        info.nonce = self._nonce.decode()
        info.compression = "off"
        self.write(self._leafs.encoded(info))

    def _take_connect(self, body: bytes) -> None:
        if self._registered or self.login.connected:
            return
        connect = parse_body(body, LeafConnect)
        options = parse_connect(body)
        if connect is None or options is None:
            self.close(CloseReason.PROTOCOL_VIOLATION)
        elif connect.lang:
            self.fail(CloseReason.WRONG_PORT, "attempted to connect to leaf node port")
        else:
            self._connect = connect
            proxy = proxy_of(options, self._nonce, self.broker.options.trusted_proxies)
            self.login.proxy = proxy if isinstance(proxy, str) else ""
            self._shown = self._credentials(options)
            self.login.ask(proxy if isinstance(proxy, LoginRefusal) else self.authenticate())

    def answered(self, answer: Grant | LoginRefusal) -> None:
        if isinstance(answer, LoginRefusal):
            self.refuse(answer)
        elif self._is_welcome(self._connect):
            self.incomplete = self._admitting(answer, self._connect)

    def _credentials(self, options: ConnectOptions) -> Credentials:
        now_ns = self.broker.clock.now_ns()
        certificate = self.login.certificate
        return Credentials(options, self._nonce, certificate, self.connection_type, self.host, now_ns, self.login.proxy)

    @property
    def authenticator(self) -> Authenticator | None:
        return self._leafs.authenticator

    def authenticate(self) -> Answer:
        return self._leafs.authenticate(self._shown) if self._shown is not None else LoginRefusal()

    def still_holds(self) -> bool:
        """Return whether the login would get the same grant after users have changed."""
        auth = self._leafs.authenticator
        if auth is None or self._shown is None:
            return auth is None and self.login.grant == self._leafs.open_grant
        return auth.still_holds(self.login.grant, replace(self._shown, now_ns=self.broker.clock.now_ns()))

    def tick(self) -> None:
        """Handle timers, and check the user again if its account has changed or its JWT may have expired."""
        super().tick()
        now = self.broker.clock.monotonic_ns()
        changed = self.account.config is not self._config
        if self._registered and (changed or (self.login.grant.jwt and now >= self._review_ns)):
            self._config, self._review_ns = self.account.config, now + REVIEW_NS
            if not self.still_holds():
                self.fail(CloseReason.AUTHENTICATION_VIOLATION, "Authorization Violation")

    def refuse(self, refusal: LoginRefusal) -> None:
        user = self._shown.options.user if self._shown is not None else ""
        shown = f" - User {go_quote(user)}" if user else ""
        self._leafs.log.error(f"{self.label} - authentication error{shown}")
        self.close(refusal.reason, refusal.text)
        if refusal.account:
            self.broker.event_listener.refused(self, refusal)

    def _is_welcome(self, connect: LeafConnect) -> bool:
        """Return whether an authenticated server may connect in its role."""
        least = self._leafs.options.min_version
        if " " in connect.cluster:
            self.fail(CloseReason.PROTOCOL_VIOLATION, "cluster name cannot contain spaces")
        elif connect.cluster == RESERVED_CLUSTER:
            self.fail(CloseReason.PROTOCOL_VIOLATION, "cluster name is reserved")
        elif connect.cluster and connect.cluster == self._leafs.options.cluster:
            self.fail(CloseReason.CLUSTER_NAMES_IDENTICAL, "remote leafnode has same cluster name")
        elif connect.gateway:
            text = f'Rejecting connection from gateway "{connect.gateway}" on the leafnode port'
            self.fail(CloseReason.WRONG_GATEWAY, text)
        elif least and not version_at_least(connect.version, least):
            text = f'connection rejected since minimum version required is "{least}"'
            self.fail(CloseReason.MINIMUM_VERSION_REQUIRED, text)
        return self.close_reason is None

    def _admitting(self, grant: Grant, connect: LeafConnect) -> Steps[None]:
        """Let the other server in; the index of its permissions is made in steps."""
        leafs = self._leafs
        self.account = self.broker.account(grant.account)
        if leafs.is_full(self.account, self):
            text = "maximum account active connections exceeded"
            self.fail(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, text)
            return
        self.login.grant, self.login.connected, self.login.authenticated = grant, True, True
        self.timers.expire_at(grant.expires_ns)
        self.headers = connect.headers
        self.traces = connect.protocol >= PROTOCOL
        self.version = connect.version
        self.remote_server = connect.name
        self.remote_cluster, self.remote_domain = connect.cluster, connect.domain
        self.remote_account = connect.remote_account
        self.isolated = self.isolated or connect.isolate
        self.is_spoke = connect.is_hub
        self.name = connect.name
        yield from self._hold_to(grant, connect)
        if self.close_reason is not None:
            return
        leafs.replace_stale(self)
        keep_domains_apart(leafs, self)
        self._send_account()
        self.start_announcing()
        leafs.joined(self)

    def _hold_to(self, grant: Grant, connect: LeafConnect) -> Steps[None]:
        """Apply the user's permissions; publish permissions limit the other side's messages."""
        rules = self.rules
        if grant.permissions is not None:
            self._import, self._export = grant.permissions.subscribe, grant.permissions.publish
            rules.send.restrict(*(yield from rule_sets(self._import)))
            # As with clients, who may answer may send nothing else, unless it is said.
            allow, deny = yield from rule_sets(self._export)
            if grant.permissions.responses is not None and allow is None:
                allow = PatternSet()
            rules.ask.restrict(allow, deny)
            rules.export.restrict(allow, deny)
            if grant.permissions.responses is not None:
                rules.replies = Replies(grant.permissions.responses, self.broker.clock)
        yield from rules.send.forbidding(connect.deny_pub or ())

    def _send_account(self) -> None:
        info = self._leafs.info(self)
        info.import_, info.export = subject_lists(self._import), subject_lists(self._export)
        info.remote_account = self.account.name
        info.acc_is_sys = self.account is self.broker.system_account
        info.connect_info = True
        self.write(self._leafs.encoded(info))
