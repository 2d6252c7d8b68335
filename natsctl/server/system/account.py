"""The system account of one running server: its requests, and the listener of its events.

Theory of operation. Every request has a handler subscription in the system account; a few requests of an account
about itself have one in each account. A request from any other account has no responders: this keeps others out.
Connections are reported by the broker's listener, times by its tick.

An account's number of connections is published when one comes or goes, and again every 30 s while there are any.
`_due` holds the time of the next event of each account with connections; a published account moves to the end, and
all wait equally long, so the first entry is always the next one. Nothing is built if nothing subscribes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.broker.event_listener import EventListener
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.info import server_info
from natsctl.broker.session import is_leaf
from natsctl.broker.timers import NEVER_NS
from natsctl.server.system.requests import ALL_SERVERS, RequestQueue, Responder, SystemRequest

if TYPE_CHECKING:
    from cryptography import x509

    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import Grant, LoginRefusal
    from natsctl.broker.broker import Broker
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.session import Session
    from natsctl.server.instance import ServerInstance
    from natsctl.server.monitor.query import ReloadCall
    from natsctl.server.system.answers import SystemResponders

ANSWER_PARTS: Final = (
    "natsctl.api.strict", "natsctl.server.monitor.connz", "natsctl.server.monitor.accountz",
    "natsctl.server.monitor.healthz", "natsctl.server.monitor.varz", "natsctl.server.monitor.jsz",
)  # fmt: skip
"""The slow part of the import of `answers`, of 20 ms in all."""
TYPE_PREFIX: Final = "io.nats.server.advisory.v1."
ID_LENGTH: Final = 22
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def event_id(rng: Rng) -> str:
    number, digits = rng.getrandbits(136), []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def event_head(broker: Broker, kind: str) -> dict[str, Any]:
    return {
        "type": TYPE_PREFIX + kind,
        "id": event_id(broker.rng),
        "timestamp": format_time(broker.clock.now_ns()),
        "server": server_info(broker),
    }


ACCOUNT_HEARTBEAT_NS: Final = 30 * 1_000_000_000
"""Time between two events of an account with unchanged connections. Source: nats-server, eventsHBInterval."""


class AccountEvents:
    def __init__(self, broker: Broker, stat: Callable[[Account], dict[str, Any]]) -> None:
        self._broker = broker
        self._stat = stat
        self._due: dict[str, int] = {}

    def changed(self, account: Account) -> None:
        """Publish an account's number of connections; the global account's is not published."""
        if account.name != GLOBAL_ACCOUNT:
            old, new = f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"
            self.publish(account, old.encode(), new.encode())

    def publish(self, account: Account, *subjects: bytes) -> None:
        """Publish an account's numbers to subscribed subjects, and record when to publish them again."""
        self._due.pop(account.name, None)
        if account.sessions or any(peer.account is account for peer in self._broker.leafs.values()):
            self._due[account.name] = self._broker.clock.monotonic_ns() + ACCOUNT_HEARTBEAT_NS
        system = self._broker.system_account
        heard = [subject for subject in subjects if system.has_interest(subject)]
        if not heard:
            return
        event = event_head(self._broker, "account_connections") | self._stat(account)
        for index, subject in enumerate(heard):
            if index:
                event["server"] = server_info(self._broker)
            system.publish(subject, b"", b"", encode(event))

    def tick(self) -> None:
        now_ns = self._broker.clock.monotonic_ns()
        while self._due:
            name, due_ns = next(iter(self._due.items()))
            if due_ns > now_ns:
                return
            del self._due[name]
            account = self._broker.accounts.get(name)
            if account is not None:
                self.changed(account)


ACCOUNT_AUTH_ERROR: Final = b"$SYS.ACCOUNT.CLIENT.AUTH.ERR"
REDACTED: Final = "[REDACTED]"
"""Replacement of a token as the user's name."""


