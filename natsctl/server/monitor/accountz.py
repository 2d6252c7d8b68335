"""`/accountz` and `/accstatz`: the accounts, their configuration, and the traffic of their connections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from natsctl.api.subject_index import finish
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.broker.account import Account, Traffic
from natsctl.broker.imports.account_config import AccountConfig, Latency, ServiceExport, StreamExport, SubjectMap
from natsctl.server.monitor.connz import account_claims, held_account, name_tag, subscription_stats
from natsctl.server.monitor.document import Making, head, present
from natsctl.server.monitor.query import BadRequestError, EndpointOptions

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


_RESPONSES: Final = {"single": "Singleton", "stream": "Streamed", "chunked": "Chunked"}
_DOMAIN: Final = ("$KV.>", "$OBJ.>", "ACCOUNT.>", "CONSUMER.>", "DIRECT.>", "INFO", "META.>", "SERVER.>", "STREAM.>")
"""The subjects below a domain's name."""
_API: Final = "$JS.API"
_SYSTEM_EXPORTS: Final = (
    ServiceExport("$SYS.DEBUG.SUBSCRIBERS"), ServiceExport("$SYS.REQ.USER.*.INFO"),
    ServiceExport("$SYS.REQ.ACCOUNT.*.CONNZ", response="stream"),
    ServiceExport("$SYS.REQ.ACCOUNT.*.STATZ", response="stream"),
)  # fmt: skip
_USER_INFO: Final = ("$SYS.REQ.USER.{}.INFO", "$SYS.REQ.USER.INFO", True)
_SYSTEM_IMPORTS: Final = (
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
    _USER_INFO,
)
"""Services of the system account that each account imports: subject, name here, whether the requester is shared."""


