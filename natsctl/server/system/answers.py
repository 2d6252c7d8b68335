"""Responders of the system account: monitoring, operations on a server, numbers of subscribers.

An answer names the server, then has the data or an error. The module is imported with the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.codec import encode
from natsctl.api.model import Model, Uint64
from natsctl.api.strict import DecodeError, read_plain
from natsctl.api.subjects import is_literal, is_subset
from natsctl.broker.broker import Broker
from natsctl.broker.info import server_info
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session
from natsctl.server.monitor.query import BadRequestError
from natsctl.server.system.endpoints import (
    ACCOUNT_ENDPOINTS,
    SERVER_ENDPOINTS,
    AccountEndpoint,
    Endpoint,
    NoResponseError,
    RequestFormat,
    statsz,
)
from natsctl.server.system.events import encoded
from natsctl.server.system.requests import Request, Responder

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.routes import Taker
    from natsctl.broker.subscription import Subscription
    from natsctl.server.system.events import AccountEvents, Heartbeat
    from natsctl.server.view import ServerView


BAD_REQUEST: Final = 400
FAILED: Final = 500


class ResponseWriter:
    """Writes the responses of one broker."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answer(
        self, request: Request, form: RequestFormat, respond: Callable[[Any], Any], nothing: bool = False
    ) -> None:
        """Answer a request as its `form` reads, with what `respond` makes of its options.

        `nothing`: there is never data, only success or not. A request without a reply subject is not carried out.
        """
        if not request.reply:
            return
        try:
            wanted, options = form.read(request.body)
        except DecodeError as fault:
            self.refuse(request, BAD_REQUEST, str(fault))
            return
        if wanted.excludes(self._broker):
            return
        try:
            data = respond(options)
        except NoResponseError:
            return
        except BadRequestError as refused:
            self.refuse(request, FAILED, str(refused), {} if nothing else {"data": None})
            return
        self.send(request, self._body({} if nothing else {"data": data}), request.header)

    def refuse(self, request: Request, code: int, text: str, data: dict[str, Any] | None = None) -> None:
        """Answer with an error."""
        self.send(request, self._body({**(data or {}), "error": {"code": code, "description": text}}))

    def _body(self, rest: dict[str, Any]) -> dict[str, Any]:
        return {"server": server_info(self._broker), **rest}

    def send(self, request: Request, body: object, header: bytes = b"") -> None:
        """Publish an answer to the reply subject; `header` is that of the request, which may ask for an encoding."""
        block, payload = encoded(encode(body), header)
        request.account.publish(request.reply, b"", block, payload)


class ClientRequest(Model):
    """The client of an operation."""

    cid: Uint64 = 0


def client_asked(body: bytes) -> int | None:
    """Return the client that a body names; None for a malformed one, which is not answered."""
    try:
        return msgspec.convert(read_plain(body, ClientRequest), ClientRequest).cid
    except DecodeError:
        return None


def kick(broker: Broker, cid: int) -> None:
    """Disconnect a client or a leaf node. Raises BadRequestError."""
    peer = broker.sessions.get(cid) or broker.leafs.get(cid)
    if not isinstance(peer, Session):
        raise BadRequestError("no such client or leafnode id")
    peer.close(CloseReason.KICKED)


def send_elsewhere(broker: Broker, cid: int) -> None:
    """Notify one client that this server is about to stop. Raises BadRequestError."""
    session = broker.sessions.get(cid)
    if session is None:
        raise BadRequestError("no such client id")
    if session.protocol < 1 or not session.greeted:
        raise BadRequestError("client does not support Lame Duck Mode or is not ready to receive the notification")
    session.send_info(lame_duck=True)


def subscribers(account: Account, subject: str, queue: bytes | None = None) -> int:
    """Return the number of clients' subscriptions that take a literal `subject`, or that a pattern covers.

    With `queue`, those of that group alone.
    """
    if is_literal(subject):
        clients, groups, _ = account.routes.find(subject.encode())
        takers = (() if queue is not None else clients, *groups)
        return sum(_counted(_subscriptions(group), queue) for group in takers)
    covered = (sub for sub in account.routes.subs if is_subset(sub.subject.decode("utf-8", "replace"), subject))
    return _counted(covered, queue)


