"""Responders of the system account: monitoring, operations on a server, numbers of subscribers, and STATSZ.

An answer names the server, then has the data or an error. A request may name the servers that it is meant for. The
module is imported with the first request.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from enum import IntEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from natsctl.api import headers
from natsctl.api.codec import HOLE, encode, filling
from natsctl.api.model import Duration, Model, Shape, ShapeField, Uint64
from natsctl.api.strict import DecodeError, read_plain
from natsctl.api.subject_index import Steps, finish
from natsctl.api.subjects import is_literal, is_subset
from natsctl.api.times import format_time
from natsctl.broker.broker import Broker
from natsctl.broker.deferred_work import LONG_SUBJECT_BYTES
from natsctl.broker.info import server_info
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session
from natsctl.server.monitor.accountz import AccountzOptions, AccstatzOptions, account_info, accountz, accstatz
from natsctl.server.monitor.cluster import (
    GatewayzOptions,
    LeafzOptions,
    RaftzOptions,
    RoutezOptions,
    gatewayz,
    leafz,
    raftz,
    routez,
)
from natsctl.server.monitor.connz import LOOKED_AT, ConnzOptions, SubszOptions, connz, subsz
from natsctl.server.monitor.document import Making, pieces
from natsctl.server.monitor.healthz import HealthzOptions, healthz
from natsctl.server.monitor.jsz import JszOptions, jsz, jsz_account
from natsctl.server.monitor.query import BadRequestError, ReloadCall
from natsctl.server.monitor.varz import (
    IpqueueszOptions,
    by_kind,
    expvarz,
    ipqueuesz,
    jetstream_config,
    jetstream_limits,
    jetstream_stats,
    leaf_faults,
    process_usage,
    varz,
)
from natsctl.server.system.requests import ALL_SERVERS, Responder, SystemRequest

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.server.instance import ServerInstance
    from natsctl.server.system.account import AccountEvents, StatszHeartbeat


_FILTER: Final = "EventFilterOptions"
_KINDS: Final[dict[Any, tuple[str, str]]] = {str: ("str", "string"), bool: ("bool", "bool"), int: ("int", "int")}


class NotAnsweredError(Exception):
    """This server does not answer the request."""


class ServerFilter(msgspec.Struct, kw_only=True):
    """The servers that a request is meant for; empty fields do not filter."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""

    def excludes(self, broker: Broker) -> bool:
        """Return whether the request is not meant for this server; without `exact_match` a part of a name will do."""
        options = broker.options
        here = ((self.server_name, broker.server_name), (self.host, options.host), (self.cluster, ""))
        if any(wanted and (wanted != name if self.exact_match else wanted not in name) for wanted, name in here):
            return True
        if any(tag.lower() not in options.tags for tag in self.tags):
            return True
        return bool(self.domain) and self.domain != options.domain


class NoOptions(msgspec.Struct):
    """The options of an endpoint without options."""


class RequestFormat(msgspec.Struct, frozen=True):
    """The format of one kind of request; `name` and `part` are the Go types of it and of its options in error texts."""

    name: str
    part: str = ""
    options: type[msgspec.Struct] = NoOptions

    def read(self, body: bytes) -> tuple[ServerFilter, Any]:
        """Return the filter and the options of a body; none for an empty one. Raises DecodeError with Go's text."""
        given = read_plain(body, _shape(self)) if body else {}
        return _filled(ServerFilter, given), _filled(self.options, given)


def _filled(model: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    """Return a model of the given fields; types were checked before, ranges are checked by the endpoint."""
    names = zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True)
    return model(**{attribute: given[key] for key, attribute in names if key in given})


@cache
def _shape(form: RequestFormat) -> Shape:
    fields: dict[str, ShapeField] = {}
    for model, part in ((form.options, form.part), (ServerFilter, _FILTER)):
        hints = get_type_hints(model, include_extras=True)
        for key, attribute in zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True):
            fields[key] = ShapeField(_value_shape(hints[attribute]), part)
    return Shape(kind="struct", go=f"server.{form.name}", fields=fields)


def _value_shape(hint: Any) -> Shape:
    if get_origin(hint) is list:
        item = _value_shape(get_args(hint)[0])
        return Shape(kind="list", go=f"[]{item.go}", item=item)
    extra = getattr(hint, "__metadata__", None)
    if extra:
        return Shape(kind="int", go=extra[0].extra["go"])
    if issubclass(hint, IntEnum):
        return Shape(kind="int", go="int")
    kind, go = _KINDS[hint]
    return Shape(kind=kind, go=go)


class ProfilezOptions(msgspec.Struct, kw_only=True):
    name: str = ""
    debug: int = 0
    duration: Duration = 0


