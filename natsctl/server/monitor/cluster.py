"""Endpoints of routes, gateways, Raft groups and leaf nodes.

One node has no routes, gateways or Raft groups: `/routez`, `/gatewayz` and `/raftz` have empty lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.document import round_trip, text
from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.server.instance import ServerInstance


class GatewayzOptions(msgspec.Struct, kw_only=True):
    """Options of `gatewayz`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


def read_gatewayz(query: Query) -> GatewayzOptions:
    subscriptions, detail = query.subscriptions()
    accounts, name = query.flag("accs"), query.text("acc_name")
    return GatewayzOptions(
        name=query.text("gw_name"),
        accounts=accounts or bool(name),
        account_name=name,
        subscriptions=subscriptions,
        subscriptions_detail=detail,
    )


def gatewayz(server: ServerInstance, options: GatewayzOptions) -> dict[str, Any]:
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


class RoutezOptions(msgspec.Struct, kw_only=True):
    """Options of `routez`."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


def read_routez(query: Query) -> RoutezOptions:
    subscriptions, detail = query.subscriptions()
    return RoutezOptions(subscriptions=subscriptions, subscriptions_detail=detail)


def routez(server: ServerInstance, options: RoutezOptions) -> dict[str, Any]:
    broker = server.broker
    return {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "now": format_time(broker.clock.now_ns()),
        "num_routes": 0,
        "routes": [],
    }


class RaftzOptions(msgspec.Struct, kw_only=True):
    """Options of `raftz`."""

    account: str = ""
    group: str = ""


def raftz(server: ServerInstance, options: RaftzOptions) -> dict[str, Any]:
    return {}


class LeafzOptions(msgspec.Struct, kw_only=True):
    """Options of `leafz`."""

    subscriptions: bool = False
    account: str = ""


def read_leafz(query: Query) -> LeafzOptions:
    return LeafzOptions(subscriptions=query.flag("subs"), account=query.text("acc"))


def leafz(server: ServerInstance, options: LeafzOptions) -> dict[str, Any]:
    broker = server.broker
    peers = [peer for peer in broker.leafs.values() if options.account in ("", peer.account.name)]
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "leafnodes": len(peers),
        "leafs": [_leaf(peer, options.subscriptions) for peer in peers],
    }


def _leaf(peer: LeafLink, with_subjects: bool) -> dict[str, Any]:
    subjects = [text(subject) for subject in peer.subjects()]
    shown: dict[str, Any] = {"id": peer.cid, "name": peer.name, "is_spoke": peer.is_spoke}
    if peer.is_isolated:
        shown["is_isolated"] = True
    shown |= {
        "account": peer.account.name,
        "ip": peer.host,
        "port": peer.port,
        "rtt": round_trip(peer.rtt_ns),
        "in_msgs": peer.in_msgs,
        "out_msgs": peer.out_msgs,
        "in_bytes": peer.in_bytes,
        "out_bytes": peer.out_bytes,
        "subscriptions": len(subjects),
    }
    if with_subjects and subjects:
        shown["subscriptions_list"] = subjects
    if peer.compression:
        shown["compression"] = peer.compression
    if peer.websocket:
        shown["websocket"] = True
    return {**shown, "proxy": {"key": peer.proxy}} if peer.proxy else shown