class ConnectionEvents:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._auth_error = f"$SYS.SERVER.{broker.server_id}.CLIENT.AUTH.ERR".encode()

    def connected(self, session: Session) -> None:
        subject = f"$SYS.ACCOUNT.{session.account.name}.CONNECT".encode()
        system = self._broker.system_account
        if system.has_interest(subject):
            event = event_head(self._broker, "client_connect") | {"client": client_of(session)}
            system.publish(subject, b"", b"", encode(event))

    def disconnected(self, session: Session) -> None:
        subject = f"$SYS.ACCOUNT.{account_of(session).name}.DISCONNECT".encode()
        reason = session.close_reason.value if session.close_reason is not None else ""
        self._publish(self._broker.system_account, subject, session, reason)

    def refused(self, session: Session, refusal: LoginRefusal) -> None:
        """Publish to the operator, and to the owner of the account, that a client was refused."""
        reason = refusal.reason.value
        owner = self._broker.accounts.get(refusal.account) or account_of(session)
        cause = reason if refusal.cause is None else refusal.cause
        self._publish(owner, ACCOUNT_AUTH_ERROR, session, cause, owner, refusal.came)
        shown = owner if refusal.came is not None else None
        self._publish(self._broker.system_account, self._auth_error, session, reason, shown, refusal.came)

    def _publish(
        self, account: Account, subject: bytes, session: Session, reason: str, named: Account | None = None,
        came: Grant | None = None,
    ) -> None:  # fmt: skip
        """Publish that a client has disconnected, in an account; `named` and `came` are as for `client_of`."""
        if not account.has_interest(subject):
            return
        event = event_head(self._broker, "client_disconnect") | {
            "client": client_of(session, session.stop_ns or self._broker.clock.now_ns(), named, came),
            "sent": {"msgs": session.in_msgs, "bytes": session.in_bytes},
            "received": {"msgs": session.out_msgs, "bytes": session.out_bytes},
            "reason": reason,
        }
        account.publish(subject, b"", b"", encode(event))


class OcspEvents:
    def __init__(self, broker: Broker, wake: Callable[[], None]) -> None:
        self._broker = broker
        self._wake = wake

    def peer_rejected(self, kind: str, peer: x509.Certificate, reason: str) -> None:
        self._publish("CONN.REJECT", "ocsp_peer_reject", {"kind": kind}, {"peer": peer}, reason)

    def link_invalid(self, peer: x509.Certificate, link: x509.Certificate, reason: str) -> None:
        self._publish("LINK.INVALID", "ocsp_peer_link_invalid", {}, {"link": link, "peer": peer}, reason)

    def _publish(
        self, what: str, kind: str, more: dict[str, str], certificates: dict[str, x509.Certificate], reason: str
    ) -> None:
        subject = f"$SYS.SERVER.{self._broker.server_id}.OCSP.PEER.{what}".encode()
        system = self._broker.system_account
        if not system.has_interest(subject):
            return
        from natsctl.server.ocsp.peers import certificate_facts

        event = event_head(self._broker, kind)
        server = event.pop("server")
        event |= more | {name: certificate_facts(certificate) for name, certificate in certificates.items()}
        system.publish(subject, b"", b"", encode({**event, "server": server, "reason": reason}))
        self._wake()


def account_of(session: Session) -> Account:
    """Return the account that events name: the global one until the client has logged in."""
    return session.account if is_known(session) else session.broker.accounts[GLOBAL_ACCOUNT]


def is_known(session: Session) -> bool:
    """Return whether a client's CONNECT was accepted; a leaf node has events from its acceptance on."""
    return session.login.connected or is_leaf(session)


def client_of(
    session: Session, stop_ns: int = 0, named: Account | None = None, came: Grant | None = None
) -> ClientInfo:
    """Return the client of an event; with `stop_ns`, a disconnected one.

    `named` is another account than its own, `came` another grant: of the JWT of a client that was refused anyway.
    """
    from natsctl.api.advisories import ClientInfo  # events may have no subscriber

    grant, account = came or session.login.grant, named or account_of(session)
    shown: dict[str, Any] = {"stop": format_time(stop_ns), "rtt": session.rtt_ns} if stop_ns else {}
    credentials = session.login.credentials
    options = credentials.options if credentials is not None and not is_leaf(session) else session
    return ClientInfo(
        start=format_time(session.start_ns),
        host=session.host,
        id=session.cid,
        acc=account.name,
        user=shown_user(session) if came is None else session.login.options.user or came.user,
        name=options.name,
        lang=options.lang,
        ver=options.version,
        jwt=grant.jwt,
        issuer_key=grant.issuer,
        name_tag=account.config.display_name or account.name,
        tags=list(grant.tags),
        kind="Leafnode" if is_leaf(session) else "Client",
        client_type="" if is_leaf(session) else "websocket" if session.connection_type == "WEBSOCKET" else "nats",
        **shown,
    )