class SystemEndpoint(msgspec.Struct, frozen=True):
    form: RequestFormat
    answer: Callable[..., Any]
    """Called with server and options, and with the account's name if the request is about an account."""


def profilez(server: ServerInstance, options: ProfilezOptions) -> dict[str, Any]:
    """Return why there is no profile: only Go programs have them."""
    text = f'Profile "{options.name}" not found' if options.name else "Profile name not specified"
    return {"profile": None, "error": text}


_CONNZ: Final = RequestFormat("ConnzEventOptions", "ConnzOptions", ConnzOptions)
_SUBSZ: Final = RequestFormat("SubszEventOptions", "SubszOptions", SubszOptions)
_LEAFZ: Final = RequestFormat("LeafzEventOptions", "LeafzOptions", LeafzOptions)
_JSZ: Final = RequestFormat("JszEventOptions", "JSzOptions", JszOptions)
_STATZ: Final = RequestFormat("AccountStatzEventOptions", "AccountStatzOptions", AccstatzOptions)

SERVER_ENDPOINTS: Final[Mapping[str, SystemEndpoint]] = {
    "VARZ": SystemEndpoint(RequestFormat("VarzEventOptions"), lambda server, _: varz(server)),
    "SUBSZ": SystemEndpoint(_SUBSZ, subsz),
    "CONNZ": SystemEndpoint(_CONNZ, connz),
    "ROUTEZ": SystemEndpoint(RequestFormat("RoutezEventOptions", "RoutezOptions", RoutezOptions), routez),
    "GATEWAYZ": SystemEndpoint(RequestFormat("GatewayzEventOptions", "GatewayzOptions", GatewayzOptions), gatewayz),
    "LEAFZ": SystemEndpoint(_LEAFZ, leafz),
    "ACCOUNTZ": SystemEndpoint(RequestFormat("AccountzEventOptions", "AccountzOptions", AccountzOptions), accountz),
    "JSZ": SystemEndpoint(_JSZ, jsz),
    "HEALTHZ": SystemEndpoint(RequestFormat("HealthzEventOptions", "HealthzOptions", HealthzOptions), healthz),
    "PROFILEZ": SystemEndpoint(RequestFormat("ProfilezEventOptions", "ProfilezOptions", ProfilezOptions), profilez),
    "EXPVARZ": SystemEndpoint(RequestFormat("ExpvarzEventOptions"), lambda server, _: expvarz(server)),
    "IPQUEUESZ": SystemEndpoint(
        RequestFormat("IpqueueszEventOptions", "IpqueueszOptions", IpqueueszOptions), ipqueuesz
    ),
    "RAFTZ": SystemEndpoint(RequestFormat("RaftzEventOptions", "RaftzOptions", RaftzOptions), raftz),
}
"""Asked on `$SYS.REQ.SERVER.PING.<name>` and `$SYS.REQ.SERVER.<id>.<name>`."""


def _about(
    answer: Callable[[Any, Any], object], option: str = "account", **others: Any
) -> Callable[[ServerInstance, Any, str], object]:
    """Return a responder about an account, given in the options of `answer`."""
    return lambda server, options, account: answer(
        server, msgspec.structs.replace(options, **{option: account}, **others)
    )


def _account_statz(server: ServerInstance, options: AccstatzOptions, account: str) -> Making[dict[str, Any]]:
    if account != ALL_SERVERS:
        options.accounts = [account]
    found = yield from accstatz(server, options)
    if not found["account_statz"] and not options.include_unused:
        raise NotAnsweredError
    return found


ACCOUNT_ENDPOINTS: Final[Mapping[str, SystemEndpoint]] = {
    "SUBSZ": SystemEndpoint(_SUBSZ, _about(subsz, subscriptions=True)),
    "CONNZ": SystemEndpoint(_CONNZ, _about(connz, "acc")),
    "LEAFZ": SystemEndpoint(_LEAFZ, _about(leafz)),
    "JSZ": SystemEndpoint(_JSZ, _about(jsz_account)),
    "INFO": SystemEndpoint(
        RequestFormat("AccInfoEventOptions"), lambda server, _, account: account_info(server, account)
    ),
    "STATZ": SystemEndpoint(_STATZ, _account_statz),
}
"""Asked on `$SYS.REQ.ACCOUNT.<account>.<name>`."""