def mappings(config: AccountConfig, domain: str, verbs: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the mappings by source, those of the domain too; weights add up along the destinations of a source."""
    shown = {mapping.source: _destinations(mapping) for mapping in config.mappings}
    for verb in verbs if domain else ():
        subject = verb if verb.startswith("$") else f"{_API}.{verb}"
        shown[f"$JS.{domain}.API.{verb}"] = [{"subject": subject, "weight": 100}]
    return dict(sorted(shown.items()))


def _destinations(mapping: SubjectMap) -> list[dict[str, Any]]:
    weighted = sorted(mapping.destinations, key=lambda destination: destination.weight)
    rest = 100 - sum(one.weight for one in weighted)
    pairs = [(one.subject, one.weight) for one in weighted]
    if rest > 0 and all(subject != mapping.source for subject, _ in pairs):
        pairs = sorted([*pairs, (mapping.source, rest)], key=lambda pair: pair[1])
    shown, total = [], 0
    for subject, weight in pairs:
        total += weight
        shown.append({"subject": subject, "weight": total})
    return shown


def exports(config: AccountConfig, system: str, jetstream: bool) -> list[dict[str, Any]]:
    """Return services, then streams; those of the system account itself come last."""
    shown = sorted(config.exports, key=lambda export: isinstance(export, StreamExport))
    if config.name == system:
        shown += _SYSTEM_EXPORTS
        if jetstream:
            shown.append(ServiceExport(f"{_API}.>"))
    return [_export(export) for export in shown]


def _export(export: ServiceExport | StreamExport) -> dict[str, Any]:
    service = isinstance(export, ServiceExport)
    shown: dict[str, Any] = {"subject": export.subject, "type": "service" if service else "stream"}
    if export.token_required:
        shown["token_req"] = True
    if isinstance(export, ServiceExport):
        shown["response_type"] = _RESPONSES[export.response]
        if export.latency is not None:
            shown["service_latency"] = _latency(export.latency)
    return {**shown, "approved_accounts": list(export.accounts)} if export.accounts else shown


def _latency(latency: Latency) -> dict[str, Any]:
    return {"sampling": latency.sampling or "headers", "results": latency.subject}


def imports(account: Account, system: str, jetstream: bool) -> list[dict[str, Any]]:
    """Return the imports in effect, streams, then services; the services of every account come last."""
    links = account.imports
    streams = [
        _stream(link.account, link.subject, link.local) for link in (links.streams.links if links.streams else ())
    ]
    services = []
    for link in links.services:
        shown = _service(link.subject, link.account, link.local, link.share)
        if link.export.latency is not None:
            shown["latency"] = _latency(link.export.latency)
        services.append(shown)
    return streams + services + list(_built_in(account.name, system, jetstream))


def _built_in(name: str, system: str, jetstream: bool) -> Iterator[dict[str, Any]]:
    if not system:
        return
    for subject, here, share in _SYSTEM_IMPORTS if name != system else (_USER_INFO,):
        yield _service(subject.format(name), system, here, share)
    if jetstream and name != system:
        yield _service(f"{_API}.>", system, f"{_API}.>", True)


def _stream(account: str, subject: str, local: str) -> dict[str, Any]:
    shown = {"subject": subject, "account": account, "local_subject": local, "type": "stream"}
    return {**shown, "invalid": False, "share": False, "tracking": False}


def _service(subject: str, account: str, here: str, share: bool) -> dict[str, Any]:
    shown = {"subject": subject, "account": account, "to": here, "local_subject": here, "type": "service"}
    return {**shown, "invalid": False, "share": share, "tracking": False}


class AccountzOptions(EndpointOptions, kw_only=True):
    QUERY: ClassVar = {"account": "acc"}

    account: str = ""


def accountz(server: ServerInstance, options: AccountzOptions) -> dict[str, Any]:
    broker = server.broker
    shown = head(broker)
    if broker.system_account.name:
        shown["system_account"] = broker.system_account.name
    if options.account:
        return {**shown, "account_detail": account_info(server, options.account)}
    return {**shown, "accounts": list(broker.accounts)}


def account_info(server: ServerInstance, name: str) -> dict[str, Any]:
    """Return the details of one account: also the answer to `$SYS.REQ.ACCOUNT.<name>.INFO`.

    Raises BadRequestError.
    """
    broker, engine = server.broker, server.engine
    account = broker.accounts.get(name)
    if account is None:
        raise BadRequestError(f"Account {name} does not exist")
    served = engine is not None and name in engine.accounts
    held = held_account(server, name)
    info: dict[str, Any] = {
        "account_name": name,
        "update_time": format_time(held.updated_s * SECOND if held else server.config_load_ns or broker.start_ns),
    }
    if account is broker.system_account:
        info["is_system"] = True
    info |= {
        "expired": held is not None and held.expired,
        "complete": True,
        "jetstream_enabled": served,
        "leafnode_connections": sum(1 for peer in broker.leafs.values() if peer.account is account),
        "client_connections": len(account.sessions),
        "subscriptions": account.subscriptions,
    }
    domain = engine.options.domain if engine is not None else ""
    verbs = _DOMAIN if served else (">",) if account is broker.system_account else ()
    lists = {
        "mappings": mappings(account.config, domain, verbs),
        "exports": exports(account.config, broker.system_account.name, engine is not None),
        "imports": imports(account, broker.system_account.name, engine is not None),
    }
    info |= present(lists)
    before, behind = account_claims(held) if held is not None else ({}, {})
    stats = finish(subscription_stats([account]))
    return {**info, **before, "name_tag": name_tag(account), **behind, "sublist_stats": stats}


class AccstatzOptions(EndpointOptions, kw_only=True):
    """Options of `accstatz`; no names: every account."""

    QUERY: ClassVar = {"accounts": "", "include_unused": "unused"}

    accounts: list[str] = msgspec.field(default_factory=list)
    include_unused: bool = False


def accstatz(server: ServerInstance, options: AccstatzOptions) -> Making[dict[str, Any]]:
    broker = server.broker
    named = [broker.accounts[name] for name in options.accounts if name in broker.accounts]
    shown = named if options.accounts else list(broker.accounts.values())
    stats = []
    for account in shown:
        stat = account_stat(server, account)
        if options.include_unused or stat["total_conns"]:
            stats.append(stat)
        yield
    return {**head(broker), "account_statz": stats}


def account_stat(server: ServerInstance, account: Account) -> dict[str, Any]:
    peers = [peer for peer in server.broker.leafs.values() if peer.account is account]
    leafs, count = Traffic().plus(peers), len(peers)
    clients, conns = account.gone.plus(account.sessions), len(account.sessions)
    sent = (clients.out_msgs + leafs.out_msgs, clients.out_bytes + leafs.out_bytes)
    received = (clients.in_msgs + leafs.in_msgs, clients.in_bytes + leafs.in_bytes)
    return {
        "acc": account.name,
        "name": name_tag(account),
        "conns": conns,
        "leafnodes": count,
        "total_conns": conns + count,
        "num_subscriptions": account.subscriptions,
        "sent": _data(*sent, leafs.out_msgs, leafs.out_bytes),
        "received": _data(*received, leafs.in_msgs, leafs.in_bytes),
        "slow_consumers": account.slow_consumers,
    }


def _data(msgs: int, size: int, leaf_msgs: int, leaf_bytes: int) -> dict[str, Any]:
    nothing = {"msgs": 0, "bytes": 0}
    leafs = {"msgs": leaf_msgs, "bytes": leaf_bytes}
    return {"msgs": msgs, "bytes": size, "gateways": nothing, "routes": nothing, "leafs": leafs}
