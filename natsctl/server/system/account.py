"""The system account of one running server: its requests, and the listener of its events.

Theory of operation. Every request has a handler subscription in the system account; a few requests of an account
about itself have one in each account. A request from any other account has no responders, which is what keeps others
out. Connections are reported by the broker's listener, times by its tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.broker.event_listener import NullListener
from natsctl.broker.info import server_info
from natsctl.broker.timers import NEVER_NS
from natsctl.server.system.events import AccountEvents, ConnectionEvents, OcspEvents, StatszHeartbeat, is_known
from natsctl.server.system.requests import ALL_SERVERS, RequestQueue, Responder, SystemRequest

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import LoginRefusal
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session
    from natsctl.server.instance import ServerInstance
    from natsctl.server.monitor.query import ReloadCall
    from natsctl.server.system.answers import SystemResponders


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


class SystemAccount:
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

    def _of_server(self, name: str, request: SystemRequest) -> Iterator[None] | None:
        return self.answers.of_servers[name](request)

    def _of_account(self, name: str, request: SystemRequest) -> Iterator[None] | None:
        return self.answers.of_accounts[name](request)

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
            self._broker.event_listener = NullListener()

    def _announce(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._broker.server_id}.{what}".encode()
        if self._broker.system_account.has_interest(subject):
            self._broker.system_account.publish(subject, b"", b"", encode(server_info(self._broker)))
