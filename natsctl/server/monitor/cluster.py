"""Endpoints of routes, gateways, Raft groups and leaf nodes.

One node has no routes, gateways or Raft groups: `/routez`, `/gatewayz` and `/raftz` have empty lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from natsctl.server.monitor.connz import proxy
from natsctl.server.monitor.document import head, round_trip, text
from natsctl.server.monitor.query import NO_SUBJECTS, EndpointOptions, ListingOptions

if TYPE_CHECKING:
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.server.instance import ServerInstance


class GatewayzOptions(ListingOptions, kw_only=True):
    QUERY: ClassVar = {"name": "gw_name", "accounts": "accs", "account_name": "acc_name"} | NO_SUBJECTS

    name: str = ""
    accounts: bool = False
    account_name: str = ""


def gatewayz(server: ServerInstance, options: GatewayzOptions) -> dict[str, Any]:
    return {**head(server.broker), "outbound_gateways": {}, "inbound_gateways": {}}


class RoutezOptions(ListingOptions, kw_only=True):
    QUERY: ClassVar = NO_SUBJECTS


def routez(server: ServerInstance, options: RoutezOptions) -> dict[str, Any]:
    broker = server.broker
    shown = {"server_id": broker.server_id, "server_name": broker.server_name, **head(broker)}
    return {**shown, "num_routes": 0, "routes": []}


class RaftzOptions(EndpointOptions, kw_only=True):
    account: str = ""
    group: str = ""


def raftz(server: ServerInstance, options: RaftzOptions) -> dict[str, Any]:
    return {}


class LeafzOptions(EndpointOptions, kw_only=True):
    QUERY: ClassVar = {"subscriptions": "subs", "account": "acc"}

    subscriptions: bool = False
    account: str = ""


def leafz(server: ServerInstance, options: LeafzOptions) -> dict[str, Any]:
    peers = [peer for peer in server.broker.leafs.values() if options.account in ("", peer.account.name)]
    leafs = (_leaf(peer, options.subscriptions) for peer in peers)
    return {**head(server.broker), "leafnodes": len(peers), "leafs": leafs}


def _leaf(peer: LeafLink, with_subjects: bool) -> dict[str, Any]:
    count = len(peer.remote_interest)
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
        "subscriptions": count,
    }
    if with_subjects and count:
        shown["subscriptions_list"] = (text(subject) for subject in peer.subjects())
    if peer.compression:
        shown["compression"] = peer.compression
    if peer.websocket:
        shown["websocket"] = True
    return shown | proxy(peer)
