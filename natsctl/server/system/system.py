"""The system account of one running server: its requests and its events.

Theory of operation. Every request has a handler subscription in the system account; a few, which an account may ask
about itself, have one in each account. A request from any other account has no responders, which is what keeps others
out. Requests wait for the end of the turn (requests.py), and their responders are imported with the first of them: a
server that lives for one command is never asked. Connections are reported by the broker's listener, times by its tick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from natsctl.api.codec import encode
from natsctl.broker.broker_options import NullListener
from natsctl.broker.info import server_info
from natsctl.broker.timers import NEVER_NS
from natsctl.server.system.events import AccountEvents, ConnectionEvents, Heartbeat, is_known
from natsctl.server.system.requests import (
    ACCOUNT_NAMES,
    ALL_SERVERS,
    DEBUG_SUBJECTS,
    OPERATION_NAMES,
    OWN_SUBJECTS,
    SERVER_NAMES,
    USER_INFO,
    Request,
    Requests,
)

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.credentials import Refusal
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session
    from natsctl.server.system.answers import Answers
    from natsctl.server.view import ServerView


class System:
    """The requests and events of one server; the broker's listener for connections."""

    def __init__(self, server: ServerView, wake: Callable[[], None], reload: Callable[[], None]) -> None:
        """Prepare requests and events of `server`; `wake` asks for a turn, in which `requests.run` is called.

        `reload` reads the configuration again, and raises BadRequestError where it cannot.
        """
        self._server = server
        self._broker: Broker = server.broker
        self._reload = reload
        self._stopped = False
        self._answers: Answers | None = None
        self.requests = Requests(wake, self._broker.clock)
        self.connections = ConnectionEvents(self._broker)
        self.accounts = AccountEvents(self._broker, self._stat)
        self.heartbeat = Heartbeat(self._broker, self._statsz)

    def start(self) -> None:
        """Answer requests and publish events from now on."""
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

    def _listen(self, subject: str, responder: Callable[[Request], None]) -> None:
        self.requests.listen(self._broker.system_account, subject, responder)

    def _listen_in(self, account: Account) -> None:
        """Answer an account's requests about itself."""
        if account is not self._broker.system_account:
            for subject, name in OWN_SUBJECTS.items():
                self.requests.listen(account, subject, partial(self._of_account, name))

    @property
    def answers(self) -> Answers:
        """The responders; the first use imports their module."""
        if self._answers is None:
            from natsctl.server.system.answers import Answers

            self._answers = Answers(self._server, self.accounts, self.heartbeat, self._reload)
        return self._answers

    def _of_server(self, name: str, request: Request) -> None:
        self.answers.of_servers[name](request)

    def _of_account(self, name: str, request: Request) -> None:
        self.answers.of_accounts[name](request)

    def _stat(self, account: Account) -> dict[str, Any]:
        from natsctl.server.monitor.accountz import account_stat

        return account_stat(self._server, account)

    def _statsz(self) -> dict[str, Any]:
        from natsctl.server.system.endpoints import statsz

        return statsz(self._server)

    # Events

    def connected(self, session: Session) -> None:
        """Publish that a client was accepted."""
        self.accounts.changed(session.account)
        self.connections.connected(session)

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Publish that a client was refused."""
        self.connections.refused(session, refusal)

    def disconnected(self, session: Session) -> None:
        """Publish that a connection has ended."""
        if is_known(session):
            self.accounts.changed(session.account)
        self.connections.disconnected(session)

    def tick(self) -> None:
        """Publish the events that are due."""
        if not self._stopped:
            self.accounts.tick()
            self.heartbeat.tick()

    def lame_duck(self) -> None:
        """Publish that the server is about to stop."""
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