def statsz(server: ServerInstance) -> dict[str, Any]:
    """Return the body of STATSZ; its number of servers is how many answers the `nats` tool waits for.

    Those are this server and its neighbors by leaf nodes that share the system account; nats-server counts theirs, too.
    """
    broker, usage, cores = server.broker, process_usage(), os.cpu_count() or 1
    neighbors = {peer.remote_server for peer in broker.leafs.values() if peer.account is broker.system_account}
    stats: dict[str, Any] = {
        "start": format_time(broker.start_ns),
        "mem": usage.mem,
        "cores": cores,
        "cpu": usage.cpu,
        **_traffic(server),
        "active_servers": 1 + len(neighbors - {""}),
    }
    if server.engine is not None:
        config = {key: value for key, value in jetstream_config(server).items() if key != "store_dir"}
        stats["jetstream"] = {"config": config, "stats": jetstream_stats(server), "limits": jetstream_limits(server)}
    stats["gomaxprocs"] = cores
    return {"server": server_info(broker), "statsz": stats}


def _traffic(server: ServerInstance) -> dict[str, Any]:
    broker = server.broker
    moved = broker.gone.plus(broker.sessions.values())
    sent = {"msgs": moved.out_msgs, "bytes": moved.out_bytes}
    received = {"msgs": moved.in_msgs, "bytes": moved.in_bytes}
    traffic: dict[str, Any] = {
        "connections": len(broker.sessions),
        "total_connections": broker.total_connections,
        "active_accounts": sum(_is_active(server, account) for account in broker.accounts.values()),
        "subscriptions": broker.subscriptions,
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": broker.slow_consumers,
    }
    leafs = leaf_faults(server)
    if broker.slow_consumers:
        traffic["slow_consumer_stats"] = by_kind(broker.slow_consumers, leafs[0])
    if broker.stale_connections:
        traffic["stale_connections"] = broker.stale_connections
        traffic["stale_connection_stats"] = by_kind(broker.stale_connections, leafs[1])
    return traffic


def _is_active(server: ServerInstance, account: Account) -> bool:
    """Return whether the account has a connection; the server counts in its own account, and in those with streams."""
    if account.sessions or account is server.broker.system_account:
        return True
    js = server.engine.accounts.get(account.name) if server.engine is not None else None
    return js is not None and bool(js.streams)


CHUNK_BYTES: Final = 64 << 10
"""Bytes of pieces of an answer that are joined before all are copied to it."""
BAD_REQUEST: Final = 400
FAILED: Final = 500


class ResponseWriter:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answer(
        self, request: SystemRequest, form: RequestFormat, respond: Callable[[Any], Any], nothing: bool = False
    ) -> Iterator[object] | None:
        """Answer a request as its `form` reads, with what `respond` makes of its options.

        `nothing`: there is never data, only success or not. A request without a reply subject is not carried out.
        Returns the rest of a long answer.
        """
        if not request.reply:
            return None
        try:
            wanted, options = form.read(request.body)
        except DecodeError as fault:
            self.refuse(request, BAD_REQUEST, str(fault))
            return None
        if wanted.excludes(self._broker):
            return None
        try:
            data = respond(options)
        except NotAnsweredError:
            return None
        except BadRequestError as refused:
            self.refuse(request, FAILED, str(refused), {} if nothing else {"data": None})
            return None
        return self._sending(request, data, nothing)

    def _sending(self, request: SystemRequest, data: Any, nothing: bool) -> Iterator[object]:
        if isinstance(data, Generator):
            try:
                data = yield from data
            except NotAnsweredError:
                return
        if nothing:
            self.send(request, self._body({}), request.header)
            return
        chunks, some, size = list[bytes](), list[bytes](), 0
        for piece in pieces(data, b"", 0):
            some.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                chunks.append(b"".join(some))
                some, size = [], 0
            yield size
        chunks += some
        body = yield from filling(self._body({"data": HOLE}), chunks)
        yield from self._publishing(request, body, request.header)

    def refuse(self, request: SystemRequest, code: int, text: str, data: dict[str, Any] | None = None) -> None:
        self.send(request, self._body({**(data or {}), "error": {"code": code, "description": text}}))

    def _body(self, rest: dict[str, Any]) -> dict[str, Any]:
        return {"server": server_info(self._broker), **rest}

    def send(self, request: SystemRequest, body: object, header: bytes = b"") -> None:
        """Publish an answer to the reply subject; `header` is the request's and may ask for an encoding."""
        finish(self._publishing(request, encode(body), header))

    def _publishing(self, request: SystemRequest, payload: bytes, header: bytes) -> Steps[None]:
        block, payload = yield from headers.compressing(payload, header)
        request.account.publish(request.reply, b"", block, payload)


class ClientRequest(Model):
    cid: Uint64 = 0


def kick(broker: Broker, cid: int) -> None:
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


