"""The system account of one running server: what it answers and what it tells, put together.

Theory of operation. Everything is a handler subscription in the system account, but for the few questions that each
account may ask about itself. Who is not in the system account finds nobody there, which is what keeps others out.
Requests wait for the end of the turn (requests.py); connections come by the broker's onlooker, times by its tick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.codec import encode
from natsctl.api.model import Model
from natsctl.api.strict import Fault, read_plain
from natsctl.broker.info import server_info
from natsctl.broker.onlooker import Nobody
from natsctl.server.monitor.accstatz import account_stat
from natsctl.server.system.account_events import AccountEvents
from natsctl.server.system.connection_events import ConnectionEvents
from natsctl.server.system.endpoints import (
    ACCOUNT_ENDPOINTS,
    EVERY_SERVER,
    OWN_ENDPOINTS,
    SERVER_ENDPOINTS,
    AccountEndpoint,
    Endpoint,
)
from natsctl.server.system.forms import Form
from natsctl.server.system.heartbeat import Heartbeat
from natsctl.server.system.operations import client_asked, kick, send_elsewhere
from natsctl.server.system.requests import BAD_REQUEST, Request, Requests
from natsctl.server.system.statsz import statsz
from natsctl.server.system.subscribers import subscribers

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.broker.grant import Refusal
    from natsctl.broker.session import Session
    from natsctl.server.instance import ServerInstance

STATSZ_FORM: Final = Form("StatszEventOptions")
OPERATION_FORM: Final = Form("EventFilterOptions")
ACCOUNT_TOKEN: Final = 3
"""Which token of `$SYS.REQ.ACCOUNT.<account>.…` is the account."""


class SubscribersRequest(Model):
    """What `$SYS.REQ.ACCOUNT.NSUBS` is asked."""

    acc: str = ""
    subject: str = ""


class AccountRequest(Model):
    """What `$SYS.REQ.ACCOUNT.<account>.CONNS` may be asked."""

    acc: str = ""


class System:
    """The requests and events of one server; the broker's onlooker."""

    def __init__(self, server: ServerInstance, wake: Callable[[], None], reload: Callable[[], None]) -> None:
        """Answer and tell for `server`; `wake` asks for a turn, in which `requests.run` is called.

        `reload` reads the configuration again, and raises Refused where it can not.
        """
        self._server = server
        self._broker: Broker = server.broker
        self._reload = reload
        self._stopped = False
        self.requests = Requests(self._broker, wake)
        self.connections = ConnectionEvents(self._broker)
        self.accounts = AccountEvents(self._broker, partial(account_stat, server))
        self.heartbeat = Heartbeat(self._broker, partial(statsz, server))

    def start(self) -> None:
        """Answer and tell from now on."""
        self._listen_for_servers()
        self._listen_for_accounts()
        self._listen_for_operations()
        self._broker.greet_accounts(self._listen_in)
        self._broker.onlooker = self
        self._broker.on_tick.append(self.tick)

    # Events

    def connected(self, session: Session) -> None:
        """Tell that a client was let in."""
        self.accounts.changed(session.account)
        self.connections.connected(session)

    def refused(self, session: Session, refusal: Refusal) -> None:
        """Tell that a client was not let in."""
        self.connections.refused(session, refusal)

    def disconnected(self, session: Session) -> None:
        """Tell that a connection has ended."""
        if session.login.connected:
            self.accounts.changed(session.account)
        self.connections.disconnected(session)

    def tick(self) -> None:
        """Tell what is due."""
        if not self._stopped:
            self.accounts.tick()
            self.heartbeat.tick()

    def lame_duck(self) -> None:
        """Tell that the server is about to stop."""
        self._farewell("LAMEDUCK")

    def shut_down(self) -> None:
        """Tell that the server stops, and tell nothing more."""
        if not self._stopped:
            self._farewell("SHUTDOWN")
            self._stopped = True
            self._broker.onlooker = Nobody()

    def _farewell(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._broker.server_id}.{what}".encode()
        if self._broker.system_account.has_interest(subject):
            self._broker.system_account.publish(subject, b"", b"", encode(server_info(self._broker)))

    # Requests to servers

    def _listen(self, subject: str, responder: Callable[[Request], None]) -> None:
        self.requests.listen(self._broker.system_account, subject, responder)

    def _listen_for_servers(self) -> None:
        answers: dict[str, Callable[[Request], None]] = {"IDZ": self._answer_idz, "STATSZ": self._answer_statsz}
        answers |= {name: partial(self._answer, endpoint) for name, endpoint in SERVER_ENDPOINTS.items()}
        for name, responder in answers.items():
            for who in (EVERY_SERVER, self._broker.server_id):
                self._listen(f"$SYS.REQ.SERVER.{who}.{name}", responder)
        self._listen(f"$SYS.REQ.SERVER.{EVERY_SERVER}", self._answer_statsz)

    def _answer(self, endpoint: Endpoint, request: Request) -> None:
        self.requests.answer(request, endpoint.form, partial(endpoint.answer, self._server))

    def _answer_idz(self, request: Request) -> None:
        broker = self._broker
        if request.reply:
            identity = {"name": broker.server_name, "host": broker.options.host, "id": broker.server_id}
            self.requests.send(request, identity)

    def _answer_statsz(self, request: Request) -> None:
        if not request.reply:
            self.heartbeat.asked()
            return
        try:
            wanted, _ = STATSZ_FORM.read(request.body)
        except Fault as fault:
            self.requests.send(request, self.requests.refusal(BAD_REQUEST, str(fault)))
            return
        if not wanted.leaves_out(self._broker):
            self.requests.send(request, statsz(self._server))

    # Requests about accounts

    def _listen_for_accounts(self) -> None:
        for name, endpoint in ACCOUNT_ENDPOINTS.items():
            self._listen(f"$SYS.REQ.ACCOUNT.*.{name}", partial(self._answer_about, endpoint, ""))
        self._listen("$SYS.REQ.ACCOUNT.*.CONNS", self._answer_conns)
        self._listen("$SYS.REQ.ACCOUNT.NSUBS", self._answer_nsubs)
        self._listen("$SYS.DEBUG.SUBSCRIBERS", self._answer_subscribers)

    def _listen_in(self, account: Account) -> None:
        """Let an account ask about itself."""
        if account is not self._broker.system_account:
            for subject, name in OWN_ENDPOINTS:
                responder = partial(self._answer_about, ACCOUNT_ENDPOINTS[name], account.name)
                self.requests.listen(account, subject, responder)

    def _answer_about(self, endpoint: AccountEndpoint, own: str, request: Request) -> None:
        name = own or request.subject.split(".")[ACCOUNT_TOKEN]
        self.requests.answer(request, endpoint.form, lambda options: endpoint.answer(self._server, options, name))

    def _answer_conns(self, request: Request) -> None:
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        asked = _read(request.body, AccountRequest) if request.body else AccountRequest(acc=name)
        account = self._broker.accounts.get(name)
        if request.reply and asked is not None and asked.acc in ("", name) and account is not None and account.sessions:
            self.accounts.tell(account, request.reply)

    def _answer_nsubs(self, request: Request) -> None:
        asked = _read(request.body, SubscribersRequest)
        account = self._broker.accounts.get(asked.acc) if asked is not None else None
        if request.reply and asked is not None and account is not None and account.sessions:
            self.requests.send(request, subscribers(account, asked.subject))

    def _answer_subscribers(self, request: Request) -> None:
        if request.reply and request.origin is not None:
            subject, _, queue = request.body.decode("utf-8", "replace").strip().partition(" ")
            group = queue.split(" ")[0].encode() if queue else None
            self.requests.send(request, subscribers(request.origin.account, subject, group))

    # Operations

    def _listen_for_operations(self) -> None:
        here = f"$SYS.REQ.SERVER.{self._broker.server_id}"
        self._listen(f"{here}.KICK", partial(self._operate, kick))
        self._listen(f"{here}.LDM", partial(self._operate, send_elsewhere))
        self._listen(f"{here}.RELOAD", self._answer_reload)

    def _operate(self, operation: Callable[[Broker, int], None], request: Request) -> None:
        cid = client_asked(request.body)
        if cid is not None:
            self.requests.answer(request, OPERATION_FORM, lambda _: operation(self._broker, cid), nothing=True)

    def _answer_reload(self, request: Request) -> None:
        self.requests.answer(request, OPERATION_FORM, lambda _: self._reload(), nothing=True)


def _read(body: bytes, model: type[Any]) -> Any:
    """Return what a body says, None where it does not read."""
    try:
        return msgspec.convert(read_plain(body, model), model)
    except Fault:
        return None
