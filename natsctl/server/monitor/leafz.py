"""`/leafz`: the connections to leaf nodes and of leaf nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.ages import round_trip
from natsctl.server.monitor.document import text
from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.broker.leaf.peer import LeafPeer
    from natsctl.server.view import ServerView


class LeafzOptions(msgspec.Struct, kw_only=True):
    """What is asked of `leafz`."""

    subscriptions: bool = False
    account: str = ""


def read(query: Query) -> LeafzOptions:
    """Return the options of a query. Raises Refused."""
    return LeafzOptions(subscriptions=query.flag("subs"), account=query.text("acc"))


def leafz(server: ServerView, options: LeafzOptions) -> dict[str, Any]:
    """Return the leaf node connections."""
    broker = server.broker
    peers = [peer for peer in broker.leafs.values() if options.account in ("", peer.account.name)]
    return {
        "server_id": broker.server_id,
        "now": format_time(broker.clock.now_ns()),
        "leafnodes": len(peers),
        "leafs": [_leaf(peer, options.subscriptions) for peer in peers],
    }


def _leaf(peer: LeafPeer, with_subjects: bool) -> dict[str, Any]:
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
    return {**shown, "websocket": True} if peer.websocket else shown
