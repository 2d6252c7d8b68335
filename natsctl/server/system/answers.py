"""What answers each request of the system account; imported when the first one comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.model import Model
from natsctl.api.strict import DecodeError, read_plain
from natsctl.broker.info import server_info
from natsctl.server.system.endpoints import ACCOUNT_ENDPOINTS, SERVER_ENDPOINTS, AccountEndpoint, Endpoint
from natsctl.server.system.forms import Form
from natsctl.server.system.operations import client_asked, kick, send_elsewhere
from natsctl.server.system.replies import BAD_REQUEST, Replies
from natsctl.server.system.requests import Request, Responder
from natsctl.server.system.statsz import statsz
from natsctl.server.system.subscribers import subscribers

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.system.account_events import AccountEvents
    from natsctl.server.system.heartbeat import Heartbeat
    from natsctl.server.view import ServerView

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


class Answers:
    """The responders of one server, by name."""

    def __init__(
        self, server: ServerView, accounts: AccountEvents, heartbeat: Heartbeat, reload: Callable[[], None]
    ) -> None:
        """`reload` reads the configuration again; it raises Refused where it can not."""
        self._server = server
        self._broker: Broker = server.broker
        self._accounts = accounts
        self._heartbeat = heartbeat
        self._reload = reload
        self._replies = Replies(server.broker)
        self.of_servers: dict[str, Responder] = {
            **{name: partial(self._answer, endpoint) for name, endpoint in SERVER_ENDPOINTS.items()},
            "IDZ": self._answer_idz,
            "STATSZ": self._answer_statsz,
            "KICK": partial(self._operate, kick),
            "LDM": partial(self._operate, send_elsewhere),
            "RELOAD": self._answer_reload,
        }
        self.of_accounts: dict[str, Responder] = {
            **{name: partial(self._answer_about, endpoint) for name, endpoint in ACCOUNT_ENDPOINTS.items()},
            "CONNS": self._answer_conns,
            "NSUBS": self._answer_nsubs,
            "SUBSCRIBERS": self._answer_subscribers,
        }

    # Servers

    def _answer(self, endpoint: Endpoint, request: Request) -> None:
        self._replies.answer(request, endpoint.form, partial(endpoint.answer, self._server))

    def _answer_idz(self, request: Request) -> None:
        broker = self._broker
        if request.reply:
            identity = {"name": broker.server_name, "host": broker.options.host, "id": broker.server_id}
            self._replies.send(request, identity)

    def tell_nobody(self, request: Request) -> None:
        """Answer who asks, past its own account's subject for that, who it is: unknown."""
        if request.reply:
            data = {"user": "", "account": ""}
            self._replies.send(request, {"server": server_info(self._broker), "data": data}, request.header)

    def _answer_statsz(self, request: Request) -> None:
        if not request.reply:
            self._heartbeat.asked()
            return
        try:
            wanted, _ = STATSZ_FORM.read(request.body)
        except DecodeError as fault:
            self._replies.refuse(request, BAD_REQUEST, str(fault))
            return
        if not wanted.leaves_out(self._broker):
            self._replies.send(request, statsz(self._server))

    def _operate(self, operation: Callable[[Broker, int], None], request: Request) -> None:
        cid = client_asked(request.body)
        if cid is not None:
            self._replies.answer(request, OPERATION_FORM, lambda _: operation(self._broker, cid), nothing=True)

    def _answer_reload(self, request: Request) -> None:
        self._replies.answer(request, OPERATION_FORM, lambda _: self._reload(), nothing=True)

    # Accounts

    def _answer_about(self, endpoint: AccountEndpoint, request: Request) -> None:
        """Answer about the account that the subject names; outside the system account, about the asker's."""
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        if request.account is not self._broker.system_account:
            name = request.account.name
        self._replies.answer(request, endpoint.form, lambda options: endpoint.answer(self._server, options, name))

    def _answer_conns(self, request: Request) -> None:
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        asked = _read(request.body, AccountRequest) if request.body else AccountRequest(acc=name)
        account = self._broker.accounts.get(name)
        if request.reply and asked is not None and asked.acc in ("", name) and account is not None and account.sessions:
            self._accounts.tell(account, request.reply)

    def _answer_nsubs(self, request: Request) -> None:
        asked = _read(request.body, SubscribersRequest)
        account = self._broker.accounts.get(asked.acc) if asked is not None else None
        if request.reply and asked is not None and account is not None and account.sessions:
            self._replies.send(request, subscribers(account, asked.subject))

    def _answer_subscribers(self, request: Request) -> None:
        if request.reply and request.origin is not None:
            subject, _, queue = request.body.decode("utf-8", "replace").strip().partition(" ")
            group = queue.split(" ")[0].encode() if queue else None
            self._replies.send(request, subscribers(request.origin.account, subject, group))


def _read(body: bytes, model: type[Any]) -> Any:
    """Return what a body says, None where it does not read."""
    try:
        return msgspec.convert(read_plain(body, model), model)
    except DecodeError:
        return None
