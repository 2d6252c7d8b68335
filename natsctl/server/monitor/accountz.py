"""`/accountz` and `/accstatz`: the accounts, their configuration, and the traffic of their connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from natsctl.api.subject_index import finish
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.broker.account import Account, Traffic
from natsctl.broker.imports.account_config import (
    RESPONSE_THRESHOLD_NS,
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMap,
)
from natsctl.server.monitor.connz import account_claims, held_account, name_tag, subscription_stats
from natsctl.server.monitor.document import Making, head, present
from natsctl.server.monitor.query import BadRequestError, EndpointOptions

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


_RESPONSES: Final = {"single": "Singleton", "stream": "Stream", "chunked": "Chunked"}
_DOMAIN: Final = ("$KV.>", "$OBJ.>", "ACCOUNT.>", "CONSUMER.>", "DIRECT.>", "INFO", "META.>", "SERVER.>", "STREAM.>")
"""The subjects below a domain's name."""
_API: Final = "$JS.API"
_BUILT_IN: Final = (
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
    ("$SYS.REQ.USER.{}.INFO", "$SYS.REQ.USER.INFO", True),
)
"""Services of the system account that each account imports: subject, name here, whether the requester is shared."""


def mappings(config: AccountConfig, domain: str) -> dict[str, list[dict[str, Any]]]:
    """Return the mappings by source, those of the domain too; weights add up along the destinations of a source."""
    shown = {mapping.source: _destinations(mapping) for mapping in config.mappings}
    if domain:
        for verb in _DOMAIN:
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


def exports(config: AccountConfig) -> list[dict[str, Any]]:
    services = [_export(export) for export in config.exports if isinstance(export, ServiceExport)]
    return services + [_export(export) for export in config.exports if isinstance(export, StreamExport)]


def _export(export: ServiceExport | StreamExport) -> dict[str, Any]:
    service = isinstance(export, ServiceExport)
    shown: dict[str, Any] = {"subject": export.subject, "type": "service" if service else "stream"}
    if export.token_required:
        shown["token_req"] = True
    if isinstance(export, ServiceExport):
        shown["response_type"] = _RESPONSES[export.response]
        if export.response_threshold_ns != RESPONSE_THRESHOLD_NS:
            shown["response_threshold"] = export.response_threshold_ns
        if export.latency is not None:
            sampling = export.latency.sampling or "headers"
            shown["service_latency"] = {"sampling": sampling, "results": export.latency.subject}
    if export.account_token_position:
        shown["account_token_position"] = export.account_token_position
    return {**shown, "approved_accounts": list(export.accounts)} if export.accounts else shown


def imports(config: AccountConfig, system: str, jetstream: bool) -> list[dict[str, Any]]:
    """Return streams, then services; the services of every account come last."""
    streams = [_stream(one) for one in config.imports if isinstance(one, StreamImport)]
    services = [
        _service(one.subject, one.account, one.to or one.subject, one.share)
        for one in config.imports
        if isinstance(one, ServiceImport)
    ]
    return streams + services + list(_built_in(config.name, system, jetstream))


def _built_in(name: str, system: str, jetstream: bool) -> Iterator[dict[str, Any]]:
    if name == system or not system:
        return
    for subject, here, share in _BUILT_IN:
        yield _service(subject.format(name), system, here, share)
    if jetstream:
        yield _service(f"{_API}.>", system, f"{_API}.>", True)


def _stream(one: StreamImport) -> dict[str, Any]:
    shown = {"subject": one.subject, "account": one.account, "local_subject": one.to or one.subject, "type": "stream"}
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
    domain = engine.options.domain if engine is not None and served else ""
    lists = {
        "mappings": mappings(account.config, domain),
        "exports": exports(account.config),
        "imports": imports(account.config, broker.system_account.name, engine is not None),
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
