"""CONNECT, DISCONNECT and AUTH.ERR: a connection's life as the system account hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.server.system.event import event_head

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.auth.grant import Refusal
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session

ACCOUNT_AUTH_ERROR: Final = b"$SYS.ACCOUNT.CLIENT.AUTH.ERR"
REDACTED: Final = "[REDACTED]"
"""What stands for a token where a user would be named."""


class ConnectionEvents:
    """Tells of the connections of one broker."""

    __slots__ = ("_auth_error", "_broker")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._auth_error = f"$SYS.SERVER.{broker.server_id}.CLIENT.AUTH.ERR".encode()

    def connected(self, session: Session) -> None:
        """Tell that a client was let in."""
        subject = f"$SYS.ACCOUNT.{session.account.name}.CONNECT".encode()
        system = self._broker.system_account
        if system.has_interest(subject):
            event = event_head(self._broker, "client_connect") | {"client": client_of(session)}
            system.publish(subject, b"", b"", encode(event))

    def disconnected(self, session: Session) -> None:
        """Tell that a connection has ended, what it had moved, and why."""
        subject = f"$SYS.ACCOUNT.{account_of(session).name}.DISCONNECT".encode()
        reason = session.close_reason.value if session.close_reason is not None else ""
        self._tell(self._broker.system_account, subject, session, reason)

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Tell the operator, and the owner of the account, that a client was not let in."""
        reason = refusal.reason.value
        self._tell(account_of(session), ACCOUNT_AUTH_ERROR, session, reason)
        self._tell(self._broker.system_account, self._auth_error, session, reason)

    def _tell(self, account: Account, subject: bytes, session: Session, reason: str) -> None:
        if not account.has_interest(subject):
            return
        event = event_head(self._broker, "client_disconnect") | {
            "client": client_of(session, session.stop_ns or self._broker.clock.now_ns()),
            "sent": {"msgs": session.in_msgs, "bytes": session.in_bytes},
            "received": {"msgs": session.out_msgs, "bytes": session.out_bytes},
            "reason": reason,
        }
        account.publish(subject, b"", b"", encode(event))


def account_of(session: Session) -> Account:
    """Return the account that events name: the global one until the client has said who it is."""
    return session.account if is_known(session) else session.broker.accounts[GLOBAL_ACCOUNT]


def is_known(session: Session) -> bool:
    """Return whether a client's CONNECT was accepted; a leaf node is told of when it is in."""
    return session.login.connected or is_leaf(session)


def is_leaf(session: Session) -> bool:
    """Return whether the other side is a server."""
    return session.connection_type.startswith("LEAFNODE")


def client_of(session: Session, stop_ns: int = 0) -> ClientInfo:
    """Return what events tell of a client; with `stop_ns`, of one that is gone."""
    from natsctl.api.advisories import ClientInfo  # nobody may listen to events

    grant, account = session.login.grant, account_of(session)
    shown: dict[str, Any] = {"stop": format_time(stop_ns), "rtt": session.rtt_ns} if stop_ns else {}
    credentials = session.login.credentials
    options = credentials.options if credentials is not None and not is_leaf(session) else session
    return ClientInfo(
        start=format_time(session.start_ns),
        host=session.host,
        id=session.cid,
        acc=account.name,
        user=shown_user(session),
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
    """Return who a client said it was; a token is not told."""
    if session.login.credentials is None or is_leaf(session):
        return session.user if is_known(session) else ""
    options = session.login.credentials.options
    if options.nkey or options.user:
        return options.nkey or options.user
    if options.jwt:
        return session.login.grant.nkey or session.user
    return REDACTED if options.auth_token else session.user
