"""Events of the system account: connections, numbers of connections of accounts, and STATSZ.

Theory of operation. An account's number of connections is published when one comes or goes, and again every 30 s while
there are any. `_due` holds the time of the next event of each account with connections, by name; a published account
moves to the end, and all wait equally long, so the first entry is always the next one. Nothing is built if nothing
subscribes. STATSZ is published often after the start, then every ten seconds. Answers are compressed on request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.info import server_info

if TYPE_CHECKING:
    from cryptography import x509

    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import Grant, LoginRefusal
    from natsctl.broker.broker import Broker
    from natsctl.broker.broker_options import Rng
    from natsctl.broker.session import Session


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


def is_leaf(session: Session) -> bool:
    return session.connection_type.startswith("LEAFNODE")


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