def shown_user(session: Session) -> str:
    if session.login.credentials is None or is_leaf(session):
        return session.user if is_known(session) else ""
    options = session.login.options
    if options.nkey or options.user:
        return options.nkey or options.user
    if options.jwt:
        return session.login.grant.nkey or session.user
    return REDACTED if options.auth_token else session.user


STATSZ_FIRST_NS: Final = 250_000_000
"""Time from the start to the first STATSZ; each wait is twice as long as the one before. Source: nats-server."""
STATSZ_LONGEST_NS: Final = 10 * 1_000_000_000
STATSZ_RATE_LIMIT_NS: Final = 1_000_000_000
"""Least time between two STATSZ without a request. Source: nats-server, defaultStatszRateLimit."""


class StatszHeartbeat:
    """The event `$SYS.SERVER.<id>.STATSZ` of one broker, published from time to time."""

    def __init__(self, broker: Broker, body: Callable[[], dict[str, Any]]) -> None:
        self._broker = broker
        self._body = body
        self._subject = f"$SYS.SERVER.{broker.server_id}.STATSZ".encode()
        self._interval_ns = STATSZ_FIRST_NS
        self._due_ns = broker.clock.monotonic_ns() + STATSZ_FIRST_NS
        self._last_ns: int | None = None

    @property
    def due_ns(self) -> int:
        return self._due_ns

    def tick(self) -> None:
        now_ns = self._broker.clock.monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._interval_ns = min(self._interval_ns * 2, STATSZ_LONGEST_NS)
        self._due_ns = now_ns + self._interval_ns
        self.broadcast()

    def publish_now(self) -> None:
        """Publish now, for a request without a reply subject."""
        self._last_ns = None
        self.broadcast()

    def broadcast(self) -> None:
        """Publish STATSZ if there is a subscriber; if it was just published, a little later."""
        now_ns, system = self._broker.clock.monotonic_ns(), self._broker.system_account
        wait_ns = min(STATSZ_RATE_LIMIT_NS, self._interval_ns)
        if self._last_ns is not None and now_ns - self._last_ns < wait_ns:
            self._due_ns = self._last_ns + wait_ns
            return
        self._last_ns = now_ns
        if system.has_interest(self._subject):
            system.publish(self._subject, b"", b"", encode(self._body()))


SERVER_NAMES: Final = (
    "IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "PROFILEZ",
    "EXPVARZ", "IPQUEUESZ", "RAFTZ",
)  # fmt: skip
"""Asked on `$SYS.REQ.SERVER.PING.<name>` and `$SYS.REQ.SERVER.<id>.<name>`."""

OPERATION_NAMES: Final = ("KICK", "LDM", "RELOAD")
"""Asked on `$SYS.REQ.SERVER.<id>.<name>`."""

ACCOUNT_NAMES: Final = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
"""Asked on `$SYS.REQ.ACCOUNT.<account>.<name>`."""

USER_INFO: Final = "$SYS.REQ.USER.*.INFO"
"""nats-server maps its accounts' `$SYS.REQ.USER.INFO` to this subject; a direct request has no known user."""

DEBUG_SUBJECTS: Final = {"$SYS.REQ.ACCOUNT.NSUBS": "NSUBS", "$SYS.DEBUG.SUBSCRIBERS": "SUBSCRIBERS"}

OWN_SUBJECTS: Final = {
    "$SYS.REQ.ACCOUNT.PING.CONNZ": "CONNZ",
    "$SYS.REQ.SERVER.PING.CONNZ": "CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ": "STATZ",
}
"""Requests that any account may send, answered with its own data."""