def subscribers(account: Account, subject: str, queue: bytes | None = None) -> Making[int]:
    """Return the number of clients' subscriptions that take a literal `subject`, or that a pattern covers.

    With `queue`, only of that group.
    """
    every, literal, count, cost = iter(account.routes.subs), is_literal(subject), 0, 0
    if literal:
        nodes, _, _ = yield from account.routes.subs.walking(subject.encode().split(b"."))
        every = (sub for node in nodes for sub in tuple(node.owners))
    for sub in every:
        if sub.session is not None and queue in (None, sub.queue):
            if literal or is_subset(sub.subject.decode("utf-8", "replace"), subject):
                count += 1
            cost += (len(sub.subject) + len(subject)) // LONG_SUBJECT_BYTES
        cost += 1
        if cost >= LOOKED_AT:
            yield
            cost = 0
    return count


STATSZ_FORMAT: Final = RequestFormat("StatszEventOptions")
OPERATION_FORMAT: Final = RequestFormat("EventFilterOptions")
ACCOUNT_TOKEN: Final = 3
"""The index of the account's token in `$SYS.REQ.ACCOUNT.<account>.…`."""


class SubscribersRequest(Model):
    acc: str = ""
    subject: str = ""


class AccountRequest(Model):
    acc: str = ""


class SystemResponders:
    def __init__(
        self, server: ServerInstance, accounts: AccountEvents, heartbeat: StatszHeartbeat, reload: ReloadCall
    ) -> None:
        """`reload` reads the configuration again, and calls back with the reason if that fails."""
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

    def _answer(self, endpoint: SystemEndpoint, request: SystemRequest) -> Iterator[object] | None:
        return self._responses.answer(request, endpoint.form, partial(endpoint.answer, self._server))

    def _answer_idz(self, request: SystemRequest) -> None:
        broker = self._broker
        if request.reply:
            identity = {"name": broker.server_name, "host": broker.options.host, "id": broker.server_id}
            self._responses.send(request, identity)

    def answer_unknown_user(self, request: SystemRequest) -> None:
        """Answer a request for the user that came past its own account's subject: the user is unknown."""
        if request.reply:
            data = {"user": "", "account": ""}
            self._responses.send(request, {"server": server_info(self._broker), "data": data}, request.header)

    def _answer_statsz(self, request: SystemRequest) -> None:
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

    def _operate(self, operation: Callable[[Broker, int], None], request: SystemRequest) -> Iterator[object] | None:
        asked = _read(request.body, ClientRequest)
        if asked is None:
            return None
        return self._responses.answer(
            request, OPERATION_FORMAT, lambda _: operation(self._broker, asked.cid), nothing=True
        )

    def _answer_reload(self, request: SystemRequest) -> None:
        def done(fault: BadRequestError | None) -> None:
            if fault is not None:
                self._responses.refuse(request, FAILED, str(fault), {})
            else:
                self._responses.send(request, {"server": server_info(self._broker)}, request.header)

        def begin(options: Any) -> None:
            self._reload(done)
            raise NotAnsweredError

        self._responses.answer(request, OPERATION_FORMAT, begin, nothing=True)

    # Accounts

    def _answer_about(self, endpoint: SystemEndpoint, request: SystemRequest) -> Iterator[object] | None:
        """Answer about the account that the subject names; outside the system account, about the asker's."""
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        if request.account is not self._broker.system_account:
            name = request.account.name
        return self._responses.answer(
            request, endpoint.form, lambda options: endpoint.answer(self._server, options, name)
        )

    def _answer_conns(self, request: SystemRequest) -> None:
        name = request.subject.split(".")[ACCOUNT_TOKEN]
        asked = _read(request.body, AccountRequest) if request.body else AccountRequest(acc=name)
        account = self._broker.accounts.get(name)
        if request.reply and asked is not None and asked.acc in ("", name) and account is not None and account.sessions:
            self._accounts.publish(account, request.reply)

    def _answer_nsubs(self, request: SystemRequest) -> Iterator[object]:
        asked = _read(request.body, SubscribersRequest)
        account = self._broker.accounts.get(asked.acc) if asked is not None else None
        if request.reply and asked is not None and account is not None and account.sessions:
            self._responses.send(request, (yield from subscribers(account, asked.subject)))

    def _answer_subscribers(self, request: SystemRequest) -> Iterator[object]:
        if request.reply and request.origin is not None:
            subject, _, queue = request.body.decode("utf-8", "replace").strip().partition(" ")
            group = queue.split(" ")[0].encode() if queue else None
            self._responses.send(request, (yield from subscribers(request.origin.account, subject, group)))


def _read(body: bytes, model: type[Any]) -> Any:
    """Return a malformed body as None: no answer is sent."""
    try:
        return msgspec.convert(read_plain(body, model), model)
    except DecodeError:
        return None
