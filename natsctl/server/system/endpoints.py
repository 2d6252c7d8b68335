"""Endpoints of the system account: their names, the options of their requests, and STATSZ.

A request may name the servers that it is meant for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from natsctl.api.model import Duration
from natsctl.api.shapes import Field, Shape
from natsctl.api.strict import read_plain
from natsctl.api.times import format_time
from natsctl.broker.info import server_info
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
from natsctl.server.monitor.connz import ConnzOptions, connz
from natsctl.server.monitor.healthz import HealthzOptions, healthz
from natsctl.server.monitor.jsz import JszOptions, jsz, jsz_account
from natsctl.server.monitor.runtime import IpqueueszOptions, expvarz, ipqueuesz, process_usage
from natsctl.server.monitor.subsz import SubszOptions, subsz
from natsctl.server.monitor.varz import by_kind, jetstream_config, jetstream_limits, jetstream_stats, leaf_faults, varz
from natsctl.server.system.requests import ALL_SERVERS

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.server.view import ServerView


_FILTER: Final = "EventFilterOptions"
_KINDS: Final[dict[Any, tuple[str, str]]] = {str: ("str", "string"), bool: ("bool", "bool"), int: ("int", "int")}


class NoResponseError(Exception):
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
    """The options of an endpoint that has none."""


class RequestFormat(msgspec.Struct, frozen=True):
    """The format of one kind of request; `name` and `part` are the Go types of it and of its options in error texts."""

    name: str
    part: str = ""
    options: type[msgspec.Struct] = NoOptions

    def read(self, body: bytes) -> tuple[ServerFilter, Any]:
        """Return the filter and the options of a body; an empty one has none. Raises DecodeError with Go's text."""
        given = read_plain(body, _shape(self)) if body else {}
        return _filled(ServerFilter, given), _filled(self.options, given)


def _filled(model: type[msgspec.Struct], given: dict[str, Any]) -> Any:
    """Return a model of the given fields; types were checked before, ranges are checked by the endpoint."""
    names = zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True)
    return model(**{attribute: given[key] for key, attribute in names if key in given})


@cache
def _shape(form: RequestFormat) -> Shape:
    fields: dict[str, Field] = {}
    for model, part in ((form.options, form.part), (ServerFilter, _FILTER)):
        hints = get_type_hints(model, include_extras=True)
        for key, attribute in zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True):
            fields[key] = Field(_value_shape(hints[attribute]), part)
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
    """Options of `profilez`."""

    name: str = ""
    debug: int = 0
    duration: Duration = 0


class Endpoint(msgspec.Struct, frozen=True):
    """One endpoint: the format of its request, and its responder."""

    form: RequestFormat
    answer: Callable[[ServerView, Any], Any]


def profilez(server: ServerView, options: ProfilezOptions) -> dict[str, Any]:
    """Return why there is no profile: those are of Go programs, and this is none."""
    text = f'Profile "{options.name}" not found' if options.name else "Profile name not specified"
    return {"profile": None, "error": text}


_CONNZ: Final = RequestFormat("ConnzEventOptions", "ConnzOptions", ConnzOptions)
_SUBSZ: Final = RequestFormat("SubszEventOptions", "SubszOptions", SubszOptions)
_LEAFZ: Final = RequestFormat("LeafzEventOptions", "LeafzOptions", LeafzOptions)
_JSZ: Final = RequestFormat("JszEventOptions", "JSzOptions", JszOptions)
_STATZ: Final = RequestFormat("AccountStatzEventOptions", "AccountStatzOptions", AccstatzOptions)