class SystemAccount(EventListener):
    """The requests and events of one server; the broker's listener for connections."""

    def __init__(self, server: ServerInstance, wake: Callable[[], None], reload: ReloadCall) -> None:
        """Prepare requests and events of `server`; `wake` requests a turn that calls `requests.run`.

        `reload` reads the configuration again, and calls back with the reason if it fails.
        """
        self._server = server
        self._broker: Broker = server.broker
        self._reload = reload
        self._stopped = False
        self._answers: SystemResponders | None = None
        self.requests = RequestQueue(wake, self._broker.clock)
        self.connections = ConnectionEvents(self._broker)
        self.ocsp = OcspEvents(self._broker, wake)
        self.accounts = AccountEvents(self._broker, self._stat)
        self.heartbeat = StatszHeartbeat(self._broker, self._statsz)

    def start(self) -> None:
        for name in SERVER_NAMES:
            self._listen(f"$SYS.REQ.SERVER.{ALL_SERVERS}.{name}", partial(self._of_server, name))
        self._listen(f"$SYS.REQ.SERVER.{ALL_SERVERS}", partial(self._of_server, "STATSZ"))
        for name in SERVER_NAMES + OPERATION_NAMES:
            self._listen(f"$SYS.REQ.SERVER.{self._broker.server_id}.{name}", partial(self._of_server, name))
        for name in ACCOUNT_NAMES:
            self._listen(f"$SYS.REQ.ACCOUNT.*.{name}", partial(self._of_account, name))
        for subject, name in DEBUG_SUBJECTS.items():
            self._listen(subject, partial(self._of_account, name))
        self._listen(USER_INFO, lambda request: self.answers.answer_unknown_user(request))
        self._broker.on_account_added(self._listen_in)
        self._broker.event_listener = self
        self._broker.on_tick.append(self.tick)
        self._broker.alarms.append(lambda: NEVER_NS if self._stopped else self.heartbeat.due_ns)

    # Requests

    def _listen(self, subject: str, responder: Responder) -> None:
        self.requests.listen(self._broker.system_account, subject, responder)

    def _listen_in(self, account: Account) -> None:
        if account is not self._broker.system_account:
            for subject, name in OWN_SUBJECTS.items():
                self.requests.listen(account, subject, partial(self._of_account, name))

    @property
    def answers(self) -> SystemResponders:
        """The responders; the first use imports their module."""
        if self._answers is None:
            from natsctl.server.system.answers import SystemResponders

            self._answers = SystemResponders(self._server, self.accounts, self.heartbeat, self._reload)
        return self._answers

    def _of_server(self, name: str, request: SystemRequest) -> Iterator[object] | None:
        return self._answer(lambda: self.answers.of_servers[name](request))

    def _of_account(self, name: str, request: SystemRequest) -> Iterator[object] | None:
        return self._answer(lambda: self.answers.of_accounts[name](request))

    def _answer(self, respond: Callable[[], Iterator[object] | None]) -> Iterator[object] | None:
        return respond() if self._answers is not None else self._answering_first(respond)

    def _answering_first(self, respond: Callable[[], Iterator[object] | None]) -> Iterator[object]:
        for part in ANSWER_PARTS:
            yield import_module(part)
        yield from respond() or ()

    def _stat(self, account: Account) -> dict[str, Any]:
        from natsctl.server.monitor.accountz import account_stat

        return account_stat(self._server, account)

    def _statsz(self) -> dict[str, Any]:
        from natsctl.server.system.answers import statsz

        return statsz(self._server)

    # Events

    def connected(self, session: Session) -> None:
        self.accounts.changed(session.account)
        self.connections.connected(session)

    def refused(self, session: Session, refusal: LoginRefusal) -> None:
        self.connections.refused(session, refusal)

    def disconnected(self, session: Session) -> None:
        if is_known(session):
            self.accounts.changed(session.account)
        self.connections.disconnected(session)

    def tick(self) -> None:
        if not self._stopped:
            self.accounts.tick()
            self.heartbeat.tick()

    def lame_duck(self) -> None:
        self._announce("LAMEDUCK")

    def shut_down(self) -> None:
        """Publish that the server stops, and nothing more."""
        if not self._stopped:
            self._announce("SHUTDOWN")
            self._stopped = True
            self._broker.event_listener = EventListener()

    def _announce(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._broker.server_id}.{what}".encode()
        if self._broker.system_account.has_interest(subject):
            self._broker.system_account.publish(subject, b"", b"", encode(server_info(self._broker)))