def _subscriptions(takers: Iterable[Taker]) -> Iterable[Subscription]:
    return (taker[1] for taker in takers)


def _counted(subs: Iterable[Subscription], queue: bytes | None) -> int:
    return sum(1 for sub in subs if sub.session is not None and (queue is None or sub.queue == queue))


STATSZ_FORMAT: Final = RequestFormat("StatszEventOptions")
OPERATION_FORMAT: Final = RequestFormat("EventFilterOptions")
ACCOUNT_TOKEN: Final = 3
"""The index of the account's token in `$SYS.REQ.ACCOUNT.<account>.…`."""


class SubscribersRequest(Model):
    """The body of `$SYS.REQ.ACCOUNT.NSUBS`."""

    acc: str = ""
    subject: str = ""


class AccountRequest(Model):
    """The body of `$SYS.REQ.ACCOUNT.<account>.CONNS`."""

    acc: str = ""


class Answers:
    """The responders of one server, by name."""

    def __init__(
        self, server: ServerView, accounts: AccountEvents, heartbeat: Heartbeat, reload: Callable[[], None]
    ) -> None:
        """`reload` reads the configuration again; it raises Refused where that fails."""
        self._server = server
        self._broker: Broker = server.broker
        self._accounts = accounts
        self._heartbeat = heartbeat
        self._reload = reload
        self._responses = ResponseWriter(server.broker)
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
        self._responses.answer(request, endpoint.form, partial(endpoint.answer, self._server))

    def _answer_idz(self, request: Request) -> None:
        broker = self._broker
        if request.reply:
            identity = {"name": broker.server_name, "host": broker.options.host, "id": broker.server_id}
            self._responses.send(request, identity)

    def answer_unknown_user(self, request: Request) -> None:
        """Answer a request for the user that came past its own account's subject: the user is unknown."""
        if request.reply:
            data = {"user": "", "account": ""}
            self._responses.send(request, {"server": server_info(self._broker), "data": data}, request.header)

    def _answer_statsz(self, request: Request) -> None:
        if not request.reply:
            self._heartbeat.publish_now()
            return
        try:
            wanted, _ = STATSZ_FORMAT.read(request.body)
        except DecodeError as fault:
            self._responses.refuse(request, BAD_REQUEST, str(fault))
            return
        if not wanted.excludes(self._broker):
            self._responses.send(request, statsz(self._server))

    def _operate(self, operation: Callable[[Broker, int], None], request: Request) -> None:
        cid = client_asked(request.body)
        if cid is not None:
            self._responses.answer(request, OPERATION_FORMAT, lambda _: operation(self._broker, cid), nothing=True)

    def _answer_reload(self, request: Request) -> None:
        self._responses.answer(request, OPERATION_FORMAT, lambda _: self._reload(), nothing=True)

    # Accounts

    def _answer_about(self, endpoint: AccountEndpoint, request: Request) -> None:
        """Answer about the account that the subject names; outside the system account, about the asker's."""
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        if request.account is not self._broker.system_account:
            name = request.account.name
        self._responses.answer(request, endpoint.form, lambda options: endpoint.answer(self._server, options, name))

    def _answer_conns(self, request: Request) -> None:
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        asked = _read(request.body, AccountRequest) if request.body else AccountRequest(acc=name)
        account = self._broker.accounts.get(name)
        if request.reply and asked is not None and asked.acc in ("", name) and account is not None and account.sessions:
            self._accounts.publish(account, request.reply)

    def _answer_nsubs(self, request: Request) -> None:
        asked = _read(request.body, SubscribersRequest)
        account = self._broker.accounts.get(asked.acc) if asked is not None else None
        if request.reply and asked is not None and account is not None and account.sessions:
            self._responses.send(request, subscribers(account, asked.subject))

    def _answer_subscribers(self, request: Request) -> None:
        if request.reply and request.origin is not None:
            subject, _, queue = request.body.decode("utf-8", "replace").strip().partition(" ")
            group = queue.split(" ")[0].encode() if queue else None
            self._responses.send(request, subscribers(request.origin.account, subject, group))


def _read(body: bytes, model: type[Any]) -> Any:
    """Return the model of a body, None where it is malformed."""
    try:
        return msgspec.convert(read_plain(body, model), model)
    except DecodeError:
        return None