SERVER_ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "VARZ": Endpoint(RequestFormat("VarzEventOptions"), lambda server, _: varz(server)),
    "SUBSZ": Endpoint(_SUBSZ, subsz),
    "CONNZ": Endpoint(_CONNZ, connz),
    "ROUTEZ": Endpoint(RequestFormat("RoutezEventOptions", "RoutezOptions", RoutezOptions), routez),
    "GATEWAYZ": Endpoint(RequestFormat("GatewayzEventOptions", "GatewayzOptions", GatewayzOptions), gatewayz),
    "LEAFZ": Endpoint(_LEAFZ, leafz),
    "ACCOUNTZ": Endpoint(RequestFormat("AccountzEventOptions", "AccountzOptions", AccountzOptions), accountz),
    "JSZ": Endpoint(_JSZ, jsz),
    "HEALTHZ": Endpoint(RequestFormat("HealthzEventOptions", "HealthzOptions", HealthzOptions), healthz),
    "PROFILEZ": Endpoint(RequestFormat("ProfilezEventOptions", "ProfilezOptions", ProfilezOptions), profilez),
    "EXPVARZ": Endpoint(RequestFormat("ExpvarzEventOptions"), lambda server, _: expvarz(server)),
    "IPQUEUESZ": Endpoint(RequestFormat("IpqueueszEventOptions", "IpqueueszOptions", IpqueueszOptions), ipqueuesz),
    "RAFTZ": Endpoint(RequestFormat("RaftzEventOptions", "RaftzOptions", RaftzOptions), raftz),
}
"""Asked on `$SYS.REQ.SERVER.PING.<name>` and `$SYS.REQ.SERVER.<id>.<name>`."""


def _account_subsz(server: ServerView, options: SubszOptions, account: str) -> dict[str, Any]:
    options.subscriptions, options.account = True, account
    return subsz(server, options)


def _account_connz(server: ServerView, options: ConnzOptions, account: str) -> dict[str, Any]:
    options.acc = account
    return connz(server, options)


def _account_leafz(server: ServerView, options: LeafzOptions, account: str) -> dict[str, Any]:
    options.account = account
    return leafz(server, options)


def _account_jsz(server: ServerView, options: JszOptions, account: str) -> dict[str, Any]:
    options.account = account
    return jsz_account(server, options)


def _account_statz(server: ServerView, options: AccstatzOptions, account: str) -> dict[str, Any]:
    if account != ALL_SERVERS:
        options.accounts = [account]
    found = accstatz(server, options)
    if not found["account_statz"] and not options.include_unused:
        raise NoResponseError
    return found


class AccountEndpoint(msgspec.Struct, frozen=True):
    """One endpoint that is asked about an account."""

    form: RequestFormat
    answer: Callable[[ServerView, Any, str], Any]


ACCOUNT_ENDPOINTS: Final[Mapping[str, AccountEndpoint]] = {
    "SUBSZ": AccountEndpoint(_SUBSZ, _account_subsz),
    "CONNZ": AccountEndpoint(_CONNZ, _account_connz),
    "LEAFZ": AccountEndpoint(_LEAFZ, _account_leafz),
    "JSZ": AccountEndpoint(_JSZ, _account_jsz),
    "INFO": AccountEndpoint(
        RequestFormat("AccInfoEventOptions"), lambda server, _, account: account_info(server, account)
    ),
    "STATZ": AccountEndpoint(_STATZ, _account_statz),
}
"""Asked on `$SYS.REQ.ACCOUNT.<account>.<name>`."""


def statsz(server: ServerView) -> dict[str, Any]:
    """Return the message, keys in nats-server's order."""
    broker, usage, cores = server.broker, process_usage(), os.cpu_count() or 1
    stats: dict[str, Any] = {
        "start": format_time(broker.start_ns),
        "mem": usage.mem,
        "cores": cores,
        "cpu": usage.cpu,
        **_traffic(server),
        "active_servers": 1,
    }
    if server.engine is not None:
        config = {key: value for key, value in jetstream_config(server).items() if key != "store_dir"}
        stats["jetstream"] = {"config": config, "stats": jetstream_stats(server), "limits": jetstream_limits(server)}
    stats["gomaxprocs"] = cores
    return {"server": server_info(broker), "statsz": stats}


def _traffic(server: ServerView) -> dict[str, Any]:
    """Return the connections, and their traffic."""
    broker = server.broker
    sent = {"msgs": broker.out_msgs, "bytes": broker.out_bytes}
    received = {"msgs": broker.in_msgs, "bytes": broker.in_bytes}
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


def _is_active(server: ServerView, account: Account) -> bool:
    """Return whether the account has a connection; the server counts in its own account, and in those with streams."""
    if account.sessions or account is server.broker.system_account:
        return True
    js = server.engine.accounts.get(account.name) if server.engine is not None else None
    return js is not None and bool(js.streams)
